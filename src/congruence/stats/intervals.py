"""Intervals from resampled statistics: percentile bootstrap over rows or clusters, and jackknife."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array, Float

MOST_UNITS = 20_000  # that are resampled one by one
MOST_SPREAD = math.log(1e6)  # an interval with a larger ratio of its ends to the value says nothing
NO_INTERVAL = (math.nan, math.nan)


def percentile_interval(samples: Any, level: float = 0.95) -> tuple[float, float]:
    """The central interval that holds `level` of the finite samples; NaN without any."""
    samples = np.asarray(samples, dtype=float)
    known = samples[np.isfinite(samples)]
    if not known.size:
        return NO_INTERVAL
    low, high = np.quantile(known, _tails(level))
    return float(low), float(high)


def bootstrap_mean(values: Float, unit: Array, draws: int, seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of values (n,) over resampled units (rows, or clusters of rows).

    Maps are not fitted again: the interval covers the choice of the scored rows, not of the fitted ones.
    """
    return bootstrap_means(values[None], unit, draws, seed)[0]


def bootstrap_means(values: Float, unit: Array, draws: int, seed: int) -> list[tuple[float, float]]:
    """The interval of `bootstrap_mean` for every row of values (m, n), with the same resampled units for all."""
    *sums, sizes = resampled_sums(np.vstack([values, np.ones(len(unit))]), unit, draws, seed)
    return [percentile_interval(total / sizes) for total in sums]


