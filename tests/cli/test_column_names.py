"""No command renames the columns of a table, or changes their types."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from congruence.cli import main

N = 240
LABELS = {
    "doc_id": pa.array(np.arange(N) * 3, pa.int32()),
    "x 1": pa.array([f"w{i % 5}" for i in range(N)]).dictionary_encode(),
    "day": pa.array([i % 30 for i in range(N)], pa.date32()),
    "when": pa.array([i % 30 for i in range(N)], pa.timestamp("us", "Europe/Berlin")),
    "small": pa.array([i % 7 for i in range(N)], pa.int8()),
    "plate": pa.array([f"p{i % 6}" for i in range(N)]),
    "gene": pa.array(["none" if i % 3 else "MTOR" for i in range(N)]),
}
MODEL = """
import torch

def load():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "names_model", raising=False)
    (tmp_path / "names_model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(N, 4)).astype(np.float32)
    for name, shift in (("a", 0.0), ("b", 0.1)):
        values = {f"emb_{j}": x[:, j] + np.float32(shift) * rng.normal(size=N).astype(np.float32) for j in range(4)}
        pq.write_table(pa.table({**LABELS, **values}), f"{name}.parquet")
    plain = {"doc_id": LABELS["doc_id"], **{f"emb_{j}": x[:, j] for j in range(4)}}
    pq.write_table(pa.table(plain), "plain.parquet")
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["congruence", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code


READ = ["--features", "emb_*"]
GENES = ["--batch", "plate", "--target", "gene", "--control", "gene=none", "--conditions", "whitened"]
COMMANDS = {
    "deconfound": ["deconfound", "a.parquet", *READ, *GENES, "--embedding", "whitened", "--out", "out.parquet"],
    "resolve": ["resolve", "a.parquet", *READ, "--starts", "1", "--stability", "0", "--out", "out.parquet"],
    "rows that moved": ["compare", "a.parquet", "b.parquet", *READ, "--nulls", "1", "--rows-out", "out.parquet"],
    "translate": ["translate", "apply", "up.safetensors", "b.parquet", *READ, "--out", "out.parquet"],
    "translate parts": ["translate", "apply", "up.safetensors", "b.parque[t]", *READ, "--out", "out"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_ids_and_metadata_keep_names_types_and_contents(folder, monkeypatch, command):
    if "up.safetensors" in COMMANDS[command]:
        fit = ["translate", "fit", "a.parquet", "b.parquet", *READ, "--nulls", "1", "--bootstrap", "20"]
        run(monkeypatch, *fit, "--map", "up.safetensors", "-q")
    run(monkeypatch, *COMMANDS[command], "-q")
    table = pq.read_table("out.parquet" if Path("out.parquet").is_file() else "out/b.parquet")
    assert set(LABELS) <= set(table.column_names)
    order = np.argsort(table["doc_id"].to_numpy())  # rows that moved are sorted by how far
    for name, column in LABELS.items():
        assert table.schema.field(name).type == column.type
        assert table[name].take(pa.array(order)).to_pylist() == column.to_pylist()


def test_resolve_apply_keeps_them_too(folder, monkeypatch):
    fit = ["resolve", "a.parquet", *READ, "--starts", "1", "--stability", "0", "--model", "ica.safetensors", "-q"]
    run(monkeypatch, *fit)
    run(monkeypatch, "resolve", "b.parquet", *READ, "--apply", "ica.safetensors", "--out", "out.parquet", "-q")
    schema = pq.read_schema("out.parquet")
    assert {name: schema.field(name).type for name in LABELS} == {name: c.type for name, c in LABELS.items()}


def test_extract_keeps_the_name_of_the_ids(folder, monkeypatch):
    given = ["names_model:load", "--array", "plain.parquet", "--layer", "0"]
    run(monkeypatch, "extract", *given, "--out", "out.parquet", "-q")
    table = pq.read_table("out.parquet")
    assert table["doc_id"].to_pylist() == LABELS["doc_id"].to_pylist()
    assert table.num_columns == 4


def test_columns_of_the_same_name_are_refused(folder, monkeypatch, capsys):
    table = pq.read_table("a.parquet")
    pq.write_table(table.append_column("plate", table["plate"]), "twice.parquet")
    monkeypatch.setattr(sys, "argv", ["congruence", "resolve", "twice.parquet", *READ, "--out", "out.parquet"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "twice.parquet has several columns of the same name: plate" in capsys.readouterr().err
