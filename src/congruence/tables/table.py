"""An embedding table: one row of numbers per sample, with ids and metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.errors import InputError, MissingDependencyError, TableError
from congruence.tables.labels import as_column, as_labels, missing_labels
from congruence.tables.memory import check_fits
from congruence.tables.spill import room_for

BACKENDS = ("pandas", "polars", "pyarrow")


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
    notes : sequence of str
        How columns were chosen where nobody said it.
    indexed : bool
        Whether the index of a data frame identifies the rows. The default index (0, 1, ...) is not kept as `ids`,
        because it tells little; it serves as ids beside a table whose index is another order of integers.
    parts : sequence of Path
        The files the table was read from, if they are several.
    """

    values: Array
    name: str
    ids: Array | None = None
    metadata: Mapping[str, Array] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    path: Path | None = None
    notes: tuple[str, ...] = ()
    indexed: bool = False
    parts: tuple[Path, ...] = ()

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

    def __repr__(self) -> str:
        ids = "no ids" if self.ids is None else "ids"
        count = len(self.metadata)
        return f"Table({self.name!r}, {self.n} x {self.d}, {ids}, {count} metadata column{'s' * (count != 1)})"

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

    def to_frame(self, backend: str = "pandas") -> Any:
        """Return the table as a data frame of "pandas", "polars" or "pyarrow": ids (``id``), metadata, features."""
        if backend not in BACKENDS:
            raise InputError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
        values = to_numpy(self.values)
        columns = [] if self.ids is None else [("id", self.ids)]
        columns += [*self.metadata.items(), *((name, values[:, j]) for j, name in enumerate(self.feature_names))]
        names = [name for name, _ in columns]
        if len(set(names)) < len(names):
            doubled = listing([name for name, count in Counter(names).items() if count > 1])
            raise TableError(f"{self.name} cannot become a data frame: several columns would be called {doubled}")
        try:
            library = import_module(backend)
        except ImportError as error:
            raise MissingDependencyError(f"to_frame needs {backend}: pip install {backend}") from error
        return (library.table if backend == "pyarrow" else library.DataFrame)(dict(columns))


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
