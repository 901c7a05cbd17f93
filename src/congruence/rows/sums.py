"""The d x d sums from which every map is fitted, stored per fold so that leaving one out is a subtraction.

A pass over the rows is the only work that grows with n. `RunSums` holds what one run contributes; `PairSums` adds the
cross products of two runs. Both provide the sums of all rows, of one fold, or of all rows but one fold.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.rows.algebra import (
    CLEAR,
    complete_rotation,
    eigh,
    in_rounding_units,
    noise_level,
    one_thread,
    polar,
    principal_axes,
    scaled_axes,
    solve_factored,
    svd,
)
from congruence.rows.blocks import Partition
from congruence.rows.engine import Rows, chunk_bytes, reduce_rows

WELL_CONDITIONED = 1e-8  # ratio of eigenvalues from which a scatter matrix is inverted by its Cholesky factor


@dataclass(frozen=True, eq=False)
class RowScatter:
    """Mean and scatter sum (x - mean)(x - mean)^T of some rows of one run."""

    rows: Rows
    index: Array  # (n,) which rows
    mean: Float  # (d,) in the run's centred coordinates
    scatter: Float  # (d, d)

    @property
    def n(self) -> int:
        """The number of rows summed."""
        return len(self.index)

    @cached_property
    def _factor(self) -> tuple[Float, Float] | None:
        """Units (d,) and the upper Cholesky factor of the scatter in these units, where it is surely well conditioned.

        Several times faster than eigenvalues: A - t is positive definite exactly if no eigenvalue of A is below t.
        """
        unit, scaled = in_rounding_units(self.scatter, self.rows.rounding)
        least = max(noise_level(self.n, self.rows.d) ** 2, WELL_CONDITIONED * np.abs(scaled).sum(1).max(initial=0))
        with one_thread(self.rows.d):
            try:
                linalg.cholesky(scaled - least * np.eye(self.rows.d), check_finite=False)
            except linalg.LinAlgError:
                return None
            return unit, linalg.cholesky(scaled, check_finite=False)

    @cached_property
    def _scaled(self) -> tuple[Float, Float, Float]:
        """Units (d,), and in these units the singular values (r,) and axes (r, d) above rounding."""
        return scaled_axes(self.scatter, self.n, self.rows.rounding, self._triangle)

    @property
    def full(self) -> bool:
        """Whether the rows vary in every direction by more than rounding."""
        return self._factor is not None or len(self._scaled[1]) == self.rows.d

    @property
    def size(self) -> float:
        """The sum of squares of the centred rows, in directions above rounding."""
        return float(np.trace(self.scatter) if self.full else np.square(self.axes[1]).sum())

    @cached_property
    def axes(self) -> tuple[Float, Float]:
        """Principal axes (d, r) and singular values (r,), falling, of the centred rows, those above rounding."""
        if self._factor is not None:  # all are; one decomposition resolves them unless units differ much
            values, vectors = eigh(self.scatter)
            if values[0] > CLEAR * values[-1]:
                return np.ascontiguousarray(vectors[:, ::-1]), np.sqrt(values[::-1])
        return principal_axes(*self._scaled)

    @cached_property
    def whitening(self) -> Float:
        """A matrix W, shape (d, r), with W' scatter W = 1, on directions above rounding."""
        if self._factor is None:
            axes, singular = self.axes
            return axes / singular
        unit, factor = self._factor
        return np.asarray(linalg.solve_triangular(factor, np.eye(len(unit)), check_finite=False) / unit[:, None])

    def solve(self, cross: Float) -> Float:
        """Least squares of minimum norm: the pseudo-inverse of the scatter times `cross`, shape (d, d_y)."""
        if self._factor is not None:
            unit, factor = self._factor
            return solve_factored(factor, cross / unit[:, None]) / unit[:, None]
        # In this order of products nothing large is subtracted. At full rank the units do not affect the result.
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
    gaps: list[Array] | None = None  # further rows that are left out with each fold, because they depend on it
    gap_totals: Float | float = 0.0
    gap_products: Float | float = 0.0

    def inside(self, fold: int) -> RowScatter:
        """The rows of one fold."""
        return self._spread(self.folds[fold], self.totals[fold], self.products[fold])

    def outside(self, fold: int | None) -> RowScatter:
        """All rows but those of one fold; all rows when `fold` is None."""
        return self._outside[fold if fold is not None else len(self.folds)]

    @cached_property
    def _outside(self) -> list[RowScatter]:
        # Cached, because each object caches its axes, for every pair and re-pairing.
        total, product = self.totals.sum(0), self.products.sum(0)
        totals, products = total - (self.totals + self.gap_totals), product - (self.products + self.gap_products)
        spreads = []
        for fold in range(len(self.folds)):
            index = np.sort(np.concatenate([f for k, f in enumerate(self.folds) if k != fold] or [self.folds[0][:0]]))
            if self.gaps is not None:
                index = np.setdiff1d(index, self.gaps[fold])
            spreads.append(self._spread(index, totals[fold], products[fold]))
        return [*spreads, self._spread(np.arange(self.rows.n), total, product)]

    def shuffled(self, order: Array, *, inside_folds: bool) -> RunSums:
        """The sums of the same rows in another order; an order that stays inside the folds changes none of them."""
        rows = self.rows.with_order(order)
        if not inside_folds:
            return run_sums(rows, self.folds, self.gaps)
        again = replace(self, rows=rows)
        again.__dict__["_outside"] = self._outside
        return again

    def _spread(self, index: Array, total: Float, product: Float) -> RowScatter:
        mean = total / max(len(index), 1)
        return RowScatter(self.rows, index, mean, product - len(index) * np.outer(mean, mean))


