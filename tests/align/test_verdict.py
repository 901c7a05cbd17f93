import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.align.comparison import efficiency
from congruence.align.verdict import advice_on_rows, judge, percent
from congruence.maps.nearness import HeldOut, Nearness

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["efficiency"]


def near(group, mean, null=0.05, width=0.001):
    return Nearness(group, mean, mean, mean, mean, HeldOut(mean, mean - width, mean + width), null, np.empty(0))


def ladder(**means):
    return {group: near(group, mean) for group, mean in means.items()}


@pytest.mark.parametrize("row", ORACLE["rows"], ids=lambda row: row["pair"])
def test_efficiency_reproduces_the_papers_table(row):
    found = efficiency(row["perm"], row["rigid"], row["ica"])
    assert_allclose(found, row["eff"], atol=1e-12)
    assert round(100 * found) == row["printed_percent"]


def test_efficiency_is_undefined_where_the_rotation_gains_nothing():
    assert np.isnan(efficiency(0.1, 0.1, 0.05))
    assert np.isnan(efficiency(0.1, 0.2, 0.05))
    assert np.isnan(efficiency(float("nan"), 0.2, 0.05))


@pytest.mark.parametrize(
    ("means", "n", "status", "rung", "headline"),
    [
        ({"identity": 0.001, "similarity": 0.001, "linear": 0.001}, 1000, "holds", "identity", "Nothing changed"),
        ({"identity": 0.04, "permutation": 0.002, "similarity": 0.002, "linear": 0.002}, 1000, "holds",
         "permutation", "Only the order and signs"),
        ({"identity": 0.04, "similarity": 0.003, "linear": 0.003}, 1000, "holds", "similarity", "rotation and a scale"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.01}, 1000, "fails", "linear", "mostly a rotation"),
        ({"identity": 0.06, "similarity": 0.03, "linear": 0.01}, 1000, "fails", "linear", "more than a rotation"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.02}, 1000, "ambiguous", "similarity", "related, but"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.02}, 50, "unknown", "similarity", "too few rows"),
        ({"identity": 0.06, "similarity": 0.05, "linear": 0.05}, 1000, "fails", "none", "no more alike than unrelated"),
        ({"identity": 0.06, "similarity": 0.05, "linear": 0.05}, 15, "unknown", "none", "too few rows"),
        ({"similarity": 0.04, "linear": 0.01}, 15, "unknown", "linear", "too few rows"),
        ({"similarity": 0.001, "linear": 0.001}, 15, "holds", "similarity", "only a rotation"),
        ({"linear": 0.002}, 1000, "holds", "linear", "is a linear map"),
        ({"permutation": 0.03}, 1000, "ambiguous", "permutation", "related, but"),
        ({"rigid": 0.003, "linear": 0.003}, 1000, "holds", "rigid", "only a rotation."),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_held_out_numbers(means, n, status, rung, headline):
    found = judge(ladder(**means), n, 10)
    assert (found.status, found.rung) == (status, rung)
    assert headline in found.headline


def test_the_detail_is_a_sentence_with_numbers():
    found = judge(ladder(identity=0.04, similarity=0.0183, linear=0.011), 1000, 10)
    assert found.detail == (
        "Up to rotation and scale the runs agree to 1.8 % of the diameter (95 % interval 1.7 % to 1.9 %); "
        "a general linear map removes 40 % of the rest; unrelated runs would give 5 %."
    )


def test_ica_alone_gives_no_verdict():
    assert judge({"ica": near("ica", 0.01)}, 100, 3).status == "unknown"


def test_without_a_null_only_a_perfect_match_counts_as_related():
    bare = {"similarity": near("similarity", 0.01, null=float("nan"), width=float("nan"))}
    assert judge(bare, 1000, 3).rung == "none"
    assert "unrelated runs" not in judge(bare, 1000, 3).detail


@pytest.mark.parametrize(
    ("share", "text"), [(0.0183, "1.8 %"), (0.5, "50 %"), (1e-9, "0 %"), (1.4, "140 %"), (2e-5, "0.002 %")]
)
def test_shares_are_written_as_percentages(share, text):
    assert percent(share) == text


def test_few_rows_are_advised_upon():
    assert advice_on_rows(100, 10) is None
    assert "99 rows for 10 dimensions are fewer than 10 per dimension" in advice_on_rows(99, 10)
