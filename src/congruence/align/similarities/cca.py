"""Canonical correlations: which directions of one run a linear map can find in the other (SVCCA, PWCCA).

Both measures are in sample: canonical directions are fitted to the rows they are scored on. The canonical correlations
of two unrelated runs with n rows and d dimensions reach about 2 sqrt(d / n); some are 1 where n <= 2 d, and all where
n <= d + 1. Use many rows per dimension, or judge by the held-out numbers of `compare`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align.similarities.sides import Both, both_of
from congruence.arrays import Float, as_float64_like, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps.algebra import svd
from congruence.rows.sums import Paired, Spread

VARIANCE = 0.99
CONDITION = 1e6  # beyond this the sums no longer resolve the correlation of the weakest directions


def svcca(x: Any, y: Any, *, variance: float = VARIANCE) -> float:
    """Mean canonical correlation of the principal directions that hold 99 % of each side's variance, in sample.

    Invariant to permutation, rotation, one scale and translation of either side; to other invertible linear maps only
    where they leave the kept directions the same (always with ``variance=1``, which is plain CCA). Symmetric.
    Inflated where n is not many times the number of kept directions, and 1 for any two runs that keep n - 1 of them.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows. Dimensions that do not vary, and directions that are only rounding, do not count.
    variance : float
        The share of each side's variance to keep, above 0 and at most 1.

    Returns
    -------
    float
        From 0 to 1, higher is closer: the mean over min(kept in x, kept in y) canonical correlations. NaN if one side
        is constant.

    References
    ----------
    Raghu et al. 2017 (SVCCA).
    """
    if not 0 < variance <= 1:
        raise InputError(f"variance must be above 0 and at most 1, not {variance}")
    return mean_correlation(both_of(x, y), variance)


def pwcca(x: Any, y: Any) -> float:
    """Canonical correlations averaged with the weight that x gives to each canonical direction, in sample.

    Not symmetric: the weights are those of x, so pwcca(x, y) asks how much of what x represents is in y. Invariant to
    permutation, one scale and translation of either side, and to any invertible linear map of y; not to a rotation of
    x, because the weights are sums of absolute values over its dimensions. Inflated where n is not many times d, and
    1 for any two runs where n <= d + 1. Where several canonical correlations are equal, as some must be when n <= 2 d,
    the variates and with them the weights are not unique.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows. Dimensions that do not vary, and directions that are only rounding, do not count.

    Returns
    -------
    float
        From 0 to 1, higher is closer. NaN if one side is constant.

    References
    ----------
    Morcos et al. 2018 (PWCCA): alpha_i = sum_j |<h_i, x_j>| over the dimensions x_j of x, normalised over the
    min(rank of x, rank of y) canonical variates h_i. The code published with the paper leaves out the whitening of h_i
    and so differs.
    """
    return weighted_correlation(both_of(x, y))


def mean_correlation(both: Both, variance: float = VARIANCE) -> float:
    """SVCCA from prepared sums."""
    x, y = _kept(both.sums.source, variance), _kept(both.sums.target, variance)
    if not (x[1].size and y[1].size):
        return float("nan")
    return float(_canonical(both.sums, x, y)[1].mean())


def weighted_correlation(both: Both) -> float:
    """PWCCA from prepared sums."""
    x, y = both.sums.source.axes, both.sums.target.axes
    if not (x[1].size and y[1].size):
        return float("nan")
    directions, correlations = _canonical(both.sums, x, y)
    # h_i = X axes / singular @ directions_i, and X' X axes = axes singular^2, so <h_i, x_j> needs no rows.
    weights = np.abs(directions.T @ (x[1][:, None] * x[0].T)).sum(1)  # (c,)
    return float(weights @ correlations / weights.sum())


def _kept(spread: Spread, variance: float) -> tuple[Float, Float]:
    """The fewest principal axes, (d, r), that hold the share `variance`, and their singular values, (r,)."""
    axes, singular = spread.axes
    left = np.cumsum(singular[::-1] ** 2)[::-1]  # the variance in this and all weaker axes
    keep = left > (1 - variance) * left[:1] * (1 + 1e-9)
    return axes[:, keep], singular[keep]


def _canonical(paired: Paired, x: tuple[Float, Float], y: tuple[Float, Float]) -> tuple[Float, Float]:
    """Canonical directions of x in its whitened axes, (r_x, c), and canonical correlations, (c,)."""
    white = x[0] / x[1], y[0] / y[1]
    condition = (x[1][0] / x[1][-1]) * (y[1][0] / y[1][-1])
    cross = white[0].T @ paired.cross @ white[1] if condition < CONDITION else _cross_of_rows(paired, *white)
    directions, correlations, _ = svd(cross, full_matrices=False)
    return directions, np.clip(correlations, 0, 1)


def _cross_of_rows(paired: Paired, white_x: Float, white_y: Float) -> Float:
    """The cross product of whitened rows, (r_x, r_y), whitened before they are summed: dearer, and exact."""
    source, target = paired.source, paired.target
    total = np.zeros((white_x.shape[1], white_y.shape[1]))
    for part in row_chunks(source.n, paired.width):
        x = source.rows.take(source.index[part])
        y = target.rows.take(target.index[part])
        x = (x - as_float64_like(source.mean, x)) @ as_float64_like(white_x, x)
        y = (y - as_float64_like(target.mean, y)) @ as_float64_like(white_y, y)
        total += to_numpy(x.T @ y)
    return total
