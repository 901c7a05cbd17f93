"""The exact diameter of a cloud of points: the largest distance between two rows.

All n^2 distances are rarely needed. Walking from rows to the ones farthest from them quickly finds a long pair. Every
other pair must beat it, and upper bounds show that most cannot: first the sum of their distances from the centre (rows
are sorted by it), then, with u the coordinates of a row on k principal axes, s the norm of its residual and r its
distance from the centre,

    |x_i - x_j|^2 <= r_i^2 + r_j^2 - 2 u_i.u_j + 2 s_i s_j        (Cauchy-Schwarz on the residuals),

which one float32 product of width k + 3 computes for all pairs of a tile. Pairs that float32, with its rounding allowed
for, cannot exclude are measured in float64, so the answer is that of float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, is_tensor, library, resolve_device, row_chunks, to_numpy
from congruence.rows.engine import Rows
from congruence.tables import as_rows

CPU_PAIRS = 3 * 10**10  # any 245,000 rows; 768 wide and without a useful bound, ten minutes of one core
GPU_PAIRS = 2 * 10**12  # any 2,000,000 rows
CPU_TILE, GPU_TILE = 2048, 16384  # rows per side of a tile of pairs
PANEL = 16  # tiles of rows held while the others pass by
KEPT_BYTES = 256 * 2**20  # of float32 rows; more are computed again whenever they are needed (a GPU keeps all)
STARTS, SWEEPS, BALL_STEPS = 32, 6, 10  # rows to start from, steps to take; steps towards the smallest ball
AGREE = 1e-13  # relative difference below which float64 sums cannot distinguish distances
SAMPLE = 4096  # rows from which the axes are chosen
# Numbers of axes to choose from, and what an entry of a product and a pair to be measured cost, in columns multiplied.
WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
READ_COST, MEASURE_COST = 8, 256


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
    """
    x = as_rows(x)
    return rows_diameter(Rows(x, resolve_device(device, x)), max_pairs=max_pairs)


def rows_diameter(rows: Rows, *, max_pairs: int | None = None) -> Diameter:
    """Compute the diameter of `Rows`; see `diameter`."""
    cloud = _centre_rows(rows)
    best = _Best(cloud, max_pairs if max_pairs is not None else GPU_PAIRS if cloud.on_gpu else CPU_PAIRS)
    _sweep(cloud, best)

    order = np.argsort(-cloud.radius, kind="stable")
    radius = cloud.radius[order]
    order = order[: best.reach(radius, radius[0])]
    if len(order) > cloud.tile:  # raise the best among the rows farthest out before the axes are chosen
        _search(_PairBounds(cloud, order[: cloud.tile], None), best)
        order = order[: best.reach(radius, radius[0])]
    high, done = _search(_PairBounds(cloud, order, _choose_axes(cloud, order, best.value)), best)

    if high > best.enough:
        high = min(high, float(radius[:2].sum()), 2 * _enclosing_radius(cloud, order[done:]))
    exact = high <= best.enough
    return Diameter(best.value, exact, best.value, best.value if exact else high * (1 + 1e-12), best.pair)


@dataclass
class _Best:
    """The longest pair so far, and how many more pairs may be examined."""

    cloud: _Cloud
    pairs_left: int
    value: float = 0.0
    pair: tuple[int, int] = (0, 0)

    @property
    def enough(self) -> float:
        """The length that a pair must exceed to matter."""
        return self.value * (1 + AGREE)

    def reach(self, radii: Float, radius: float) -> int:
        """Count the rows, sorted by decreasing radius, that could form a longer pair with a row of this radius."""
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


def _sweep(cloud: _Cloud, best: _Best) -> None:
    """Walk repeatedly from the outermost rows to the rows farthest from them: a lower bound, often the diameter."""
    starts = visited = np.argsort(-cloud.radius, kind="stable")[:STARTS]
    for _ in range(SWEEPS):
        within = np.flatnonzero(cloud.radius + cloud.radius.max() >= best.value)
        farthest = _farthest(cloud, within, cloud.take(starts))
        best.measure(starts, farthest)
        starts = np.setdiff1d(farthest, visited)
        visited = np.union1d(visited, starts)
        if not starts.size:
            break


def _farthest(cloud: _Cloud, index: Array, origins: Any) -> Array:
    """For each origin, the indexed row that is farthest from it."""
    farthest, value = np.zeros(len(origins), dtype=np.int64), np.full(len(origins), -np.inf)
    for part in row_chunks(len(index), cloud.rows.d):
        x = cloud.take(index[part])
        score = (x * x).sum(1)[:, None] - 2 * (x @ origins.T)  # (m, origins): squared distance less a constant
        at, highest = to_numpy(score.argmax(0)), to_numpy(library(x).amax(score, 0))
        farthest = np.where(highest > value, index[part][at], farthest)
        value = np.maximum(highest, value)
    return farthest


