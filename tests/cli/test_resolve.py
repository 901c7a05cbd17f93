import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from congruence import ICA
from congruence.cli import main
from congruence.ica import load_ica
from congruence.tables import read_table

QUICK = ["--features", "emb_*", "--id", "doc_id"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sources = np.column_stack([rng.laplace(size=(900, 3)), rng.normal(size=(900, 3))])
    x = (sources @ rng.normal(size=(6, 7)) + 2).astype(np.float32)
    columns = {f"emb_{i}": x[:, i] for i in range(7)} | {"doc_id": [f"doc{i}" for i in range(900)]}
    columns["topic"] = [f"t{i % 12}" for i in range(900)]
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "e.parquet")
    np.save("e.npy", x)
    np.save("narrow.npy", x[:, :4])
    return tmp_path


def run(capsys, *arguments):
    sys.argv = ["congruence", "resolve", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


def test_components_keep_ids_metadata_and_dtype(folder, capsys):
    code, out, _ = run(capsys, "e.parquet", *QUICK, "--out", "c.parquet", "--model", "m.safetensors")
    assert code == 0
    assert out.startswith("3 of 6 components are identified.\n")
    assert "900 rows; 6 of 7 directions vary; converged after" in out
    components, given = read_table("c.parquet"), read_table("e.parquet", id="doc_id", features="emb_*")
    assert components.features == ("ica0", "ica1", "ica2", "ica3", "ica4", "ica5")
    assert components.values.dtype == np.float32
    assert_allclose(np.cov(components.values, rowvar=False, bias=True), np.eye(6), atol=1e-4)
    assert list(components.ids) == list(given.ids)
    assert "doc_id" in pq.read_schema("c.parquet").names
    assert list(components.metadata["topic"]) == list(given.metadata["topic"])
    assert list(load_ica("m.safetensors").feature_names_in_) == [f"emb_{i}" for i in range(7)]


def test_the_command_gives_what_the_estimator_gives(folder, capsys):
    run(capsys, "e.npy", "--out", "c.npy", "--components", "4", "--seed", "3", "-q")
    ica = ICA(4, starts=3, random_state=3).fit(np.load("e.npy"))
    assert_allclose(np.load("c.npy"), ica.transform(np.load("e.npy")), atol=1e-5)


def test_a_model_is_applied_and_undone(folder, capsys):
    run(capsys, "e.parquet", *QUICK, "--out", "c.parquet", "--model", "m.safetensors", "-q")
    code, _, err = run(capsys, "e.parquet", *QUICK, "--apply", "m.safetensors", "--out", "again.parquet")
    assert (code, err) == (0, "900 rows resolved: again.parquet\n")
    assert_allclose(read_table("again.parquet").values, read_table("c.parquet").values)
    code, _, err = run(capsys, "again.parquet", "--apply", "m.safetensors", "--inverse", "--out", "back.parquet")
    assert (code, err) == (0, "900 rows mapped back to embeddings: back.parquet\n")
    back, given = read_table("back.parquet"), read_table("e.parquet", id="doc_id", features="emb_*")
    assert back.features == given.features
    assert list(back.ids) == list(given.ids)
    assert_allclose(back.values, given.values, atol=1e-4)


def test_several_files_are_one_table(folder, capsys):
    whole = pq.read_table("e.parquet")
    for i in range(3):
        pq.write_table(whole[300 * i : 300 * (i + 1)], f"part-{i}.parquet", row_group_size=100)
    parts = [f"part-{i}.parquet" for i in range(3)]
    model = ["--model", "m.safetensors", "--rows", "auto"]
    _, table, _ = run(capsys, "e.parquet", *QUICK, "--out", "whole.parquet", *model)
    for name, given in (("pattern", ["part-*.parquet"]), ("listed", parts)):
        code, out, _ = run(capsys, *given, *QUICK, "--out", f"{name}.parquet", "--rows", "auto")
        assert (code, out.splitlines()[:2]) == (0, table.splitlines()[:2])
        assert pq.read_table(f"{name}.parquet").equals(pq.read_table("whole.parquet"))
    for more in ([], ["--drop-missing"]):
        arguments = ["--apply", "m.safetensors", "--out", "applied.parquet", *more]
        code, _, err = run(capsys, "part-?.parquet", *QUICK, *arguments)
        assert (code, err) == (0, "900 rows resolved: applied.parquet\n")
        assert_allclose(read_table("applied.parquet").values, read_table("whole.parquet").values, atol=1e-5)


def test_missing_values_are_counted_in_the_file_they_are_in(folder, capsys):
    run(capsys, "e.npy", "--model", "m.safetensors", "-q")
    x = np.load("e.npy")
    np.save("p0.npy", x[:500])
    x[612, 1] = np.nan
    np.save("p1.npy", x[500:])
    code, _, err = run(capsys, "p*.npy", "--apply", "m.safetensors", "--out", "c.npy")
    assert code == 2
    assert "p1.npy has NaN or infinite values (row 112)" in err


def test_columns_are_found_by_name_whatever_their_order(folder, capsys):
    run(capsys, "e.parquet", *QUICK, "--out", "c.parquet", "--model", "m.safetensors", "-q")
    table = pq.read_table("e.parquet")
    pq.write_table(table.select(table.column_names[::-1]), "turned.parquet")
    code, _, _ = run(capsys, "turned.parquet", *QUICK, "--apply", "m.safetensors", "--out", "again.parquet", "-q")
    assert code == 0
    assert_allclose(read_table("again.parquet").values, read_table("c.parquet").values, atol=1e-5)


def test_a_large_table_is_applied_in_chunks(folder, capsys, monkeypatch):
    from congruence.tables import _arrow

    run(capsys, "e.parquet", *QUICK, "--out", "c.parquet", "--model", "m.safetensors", "-q")
    monkeypatch.setattr(_arrow, "BLOCK_BYTES", 4 * 7 * 100)
    monkeypatch.setattr("congruence.arrays.CHUNK_BYTES", 8 * 7 * 70)
    run(capsys, "e.parquet", *QUICK, "--apply", "m.safetensors", "--out", "again.parquet", "-q")
    assert_allclose(read_table("again.parquet").values, read_table("c.parquet").values)


def test_json_and_csv_hold_every_component(folder, capsys):
    code, _, _ = run(capsys, "e.npy", "--json", "r.json", "--csv", "r.csv", "-q")
    assert code == 0
    result = json.loads((folder / "r.json").read_text())
    numbers = result["numbers"]
    assert (numbers["n"], numbers["d"], numbers["rank"], numbers["identified"]) == (900, 7, 6, 3)
    assert [row["identified"] for row in numbers["components"]] == [True] * 3 + [False] * 3
    assert result["settings"]["command"] == "congruence resolve e.npy --json r.json --csv r.csv -q"
    lines = (folder / "r.csv").read_text().splitlines()
    columns = "component,status,problem,identified,negentropy,kurtosis,skewness,sampling_error,agreement,returned"
    columns += ",feature1,loading1,feature2,loading2,feature3,loading3"
    assert lines[0] == columns
    assert len(lines) == 7


def test_what_goes_to_stdout_leaves_the_terminal_page_to_stderr(folder, capsys):
    _, out, err = run(capsys, "e.npy", "--json", "-")
    assert json.loads(out)["status"] == "ambiguous"
    assert "3 of 6 components are identified" in err
    _, out, err = run(capsys, "e.npy", "--csv", "-", "-q")
    assert (out.partition(",")[0], err) == ("component", "")
    _, out, err = run(capsys, "e.npy", "--markdown", "-", "-q")
    assert "3 of 6 components are identified" in out


def test_a_report_is_written(folder, capsys):
    code, _, _ = run(capsys, "e.parquet", *QUICK, "--report", "r.html", "--stability", "0", "-q")
    assert code == 0
    page = (folder / "r.html").read_text()
    assert '<p class="lead">3 of 6 components are identified.</p>' in page
    assert "congruence resolve e.parquet" in page


def test_a_report_has_resamples_by_default(folder, capsys):
    more = ["--report", "r.html", "--json", "r.json", "--cluster", "topic", "--curve", "2,4", "--stability", "4"]
    code, out, err = run(capsys, "e.parquet", *QUICK, *more)
    assert (code, err) == (0, "")
    assert "They are stable across 4 bootstrap resamples." in " ".join(out.split())
    stability = json.loads((folder / "r.json").read_text())["numbers"]["stability"]
    assert (stability["settings"]["bootstrap"], stability["settings"]["clusters"]) == (4, 12)
    assert [point["n_components"] for point in stability["curve"]] == [2, 4]
    page = (folder / "r.html").read_text()
    assert "4 bootstrap resamples of the 12 clusters of rows" in page
    assert "With other numbers of components" in page
    run(capsys, "e.npy", "--report", "plain.html", "--json", "plain.json", "-q")
    assert json.loads((folder / "plain.json").read_text())["numbers"]["stability"]["settings"]["bootstrap"] == 20


def test_options_reach_the_solver(folder, capsys):
    more = ["--components", "0.9", "--contrast", "cube", "--starts", "1", "--rows", "400", "--tol", "1e-3"]
    code, out, _ = run(capsys, "e.npy", *more, "--max-iter", "300", "--json", "r.json")
    assert code == 0
    assert "note: There was one start" in out
    assert "400 of 900 rows used for the rotation" in out
    settings = json.loads((folder / "r.json").read_text())["settings"]
    expected = {"components": 0.9, "contrast": "cube", "starts": 1, "rows": 400, "tol": 0.001, "max_iter": 300}
    assert expected.items() <= settings.items()


def test_the_number_of_components_says_what_it_does(folder, capsys):
    code, out, err = run(capsys, "e.npy", "--components", "400", "--starts", "1")
    assert (code, err) == (0, "")
    assert "note: 400 components were requested, but the rows vary in 6 directions, so there are 6." in out
    code, out, _ = run(capsys, "e.npy", "--components", "1", "--json", "r.json")
    assert code == 0
    assert out.startswith("Only one direction was kept, so there is no rotation to undo.\n")
    assert "the component is the first principal axis" in " ".join(out.split())
    plain = json.loads((folder / "r.json").read_text())
    assert (plain["status"], plain["numbers"]["identified"]) == ("unknown", 0)
    assert any("ICA needs at least 2 directions" in note for note in plain["notes"])


def test_columns_in_other_units_are_pointed_to_standardize(folder, capsys):
    x = np.load("e.npy")
    x[:, 2] *= 1000
    np.save("units.npy", x)
    _, out, _ = run(capsys, "units.npy", "--components", "0.95", "--report", "r.html", "--json", "r.json")
    assert "standardize=True (--standardize)" in " ".join(out.split())
    assert "--standardize" in (folder / "r.html").read_text()
    assert any("--standardize" in note for note in json.loads((folder / "r.json").read_text())["notes"])
    _, out, _ = run(capsys, "units.npy", "--components", "0.95", "--standardize", "--model", "m.safetensors")
    assert "--standardize" not in out
    assert "7 directions vary, 1 kept" not in out
    run(capsys, "units.npy", "--apply", "m.safetensors", "--out", "c.npy")
    assert_allclose(np.cov(np.load("c.npy"), rowvar=False, bias=True), np.eye(np.load("c.npy").shape[1]), atol=1e-4)


def test_cosine_rows_are_applied_and_mapped_back(folder, capsys):
    x = np.load("e.npy")
    run(capsys, "e.npy", "--normalize", "cosine", "--out", "c.npy", "--model", "m.safetensors", "-q")
    np.save("longer.npy", 5 * x)
    run(capsys, "longer.npy", "--apply", "m.safetensors", "--out", "again.npy", "-q")
    assert_allclose(np.load("again.npy"), np.load("c.npy"), atol=2e-4)
    run(capsys, "c.npy", "--apply", "m.safetensors", "--inverse", "--out", "back.npy", "-q")
    assert_allclose(np.load("back.npy"), x / np.linalg.norm(x, axis=1, keepdims=True), atol=1e-4)
    x[3] = 0
    np.save("zero.npy", x)
    code, _, err = run(capsys, "zero.npy", "--apply", "m.safetensors", "--out", "z.npy")
    assert code == 2
    assert "zero.npy has rows that are all zero and so have no direction (row 3)" in err


def test_rows_can_be_rotated_as_they_are(folder, capsys):
    code, out, _ = run(capsys, "e.npy", "--no-whiten", "--out", "c.npy", "--max-iter", "20")
    assert code == 0
    assert "7 columns, not whitened" in out
    x, turned = np.load("e.npy"), np.load("c.npy")
    assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(x, axis=1), rtol=1e-4)


