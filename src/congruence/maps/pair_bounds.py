"""Upper bounds of the distances between rows, a tile of pairs at a time.

With u the coordinates of a row on k principal axes, s the length of what they leave and r its distance from the centre,

    |x_i - x_j|^2 <= r_i^2 + r_j^2 - 2 u_i.u_j + 2 s_i s_j        (Cauchy-Schwarz on the rest),

which one float32 matrix product of width k + 3 gives for all pairs of a tile. On all d axes it is the distance itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, is_tensor, row_chunks, to_numpy
from congruence.rows.engine import Rows

CPU_TILE, GPU_TILE = 2048, 16384  # rows per side of a tile of pairs
KEPT_BYTES = 256 * 2**20  # of float32 rows; more are made again whenever they are needed (a GPU keeps all)
SAMPLE = 4096  # rows from which the axes are chosen
# Numbers of axes to choose from, and what an entry of a product and a pair to be measured cost, in columns multiplied.
WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
READ_COST, MEASURE_COST = 8, 256


@dataclass(frozen=True, eq=False)
class Cloud:
    """Rows about a centre from which none is farther than the largest distance between two of them."""

    rows: Rows
    centre: Any  # (1, d) beside the mean that `rows` subtracts, or None for that mean itself
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
        """Return the chosen rows minus the centre, float64."""
        x = self.rows.take(index)
        return x if self.centre is None else x - self.centre


def centre_rows(rows: Rows) -> Cloud:
    """Measure all rows from their mean, or from one of them where that may be rounding (rows all but equal)."""
    rows = _moved(rows)
    radius = _distances(rows, None)
    if radius.max() > 1e-9 * np.linalg.norm(rows.mean):  # no rounding: some two rows are r_max apart, or more
        return Cloud(rows, None, radius)
    start = rows.take(slice(int(radius.argmax()), int(radius.argmax()) + 1))
    return Cloud(rows, start, _distances(rows, start))


def _moved(rows: Rows) -> Rows:
    """Bring the rows to their device, so that they travel once and not in every pass."""
    if rows.device == "cpu":
        return rows
    import torch

    if is_tensor(rows.data):
        return replace(rows, data=rows.data.to(rows.device))
    parts = [torch.tensor(rows.data[part]).to(rows.device) for part in row_chunks(rows.n, rows.d)]
    return replace(rows, data=torch.cat(parts))


def _distances(rows: Rows, origin: Any) -> Float:
    cloud = Cloud(rows, origin, np.empty(0))
    chunks = (cloud.take(part) for part in row_chunks(rows.n, rows.d))
    return np.concatenate([to_numpy((x * x).sum(1) ** 0.5) for x in chunks])


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a tile: rows (s, r^2 / 2, 1, -u), or mirrored (s, 1, r^2 / 2, u), and s for each width."""

    rows: Any  # (m, 3 + k) float32; the first column is filled when the width is known
    rest: Any  # (m, widths) float32

    def __getitem__(self, part: slice) -> Side:
        return Side(self.rows[part], self.rest[part])


