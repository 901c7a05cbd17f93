"""Tables for dask: what is beside the values is read here, the values by whoever computes with them, block by block."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, is_dask, to_numpy
from congruence.errors import MissingDependencyError, TableError
from congruence.tables.access import check_readable, reading, stamp_of, stem_of, suffix_of
from congruence.tables.columns import Selection, patterns
from congruence.tables.parquet_groups import GroupedRows, open_groups
from congruence.tables.read import read_selected
from congruence.tables.read_zarr import open_zarr_array, read_zarr
from congruence.tables.table import Table
from congruence.tables.zarr_chunks import check_zarr_array

BLOCK_BYTES = 2**25  # of rows in a block: a task of some length


def lazy_table(
    path: str | Path,
    *,
    id: str | None = None,
    features: str | None = None,
    metadata: str | None = None,
    key: str | None = None,
    name: str | None = None,
) -> Table:
    """Read an embedding table with a dask array for its values; the options are those of `read_table`.

    A .zarr array is read block by block, and .parquet by row groups. Of other formats every worker opens the whole file
    once, which costs little where it can be mapped into memory (.npy, .safetensors, .pt, .arrow). Workers look for the
    file at the same place.
    """
    return lazy_selected(Path(path), Selection(id, patterns(features), patterns(metadata), key, name or ""))


def lazy_selected(path: Path, select: Selection) -> Table:
    """Read an embedding table with a dask array for its values; `lazy_table` with its options in one object."""
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("dask is not there: pip install 'congruence[dask]'") from error
    select = replace(select, name=select.name or stem_of(path))
    return replace(_lazily(path.resolve(), select), path=path)  # workers may be in another folder


def _lazily(path: Path, select: Selection) -> Table:
    if suffix_of(path) == ".parquet":
        check_readable(path, folder=False)
        rows, beside = open_groups(path, select)
        return Table(as_dask(rows, _merged(rows)), select.name, path=path, **beside)
    if suffix_of(path) == ".zarr":
        check_readable(path, folder=True)
        with warnings.catch_warnings(), reading(path):
            warnings.simplefilter("ignore")
            table = read_zarr(path, select, load_matrix=_unread)
        if is_dask(table.values):
            return table
    else:
        table = read_selected(path, select)
    mapped = FileRows(path, select, None, table.values.shape, to_numpy(table.values[:1]).dtype)
    return replace(table, values=as_dask(mapped, _even(mapped)))


@dataclass(frozen=True)
class FileRows:
    """The values of a file, opened by the process that asks for some of them."""

    path: Path
    select: Selection
    array: str | None  # the member of a zarr store
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ndim = 2

    def __getitem__(self, index: Any) -> Array:
        opened = _opened(self.path, self.select, self.array, stamp_of(self.path))
        if tuple(opened.shape) != self.shape:
            raise TableError(f"{self.path} has the shape {tuple(opened.shape)} on a worker, but {self.shape} elsewhere")
        rows = np.array(opened[index], dtype=self.dtype)
        _let_go(opened)
        return rows


def as_dask(rows: Any, sizes: int | tuple[int, ...]) -> Any:
    """The rows of a file as a dask array, in blocks of so many rows."""
    import dask.array as da

    return da.from_array(rows, chunks=(sizes, rows.shape[1]), name=False, meta=np.empty((0, 0), rows.dtype))


def _even(rows: Any, step: int = 1) -> int:
    """The rows of a block: a multiple of `step`."""
    many = max(1, BLOCK_BYTES // (step * rows.shape[1] * rows.dtype.itemsize))
    return int(min(rows.shape[0], many * step))


def _merged(rows: GroupedRows) -> tuple[int, ...]:
    """The rows of each block: whole row groups, as few as make a task of some length."""
    sizes: list[int] = []
    for size in rows.groups:
        if sizes and (sizes[-1] + size) * rows.shape[1] * rows.dtype.itemsize <= BLOCK_BYTES:
            sizes[-1] += size
        else:
            sizes.append(size)
    return tuple(sizes)


def _let_go(opened: Any) -> None:
    """Give the pages of a memory map back, which dask counts as memory of the worker: it would halt, or be ended."""
    while isinstance(opened, np.ndarray):
        opened = opened.base
    if isinstance(opened, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on every system
        opened.madvise(mmap.MADV_DONTNEED)


@lru_cache(maxsize=2)
def _opened(path: Path, select: Selection, array: str | None, stamp: int) -> Any:
    return read_selected(path, select).values if array is None else open_zarr_array(path, array)


def _unread(path: Path, array: Any) -> Any:
    """A matrix of a zarr store as a dask array, after every chunk was looked at."""
    check_zarr_array(path, array, 0)
    rows = FileRows(path, Selection(), array.path, tuple(array.shape), array.dtype.newbyteorder("="))
    return as_dask(rows, _even(rows, (getattr(array, "shards", None) or array.chunks)[0]))
