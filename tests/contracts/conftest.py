"""A folder with the files that the examples of the documentation name."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from scipy.stats import ortho_group

from congruence import read_table

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "docs" / "train.md"

DECODER = """
import torch

def load_decoder():
    return decoder(0)

def load():
    return decoder(0)

def load_retrained():
    return decoder(1)

def decoder(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.LeakyReLU(0.5), torch.nn.Linear(16, 12)).eval()
"""

NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleDict({"fc": torch.nn.Conv2d(3, 4, 3)})

    def forward(self, x):
        return self.encoder["fc"](x)

def load():
    return Network()
"""


@pytest.fixture(scope="module")
def figures(drawn_once):
    with drawn_once():
        yield


@pytest.fixture
def world(tmp_path, monkeypatch, figures):
    """A folder with the files that the examples name."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(240, 4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mymodel", raising=False)
    (tmp_path / "tables").mkdir()
    for seed, name in enumerate(["old", "new", "run_a", "run_b"]):
        np.save(f"{name}.npy", x @ ortho_group.rvs(4, random_state=seed))
    columns = {f"emb_{i}": x[:, i] for i in range(4)}
    pq.write_table(pa.table(columns), "run_c.parquet")
    documents = {"doc_id": [f"d{i}" for i in range(240)]}
    for seed, name in enumerate(["old", "new", "new_full", "embeddings", "old_queries", "new_queries"]):
        moved = x @ ortho_group.rvs(4, random_state=seed)
        pq.write_table(pa.table(documents | {f"emb_{i}": moved[:, i] for i in range(4)}), f"{name}.parquet")
    (tmp_path / "demo").mkdir()
    for seed in range(2):  # as `make demo` writes them
        moved = x @ ortho_group.rvs(4, random_state=seed)
        rows = {"id": np.arange(240), "Metadata_digit": np.arange(240) % 10}
        for path in (f"demo/seed{seed}.parquet", f"seed{seed}.parquet"):
            pq.write_table(pa.table(rows | {f"emb_{i}": moved[:, i] for i in range(4)}), path)
    atoms = rng.normal(size=(20, 16))
    for i in range(3):
        own = rng.normal(size=(10, 16))
        save_file({"W_dec": np.vstack([atoms, own]).astype(np.float32)}, f"sae{i}.safetensors")
    (tmp_path / "mymodel.py").write_text(DECODER)
    (own,) = re.findall(r"```python\n(import torch\n\n\nclass MyModel.*?)```", TRAIN.read_text(), re.DOTALL)
    (tmp_path / "autoencoder.py").write_text(own)
    np.save("latents.npy", rng.normal(size=(60, 4)))
    (tmp_path / "checkpoints").mkdir()
    for step in (10, 100, 1000):
        np.save(f"checkpoints/step{step}.npy", x + rng.normal(size=x.shape) / step)
    columns |= {"cell_id": [f"c{i}" for i in range(240)], "plate": [f"p{i % 12}" for i in range(240)]}
    for i in range(3):
        pq.write_table(pa.table(columns), f"tables/run{i}.parquet")
    gene = rng.choice(["none", "MTOR", "PLK1"], 240)
    wells = {f"emb_{i}": x[:, i] + (gene == "MTOR") * (i == 0) for i in range(4)}
    wells |= {"gene": gene, "plate": columns["plate"], "guide": [f"{g}-{i % 2}" for i, g in enumerate(gene)]}
    pq.write_table(pa.table(wells), "wells.parquet")
    write_h5ad("wells.h5ad")
    hue, shape = rng.uniform(0, 360, 240).round(), rng.choice(["cube", "sphere"], 240)
    codes = np.column_stack([np.where(shape == "cube", 1.0, -1.0), hue]) + rng.normal(size=(240, 2)) / 10
    np.save("codes.npy", codes)
    Path("factors.csv").write_text("hue,shape\n" + "\n".join(f"{a:g},{b}" for a, b in zip(hue, shape, strict=True)))
    pq.write_table(pa.table({"z0": codes[:, 0], "z1": codes[:, 1], "hue": hue, "shape": shape}), "codes.parquet")


def write_h5ad(path):
    """Wells of BBBC021 as AnnData where the data set is there, else generated ones with the same columns.

    X are standardised features, X_pca their principal components, and X_normalised those of features that were
    standardised by the controls of each plate.
    """
    import anndata
    import pandas as pd

    screen = os.environ.get("CONGRUENCE_DATA", "") + "/bbbc021/mcf7_well_means.parquet"
    if Path(screen).is_file():
        table = read_table(screen, metadata="plate,week,well,replicate,compound,concentration_um,moa,is_control")
        x = np.nan_to_num(table.values)
        obs = pd.DataFrame({name: table.metadata[name].astype(str) for name in ("plate", "week", "compound", "moa")})
    else:
        rng = np.random.default_rng(0)
        obs = pd.DataFrame({"plate": [f"p{i % 12}" for i in range(240)], "week": [f"w{i % 4}" for i in range(240)]})
        obs["compound"] = rng.choice(["DMSO", "taxol", "cytochalasin"], 240)
        obs["moa"] = obs["compound"]
        sources = rng.laplace(size=(240, 8)) ** 3
        x = sources @ rng.normal(size=(8, 30)) + (obs["compound"] == "taxol").to_numpy()[:, None]
    obs.index = [f"well{i}" for i in range(len(obs))]
    x = x[:, x.std(0) > 1e-9]
    normalised, control = x.copy(), (obs["compound"] == "DMSO").to_numpy()
    for plate in obs["plate"].unique():
        on = (obs["plate"] == plate).to_numpy()
        spread = x[on & control].std(0)
        normalised[on] = (x[on] - x[on & control].mean(0)) / np.maximum(spread, 0.1 * x.std(0))
    data = anndata.AnnData((x - x.mean(0)) / x.std(0), obs=obs)
    for name, values in {"X_pca": data.X, "X_normalised": normalised}.items():
        u, s, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
        data.obsm[name] = (u * s)[:, :8]
    data.write_h5ad(path)


def save_language_models(text):
    """Folders as transformers writes them, with 12 layers of GPT-NeoX or 6 of BERT, and a corpus."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    import torch

    rng = np.random.default_rng(0)
    words = ["[PAD]", *["the", "a", "of", "and", "river", "city", "old", "small", "was", "in", "on", "near"]]
    Path("corpus.txt").write_text("\n".join(" ".join(rng.choice(words[1:], 10)) for _ in range(100)))
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[PAD]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", model_max_length=16)
    size = {"vocab_size": len(words), "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    for seed, name in enumerate(sorted(set(re.findall(r" (\./my-[a-z-]*model|pairs/\S+)", text)))):
        torch.manual_seed(seed)
        if re.search("gpt_neox|gpt-0", text):
            model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(num_hidden_layers=12, **size))
        else:
            config = transformers.BertConfig(num_hidden_layers=6, max_position_embeddings=16, **size)
            model = transformers.BertModel(config)
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
        if "sentence" in name:
            kinds = {"Transformer": "", "Pooling": "1_Pooling"}
            modules = [
                {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (kind, path) in enumerate(kinds.items())
            ]
            Path(name, "modules.json").write_text(json.dumps(modules))
            Path(name, "1_Pooling").mkdir()
            pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
            Path(name, "1_Pooling/config.json").write_text(json.dumps(pooling))


def save_photos(text):
    from PIL import Image

    Path("photos").mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)):
        Image.fromarray(pixels).save(f"photos/{number}.png")
    Path("mypackage").mkdir()
    Path("mypackage/__init__.py").touch()
    Path("mypackage/model.py").write_text(NETWORK)


