import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.align.comparison import efficiency
from congruence.align.verdict import clearly_better, judge, sampling_notes
from congruence.maps.nearness import HeldOut, Nearness, protocol

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["efficiency"]


def near(group, mean, null=0.05, width=0.001):
    errors = mean * np.random.default_rng(0).uniform(0.5, 1.5, size=500)
    return Nearness(group, mean, mean, mean, mean, HeldOut(mean, mean - width, mean + width), null, errors)


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
    assert np.isnan(efficiency(3e-8, 1e-8, 0.3))  # both are rounding


@pytest.mark.parametrize(
    ("means", "n", "status", "group", "headline"),
    [
        ({"identity": 0.001, "similarity": 0.001, "linear": 0.001}, 1000, "holds", "identity", "Nothing changed"),
        ({"identity": 0.04, "permutation": 0.002, "similarity": 0.002, "linear": 0.002}, 1000, "holds",
         "permutation", "Only the order and signs"),
        ({"identity": 0.04, "similarity": 0.003, "linear": 0.003}, 1000, "holds", "similarity", "rotation and a scale"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.01}, 1000, "fails", "linear", "mostly a rotation"),
        ({"identity": 0.06, "similarity": 0.03, "linear": 0.01}, 1000, "fails", "linear", "more than a rotation"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.02}, 1000, "ambiguous", "similarity", "mostly a rotation"),
        ({"identity": 0.04, "similarity": 0.02, "linear": 0.02}, 50, "unknown", "similarity", "too few rows"),
        ({"identity": 0.06, "similarity": 0.05, "linear": 0.05}, 1000, "fails", "none", "no more alike than unrelated"),
        ({"identity": 0.06, "similarity": 0.05, "linear": 0.05}, 15, "unknown", "none", "too few rows"),
        ({"similarity": 0.04, "linear": 0.01}, 15, "unknown", "linear", "too few rows"),
        ({"similarity": 0.001, "linear": 0.001}, 15, "holds", "similarity", "only a rotation"),
        ({"similarity": 0.02, "linear": 0.001}, 1000, "fails", "linear", "is a linear map, more than a rotation"),
        ({"linear": 0.002}, 1000, "unknown", "linear", "was not tested"),
        ({"identity": 0.04, "linear": 0.002}, 1000, "unknown", "linear", "was not tested"),
        ({"identity": 0.06}, 1000, "unknown", "none", "was not tested"),
        ({"permutation": 0.03}, 1000, "unknown", "permutation", "was not tested"),
        ({"permutation": 0.001}, 1000, "holds", "permutation", "Only the order and signs"),
        ({"permutation": 1e-9, "similarity": 0.04}, 15, "holds", "permutation", "Only the order and signs"),
        ({"rigid": 0.003, "linear": 0.003}, 1000, "holds", "rigid", "only a rotation."),
        ({"similarity": 0.0055, "linear": 0.0055}, 1000, "ambiguous", "similarity", "mostly a rotation"),
        ({"similarity": 0.03, "linear": 0.03}, 1000, "ambiguous", "similarity", "related, but"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_held_out_numbers(means, n, status, group, headline):
    found = judge(ladder(**means), n, 10)
    assert (found.status, found.group) == (status, group)
    assert headline in found.headline


def test_the_detail_is_a_sentence_with_numbers():
    found = judge(ladder(identity=0.04, similarity=0.0183, linear=0.011), 1000, 10)
    assert found.finding.evidence == (
        "Up to rotation and scale, the runs differ by 37 % of chance: the held-out error is 1.83 % of the diameter "
        "(95 % interval 1.73 to 1.93 %), and 5.00 % for unrelated runs; a linear map reduces it by 40 %."
    )


def test_ica_alone_gives_no_verdict():
    assert judge({"ica": near("ica", 0.01)}, 100, 3).status == "unknown"


@pytest.mark.parametrize(("mean", "status"), [(0.01, "unknown"), (1e-9, "holds")])
def test_without_a_null_only_a_perfect_match_is_judged(mean, status):
    bare = {g: near(g, mean, null=float("nan"), width=float("nan")) for g in ("similarity", "linear")}
    found = judge(bare, 1000, 3)
    assert found.status == status
    assert "unrelated" not in found.headline + found.finding.evidence


def test_groups_are_compared_on_the_same_rows():
    """Heavy tails make both intervals wide, but on every row the linear map leaves a third less."""
    errors = np.random.default_rng(0).pareto(1.5, size=200)
    wide = [
        Nearness(g, m, m, m, m, HeldOut(m, m / 2, m * 2), 0.5, m * errors / errors.mean())
        for g, m in (("similarity", 0.3), ("linear", 0.2))
    ]
    assert clearly_better(wide[1], wide[0])
    assert not clearly_better(wide[0], wide[1])
    outlier = np.r_[np.ones(199), 400]  # on one row each, and not the same
    lone = [
        Nearness("any", m, m, m, m, HeldOut(m, m / 2, m * 2), 0.5, m * e / e.mean())
        for e, m in ((outlier, 0.3), (outlier[::-1], 0.2))
    ]
    assert not clearly_better(lone[1], lone[0])


def test_few_rows_and_few_or_unequal_clusters_are_noted():
    (few,) = sampling_notes(1, protocol(100, cluster=np.repeat(np.arange(5), 20)))
    assert "only 5 clusters" in few
    (unequal,) = sampling_notes(1, protocol(120, cluster=np.r_[np.zeros(100, int), np.arange(1, 21)]))
    assert "One cluster holds 100 of 120 rows" in unequal
    assert not sampling_notes(1, protocol(100, cluster=np.repeat(np.arange(20), 5)))
    assert not sampling_notes(10, protocol(100))
    assert "99 rows for 10 dimensions are fewer than 10 per dimension" in sampling_notes(10, protocol(99))[0]
