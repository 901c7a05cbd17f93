import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.align._distortion import Distortion
from congruence.align._notes import sampling_notes
from congruence.align.comparison import efficiency
from congruence.align.verdict import (
    Evidence,
    FarRows,
    clearly_better,
    count_moved,
    far_rows,
    judge,
)
from congruence.maps.dependence import Dependence
from congruence.maps.nearness import HeldOut, Nearness, protocol

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["efficiency"]


def near(group, share, unexplained=None, width=0.02, null=0.05):
    """A group with this share of chance, and the unexplained variance that goes with it."""
    errors = share * null * np.random.default_rng(0).uniform(0.5, 1.5, size=1000)
    left = share**2 if unexplained is None else unexplained
    return Nearness(
        group, *[share * null] * 4, HeldOut(share * null, share * null, share * null), null, errors,
        HeldOut(share, share * (1 - width), share * (1 + width)),
        HeldOut(1 - left, 1 - left * (1 + width), 1 - left * (1 - width)), share,
    )  # fmt: skip


def ladder(**shares):
    return {group: near(group, share) for group, share in shares.items()}


def distortion(status, margin=0.1):
    gain = {"holds": 0.02, "fails": 0.4, "ambiguous": 0.08, "unknown": float("nan")}[status]
    spread = 0.05
    certain = max(gain - spread, 0.0)
    none = np.zeros(0)
    return Distortion(status, margin, gain, gain + spread, gain + spread, certain, 8, 10, 0.9, 0.5, none, none)


