"""Distances: representational similarity analysis (RSA) and Procrustes distances.

Procrustes distances are those of centred runs, the narrower zero-padded, after the best rotation; lower is closer. The
best rotation leaves |X|^2 + |Y|^2 - 2 |X'Y|_* (nuclear norm), so d x d sums suffice, except for distances near 0, which
they cannot resolve: those are summed over the rows. The rotation is fitted to the rows it is scored on, so unrelated
runs score closer the more dimensions they have for their rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align._run_statistics import (
    PairStatistics,
    RunStatistics,
    paired_rows,
    sample_rows,
    squared_norms,
    sum_pair,
)
from congruence.align.similarities.correlations import ROUNDING, reorder_rows, shared_squares
from congruence.arrays import Float, as_float64_like, row_chunks, to_numpy
from congruence.checks import check_integer
from congruence.rows.engine import Rows
from congruence.stats.nulls import restrict

RESOLVED = 1e-3  # a squared distance below this share of the squared norms loses digits as a difference of sums
RSA_ROWS = 2000  # there are n (n - 1) / 2 distances to rank: 2 million, 16 MB and a third of a second per run


def rsa(x: Any, y: Any, *, rows: int = RSA_ROWS, seed: int = 0) -> float:
    """Spearman correlation of the Euclidean distances between rows in x with those in y.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Ranks need all pairs of rows, so more than `rows` rows (at least 3) are sampled by `seed`; `rsa_pearson` needs no
    sample. Invariant to permutation, rotation, one scale and translation of either side; symmetric.

    From -1 to 1, higher is closer: 1 if distances are ordered alike, about 0 for unrelated runs. NaN for fewer than
    3 rows, or if all rows of one side are equally far from each other (as in a constant one). Reference: Kriegeskorte
    et al. 2008, who take 1 - correlation for distance; Euclidean distance is invariant to rotation.
    """
    check_integer("rows", rows, 3)
    return _cosine(*(_centred_ranks(r, rows, seed) for r in paired_rows(x, y)))


def rsa_pearson(x: Any, y: Any) -> float:
    """Pearson correlation of the squared distances between rows in x with those in y, over all pairs of rows.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Computed from d x d sums and squared row norms: exact, and never an n x n matrix. Invariances are those of `rsa`;
    rows far from the others weigh more. From -1 to 1, higher is closer; NaN as for `rsa`. References: Kriegeskorte et
    al. 2008; squared Euclidean distances as in rsatoolbox.
    """
    return rsa_pearson_of(sum_pair(x, y))


def procrustes(x: Any, y: Any) -> float:
    """Distance between the shapes of two runs: centred, scaled to norm 1, and rotated onto each other.

    x, y : (n, d_x) and (n, d_y), paired rows.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection), one
    scale and translation of either run. From 0 to sqrt(2), lower is closer: 0 for equal runs up to the above. NaN if
    one side is constant. References: Williams et al. 2021; Ding et al. 2021, who print its square (0 to 2).
    """
    return procrustes_of(sum_pair(x, y))


def angular_procrustes(x: Any, y: Any) -> float:
    """Angle between two runs as vectors of norm 1, after the best rotation: the arc whose chord is `procrustes`.

    x, y : (n, d_x) and (n, d_y), paired rows.

    Also known as the Bures angle: its cosine is the fidelity, the nuclear norm of K^1/2 L^1/2, of the centred linear
    kernels K and L of trace 1. Where measures are chosen by name, "bures" is this one. A metric with the invariances of
    `procrustes`.

    From 0 to pi / 2, lower is closer: arccos(|X'Y|_* / (|X| |Y|)). NaN if one side is constant. References: Williams et
    al. 2021 (angular ground metric); Harvey et al. 2024 (Bures distance and fidelity of kernels).
    """
    return angle_of(sum_pair(x, y))


def size_and_shape(x: Any, y: Any) -> float:
    """Distance between two runs, centred and rotated onto each other, in their own units: the size counts too.

    x, y : (n, d_x) and (n, d_y), paired rows.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection) and
    translation of either side, not to scale. It is a norm over all rows, so it grows with the root of n. From 0 up,
    lower is closer. NaN if one side is constant. References: Dryden & Mardia 2016; Williams et al. 2021 (Euclidean
    ground metric).
    """
    return size_and_shape_of(sum_pair(x, y))


def rsa_of(pair: PairStatistics) -> float:
    """RSA from cached statistics."""
    if not pair.vary:
        return float("nan")
    if not reorders(pair.target, RSA_ROWS):
        return _cosine(pair.source.cached(_ranks), pair.target.cached(_ranks))
    return _cosine(*(run.cached(_rank_matrix, _reorder_ranks).ravel() for run in (pair.source, pair.target)))


def reorders(run: RunStatistics, most: int) -> bool:
    """Whether a statistic of a sample of `most` rows is that of the original in another order."""
    return run.order is not None and (run.unit is None or run.rows.n <= most)


def _ranks(run: RunStatistics) -> Float:
    return _centred_ranks(run.rows, RSA_ROWS, run.seed)


def _rank_matrix(run: RunStatistics) -> Float:
    """The ranks as a symmetric matrix of unit norm with a zero diagonal, shape (m, m)."""
    from scipy.spatial.distance import squareform

    matrix: Float = squareform(run.cached(_ranks)) / np.sqrt(2)
    return matrix


def _reorder_ranks(matrix: Float, run: RunStatistics) -> Float:
    assert run.order is not None
    order = restrict(run.order, sample_rows(run.rows.n, RSA_ROWS, run.seed))
    return matrix[order][:, order] if matrix.size > 1 else matrix


def _centred_ranks(rows: Rows, most: int, seed: int) -> Float:
    """Ranks of the distances between rows (of a sample of many), centred, of unit norm; empty where all are equal."""
    from scipy.spatial.distance import pdist
    from scipy.stats import rankdata

    points, _ = rows.points(sample_rows(rows.n, most, seed))
    distances = pdist(to_numpy(points))  # (m (m - 1) / 2,)
    rounding = 4 * np.linalg.norm(rows.rounding)  # of the difference of two distances
    if distances.size == 0 or np.ptp(distances) <= rounding:
        return np.zeros(0)
    ranks: Float = rankdata(distances) - (distances.size + 1) / 2
    return ranks / np.linalg.norm(ranks)


def _cosine(a: Float, b: Float) -> float:
    if not (a.size and b.size):
        return float("nan")
    return float(np.clip(a @ b, -1, 1))


def rsa_pearson_of(pair: PairStatistics) -> float:
    """Pearson RSA from cached statistics."""
    x, y = pair.source, pair.target
    if x.rows.n < 3 or not pair.vary:
        return float("nan")
    excess_x, excess_y = _excess(x), _excess(y)
    own_x, own_y = (
        _covariance(one, one, float(np.square(run.spread.scatter / run.norm**2).sum()))
        for one, run in ((excess_x, x), (excess_y, y))
    )
    if min(own_x, own_y) <= ROUNDING / x.rows.n:
        return float("nan")
    shared = _covariance(excess_x, excess_y, shared_squares(pair))
    return float(np.clip(shared / np.sqrt(own_x * own_y), -1, 1))


def _excess(run: RunStatistics) -> Float:
    """The deviation of each squared row norm from their mean, in units of their sum, shape (n,)."""
    return run.cached(squared_norms, reorder_rows) / run.norm**2 - 1 / run.rows.n


def _covariance(excess_x: Float, excess_y: Float, squares: float) -> float:
    """Half the centred sum of products of squared distances, over all ordered pairs of different rows.

    With kernels K and L of centred rows and trace 1, D_ij = K_ii + K_jj - 2 K_ij and each row of K sums to 0, so
    sum D E - sum D sum E / (n (n - 1)) = 2 n <excess_x, excess_y> + 4 |cross|^2 - 4 / (n - 1). Rows that are
    all equally far from each other leave 0. `squares` is |cross|^2.
    """
    n = len(excess_x)
    return n * float(excess_x @ excess_y) + 2 * squares - 2 / (n - 1)


def procrustes_of(pair: PairStatistics) -> float:
    """The shape distance from cached statistics."""
    return _distance(pair, 1 / pair.source.norm, 1 / pair.target.norm) if pair.vary else float("nan")


def angle_of(pair: PairStatistics) -> float:
    """The angular distance from cached statistics; by the chord, because arccos loses half the digits near 0."""
    return float(2 * np.arcsin(min(procrustes_of(pair), np.sqrt(2)) / 2)) if pair.vary else float("nan")


def size_and_shape_of(pair: PairStatistics) -> float:
    """The size-and-shape distance from cached statistics."""
    return _distance(pair, 1.0, 1.0) if pair.vary else float("nan")


def _distance(pair: PairStatistics, scale_x: float, scale_y: float) -> float:
    sizes = (scale_x * pair.source.norm) ** 2 + (scale_y * pair.target.norm) ** 2
    squared = sizes - 2 * scale_x * scale_y * pair.sums.svd[1].sum()
    if squared < RESOLVED * sizes:
        squared = _squared_rows(pair, scale_x, scale_y)
    return float(np.sqrt(squared))


def _squared_rows(pair: PairStatistics, scale_x: float, scale_y: float) -> float:
    """The squared distance, summed over the rows after the best rotation.

    In the directions that the runs share, the rotation carries u onto v; the others can be made orthogonal.
    """
    width, total = pair.sums.width, 0.0
    u, v = pair.sums.svd[0], pair.sums.svd[2].T  # (width, k)
    for part in row_chunks(pair.source.rows.n, width):
        x, y = (
            scale * (rows - as_float64_like(np.pad(run.spread.mean, (0, width - run.rows.d)), rows))
            for run, scale in ((pair.source, scale_x), (pair.target, scale_y))
            for rows in [run.rows.take(part, width)]
        )
        to_u, to_v = as_float64_like(u, x), as_float64_like(v, y)
        shared_x, shared_y = x @ to_u, y @ to_v
        for left in (shared_x - shared_y, x - shared_x @ to_u.T, y - shared_y @ to_v.T):
            total += float((left * left).sum())
    return total
