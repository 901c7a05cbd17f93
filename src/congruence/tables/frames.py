"""Data frames of any library (through narwhals) and AnnData objects, read by the same rules as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import TableError
from congruence.tables.columns import (
    HEAD,
    INDEX_NAMES,
    LIST,
    MOST,
    NESTED,
    NUMBER,
    Look,
    RowId,
    Selection,
    choose_columns,
    choose_id,
)
from congruence.tables.fill_matrix import ListMatrix
from congruence.tables.read_columns import check_distinct, kind_of, plain_column, text_columns
from congruence.tables.row_columns import RowColumns
from congruence.tables.table import Table


def is_frame(x: object) -> bool:
    """Whether `x` is a data frame of pandas, polars, pyarrow or another library that narwhals knows."""
    if not hasattr(type(x), "columns") or not hasattr(type(x), "shape"):  # of the type: lazy frames take long to answer
        return False
    import narwhals.dependencies as known

    return bool(known.is_into_dataframe(x))


def is_series(x: object) -> bool:
    """Whether `x` is one column of such a data frame."""
    if isinstance(x, np.ndarray) or not hasattr(x, "dtype") or not hasattr(x, "to_frame"):
        return False
    import narwhals.dependencies as known

    return bool(known.is_into_series(x))


def names_of(frame: Any) -> list[str]:
    """The names of the columns of a data frame."""
    return [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]


def is_anndata(x: object) -> bool:
    """Whether `x` is an AnnData object, found out without importing anndata."""
    return type(x).__module__.split(".")[0] == "anndata" and hasattr(x, "obsm")


def table_from_frame(frame: Any, select: Selection, where: str) -> Table:
    """Read a data frame as an embedding table."""
    read = _Frame(frame, where)
    columns = choose_columns(read.kinds, select, where, **read.facts, look=read.look)
    values, features = read.matrix(columns.values, columns.lists)
    return Table(
        values,
        select.name or where,
        read.ids(columns.row_id),
        {name: read.column(name) for name in columns.metadata},
        features,
        notes=columns.notes,
        indexed=columns.row_id.indexed,
    )


def columns_from_frame(frame: Any, select: Selection, where: str) -> RowColumns:
    """Read all columns of a data frame besides its ids; columns of lists are left out."""
    read = _Frame(frame, where)
    found = choose_id(read.kinds, select, where, **read.facts, look=read.look)
    names = [name for name, kind in read.kinds.items() if kind not in (LIST, NESTED)]
    names = [name for name in names if name not in (found.column, *read.facts["index"])]
    if not names or not read.n:
        raise TableError(f"{where} has no columns with rows besides its ids")
    return RowColumns({name: read.column(name) for name in names}, read.ids(found), found.notes, found.indexed)


class _Frame:
    """The columns of a data frame by name, its index among them."""

    def __init__(self, frame: Any, where: str) -> None:
        import narwhals as nw

        self.where = where
        self.index: dict[str, Array] = {}
        self.facts: dict[str, Any] = {"index": [], "range_index": None}
        if hasattr(frame, "iloc"):
            labels = [str(label) for label in frame.columns]
            check_distinct(labels, where)
            self._take_index(frame.index, labels)
            frame = frame.set_axis(labels, axis=1)
        self.frame = nw.from_native(frame, eager_only=True)
        self.n = len(self.frame)
        self.numbers = [name for name, type in self.frame.schema.items() if type.is_numeric()]
        others = [name for name in self.frame.columns if name not in set(self.numbers)]
        try:
            self.arrow = self.frame.select(others).to_arrow() if others else None
        except Exception as error:  # Python objects of several kinds in one column
            raise TableError(f"{where} has columns that cannot be read: {str(error).splitlines()[0]}") from error
        types = {} if self.arrow is None else {field.name: kind_of(field.type) for field in self.arrow.schema}
        text = frozenset() if self.arrow is None else text_columns(self.arrow.schema)
        self.kinds = {name: types.get(name, NUMBER) for name in self.frame.columns}
        self.kinds |= {name: NUMBER if ids.dtype.kind in "iuf" else "text" for name, ids in self.index.items()}
        self.look = Look(
            self.n,
            text | {name for name in self.index if self.kinds[name] != NUMBER},
            lambda names: {name: self.column(name, HEAD) for name in names},
            lambda name: self.column(name, MOST),
        )

    def _take_index(self, index: Any, labels: Sequence[str]) -> None:
        if hasattr(index, "step"):
            self.facts["range_index"] = (index.start, index.step)
            return
        name = INDEX_NAMES[0] if index.name is None or str(index.name) in labels else str(index.name)
        ids = np.asarray(index)
        whole = ids.dtype.kind != "f" or bool((np.isnan(ids) | (ids == np.floor(ids))).all())
        self.index[name] = ids if whole and ids.dtype.kind in "iufO" else ids.astype(str)
        self.facts["index"].append(name)

    def column(self, name: str, most: int | None = None) -> Array:
        """One column, as metadata is kept."""
        if name in self.index:
            return np.asarray(self.index[name][:most])
        if self.arrow is None or name not in self.arrow.schema.names:
            return np.asarray(self.frame[name][:most].to_numpy())
        found = self.arrow.column(name)
        return plain_column(self.where, found.slice(0, most).chunks)

    def ids(self, row_id: RowId) -> Array | None:
        """The ids, unless they are the default index."""
        if row_id.range is not None:
            return row_id.range[0] + row_id.range[1] * np.arange(self.n)
        return None if row_id.column is None else self.column(row_id.column)

    def matrix(self, names: Sequence[str], lists: bool) -> tuple[Array, tuple[str, ...]]:
        """The values (n, d) and the names of their columns."""
        if lists:
            filled = ListMatrix(self.where, names[0], self.n, mapped=True)
            filled.put(self.arrow, 0)
            filled.check()
            return filled.values, filled.features
        values = np.asarray(self.frame.select(list(names)).to_numpy())
        return values.astype(np.float64) if values.dtype.kind == "O" else values, tuple(names)
