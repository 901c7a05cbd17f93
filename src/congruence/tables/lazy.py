"""Tables for dask: ids and metadata are read here, the values by the workers, block by block."""

from __future__ import annotations

import mmap
import os
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, is_dask, to_numpy
from congruence.checks import require
from congruence.errors import TableError
from congruence.guards import reading, suffix_of
from congruence.rows.blocks import as_dask
from congruence.tables._arrow import TableBuilder, block_rows, open_columnar
from congruence.tables._zarr import check_zarr_array, import_zarr, read_zarr
from congruence.tables.access import stem_of
from congruence.tables.columns import ColumnChoice, Selection, choose_columns
from congruence.tables.formats import check_format
from congruence.tables.read import read_selected
from congruence.tables.table import Table

BLOCK_BYTES = 2**25  # of rows in a block, so that its task is long enough


def lazy_selected(path: Path, select: Selection) -> Table:
    """Read an embedding table with a dask array for its values.

    A .zarr array is read block by block, and .parquet by row groups. Other formats are opened once by every worker,
    which is cheap if they can be mapped into memory (.npy, .safetensors, .pt, .arrow). Workers must have the file at
    the same path.
    """
    require("dask.array", "reading with workers", "dask")
    select = replace(select, name=select.name or stem_of(path))
    return replace(_read(path.resolve(), select), path=path)  # workers may be in another folder


def _read(path: Path, select: Selection) -> Table:
    if suffix_of(path) == ".parquet":
        return _read_parquet(path, select)
    if suffix_of(path) == ".zarr":
        check_format(path)
        with warnings.catch_warnings(), reading(path):
            warnings.simplefilter("ignore")
            table = read_zarr(path, select, lazy_matrix=_lazy_matrix)
        if is_dask(table.values):
            return table
    else:
        table = read_selected(path, select)
    rows = FileRows(path, select, None, table.values.shape, to_numpy(table.values[:1]).dtype)
    return replace(table, values=as_dask(rows, _rows_per_block(rows)))


def _rows_per_block(rows: Any, step: int = 1) -> int:
    many = max(1, BLOCK_BYTES // (step * rows.shape[1] * rows.dtype.itemsize))
    return int(min(rows.shape[0], many * step))


@dataclass(frozen=True)
class FileRows:
    """The values of a file, opened by the process that indexes them."""

    path: Path
    select: Selection
    array: str | None  # the name of an array in a zarr store
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ndim = 2

    def __getitem__(self, index: Any) -> Array:
        values = _open_values(self.path, self.select, self.array, _modified(self.path))
        if tuple(values.shape) != self.shape:
            raise TableError(f"{self.path} has the shape {tuple(values.shape)} on a worker, but {self.shape} elsewhere")
        rows = np.array(values[index], dtype=self.dtype)
        while isinstance(values, np.ndarray):
            values = values.base
        # dask counts the pages of a memory map as memory of the worker, and would pause or restart it.
        if isinstance(values, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on every system
            values.madvise(mmap.MADV_DONTNEED)
        return rows


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise TableError(f"a worker does not find {path}; every worker must have the file at the same path") from error


@lru_cache(maxsize=2)
def _open_values(path: Path, select: Selection, array: str | None, modified: int) -> Any:
    if array is None:
        return read_selected(path, select).values
    node = import_zarr(path).open(str(path), mode="r")
    return node[array] if array else node  # an array that is the store itself has no name


def _lazy_matrix(path: Path, array: Any) -> Any:
    """Return a matrix of a zarr store as a dask array, after its chunks were checked."""
    check_zarr_array(path, array, 0)
    rows = FileRows(path, Selection(), array.path, tuple(array.shape), array.dtype.newbyteorder("="))
    return as_dask(rows, _rows_per_block(rows, (getattr(array, "shards", None) or array.chunks)[0]))


@dataclass(frozen=True)
class GroupedRows:
    """The values of a parquet file, of which a process reads only the row groups that it needs."""

    path: Path
    columns: ColumnChoice
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

        _modified(self.path)
        where = Path(f"{self.path} (from row {begin} on)") if begin else self.path
        # Not mapped: pages of a map count as memory.
        with reading(self.path), pq.ParquetFile(os.path.abspath(self.path)) as file:
            schema = file.schema_arrow
            if _groups(file) != self.groups or any(name not in schema.names for name in self.columns.values):
                raise TableError(f"{self.path} is another file on a worker: its columns or row groups differ")
            columns = self.columns.unlabelled
            batches = file.iter_batches(block_rows(columns), row_groups=list(groups), columns=list(columns.values))
            values = TableBuilder(where, columns, schema, end - begin).fill(batches)["values"]
        if values.shape[1] != self.shape[1]:
            raise TableError(f"{self.path} may be damaged: rows {begin} to {end} are not {self.shape[1]} values each")
        return np.asarray(values, dtype=self.dtype)


def _read_parquet(path: Path, select: Selection) -> Table:
    """Read the ids and metadata of a parquet file, and leave its values in row groups."""
    import pyarrow.parquet as pq

    with open_columnar(path, select) as file:
        columns, n = choose_columns(file.source, select), file.n
        builder = TableBuilder(path, replace(columns, values=(), lists=False), file.schema, n)
        builder.rows = 0 if columns.labels else n  # then nothing has to be read
        labels = builder.fill(file.batches(columns.labels, block_rows(columns)) if columns.labels else ())
        with reading(path), pq.ParquetFile(os.path.abspath(path), memory_map=True) as parquet:
            groups = _groups(parquet)
        if not n or sum(groups) != n:
            raise TableError(f"{path} has no rows" if not n else f"{path} may be damaged: row groups lack rows")
        # Lists are as long as the first.
        head = islice(file.batches(columns.values, 1, 1), 1)
        first = TableBuilder(path, columns.unlabelled, file.schema, 1).fill(head)
    rows = GroupedRows(path, columns, groups, (n, first["values"].shape[1]), first["values"].dtype)
    sizes: list[int] = []  # of blocks: whole row groups, merged up to BLOCK_BYTES
    for size in groups:
        if sizes and (sizes[-1] + size) * rows.shape[1] * rows.dtype.itemsize <= BLOCK_BYTES:
            sizes[-1] += size
        else:
            sizes.append(size)
    fields = {**labels, "values": as_dask(rows, tuple(sizes)), "features": first["features"]}
    return Table(name=select.name, path=path, **fields)


def _groups(file: Any) -> tuple[int, ...]:
    return tuple(int(file.metadata.row_group(i).num_rows) for i in range(file.metadata.num_row_groups))
