"""Overlap of nearest neighbours: the share of a row's neighbours that two runs have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.align._run_statistics import PairStatistics, RunStatistics, paired_rows, sample_rows
from congruence.align.similarities.distances import reorders
from congruence.arrays import Array, Float, as_float64_like, is_tensor, row_chunks, to_numpy
from congruence.checks import check_integer
from congruence.rows.engine import Rows
from congruence.stats.nulls import restrict

NEIGHBOURS = 10
NEIGHBOUR_ROWS = 10_000  # among which neighbours are searched: more than this many are sampled
ASKED_ROWS = 1000  # whose neighbours are searched: the mean overlap of these has a standard error below 0.01
SPARED = 8  # neighbours chosen in float32 beyond those needed
_BLOCK = 512


def neighbour_overlap(x: Any, y: Any, *, k: int = NEIGHBOURS, seed: int = 0) -> float:
    """The mean share of a row's k nearest neighbours in x that are also among its k nearest in y (mutual k-NN).

    x, y : (n, d_x) and (n, d_y), paired rows.

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. More than 10 000 rows are
    sampled by `seed`; distances are Euclidean and computed in blocks, never as an n x n matrix. Rows at equal distance
    are exchangeable. On rows of unit length neighbours by cosine are the same.

    From 0 to 1, higher is closer; about k / (n - 1) for unrelated runs. NaN if one side is constant. Reference: Huh et
    al. 2024 (mutual k-NN), who take the inner product of unit rows.
    """
    check_integer("k", k)
    source, target = paired_rows(x, y)
    return _shared_neighbours(_find_neighbours(source, k, seed), _find_neighbours(target, k, seed))


def overlap_of(pair: PairStatistics) -> float:
    """Neighbour overlap from cached statistics."""
    if not reorders(pair.target, NEIGHBOUR_ROWS):
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
    points, rounding = rows.points(order)
    varies = bool(((points * points).mean(0) > as_float64_like(rows.rounding, points) ** 2).any())
    k, asked = min(k, len(order) - 1) if varies else 0, len(order) if every else min(len(order), ASKED_ROWS)
    nearest = np.empty((asked, k), dtype=np.intp)
    search = _search_on_device(points, k) if is_tensor(points) else _search(points, k)
    for start in range(0, asked if k else 0, _BLOCK):
        part = slice(start, min(start + _BLOCK, asked))
        nearest[part] = search(part)
    return _Neighbours(points, rounding, asked, nearest)


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