class PairBounds:
    """Bounds of all pairs of some rows, given by falling radius; without axes they are the distances themselves.

    Rows are scaled to radii of at most 1, so that the terms of a product sum to at most 2 in absolute value: summed in
    any order it errs by at most 2 (k + 3) u, the rounded factors add 3 u, and s, the root of a difference, less than
    remains of `slack`. Tensors are allowed bfloat16 factors, as torch may be told to round to those.
    """

    def __init__(self, cloud: Cloud, order: Array, axes: Float | None) -> None:
        self.cloud, self.order, self.axes, self.d = cloud, order, axes, cloud.rows.d
        self.scale = float(cloud.radius[order].max(initial=0)) or 1.0
        self.slack = 4 * (self.d + 8) * 2.0**-24 + (cloud.rows.device != "cpu") * 2.0**-6
        most = self.d if axes is None else axes.shape[1]
        self.widths = [most] if axes is None else [*(k for k in WIDTHS if k < most), most]
        keep = cloud.on_gpu or 4 * len(order) * (most + 3) <= KEPT_BYTES
        self._kept = self._make(order) if keep and len(order) else None

    def left(self, part: slice) -> Side:
        """Return these rows as the left side of a tile."""
        return self._make(self.order[part]) if self._kept is None else self._kept[part]

    def right(self, part: slice) -> Side:
        """Return these rows as the right side of a tile."""
        side = self.left(part)
        x = side.rows
        return Side(library(x).concatenate([x[:, :1], x[:, 2:3], x[:, 1:2], -x[:, 3:]], 1), side.rest)

    def beyond(self, left: Side, right: Side, length: float) -> tuple[Array, Array, bool]:
        """Return the pairs (i[0], j[0]), (i[1], j[1]), ... of a tile whose distance may exceed `length`.

        Where these are many, the rows i and columns j that have any are returned, and True: measure all against all.
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

    def cheapest(self, left: Side, right: Side, length: float) -> int:
        """Return which width costs least with what it leaves to be measured, judged by some of the pairs."""
        if len(self.widths) == 1:
            return 0
        a, b = left[::17], right[::17]  # 17, so as not to keep step with the sample that gave the axes
        bound, leaves = a.rows[:, 1:3] @ b.rows[:, 1:3].T, []
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            bound += a.rows[:, 3 + before : 3 + k] @ b.rows[:, 3 + before : 3 + k].T
            leaves.append((bound + a.rest[:, at, None] * b.rest[None, :, at] > self._limit(length)).sum())
        share = to_numpy(library(bound).stack(leaves)) / (bound.shape[0] * bound.shape[1])
        return int(np.argmin(READ_COST + np.array(self.widths) + np.minimum(MEASURE_COST * share, 3) * self.d))

    def _limit(self, length: float) -> float:
        return (length / self.scale) ** 2 / 2 - self.slack

    def _make(self, index: Array) -> Side:
        widths = (3 + self.widths[-1], len(self.widths))
        side = Side(*(_float32(len(index), width, self.cloud.take(slice(0, 1))) for width in widths))
        for part in row_chunks(len(index), self.d):
            self._fill(side[part], self.cloud.take(index[part]))
        return side

    def _fill(self, side: Side, x: Any) -> None:
        x /= self.scale
        u = x if self.axes is None else x @ as_float64_like(self.axes, x)
        left = (x * x).sum(1)
        side.rows[:, 1], side.rows[:, 2], side.rows[:, 3:] = left / 2, 1, -u
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            left = left - (u[:, before:k] ** 2).sum(1) if k < self.d else 0 * left
            side.rest[:, at] = left.clip(min=0) ** 0.5


def choose_axes(cloud: Cloud, order: Array, length: float) -> Float | None:
    """Return the principal axes (d, k) on which to bound pairs, or None where the whole product is cheaper.

    One half of a sample gives the axes, the other tells whether they pay; the rows farthest out need the most of them.
    """
    if len(order) < 2 * SAMPLE:
        return None
    sample = order[:: len(order) // SAMPLE]
    x = to_numpy(cloud.take(sample[::2]))
    axes: Float = np.linalg.eigh(x.T @ x)[1][:, ::-1].copy()

    def width(index: Array) -> int:
        bounds, all_ = PairBounds(cloud, index, axes), slice(0, len(index))
        return bounds.widths[bounds.cheapest(bounds.left(all_), bounds.right(all_), length)]

    if width(sample[1::4]) > 0.9 * cloud.rows.d:
        return None
    return axes[:, : width(order[: cloud.tile : 2])].copy()


def library(x: Any) -> Any:
    """Return the module of an array, for the names on which numpy and torch agree."""
    if not is_tensor(x):
        return np
    import torch

    return torch


def _float32(n: int, width: int, beside: Any) -> Any:
    if is_tensor(beside):
        return beside.new_empty((n, width), dtype=library(beside).float32)
    return np.empty((n, width), np.float32)