def bootstrap_ratio(a: Float, b: Float, unit: Array, draws: int, seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of mean(a) / mean(b) for two errors of the same rows, resampled together."""
    above, below = resampled_sums(np.vstack([a, b]), unit, draws, seed)
    return percentile_interval(above / below)


def ratio_interval(value: float, draws: Float, units: int, inflation: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of a positive ratio: Student's t over units, with the bootstrap's deviation of its logarithm.

    `draws` are the ratios of the bootstrap samples; `inflation` multiplies their variance.
    """
    known = draws[np.isfinite(draws) & (draws > 0)]
    if not math.isfinite(value) or units < 2 or not len(draws):
        return NO_INTERVAL
    if value <= 0 or len(known) < 2:
        return value, value
    variance = inflation * float(np.var(np.log(known), ddof=1)) * units / (units - 1)
    half = student_quantile(units - 1, 0.975) * math.sqrt(variance)
    return (value / math.exp(half), value * math.exp(half)) if half < MOST_SPREAD else NO_INTERVAL


def unit_interval(values: Float, unit: Array, inflation: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of the mean of values (n,) from 0 to 1: Student's t over units (rows, or clusters of rows).

    `inflation` multiplies the variance; NaN with fewer than two units.
    """
    unit = np.unique(unit, return_inverse=True)[1]
    units, mean = int(unit.max()) + 1, float(values.mean())
    if units < 2:
        return NO_INTERVAL
    deviations = np.bincount(unit, weights=values - mean)
    variance = inflation * float(np.square(deviations).sum()) * units / (units - 1) / len(values) ** 2
    half = student_quantile(units - 1, 0.975) * math.sqrt(variance)
    return max(mean - half, 0.0), min(mean + half, 1.0)


def student_quantile(df: float, level: float) -> float:
    """The quantile of Student's t, without the second that importing scipy.stats takes."""
    from scipy.special import stdtrit

    return float(stdtrit(df, level))


def resampled_sums(values: Float, unit: Array, draws: int, seed: int) -> Float:
    """The sums of values (m, n) over bootstrap samples of units, shape (m, draws); `unit` (n,) numbers them from 0.

    More than `MOST_UNITS` units are first summed in groups, drawn at random, and the groups are resampled: sums of
    equally many independent units have the same variance of the mean in expectation.
    """
    rng, units = np.random.default_rng(seed), int(unit.max()) + 1
    if units > MOST_UNITS:
        group = np.random.default_rng(seed).permutation(units) % MOST_UNITS
        unit, units = group[unit], MOST_UNITS
    if units < len(unit):
        values = np.stack([np.bincount(unit, weights=row, minlength=units) for row in values])
    sums = np.empty((len(values), draws))
    for i in range(draws):
        sums[:, i] = values @ np.bincount(rng.integers(units, size=units), minlength=units)
    return sums


def subsample_interval(
    value: float, scores: Float, sizes: Float, n: int, bounds: tuple[float, float], level: float = 0.9
) -> tuple[float, float]:
    """The interval of a score of n rows, from its scores (r,) on r subsets of these sizes (r,).

    Rows drawn with replacement repeat, which breaks estimates from nearest neighbours, so subsets are drawn without
    replacement. The score of a subset of m rows varies around the mean of such scores sqrt((n - m) / m) times as much
    as that of all rows around the truth: 1 for halves (the delete-d jackknife; Shao & Wu 1989). The standard deviation
    of the rescaled deviations, times the quantile of Student's t, is taken to both sides of the value, not of the mean
    of the subsets, whose scores are biased by having fewer rows. NaN where fewer than half of the subsets have a score.
    """
    from scipy.stats import t

    good = np.isfinite(scores)
    draws = int(good.sum())
    if not math.isfinite(value) or draws < max(2, len(scores) / 2):
        return NO_INTERVAL
    deviations = (scores[good].mean() - scores[good]) * np.sqrt(sizes[good] / (n - sizes[good]))
    half = float(t.ppf((1 + level) / 2, draws - 1)) * math.sqrt(float(np.square(deviations).sum()) / (draws - 1))
    return float(np.clip(value - half, *bounds)), float(np.clip(value + half, *bounds))


def t_interval(values: Float, *, folds: bool = False, fewest: int = 3) -> tuple[float, float]:
    """The 95 % interval of the mean of values (n,) by Student's t; NaN below `fewest` values.

    `folds` corrects for values of cross-validation folds, whose training rows overlap (Nadeau & Bengio 2003): the
    variance is multiplied by 1 / n + 1 / (n - 1) instead of 1 / n.
    """
    from scipy.stats import t

    n, mean = len(values), float(np.mean(values))
    if n < fewest:
        return NO_INTERVAL
    half = float(t.ppf(0.975, n - 1)) * math.sqrt((1 / n + folds / (n - 1)) * float(np.var(values, ddof=1)))
    return mean - half, mean + half


def jackknife_interval(value: float, left: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a statistic of units, from its values (n,) without each one, with Student's t.

    Valid for means over pairs of units too, which are not independent. NaN below three units or where a value is.
    """
    n = len(left)
    if n < 3 or not np.isfinite([value, *left]).all():
        return NO_INTERVAL
    half = student_quantile(n - 1, 0.975) * math.sqrt((n - 1) * float(np.var(left)))
    return value - half, value + half


def rank_correlation_interval(a: Float, b: Float, draws: int, seed: Any) -> tuple[float, float, float]:
    """Spearman's correlation of a and b (n,) and its 95 % bootstrap interval; NaN ends below four pairs."""
    rank = float(rank_correlation(a, b))
    if len(a) < 4:
        return rank, *NO_INTERVAL
    drawn = np.random.default_rng(seed).integers(len(a), size=(draws, len(a)))
    return rank, *percentile_interval(rank_correlation(a[drawn], b[drawn]))


def rank_correlation(a: Float, b: Float) -> Float:
    """Spearman's correlation along the last axis; NaN where one side is constant."""
    from scipy.stats import rankdata

    x, y = (rankdata(one, axis=-1) for one in (a, b))
    x, y = (one - one.mean(-1, keepdims=True) for one in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Float = (x * y).sum(-1) / np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return correlation


def _tails(level: float) -> tuple[float, float]:
    tail = round((1 - level) / 2, 12)
    return tail, 1 - tail
