"""`congruence layers` reads two runs' layers by pattern, joins rows by id, prints, writes and refuses."""

import csv
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import ortho_group

from congruence.cli import main


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Eleven layers of two runs, the rows of the second in another order; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ids = np.array([f"r{i}" for i in range(120)])
    order = rng.permutation(120)
    for layer in range(11):
        x = rng.laplace(size=(120, 3))
        y = (x @ ortho_group.rvs(3, random_state=layer))[order]
        for run, rows, names in (("a", x, ids), ("b", y, ids[order])):
            columns = {"id": names} | {f"e{i}": rows[:, i] for i in range(3)}
            pq.write_table(pa.table(columns), f"run_{run}.layers.{layer}.parquet")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", "layers", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


BOTH = ("run_a.*.parquet", "run_b.*.parquet", "--nulls", "19")


def test_layers_are_called_after_the_star_and_rows_joined_by_id(call):
    code, out, _ = call(*BOTH, "--measure", "rigid", "--report", "map.html", "--json", "map.json", "--csv", "map.csv")
    assert code == 0
    assert "11 of 11 are closest to the layer in the same position." in out
    with open("map.json") as file:
        result = json.load(file)
    read = result["numbers"]
    assert read["source_layers"] == read["nearest"] == [f"layers.{i}" for i in range(11)]  # and not 0, 1, 10, 2
    assert (read["source"], read["target"], result["settings"]["paired"]) == ("run_a", "run_b", "by id")
    assert result["status"] == "holds"
    with open("map.csv") as file:
        assert len(list(csv.DictReader(file))) == 121
    with open("map.html", encoding="utf-8") as file:
        page = file.read()
    assert "<h1>Which layers of run_a and run_b are alike?</h1>" in page
    assert page.count("<svg") == 1


def test_one_run_against_itself_by_another_measure(call):
    code, out, _ = call("run_a.*.parquet", "run_a.*.parquet", "--nulls", "1", "--measure", "cka", "--json", "-")
    read = json.loads(out)["numbers"]
    assert (code, read["target"], read["direction"]) == (0, "run_a#2", "higher is closer")
    np.testing.assert_allclose(np.diag(read["nearness"]), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run_a.*.parquet",), "takes two patterns, in quotes"),
        (("a", "b", "c"), "got 3 names"),
        (("run_a.*.parquet", "run_c.*.parquet"), "no file matches run_c.*.parquet"),
        ((*BOTH, "--measure", "cca"), "measure must be one of"),
        ((*BOTH, "--csv", "run_a.layers.0.parquet"), "must end in .csv"),
    ],
)
def test_what_cannot_be_done_ends_with_one_sentence(call, arguments, message):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_pipeline_can_stop_on_the_status_of_a_layer(call):
    code, out, err = call(*BOTH, "--rows", "100", "--fail-on", "fails,unknown", "--json", "-", "--quiet")
    settings = json.loads(out)["settings"]
    assert (code, err, settings["rows"]) == (0, "", 100)
    assert [gate["exceeded"] for gate in settings["gates"]] == [False] * 11
    code, out, err = call(*BOTH, "--fail-on", "holds", "--json", "-", "--quiet")
    assert code == 1
    assert all(gate["exceeded"] for gate in json.loads(out)["settings"]["gates"])
    assert "layers.0: the status is holds, which is among --fail-on holds\n" in err
    assert call(*BOTH, "--fail-on", "good")[0] == 2
