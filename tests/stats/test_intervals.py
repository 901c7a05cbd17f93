"""Intervals cover what they promise, and agree with scipy where scipy has them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from congruence.stats.intervals import (
    bootstrap_mean,
    jackknife_interval,
    percentile_interval,
    rank_correlation,
    rank_correlation_interval,
    t_interval,
)
from congruence.stats.matching import match


def test_the_percentile_interval_leaves_out_what_is_not_finite():
    values = np.arange(101.0)
    assert percentile_interval([*values, np.nan, np.inf]) == pytest.approx((2.5, 97.5))
    assert percentile_interval(values, 0.9) == pytest.approx((5, 95))
    assert np.isnan(percentile_interval([np.nan])).all()


def test_without_draws_there_is_no_interval():
    assert np.isnan(bootstrap_mean(np.arange(3.0), np.arange(3), 0, 0)).all()


def test_the_t_interval_is_that_of_scipy(rng):
    values = rng.normal(size=8)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert_allclose(t_interval(values), expected)
    wide, narrow = np.ptp(t_interval(values, folds=True)), np.ptp(t_interval(values))
    assert_allclose(wide / narrow, np.sqrt((1 / 8 + 1 / 7) / (1 / 8)))
    assert np.isnan(t_interval(values[:2])).all()
    assert np.isfinite(t_interval(values[:2], fewest=2)).all()


def test_the_rank_correlation_is_that_of_scipy(rng):
    a, b = rng.integers(0, 5, size=(2, 3, 20)).astype(float)
    assert_allclose(rank_correlation(a, b), [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)])
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))


def test_the_interval_of_a_rank_correlation_holds_it(rng):
    a = rng.normal(size=60)
    rank, low, high = rank_correlation_interval(a, a + rng.normal(size=60), 500, 0)
    assert low < rank < high
    assert np.isnan(rank_correlation_interval(a[:3], a[:3], 10, 0)[1:]).all()


def test_matching_takes_the_largest_total_and_counts_missing_as_nothing():
    rows, columns = match([[0.9, 0.8], [0.85, 0.1], [np.nan, 0.2]])
    assert rows.tolist() == [0, 1]
    assert columns.tolist() == [1, 0]


def test_the_jackknife_of_a_mean_is_students_t(rng):
    values = rng.normal(size=7)
    left = [float(np.delete(values, i).mean()) for i in range(7)]
    assert jackknife_interval(float(values.mean()), left) == pytest.approx(t_interval(values))
    assert np.isnan(jackknife_interval(1.0, [1.0, 1.0])).all()
    assert np.isnan(jackknife_interval(1.0, [1.0, 1.0, np.nan])).all()
