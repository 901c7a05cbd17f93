import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import ortho_group

from congruence.align._limits import Limit
from congruence.cli import main

QUICK = ["--nulls", "2", "--bootstrap", "20"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs as arrays: the second is the first, rotated, with a little noise."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4)).astype(np.float32)
    y = (x @ ortho_group.rvs(4, random_state=0) + 0.01 * rng.normal(size=(300, 4))).astype(np.float32)
    np.save(tmp_path / "old.npy", x)
    np.save(tmp_path / "new.npy", y)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    """Run the command line in this process; return its exit code and what it printed."""
    sys.argv = ["congruence", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


def test_it_answers_in_a_sentence_and_a_table(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # wide enough for headings in one line
    code, out, _ = run(capsys, "compare", "old.npy", "new.npy", *QUICK)
    assert code == 0
    assert "The difference is only a rotation." in out
    for word in ("old → new", "of chance", "R²", "of diameter", "similarity", "ica"):
        assert word in out


def test_it_writes_every_output(folder, capsys):
    outputs = ["--report", "r.html", "--json", "r.json", "--csv", "r.csv", "--latex", "r.tex"]
    code, _, _ = run(capsys, "compare", "old.npy", "new.npy", *outputs, *QUICK, "--quiet")
    assert code == 0
    result = json.loads((folder / "r.json").read_text())
    assert result["numbers"]["pairs"][0]["groups"]["similarity"]["held_out"]["mean"] < 0.02
    assert "The difference is only a rotation." in (folder / "r.html").read_text()
    rows = list(csv.DictReader((folder / "r.csv").read_text().splitlines()))
    assert [row["group"] for row in rows] == [
        "identity",
        "permutation",
        "rigid",
        "similarity",
        "ridge",
        "linear",
        "ica",
    ]
    assert r"\toprule" in (folder / "r.tex").read_text()
    assert {p.name for p in folder.iterdir()} == {"old.npy", "new.npy", "r.html", "r.json", "r.csv", "r.tex"}


def test_json_on_stdout_is_json_alone(folder, capsys):
    code, out, err = run(capsys, "compare", "old.npy", "new.npy", "--json", "-", *QUICK)
    assert code == 0
    assert json.loads(out)["numbers"]["runs"][0]["name"] == "old"
    assert "only a rotation" in err


def test_quiet_prints_nothing(folder, capsys):
    assert run(capsys, "compare", "old.npy", "new.npy", "-q", *QUICK) == (0, "", "")


def test_the_same_seed_writes_the_same_bytes(folder, capsys):
    written = []
    for _ in range(2):
        run(capsys, "compare", "old.npy", "new.npy", "--json", "r.json", "--report", "r.html", *QUICK)
        written.append([(folder / name).read_bytes() for name in ("r.json", "r.html")])
    assert written[0] == written[1]


def gates(capsys, *options):
    """The exit code, the gates of the JSON and the messages of a comparison of old with new."""
    code, out, err = run(capsys, "compare", "old.npy", "new.npy", *QUICK, "--json", "-", "--quiet", *options)
    result = json.loads(out)
    recorded = result["settings"].get("gates", [])
    assert code == any(gate["exceeded"] for gate in recorded)
    assert err.count("\n") == sum(gate["exceeded"] for gate in recorded)
    return result, recorded, err


def test_a_limit_is_a_share_of_chance(folder, capsys):
    result, (gate,), err = gates(capsys, "--fail-above", "similarity=0.3")
    near = result["numbers"]["pairs"][0]["groups"]["similarity"]
    assert not gate["exceeded"]
    assert gate["value"] == pytest.approx(near["held_out"]["mean"] / near["null"])
    _, (gate, other), err = gates(capsys, "--fail-above", "similarity=0.0001", "--fail-above", "linear=0.5")
    assert (gate["name"], gate["of"], gate["limit"], gate["exceeded"]) == ("similarity", "old -> new", 0.0001, True)
    assert not other["exceeded"]
    assert "old -> new: similarity: the held-out error as a share of chance is 0.0077" in err
    assert err.endswith(", above the limit 0.0001\n")


def test_a_limit_can_be_a_share_of_the_diameter(folder, capsys):
    result, (gate, other), err = gates(
        capsys, "--fail-above", "rigid.diameter=0.0001", "--fail-above", "linear.diameter=0.5"
    )
    near = result["numbers"]["pairs"][0]["groups"]["rigid"]["held_out"]["mean"]
    assert gate["value"] == pytest.approx(near)
    assert "old -> new: rigid: the held-out error as a share of the diameter is" in err
    assert not other["exceeded"]


@pytest.mark.parametrize(
    ("name", "limit", "r2", "message"),
    [
        ("r2", 0.9, 0.95, None),
        ("r2", 0.9, 0.85, "held-out R² is 0.85, below the limit 0.9"),
        ("r2", 0.9, np.nan, "held-out R² is undefined"),
        ("unexplained", 0.1, 0.95, None),
        ("unexplained", 0.1, 0.85, "the unexplained share of the variance is 0.15, above the limit 0.1"),
        ("unexplained", 0.1, np.nan, "the unexplained share of the variance is undefined"),
    ],
)
def test_r2_is_a_minimum_and_the_unexplained_share_a_maximum(name, limit, r2, message):
    pair = SimpleNamespace(source="a", target="b", groups={"linear": SimpleNamespace(r2=SimpleNamespace(mean=r2))})
    gate = Limit("linear", name, limit).gate(pair)
    assert gate.name == f"linear.{name}"
    assert gate.exceeded == (message is not None)
    if message is not None:
        assert gate.message == f"a -> b: linear: {message}"


def test_a_pipeline_can_stop_on_a_status(folder, capsys):
    _, (gate,), err = gates(capsys, "--fail-on", "fails,unknown")
    assert gate == {
        "name": "status",
        "of": "old -> new",
        "limit": ["fails", "unknown"],
        "value": "holds",
        "exceeded": False,
    }
    np.save("new.npy", np.random.default_rng(5).normal(size=(300, 4)))
    _, (gate, limit), err = gates(capsys, "--fail-on", "fails, unknown", "--fail-above", "similarity=0.3")
    assert gate["exceeded"]
    assert limit["exceeded"]
    assert "old -> new: the status is fails, which is among --fail-on fails,unknown\n" in err
    assert gates(capsys, "--fail-on", "ambiguous")[1][0]["value"] == "fails"


def test_every_pair_is_tested(folder, capsys):
    np.save("other.npy", np.random.default_rng(5).normal(size=(300, 4)))
    _, found, _ = gates(capsys, "other.npy", "--fail-on", "fails", "--fail-above", "similarity=0.3")
    assert [gate["of"] for gate in found if gate["exceeded"]] == ["old -> other", "new -> other"] * 2
    assert len(found) == 6


def test_gates_are_shown_on_the_page(folder, capsys):
    run(capsys, "compare", "old.npy", "new.npy", *QUICK, "--fail-above", "similarity=0.5", "--markdown", "r.md")
    line = next(line for line in (folder / "r.md").read_text().splitlines() if "gates" in line)
    assert "name: similarity, of: old -> new, limit: 0.5, value: 0.0077" in line
    assert line.endswith("exceeded: no")


def test_rows_are_sampled(folder, capsys):
    code, out, _ = run(capsys, "compare", "old.npy", "new.npy", *QUICK, "--rows", "100", "--json", "-", "-q")
    result = json.loads(out)
    assert code == 0
    assert result["numbers"]["pairs"][0]["n"] == 100
    assert result["settings"]["rows"] == 100
    assert "100 of 300 rows were sampled by a hash of their position (seed 0)." in result["notes"]


@pytest.fixture
def tables(folder):
    """Three parquet tables with ids in different orders, plates and one row missing in the last."""
    rng = np.random.default_rng(1)
    x = np.load("old.npy")
    (folder / "tables").mkdir()
    for seed in range(3):
        order = rng.permutation(300)[: 300 - (seed == 2)]
        columns = {f"emb_{i}": (x @ ortho_group.rvs(4, random_state=seed))[order, i] for i in range(4)}
        columns |= {
            "cell_id": [f"cell{i}" for i in order],
            "plate": [f"p{i % 12}" for i in order],
            "score": order * 1.0,
        }
        pq.write_table(pa.table(columns), f"tables/run{seed}.parquet")
    return folder / "tables"


def test_tables_are_joined_by_id_and_grouped_by_plate(tables, capsys):
    options = ["--id", "cell_id", "--features", "emb_*", "--cluster", "plate"]
    groups = ["--groups", "permutation,similarity,linear"]
    code, out, _ = run(capsys, "compare", "tables/*.parquet", *options, *groups, "--json", "r.json", *QUICK)
    assert code == 0
    result = json.loads((tables.parent / "r.json").read_text())
    assert [run["n"] for run in result["numbers"]["runs"]] == [300, 300, 299]
    assert [run["d"] for run in result["numbers"]["runs"]] == [4, 4, 4]
    assert len(result["numbers"]["pairs"]) == 3
    for pair in result["numbers"]["pairs"]:
        assert pair["n"] == 299
        assert list(pair["groups"]) == ["permutation", "similarity", "linear"]
        assert pair["groups"]["similarity"]["held_out"]["mean"] < 1e-6
    assert "rows without a partner were left out: 1 of run0, 1 of run1" in out.replace("\n", " ")


def test_mixed_files_are_paired_by_position_with_a_note(folder, capsys):
    x = np.load("old.npy")
    columns = {f"e{i}": x[:, i] for i in range(4)} | {"id": [str(i) for i in range(300)]}
    pq.write_table(pa.table(columns), "third.parquet")
    code, _, err = run(capsys, "compare", "old.npy", "third.parquet", "--groups", "identity", *QUICK)
    assert code == 0
    assert "position" in err
    assert "old" in err


def test_rows_that_moved_are_written_as_a_table(tables, capsys):
    moved = np.load("old.npy")
    table = pq.read_table("tables/run1.parquet").to_pydict()
    row = table["cell_id"].index("cell7")
    table["emb_0"][row] += 30.0
    pq.write_table(pa.table(table), "tables/run1.parquet")
    options = ["--id", "cell_id", "--features", "emb_*", "--groups", "similarity", "--rows-out", "moved.parquet"]
    code, _, _ = run(capsys, "compare", "tables/*.parquet", *options, *QUICK)
    assert code == 0
    found = pq.read_table("moved.parquet").to_pydict()
    assert found["cell_id"][0] == "cell7"
    assert found["plate"][0] == "p7"
    assert found["moved"] == sorted(found["moved"], reverse=True)
    assert found["moved_run1"][0] > found["moved_run0"][0]
    assert found["moved"][0] > found["moved_diameter"][0] > 0  # relative to chance, and a share of the diameter
    assert len(found["cell_id"]) == 299 < len(moved)


def test_checkpoints_are_compared_in_the_order_of_their_steps(folder, capsys):
    rng = np.random.default_rng(0)
    x = np.load("old.npy")
    for step, noise in ((100, 1.0), (9, 3.0), (1000, 0.1)):
        np.save(f"ckpt_step{step}.npy", x + noise * rng.normal(size=x.shape))
    code, _, _ = run(capsys, "compare", "ckpt_*.npy", "--series", "--groups", "similarity", "--json", "r.json", *QUICK)
    assert code == 0
    result = json.loads((folder / "r.json").read_text())
    assert [point["step"] for point in result["numbers"]["series"]] == [9, 100, 1000]
    to_last = [point["to_last"].get("similarity") for point in result["numbers"]["series"]]
    assert 1 > to_last[0] > to_last[1]
    assert to_last[2] is None
    assert result["numbers"]["series"][0]["to_last_diameter"]["similarity"] < to_last[0]
    names = [(pair["source"], pair["target"]) for pair in result["numbers"]["pairs"]]
    assert names == [("ckpt_step9", "ckpt_step100"), ("ckpt_step9", "ckpt_step1000"), ("ckpt_step100", "ckpt_step1000")]


def test_an_option_is_used_for_the_files_it_means_something_for(folder, capsys):
    x = np.load("old.npy")
    columns = {f"emb_{i}": x[:, i] for i in range(4)} | {"plate": ["a"] * 300}
    pq.write_table(pa.table(columns), "third.parquet")
    code, out, _ = run(
        capsys, "compare", "old.npy", "third.parquet", "--features", "emb_*", "--groups", "identity", *QUICK
    )
    assert code == 0
    assert "300 rows × 4 dimensions, paired by position" in out


def test_a_defect_of_ours_is_told_in_a_sentence(folder, capsys, monkeypatch):
    from congruence.align import _compare as module

    def broken(*args, **kwargs):
        raise RuntimeError("the unexpected")

    monkeypatch.setattr(module, "compare", broken)
    code, _, err = run(capsys, "compare", "old.npy", "new.npy")
    assert code == 3
    assert "internal error (RuntimeError: the unexpected)" in err
    monkeypatch.setenv("CONGRUENCE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["congruence", "compare", "old.npy", "new.npy"])
    with pytest.raises(RuntimeError):
        main()


def bad_files(folder):
    np.save(folder / "short.npy", np.zeros((7, 4)))
    np.save(folder / "flat.npy", np.zeros(300))
    np.save(folder / "empty.npy", np.zeros((0, 4)))
    holed = np.load(folder / "old.npy")
    holed[[4, 9]] = np.nan
    np.save(folder / "holed.npy", holed)
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (folder / "words.csv").write_text("a,b\n1,x\n3,y\n")
    (folder / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "table.xlsx").write_text("")
    columns = {"id": ["a", "a", "b"], "e": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(columns), folder / "twice.parquet")
    columns = {"id": ["a", "b", "c"], "e0": [1.0, 2.0, 3.0], "e1": [1.0, None, 3.0]}
    pq.write_table(pa.table(columns), folder / "holed.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old.npy", "absent.npy"], "absent.npy"),
        (["old.npy", "short.npy"], "300"),
        (["old.npy", "flat.npy"], "(300,)"),
        (["old.npy", "empty.npy"], "(0, 4)"),
        (["old.npy", "holed.npy"], "--drop-missing"),
        (["old.npy", "ragged.csv"], "ragged.csv"),
        (["old.npy", "words.csv"], "--features"),
        (["old.npy", "cut.parquet"], "cut.parquet"),
        (["old.npy", "table.xlsx"], ".xlsx"),
        (["twice.parquet", "old.npy", "--id", "id"], "old.npy cannot be read with id (--id)"),
        (["twice.parquet", "./twice.parquet"], "more than once: a"),
        (["old.npy"], "at least 2 files; got old.npy"),
        (["*.nothing"], "no file matches *.nothing"),
        (["old.npy", "new.npy", "--id", "cell"], "old.npy cannot be read with id (--id)"),
        (["old.npy", "new.npy", "--cluster", "plate"], "plate"),
        (["old.npy", "new.npy", "--groups", "affine"], "got 'affine'"),
        (["old.npy", "new.npy", "--folds", "1"], "folds must be an integer of at least 2"),
        (["old.npy", "new.npy", "--normalize", "l2"], "normalize must be one of None, 'cosine'; got 'l2'"),
        (["old.npy", "new.npy", "--fail-above", "similarity"], "takes GROUP=LIMIT such as similarity=0.3, or"),
        (["old.npy", "new.npy", "--fail-above", "similarity.=1"], "got 'similarity.=1'"),
        (["old.npy", "new.npy", "--fail-above", "similarity.mean=1"], "similarity.r2; got 'similarity.mean=1'"),
        (["old.npy", "new.npy", "--fail-above", "rigid=1", "--nulls", "0"], "set --nulls to at least 1"),
        (["old.npy", "new.npy", "--fail-on", "bad"], "--fail-on must be a list of names from fails"),
        (["old.npy", "new.npy", "--fail-on", ""], "--fail-on must be a list of names from fails"),
        (["old.npy", "new.npy", "--rows", "3"], "rows must be an integer of at least 4; got 3"),
        (
            ["old.npy", "new.npy", "--fail-above", "affine=1"],
            "ica; got 'affine'",
        ),
        (["old.npy", "new.npy", "--json", "nowhere/r.json"], "the folder nowhere does not exist"),
        (["old.npy", "new.npy", "--report", "."], "--report . must end in .html"),
        (["old.npy", "new.npy", "--report", "r.pdf"], "--report r.pdf must end in .html or .htm"),
        (["old.npy", "new.npy", "--rows-out", "old.npy"], "would overwrite the input old.npy"),
        (["old.npy", "new.npy", "--rows-out", "moved.npy"], "--rows-out needs a format with column names"),
        (["old.npy", "new.npy", "--rows-out", "moved.txt"], "the suffix '.txt' is not one of .npy"),
        (["old.npy", "new.npy", "--rows-out", "m.csv", "--groups", "ica"], "--rows-out ranks rows by identity"),
        (["old.npy", "--report", "new.npy", "short.npy"], "--report new.npy must end in .html"),
        (["old.npy", "new.npy", "--csv", "-", "--json", "-"], "only one output can be written to stdout"),
        (["old.npy", "new.npy", "--report", "-"], "only --json, --csv and --markdown can be stdout"),
        (["old.npy", "new.npy", "--fail-above", "similarity=nan"], "takes GROUP=LIMIT such as similarity=0.3"),
        (["old.npy", "new.npy", "--fail-above", "linear=1", "--fail-above", "linear=2"], "got 'linear' twice"),
        (["old.npy", "new.npy", "--seed", "-1"], "seed must be an integer from 0 to 4294967295; got -1"),
        (["old.npy", "new.npy", "--features", "emb_*"], "features (--features) does not apply to files like old.npy"),
        (["old.npy", "new.npy", "--series"], "which must have a number; got old.npy"),
        (["old.npy", "new.npy", "--similarities", "cca"], "cca"),
        (["holed.parquet", "holed.parquet"], "all in e1"),
        (
            ["old.npy", "new.npy", "--json", "r.json", "--rows-out", "r.csv", "--csv", "r.csv"],
            "--rows-out r.csv would overwrite --csv",
        ),
    ],
)
def test_mistakes_are_one_sentence_with_exit_code_2_and_nothing_written(arguments, message, folder, capsys):
    bad_files(folder)
    before = sorted(folder.iterdir())
    asked = [] if "--json" in arguments else ["--json", "r.json"]
    code, out, err = run(capsys, "compare", *arguments, *asked, "--report", "r.html") if "--report" not in arguments \
        else run(capsys, "compare", *arguments, *asked)  # fmt: skip
    assert code == 2
    assert out == ""
    assert err.startswith("congruence: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(folder.iterdir()) == before


def test_missing_values_can_be_dropped(folder, capsys):
    bad_files(folder)
    arguments = ["old.npy", "holed.npy", "--drop-missing", "--groups", "identity", "--json", "r.json"]
    code, out, _ = run(capsys, "compare", *arguments, *QUICK)
    assert code == 0
    assert json.loads((folder / "r.json").read_text())["numbers"]["pairs"][0]["n"] == 298
    assert "left out" in out


def test_unknown_options_are_usage_errors(folder, capsys):
    code, _, err = run(capsys, "compare", "old.npy", "new.npy", "--colour")
    assert code == 2
    assert "--colour" in err


def test_the_version_is_told(capsys):
    import congruence

    assert run(capsys, "--version")[1] == f"congruence {congruence.__version__}\n"


def test_an_interrupt_while_python_executes_a_string_has_the_same_exit_code(tmp_path):
    """CPython then ends itself by SIGINT at exit, although the interrupt was handled."""
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(20, 2)))
    code = (
        "import sys, congruence.align._compare as c; from congruence.cli._app import main; "
        "c.compare = lambda *a, **k: exec('raise KeyboardInterrupt'); "
        "sys.argv = ['congruence', 'compare', 'a.npy', 'b.npy']; main()"
    )
    (tmp_path / "interrupted.py").write_text(code)
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "interrupted" in done.stderr


def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(3000, 200)))
    command = [sys.executable, "-m", "congruence", "compare", "a.npy", "b.npy", "--nulls", "500"]
    with subprocess.Popen(
        [*command, "--report", "r.html", "--json", "r.json"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            maps = Path(f"/proc/{process.pid}/maps")  # the command maps its inputs into memory
            while process.poll() is None and maps.exists() and "b.npy" not in maps.read_text():
                time.sleep(0.05)
            time.sleep(0.5 if maps.exists() else 6)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert {p.name for p in tmp_path.iterdir()} == {"a.npy", "b.npy"}
