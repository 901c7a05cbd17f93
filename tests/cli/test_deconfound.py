import csv
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from congruence import read_table
from congruence.batches import deconfound as judge
from congruence.cli import main

pytest.importorskip("lightgbm")
QUICK = ["--rounds", "10", "--concentration", "none", "--conditions", "whitened", "--batch", "plate"]
GENES = ["--control", "gene=none", "--target", "gene"]


@pytest.fixture
def deconfound(tmp_path, monkeypatch, capsys):
    """Run `congruence deconfound` with arguments beside some files; return exit code, stdout and stderr."""
    rng = np.random.default_rng(0)
    n = 300
    plate = np.array([f"p{i}" for i in rng.integers(0, 6, n)])
    gene = rng.choice(["none", "MTOR", "PLK1"], n, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=(n, 5)) + 2.0 * np.column_stack([gene == "MTOR", gene == "PLK1", *np.zeros((3, n))])
    columns = {f"emb_{i}": x[:, i] for i in range(5)} | {"gene": gene, "plate": plate}
    columns |= {"guide": np.char.add(gene, np.where(np.arange(n) % 2 == 0, "-1", "-2")), "dose": np.ones(n)}
    columns |= {"is_control": gene == "none", "well": np.arange(n)}
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "wells.parquet")
    holes = [None if i < 4 else name for i, name in enumerate(plate)]
    pq.write_table(pa.table(columns | {"plate": holes}), "holes.parquet")
    pq.write_table(
        pa.table({f"Metadata_{k}" if "emb" not in k else k: v for k, v in columns.items()}), "prefixed.parquet"
    )
    with open("wells.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", "deconfound", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


def read_json(path="r.json"):
    with open(path) as file:
        return json.load(file)


def read_numbers():
    return read_json()["numbers"]


def test_the_terminal_begins_with_the_verdict(deconfound):
    code, out, _ = deconfound(
        "wells.parquet", *GENES, "--batch", "plate", "--rounds", "10", "--features", "emb_*", "--concentration", "0.25",
        "--json", "r.json", "--csv", "r.csv", "--report", "r.html", "--markdown", "r.md",
    )  # fmt: skip
    assert code == 0
    result = read_json()
    headline, second = out.splitlines()[:2]
    assert "on held-out batches: AUROC" in headline
    assert "Mean AUROC over 2 targets: base" in second
    assert "ICA does not clearly differ from a random rotation" in second
    assert result["verdict"].startswith(headline)
    for word in ("MTOR", "PLK1", "sparsity", "top 25 %", "accuracy", "precision", "chance"):
        assert word in out
    assert result["numbers"]["conditions"] == ["base", "whitened", "ica", "rotated"]
    assert result["settings"]["reading"] == "difference"
    assert (result["settings"]["batch"], result["settings"]["target"]) == ("plate", "gene")
    assert result["settings"]["command"].startswith("congruence deconfound wells.parquet")
    with open("r.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert float(rows[0]["auroc"]) > 0.8
    for name in ("r.html", "r.md"):
        with open(name) as file:
            text = file.read()
        assert "does it generalise to unseen batches?" in text
        assert headline in text.replace("\u00a0%", " %")


def test_python_and_the_command_line_say_the_same(deconfound):
    """With the defaults of both, and the same words for the options."""
    options = ["--rounds", "10", "--concentration", "none", "--features", "emb_*", "--json", "-"]
    _, out, _ = deconfound("wells.parquet", *GENES, "--batch", "plate", *options)
    told = json.loads(out)
    more = {"rounds": 10, "concentration": "none", "features": "emb_*"}
    result = judge("wells.parquet", batch="plate", target="gene", control="gene=none", **more)
    assert told["settings"].pop("command").startswith("congruence deconfound wells.parquet")
    assert told == json.loads(result.to_json())


def test_csv_and_prefixed_columns_and_parquet_say_the_same(deconfound):
    found = []
    for name in ("wells.parquet", "wells.csv", "prefixed.parquet"):
        code, _, err = deconfound(name, *GENES, *QUICK, "--features", "emb_*", "--json", "r.json", "-q")
        assert code == 0, err
        found.append([one["scores"]["whitened"]["auroc"] for one in read_numbers()["targets"]])
    assert found[0] == found[1] == found[2]


def test_columns_that_are_labels_are_no_features(deconfound):
    """Without --features, what is named by an option is set aside; what is not must be named."""
    code, _, err = deconfound("wells.parquet", *GENES, *QUICK)
    assert code == 2
    assert "columns that are not numbers: guide (string), is_control (bool)" in err
    options = ["--metadata", "guide,is_control,dose,well", "--json", "r.json", "-q"]
    assert deconfound("wells.parquet", *GENES, *QUICK, *options)[0] == 0
    assert read_numbers()["d"] == 5


def test_labels_and_odd_columns_among_the_features_do_not_go_unseen(deconfound):
    table = pq.read_table("wells.parquet")
    aside = ["--metadata", "guide,is_control"]
    assert deconfound("wells.parquet", *GENES, *QUICK, *aside, "--json", "r.json", "-q")[0] == 0
    said = "The embedding has 5 columns such as emb_0, and also dose; if that is wrong, set these aside"
    assert any(said in note for note in read_json()["notes"])
    assert any(note.startswith("Left out of the embedding") and "well" in note for note in read_json()["notes"])
    marks = np.asarray(table["is_control"]).astype(int)
    pq.write_table(table.append_column("mark", pa.array(marks)), "marked.parquet")
    code, _, err = deconfound("marked.parquet", *GENES, *QUICK, *aside)
    assert code == 2
    assert "column 'mark' would be part of the embedding, but it has one value in all controls" in err


def test_controls_may_be_a_number_however_it_is_written(deconfound):
    table = pq.read_table("wells.parquet")
    dose = np.where(np.asarray(table["is_control"]), 0.0, 0.5)
    pq.write_table(table.drop_columns("dose").append_column("dose", pa.array(dose)), "doses.parquet")
    options = [*QUICK, "--features", "emb_*", "--json", "r.json", "-q"]
    for written in ("0", "0.0", "0.00"):
        code, _, err = deconfound("doses.parquet", "--control", f"dose={written}", *options)
        assert code == 0, err
        assert read_numbers()["controls"] == int((dose == 0).sum())


def test_without_target_all_other_rows_are_one_target(deconfound):
    code, out, _ = deconfound(
        "wells.parquet", "--control", "is_control=true", *QUICK, "--features", "emb_*", "--json", "r.json"
    )
    assert code == 0
    assert [one["name"] for one in read_numbers()["targets"]] == ["treated"]
    assert "treated" in out


def test_positive_alone_makes_all_others_controls(deconfound):
    options = ["--target", "gene", "--positive", "MTOR", *QUICK, "--features", "emb_*", "--json", "r.json", "-q"]
    assert deconfound("wells.parquet", *options)[0] == 0
    result = read_numbers()
    assert [one["name"] for one in result["targets"]] == ["MTOR"]
    assert result["controls"] == 300 - result["targets"][0]["positives"]


def test_positive_with_control_picks_targets_and_guides_are_experiments(deconfound):
    options = [
        *GENES,
        "--positive",
        "PLK1",
        "--guide",
        "guide",
        *QUICK,
        "--features",
        "emb_*",
        "--json",
        "r.json",
        "-q",
    ]
    assert deconfound("wells.parquet", *options)[0] == 0
    (target,) = read_numbers()["targets"]
    assert (target["name"], target["guides"]) == ("PLK1", ["PLK1-1", "PLK1-2"])


def test_rows_without_labels_are_refused_or_left_out(deconfound):
    code, _, err = deconfound("holes.parquet", *GENES, *QUICK, "--features", "emb_*")
    assert code == 2
    assert "batch is missing in 4 of 300 rows (row 0, 1, 2, 3); drop_missing leaves these rows out" in err
    options = ["--drop-missing", "--out", "z.parquet", "--embedding", "whitened"]
    code, out, _ = deconfound("holes.parquet", *GENES, *QUICK, "--features", "emb_*", *options)
    assert code == 0
    assert "note: 4 of 300 rows have missing labels or values and were left out." in out
    assert read_table("z.parquet").n == 296


def test_the_embedding_is_written_with_its_metadata(deconfound):
    options = ["--features", "emb_*", "--out", "z.parquet", "--components", "3", "-q"]
    assert deconfound("wells.parquet", *GENES, *QUICK, *options)[0] == 0
    table = read_table("z.parquet")
    assert table.features == ("ica0", "ica1", "ica2")
    assert list(table.metadata["gene"][:3]) == list(read_table("wells.parquet", features="emb_*").metadata["gene"][:3])
    np.testing.assert_allclose(np.cov(table.values, rowvar=False, bias=True), np.eye(3), atol=1e-5)


def test_the_embedding_is_written_back_to_anndata(deconfound, held_elsewhere):
    anndata = pytest.importorskip("anndata")
    pd = pytest.importorskip("pandas")
    table = read_table("wells.parquet", features="emb_*")
    obs = pd.DataFrame({"plate": table.metadata["plate"], "is_control": table.metadata["is_control"]})
    obs.index = [f"w{i}" for i in range(300)]
    obs.loc["w7", "plate"] = None
    data = anndata.AnnData(np.zeros((300, 2), np.float32), obs=obs, obsm={"X_model": table.values}, uns={"kept": 1})
    data.write_h5ad("a.h5ad")
    options = ["--key", "X_model", "--control", "is_control=True", *QUICK, "--write-back", "--drop-missing", "-q"]
    with held_elsewhere("a.h5ad"):
        code, _, err = deconfound("a.h5ad", *options)
    assert code == 2
    assert "another process is using a.h5ad" in err
    code, _, err = deconfound("a.h5ad", *options)
    assert code == 0, err
    read = anndata.read_h5ad("a.h5ad")
    assert read.obsm["X_ica"].shape == (300, 5)
    assert np.isnan(read.obsm["X_ica"][7]).all()
    assert np.isfinite(np.delete(read.obsm["X_ica"], 7, axis=0)).all()
    np.testing.assert_array_equal(read.obsm["X_model"], table.values)
    assert read.uns["kept"] == 1


def test_an_interrupted_run_continues_and_other_settings_start_again(deconfound, tmp_path):
    options = [*GENES, *QUICK, "--features", "emb_*", "--parts", "parts", "--json", "r.json", "-q"]
    assert deconfound("wells.parquet", *options)[0] == 0
    first, files = read_json(), {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    assert len(files) == 12
    assert deconfound("wells.parquet", *options)[0] == 0
    assert read_json() == first
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert deconfound("wells.parquet", *options, "--seed", "1")[0] == 0
    assert all(path.stat().st_mtime_ns > files[path] for path in files)


def test_a_folder_of_parts_in_use_is_refused(deconfound, held_elsewhere):
    with held_elsewhere("parts", folder=True):
        code, _, err = deconfound("wells.parquet", *GENES, *QUICK, "--features", "emb_*", "--parts", "parts", "-q")
    assert code == 2
    assert "another process is using parts; wait until it has finished" in err


def test_both_modes_and_both_readings_are_named(deconfound, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # wide enough for names in one line
    options = [
        *GENES,
        *QUICK,
        "--concentration",
        "0.25",
        "--reading",
        "ratio",
        "--fit-on",
        "both",
        "--features",
        "emb_*",
    ]
    code, out, _ = deconfound("wells.parquet", *options)
    assert code == 0
    assert "top 25 % / rest − 1" in out
    assert "fitted on all" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--target", "gene"],
            "controls are unknown: give control, as COLUMN=VALUE or as a value of target; or target and",
        ),
        (["--control", "gene"], "control must be COLUMN=VALUE such as gene=none, or a value of target, not 'gene'"),
        (["--control", "gene=DMSO"], "no row has gene = DMSO (control), so there are no controls; it has MTOR, PLK1"),
        (["--control", "dose=1"], "all rows have dose = 1 (control), so there is nothing to compare with them"),
        (["--control", "genes=none"], "wells.parquet has no column 'genes' for control; it has gene, plate, guide"),
        (["--control", "gene=none", "--positive", "MTOR"], "positive names values of target, which is not given"),
        (["--target", "gene", "--positive", "SRC"], "no row has positive 'SRC'; gene has MTOR, PLK1, none"),
        ([*GENES, "--positive", "SRC"], "there is no SRC; there are MTOR, PLK1"),
        ([*GENES, "--batch", "dose"], "batch has one value (1), so no batch can be held out"),
        ([*GENES, "--guide", "guides"], "has no column 'guides' for guide"),
        ([*GENES, "--conditions", "pca"], "conditions must be some of base"),
        (
            [*GENES, "--components", "none"],
            "components must be a number such as 64, a share such as 0.95, 'auto' or 'all'",
        ),
        (
            [*GENES, "--concentration", "0"],
            "concentration must hold shares between 0 and 1, such as 0.25",
        ),
        ([*GENES, "--reading", "log"], "reading must be one of 'difference', 'ratio'; got 'log'"),
        ([*GENES, "--fit-on", "none"], "fit_on must be one of 'training', 'all', 'both'; got 'none'"),
        ([*GENES, "--write-back"], "wells.parquet is not AnnData (.h5ad), so no embedding can be written back"),
        (
            [*GENES, "--embedding", "ica"],
            "that --out or --write-back writes, but neither is given",
        ),
        ([*GENES, "--parts", "wells.csv"], "parts must be a folder, but wells.csv is a file"),
        ([*GENES, "--out", "wells.parquet"], "--out wells.parquet would overwrite the input"),
        ([*GENES, "--report", "r.pdf"], "--report r.pdf must end in .html"),
    ],
)
def test_what_is_wrong_is_one_sentence(deconfound, arguments, message):
    code, out, err = deconfound("wells.parquet", *QUICK, "--features", "emb_*", *arguments)
    assert (code, out) == (2, "")
    assert message in err