def test_noise_is_called_noise(folder, capsys):
    np.save("noise.npy", np.random.default_rng(0).normal(size=(2000, 8)))
    code, out, err = run(capsys, "noise.npy")
    assert code == 0
    assert out.startswith("No component is identified.")
    assert "Not identified: 8 indistinguishable from Gaussian noise" in " ".join(out.split())
    assert "note: No component is distinguishable from Gaussian noise" in out
    assert err == ""


def test_a_solver_cut_short_says_what_to_do(folder, capsys):
    _, out, err = run(capsys, "e.npy", "--max-iter", "2")
    assert out.startswith("ICA did not converge.\n")
    assert "dependent on the random start" not in out
    assert "not converged after" in out
    assert "Raise max_iter (--max-iter)" in " ".join(out.split())
    assert err == ""


def test_missing_values_are_refused_or_left_out(folder, capsys):
    columns = pq.read_table("e.parquet").to_pydict()
    columns["emb_2"][400] = None
    pq.write_table(pa.table(columns), "holed.parquet")
    code, _, err = run(capsys, "holed.parquet", *QUICK, "--model", "m.safetensors", "--out", "c.parquet")
    assert code == 2
    assert (
        "holed in 1 row of 900 (row 400), all in emb_2; leave these rows out with drop_missing=True (--drop-missing)"
        in err
    )
    assert not (folder / "m.safetensors").exists()
    holed = ["holed.parquet", *QUICK, "-q"]
    code, _, _ = run(capsys, *holed, "--drop-missing", "--model", "m.safetensors", "--out", "c.parquet")
    assert code == 0
    assert read_table("c.parquet").n == 899
    assert "doc400" not in read_table("c.parquet").ids
    code, _, err = run(capsys, *holed, "--apply", "m.safetensors", "--out", "a.parquet")
    assert code == 2
    assert "NaN or infinite values (row 400); leave such rows out with drop_missing=True (--drop-missing)" in err
    code, _, _ = run(capsys, *holed, "--drop-missing", "--apply", "m.safetensors", "--out", "a.parquet")
    assert code == 0
    assert read_table("a.parquet").n == 899


