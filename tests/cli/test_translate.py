import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.cli import main
from congruence.tables import read_table

QUICK = ["--nulls", "1", "--bootstrap", "20"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    old = rng.laplace(size=(500, 4)).astype(np.float32)
    new = (2 * old @ ortho_group.rvs(4, random_state=0) + 0.01 * rng.normal(size=old.shape)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    for name, x in (("old", old), ("new", new)):
        order = rng.permutation(500)
        columns = {f"emb_{i}": x[order, i] for i in range(4)} | {"doc_id": [f"doc{i}" for i in order]}
        columns["topic"] = ["sport" if value > 0 else "politics" for value in old[order, 0]]
        pq.write_table(pa.table(columns), f"{name}.parquet")
    return tmp_path


def run(capsys, *arguments):
    sys.argv = ["congruence", "translate", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


FIT = ["fit", "old.parquet", "new.parquet", "--id", "doc_id", "--features", "emb_*", *QUICK]


def test_fit_and_apply_carry_a_table_into_the_old_space(folder, capsys):
    outputs = ["--map", "up.safetensors", "--report", "up.html", "--json", "up.json"]
    code, out, _ = run(capsys, *FIT, "--labels", "topic", *outputs)
    assert code == 0
    assert out.startswith(
        "New vectors can be translated into the old space.\nWith held-out rows, translated vectors find"
    )
    assert "Translate, and keep the old index? ✓ go" in out
    result = json.loads((folder / "up.json").read_text())
    assert result["status"] == "holds"
    assert result["numbers"]["probe"]["after"] > 0.9
    assert result["settings"]["command"].startswith("congruence translate fit old.parquet")
    page = (folder / "up.html").read_text()
    assert "✓</span> go</span>" in page
    assert "congruence translate fit old.parquet" in page
    options = ["--id", "doc_id", "--features", "emb_*", "--out", "back.parquet"]
    code, _, err = run(capsys, "apply", "up.safetensors", "new.parquet", *options)
    assert code == 0
    assert "500 rows translated" in err
    back, old = read_table("back.parquet"), read_table("old.parquet", id="doc_id", features="emb_*")
    where = {name: i for i, name in enumerate(back.ids)}
    order = [where[name] for name in old.ids]
    assert_allclose(back.values[order], old.values, atol=0.1)
    assert back.values.dtype == np.float32
    assert set(back.metadata) == {"topic"}


def test_the_way_back(folder, capsys):
    run(capsys, *FIT, "--map", "up.safetensors", "-q")
    options = ["--id", "doc_id", "--features", "emb_*", "-q"]
    run(capsys, "apply", "up.safetensors", "new.parquet", "--out", "there.parquet", *options)
    code, _, _ = run(capsys, "apply", "up.safetensors", "there.parquet", "--inverse", "--out", "again.npz", "-q")
    assert code == 0
    new = read_table("new.parquet", features="emb_*", id="doc_id")
    assert_allclose(read_table("again.npz").values, new.values, atol=1e-4)


def test_queries_index_and_judgements_are_files(folder, capsys):
    for name in ("old", "new"):
        table = pq.read_table(f"{name}.parquet")
        pq.write_table(table.slice(0, 400), f"{name}_docs.parquet")
    old = pq.read_table("old.parquet")
    asked = pq.read_table("new.parquet").slice(0, 60)
    pq.write_table(asked, "new_q.parquet")
    pq.write_table(old.filter(pa.compute.is_in(old["doc_id"], asked["doc_id"])), "old_q.parquet")
    ids = asked["doc_id"].to_pylist()
    pq.write_table(pa.table({"query": ids, "document": ids, "relevance": [1] * 60}), "qrels.parquet")
    fit = ["fit", "old_docs.parquet", "new_docs.parquet", "--id", "doc_id", "--features", "emb_*", *QUICK]
    more = ["--queries", "old_q.parquet", "new_q.parquet", "--index", "old.parquet", "--qrels", "qrels.parquet"]
    code, out, _ = run(capsys, *fit, *more, "--json", "up.json")
    assert code == 0
    assert "With separate queries, translated vectors find" in out
    result = json.loads((folder / "up.json").read_text())
    retrieval, relevance = result["numbers"]["retrieval"], result["numbers"]["relevance"]
    assert (retrieval["index_size"], retrieval["queries"]) == (500, 60)
    assert relevance["old"]["mrr_10"] == 1
    assert relevance["translated"]["mrr_10"] > 0.95
    assert result["settings"]["index"] == "old.parquet"
    code, _, err = run(capsys, *fit, "--index", "old.parquet", "--json", "old.parquet")
    assert (code, "must end in .json" in err) == (2, True)


def test_a_pipeline_can_stop_unless_it_is_a_go(folder, capsys):
    assert run(capsys, *FIT, "--fail", "-q")[0] == 0
    assert run(capsys, *FIT, "--fail", "--require", "0.999", "-q")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "absent.parquet", "new.parquet"], "absent.parquet"),
        ([*FIT, "--labels", "colour"], "old has no metadata column 'colour' to take labels from; it has topic"),
        ([*FIT, "--json", "o.json", "--csv", "./o.json"], "--csv o.json must end in .csv"),
        ([*FIT, "--group", "affine"], "group must be one of 'auto'"),
        ([*FIT, "--starts", "4"], "starts can be used with unpaired only"),
        (["apply", "absent.safetensors", "new.parquet", "--out", "o.parquet"], "cannot read a translator"),
        (["apply", "new.parquet", "new.parquet", "--out", "o.parquet"], "cannot read a translator"),
        (["apply", "new.parquet", "new.parquet", "--out", "new.parquet"], "would overwrite the input new.parquet"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, folder, capsys):
    before = sorted(folder.iterdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("congruence: ")
    assert message in err
    assert sorted(folder.iterdir()) == before


def test_missing_values_are_named_by_their_row_in_the_whole_table(folder, capsys, monkeypatch):
    from congruence.tables import _arrow

    run(capsys, *FIT, "--map", "up.safetensors", "-q")
    monkeypatch.setattr(_arrow, "BLOCK_BYTES", 8 * 4 * 100)
    columns = pq.read_table("new.parquet").to_pydict()
    columns["emb_2"][400] = None
    pq.write_table(pa.table(columns), "holed.parquet")
    options = ["--id", "doc_id", "--features", "emb_*", "--out", "o.parquet"]
    code, _, err = run(capsys, "apply", "up.safetensors", "holed.parquet", *options)
    assert code == 2
    assert "holed.parquet has NaN or infinite values (row 400)" in err
    assert not (folder / "o.parquet").exists()


def test_missing_labels_are_named(folder, capsys):
    table = pq.read_table("old.parquet")
    pq.write_table(table.append_column("score", pa.array([float("nan"), *range(499)])), "old.parquet")
    code, _, err = run(capsys, *FIT, "--labels", "score")
    assert (code, err) == (2, "congruence: labels has NaN or infinite values (row 0)\n")


def test_translated_tables_keep_the_name_of_their_ids(folder, capsys):
    run(capsys, *FIT, "--map", "up.safetensors")
    options = ["--id", "doc_id", "--features", "emb_*"]
    for out in ("back.parquet", "back.csv"):
        assert run(capsys, "apply", "up.safetensors", "new.parquet", *options, "--out", out)[0] == 0
        assert set(read_table(out, id="doc_id", features="emb_*").ids) == {f"doc{i}" for i in range(500)}


def test_outputs_that_cannot_be_written_are_refused_before_the_work(folder, capsys):
    code, _, err = run(capsys, *FIT, "--map", "new_full.parquet")
    assert (code, (folder / "new_full.parquet").exists()) == (2, False)
    assert "--map new_full.parquet must end in .safetensors" in err
    code, _, err = run(capsys, "apply", "missing.safetensors", "new.parquet", "--out", "back.txt")
    assert code == 2
    assert "the suffix '.txt' is not one of" in err


def test_text_outputs_can_go_to_stdout(folder, capsys):
    code, out, err = run(capsys, *FIT, "--csv", "-")
    assert code == 0
    assert out.splitlines()[0] == "score,translated,low,high,untranslated,chance"
    assert "New vectors can be translated" in err
    assert run(capsys, *FIT, "--markdown", "-", "-q")[1].startswith("# ")


def test_a_zarr_store_is_replaced_by_applying_again(folder, capsys):
    run(capsys, *FIT, "--map", "up.safetensors")
    command = ["apply", "up.safetensors", "new.parquet", "--id", "doc_id", "--features", "emb_*", "--out", "back.zarr"]
    assert [run(capsys, *command)[0] for _ in range(2)] == [0, 0]


UNPAIRED = ["fit", "here.npy", "there.npy", "--unpaired", "--starts", "64", "--splits", "2"]


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """Two models and no common row: twelve clusters in eight dimensions, turned and moved."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    member = rng.choice(12, size=1000, p=rng.dirichlet(np.full(12, 3.0)))
    old = rng.normal(size=(12, 8))[member] + 0.2 * rng.gamma(1.0, size=(1000, 8)) @ rng.normal(size=(8, 8))
    new = old @ ortho_group.rvs(8, random_state=0) + 5
    np.save("here.npy", old[::2])
    np.save("there.npy", new[1::2])
    np.save("both.npy", new)
    np.save("one.npy", rng.normal(size=(150, 3)))
    np.save("two.npy", rng.normal(size=(150, 3)))
    return old


def test_unpaired_files_are_aligned_and_said_to_be_experimental(apart, capsys):
    outputs = ["--map", "map.safetensors", "--json", "map.json", "--report", "map.html"]
    code, out, _ = run(capsys, *UNPAIRED, *outputs, "--fail")
    assert code == 0
    assert out.startswith("Without paired rows, one map from new to old vectors stands out.")
    assert "note: Experimental: only paired rows can confirm this map." in out
    with open("map.json") as file:
        read = json.load(file)
    assert read["status"] == "holds"
    assert re.search(rf"this map\s+{read['numbers']['matching']['residual']:.3f}", out)
    with open("map.html") as file:
        assert "Is the map determined?</h2>" in file.read()
    assert run(capsys, "apply", "map.safetensors", "both.npy", "--out", "back.npy")[0] == 0
    left = np.square(np.load("back.npy") - apart).sum() / np.square(apart - apart.mean(0)).sum()
    assert left < 0.05


def test_what_is_not_determined_is_not_written(apart, capsys, tmp_path):
    alike = ["fit", "one.npy", "two.npy", "--unpaired", "--starts", "4", "--splits", "1", "--nulls", "2"]
    code, out, err = run(capsys, *alike, "--map", "map.safetensors")
    assert (code, "unknown" in out) == (2, True)
    assert "the map is not determined" in err
    assert not (tmp_path / "map.safetensors").exists()
    assert run(capsys, *alike, "--fail", "-q")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*UNPAIRED, "--labels", "topic"], "labels needs rows that both models embedded"),
        ([*UNPAIRED, "--group", "rigid"], "group needs rows"),
        (["fit", "here.npy", "there.npy", "--starts", "4"], "starts can be used with unpaired only"),
        ([*UNPAIRED, "--folds", "4"], "folds needs rows that both models embedded"),
    ],
)
def test_options_of_the_other_way_to_translate_are_refused(apart, capsys, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
