"""The matrix of a columnar file, filled batch by batch: from plain columns, or from one column of lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.spill import room_for


class ColumnMatrix:
    """One column of the file for each column of the matrix."""

    def __init__(self, path: Path, schema: Any, names: Sequence[str], n: int) -> None:
        self.features = tuple(names)
        self.values = room_for((n, len(names)), common_dtype(schema, names), path)  # (n, d)

    def put(self, batch: Any, start: int) -> None:
        """Write the rows of a batch from row `start` on."""
        block = self.values[start : start + batch.num_rows]
        for j, name in enumerate(self.features):
            block[:, j] = _numbers(batch.column(name))

    def check(self) -> None:
        """Columns need no further check."""


class ListMatrix:
    """One column whose lists are the rows of the matrix; they must all have the same length.

    Lists that are `mapped` into memory in one piece are used where they lie.
    """

    def __init__(self, path: Path | str, name: str, n: int, *, mapped: bool) -> None:
        self.path, self.name, self.n, self.mapped = path, name, n, mapped
        self.values: Array = np.empty((0, 0))
        self.lengths: list[Array] = []
        self.alike = True

    @property
    def features(self) -> tuple[str, ...]:
        """A name for each column."""
        return tuple(f"{self.name}_{i}" for i in range(self.values.shape[1]))

    def put(self, batch: Any, start: int) -> None:
        """Write the rows of a batch from row `start` on; after the first odd one, only count how long they are."""
        import pyarrow.compute as pc

        for part in pieces(batch.column(self.name)):
            lengths = pc.list_value_length(part).fill_null(-1).to_numpy()
            if len(lengths):
                self.lengths.append(lengths)
                self.alike = self.alike and lengths[0] >= 0 and bool((lengths == self.lengths[0][0]).all())
                if self.alike:
                    self._put(part, start, int(lengths[0]))
            start += len(lengths)

    def _put(self, part: Any, start: int, width: int) -> None:
        flat = _numbers(part.flatten())
        if self.mapped and len(part) == self.n and flat.dtype.kind == "f":
            self.values = flat.reshape(self.n, width)
            return
        if start == 0:
            self.values = room_for((self.n, width), _float_dtype(part.type.value_type), self.path)
        self.values[start : start + len(part)] = flat.reshape(len(part), width)

    def check(self) -> None:
        """Refuse rows without a list, and lists that are shorter or longer than most."""
        if self.alike:
            return
        lengths = np.concatenate(self.lengths)  # (n,)
        nulls = np.flatnonzero(lengths < 0)
        if nulls.size:
            rows = f"{nulls.size} rows (row {listing(nulls)})"
            raise TableError(f"{self.path}: column {self.name} has no vector in {rows}")
        different, counts = np.unique(lengths, return_counts=True)
        usual = int(different[counts.argmax()])
        found = listing([f"row {row} has {lengths[row]}" for row in np.flatnonzero(lengths != usual)])
        raise TableError(f"{self.path}: column {self.name} is ragged: most rows have {usual} values, but {found}")


def pieces(column: Any) -> list[Any]:
    """Return the arrays that a column of a batch or of a table consists of."""
    chunks: list[Any] = getattr(column, "chunks", [column])
    return chunks


def common_dtype(schema: Any, names: Sequence[str]) -> np.dtype[Any]:
    """Return float32 where every column is; float64 as soon as one is wider or holds integers."""
    return np.result_type(*{_float_dtype(schema.field(name).type) for name in names})


def _float_dtype(type: Any) -> Any:
    import pyarrow.types as pt

    return type.to_pandas_dtype() if pt.is_floating(type) else np.float64


def _numbers(column: Any) -> Array:
    """Return an arrow array as numbers, nulls as NaN."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    array: Array = column.to_numpy(zero_copy_only=False)
    return array
