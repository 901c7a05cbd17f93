"""Reader of .zarr folders: an array, a group of arrays, or an AnnData store."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import TableError
from congruence.tables.access import require
from congruence.tables.columns import Selection
from congruence.tables.memory import check_fits
from congruence.tables.read_anndata import DEPTH, parts_of, table_from_store
from congruence.tables.read_arrays import VALUES, Entry, table_from_entries
from congruence.tables.spill import load_matrix, spills
from congruence.tables.table import Table
from congruence.tables.zarr_chunks import check_zarr_array


def read_zarr(path: Path, select: Selection, load_matrix: Callable[[Path, Any], Any] | None = None) -> Table:
    """Read a zarr array, a group of arrays, or an AnnData store; `load_matrix` may leave matrices where they are."""
    zarr = require("zarr", "zarr", path)
    hush_loop()
    node = zarr.open(str(path), mode="r")
    if node.attrs.get("encoding-type") != "anndata":
        arrays = dict(node.arrays()) if hasattr(node, "arrays") else {VALUES: node}
        return table_from_entries(
            path, {name: _entry(path, array, load_matrix) for name, array in arrays.items()}, select
        )
    require("anndata", "h5ad", path)
    parts = [node[part] for part in parts_of(select.key) if part in node]
    check_fits(path, sum(_inspect(path, part, DEPTH) for part in parts))
    return table_from_store(path, node, select)


def open_zarr_array(path: Path, name: str) -> Any:
    """Open an array of a store, whose chunks were looked at before; an array that is the store itself has no name."""
    zarr = require("zarr", "zarr", path)
    hush_loop()
    node = zarr.open(str(path), mode="r")
    return node[name] if name else node


def hush_loop() -> None:
    """Keep zarr's event loop from printing what became of the tasks it gave up on; the first failure is raised."""
    with contextlib.suppress(ImportError, AttributeError):  # not part of zarr's promises
        from zarr.core.sync import _get_loop

        _get_loop().set_exception_handler(lambda loop, context: None)


def _entry(path: Path, array: Any, load_matrix: Callable[[Path, Any], Any] | None) -> Entry:
    if load_matrix is not None and array.ndim == 2 and array.dtype.kind in "fiu" and 0 not in array.shape:
        return Entry(tuple(array.shape), partial(load_matrix, path, array))
    size = 0 if spills(array) else _size(array)
    return Entry(tuple(array.shape), partial(_load, path, array, size), size)


def _load(path: Path, array: Any, size: int) -> Array:
    check_zarr_array(path, array, size)
    return load_matrix(array, path) if spills(array) else np.asarray(array[...])


def _size(array: Any) -> int:
    return int(array.dtype.itemsize * math.prod(array.shape))


def _inspect(path: Path, node: Any, depth: int) -> int:
    """Look at every array under a node before AnnData reads it; return the bytes of memory they take."""
    if not hasattr(node, "arrays"):
        return check_zarr_array(path, node, _size(node))
    if depth == 0:
        raise TableError(f"{path} is no AnnData store: {node.path} has groups within groups")
    return sum(_inspect(path, member, depth - 1) for _, member in node.members())
