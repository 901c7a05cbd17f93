"""Centred kernel alignment (CKA) with the linear kernel, canonical correlations (SVCCA, PWCCA) and soft matching.

The n x n kernels are never formed: CKA needs d x d products and squared row norms. SVCCA and PWCCA are in sample:
canonical directions are fitted to the rows they are scored on. The canonical correlations of two unrelated runs with n
rows and d dimensions reach about 2 sqrt(d / n); some are 1 where n <= 2 d, and all where n <= d + 1. Use many rows per
dimension, or judge by the held-out numbers of `compare`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.align._run_statistics import PairStatistics, RunStatistics, squared_norms, sum_pair
from congruence.arrays import Array, Float, as_float64_like, row_chunks, to_numpy
from congruence.checks import check_number
from congruence.rows.algebra import svd
from congruence.rows.sums import RowScatter
from congruence.stats.matching import match

VARIANCE = 0.99
KERNEL_ROWS = 2000  # up to which an n x n matrix is kept for each run
KERNEL_COST = 100  # permuting an entry of a matrix takes the time of about as many products
CONDITION = 1e6  # beyond this the sums no longer resolve the correlation of the weakest directions
MOST_COPIES = 1536  # dimensions after each was repeated until both runs have as many; beyond it, a linear program
ROUNDING = 1e-12  # the rounding of a difference of sums, as a share of them


def cka(x: Any, y: Any) -> float:
    """Linear centred kernel alignment, without the bias that makes unrelated wide runs look similar.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Invariant to permutation, rotation, one scale and translation of either side; symmetric.

    From -1 to 1, higher is closer: 1 for equal runs up to the above, about 0 for unrelated ones. NaN for fewer
    than 4 rows, if one side is constant, if all its rows are equally far from each other, or if one row has nearly
    all of its variance.

    References: Kornblith et al. 2019 (CKA); Song et al. 2012, eq. 5 (the unbiased estimator; CKA is the ratio of two).
    """
    return cka_of(sum_pair(x, y))


def plain_cka(x: Any, y: Any) -> float:
    """Linear centred kernel alignment as first published: the norm of the cross product over those of the scatters.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. It is biased upwards where
    rows are few for their width: two unrelated Gaussian runs of 300 rows and 500 dimensions score 0.6 and more. `cka`
    does not have this bias.

    From 0 to 1, higher is closer: 1 for equal runs up to the above. NaN if one side is constant. Reference: Kornblith
    et al. 2019, Table 1.
    """
    return plain_cka_of(sum_pair(x, y))


def svcca(x: Any, y: Any, *, variance: float = VARIANCE) -> float:
    """Mean canonical correlation of the principal directions that hold 99 % of each side's variance, in sample.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Invariant to permutation, rotation, one scale and translation of either side; to other invertible linear maps only
    where they leave the kept directions the same (always with ``variance=1``, which is plain CCA). Symmetric.
    Inflated where n is not many times the number of kept directions, and 1 for any two runs that keep n - 1 of them.
    `variance` is the share of each side's variance to keep, above 0 and at most 1. Directions that are only rounding do
    not count.

    From 0 to 1, higher is closer: the mean over min(kept in x, kept in y) canonical correlations. NaN if one side
    is constant. Reference: Raghu et al. 2017 (SVCCA).
    """
    check_number("variance", variance, 0, 1, open_low=True)
    return svcca_of(sum_pair(x, y), variance)


def pwcca(x: Any, y: Any) -> float:
    """Canonical correlations averaged weighted by how much of x each canonical direction explains, in sample.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Not symmetric: the weights are those of x, so pwcca(x, y) measures how much of x is represented in y. Invariant to
    permutation, one scale and translation of either side, and to any invertible linear map of y; not to a rotation of
    x, because the weights are sums of absolute values over its dimensions. Inflated where n is not many times d, and
    1 for any two runs where n <= d + 1. Where several canonical correlations are equal, as some must be when n <= 2 d,
    the variates and with them the weights are not unique. Directions that are only rounding do not count.

    From 0 to 1, higher is closer. NaN if one side is constant.

    Reference: Morcos et al. 2018 (PWCCA): alpha_i = sum_j |<h_i, x_j>| over the dimensions x_j of x, normalised over
    the min(rank of x, rank of y) canonical variates h_i. The code published with the paper does not whiten h_i.
    """
    return pwcca_of(sum_pair(x, y))


def cka_of(pair: PairStatistics) -> float:
    """Unbiased CKA from cached statistics."""
    if pair.source.rows.n < 4 or not pair.vary:
        return float("nan")
    # Kernels of trace 1: sums of squares of squares then stay in the range of floats.
    diag_x, diag_y = (run.cached(squared_norms, reorder_rows) / run.norm**2 for run in (pair.source, pair.target))
    own_x, own_y = _own(pair.source, diag_x), _own(pair.target, diag_y)
    if own_x <= 0 or own_y <= 0:
        return float("nan")
    return float(np.clip(_hsic(shared_squares(pair), diag_x, diag_y) / np.sqrt(own_x * own_y), -1, 1))


def reorder_rows(values: Float, run: RunStatistics) -> Float:
    """Values of the rows, shape (n,), in the order of a reordered run."""
    return values[run.order]


def shared_squares(pair: PairStatistics) -> float:
    """The squared norm of the cross product of runs of norm 1, which is the inner product of their n x n kernels.

    For the many re-pairings of few wide rows, the entries of one kernel are permuted instead of summing products.
    """
    n, wide = pair.source.rows.n, pair.source.rows.d * pair.target.rows.d
    if pair.target.order is not None and n <= KERNEL_ROWS and n * KERNEL_COST <= wide:
        return float(np.vdot(pair.source.cached(_kernel), pair.target.cached(_kernel, _reorder_kernel)))
    cross = pair.sums.cross / (pair.source.norm * pair.target.norm)
    return float((cross * cross).sum())


def _kernel(run: RunStatistics) -> Float:
    """The kernel of all rows, centred and of trace 1, shape (n, n)."""
    rows = to_numpy(run.rows.take(slice(None))) / run.norm
    return rows @ rows.T


def _reorder_kernel(kernel: Float, run: RunStatistics) -> Float:
    return kernel[run.order][:, run.order]


def _own(run: RunStatistics, diagonal: Float) -> float:
    """The unbiased HSIC of a run with itself; 0 where it is only rounding."""
    scatter = run.spread.scatter / run.norm**2
    squares = float((scatter * scatter).sum())
    value = _hsic(squares, diagonal, diagonal)
    return value if value > ROUNDING * squares else 0.0


def _hsic(squares: float, diag_k: Float, diag_l: Float) -> float:
    """Unbiased HSIC of two linear kernels with zeroed diagonals, times n (n - 3).

    The rows are centred, so each row of a kernel sums to 0 with its diagonal and to -diagonal without it.
    """
    n, both = len(diag_k), float(diag_k @ diag_l)
    middle = float(diag_k.sum() * diag_l.sum()) / ((n - 1) * (n - 2))
    return squares - both + middle - 2 * both / (n - 2)


def plain_cka_of(pair: PairStatistics) -> float:
    """Plain CKA from cached statistics."""
    if not pair.vary:
        return float("nan")
    own = [np.linalg.norm(run.spread.scatter / run.norm**2) for run in (pair.source, pair.target)]
    return min(float(shared_squares(pair) / (own[0] * own[1])), 1.0)


def svcca_of(pair: PairStatistics, variance: float = VARIANCE) -> float:
    """SVCCA from cached statistics."""
    x, y = _kept(pair.source.spread, variance), _kept(pair.target.spread, variance)
    if not (x[1].size and y[1].size):
        return float("nan")
    return float(_canonical(pair, x, y)[1].mean())


def _kept(spread: RowScatter, variance: float) -> tuple[Float, Float]:
    """The fewest principal axes, (d, r), that hold the share `variance`, and their singular values, (r,)."""
    axes, singular = spread.axes
    left = np.cumsum(singular[::-1] ** 2)[::-1]  # the variance in this and all weaker axes
    keep = left > (1 - variance) * left[:1] * (1 + 1e-9)
    return axes[:, keep], singular[keep]


def pwcca_of(pair: PairStatistics) -> float:
    """PWCCA from cached statistics."""
    x, y = pair.source.spread.axes, pair.target.spread.axes
    if not (x[1].size and y[1].size):
        return float("nan")
    directions, correlations = _canonical(pair, x, y)
    # h_i = X axes / singular @ directions_i, and X' X axes = axes singular^2, so <h_i, x_j> needs no rows.
    weights = np.abs(directions.T @ (x[1][:, None] * x[0].T)).sum(1)  # (c,)
    return float(weights @ correlations / weights.sum())


def _canonical(pair: PairStatistics, x: tuple[Float, Float], y: tuple[Float, Float]) -> tuple[Float, Float]:
    """Canonical directions of x in its whitened axes, (r_x, c), and canonical correlations, (c,)."""
    white = x[0] / x[1], y[0] / y[1]
    condition = (x[1][0] / x[1][-1]) * (y[1][0] / y[1][-1])
    cross = white[0].T @ pair.sums.cross @ white[1] if condition < CONDITION else _cross_of_rows(pair, *white)
    directions, correlations, _ = svd(cross, full_matrices=False)
    return directions, np.clip(correlations, 0, 1)


def _cross_of_rows(pair: PairStatistics, white_x: Float, white_y: Float) -> Float:
    """The cross product of whitened rows, (r_x, r_y), whitened before they are summed: slower, and exact."""
    total = np.zeros((white_x.shape[1], white_y.shape[1]))
    for part in row_chunks(pair.source.rows.n, pair.sums.width):
        x, y = pair.source.rows.take(part), pair.target.rows.take(part)
        x = (x - as_float64_like(pair.source.spread.mean, x)) @ as_float64_like(white_x, x)
        y = (y - as_float64_like(pair.target.spread.mean, y)) @ as_float64_like(white_y, y)
        total += to_numpy(x.T @ y)
    return total


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
