"""Data frames of any library (through narwhals), read by the same rules as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import TableError
from congruence.tables._arrow import TableBuilder, kind_of, plain_column, text_columns
from congruence.tables.columns import (
    INDEX_NAMES,
    NUMBER,
    ColumnChoice,
    Selection,
    Source,
    check_distinct,
    choose_columns,
)
from congruence.tables.read import RowColumns, columns_of
from congruence.tables.table import Table, is_series


def table_from_frame(frame: Any, select: Selection, where: str) -> Table:
    """Read a data frame or series as an embedding table."""
    data = _FrameColumns(frame, where)
    columns = choose_columns(data.source, select)
    values, features = data.matrix(columns.values, columns.lists)
    return Table(
        values,
        select.name or where,
        columns.read(data.column, data.n),
        {name: data.column(name) for name in columns.metadata},
        features,
        notes=columns.notes,
        indexed=columns.indexed,
        id_name=columns.id_name,
    )


def columns_from_frame(frame: Any, select: Selection, where: str) -> RowColumns:
    """Read all columns of a data frame or series besides its ids; columns of lists are left out."""
    return columns_of(_FrameColumns(frame, where).source, select)


class _FrameColumns:
    """The columns of a data frame by name, including its index."""

    def __init__(self, frame: Any, where: str) -> None:
        import narwhals as nw

        if is_series(frame):
            frame = (frame if getattr(frame, "name", None) not in (None, "") else frame.rename("0")).to_frame()
        self.where = where
        self.index: dict[str, Array] = {}
        range_index = None
        if hasattr(frame, "iloc"):
            labels = [str(label) for label in frame.columns]
            check_distinct(labels, where)
            if hasattr(frame.index, "step"):
                range_index = (frame.index.start, frame.index.step)
            else:
                self._take_index(frame.index, labels)
            frame = frame.set_axis(labels, axis=1)
        self.frame = nw.from_native(frame, eager_only=True)
        self.n = len(self.frame)
        others = [name for name, type in self.frame.schema.items() if not type.is_numeric()]
        try:
            self.arrow = self.frame.select(others).to_arrow() if others else None
        except Exception as error:  # Python objects of several types in one column
            raise TableError(f"{where} has columns that cannot be read: {str(error).splitlines()[0]}") from error
        types = {} if self.arrow is None else {field.name: kind_of(field.type) for field in self.arrow.schema}
        text = frozenset() if self.arrow is None else text_columns(self.arrow.schema)
        kinds = {name: types.get(name, NUMBER) for name in self.frame.columns}
        kinds |= {name: NUMBER if ids.dtype.kind in "iuf" else "text" for name, ids in self.index.items()}
        self.source = Source(
            where,
            kinds,
            list(self.index),
            range_index=range_index,
            n=self.n,
            text=text | {name for name in self.index if kinds[name] != NUMBER},
            take=lambda names, most: {name: self.column(name, most) for name in names},
        )

    def _take_index(self, index: Any, labels: Sequence[str]) -> None:
        name = INDEX_NAMES[0] if index.name is None or str(index.name) in labels else str(index.name)
        ids = np.asarray(index)
        whole = ids.dtype.kind != "f" or bool((np.isnan(ids) | (ids == np.floor(ids))).all())
        self.index[name] = ids if whole and ids.dtype.kind in "iufO" else ids.astype(str)

    def column(self, name: str, most: int | None = None) -> Array:
        """Return one column in the form of metadata."""
        if name in self.index:
            return np.asarray(self.index[name][:most])
        if self.arrow is None or name not in self.arrow.schema.names:
            return np.asarray(self.frame[name][:most].to_numpy())
        return plain_column(self.where, self.arrow.column(name).slice(0, most).chunks)

    def matrix(self, names: Sequence[str], lists: bool) -> tuple[Array, tuple[str, ...]]:
        """Return the values (n, d) and the names of their columns."""
        if lists:
            columns = ColumnChoice(values=tuple(names), lists=True)
            fields = TableBuilder(self.where, columns, None, self.n, mapped=True).fill([self.arrow])
            return fields["values"], fields["features"]
        values = np.asarray(self.frame.select(list(names)).to_numpy())
        return values.astype(np.float64) if values.dtype.kind == "O" else values, tuple(names)
