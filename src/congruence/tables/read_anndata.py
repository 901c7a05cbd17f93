"""Readers of AnnData in .h5ad files and .zarr folders, and the door to plain .zarr folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.access import reading, require
from congruence.tables.columns import Selection, choose_columns
from congruence.tables.read_arrays import table_from_entries, zarr_entries
from congruence.tables.table import Table

DENSE_LIMIT = 8 * 2**30  # bytes; a sparse matrix larger than this when dense is refused
IDS_NOTE = "congruence_ids"  # the entry of .uns that says what obs_names were before AnnData made them text


def read_h5ad(path: Path, select: Selection) -> Table:
    """Read X, or one entry of obsm, with obs_names as ids and the columns of obs as metadata."""
    require("anndata", "h5ad", path)
    import h5py

    with reading(path):
        store = h5py.File(path, "r")
    with store:
        return _table_from_store(path, store, select)


def read_zarr(path: Path, select: Selection) -> Table:
    """Read a zarr array, a group of arrays, or an AnnData store."""
    zarr = require("zarr", "zarr", path)
    with reading(path):
        node = zarr.open(str(path), mode="r")
        is_anndata = node.attrs.get("encoding-type") == "anndata"
    if not is_anndata:
        return table_from_entries(path, zarr_entries(path, node), select)
    require("anndata", "h5ad", path)
    return _table_from_store(path, node, select)


def _table_from_store(path: Path, store: Any, select: Selection) -> Table:
    """Read only what is asked for from an opened AnnData store, HDF5 or zarr."""
    select.refuse(path, "metadata", because="AnnData keeps metadata apart already, in obs")
    matrix, features = _read_matrix(path, store, select)
    values = _dense(path, matrix)
    obs = _fetch(path, store, "obs")
    metadata = {str(name): _column(obs[name]) for name in obs.columns}
    if select.id is None:
        ids = _row_names(path, store, obs)
    elif select.id in metadata:
        ids = metadata.pop(select.id)
    else:
        there = listing(list(metadata), 10) or "none"
        raise TableError(f"{path} has no obs column {select.id!r} for --id; it has {there}")
    return Table(values, select.name, ids, metadata, features, path)


def _fetch(path: Path, store: Any, *keys: str) -> Any:
    """Read the element of the store that lies under `keys`."""
    try:
        from anndata.io import read_elem
    except ImportError:  # anndata 0.10
        from anndata.experimental import read_elem
    with reading(path):
        for key in keys:
            store = store[key]
        return read_elem(store)


def _read_matrix(path: Path, store: Any, select: Selection) -> tuple[Any, tuple[str, ...] | None]:
    """Read X or an entry of obsm, cut down to the chosen features."""
    key = select.key or "X"
    with reading(path):
        there = ["X"] * ("X" in store) + (sorted(store["obsm"]) if "obsm" in store else [])
    if key not in there:
        raise TableError(f"{path} has no matrix {key!r} (--key); it has {listing(there, 20) or 'none'}")
    if key == "X":
        matrix = _fetch(path, store, "X")
        names = _fetch(path, store, "var").index
    else:
        matrix = _fetch(path, store, "obsm", key)
        names = getattr(matrix, "columns", None)  # an entry of obsm may be a data frame
        matrix = matrix if names is None else matrix.to_numpy()
    if names is None:
        select.refuse(path, "features", because=f"the columns of obsm {key!r} have no names")
        return matrix, None
    features = tuple(str(name) for name in names)
    if select.features is None:
        return matrix, features
    chosen = choose_columns(dict.fromkeys(features, "number"), Selection(features=select.features), path).values
    where = {name: at for at, name in enumerate(features)}
    return matrix[:, [where[name] for name in chosen]], chosen


def _dense(path: Path, matrix: Any) -> Array:
    if not hasattr(matrix, "toarray"):
        return np.asarray(matrix)
    size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    if size > DENSE_LIMIT:
        raise TableError(
            f"{path}: the sparse matrix of shape {matrix.shape} would take {size / 2**30:.1f} GB when dense, "
            f"more than the {DENSE_LIMIT / 2**30:.0f} GB allowed; choose an embedding with --key or fewer "
            "columns with --features"
        )
    dense: Array = matrix.toarray()
    return dense


def _row_names(path: Path, store: Any, obs: Any) -> Array | None:
    """Return obs_names, as they were before AnnData made text of them where `write_table` noted it."""
    with reading(path):
        noted = "uns" in store and IDS_NOTE in store["uns"]
    note = str(_fetch(path, store, "uns", IDS_NOTE)) if noted else ""
    if note == "none":
        return None
    names = np.asarray(obs.index.astype(str), dtype=object)
    try:
        return names.astype(np.int64) if note == "integer" else names
    except ValueError:  # the rows were renamed since
        return names


def _column(series: Any) -> Array:
    """Return a column of obs as plain numpy; missing text and missing categories as None."""
    column = np.asarray(series)
    if column.dtype.kind in "biufMm":
        return column
    column = column.astype(object)
    column[np.asarray(series.isna())] = None
    return column
