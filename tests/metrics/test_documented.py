"""The table of metrics in the documentation says what the registry says."""

import math
import re
from pathlib import Path

import pytest

from congruence.metrics._registry import METRIC_MEANINGS, METRICS, SCORES

PAGE = Path(__file__).parents[2] / "docs" / "evaluate.md"
ORDER = ("permutation", "sign", "scale", "scales", "shift", "monotone", "rotation", "linear", "factor order")
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| `\w+` \|", line) and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 8
}


def written(ends):
    low, high = (f"{end:g}".replace("-", "−") for end in ends)
    if math.isinf(ends[0]):
        return f"up to {high}"
    return f"from {low}" if math.isinf(ends[1]) else f"{low} to {high}"


def test_every_metric_has_a_row():
    assert list(ROWS) == list(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_a_row_says_what_the_metric_declares(name):
    metric = METRICS[name]
    scores, _, ends, better, ignores, cost, reference = ROWS[name]
    assert scores == ", ".join(f"`{score}`" for score in metric.scores)
    assert ends == written(metric.range)
    assert metric.direction.startswith(better)
    assert ignores == ", ".join(one for one in (*ORDER, "relabelling") if one in metric.invariant_to)
    assert (cost, reference) == (metric.cost, metric.reference)


def test_the_report_has_words_for_every_metric_and_score():
    assert set(METRIC_MEANINGS) == set(METRICS)
    assert set(SCORES) == {score for metric in METRICS.values() for score in metric.scores}
