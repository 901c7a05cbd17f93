import json
import sys

import numpy as np
import pytest

from congruence.cli import main


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Run `congruence compare` on three runs with further arguments; return exit code, stdout and stderr."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(60, 3))
    for name in ("a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", x + 0.1 * rng.normal(size=x.shape))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        quick = ["--groups", "rigid", "--nulls", "0", "--bootstrap", "0"]
        monkeypatch.setattr(sys, "argv", ["congruence", "compare", *arguments, *quick])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


def test_measures_are_printed_with_their_direction_and_written(compare):
    code, out, _ = compare("a.npy", "b.npy", "--similarities", "svcca, procrustes", "--json", "r.json")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if "is closer" in line] == ["svcca", "procrustes"]
    assert "higher is closer" in out
    assert "lower is closer" in out
    with open("r.json") as file:
        assert list(json.load(file)["numbers"]["pairs"][0]["similarities"]) == ["svcca", "procrustes"]


def test_all_means_all_and_none_is_the_default(compare):
    assert compare("a.npy", "b.npy", "c.npy", "--similarities", "all")[1].count("is closer") == 13
    assert "is closer" not in compare("a.npy", "b.npy")[1]


def test_many_pairs_are_shown_in_part_and_it_is_said(compare):
    out = compare("a.npy", "b.npy", "c.npy", "--directions", "both", "--similarities", "cka")[1]
    assert "first 4 pairs" in " ".join(out.split())


def test_unknown_measures_end_with_one_sentence(compare):
    code, out, err = compare("a.npy", "b.npy", "--similarities", "cka,svca")
    assert (code, out) == (2, "")
    assert "'all' or a list of names from cka, plain_cka" in err
    assert "got 'svca'" in err
