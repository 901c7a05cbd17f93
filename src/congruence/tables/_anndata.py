"""AnnData: .h5ad files, .zarr stores and objects in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.checks import require
from congruence.errors import TableError
from congruence.memory import check_fits, load_matrix, spills
from congruence.tables._hdf5 import inspection
from congruence.tables.columns import Selection, choose_features
from congruence.tables.table import Table

IDS_NOTE = "congruence_ids"  # the entry of .uns that records what obs_names were before AnnData made them text


def parts_of(key: str | None) -> list[str]:
    """Return the elements of an AnnData store that make a table with the matrix `key`."""
    return [*(["X", "var"] if key in (None, "X") else [f"obsm/{key}"]), "obs", f"uns/{IDS_NOTE}"]


def read_h5ad(path: Path, select: Selection) -> Table:
    """Read X, or one entry of obsm, with obs_names as ids and the columns of obs as metadata."""
    with inspection(path, parts_of(select.key)):
        require("anndata", str(path), "h5ad")  # which takes longer than the inspection
    import h5py

    with h5py.File(path, "r") as store:
        return table_from_store(path, store, select)


def table_from_store(path: Path, store: Any, select: Selection) -> Table:
    """Read the chosen matrix, obs and ids from an open AnnData store, HDF5 or zarr."""
    known = ["X"] * ("X" in store) + (sorted(store["obsm"]) if "obsm" in store else [])
    key = _check_key(path, select, known)
    matrix = _fetch(path, store, *(["X"] if key == "X" else ["obsm", key]))
    if hasattr(matrix, "check_format"):  # scipy follows the indices of a sparse matrix unchecked
        if bool((np.diff(matrix.indptr) < 0).any()):  # which check_format misses where the last entry is 0
            raise ValueError("the index pointer of its sparse matrix decreases")
        matrix.check_format(full_check=True)
    names = _fetch(path, store, "var").index if key == "X" else None
    obs = _fetch(path, store, "obs")
    return _build(path, select, known, matrix, names, obs, _row_names(path, store, obs), path)


def table_from_anndata(data: Any, select: Selection, where: str) -> Table:
    """Read X, one entry of obsm, or a layer of an AnnData object."""
    known = ["X"] * (data.X is not None) + sorted(data.obsm)
    key = _check_key(where, select, known, sorted(data.layers))
    matrix = data.X if key == "X" else data.obsm[key] if key in known else data.layers[key]
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix  # a sparse matrix in a file
    names = data.var_names if key == "X" or key not in known else None
    return _build(where, select, known, matrix, names, data.obs, np.asarray(data.obs_names, dtype=object))


def _check_key(where: Path | str, select: Selection, known: list[str], layers: Sequence[str] = ()) -> str:
    select.refuse(where, "metadata", because="AnnData stores metadata separately, in obs")
    key = select.key or "X"
    if key not in (*known, *layers):
        raise TableError(f"{where} has no matrix {key!r} (--key); it has {listing([*known, *layers], 20) or 'none'}")
    return key


def _build(
    where: Path | str,
    select: Selection,
    known: list[str],
    matrix: Any,
    names: Any,
    obs: Any,
    ids: Array | None,
    path: Path | None = None,
) -> Table:
    """Build a table from a matrix with the names of its columns, restricted to the chosen features, and obs."""
    if names is None and hasattr(matrix, "columns"):  # an entry of obsm may be a data frame
        names, matrix = matrix.columns, matrix.to_numpy()
    features = None if names is None else tuple(str(name) for name in names)
    if features is None:
        select.refuse(where, "features", because=f"the columns of obsm {select.key!r} have no names")
    elif select.features is not None:
        place = {name: at for at, name in enumerate(features)}
        features = choose_features(features, select.features, where)
        matrix = matrix[:, [place[name] for name in features]]
    if hasattr(matrix, "toarray"):
        size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
        what = f"the sparse matrix of shape {matrix.shape} when dense"
        check_fits(
            where, size, what, "; choose an embedding with key (--key) or fewer columns with features (--features)"
        )
        matrix = matrix.toarray()
    metadata = {str(name): _column(obs[name]) for name in obs.columns}
    if select.id is not None:
        if select.id not in metadata:
            columns = listing(list(metadata), 10) or "none"
            raise TableError(f"{where} has no obs column {select.id!r} for id (--id); it has {columns}")
        ids = metadata.pop(select.id)
    table = Table(np.asarray(matrix), select.name or str(where), ids, metadata, features, path, id_name=select.id)
    if select.key is not None or len(known) < 2:
        return table
    return replace(
        table, notes=(f"The matrix X is used; obsm also has {listing(known[1:])}: choose with key (--key).",)
    )


def _fetch(path: Path, store: Any, *keys: str) -> Any:
    """Read the element of the store under `keys`."""
    from anndata.io import read_elem

    for key in keys:
        store = store[key]
    about = dict(store.attrs) if hasattr(store, "attrs") else {}
    names = [about.get("_index", ""), *np.ravel(about.get("column-order", ()))]
    if outside := [str(name) for name in names if "/" in str(name)]:
        raise TableError(f"{path}: the columns {listing(outside)} are not in {keys[-1]} itself")
    return load_matrix(store, path) if hasattr(store, "dtype") and spills(store) else read_elem(store)


def _row_names(path: Path, store: Any, obs: Any) -> Array | None:
    """Return obs_names, converted back if `write_table` recorded that they were not text."""
    recorded = "uns" in store and IDS_NOTE in store["uns"]
    kind = str(_fetch(path, store, "uns", IDS_NOTE)) if recorded else ""
    if kind == "none":
        return None
    names = np.asarray(obs.index.astype(str), dtype=object)
    try:
        return names.astype(np.int64) if kind == "integer" else names
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
