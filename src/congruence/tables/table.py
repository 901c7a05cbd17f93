"""An embedding table: one row of numbers per sample, with ids and metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.errors import InputError, TableError
from congruence.files import ReadFile
from congruence.memory import check_fits, room_for, take_rows
from congruence.result import as_frame

EXACT = 2**53  # whole floats below this are exact integers


@dataclass(frozen=True, eq=False)
class Table:
    """The embeddings of one run, row by row.

    Parameters
    ----------
    values : array of shape (n, d)
        Real numbers; NaN is allowed here and handled by `join_tables`. Memory maps stay memory maps.
    name : str
        The name of the run in results and messages.
    ids : array of shape (n,), optional
        Stored as int64 or unicode text. They need not be unique until tables are joined.
    metadata : mapping of str to array of shape (n,)
        Further columns. Text is stored as Python strings, missing text as None.
    features : sequence of d str, optional
        The names of the columns of `values`.
    path : Path, optional
        The file the table was read from.
    notes : sequence of str
        How columns were chosen where the user did not name them.
    indexed : bool
        Whether the index of a data frame identifies the rows. The default index (0, 1, ...) is not stored as `ids`;
        it serves as ids when another table has an index of integers.
    parts : sequence of Path
        The files the table was read from, if it was read from several.
    id_name : str, optional
        The name of the column that the ids were read from.
    types : mapping of str to pyarrow.DataType
        How the file stored ids and metadata (dates with a time zone, categories); `write_table` keeps it.
    read : sequence of ReadFile
        The files of `path` or `parts` as they were when the table was made; found out where it is not given.
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
    id_name: str | None = None
    types: Mapping[str, Any] = field(default_factory=dict)
    read: tuple[ReadFile, ...] = ()

    def __post_init__(self) -> None:
        where = str(self.path or self.name)
        files = self.parts or ((self.path,) if self.path else ())
        if tuple(file.path for file in self.read) != files:
            object.__setattr__(self, "read", tuple(ReadFile.now(file) for file in files))
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
        """The names of the columns, by default ``emb_0``, ``emb_1``, ..."""
        return self.features or tuple(f"emb_{i}" for i in range(self.d))

    def take(self, rows: Any) -> Table:
        """Return the rows of a slice, or those at positions, in a temporary file if they are many."""
        values = self.values[rows] if isinstance(rows, slice) else take_rows(self.values, rows, self.name)
        ids = None if self.ids is None else self.ids[rows]
        return replace(self, values=values, ids=ids, metadata={name: one[rows] for name, one in self.metadata.items()})

    def to_frame(self, backend: str = "pandas") -> Any:
        """Return the table as a data frame of "pandas", "polars" or "pyarrow": ids, metadata, features."""
        values = to_numpy(self.values)
        columns = [] if self.ids is None else [(self.id_name or "id", self.ids)]
        columns += [*self.metadata.items(), *((name, values[:, j]) for j, name in enumerate(self.feature_names))]
        repeated = duplicates([name for name, _ in columns])
        if repeated:
            raise TableError(f"{self.name} cannot become a data frame: several columns would be called {repeated}")
        return as_frame(dict(columns), backend)


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
    if ids.dtype.kind == "O":  # in an array of text, every id takes as much space as the longest
        longest = max((len(item) for item in ids.tolist() if isinstance(item, str | bytes)), default=0)
        check_fits(where, 4 * n * longest, "its ids")
    return as_labels(ids)


def _check_length(column: Array, n: int, what: str, where: str) -> None:
    if column.shape != (n,):
        raise TableError(f"{where} has {n} rows, but its {what} has shape {column.shape}; expected ({n},)")


def duplicates(names: Sequence[str]) -> str:
    """Return the names that occur more than once, as text for a message; empty if all are distinct."""
    return listing([name for name, count in Counter(names).items() if count > 1])