def _search(bounds: _PairBounds, best: _Best) -> tuple[float, int]:
    """Examine every pair that could be longer than the best, within the limit of pairs.

    Returns an upper bound over all pairs of these rows, and how many of the rows are finished.
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


def _enclosing_radius(cloud: _Cloud, index: Array) -> float:
    """The radius of a ball around the rows, close to the smallest one (Badoiu and Clarkson 2003)."""
    centre, smallest = 0 * cloud.take(index[:1]), np.inf
    for step in range(1, BALL_STEPS + 1):
        far = cloud.take(_farthest(cloud, index, centre))
        smallest = min(smallest, float(((far - centre) ** 2).sum() ** 0.5))
        centre = centre + (far - centre) / (step + 1)
    return smallest


@dataclass(frozen=True, eq=False)
class _Cloud:
    """Rows around a centre whose largest distance from it does not exceed the diameter."""

    rows: Rows
    centre: Any  # (1, d), relative to the mean that `rows` subtracts, or None for that mean itself
    radius: Float  # (n,)

    @property
    def on_gpu(self) -> bool:
        """Whether the arithmetic happens on a GPU."""
        return not self.rows.device.startswith("cpu")

    @property
    def tile(self) -> int:
        """The number of rows per side of a tile of pairs."""
        return GPU_TILE if self.on_gpu else CPU_TILE

    def take(self, index: slice | Array) -> Any:
        """The chosen rows minus the centre, float64."""
        x = self.rows.take(index)
        return x if self.centre is None else x - self.centre


def _centre_rows(rows: Rows) -> _Cloud:
    """Centre rows at their mean, or at one of them where distances from the mean are only rounding."""
    rows = _load_rows(rows)
    radius = _distances(rows, None)
    if radius.max() > 1e-9 * np.linalg.norm(rows.mean):  # no rounding: some two rows are r_max apart, or more
        return _Cloud(rows, None, radius)
    start = rows.take(slice(int(radius.argmax()), int(radius.argmax()) + 1))
    return _Cloud(rows, start, _distances(rows, start))


def _load_rows(rows: Rows) -> Rows:
    """Copy the rows to their device once, instead of in every pass."""
    if rows.device == "cpu":
        return rows
    import torch

    if is_tensor(rows.data):
        return replace(rows, data=rows.data.to(rows.device))
    parts = [torch.tensor(rows.data[part]).to(rows.device) for part in row_chunks(rows.n, rows.d)]
    return replace(rows, data=torch.cat(parts))


def _distances(rows: Rows, origin: Any) -> Float:
    cloud = _Cloud(rows, origin, np.empty(0))
    chunks = (cloud.take(part) for part in row_chunks(rows.n, rows.d))
    return np.concatenate([to_numpy((x * x).sum(1) ** 0.5) for x in chunks])


@dataclass(frozen=True, eq=False)
class _Tile:
    """The rows of one side of a tile, (s, r^2 / 2, 1, -u) or mirrored (s, 1, r^2 / 2, u), and s for each width."""

    rows: Any  # (m, 3 + k) float32; the first column is filled when the width is known
    rest: Any  # (m, widths) float32

    def __getitem__(self, part: slice) -> _Tile:
        return _Tile(self.rows[part], self.rest[part])


class _PairBounds:
    """Bounds for all pairs of rows, sorted by decreasing radius; without axes they are the distances themselves.

    Rows are scaled to radii of at most 1, so that the terms of a product sum to at most 2 in absolute value: summed in
    any order it errs by at most 2 (k + 3) u, the rounded factors add 3 u, and s, the root of a difference, adds less
    than the rest of `slack`. For tensors, the slack allows bfloat16 factors, which torch may be configured to use.
    """

    def __init__(self, cloud: _Cloud, order: Array, axes: Float | None) -> None:
        self.cloud, self.order, self.axes, self.d = cloud, order, axes, cloud.rows.d
        self.scale = float(cloud.radius[order].max(initial=0)) or 1.0
        self.slack = 4 * (self.d + 8) * 2.0**-24 + (cloud.rows.device != "cpu") * 2.0**-6
        most = self.d if axes is None else axes.shape[1]
        self.widths = [most] if axes is None else [*(k for k in WIDTHS if k < most), most]
        keep = cloud.on_gpu or 4 * len(order) * (most + 3) <= KEPT_BYTES
        self._kept = self._make(order) if keep and len(order) else None

    def left(self, part: slice) -> _Tile:
        """These rows as the left side of a tile."""
        return self._make(self.order[part]) if self._kept is None else self._kept[part]

    def right(self, part: slice) -> _Tile:
        """These rows as the right side of a tile."""
        side = self.left(part)
        x = side.rows
        return _Tile(library(x).concatenate([x[:, :1], x[:, 2:3], x[:, 1:2], -x[:, 3:]], 1), side.rest)

    def beyond(self, left: _Tile, right: _Tile, length: float) -> tuple[Array, Array, bool]:
        """The pairs (i[0], j[0]), (i[1], j[1]), ... of a tile whose distance may exceed `length`, and False.

        Where these are many: the rows i and the columns j that have any, and True (measure all against all).
        """
        at = self.cheapest(left, right, length)
        for side in (left, right):
            side.rows[:, 0] = side.rest[:, at]
        columns = slice(3 + self.widths[at])
        product = left.rows[:, columns] @ right.rows[:, columns].T  # half the squared bounds
        xp, limit = library(product), self._limit(length)
        some = xp.where(xp.amax(product, 1) > limit)[0]
        if not len(some):
            return np.empty(0, np.int64), np.empty(0, np.int64), False
        mask = product[some] > limit
        others = xp.where(mask.any(0))[0]
        if MEASURE_COST * int(mask.sum()) > 2 * len(some) * len(others):
            return to_numpy(some), to_numpy(others), True
        i, j = xp.where(mask)
        return to_numpy(some[i]), to_numpy(j), False

    def cheapest(self, left: _Tile, right: _Tile, length: float) -> int:
        """The index of the width of least total cost, including pairs left to measure, estimated from some pairs."""
        if len(self.widths) == 1:
            return 0
        a, b = left[::17], right[::17]  # 17 is coprime to the stride of the sample that gave the axes
        bound, leaves = a.rows[:, 1:3] @ b.rows[:, 1:3].T, []
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            bound += a.rows[:, 3 + before : 3 + k] @ b.rows[:, 3 + before : 3 + k].T
            leaves.append((bound + a.rest[:, at, None] * b.rest[None, :, at] > self._limit(length)).sum())
        share = to_numpy(library(bound).stack(leaves)) / (bound.shape[0] * bound.shape[1])
        return int(np.argmin(READ_COST + np.array(self.widths) + np.minimum(MEASURE_COST * share, 3) * self.d))

    def _limit(self, length: float) -> float:
        return (length / self.scale) ** 2 / 2 - self.slack

    def _make(self, index: Array) -> _Tile:
        widths = (3 + self.widths[-1], len(self.widths))
        first = self.cloud.take(slice(0, 1))
        empty = first.new_empty if is_tensor(first) else np.empty
        side = _Tile(*(empty((len(index), width), dtype=library(first).float32) for width in widths))
        for part in row_chunks(len(index), self.d):
            self._fill(side[part], self.cloud.take(index[part]))
        return side

    def _fill(self, side: _Tile, x: Any) -> None:
        x /= self.scale
        u = x if self.axes is None else x @ as_float64_like(self.axes, x)
        left = (x * x).sum(1)
        side.rows[:, 1], side.rows[:, 2], side.rows[:, 3:] = left / 2, 1, -u
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            left = left - (u[:, before:k] ** 2).sum(1) if k < self.d else 0 * left
            side.rest[:, at] = left.clip(min=0) ** 0.5


def _choose_axes(cloud: _Cloud, order: Array, length: float) -> Float | None:
    """Choose the principal axes (d, k) for the bounds of pairs, or None where the whole product is cheaper.

    One half of a sample determines the axes, the other estimates their cost; the outermost rows need the most axes.
    """
    if len(order) < 2 * SAMPLE:
        return None
    sample = order[:: len(order) // SAMPLE]
    x = to_numpy(cloud.take(sample[::2]))
    axes: Float = np.linalg.eigh(x.T @ x)[1][:, ::-1].copy()

    def width(index: Array) -> int:
        bounds, all_ = _PairBounds(cloud, index, axes), slice(0, len(index))
        return bounds.widths[bounds.cheapest(bounds.left(all_), bounds.right(all_), length)]

    if width(sample[1::4]) > 0.9 * cloud.rows.d:
        return None
    return axes[:, : width(order[: cloud.tile : 2])].copy()
