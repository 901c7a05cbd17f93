"""Every example in the README and the documentation that is marked to run does run, and every command has one."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import anndata
import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from scipy.stats import ortho_group

from congruence import read_table
from congruence.cli import build, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"<!-- run -->\n```(console|python)\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(kind, text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (kind, text) in enumerate(BLOCK.findall(page.read_text()))
]


DECODER = """
import torch

def load_decoder():
    return decoder(0)

def load_retrained():
    return decoder(1)

def decoder(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.LeakyReLU(0.5), torch.nn.Linear(16, 12)).eval()
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
        pq.write_table(pa.table(rows | {f"emb_{i}": moved[:, i] for i in range(4)}), f"demo/seed{seed}.parquet")
    atoms = rng.normal(size=(20, 16))
    for i in range(3):
        own = rng.normal(size=(10, 16))
        save_file({"W_dec": np.vstack([atoms, own]).astype(np.float32)}, f"sae{i}.safetensors")
    (tmp_path / "mymodel.py").write_text(DECODER)
    (own,) = (text for _, text in BLOCK.findall((ROOT / "docs/train.md").read_text()) if "class MyModel" in text)
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


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_examples_run(kind, text, world, monkeypatch):
    if kind == "python":
        exec(compile(text, "example", "exec"), {})
        return
    for line in text.splitlines():
        prompt, *words = shlex.split(line, comments=True)
        assert (prompt, words[0]) == ("$", "congruence")
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, line


FAST = ["--nulls", "2"]
COMMANDS = {
    "Comparison": ["compare", "old.npy", "new.npy", *FAST, "--similarities", "all"],
    "LayerComparison": ["layers", "run_?.npy", "old.npy", *FAST],
    "FeatureMatch": ["features", "sae0.safetensors", "sae1.safetensors"],
    "Translation": ["translate", "fit", "old.parquet", "new.parquet", "--id", "doc_id", *FAST],
    "Resolution": ["resolve", "embeddings.parquet", "--id", "doc_id", "--stability", "3"],
    "Evaluation": ["evaluate", "codes.npy", "factors.csv", "--metrics", "fast", "--resamples", "2", *FAST],
    "Deconfounding": ["deconfound", "wells.parquet", "--control", "gene=none", "--batch", "plate", "--target", "gene"],
    "DecoderExamination": ["decoder", "mymodel:load_decoder", "latents.npy"],
    "MechanismExamination": ["mechanism", "mymodel:load_decoder", "latents.npy", "--blocks", "0-1,2,3"],
}


@pytest.mark.parametrize("kind", list(COMMANDS))
def test_the_json_of_a_command_is_valid_for_its_schema(kind, world, monkeypatch):
    more = ["--metadata", "guide"] if kind == "Deconfounding" else []
    monkeypatch.setattr(sys, "argv", ["congruence", *COMMANDS[kind], *more, "--json", "result.json", "--quiet"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    written = json.loads(Path("result.json").read_text(encoding="utf-8"))
    jsonschema.validate(written, json.loads((ROOT / "docs" / "schema" / f"{kind}.json").read_text(encoding="utf-8")))
    assert next(iter(written)) == "status"
    assert written["settings"]["command"].startswith(f"congruence {COMMANDS[kind][0]} ")
    assert all(len(file["sha256"]) == 64 for file in written["settings"]["inputs"])
    assert {"torch", "lightgbm"} <= set(written["versions"])


def test_every_command_has_an_example():
    lines = [
        line.split()[2:] for page in PAGES for _, text in BLOCK.findall(page.read_text()) for line in text.splitlines()
    ]
    groups = {name: getattr(command, "commands", None) for name, command in build().commands.items()}
    shown = {" ".join(words[: 2 if groups.get(words[0]) else 1]) for words in lines if words}
    assert {f"{name} {one}" if inner else name for name, inner in groups.items() for one in inner or [""]} <= shown


def test_the_readme_shows_the_commands_of_the_makefile():
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\$ make ([a-z-]+)", page.read_text()):
            assert target in targets
