"""A parquet file in row groups: what is beside the values is read at once, the values by whoever asks for some rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import TableError
from congruence.tables.access import reading, stamp_of
from congruence.tables.columns import Columns, Selection
from congruence.tables.fill_matrix import common_dtype
from congruence.tables.parquet_batches import parquet_batches
from congruence.tables.read_columns import Beside, block_rows, choose, guarded, look_at_parquet, matrix_for


@dataclass(frozen=True)
class GroupedRows:
    """The values of a parquet file, of which a process reads those row groups alone that it needs."""

    path: Path
    columns: Columns
    groups: tuple[int, ...]  # rows in each row group
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ndim = 2

    def __getitem__(self, index: tuple[slice, slice]) -> Array:
        start, stop, _ = index[0].indices(self.shape[0])
        edges = np.cumsum([0, *self.groups])
        first = int(np.searchsorted(edges, start, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(edges, stop)))
        rows = self._read(range(first, last), int(edges[first]), int(edges[last]))
        return rows[start - edges[first] : stop - edges[first], index[1]]

    def _read(self, groups: range, begin: int, end: int) -> Array:
        import pyarrow.parquet as pq

        stamp_of(self.path)
        where = Path(f"{self.path} (from row {begin} on)") if begin else self.path
        with reading(self.path), pq.ParquetFile(self.path) as file:  # not mapped: pages of a map count as memory
            schema, found = file.schema_arrow, _groups(file)
            if found != self.groups or any(name not in schema.names for name in self.columns.values):
                raise TableError(f"{self.path} is another file on a worker: its columns or row groups differ")
            matrix = matrix_for(where, self.columns, schema, end - begin)
            names = list(self.columns.values)
            at = 0
            for batch in file.iter_batches(block_rows(self.columns), row_groups=list(groups), columns=names):
                matrix.put(batch, at)
                at += batch.num_rows
        matrix.check()
        if at != end - begin or matrix.values.shape[1] != self.shape[1]:
            raise TableError(f"{self.path} may be damaged: rows {begin} to {end} are not {self.shape[1]} values each")
        return np.asarray(matrix.values, dtype=self.dtype)


def open_groups(path: Path, select: Selection) -> tuple[GroupedRows, dict[str, Any]]:
    """Return the values of a parquet file, not read yet, and what its table has besides: ids, metadata and features."""
    import pyarrow.parquet as pq

    with reading(path):
        file = pq.ParquetFile(path, memory_map=True)
        schema, n, groups = file.schema_arrow, file.metadata.num_rows, _groups(file)
    columns = choose(schema, select, path, look=look_at_parquet(path, file)).columns
    with file:
        beside = Beside(path, columns, n)
        if columns.beside:
            for batch in guarded(path, parquet_batches(path, file, columns.beside, block_rows(columns))):
                beside.put(batch)
        if not n or sum(groups) != n:
            raise TableError(f"{path} has no rows" if not n else f"{path} may be damaged: row groups lack rows")
        if columns.lists:  # how long they are, the first row tells
            first = matrix_for(path, columns, schema, 1)
            first.put(next(file.iter_batches(1, columns=list(columns.values))), 0)
            first.check()
            features, dtype = first.features, first.values.dtype
        else:
            features, dtype = columns.values, common_dtype(schema, columns.values)
    rows = GroupedRows(path, columns, groups, (n, len(features)), np.dtype(dtype))
    return rows, {**beside.finish(), "features": features}


def _groups(file: Any) -> tuple[int, ...]:
    return tuple(int(file.metadata.row_group(i).num_rows) for i in range(file.metadata.num_row_groups))
