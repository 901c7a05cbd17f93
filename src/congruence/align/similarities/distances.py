"""Distances: representational similarity analysis (RSA), mutual nearest neighbours and Procrustes distances.

Procrustes distances are those of centred runs, the narrower zero-padded, after the best rotation; lower is closer. The
best rotation leaves |X|^2 + |Y|^2 - 2 |X'Y|_* (nuclear norm), so d x d sums suffice, except for distances near 0, which
they cannot resolve: those are summed over the rows. The rotation is fitted to the rows it is scored on, so unrelated
runs score closer the more dimensions they have for their rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
from congruence.arrays import Array, Float, as_float64_like, is_tensor, row_chunks, to_numpy
from congruence.checks import check_integer
from congruence.rows.engine import Rows
from congruence.stats.nulls import restrict

RSA_ROWS = 2000  # there are n (n - 1) / 2 distances to rank: 2 million, 16 MB and a third of a second per run
NEIGHBOURS = 10
NEIGHBOUR_ROWS = 10_000  # among which neighbours are searched: more than this many are sampled
ASKED_ROWS = 1000  # whose neighbours are searched: the mean overlap of these has a standard error below 0.01
SPARED = 8  # neighbours chosen in float32 beyond those needed
RESOLVED = 1e-3  # a squared distance below this share of the squared norms loses digits as a difference of sums
_BLOCK = 512


def rsa(x: Any, y: Any, *, rows: int = RSA_ROWS, seed: int = 0) -> float:
    """Spearman correlation of the distances between rows in x with those in y.

    Ranks need all pairs of rows, so more than `rows` rows are sampled (by `seed`); `rsa_pearson` needs no sample.
    Invariant to permutation, rotation, one scale and translation of either side; symmetric.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows; distances are Euclidean (squaring them would not change their ranks).
    rows : int
        The largest number of rows to use, at least 3.
    seed : int
        The seed of the sample.

    Returns
    -------
    float
        From -1 to 1, higher is closer: 1 if distances are ordered alike, about 0 for unrelated runs. NaN for fewer than
        3 rows, or if all rows of one side are equally far from each other (as in a constant one).

    References
    ----------
    Kriegeskorte et al. 2008, who take 1 - correlation for distance; Euclidean distance is invariant to rotation.
    """
    check_integer("rows", rows, 3)
    return _cosine(*(_centred_ranks(r, rows, seed) for r in paired_rows(x, y)))


def rsa_pearson(x: Any, y: Any) -> float:
    """Pearson correlation of the squared distances between rows in x with those in y, over all pairs of rows.

    Computed from d x d sums and squared row norms: exact, and never an n x n matrix. Invariant to permutation,
    rotation, one scale and translation of either side; symmetric. Rows far from the others weigh more than in `rsa`.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From -1 to 1, higher is closer: 1 for equal runs up to the above, about 0 for unrelated ones. NaN for fewer
        than 3 rows, or if all rows of one side are equally far from each other (as in a constant one).

    References
    ----------
    Kriegeskorte et al. 2008; squared Euclidean distances as in rsatoolbox.
    """
    return rsa_pearson_of(sum_pair(x, y))


def neighbour_overlap(x: Any, y: Any, *, k: int = NEIGHBOURS, seed: int = 0) -> float:
    """The mean share of a row's k nearest neighbours in x that are also among its k nearest in y (mutual k-NN).

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. More than 10 000 rows are
    sampled; distances are computed in blocks, never as an n x n matrix. Rows at equal distance are exchangeable.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows; distances are Euclidean. On rows of unit length neighbours by cosine are the same.
    k : int
        Neighbours per row, at most n - 1.
    seed : int
        The seed of the sample.

    Returns
    -------
    float
        From 0 to 1, higher is closer; about k / (n - 1) for unrelated runs. NaN if one side is constant.

    References
    ----------
    Huh et al. 2024 (mutual k-NN), who take the inner product of unit rows.
    """
    check_integer("k", k)
    source, target = paired_rows(x, y)
    return _shared_neighbours(_find_neighbours(source, k, seed), _find_neighbours(target, k, seed))


def procrustes(x: Any, y: Any) -> float:
    """Distance between the shapes of two runs: centred, scaled to norm 1, and rotated onto each other.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection), one
    scale and translation of either run.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 to sqrt(2), lower is closer: 0 for equal runs up to the above. NaN if one side is constant.

    References
    ----------
    Williams et al. 2021; Ding et al. 2021, who print its square (0 to 2).
    """
    return procrustes_of(sum_pair(x, y))


def angular_procrustes(x: Any, y: Any) -> float:
    """Angle between two runs as vectors of norm 1, after the best rotation: the arc whose chord is `procrustes`.

    Also known as the Bures angle: its cosine is the fidelity, the nuclear norm of K^1/2 L^1/2, of the centred linear
    kernels K and L of trace 1. Where measures are chosen by name, "bures" is this one.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection), one
    scale and translation of either run.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 to pi / 2, lower is closer: arccos(|X'Y|_* / (|X| |Y|)). NaN if one side is constant.

    References
    ----------
    Williams et al. 2021 (angular ground metric); Harvey et al. 2024 (Bures distance and fidelity of kernels).
    """
    return angle_of(sum_pair(x, y))


def size_and_shape(x: Any, y: Any) -> float:
    """Distance between two runs, centred and rotated onto each other, in their own units: the size counts too.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection) and
    translation of either side, not to scale. It is a norm over all rows, so it grows with the root of n.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 up, lower is closer. NaN if one side is constant.

    References
    ----------
    Dryden & Mardia 2016; Williams et al. 2021 (Euclidean ground metric).
    """
    return size_and_shape_of(sum_pair(x, y))


def rsa_of(pair: PairStatistics) -> float:
    """RSA from cached statistics."""
    if not pair.vary:
        return float("nan")
    if not _reorders(pair.target, RSA_ROWS):
        return _cosine(pair.source.cached(_ranks), pair.target.cached(_ranks))
    return _cosine(*(run.cached(_rank_matrix, _reorder_ranks).ravel() for run in (pair.source, pair.target)))


def _reorders(run: RunStatistics, most: int) -> bool:
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

    distances = pdist(to_numpy(rows.take(sample_rows(rows.n, most, seed))))  # (m (m - 1) / 2,)
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


def overlap_of(pair: PairStatistics) -> float:
    """Neighbour overlap from cached statistics."""
    if not _reorders(pair.target, NEIGHBOUR_ROWS):
        return _shared_neighbours(pair.source.cached(_nearest), pair.target.cached(_nearest))
    a, b = (run.cached(_listed, _reorder_neighbours) for run in (pair.source, pair.target))
    if not (a.chosen.size and b.chosen.size):
        return float("nan")
    hits = [
        (one.within[:ASKED_ROWS, None] == other.chosen[:ASKED_ROWS, :, None]).any(2) for one, other in ((a, b), (b, a))
    ]
    return float(np.mean([hit.mean() for hit in hits]))


def _nearest(run: RunStatistics) -> _Neighbours:
    return _find_neighbours(run.rows, seed=run.seed)


@dataclass(frozen=True, eq=False)
class _NeighbourLists:
    """The neighbours of all sampled rows, by their positions in the sample: what another order only renames."""

    chosen: Array  # (m, k)
    within: Array  # (m, k + SPARED) all those no farther than the k-th, and -1

    def renamed(self, order: Array) -> _NeighbourLists:
        place = np.append(np.argsort(order), -1)  # of each row in the new order
        return _NeighbourLists(place[self.chosen[order]], place[self.within[order]])


def _listed(run: RunStatistics) -> _NeighbourLists:
    """The neighbours of all rows of the sample, and as many as `SPARED` others at the same distance."""
    found = _find_neighbours(run.rows, NEIGHBOURS + SPARED, run.seed, every=True)
    if not found.nearest.size:
        return _NeighbourLists(found.nearest, found.nearest)
    distances = found.distances(found.nearest)
    by_distance = np.argsort(distances, axis=1)
    nearest, distances = (np.take_along_axis(one, by_distance, 1) for one in (found.nearest, distances))
    k = min(NEIGHBOURS, nearest.shape[1])
    reach = distances[:, k - 1 : k] * (1 + 1e-12) + found.rounding
    return _NeighbourLists(nearest[:, :k], np.where(distances <= reach, nearest, -1))


def _reorder_neighbours(lists: _NeighbourLists, run: RunStatistics) -> _NeighbourLists:
    assert run.order is not None
    points = _sample_points(run.rows.n, run.seed)
    rows = np.sort(points)
    place = np.searchsorted(rows, points)  # of each point among the sorted rows
    order = np.argsort(place)[restrict(run.order, rows)[place]]
    return lists.renamed(order) if lists.chosen.size else lists


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """The k nearest neighbours of some rows among all, or among a sample where there are many."""

    points: Any  # (m, d) the rows that were sampled, float64
    rounding: float  # of their entries
    asked: int  # the first so many of the points have their neighbours found
    nearest: Array  # (asked, k) positions in `points`; no columns where all rows are equal

    @cached_property
    def reach(self) -> Float:
        """The distance of the farthest neighbour plus rounding, shape (asked,)."""
        return np.asarray(self.distances(self.nearest).max(1) * (1 + 1e-12) + self.rounding)

    def distances(self, others: Array) -> Float:
        """The distances of each row asked from others, by their positions, shape (asked, k)."""
        distances = np.empty(others.shape)
        for part in row_chunks(len(others), others.shape[1] * self.points.shape[1]):
            gap = self.points[: self.asked][part][:, None] - self.points[others[part]]
            distances[part] = to_numpy((gap * gap).sum(2) ** 0.5)
        return distances


def _sample_points(n: int, seed: int) -> Array:
    """The rows among which neighbours are searched; those that are asked for theirs come first."""
    rows = sample_rows(n, NEIGHBOUR_ROWS, seed)
    return np.random.default_rng(seed).permutation(rows) if len(rows) > ASKED_ROWS else rows


def _find_neighbours(rows: Rows, k: int = NEIGHBOURS, seed: int = 0, *, every: bool = False) -> _Neighbours:
    """Find the k nearest neighbours of each row; where there are many, of a sample of rows among a larger sample.

    `every` row of the larger sample is asked for its neighbours.
    """
    order = _sample_points(rows.n, seed)
    points = rows.take(order)
    varies = bool(((points * points).mean(0) > as_float64_like(rows.rounding, points) ** 2).any())
    k, asked = min(k, len(order) - 1) if varies else 0, len(order) if every else min(len(order), ASKED_ROWS)
    nearest = np.empty((asked, k), dtype=np.intp)
    search = _search_on_device(points, k) if is_tensor(points) else _search(points, k)
    for start in range(0, asked if k else 0, _BLOCK):
        part = slice(start, min(start + _BLOCK, asked))
        nearest[part] = search(part)
    return _Neighbours(points, float(rows.rounding.max()), asked, nearest)


def _search_on_device(points: Any, k: int) -> Callable[[slice], Array]:
    squares = (points * points).sum(1)

    def nearest(part: slice) -> Array:
        distance = squares - 2 * points[part] @ points.T
        distance[np.arange(len(distance)), np.arange(part.start, part.stop)] = np.inf
        return to_numpy(distance.topk(k, largest=False).indices)

    return nearest


def _search(points: Float, k: int) -> Callable[[slice], Array]:
    """A function that finds the k nearest points of those in a slice, (m, k).

    They are chosen in float32 with some to spare, and decided in float64. Where float32 cannot exclude that a point
    beyond those spared is nearer, the row is searched in float64.
    """
    points = points / (np.abs(points).max() or 1.0)  # any size fits float32
    narrow, squares = points.astype(np.float32), np.square(points).sum(1)
    some, rounding = min(k + SPARED, len(points) - 1), 4 * (points.shape[1] + 8) * 2.0**-24
    least = ((1 - rounding) * squares).astype(np.float32)  # products err by rounding times the squares of both rows

    def nearest(part: slice) -> Array:
        own = np.arange(part.start, part.stop)
        distance = narrow[part] @ narrow.T
        distance *= -2
        distance += least  # lower bounds, up to a constant per row
        distance[np.arange(len(own)), own] = np.inf
        found = np.argpartition(distance, some - 1, axis=1)[:, :some]
        beyond = np.take_along_axis(distance, found, 1).max(1) + (1 - rounding) * squares[part]
        gap = points[part, None] - points[found]
        exact = np.einsum("ijk,ijk->ij", gap, gap)
        chosen = np.take_along_axis(found, np.argpartition(exact, k - 1, axis=1)[:, :k], 1)
        unsure = np.flatnonzero(beyond <= np.partition(exact, k - 1, axis=1)[:, k - 1])
        if len(unsure) and some < len(points) - 1:
            distance = squares - 2 * points[own[unsure]] @ points.T
            distance[np.arange(len(unsure)), own[unsure]] = np.inf
            chosen[unsure] = np.argpartition(distance, k - 1, axis=1)[:, :k]
        return chosen

    return nearest


def _shared_neighbours(a: _Neighbours, b: _Neighbours) -> float:
    """The mean share of neighbours in one run that are no farther than the k-th in the other, in both directions.

    Where all distances differ these are the common neighbours; equal distances are exchangeable.
    """
    if not (a.nearest.size and b.nearest.size):
        return float("nan")
    hits = (one.distances(other.nearest) <= one.reach[:, None] for one, other in ((a, b), (b, a)))
    return float(np.mean([hit.mean() for hit in hits]))


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
