"""Reader of AnnData in .h5ad files, and of what a .zarr folder shares with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.access import reading, require
from congruence.tables.columns import Selection, choose_columns
from congruence.tables.inspect_h5ad import inspection
from congruence.tables.memory import check_fits
from congruence.tables.spill import load_matrix, spills
from congruence.tables.table import Table

IDS_NOTE = "congruence_ids"  # the entry of .uns that says what obs_names were before AnnData made them text
DEPTH = 2  # levels of groups: a data frame, and a column of categories in it


def parts_of(key: str | None) -> list[str]:
    """Return the places in an AnnData store that a table is made of, when `key` is its matrix."""
    return [*(["X", "var"] if key in (None, "X") else [f"obsm/{key}"]), "obs", f"uns/{IDS_NOTE}"]


def read_h5ad(path: Path, select: Selection) -> Table:
    """Read X, or one entry of obsm, with obs_names as ids and the columns of obs as metadata."""
    with inspection(path, parts_of(select.key), DEPTH):
        require("anndata", "h5ad", path)  # which takes longer than the inspection
    import h5py

    with h5py.File(path, "r") as store:
        return table_from_store(path, store, select)


def table_from_store(path: Path, store: Any, select: Selection) -> Table:
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
        return load_matrix(store, path) if hasattr(store, "dtype") and spills(store) else read_elem(store)


def _read_matrix(path: Path, store: Any, select: Selection) -> tuple[Any, tuple[str, ...] | None]:
    """Read X or an entry of obsm, cut down to the chosen features."""
    key = select.key or "X"
    with reading(path):
        there = ["X"] * ("X" in store) + (sorted(store["obsm"]) if "obsm" in store else [])
    if key not in there:
        raise TableError(f"{path} has no matrix {key!r} (--key); it has {listing(there, 20) or 'none'}")
    if key == "X":
        matrix = _checked(_fetch(path, store, "X"))
        names = _fetch(path, store, "var").index
    else:
        matrix = _checked(_fetch(path, store, "obsm", key))
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


def _checked(matrix: Any) -> Any:
    """Return a matrix, once a sparse one is known to be consistent: scipy follows its indices unchecked."""
    if hasattr(matrix, "check_format"):
        if bool((np.diff(matrix.indptr) < 0).any()):  # which scipy overlooks where the last entry is 0
            raise ValueError("the index of its sparse matrix goes backwards")
        matrix.check_format(full_check=True)
    return matrix


def _dense(path: Path, matrix: Any) -> Array:
    if not hasattr(matrix, "toarray"):
        return np.asarray(matrix)
    size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    what = f"the sparse matrix of shape {matrix.shape} when dense"
    check_fits(path, size, what, "; choose an embedding with --key or fewer columns with --features")
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