@dataclass(frozen=True, eq=False)
class PairScatter:
    """The sums of paired rows: the two spreads and the centred cross product, shape (d_x, d_y)."""

    source: RowScatter
    target: RowScatter
    cross: Float
    rough: bool = False  # whether the directions that hold least need not be rotated exactly

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
        """The singular value decomposition of the cross product, in directions above rounding.

        Shapes (width, k), (k,) and (k, width), k the number of directions in which the two runs are correlated.
        """
        if self.source.full and self.target.full:
            left, s, right = svd(self.cross, full_matrices=False)
            right = right.T
        else:
            axes_x, axes_y = self.source.axes[0], self.target.axes[0]
            u, s, vt = svd(axes_x.T @ self.cross @ axes_y, full_matrices=False)
            left, right = axes_x @ u, axes_y @ vt.T
        keep = s > s.max(initial=0) * self.width * np.finfo(np.float64).eps
        left, right = (np.pad(side[:, keep], ((0, self.width - len(side)), (0, 0))) for side in (left, right))
        return left, s[keep], right.T

    @cached_property
    def rotation(self) -> Float:
        """The rotation that carries the source closest to the target (Schönemann 1966), shape (width, width)."""
        if self._polar is not None:
            return self._polar
        u, _, vt = self.svd
        return complete_rotation(u, vt.T)

    @cached_property
    def _polar(self) -> Float | None:
        """The rotation without a singular value decomposition, where the cross product is square and resolves it."""
        if self.cross.shape[0] != self.cross.shape[1] or not (self.source.full and self.target.full):
            return None
        return polar(self.cross, rough=self.rough)

    @property
    def nuclear_norm(self) -> float:
        """The sum of the singular values of the cross product, in directions above rounding."""
        return float(self.svd[1].sum() if self._polar is None else (self._polar * self.cross).sum())


@dataclass(frozen=True, eq=False)
class PairSums:
    """The sums of a pair of runs, fold by fold."""

    source: RunSums
    target: RunSums
    products: Float  # (folds, d_x, d_y)
    gap_products: Float | float = 0.0
    _outside: dict[int | None, PairScatter] = field(default_factory=dict, repr=False)  # with their rotations

    def inside(self, fold: int) -> PairScatter:
        """The rows of one fold."""
        return _centred(self.source.inside(fold), self.target.inside(fold), self.products[fold])

    def outside(self, fold: int | None) -> PairScatter:
        """All rows but those of one fold; all rows when `fold` is None."""
        if fold not in self._outside:
            left = 0.0 if fold is None else (self.products + self.gap_products)[fold]
            product = self.products.sum(0) - left
            self._outside[fold] = _centred(self.source.outside(fold), self.target.outside(fold), product)
        return self._outside[fold]

    def repaired(self, order: Array, fold: int, *, inside_folds: bool) -> tuple[PairScatter, Rows]:
        """All rows but those of one fold, with the target's rows in another order; and the target in that order.

        One product: an order that stays inside the folds does not change the sums of either run. For a null, of which
        a few digits suffice.
        """
        rows, index = self.target.rows.with_order(order), self.source.outside(fold).index
        target = self.target.outside(fold) if inside_folds else run_sums(rows, [index]).inside(0)
        (products,) = _fold_products(self.source.rows, rows, [index])
        return replace(_centred(self.source.outside(fold), target, products[0]), rough=True), rows


