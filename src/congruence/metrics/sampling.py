"""Rows that share the value of a factor: what scores that hold one factor still are computed from.

The reference draws a value of every factor, independently, and asks a generator for the observation. Here there are
rows only. Where they are a full grid (every combination of values occurs), values are drawn in the same order from
the same generator and looked up, which gives the reference's numbers on a grid with one row for each combination.
Otherwise rows are drawn as they are, and those that must share a factor's value are drawn among the rows that have
it: the other factors then vary as they do in the data, given that value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from congruence.arrays import Array
from congruence.metrics.factors import Factors
from congruence.metrics.notes import Note, note_if

GRID = Note("The rows are a full grid of the factors, whose values were drawn independently")
ROWS = Note("The rows are not a full grid of the factors: rows that share a value were drawn from the rows given")


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows sorted by a class: those of class c are `order[start[c] : start[c] + count[c]]`."""

    order: Array  # (n,)
    start: Array  # (classes,)
    count: Array  # (classes,)

    @cached_property
    def single(self) -> bool:
        """Whether each class has one row."""
        return bool((self.count == 1).all())

    @cached_property
    def company(self) -> Array:
        """The rows whose class another row has too."""
        lonely = self.order[self.start[self.count == 1]]
        return np.setdiff1d(self.order, lonely)

    def draw(self, classes: Array, rng: np.random.RandomState) -> Array:
        """One row of each class asked for; where each class has one row, nothing is drawn."""
        count = self.count[classes]
        place = 0 if self.single else (rng.random_sample(len(classes)) * count).astype(int)
        return np.asarray(self.order[self.start[classes] + place])


def groups_of(labels: Array, classes: int) -> Groups:
    """Sort rows by their class, from 0 to classes - 1."""
    count = np.bincount(labels, minlength=classes)
    return Groups(np.argsort(labels, kind="stable"), np.cumsum(count) - count, count)


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws row numbers, at random or sharing the value of a factor."""

    labels: Array  # (n, K) classes from 0
    sizes: tuple[int, ...]  # classes of each factor
    cells: Groups | None  # rows of each combination of values, where all occur
    by_factor: tuple[Groups, ...]  # rows of each value of each factor
    rng: np.random.RandomState

    def factor(self) -> int:
        """One factor, at random."""
        return int(self.rng.randint(len(self.sizes)))

    def rows(self, size: int) -> Array:
        """Rows at random."""
        if self.cells is None:
            return self.rng.randint(len(self.labels), size=size)
        return self._found(self._values(size))

    def sharing(self, factor: int, size: int) -> Array:
        """Rows that all have the same, random, value of one factor."""
        if self.cells is None:
            value = self.labels[self._in_company(factor, 1), factor]
            return self.by_factor[factor].draw(np.repeat(value, size), self.rng)
        values = self._values(size)
        values[:, factor] = values[0, factor]
        return self._found(values)

    def pairs(self, factor: int, size: int) -> tuple[Array, Array]:
        """Two lists of rows; the i-th of both share the value of one factor."""
        if self.cells is None:
            first = self._in_company(factor, size)
            return first, self.by_factor[factor].draw(self.labels[first, factor], self.rng)
        one, other = self._values(size), self._values(size)
        other[:, factor] = one[:, factor]
        return self._found(one), self._found(other)

    def _values(self, size: int) -> Array:
        """Values of all factors, column by column, shape (size, K)."""
        return np.column_stack([self.rng.randint(levels, size=size) for levels in self.sizes])

    def _found(self, values: Array) -> Array:
        assert self.cells is not None
        return self.cells.draw(np.ravel_multi_index(tuple(values.T), self.sizes), self.rng)

    def _in_company(self, factor: int, size: int) -> Array:
        """Rows at random among those whose value of the factor another row has too."""
        allowed = self.by_factor[factor].company
        return np.asarray(allowed[self.rng.randint(len(allowed), size=size)])


def sampler(s: Factors, bins: int, seed: int) -> tuple[Sampler | None, Factors, tuple[Note, ...]]:
    """A sampler of the factors whose values are shared by some rows, those factors, and notes.

    None where fewer than two such factors are left.
    """
    lonely = [f.name for f in s if np.bincount(f.labels(bins)).max() < 2]
    s = Factors(tuple(factor for factor in s if factor.name not in lonely))
    binned = [factor.name for factor in s if not factor.is_discrete]
    notes = note_if(binned, f"cut into {bins} bins of equal width; rows of one bin share a value")
    notes += note_if(lonely, "left out, because no two rows share a value")
    if len(s) < 2:
        return None, s, notes
    labels = s.labels(bins)
    sizes = tuple(int(size) for size in labels.max(0) + 1)
    cells = None
    if math.prod(sizes) <= len(labels):
        cells = groups_of(np.ravel_multi_index(tuple(labels.T), sizes), math.prod(sizes))
        cells = cells if cells.count.all() else None
    by_factor = tuple(groups_of(column, size) for column, size in zip(labels.T, sizes, strict=True))
    drawn = Sampler(labels, sizes, cells, by_factor, np.random.RandomState(seed))
    return drawn, s, (*notes, ROWS if cells is None else GRID)