def save_components(text):
    """Independent components of other token activations, as the lens of another seed."""
    from congruence import ICA

    ICA(random_state=0).fit(np.random.default_rng(0).laplace(size=(400, 16))).save("other.safetensors")


def save_mixture(text):
    from congruence.mixture import GaussianMixture

    prior = GaussianMixture.from_arrays([0.4, 0.6], [[0.0] * 4, [6.0] * 4], [np.eye(4), 2 * np.eye(4)])
    np.savez("prior.npz", weights=prior.weights, means=prior.means, covariances=prior.covariances)
    np.save("draws.npy", prior.sample(300))


def save_layers(text):
    x = np.random.default_rng(0).laplace(size=(120, 4))
    for run in ("run_a", "run_b"):
        for seed in range(2):
            Path(run, f"seed{seed}").mkdir(parents=True)
            for layer in range(2):
                moved = x @ ortho_group.rvs(4, random_state=10 * seed + layer)
                np.save(f"{run}/seed{seed}/layer{layer}.npy", moved + layer * np.random.rand(*x.shape))


def save_screen(text):
    """A screen as AnnData with embeddings under a key of its own."""
    import anndata
    import pandas as pd

    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"plate": [f"p{i % 8}" for i in range(240)], "is_control": rng.choice(["True", "False"], 240)})
    obs["gene"] = np.where(obs["is_control"] == "True", "none", rng.choice(["MTOR", "PLK1"], 240))
    obs.index = [f"well{i}" for i in range(240)]
    data = anndata.AnnData(rng.normal(size=(240, 3)), obs=obs)
    data.obsm["X_openphenom"] = rng.laplace(size=(240, 6))
    data.write_h5ad("adata.h5ad")


