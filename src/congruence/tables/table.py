"""An embedding table: one row of numbers per sample, with ids and metadata beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing
from congruence.errors import InputError, TableError
from congruence.tables.labels import as_column, as_labels, missing_labels
from congruence.tables.memory import check_fits
from congruence.tables.spill import room_for


@dataclass(frozen=True, eq=False)
class Table:
    """The embeddings of one run, row by row.

    Parameters
    ----------
    values : array of shape (n, d)
        Real numbers; NaN is allowed here and dealt with by `join_tables`. Memory maps stay memory maps.
    name : str
        What the run is called in results and messages.
    ids : array of shape (n,), optional
        Kept as int64 or unicode text. They need not be unique until tables are joined.
    metadata : mapping of str to array of shape (n,)
        What else is known about each row. Text is kept as Python strings, missing text as None.
    features : sequence of d str, optional
        The names of the columns of `values`.
    path : Path, optional
        The file the table was read from.
    """

    values: Array
    name: str
    ids: Array | None = None
    metadata: Mapping[str, Array] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        where = str(self.path or self.name)
        values = _check_values(self.values, where)
        object.__setattr__(self, "values", values)
        if self.ids is not None:
            object.__setattr__(self, "ids", _check_ids(self.ids, len(values), where))
        columns = {str(name): as_column(column) for name, column in self.metadata.items()}
        for name, column in columns.items():
            _check_length(column, len(values), f"metadata column {name!r}", where)
        object.__setattr__(self, "metadata", columns)
        if self.features is not None:
            features = tuple(str(name) for name in self.features)
            if len(features) != values.shape[1]:
                raise TableError(f"{where} has {len(features)} feature names for {values.shape[1]} columns")
            object.__setattr__(self, "features", features)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.values.shape[0])

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.values.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns, made up as ``emb_0``, ``emb_1``, ... where there are none."""
        return self.features or tuple(f"emb_{i}" for i in range(self.d))


def _check_values(values: Any, where: str) -> Any:
    try:
        values = as_matrix(values, where, finite=False)
    except InputError as error:
        raise TableError(str(error)) from error
    if isinstance(values, np.ndarray) and not values.dtype.isnative:  # torch refuses foreign byte orders
        native = room_for(values.shape, values.dtype.newbyteorder("="), where)
        native[...] = values
        return native
    return values


def _check_ids(ids: Any, n: int, where: str) -> Array:
    ids = np.asarray(ids)
    _check_length(ids, n, "ids", where)
    missing = np.flatnonzero(missing_labels(ids))
    if missing.size:
        rows = "1 row" if missing.size == 1 else f"{missing.size} rows"
        raise TableError(f"{where} has no id in {rows} of {n} (row {listing(missing)})")
    if ids.dtype.kind == "O":  # as an array of text, every id takes the room of the longest
        longest = max((len(item) for item in ids.tolist() if isinstance(item, str | bytes)), default=0)
        check_fits(where, 4 * n * longest, "its ids")
    return as_labels(ids)


def _check_length(column: Array, n: int, what: str, where: str) -> None:
    if column.shape != (n,):
        raise TableError(f"{where} has {n} rows, but its {what} has shape {column.shape}; ({n},) would do")
