"""Soft matching: single dimensions compared by optimal transport, whatever their number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.align._run_statistics import PairStatistics, RunStatistics, sum_pair
from congruence.arrays import Array, Float
from congruence.stats.matching import match

MOST_COPIES = 1536  # dimensions after each was repeated until both runs have as many; beyond it, a linear program


def soft_matching(x: Any, y: Any) -> float:
    """Mean |correlation| of the dimensions of x and y, each matched with one or several of the other side.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Every dimension of x has the weight 1 / d_x and every one of y 1 / d_y, and the weights of x are transported to
    those of y so that the mean correlation is largest. With equal widths this is the best one-to-one matching, as in
    `strong_mcc`; with different widths no dimension is left out. Constant dimensions are left out. Invariant to
    permutation, sign, scale and shift of each dimension; symmetric.

    From 0 to 1, higher is closer: 1 if each dimension of one side is, up to sign and scale, one of the other, with
    the same weight. NaN if one side is constant.

    Reference: Khosla & Williams 2024 (soft matching), whose correlations are signed; signs do not count here.
    """
    return soft_matching_of(sum_pair(x, y))


def soft_matching_of(pair: PairStatistics) -> float:
    """Soft matching from cached statistics."""
    if not pair.vary:
        return float("nan")
    live = _live(pair.source), _live(pair.target)
    sides = zip((pair.source, pair.target), live, strict=True)
    scale = np.outer(*(np.sqrt(np.diag(run.spread.scatter)[some]) for run, some in sides))
    return _transport(np.minimum(np.abs(pair.sums.cross[np.ix_(*live)]) / scale, 1.0))


def _live(run: RunStatistics) -> Array:
    """The dimensions that vary by more than rounding."""
    deviation = np.sqrt(np.maximum(np.diag(run.spread.scatter), 0))
    return np.flatnonzero(deviation > np.sqrt(run.rows.n) * run.rows.rounding)


def _transport(gain: Float) -> float:
    """The largest mean gain (k, m) of transporting uniform weights of the rows to uniform weights of the columns."""
    k, m = gain.shape
    copies = math.lcm(k, m)
    if copies <= MOST_COPIES:  # whole copies are matched, because the vertices of the polytope are integral
        repeated = np.repeat(np.repeat(gain, copies // k, axis=0), copies // m, axis=1)
        return float(repeated[match(repeated)].mean())
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    rows = kron(eye_array(k), np.ones((1, m)))
    columns = kron(np.ones((1, k)), eye_array(m))
    weights = np.concatenate([np.full(k, 1 / k), np.full(m, 1 / m)])
    found = linprog(-gain.ravel(), A_eq=vstack([rows, columns]), b_eq=weights, method="highs")
    return float(min(-found.fun, 1.0))
