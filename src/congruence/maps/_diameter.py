"""The exact diameter of a cloud of points: the largest distance between two rows.

All n^2 distances are rarely needed. Walking from rows to the ones farthest from them quickly finds a long pair. Every
other pair must beat it, and upper bounds show that most cannot: first the sum of their distances from the centre (rows
are sorted by it), then the bounds of `_pair_bounds.py`, computed for all pairs of a tile. Pairs that these cannot
exclude are measured in float64, so the answer is that of float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, library, resolve_device, row_chunks, to_numpy
from congruence.maps._pair_bounds import Cloud, PairBounds, centre_rows, choose_axes
from congruence.rows.engine import Rows
from congruence.tables import as_rows

CPU_PAIRS = 3 * 10**10  # any 245,000 rows; 768 wide and without a useful bound, ten minutes of one core
GPU_PAIRS = 2 * 10**12  # any 2,000,000 rows
PANEL = 16  # tiles of rows held while the others pass by
STRIPS = 8  # into which a tile on the diagonal is cut, to leave out most of the pairs that it has twice
STARTS, SWEEPS, BALL_STEPS = 32, 6, 10  # rows to start from, steps to take; steps towards the smallest ball
AGREE = 1e-13  # relative difference below which float64 sums cannot distinguish distances


@dataclass(frozen=True)
class Diameter:
    """The largest distance between two rows lies in [`low`, `high`]; `pair` is `value` = `low` apart.

    Where `exact`, all three are equal; otherwise the search stopped at its limit of pairs.
    """

    value: float
    exact: bool
    low: float
    high: float
    pair: tuple[int, int]


def diameter(x: Any, *, device: str = "auto", max_pairs: int | None = None) -> Diameter:
    """Compute the diameter max_ij |x_i - x_j| of the rows of x.

    Parameters
    ----------
    x : (n, d)
        An array, data frame, table or path.
    device : str
        "auto" computes where the data is; "cpu", "cuda" or "cuda:1" choose.
    max_pairs : int, optional
        The search stops after so many pairs: by default 3e10 on a CPU and 2e12 on a GPU. That is enough for any 245,000
        and 2,000,000 rows, and for many more where the bounds exclude most pairs. The limit is a count and not a time,
        so results are reproducible.

    Returns
    -------
    Diameter
        Exact to a relative 1e-12; where the search stopped, the longest distance measured and a certified upper bound.

    Examples
    --------
    >>> diameter([[0, 0], [1, 1], [3, 4]]).value
    5.0
    """
    x = as_rows(x)
    return rows_diameter(Rows(x, resolve_device(device, x)), max_pairs=max_pairs)


def rows_diameter(rows: Rows, *, max_pairs: int | None = None) -> Diameter:
    """Compute the diameter of `Rows`; see `diameter`."""
    cloud = centre_rows(rows)
    best = _Best(cloud, max_pairs if max_pairs is not None else GPU_PAIRS if cloud.on_gpu else CPU_PAIRS)
    _sweep(cloud, best)

    order, radius, done = cloud.order, cloud.radius[cloud.order], 0
    order = order[: best.reach(radius, radius[0])]
    if len(order) > cloud.tile:  # raise the best among the rows farthest out before the axes are chosen
        _, done = _search(PairBounds(cloud, order[: cloud.tile], None), best)
        order = order[: best.reach(radius, radius[0])]
    high, done = _search(PairBounds(cloud, order, choose_axes(cloud, order, best.value)), best, done)

    if high > best.enough:
        high = min(high, float(radius[:2].sum()), 2 * _enclosing_radius(cloud, order[done:]))
    exact = high <= best.enough
    return Diameter(best.value, exact, best.value, best.value if exact else high * (1 + 1e-12), best.pair)


@dataclass
class _Best:
    """The longest pair so far, and how many more pairs may be examined."""

    cloud: Cloud
    pairs_left: int
    value: float = 0.0
    pair: tuple[int, int] = (0, 0)
    stopped: bool = False  # at the limit of pairs

    @property
    def enough(self) -> float:
        """The length that a pair must exceed to matter."""
        return self.value * (1 + AGREE)

    def reach(self, radii: Float, radius: float) -> int:
        """Count the rows, sorted by decreasing radius, that could form a longer pair with a row of this radius."""
        return int(np.searchsorted(-radii, radius - self.enough))

    def spend(self, pairs: int) -> bool:
        """Whether so many more pairs may be examined; otherwise the search has stopped."""
        self.stopped = pairs > self.pairs_left
        self.pairs_left -= 0 if self.stopped else pairs
        return not self.stopped

    def measure(self, i: Array, j: Array, crossed: bool = False) -> None:
        """Measure the pairs (i[0], j[0]), (i[1], j[1]), ..., or each i with each j, in float64; keep the longest."""
        if crossed:
            a, b = self.cloud.take(i), self.cloud.take(j)
            squared = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * (a @ b.T)
            at, to = divmod(int(squared.argmax()), len(j))
            i, j = i[at : at + 1], j[to : to + 1]
        for part in row_chunks(len(i), self.cloud.rows.d):
            difference = self.cloud.rows.take(i[part]) - self.cloud.rows.take(j[part])
            squared = (difference * difference).sum(1)
            at = int(squared.argmax())
            if (length := float(squared[at]) ** 0.5) > self.value:
                self.value, self.pair = length, (int(i[part][at]), int(j[part][at]))


def _sweep(cloud: Cloud, best: _Best) -> None:
    """Walk repeatedly from the outermost rows to the rows farthest from them: a lower bound, often the diameter."""
    starts = visited = cloud.order[:STARTS]
    for _ in range(SWEEPS):
        within = np.flatnonzero(cloud.radius + cloud.radius.max() >= best.value)
        farthest = _farthest(cloud, within, cloud.unit, cloud.unit(starts))
        best.measure(starts, farthest)
        starts = np.setdiff1d(farthest, visited)
        visited = np.union1d(visited, starts)
        if not starts.size:
            break


def _farthest(cloud: Cloud, index: Array, take: Callable[[Array], Any], origins: Any) -> Array:
    """For each origin, the indexed row that is farthest from it, to the precision of the rows taken."""
    farthest, value = np.zeros(len(origins), dtype=np.int64), np.full(len(origins), -np.inf)
    for part in cloud.chunks(len(index)):
        x = take(index[part])
        score = (x * x).sum(1)[:, None] - 2 * (x @ origins.T)  # (m, origins): squared distance less a constant
        at, highest = to_numpy(score.argmax(0)), to_numpy(library(x).amax(score, 0))
        farthest = np.where(highest > value, index[part][at], farthest)
        value = np.maximum(highest, value)
    return farthest


def _search(bounds: PairBounds, best: _Best, finished: int = 0) -> tuple[float, int]:
    """Examine every pair that could be longer than the best, within the limit of pairs.

    Pairs among the first `finished` rows are left out. Returns an upper bound over all pairs of these rows, and how
    many of the rows are finished.
    """
    order, tile = bounds.order, bounds.cloud.tile
    r, n = bounds.cloud.radius[order], len(order)
    for top in range(0, n, PANEL * tile):
        if 2 * r[top] <= best.enough:
            break
        end = min(n, top + PANEL * tile)
        left = bounds.left(slice(top, end))
        for other in range(top, n, tile):
            if r[top] + r[other] <= best.enough:
                break
            right = bounds.right(slice(other, other + tile))
            tiles = _tiles(r, range(top, end, tile), other, finished, best)
            while batch := list(islice(tiles, bounds.cloud.in_flight)):
                sides = [(left[_shift(i, top)], right[_shift(j, other)]) for i, j in batch]
                for (i, j), product in zip(batch, bounds.products(sides, best.value), strict=True):
                    at, to, crossed = bounds.exceeding(*product, best.value)
                    best.measure(order[i][at], order[j][to], crossed)
            if best.stopped:
                return float(max(r[top] + r[other], 2 * r[min(end, n - 1)])), top
    return best.value, n


def _shift(part: slice, by: int) -> slice:
    return slice(part.start - by, part.stop - by)


def _tiles(r: Float, starts: range, other: int, finished: int, best: _Best) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of tiles with pairs that could be longer than the best, until the limit of pairs."""
    tile = starts.step
    for start in range(starts.start, min(starts.stop, other + 1), tile):
        step, stop = tile if start < other else max(1, tile // STRIPS), min(start + tile, starts.stop)
        for i in range(start, stop, step):
            j = max(i, other)
            rows = best.reach(r[i : min(i + step, stop)], r[j])
            columns = best.reach(r[j : other + tile], r[i])
            if rows * columns == 0 or max(i + rows, j + columns) <= finished:
                continue
            if not best.spend(rows * columns):
                return
            yield slice(i, i + rows), slice(j, j + columns)


def _enclosing_radius(cloud: Cloud, index: Array) -> float:
    """The radius of a ball around the rows, close to the smallest one (Badoiu and Clarkson 2003)."""
    centre, smallest = 0 * cloud.take(index[:1]), np.inf
    for step in range(1, BALL_STEPS + 1):
        far = cloud.take(_farthest(cloud, index, cloud.take, centre))
        smallest = min(smallest, float(((far - centre) ** 2).sum() ** 0.5))
        centre = centre + (far - centre) / (step + 1)
    return smallest