def save_queries(text):
    """A collection that contains the paired documents, queries of their own, and judgements of relevance."""
    x = np.random.default_rng(0).laplace(size=(240, 4))
    rng = np.random.default_rng(1)
    corpus, queries = np.vstack([x, rng.laplace(size=(500, 4))]), x[:80] + 0.1 * rng.normal(size=(80, 4))
    write = {"corpus": (corpus, 0, "d"), "old_q": (queries, 0, "q"), "new_q": (queries, 1, "q")}
    for name, (rows, seed, letter) in write.items():
        moved = rows @ ortho_group.rvs(4, random_state=seed)
        ids = {"doc_id": [f"{letter}{i}" for i in range(len(rows))]}
        pq.write_table(pa.table(ids | {f"emb_{i}": moved[:, i] for i in range(4)}), f"{name}.parquet")
    judged = {"query": [f"q{i}" for i in range(80)], "document": [f"d{i}" for i in range(80)], "relevance": [1] * 80}
    pq.write_table(pa.table(judged), "qrels.parquet")


def copy_results(text):
    shutil.copytree(ROOT / "docs" / "results", "docs/results")


def save_zarr(text):
    zarr = pytest.importorskip("zarr")
    zarr.save("big.zarr", np.random.default_rng(0).laplace(size=(400, 4)).astype(np.float32))


def embed(texts):
    """An embedding of texts."""
    return np.array([[sum(map(ord, text)) % size for size in range(3, 11)] for text in texts], float)


def save_canary(text):
    from congruence.testing import CANARY, save_baseline

    save_baseline(embed(CANARY), "canary.safetensors")


RARE = {
    "embed(CANARY)": save_canary,
    "./my-": save_language_models,
    "models/gpt-0": save_language_models,
    "photos/": save_photos,
    "other.safetensors": save_components,
    "prior.npz": save_mixture,
    "run_a/seed": save_layers,
    "adata.h5ad": save_screen,
    "qrels.parquet": save_queries,
    "docs/results": copy_results,
    "big.zarr": save_zarr,
}


@pytest.fixture
def supply(world, monkeypatch):
    """Make the files that an example names and few others do: models, run folders, results."""
    for name in ("mypackage", "mypackage.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def supply(text):
        for name, make in RARE.items():
            if name in text:
                make(text)
        return {"embed": embed}  # the names that Python finds

    return supply
