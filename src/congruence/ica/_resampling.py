"""Labels of clusters of rows, given as an array or as the name of a metadata column."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError
from congruence.tables import Table
from congruence.tables.table import as_labels, missing_labels


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