def test_ids_need_not_be_unique(folder, capsys):
    code, _, _ = run(capsys, "e.parquet", "--features", "emb_*", "--id", "topic", "--out", "c.parquet", "-q")
    assert code == 0
    assert list(read_table("c.parquet").ids[:2]) == ["t0", "t1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.npy"], "absent.npy"),
        (["absent*.npy"], "no file matches absent*.npy"),
        (["e.npy", "narrow.npy"], "narrow.npy does not have the columns of e.npy: it has 4 columns instead of 7"),
        (["e.npy", "e.parquet"], "files of one table must be of one format, but e.npy and e.parquet differ"),
        (["e.npy", "narrow.npy", "--out", "narrow.npy"], "would overwrite the input narrow.npy"),
        (["e.npy", "--out", "e.npy"], "would overwrite the input e.npy"),
        (["e.npy", "--out", "c.txt"], "the suffix '.txt' is not one of"),
        (["e.parquet", *QUICK, "--out", "c.npy"], ".npy would lose the ids or metadata; use .parquet"),
        (["e.npy", "--model", "m.npy"], "--model m.npy must end in .safetensors"),
        (["e.npy", "--model", "m.bin"], "--model m.bin must end in .safetensors"),
        (["e.npy", "--out", "a/b.npy"], "the folder a does not exist"),
        (["e.npy", "--report", "r.html", "--json", "r.html"], "--json r.html must end in .json"),
        (
            ["e.npy", "--components", "many"],
            "components must be a positive integer or a share of the variance",
        ),
        (
            ["e.npy", "--components", "0"],
            "components must be a positive integer or a share of the variance",
        ),
        (
            ["e.npy", "--components", "2.5"],
            "components must be a positive integer or a share of the variance",
        ),
        (
            ["e.npy", "--components", "nan"],
            "components must be a positive integer or a share of the variance",
        ),
        (
            ["e.npy", "--components", "inf"],
            "components must be a positive integer or a share of the variance",
        ),
        (["e.npy", "--components", "1.0"], "components is 1.0, which could mean one component or all of the variance"),
        (["e.npy", "--normalize", "l2"], "normalize must be one of None, 'cosine'; got 'l2'"),
        (["e.npy", "--standardize", "--no-whiten"], "standardize scales columns before whitening"),
        (["e.npy", "--apply", "m.safetensors", "--out", "c.npy", "--standardize"], "--standardize has no effect with"),
        (["e.npy", "--rows", "some"], "rows must be 'all', 'auto' or an integer of at least 2; got 'some'"),
        (["e.npy", "--rows", "1"], "rows must be 'all', 'auto' or an integer of at least 2; got 1"),
        (["e.npy", "--contrast", "tanh"], "contrast must be one of 'logcosh', 'exp', 'cube'; got 'tanh'"),
        (["e.npy", "--starts", "0"], "starts must be an integer of at least 1"),
        (["e.npy", "--tol", "0"], "tol must be a finite number above 0; got 0"),
        (["e.npy", "--max-iter", "0"], "max_iter must be an integer of at least 1"),
        (["e.npy", "--stability", "1"], "stability must be 0 or an integer of at least 2; got 1"),
        (["e.npy", "--curve", "a,b"], "curve[0] must be an integer of at least 1; got 'a'"),
        (["e.npy", "--curve", "2", "--stability", "0"], "curve needs resamples"),
        (["e.npy", "--seed", "-1"], "seed must be an integer from 0 to 4294967295; got -1"),
        (
            ["e.npy", "--cluster", "plate", "--no-check"],
            "cluster keeps rows together in halves and resamples, but there",
        ),
        (["e.npy", "--cluster", "plate", "--stability", "5"], "e has no metadata column 'plate'"),
        (["e.npy", "--curve", "3,99"], "curve[1] must be an integer from 1 to 6; got 99"),
        (["e.npy", "--curve", "3", "--no-whiten"], "a curve chooses how many directions to whiten"),
        (["e.npy", "--components", "0.5", "--no-whiten"], "n_components must be a positive integer"),
        (["e.npy", "--device", "tpu"], "device must be"),
        (["e.npy", "--features", "x"], "features (--features) does not apply to files like e.npy"),
        (["e.npy", "--inverse"], "--inverse needs --apply"),
        (["e.npy", "--apply", "m.safetensors"], "--apply needs --out"),
        (
            ["e.npy", "--apply", "absent.safetensors", "--out", "c.npy"],
            "cannot read components from absent",
        ),
        (["e.npy", "--apply", "e.npy", "--out", "c.npy"], "cannot read components from e.npy"),
        (
            ["e.npy", "--apply", "m.safetensors", "--out", "c.npy", "--starts", "5"],
            "--starts has no effect with --apply",
        ),
        (
            ["e.npy", "--apply", "m.safetensors", "--out", "c.npy", "--report", "r.html"],
            "--report has no effect with --apply",
        ),
        (["e.npy", "--apply", "m.safetensors", "--out", "m.safetensors"], "would overwrite the input m.safetensors"),
        (["narrow.npy", "--apply", "m.safetensors", "--out", "c.npy"], "has 4 columns, but the model has 7 columns"),
        (
            [
                "e.parquet",
                "--apply",
                "m.safetensors",
                "--out",
                "c.parquet",
                "--features",
                "emb_[1-6]",
                "--id",
                "doc_id",
            ],
            "lacks columns that the model was fitted on: emb_0",
        ),
        (["wide.parquet", "--apply", "m.safetensors", "--out", "c.parquet"], "was not fitted on: size; name those"),
        (
            ["e.npy", "--apply", "m.safetensors", "--out", "c.npy", "--inverse"],
            "the model has 6 components; inverse (--inverse) takes",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing_behind(arguments, message, folder, capsys):
    run(capsys, "e.parquet", *QUICK, "--model", "m.safetensors", "-q", "--starts", "1")
    wide = pq.read_table("e.parquet").drop_columns(["topic", "doc_id"])
    pq.write_table(wide.append_column("size", pa.array(np.arange(900) / 7)), "wide.parquet")
    before = sorted(folder.iterdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("congruence: ")
    assert message in err
    assert sorted(folder.iterdir()) == before


def test_embeddings_are_not_taken_for_components(folder, capsys):
    x = pq.read_table("e.parquet").select([f"emb_{i}" for i in range(5)])
    pq.write_table(x, "square.parquet")
    run(capsys, "square.parquet", "--model", "m.safetensors", "-q")
    code, _, err = run(capsys, "square.parquet", "--apply", "m.safetensors", "--inverse", "--out", "b.parquet")
    assert code == 2
    assert "has the columns that the model was fitted on, not components; leave out inverse (--inverse)" in err


def test_a_model_with_names_for_other_columns_is_refused(folder, capsys):
    ica = ICA(random_state=0).fit(np.load("e.npy"))
    ica.feature_names_in_ = np.array(["a", "b"], dtype=object)
    ica.save("odd.safetensors")
    code, _, err = run(capsys, "e.npy", "--apply", "odd.safetensors", "--out", "c.npy")
    assert code == 2
    assert "odd.safetensors does not hold components: its header is damaged" in err


def test_one_row_is_refused(folder, capsys):
    np.save("one.npy", np.ones((1, 3)))
    code, _, err = run(capsys, "one.npy")
    assert (code, err) == (2, "congruence: one has 1 row, but components need at least 2\n")


def test_equal_rows_are_refused(folder, capsys):
    np.save("equal.npy", np.ones((9, 3)))
    code, _, err = run(capsys, "equal.npy")
    assert (code, err) == (2, "congruence: all rows are equal, so there is nothing to whiten\n")


def test_ctrl_c_is_130_and_leaves_nothing(folder, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("congruence.ica.estimator.independent_components", interrupt)
    before = sorted(folder.iterdir())
    code, _, err = run(capsys, "e.npy", "--out", "c.npy", "--report", "r.html")
    assert (code, err) == (130, "interrupted; no file was left half-written\n")
    assert sorted(folder.iterdir()) == before
