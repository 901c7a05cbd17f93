"""Bootstrap samples of rows, or of clusters of rows that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError


@dataclass(frozen=True, eq=False)
class Units:
    """Rows and the units they are drawn in."""

    rows: Array  # (m,) positions, rising
    unit: Array  # (m,) the number of the unit of each
    count: int  # of units

    def within(self, rows: Array | None) -> Units:
        """The units of some of the rows."""
        if rows is None:
            return self
        return _numbered(np.sort(rows), self.unit[np.isin(self.rows, rows)])

    def draw(self, rng: np.random.Generator) -> Array:
        """The rows of as many units as there are, drawn with replacement; never one unit alone, which may not vary."""
        times = self._times(rng)
        while times.max() == self.count:
            times = self._times(rng)
        return np.repeat(self.rows, times[self.unit])

    def _times(self, rng: np.random.Generator) -> Array:
        return np.bincount(rng.integers(self.count, size=self.count), minlength=self.count)


def units_of(labels: Array | None, n: int) -> Units:
    """The units of n rows: those with the same label (n,) together, or each row on its own."""
    return _numbered(np.arange(n), np.arange(n) if labels is None else labels)


def _numbered(rows: Array, labels: Array) -> Units:
    known, unit = np.unique(labels, return_inverse=True)
    if len(known) < 2:
        raise InputError("all rows belong to one cluster, so no clusters can be drawn; cluster by something finer")
    return Units(rows, unit, len(known))
