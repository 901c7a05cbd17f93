"""The d x d sums from which every map is fitted, kept per fold so that leaving a fold out is a subtraction.

A pass over the rows is the only work that grows with n. `RunSums` holds what one run contributes and is made
once per run; `pair_sums` adds the cross products of two runs; both hand out the sums of all rows, of one fold,
or of all rows but one fold. Rows are centred at the run's mean before they are summed (see `arrays.Rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float, Rows, row_chunks, to_numpy
from congruence.maps.algebra import complete_rotation, svd
from congruence.maps.axes import principal_axes, scaled_axes
from congruence.tables.blocks import Partition


@dataclass(frozen=True, eq=False)
class Spread:
    """Where some rows of one run lie: how many, their mean, and their scatter sum (x - mean)(x - mean)^T."""

    rows: Rows
    index: Array  # (n,) which rows
    mean: Float  # (d,) in the run's centred coordinates
    scatter: Float  # (d, d)

    @property
    def n(self) -> int:
        """The number of rows summed."""
        return len(self.index)

    @cached_property
    def _scaled(self) -> tuple[Float, Float, Float]:
        """Units (d,), and in these units the singular values (r,) and axes (r, d) that are more than rounding.

        Every dimension is measured in units of its own rounding, so that one large dimension does not drown the others.
        """
        return scaled_axes(self.scatter, self.n, self.rows.rounding, self._triangle)

    @property
    def full(self) -> bool:
        """Whether the rows vary in every direction by more than rounding."""
        return len(self._scaled[1]) == self.rows.d

    @property
    def size(self) -> float:
        """The sum of squares of the centred rows, without what is rounding."""
        return float(np.trace(self.scatter) if self.full else np.square(self.axes[1]).sum())

    @cached_property
    def axes(self) -> tuple[Float, Float]:
        """Principal axes (d, r) and singular values (r,) of the centred rows, without those that are rounding."""
        return principal_axes(*self._scaled)

    def solve(self, cross: Float) -> Float:
        """Least squares of minimum norm: the pseudo-inverse of the scatter times `cross`, shape (d, d_y)."""
        # In this order of products nothing large is subtracted. At full rank the units do not matter for the answer.
        if self.full:
            unit, singular, vectors_t = self._scaled
            return (vectors_t.T @ (vectors_t @ (cross / unit[:, None]) / singular[:, None] ** 2)) / unit[:, None]
        axes, singular = self.axes
        return axes @ ((axes.T @ cross) / singular[:, None] ** 2)

    def _triangle(self) -> Float:
        """R of the QR decomposition of the centred rows, built chunk by chunk, shape (min(n, d), d)."""
        triangle = np.zeros((0, self.rows.d))
        for part in row_chunks(self.n, self.rows.d):
            chunk = to_numpy(self.rows.take(self.index[part])) - self.mean
            triangle = linalg.qr(np.vstack([triangle, chunk]), mode="r")[0][: self.rows.d]
        return triangle


@dataclass(frozen=True, eq=False)
class RunSums:
    """The sums of one run, fold by fold."""

    rows: Rows
    folds: list[Array]  # row indices of each fold; together they are all rows
    totals: Float  # (folds, d)
    products: Float  # (folds, d, d)

    def inside(self, fold: int) -> Spread:
        """The rows of one fold."""
        return self._spread(self.folds[fold], self.totals[fold], self.products[fold])

    def outside(self, fold: int | None) -> Spread:
        """All rows but those of one fold; all rows when `fold` is None."""
        return self._outside[fold if fold is not None else len(self.folds)]

    @cached_property
    def _outside(self) -> list[Spread]:
        # Kept, because each spread remembers its axes: they are worked out once, for every pair and re-pairing.
        total, product = self.totals.sum(0), self.products.sum(0)
        spreads = []
        for fold in range(len(self.folds)):
            index = np.sort(np.concatenate([f for k, f in enumerate(self.folds) if k != fold] or [self.folds[0][:0]]))
            spreads.append(self._spread(index, total - self.totals[fold], product - self.products[fold]))
        return [*spreads, self._spread(np.arange(self.rows.n), total, product)]

    def shuffled(self, order: Array, *, inside_folds: bool) -> RunSums:
        """The sums of the same rows in another order; an order that stays inside the folds changes none of them."""
        rows = self.rows.shuffled(order)
        if not inside_folds:
            return run_sums(rows, self.folds)
        again = RunSums(rows, self.folds, self.totals, self.products)
        again.__dict__["_outside"] = self._outside
        return again

    def _spread(self, index: Array, total: Float, product: Float) -> Spread:
        mean = total / max(len(index), 1)
        return Spread(self.rows, index, mean, product - len(index) * np.outer(mean, mean))


@dataclass(frozen=True, eq=False)
class Paired:
    """What a fit knows of paired rows: the two spreads and the centred cross product, shape (d_x, d_y)."""

    source: Spread
    target: Spread
    cross: Float

    @property
    def width(self) -> int:
        """The larger of the two numbers of dimensions; the narrower run is zero-padded to it."""
        return int(max(self.cross.shape))

    @cached_property
    def padded(self) -> Float:
        """The cross product, zero-padded to a square, shape (width, width)."""
        d_x, d_y = self.cross.shape
        return np.pad(self.cross, ((0, self.width - d_x), (0, self.width - d_y)))

    @cached_property
    def svd(self) -> tuple[Float, Float, Float]:
        """The singular value decomposition of the cross product on directions that are more than rounding.

        Shapes (width, k), (k,) and (k, width): k is the number of directions in which the two runs have anything to
        do with each other.
        """
        if self.source.full and self.target.full:
            left, s, right = svd(self.cross, full_matrices=False)
            right = right.T
        else:
            axes_x, axes_y = self.source.axes[0], self.target.axes[0]
            u, s, vt = svd(axes_x.T @ self.cross @ axes_y, full_matrices=False)
            left, right = axes_x @ u, axes_y @ vt.T
        keep = s > s.max(initial=0) * self.width * np.finfo(np.float64).eps
        left, right = left[:, keep], right[:, keep]
        pad = [((0, self.width - len(side)), (0, 0)) for side in (left, right)]
        return np.pad(left, pad[0]), s[keep], np.pad(right, pad[1]).T

    @cached_property
    def rotation(self) -> Float:
        """The rotation that brings the source nearest to the target (Schönemann 1966), shape (width, width)."""
        u, _, vt = self.svd
        return complete_rotation(u, vt.T)


@dataclass(frozen=True, eq=False)
class PairSums:
    """The sums of a pair of runs, fold by fold."""

    source: RunSums
    target: RunSums
    products: Float  # (folds, d_x, d_y)

    def inside(self, fold: int) -> Paired:
        """The rows of one fold."""
        x, y = self.source.inside(fold), self.target.inside(fold)
        return Paired(x, y, self.products[fold] - x.n * np.outer(x.mean, y.mean))

    def outside(self, fold: int | None) -> Paired:
        """All rows but those of one fold; all rows when `fold` is None."""
        x, y = self.source.outside(fold), self.target.outside(fold)
        product = self.products.sum(0) - (self.products[fold] if fold is not None else 0.0)
        return Paired(x, y, product - x.n * np.outer(x.mean, y.mean))


def run_sums(rows: Rows, folds: list[Array]) -> RunSums:
    """Sum one run over its folds: one pass over the rows, by workers where they have them."""
    if rows.blocks is None:
        totals, products = _sums(rows, folds)
    else:
        beside, shared = [_fold_of(folds, rows.n)], (len(folds), rows.hollow())
        totals, products = rows.blocks.merged(_block_sums, _added, *shared, beside=beside)
    return RunSums(rows, folds, totals, products)


def _sums(rows: Rows, folds: list[Array]) -> tuple[Float, Float]:
    """The totals (folds, d) and products (folds, d, d) of rows."""
    totals = np.zeros((len(folds), rows.d))
    products = np.zeros((len(folds), rows.d, rows.d))
    for k, fold in enumerate(folds):
        for part in row_chunks(len(fold), rows.d):
            chunk = rows.take(fold[part])
            totals[k] += to_numpy(chunk.sum(0))
            products[k] += to_numpy(chunk.T @ chunk)
    return totals, products


def _block_sums(block: Any, part: Partition, fold_of: Array, folds: int, rows: Rows) -> tuple[Float, Float]:
    return _sums(rows.holding(to_numpy(block)), _folds(fold_of, folds))


def pair_sums(source: RunSums, target: RunSums) -> PairSums:
    """Sum the cross products of two runs over their folds: one pass over the rows, by workers where they have both."""
    x, y, folds = source.rows, target.rows, source.folds
    if x.blocks is None or y.blocks is None:
        products = _cross(x, y, folds)
    else:
        beside, shared = [y.blocks, _fold_of(folds, x.n)], (len(folds), x.hollow(), y.hollow())
        (products,) = x.blocks.merged(_block_cross, _added, *shared, beside=beside)
    return PairSums(source, target, products)


def _cross(x: Rows, y: Rows, folds: list[Array]) -> Float:
    """The cross products of paired rows, shape (folds, d_x, d_y)."""
    products = np.zeros((len(folds), x.d, y.d))
    for k, fold in enumerate(folds):
        for part in row_chunks(len(fold), max(x.d, y.d)):
            index = fold[part]
            products[k] += to_numpy(x.take(index).T @ y.take(index))
    return products


def _block_cross(block: Any, part: Partition, other: Any, fold_of: Array, folds: int, x: Rows, y: Rows) -> tuple[Float]:
    return (_cross(x.holding(to_numpy(block)), y.holding(to_numpy(other)), _folds(fold_of, folds)),)


def _fold_of(folds: list[Array], n: int) -> Array:
    """The number of the fold that holds each row, shape (n,), in few bytes, since they travel."""
    number = np.full(n, -1, dtype=np.min_scalar_type(-len(folds)))
    for k, fold in enumerate(folds):
        number[fold] = k
    return number


def _folds(fold_of: Array, folds: int) -> list[Array]:
    return [np.flatnonzero(fold_of == k) for k in range(folds)]


def _added(parts: list[tuple[Float, ...]]) -> tuple[Float, ...]:
    return tuple(reduce(np.add, each) for each in zip(*parts, strict=True))


def sums_of(x: Rows, y: Rows) -> Paired:
    """The sums of all rows of two runs, for a fit in sample."""
    everything = [np.arange(x.n)]
    return pair_sums(run_sums(x, everything), run_sums(y, everything)).outside(None)