def as_labels(labels: Any) -> Array:
    """Return a column of ids or clusters as int64 or as unicode text, shape (n,).

    Whole floats become integers, because a missing value elsewhere in a file turns its integers into floats.
    Everything that is not a number becomes text.
    """
    column: Array = np.asarray(labels)
    kind = column.dtype.kind
    if kind == "f" and bool(np.all((column == np.floor(column)) & (np.abs(column) < EXACT))):
        return column.astype(np.int64)
    if kind == "i" or (kind == "u" and (not column.size or column.max() <= np.iinfo(np.int64).max)):
        return column.astype(np.int64, copy=False)
    if kind == "U":
        return column
    if kind in "ufbcMm":
        return column.astype(str)
    items = column.tolist()
    if items and all(type(item) is int and abs(item) < 2**63 for item in items):
        return np.array(items, dtype=np.int64)
    return np.array(
        [item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item) for item in items], str
    )


def missing_labels(column: Any) -> npt.NDArray[np.bool_]:
    """Return for each label whether it is missing: null, NaN, not a time, or empty text; shape (n,)."""
    column = np.asarray(column)
    kind = column.dtype.kind
    if kind in "fcMm":
        return np.asarray(np.isnan(column) if kind in "fc" else np.isnat(column))
    if kind in "biu":
        return np.zeros(len(column), dtype=bool)
    if kind == "U":
        return np.asarray(column == "")
    # Only a NaN differs from itself.
    return np.array([item is None or item in ("", b"") or item != item for item in column.tolist()], dtype=bool)


def same_label(column: Any, value: str) -> npt.NDArray[np.bool_]:
    """Return for each label whether it equals `value`: as text or, in a column of numbers, as a number; (n,)."""
    column = np.asarray(column)
    same = np.asarray(as_labels(column).astype(str) == value)
    if column.dtype.kind not in "iuf" or same.any():
        return same
    try:
        return np.asarray(column == float(value))
    except ValueError:
        return same


def in_one_kind(columns: Sequence[Array]) -> list[Array]:
    """Return columns of labels that can be compared: all integers if they all are, else all text."""
    if len({column.dtype.kind for column in columns}) <= 1:
        return list(columns)
    return [column.astype(str) for column in columns]


def as_column(entries: Any) -> Array:
    """Return a metadata column as numbers, bools, times, or Python text in an object array.

    Text is not stored as fixed-width unicode, in which one long document would set the width of every row.
    """
    column: Array = np.asarray(entries)
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8")
    return column if column.dtype.kind in "biufMmO" else column.astype(object)


def concatenate_labels(parts: Sequence[tuple[Array | None, Mapping[str, Array]]]) -> dict[str, Any]:
    """Concatenate the ids and metadata of several tables with the same columns; no ids if some table has none."""
    ids = [ids for ids, _ in parts if ids is not None]
    return {
        "ids": np.concatenate(ids) if ids and len(ids) == len(parts) else None,
        "metadata": {name: np.concatenate([columns[name] for _, columns in parts]) for name in parts[0][1]},
    }


def concatenate(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns."""
    labels = concatenate_labels([(table.ids, table.metadata) for table in tables])
    return replace(tables[0], values=np.concatenate([to_numpy(table.values) for table in tables]), **labels)


def is_frame(x: object) -> bool:
    """Whether `x` is a data frame of pandas, polars, pyarrow or another library that narwhals supports."""
    if not hasattr(type(x), "columns") or not hasattr(type(x), "shape"):  # of the type: lazy frames compute these
        return False
    import narwhals.dependencies as known

    return bool(known.is_into_dataframe(x))


def is_series(x: object) -> bool:
    """Whether `x` is one column of such a data frame."""
    if isinstance(x, np.ndarray) or not hasattr(x, "dtype") or not hasattr(x, "to_frame"):
        return False
    import narwhals.dependencies as known

    return bool(known.is_into_series(x))


def is_anndata(x: object) -> bool:
    """Whether `x` is an AnnData object, without importing anndata."""
    return type(x).__module__.split(".")[0] == "anndata" and hasattr(x, "obsm")


def names_of(frame: Any) -> list[str]:
    """Return the names of the columns of a data frame."""
    return [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