def _centred(x: RowScatter, y: RowScatter, product: Float) -> PairScatter:
    return PairScatter(x, y, product - x.n * np.outer(x.mean, y.mean))


def run_sums(rows: Rows, folds: list[Array], gaps: list[Array] | None = None) -> RunSums:
    """Sum one run over its folds: one pass over the rows, by dask workers where they hold them."""

    def over(index: list[Array]) -> tuple[Float, Float]:
        totals, products = _fold_sums(rows, index) if rows.blocks is None else _block_sums([rows], index)
        return totals, products

    return RunSums(rows, folds, *over(folds)) if gaps is None else RunSums(rows, folds, *over(folds), gaps, *over(gaps))


def pair_sums(source: RunSums, target: RunSums) -> PairSums:
    """Sum the cross products of two runs over their folds: one pass, by dask workers where they hold both."""
    x, y = source.rows, target.rows
    here = x.blocks is None or y.blocks is None

    def over(index: list[Array]) -> Float:
        (products,) = _fold_products(x, y, index) if here else _block_sums([x, y], index)
        return np.asarray(products)

    gaps = 0.0 if source.gaps is None else over(source.gaps)
    return PairSums(source, target, over(source.folds), gaps)


def sums_of(x: Rows, y: Rows) -> PairScatter:
    """The sums of all rows of two runs, for a fit in sample."""
    everything = [np.arange(x.n)]
    return pair_sums(run_sums(x, everything), run_sums(y, everything)).outside(None)


def _fold_sums(rows: Rows, folds: list[Array]) -> tuple[Float, Float]:
    """The totals (folds, d) and products (folds, d, d) of rows."""
    totals, products = np.zeros((len(folds), rows.d)), np.zeros((len(folds), rows.d, rows.d))
    for k, fold in enumerate(folds):
        for part in row_chunks(len(fold), rows.d, chunk_bytes(rows.device)):
            chunk = rows.take(fold[part])
            totals[k] += to_numpy(chunk.sum(0))
            products[k] += to_numpy(chunk.T @ chunk)
    return totals, products


def _fold_products(x: Rows, y: Rows, folds: list[Array]) -> tuple[Float]:
    """The cross products of paired rows, shape (folds, d_x, d_y)."""
    products = np.zeros((len(folds), x.d, y.d))
    for k, fold in enumerate(folds):
        for part in row_chunks(len(fold), max(x.d, y.d), chunk_bytes(x.device)):
            index = fold[part]
            products[k] += to_numpy(x.take(index).T @ y.take(index))
    return (products,)


def _block_sums(runs: list[Rows], folds: list[Array]) -> Any:
    """The sums of one run or of two over their blocks, which are centred at the mean of all rows."""
    fold_of = np.full(runs[0].n, -1, dtype=np.min_scalar_type(-len(folds)))  # few bytes, since they are sent
    for k, fold in enumerate(folds):
        fold_of[fold] = k
    aligned = [*(rows.blocks for rows in runs[1:]), fold_of]
    empty = [rows.with_data() for rows in runs]
    return reduce_rows(runs[0].blocks, _sum_block, _add, len(folds), empty, aligned=aligned)


def _sum_block(block: Any, part: Partition, *arguments: Any) -> Any:
    *others, fold_of, count, runs = arguments
    folds = [np.flatnonzero(fold_of == k) for k in range(count)]
    x, *y = (run.with_data(to_numpy(data)) for run, data in zip(runs, (block, *others), strict=True))
    return _fold_products(x, y[0], folds) if y else _fold_sums(x, folds)


def _add(a: tuple[Float, ...], b: tuple[Float, ...]) -> tuple[Float, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
