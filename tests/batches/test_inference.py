"""Means, errors and marks of `deconfound`: one average, batches as sampling units, Holm's correction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from congruence.batches import deconfound
from congruence.batches._inference import (
    MeanAUROC,
    benjamini_hochberg,
    compare_conditions,
    compare_folds,
    correct_targets,
    estimate_mean,
    holm,
)
from congruence.batches.classify import auroc, auroc_by_unit
from congruence.batches.deconfounding import Score, Target

BLANK = np.full(5, np.nan)
QUICK = {"rounds": 10, "concentration": (), "profiles": False, "leakage": False, "retrieval": False}


def target(name, base, ica):
    """A target with these AUROCs in five folds; NaN where a fold has no positives."""
    scores = {
        key: Score(key, np.array(values), BLANK, BLANK, (), np.array([np.nanmean(values)]))
        for key, values in (("base", base), ("ica", ica))
    }
    reasons = tuple("no positives held out" if np.isnan(value) else "" for value in base)
    made = Target(name, (), 9, tuple(("", fold) for fold in range(5)), reasons, 5, 0, scores, {})
    return Target(**(vars(made) | {"paired": {"ica": compare_folds((made,), "ica", "base", "folds")}}))


def test_the_difference_is_that_of_the_means_though_targets_miss_folds():
    """Averaged by fold, the gain in the folds that one target misses would count twice."""
    nan = np.nan
    whole = target("whole", [0.9, 0.9, 0.9, 0.9, 0.9], [0.8, 0.8, 0.9, 0.9, 0.9])
    rare = target("rare", [0.5, 0.5, nan, nan, nan], [0.9, 0.9, nan, nan, nan])
    overall = compare_conditions((whole, rare), ("base", "ica"), "folds")[0]["ica"]
    means = {name: estimate_mean((whole, rare), name, None, "folds").value for name in ("base", "ica")}
    assert overall.difference == pytest.approx(means["ica"] - means["base"]) == pytest.approx((-0.04 + 0.4) / 2)


@pytest.mark.parametrize("protocol", ["folds", "batch"])
def test_headline_and_table_have_one_average(wells, protocol):
    gene = wells.gene.astype(object)
    gene[np.isin(wells.plate, ["p0", "p1"]) & (gene == "PLK1")] = "rare"
    asked = {"target": gene, "batch": wells.plate, "control": "none", "protocol": protocol}
    result = deconfound(wells.x, **asked, **QUICK)
    for name, paired in result.overall.items():
        assert paired.difference == pytest.approx(result.mean(name) - result.mean("base"))


def test_batches_contribute_to_the_auroc_and_vary_as_clustered_rows_do(rng):
    positive, unit = rng.uniform(size=60) < 0.4, np.repeat([0, 1, 3], 20)
    score = np.round(rng.normal(size=60) + positive, 1)  # with ties
    parts = auroc_by_unit(positive, score, unit, 4)
    assert np.nansum(parts) == pytest.approx(auroc(positive, score))
    assert np.isnan(parts[2])
    alone = auroc_by_unit(positive, score, np.zeros(60, dtype=int), 2)
    assert alone[0] == pytest.approx(auroc(positive, score))


def test_the_error_is_that_of_clustered_means_widened_for_shared_training_rows(rng):
    """With one batch in each fold, the contributions are the folds themselves."""
    values = rng.uniform(0.5, 1, 5)
    one = target("t", values, values)
    by_unit = Score("base", values, BLANK, BLANK, (), values, np.where(np.eye(5) > 0, values[:, None], np.nan))
    same = Target(**(vars(one) | {"scores": {"base": by_unit}}))
    expected = values.std(ddof=1) * np.sqrt(1 / 5 + 1 / 4)
    for made in (one, same):
        found = estimate_mean((made,), "base", None, "folds")
        assert (found.error, found.df, found.units) == pytest.approx((expected, 4, 5))


def test_equal_batches_give_no_certainty_from_few():
    found = compare_folds((target("t", [0.5] * 5, [0.6] * 5),), "ica", "base", "folds")
    assert found.p == pytest.approx(2 / 2**5)  # the sign test
    assert compare_folds((target("t", [0.5] * 5, [0.5] * 5),), "ica", "base", "folds").p == 1


def test_corrections_are_those_of_holm_and_of_benjamini_and_hochberg():
    p = [0.01, 0.04, np.nan, 0.03]
    np.testing.assert_allclose(holm(p), [0.03, 0.06, np.nan, 0.06])
    np.testing.assert_allclose(benjamini_hochberg(p), [0.03, 0.04, np.nan, 0.04])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1, 1])


def test_one_small_p_value_among_twelve_targets_is_no_mark():
    base = np.array([0.7, 0.6, 0.8, 0.7, 0.65])
    gain = np.array([0.05, 0.01, 0.04, 0.05, 0.07])
    odd = target("odd", base, base + gain)
    assert odd.paired["ica"].p < 0.05
    assert odd.paired["ica"].status == "holds"
    noise = [target(f"t{i}", base, base + np.roll([0.05, -0.05, 0.02, -0.02, 0], i)) for i in range(11)]
    corrected = correct_targets([odd, *noise])
    assert corrected[0].paired["ica"].adjusted == pytest.approx(12 * odd.paired["ica"].p)
    assert corrected[0].paired["ica"].comparisons == 12
    assert {one.paired["ica"].status for one in corrected} == {"ambiguous"}


def test_the_best_of_several_conditions_is_corrected(wells):
    conditions = ("whitened", "rotated", "standardised")
    result = deconfound(wells.x, target=wells.gene, batch=wells.plate, control="none", conditions=conditions, **QUICK)
    best = result.overall[result.main_condition]
    assert best.comparisons == 3
    assert best.adjusted > best.p


def test_none_means_the_default_number_of_components(wells):
    labels = {"target": wells.gene, "batch": wells.plate, "control": "none", "conditions": "ica"}
    default, none = (deconfound(wells.x, **labels, **QUICK, **more) for more in ({}, {"components": None}))
    assert default.settings["components"] == none.settings["components"] == "auto"
    assert default.to_json() == none.to_json()


def test_directions_that_few_rows_determine_are_noted(wells):
    labels = {"target": wells.gene[:60], "batch": wells.plate[:60], "control": "none", "conditions": "whitened"}
    wide = np.random.default_rng(0).normal(size=(60, 50))
    (said,) = [one for one in deconfound(wide, **labels, components="all", **QUICK).notes if "Whitening" in one]
    assert "Whitening keeps 50 directions of 60 rows" in said
    assert "'auto' keeps 3" in said
    assert not any("Whitening keeps" in one for one in deconfound(wide, **labels, **QUICK).notes)


def test_the_interval_of_an_auroc_has_the_t_quantile_of_its_units(rng):
    """With one batch in each of five folds, there are four degrees of freedom; near 0.5 the scale hardly matters."""
    values = 0.5 + 0.01 * rng.normal(size=5)
    mean = estimate_mean((target("t", values, values),), "base", None, "folds")
    low, high = mean.auroc_interval()
    assert (high - low) / 2 == pytest.approx(student.ppf(0.975, 4) * mean.error, rel=1e-3)


@given(st.floats(0.001, 0.999), st.floats(1e-6, 0.5), st.floats(2, 50))
def test_the_interval_of_an_auroc_holds_it_and_stays_between_0_and_1(value, error, df):
    low, high = MeanAUROC(value, error, df, 5, 5).auroc_interval()
    assert 0 <= low < value < high <= 1
    mirrored = MeanAUROC(1 - value, error, df, 5, 5).auroc_interval()
    assert mirrored == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("value", "error"), [(1.0, 0.0), (0.7, 0.0), (0.7, np.nan), (np.nan, np.nan)])
def test_equal_or_few_units_give_no_interval_of_an_auroc(value, error):
    assert np.isnan(MeanAUROC(value, error, 3, 5, 4).auroc_interval()).all()
