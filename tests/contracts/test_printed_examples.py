"""What the documentation shows as the output of a command is what the command prints."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DOCS = Path(__file__).parents[2] / "docs"


def shown(page, test):
    """The words of the block with that mark, without the lines that the program breaks elsewhere."""
    (text,) = re.findall(rf"<!-- printed: {test} -->\n```text\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return text.split()


def test_the_line_of_check(call, tmp_path, rng):
    x = rng.normal(size=(1000, 384)).astype(np.float32)
    for name, values in {"embeddings": x, "rounded": x.astype(np.float16).astype(np.float32)}.items():
        columns = {f"emb_{i}": values[:, i] for i in range(384)} | {"doc_id": [f"d{i}" for i in range(1000)]}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    save = ["--save", "baseline.safetensors", "--id", "doc_id", "--model-name", "my-model"]
    assert call("check", "embeddings.parquet", *save)[0] == 0
    code, out, _ = call("check", "rounded.parquet", "--baseline", "baseline.safetensors")
    assert (code, out.split()) == (0, shown("check.md", "the_line_of_check"))


def test_the_table_of_compare(call, data_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    runs = [str(data_folder / "modelpairs" / f"admet_cls_seed{seed}.npy") for seed in (0, 1)]
    groups = ["--groups", "identity,permutation,rigid,similarity,ridge,linear"]
    _, out, _ = call("compare", *runs, *groups)
    verdict, table = out[: out.index("Only a rotation")], out[out.index("\n group") :]
    printed = [word for word in (verdict + table).split() if set(word) != {"─"}]
    assert printed[: len(shown("compare.md", "the_table_of_compare"))] == shown("compare.md", "the_table_of_compare")


def test_the_verdict_of_resolve(call, data_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    run = str(data_folder / "modelpairs" / "admet_cls_seed0.npy")
    _, out, _ = call("resolve", run, "--components", "0.95", "--stability", "20")
    assert out[: out.index("Are all components")].split() == shown("resolve.md", "the_verdict_of_resolve")
    example = " ".join((DOCS / "resolve.md").read_text("utf-8").partition("## Example")[2].split())
    (error,) = re.findall(r"the error of one is (\d+)°", example)
    (agree, all_of_them) = map(int, re.findall(r"(\d+) of the (\d+) components agree", example)[0])
    assert re.search(rf" {error}\.\d°", out)
    assert all_of_them - out.count("depends on start") == agree
