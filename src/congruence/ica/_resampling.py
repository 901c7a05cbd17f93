"""Bootstrap resampling of rows, or of clusters of rows that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError
from congruence.tables import Table
from congruence.tables.labels import as_labels, missing_labels


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


def cluster_labels(cluster: Any, table: Table | None, n: int) -> Array | None:
    """The label of every row, shape (n,), from labels or from the name of a metadata column of the table."""
    if cluster is None:
        return None
    if isinstance(cluster, str):
        cluster = _column(cluster, table)
    labels = to_numpy(cluster)
    if labels.shape != (n,):
        raise InputError(f"cluster must have one label per row, shape ({n},), but has shape {labels.shape}")
    missing = np.flatnonzero(missing_labels(labels))
    if missing.size:
        raise InputError(f"cluster has missing labels (row {listing(missing)})")
    return as_labels(labels)


def _column(name: str, table: Table | None) -> Array:
    if table is None:
        raise InputError(f"cluster={name!r} names a metadata column, but X has none; pass the labels")
    for known in (name, f"Metadata_{name}"):
        if known in table.metadata:
            return table.metadata[known]
    raise InputError(f"{table.name} has no metadata column {name!r}; it has {', '.join(table.metadata) or 'none'}")
