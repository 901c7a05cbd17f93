"""Rows drawn at random: held-out rows, subsamples, re-pairings, and rows that share the value of a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.metrics._results import Note, note_if
from congruence.metrics.factors import NO_FACTORS, Factors
from congruence.stats.nulls import exchange_clusters, shift_rows

MOST_ROWS = 2500  # of a subsample; more add little to the estimate of the variance
FEWEST_ROWS = 20  # below which halves are too small for an interval
FEWEST_CLUSTERS = 20  # with ten, an interval of 95 % covers 88 %, with two none
GRID = Note("The rows are a full grid of the factors, whose values were drawn independently")
ROWS = Note("The rows are not a full grid of the factors: rows that share a value were drawn from the rows given")


def split_rows(n: int, train: Any = None, test: Any = 0.3, seed: int = 0) -> tuple[Array, Array]:
    """Numbers of the training rows and of the held-out rows.

    Parameters
    ----------
    n : int
        The number of rows.
    train : row numbers or mask of shape (n,), optional
        Training rows; by default all rows that are not held out.
    test : row numbers, mask of shape (n,) or share, default 0.3
        Held-out rows. A share between 0 and 1 is rounded up and drawn as by scikit-learn's `train_test_split`.
    seed : int, default 0
        Of the draw.
    """
    if isinstance(test, int | float) and not isinstance(test, bool):
        if train is not None:
            raise InputError(f"train names rows, so test must name rows too; got the share {test!r}")
        if not 0 < test < 1:
            raise InputError(f"test must be row numbers or a share between 0 and 1; got {test!r}")
        if n < 2:
            raise InputError(f"holding rows out takes at least 2 rows, but there is only {n}")
        order = np.random.RandomState(seed).permutation(n)
        count = min(int(np.ceil(test * n)), n - 1)
        return order[count:], order[:count]
    held = _row_numbers(test, n, "test")
    fitted = np.setdiff1d(np.arange(n), held) if train is None else _row_numbers(train, n, "train")
    if not fitted.size:
        raise InputError("test names all rows, so there is none left to fit on")
    if np.intersect1d(fitted, held).size:
        raise InputError("some rows are named in both train and test; a row cannot be both")
    return fitted, held


def _row_numbers(rows: Any, n: int, name: str) -> Array:
    index = to_numpy(rows)
    if index.dtype.kind == "b" and index.shape == (n,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or not index.size or index.dtype.kind not in "iu":
        raise InputError(f"{name} must be row numbers, or a mask of {n} rows")
    if index.min() < 0 or index.max() >= n:
        raise InputError(f"{name} must name rows from 0 to {n - 1}, but names {index.min()} to {index.max()}")
    return index


def number_clusters(cluster: Array | None) -> Array | None:
    """The number of the cluster of each row, shape (n,); None without clusters."""
    if cluster is None:
        return None
    labels = cluster.astype(str) if cluster.dtype.kind == "O" else cluster
    unit = np.unique(labels, return_inverse=True)[1].reshape(-1)
    if not unit.any():
        raise InputError("all rows belong to one cluster, so no part of them can be drawn; cluster by something finer")
    return unit


def draw_subsamples(n: int, unit: Array | None, count: int, seed: int, most: int = MOST_ROWS) -> list[Array]:
    """Draw half of the rows or `most`, without replacement and `count` times; clusters are drawn whole.

    None below `FEWEST_ROWS` rows or `FEWEST_CLUSTERS` clusters.
    """
    rng, least = np.random.default_rng([seed, 1]), min(n // 2, most)
    if n < FEWEST_ROWS:
        return []
    if unit is None:
        return [np.sort(rng.permutation(n)[:least]) for _ in range(count)]
    sizes = np.bincount(unit)
    if len(sizes) < FEWEST_CLUSTERS:
        return []
    return [_rows_of_clusters(unit, sizes, rng.permutation(len(sizes)), least) for _ in range(count)]


def hold_out_clusters(unit: Array, share: float, seed: int) -> Array:
    """Held-out rows of whole clusters: about this share, at least one cluster and never all."""
    sizes = np.bincount(unit)
    order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(sizes))
    return _rows_of_clusters(unit, sizes, order, share * len(unit))


def _rows_of_clusters(unit: Array, sizes: Array, order: Array, least: float) -> Array:
    """The rows of the first clusters in this order that have at least `least` rows together, but never of all."""
    count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), least))
    return np.flatnonzero(np.isin(unit, order[: max(1, min(count, len(order) - 1))]))


def draw_repairings(n: int, unit: Array | None, count: int, seed: int, block: int | None = None) -> list[Array]:
    """Draw the row whose factors each row gets, shape (n,), `count` times.

    Clusters are paired whole; rows keep their order in them where all have the same size. Ordered rows are shifted.
    """
    rng = np.random.default_rng([seed, 2])
    if block is not None:
        return [shift_rows(n, block, rng) for _ in range(count)]
    return [_draw_repairing(n, unit, rng) for _ in range(count)]


def _draw_repairing(n: int, unit: Array | None, rng: np.random.Generator) -> Array:
    if unit is None:
        return rng.permutation(n)
    sizes = np.bincount(unit)
    if (sizes == sizes[0]).all():
        rows = np.argsort(unit, kind="stable").reshape(len(sizes), -1)
        partner = np.empty(n, dtype=int)
        ring = rng.permutation(len(sizes))
        partner[rows[ring]] = rows[np.roll(ring, 1)]  # one cycle: no cluster keeps its factors
        return partner
    return exchange_clusters(unit, rng)


@dataclass(frozen=True, eq=False)
class _SortedRows:
    """Rows sorted by a class: those of class c are `order[start[c] : start[c] + count[c]]`."""

    order: Array  # (n,)
    start: Array  # (classes,)
    count: Array  # (classes,)

    @cached_property
    def is_single(self) -> bool:
        """Whether each class has one row."""
        return bool((self.count == 1).all())

    @cached_property
    def shared(self) -> Array:
        """The rows whose class another row has too."""
        return np.setdiff1d(self.order, self.order[self.start[self.count == 1]])

    def draw(self, classes: Array, rng: np.random.RandomState) -> Array:
        """One row of each of these classes; if each class has one row, no random number is used."""
        place = 0 if self.is_single else (rng.random_sample(len(classes)) * self.count[classes]).astype(int)
        return np.asarray(self.order[self.start[classes] + place])


def _sort_rows(labels: Array, classes: int) -> _SortedRows:
    count = np.bincount(labels, minlength=classes)
    return _SortedRows(np.argsort(labels, kind="stable"), np.cumsum(count) - count, count)


@dataclass(frozen=True, eq=False)
class FactorSampler:
    """Draws row numbers, at random or sharing the value of a factor.

    The reference draws a value of every factor, independently, and asks a generator for the observation. Here there are
    only rows. If they are a full grid (every combination of values occurs), values are drawn in the same order from the
    same generator, which gives the reference's numbers on a grid with one row for each combination. Otherwise rows are
    drawn as they are, and those that must share a factor's value are drawn among the rows that have it: the other
    factors then vary as they do in the data, given that value.
    """

    labels: Array  # (n, K) classes from 0
    sizes: tuple[int, ...]  # classes of each factor
    cells: _SortedRows | None  # rows of each combination of values, if all occur
    by_factor: tuple[_SortedRows, ...]  # rows of each value of each factor
    rng: np.random.RandomState

    def draw_factor(self) -> int:
        """One factor."""
        return int(self.rng.randint(len(self.sizes)))

    def draw_rows(self, size: int) -> Array:
        """Rows at random."""
        if self.cells is None:
            return self.rng.randint(len(self.labels), size=size)
        return self._rows_with(self.cells, self._draw_values(size))

    def draw_sharing(self, factor: int, size: int) -> Array:
        """Rows that all have the same, random, value of one factor."""
        if self.cells is None:
            value = self.labels[self._draw_shared(factor, 1), factor]
            return self.by_factor[factor].draw(np.repeat(value, size), self.rng)
        values = self._draw_values(size)
        values[:, factor] = values[0, factor]
        return self._rows_with(self.cells, values)

    def draw_pairs(self, factor: int, size: int) -> tuple[Array, Array]:
        """Two lists of rows; the i-th of both share the value of one factor."""
        if self.cells is None:
            first = self._draw_shared(factor, size)
            return first, self.by_factor[factor].draw(self.labels[first, factor], self.rng)
        one, other = self._draw_values(size), self._draw_values(size)
        other[:, factor] = one[:, factor]
        return self._rows_with(self.cells, one), self._rows_with(self.cells, other)

    def _draw_values(self, size: int) -> Array:
        """Values of all factors, column by column, shape (size, K)."""
        return np.column_stack([self.rng.randint(levels, size=size) for levels in self.sizes])

    def _rows_with(self, cells: _SortedRows, values: Array) -> Array:
        return cells.draw(np.ravel_multi_index(tuple(values.T), self.sizes), self.rng)

    def _draw_shared(self, factor: int, size: int) -> Array:
        """Rows at random among those whose value of the factor another row has too."""
        allowed = self.by_factor[factor].shared
        return np.asarray(allowed[self.rng.randint(len(allowed), size=size)])


def make_sampler(s: Factors, bins: int, seed: int) -> tuple[FactorSampler | None, Factors, tuple[Note, ...], str]:
    """A sampler of the factors whose values are shared by some rows, those factors, notes, and why there is no sampler.

    There is none for fewer than two such factors.
    """
    unshared = [factor.name for factor in s if np.bincount(factor.labels(bins)).max() < 2]
    s = Factors(tuple(factor for factor in s if factor.name not in unshared))
    notes = note_if(s.numbers, f"cut into {bins} bins of equal width; rows of one bin share a value")
    notes += note_if(unshared, "left out, because no two rows share a value")
    if len(s) < 2:
        return (
            None,
            s,
            notes,
            "There is only one factor that rows share values of; two are needed." if s else NO_FACTORS,
        )
    labels = s.labels(bins)
    sizes = tuple(int(size) for size in labels.max(0) + 1)
    cells = None
    if math.prod(sizes) <= len(labels):
        cells = _sort_rows(np.ravel_multi_index(tuple(labels.T), sizes), math.prod(sizes))
        cells = cells if cells.count.all() else None
    by_factor = tuple(_sort_rows(column, size) for column, size in zip(labels.T, sizes, strict=True))
    sampler = FactorSampler(labels, sizes, cells, by_factor, np.random.RandomState(seed))
    return sampler, s, (*notes, ROWS if cells is None else GRID), ""
