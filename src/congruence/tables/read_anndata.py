"""Reader of AnnData in .h5ad files, and of what a .zarr folder shares with them."""

from __future__ import annotations

from dataclasses import replace
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
    with reading(path):
        there = ["X"] * ("X" in store) + (sorted(store["obsm"]) if "obsm" in store else [])
    key = _check_key(path, select, there)
    matrix = _checked(_fetch(path, store, *(["X"] if key == "X" else ["obsm", key])))
    names = _fetch(path, store, "var").index if key == "X" else None
    obs = _fetch(path, store, "obs")
    table = _assembled(path, select, matrix, names, obs, _row_names(path, store, obs), path)
    return _with_choice_noted(table, select, there)


def table_from_anndata(data: Any, select: Selection, where: str) -> Table:
    """Read X, or one entry of obsm, of an AnnData object."""
    there = ["X"] * (data.X is not None) + sorted(data.obsm)
    key = _check_key(where, select, there)
    matrix = data.X if key == "X" else data.obsm[key]
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix  # a sparse matrix in a file
    names = data.var_names if key == "X" else None
    table = _assembled(where, select, matrix, names, data.obs, np.asarray(data.obs_names, dtype=object))
    return _with_choice_noted(table, select, there)


def _with_choice_noted(table: Table, select: Selection, there: list[str]) -> Table:
    """Say that X was taken where nobody chose and there are embeddings, too."""
    if select.key is not None or len(there) < 2:
        return table
    note = f"The matrix X is used; obsm also has {listing(there[1:], 5)}: choose with key (--key)."
    return replace(table, notes=(*table.notes, note))


def _check_key(where: Path | str, select: Selection, there: list[str]) -> str:
    select.refuse(where, "metadata", because="AnnData keeps metadata apart already, in obs")
    key = select.key or "X"
    if key not in there:
        raise TableError(f"{where} has no matrix {key!r} (--key); it has {listing(there, 20) or 'none'}")
    return key


def _assembled(
    where: Path | str, select: Selection, matrix: Any, names: Any, obs: Any, ids: Array | None, path: Path | None = None
) -> Table:
    """The table of a matrix with the names of its columns, cut down to the chosen features, and obs."""
    if names is None and hasattr(matrix, "columns"):  # an entry of obsm may be a data frame
        names, matrix = matrix.columns, matrix.to_numpy()
    features = None if names is None else tuple(str(name) for name in names)
    if features is None:
        select.refuse(where, "features", because=f"the columns of obsm {select.key!r} have no names")
    elif select.features is not None:
        only = Selection(features=select.features)
        place = {name: at for at, name in enumerate(features)}
        features = choose_columns(dict.fromkeys(features, "number"), only, where).values
        matrix = matrix[:, [place[name] for name in features]]
    values = _dense(where, matrix)
    metadata = {str(name): _column(obs[name]) for name in obs.columns}
    if select.id is not None:
        if select.id not in metadata:
            there = listing(list(metadata), 10) or "none"
            raise TableError(f"{where} has no obs column {select.id!r} for --id; it has {there}")
        ids = metadata.pop(select.id)
    return Table(values, select.name or str(where), ids, metadata, features, path)


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


def _checked(matrix: Any) -> Any:
    """Return a matrix, once a sparse one is known to be consistent: scipy follows its indices unchecked."""
    if hasattr(matrix, "check_format"):
        if bool((np.diff(matrix.indptr) < 0).any()):  # which scipy overlooks where the last entry is 0
            raise ValueError("the index of its sparse matrix goes backwards")
        matrix.check_format(full_check=True)
    return matrix


def _dense(path: Path | str, matrix: Any) -> Array:
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
