"""Upper bounds for the distances of all pairs of rows, for the search of the diameter.

With u the coordinates of a row on k principal axes, s the norm of its residual and r its distance from the centre,

    |x_i - x_j|^2 <= r_i^2 + r_j^2 - 2 u_i.u_j + 2 s_i s_j        (Cauchy-Schwarz on the residuals),

which one float32 product of width k + 3 computes for all pairs of a tile (float16 on a GPU), its rounding allowed for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import CHUNK_BYTES, Array, Float, as_float64_like, is_tensor, library, row_chunks, to_numpy
from congruence.rows.engine import Rows

CPU_TILE, GPU_TILE = 2048, 32768  # rows per side of a tile of pairs
IN_FLIGHT = 4  # tiles of tensors computed before the first of their maxima is read
KEPT_BYTES = 128 * 2**20  # of float32 rows, of bounds too; more are computed whenever needed (a GPU keeps all)
CACHE_BYTES, GPU_BYTES = 2**20, 512 * 2**20  # of float64 rows converted at a time
SAMPLE = 4096  # rows from which the axes are chosen
# Numbers of axes to choose from, and what an entry of a product and a pair to be measured cost, in columns multiplied.
WIDTHS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
READ_COST, MEASURE_COST = 8, 256


@dataclass(frozen=True, eq=False)
class Cloud:
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

    @property
    def in_flight(self) -> int:
        """The number of tiles that are computed before the first of their maxima is read."""
        return 1 if self.rows.device == "cpu" else IN_FLIGHT

    @cached_property
    def order(self) -> Array:
        """The rows by decreasing radius."""
        return np.argsort(-self.radius, kind="stable")

    @cached_property
    def scale(self) -> float:
        """The largest radius, or 1 where all are 0."""
        return float(self.radius.max()) or 1.0

    def chunks(self, n: int) -> Iterator[slice]:
        """Slices over n rows; on a CPU each fits into its cache."""
        return row_chunks(n, self.rows.d, GPU_BYTES if self.on_gpu else CACHE_BYTES)

    def unit(self, index: slice | Array) -> Any:
        """The chosen rows minus the centre, scaled to radii of at most 1, float32."""
        return _as_single(self.take(index) / self.scale) if self._single is None else self._single[index]

    @cached_property
    def _single(self) -> Any:
        """All rows as by `unit`, if they are kept."""
        n, d = self.rows.n, self.rows.d
        if not self.on_gpu and 4 * n * d > KEPT_BYTES:
            return None
        parts = [_as_single(self.take(part) / self.scale) for part in self.chunks(n)]
        return library(parts[0]).concatenate(parts)

    def take(self, index: slice | Array) -> Any:
        """The chosen rows minus the centre, float64."""
        x = self.rows.take(index)
        return x if self.centre is None else x - self.centre


def _as_single(x: Any) -> Any:
    return x.float() if is_tensor(x) else x.astype(np.float32)


def centre_rows(rows: Rows) -> Cloud:
    """Centre rows at their mean, or at one of them where distances from the mean are only rounding."""
    rows = _load_rows(rows)
    radius = _distances(rows, None)
    if radius.max() > 1e-9 * np.linalg.norm(rows.mean):  # no rounding: some two rows are r_max apart, or more
        return Cloud(rows, None, radius)
    start = rows.take(slice(int(radius.argmax()), int(radius.argmax()) + 1))
    return Cloud(rows, start, _distances(rows, start))


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
    cloud = Cloud(rows, origin, np.empty(0))
    chunks = (cloud.take(part) for part in cloud.chunks(rows.n))
    return np.concatenate([to_numpy((x * x).sum(1) ** 0.5) for x in chunks])


@dataclass(frozen=True, eq=False)
class Tile:
    """The rows of one side of a tile, (s, r^2 / 2, 1, -u) or mirrored (s, 1, r^2 / 2, u), and s for each width.

    On a GPU, five zeros before u align it with the blocks of eight that its matrix units read.
    """

    rows: Any  # (m, head + k) float32, float16 on a GPU; the first column is filled when the width is known
    rest: Any  # (m, widths) float32

    def __getitem__(self, part: slice) -> Tile:
        return Tile(self.rows[part], self.rest[part])


class PairBounds:
    """Bounds for all pairs of rows, sorted by decreasing radius; without axes they are the distances themselves.

    Rows are scaled to radii of at most 1, so that the terms of a product sum to at most 2 in absolute value. With e the
    unit of float32, a product summed in any order errs by at most 2 (k + 3) e, and the rounded factors add 3 e. A
    coordinate, itself a product, errs by at most (d + 2) e, so all k of a row by `_error`(k); their squares, hence s^2,
    by `_spare`(k), which is added to s^2. For tensors, the slack allows bfloat16 factors, which torch may be configured
    to use for float32 (2^-7), and float16 factors and sums, which a GPU uses: 2^-9, and 2^-11 for each partial sum.
    """

    def __init__(self, cloud: Cloud, order: Array, axes: Float | None) -> None:
        self.cloud, self.order, self.axes, self.d = cloud, order, axes, cloud.rows.d
        most = self.d if axes is None else axes.shape[1]
        self.head = 8 if cloud.on_gpu else 3  # columns before u
        self.widths = [most] if axes is None else [*(k for k in WIDTHS if k < most), most]
        self.slack = 4 * (self.d + 8) * 2.0**-24 + (cloud.rows.device != "cpu") * 2.0**-6
        self.slack += 0 if axes is None else self._spare(most)
        self._product = np.empty(cloud.tile**2, np.float32) if cloud.rows.device == "cpu" else None
        keep = cloud.on_gpu or 4 * len(order) * (self.head + most) <= KEPT_BYTES
        self._kept = self._make(order) if keep and len(order) else None

    def _error(self, k: int) -> float:
        return float((self.d + 2) * 2.0**-24 * k**0.5)

    def _spare(self, k: int) -> float:
        return (2 + self._error(k)) * self._error(k) + (k + 2) * 2.0**-24

    def left(self, part: slice) -> Tile:
        """These rows as the left side of a tile."""
        return self._make(self.order[part]) if self._kept is None else self._kept[part]

    def right(self, part: slice) -> Tile:
        """These rows as the right side of a tile."""
        side = self.left(part)
        x = side.rows
        return Tile(library(x).concatenate([x[:, :1], x[:, 2:3], x[:, 1:2], -x[:, 3:]], 1), side.rest)

    def beyond(self, left: Tile, right: Tile, length: float) -> tuple[Array, Array, bool]:
        """The pairs of one tile whose distance may exceed `length`, as by `exceeding`."""
        (product,) = self.products([(left, right)], length)
        return self.exceeding(*product, length)

    def products(self, tiles: Sequence[tuple[Tile, Tile]], length: float) -> list[tuple[Any, Any]]:
        """Half the squared bounds of the pairs of each tile, and the largest of each row; or None and no row at all.

        A GPU waits whenever a number is read from it, so the maxima of all tiles are read at once. Of numpy arrays,
        which share one buffer, there may be one tile only.
        """
        found = [self._multiply(*sides, at) for sides, at in zip(tiles, self.cheapest(tiles, length), strict=True)]
        highest = [library(product).amax(product, 1) for product in found]
        longest = to_numpy(library(found[0]).stack([rows.max() for rows in highest]))
        some = longest > self._limit(length)
        return [(p, rows) if one else (None, rows[:0]) for p, rows, one in zip(found, highest, some, strict=True)]

    def _multiply(self, left: Tile, right: Tile, at: int) -> Any:
        for side in (left, right):
            side.rows[:, 0] = side.rest[:, at]
        a, b = (side.rows[:, : self.head + self.widths[at]] for side in (left, right))
        if self._product is None:
            return a @ b.T
        return np.matmul(a, b.T, out=self._product[: len(a) * len(b)].reshape(len(a), len(b)))

    def exceeding(self, product: Any, highest: Any, length: float) -> tuple[Array, Array, bool]:
        """The pairs (i[0], j[0]), (i[1], j[1]), ... of a product that may exceed `length`, and False.

        Where these are many: the rows i and the columns j that have any, and True (measure all against all).
        """
        xp, limit = library(highest), self._limit(length)
        some = xp.where(highest > limit)[0]
        if not len(some):
            return np.empty(0, np.int64), np.empty(0, np.int64), False
        mask = product[some] > limit
        others = xp.where(mask.any(0))[0]
        if MEASURE_COST * int(mask.sum()) > 2 * len(some) * len(others):
            return to_numpy(some), to_numpy(others), True
        i, j = xp.where(mask)
        return to_numpy(some[i]), to_numpy(j), False

    def cheapest(self, tiles: Sequence[tuple[Tile, Tile]], length: float) -> Array:
        """For each tile, the index of the width of least total cost, with that of pairs left, estimated from some."""
        if len(self.widths) == 1:
            return np.zeros(len(tiles), dtype=int)
        shares = to_numpy(library(tiles[0][0].rows).stack([self._shares(*sides, length) for sides in tiles]))
        cost: Array = READ_COST + np.array(self.widths) + np.minimum(MEASURE_COST * shares, 3) * self.d
        at: Array = np.argmin(cost, axis=1)
        return at

    def _shares(self, left: Tile, right: Tile, length: float) -> Any:
        """The share of pairs that each width leaves to be measured, (widths,)."""
        a, b = left[::17], right[::17]  # 17 is coprime to the stride of the sample that gave the axes
        bound, leaves = a.rows[:, 1:3] @ b.rows[:, 1:3].T, []
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            columns = slice(self.head + before, self.head + k)
            bound += a.rows[:, columns] @ b.rows[:, columns].T
            leaves.append((bound + a.rest[:, at, None] * b.rest[None, :, at] > self._limit(length)).sum())
        return library(bound).stack(leaves) / (bound.shape[0] * bound.shape[1])

    def _limit(self, length: float) -> float:
        return (length / self.cloud.scale) ** 2 / 2 - self.slack

    def _make(self, index: Array) -> Tile:
        first = self.cloud.unit(slice(0, 1))
        empty, xp = (first.new_empty if is_tensor(first) else np.empty), library(first)
        single = xp.float16 if self.cloud.on_gpu else xp.float32
        rows = empty((len(index), self.head + self.widths[-1]), dtype=single)
        side = Tile(rows, empty((len(index), len(self.widths)), dtype=xp.float32))
        axes = None if self.axes is None else _as_single(self.axes) if xp is np else as_float64_like(self.axes, first)
        for part in row_chunks(len(index), self.d, GPU_BYTES if self.cloud.on_gpu else CHUNK_BYTES // 4):
            self._fill(side[part], index[part], axes)
        return side

    def _fill(self, side: Tile, index: Array, axes: Any) -> None:
        x = self.cloud.unit(index)
        u = x if axes is None else x.to(axes.dtype) @ axes if is_tensor(x) else x @ axes
        left = as_float64_like((self.cloud.radius[index] / self.cloud.scale) ** 2, x)
        side.rows[:, 1], side.rows[:, 2], side.rows[:, 3 : self.head], side.rows[:, self.head :] = left / 2, 1, 0, -u
        for at, (before, k) in enumerate(pairwise([0, *self.widths])):
            left = left - (u[:, before:k] ** 2).sum(1)
            side.rest[:, at] = (left.clip(min=0) + self._spare(k)) ** 0.5 if k < self.d else 0


def choose_axes(cloud: Cloud, order: Array, length: float) -> Float | None:
    """Choose the principal axes (d, k) for the bounds of pairs, or None where the whole product is cheaper.

    One half of a sample determines the axes, the other estimates their cost; the outermost rows need the most axes.
    """
    if len(order) < 2 * SAMPLE:
        return None
    sample = order[:: len(order) // SAMPLE]
    x = to_numpy(cloud.unit(sample[::2]))
    axes: Float = np.linalg.eigh((x.T @ x).astype(np.float64))[1][:, ::-1].copy()

    def width(index: Array) -> Any:
        bounds, all_ = PairBounds(cloud, index, axes), slice(0, len(index))
        return bounds.widths[bounds.cheapest([(bounds.left(all_), bounds.right(all_))], length)[0]]

    if width(sample[1::4]) > 0.9 * cloud.rows.d:
        return None
    return axes[:, : width(order[: cloud.tile : 2])].copy()
