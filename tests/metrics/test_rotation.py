"""What the documentation says that a rotation does to the scores."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "make_rotation_figure.py"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The figure of few rows, and the numbers behind its two panels."""
    folder = tmp_path_factory.mktemp("figure")
    svg, numbers = folder / "rotation.svg", folder / "rotation.csv"
    options = ["--rows", "400", "--metrics", "infomec,mig,modularity,explicitness,mcc"]
    subprocess.run([sys.executable, SCRIPT, svg, "--csv", numbers, *options], check=True)
    sides = {}
    with numbers.open() as handle:
        for row in csv.DictReader(handle):
            values = [float(value) for name, value in row.items() if name.startswith("at_")]
            sides.setdefault(row["factors"], {})[row["score"]] = values
    return svg.read_text(encoding="utf-8"), list(sides.values())


@pytest.mark.parametrize("side", [0, 1], ids=["numbers", "grid"])
def test_scores_of_single_codes_fall_and_those_of_all_codes_stay(drawn, side):
    found = drawn[1][side]
    for name in ("infom", "infoc", "mig", "modularity"):
        assert found[name][0] > 0.8
        assert found[name][-1] < 0.12
    for name in ("infoe", "explicitness", "mcc_weak"):
        assert found[name][-1] == pytest.approx(found[name][0], abs=0.01)
        assert found[name][0] > 0.95
    assert found["mcc"][-1] == pytest.approx(0.5**0.5, abs=0.06)


def test_the_figure_names_its_lines_and_has_no_date(drawn):
    svg = drawn[0]
    for name in ("InfoM, InfoC", "MIG", "Modularity", "Explicitness", "MCC, weak"):
        assert f">{name}</text>" in svg
    assert "date" not in svg
    assert len(svg) < 60_000