def known(n=1000, d=10, status="holds", **changes):
    return replace(Evidence(plan=protocol(n, nulls=0), d=d, distortion=distortion(status)), **changes)


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
    ("shares", "gains", "n", "status", "group", "headline"),
    [
        ({"identity": 0.01, "similarity": 0.01, "linear": 0.01}, "holds", 1000, "holds", "identity", "No map is"),
        ({"identity": 1.0, "permutation": 0.02, "similarity": 0.02}, "holds", 1000, "holds", "permutation",
         "Only the order and signs"),
        ({"identity": 1.0, "similarity": 0.2, "linear": 0.2}, "holds", 1000, "holds", "similarity", "only a rotation"),
        ({"identity": 1.0, "rigid": 0.2, "linear": 0.2}, "holds", 1000, "holds", "rigid", "only a rotation."),
        ({"similarity": 0.1, "linear": 0.03}, "holds", 1000, "holds", "linear", "distortion within the margin"),
        ({"similarity": 0.3, "linear": 0.1}, "holds", 1000, "ambiguous", "linear", "undecided"),
        ({"similarity": 0.5, "linear": 0.5}, "holds", 1000, "ambiguous", "similarity", "plus noise"),
        ({"similarity": 0.5, "linear": 0.5}, "holds", 50, "ambiguous", "similarity", "plus noise"),
        ({"similarity": 0.5, "linear": 0.5}, "holds", 15, "unknown", "similarity", "too few rows"),
        ({"similarity": 0.2, "linear": 0.2}, "fails", 1000, "fails", "similarity", "a linear map, more than"),
        ({"similarity": 0.6, "linear": 0.5}, "fails", 1000, "fails", "linear", "more than a rotation and a scale"),
        ({"similarity": 0.2, "linear": 0.2}, "ambiguous", 1000, "ambiguous", "similarity", "undecided"),
        ({"similarity": 0.2, "linear": 0.2}, "ambiguous", 50, "unknown", "similarity", "too few rows"),
        ({"similarity": 0.8, "linear": 0.8}, "unknown", 1000, "ambiguous", "similarity", "too weakly"),
        ({"similarity": 1.0, "linear": 1.0}, "unknown", 1000, "fails", "none", "no more alike than unrelated"),
        ({"similarity": 1.0, "linear": 1.0}, "unknown", 15, "unknown", "none", "too few rows"),
        ({"linear": 0.04}, "holds", 1000, "unknown", "linear", "was not tested"),
        ({"identity": 1.2}, "holds", 1000, "unknown", "none", "was not tested"),
        ({"permutation": 0.6}, "holds", 1000, "unknown", "permutation", "was not tested"),
        ({"permutation": 0.02}, "holds", 1000, "holds", "permutation", "Only the order and signs"),
        ({"permutation": 1e-9, "similarity": 0.8}, "unknown", 15, "holds", "permutation", "Only the order and signs"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_table(shares, gains, n, status, group, headline):
    found = judge(ladder(**shares), known(n, status=gains))
    assert (found.status, found.group) == (status, group)
    assert headline in found.headline


def test_an_upper_limit_above_the_tolerance_does_not_hold():
    wide = {"similarity": near("similarity", 0.3, unexplained=0.09, width=0.3)}
    assert judge(wide, known()).headline == "The difference looks like a rotation and a scale plus noise."
    assert judge(wide, known(tolerance=0.2)).status == "holds"


def test_the_evidence_names_both_statements_with_their_numbers():
    found = judge(ladder(similarity=0.366, linear=0.22), known(status="fails"))
    assert found.finding.evidence == (
        "Up to rotation and scale, the held-out error is 36.6 % of chance (95 % interval 35.9 to 37.3 %) and R² is "
        "0.866. Distortion: some |log gain| is above 0.35 (margin 0.1), whichever run has the noise; the largest is "
        "0.40. A linear map reduces the error by 40 %."
    )
    gains, left = found.finding.premises
    assert (gains.name, gains.status, gains.number) == ("distortion", "fails", 0.4)
    assert (left.name, left.status) == ("unexplained", "fails")
    assert_allclose(left.number, 0.366**2)


def test_rows_that_depend_on_each_other_leave_the_verdict_open():
    rows = Dependence(0.6, 1.1, 0.62, True, False, np.zeros(0, int), 1000)
    found = judge(ladder(similarity=0.6, linear=0.6), known(dependence=rows))
    assert found.status == "unknown"
    assert "rises from 60.0 % to 110 % of chance where consecutive rows" in found.finding.evidence
    close = replace(rows, scattered=0.01)  # a match this close cannot be due to neighbours
    assert judge(ladder(similarity=0.01), known(dependence=close)).status == "holds"


def test_rows_that_do_not_match_are_in_the_headline():
    found = judge(ladder(similarity=0.3), known(moved=50))
    assert found.headline == "The difference is only a rotation and a scale, except for 50 of 1000 rows."
    assert "50 of 1000 rows match no better than unrelated rows." in found.finding.evidence


def test_far_rows_are_left_out_and_the_worse_answer_counts():
    rest = near("similarity", 1.0)
    far = FarRows(12, 0.81, rest, judge({"similarity": rest}, known(status="unknown")))
    found = judge(ladder(similarity=0.01), known(far=far))
    assert (found.status, found.headline) == ("fails", "The runs are no more alike than unrelated ones.")
    assert "12 of 1000 rows hold 81 % of the variance of a run. Without them: Up to rotation and scale, the held" in (
        found.finding.evidence
    )


def test_few_far_rows_that_hold_most_of_the_variance_are_found():
    rng = np.random.default_rng(0)
    lengths = rng.chisquare(16, size=1000)
    assert not len(far_rows(lengths))
    lengths[[3, 7]] *= 1e4
    assert far_rows(np.ones(1000), lengths).tolist() == [3, 7]
    assert not len(far_rows(rng.chisquare(1, size=1000) ** 3))  # heavy tails, but no gap


def test_rows_that_match_no_better_than_unrelated_ones_are_counted():
    rng = np.random.default_rng(0)
    lengths, errors = np.full(1000, 32.0), 0.3 * rng.chisquare(32, size=1000) ** 0.5
    assert count_moved(errors, lengths) == 0
    errors[:50] = 8.0
    assert count_moved(errors, lengths) == 50
    assert count_moved(np.sqrt(64.0) * rng.uniform(0.8, 1.2, size=1000), lengths) == 0  # all of them: unrelated runs


def test_ica_alone_gives_no_verdict():
    assert judge({"ica": near("ica", 0.2)}, known(100)).status == "unknown"


@pytest.mark.parametrize(("share", "status"), [(0.9, "unknown"), (1e-9, "holds")])
def test_without_a_null_only_a_close_match_is_judged(share, status):
    nan = float("nan")
    bare = {
        g: replace(near(g, share), null=nan, of_chance=HeldOut(nan, nan, nan), trimmed=nan)
        for g in ("similarity", "linear")
    }
    found = judge(bare, known())
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
