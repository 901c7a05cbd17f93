"""The exact diameter of a cloud of points: the largest distance between two rows.

All n^2 distances are rarely needed. Walking from rows to the ones farthest from them gives a long pair at once. Every
other pair must beat it, and upper bounds show that most cannot: the sum of their distances from the centre (rows are
sorted by it, and the tail is never paired), then products on a few principal axes (`pair_bounds`). What float32
products leave, their rounding allowed for, is measured in float64, so the answer is that of float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, resolve_device, row_chunks, to_numpy
from congruence.maps.pair_bounds import Cloud, PairBounds, centre_rows, choose_axes, library
from congruence.rows.engine import Rows
from congruence.tables import as_rows

CPU_PAIRS = 3 * 10**10  # any 245,000 rows; 768 wide and with no bound that bites, ten minutes of one core
GPU_PAIRS = 2 * 10**12  # any 2,000,000 rows
PANEL = 16  # tiles of rows held while the others pass by
STARTS, SWEEPS, BALL_STEPS = 32, 6, 10  # rows from which to walk, steps to take; steps towards the smallest ball
AGREE = 1e-13  # distances nearer than this, relative, are the same to float64 sums


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
    """Return the diameter max_ij |x_i - x_j| of the rows of x, shape (n, d): an array, data frame, table or path.

    It is exact (to 1e-12, relative) unless more than `max_pairs` pairs had to be looked at: by default 3e10 on a CPU
    and 2e12 on a GPU, so always up to 245,000 and 2,000,000 rows and far beyond where the bounds bite. Past that it
    is the longest distance found, labelled, with a certified upper bound. A count decides, not a clock: runs repeat.
    """
    x = as_rows(x)
    return rows_diameter(Rows(x, resolve_device(device, x)), max_pairs=max_pairs)


def rows_diameter(rows: Rows, *, max_pairs: int | None = None) -> Diameter:
    """Return the diameter of prepared rows; see `diameter`."""
    cloud = centre_rows(rows)
    best = _Best(cloud, max_pairs if max_pairs is not None else GPU_PAIRS if cloud.on_gpu else CPU_PAIRS)
    _sweep(cloud, best)

    order = np.argsort(-cloud.radius, kind="stable")
    radius = cloud.radius[order]
    order = order[: best.reach(radius, radius[0])]
    if len(order) > cloud.tile:  # raise the best among the rows farthest out before the axes are chosen
        _search(PairBounds(cloud, order[: cloud.tile], None), best)
        order = order[: best.reach(radius, radius[0])]
    high, done = _search(PairBounds(cloud, order, choose_axes(cloud, order, best.value)), best)

    if high > best.enough:
        high = min(high, float(radius[:2].sum()), 2 * _enclosing_radius(cloud, order[done:]))
    exact = high <= best.enough
    return Diameter(best.value, exact, best.value, best.value if exact else high * (1 + 1e-12), best.pair)


@dataclass
class _Best:
    """The longest pair so far, and how many more may be looked at."""

    cloud: Cloud
    pairs_left: int
    value: float = 0.0
    pair: tuple[int, int] = (0, 0)

    @property
    def enough(self) -> float:
        """The length that a pair must exceed to matter."""
        return self.value * (1 + AGREE)

    def reach(self, radii: Float, radius: float) -> int:
        """Return how many of the rows of falling radii could be in a longer pair with a row of this radius."""
        return int(np.searchsorted(-radii, radius - self.enough))

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
    """Walk from the rows farthest out to the ones farthest from them, and on: a lower bound, often the answer."""
    starts = visited = np.argsort(-cloud.radius, kind="stable")[:STARTS]
    for _ in range(SWEEPS):
        within = np.flatnonzero(cloud.radius + cloud.radius.max() >= best.value)
        farthest = _farthest(cloud, within, cloud.take(starts))
        best.measure(starts, farthest)
        starts = np.setdiff1d(farthest, visited)
        visited = np.union1d(visited, starts)
        if not starts.size:
            break


def _farthest(cloud: Cloud, index: Array, origins: Any) -> Array:
    """Return for each origin which of the indexed rows is farthest from it."""
    found, value = np.zeros(len(origins), dtype=np.int64), np.full(len(origins), -np.inf)
    for part in row_chunks(len(index), cloud.rows.d):
        x = cloud.take(index[part])
        score = (x * x).sum(1)[:, None] - 2 * (x @ origins.T)  # (m, origins): squared distance less a constant
        at, highest = to_numpy(score.argmax(0)), to_numpy(library(x).amax(score, 0))
        found = np.where(highest > value, index[part][at], found)
        value = np.maximum(highest, value)
    return found


def _search(bounds: PairBounds, best: _Best) -> tuple[float, int]:
    """Look at every pair that could be longer than the best, until the pairs allowed are used up.

    Returns an upper bound of all pairs of these rows, and how many rows have none left that was not looked at.
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
            for start in range(top, min(end, other + 1), tile):
                rows = best.reach(r[start : min(start + tile, end)], r[other])
                columns = best.reach(r[other : other + tile], r[start])
                if rows * columns > best.pairs_left:
                    return float(max(r[top] + r[other], 2 * r[min(end, n - 1)])), top
                best.pairs_left -= rows * columns
                if rows * columns:
                    here = left[start - top : start - top + rows]
                    i, j, crossed = bounds.beyond(here, right[:columns], best.value)
                    best.measure(order[start + i], order[other + j], crossed)
    return best.value, n


def _enclosing_radius(cloud: Cloud, index: Array) -> float:
    """Return the radius of a ball around the rows, near the smallest (Badoiu and Clarkson 2003)."""
    centre, smallest = 0 * cloud.take(index[:1]), np.inf
    for step in range(1, BALL_STEPS + 1):
        far = cloud.take(_farthest(cloud, index, centre))
        smallest = min(smallest, float(((far - centre) ** 2).sum() ** 0.5))
        centre = centre + (far - centre) / (step + 1)
    return smallest
