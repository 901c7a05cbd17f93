"""What estimators share: reading X (array, tensor, memory map, dask array, path, chunks), affine maps and reprs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from congruence.arrays import (
    Float,
    as_matrix,
    check_finite,
    float64_beside,
    is_dask,
    is_tensor,
    like,
    listing,
    row_chunks,
    to_numpy,
)
from congruence.errors import InputError
from congruence.tables import Table, as_table, is_table
from congruence.tables.blocks import DaskRows, whole_rows
from congruence.tables.frames import is_frame, names_of
from congruence.tables.inputs import warn_of
from congruence.tables.memory import spill_chunks


def open_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a matrix (n, d) that can be read chunk by chunk, and again; check its width against the estimator's.

    Tensors stay tensors and memory maps stay maps. Paths, tables, data frames and AnnData objects are read by
    `as_table`, without their ids and metadata; after the fit, the columns of the fit are taken. An iterable of chunks,
    which can be read only once, is put into memory, or where it is large into a temporary file. A dask array stays
    where it is: `DaskRows` for a fit.
    """
    names = None
    if is_frame(X):
        X, names = _features_of(estimator, X, reset=reset)
    elif is_table(X):
        table = _table(estimator, X, reset=reset)
        X, names = table.values, table.features
    elif isinstance(X, Iterator):
        X = spill_chunks(X)
    elif hasattr(X, "to_dask_array"):
        raise InputError("X is a dask data frame; X.to_dask_array(lengths=True) gives its rows")
    elif is_dask(X):
        X = whole_rows(X) if reset or X.ndim != 2 else X.rechunk({1: -1})
    elif hasattr(X, "chunks") and hasattr(X, "ndim"):  # zarr, h5py
        X = spill_chunks(X[part] for part in row_chunks(*X.shape)) if X.ndim == 2 else X[...]
    if isinstance(X, np.ma.MaskedArray):  # check_array would take what is masked for a value
        X = to_numpy(X)
    if not is_tensor(X) and not is_dask(X) and not isinstance(X, np.memmap) and names is None:
        few = {"ensure_min_samples": 2} if reset else {}
        return validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], **few)
    # check_array would bring a tensor to the CPU, and count a map's NaNs in memory
    X = as_matrix(X, "X", finite=not reset and not is_dask(X))  # when fitting, the moments find what is not finite
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        if len(X) < 2:
            raise InputError("X has 1 sample, but at least 2 are needed")
    elif X.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    elif names is not None and list(getattr(estimator, "feature_names_in_", names)) != list(names):
        raise InputError(f"the columns of X ({listing(names)}) are not those of the fit, or not in their order")
    return DaskRows(X) if reset and is_dask(X) else X


def describe_estimator(estimator: Any, fitted: str) -> str:
    """Return a one-line repr: the parameters that differ from their defaults and, where it is fitted, the result."""
    defaults = type(estimator)().get_params()
    changed = {name: value for name, value in estimator.get_params().items() if not _same(value, defaults[name])}
    shown = ", ".join(
        f"{name}=array{np.shape(value)}" if np.ndim(value) else f"{name}={value!r}" for name, value in changed.items()
    )
    call = f"{type(estimator).__name__}({shown})"
    return f"<{call} fitted on {estimator.n_features_in_} columns: {fitted}>" if fitted else call


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.ndim(value) == 0 and type(value) is type(default) and value == default)


def _features_of(estimator: Any, X: Any, *, reset: bool) -> tuple[Any, tuple[str, ...] | None]:
    """The columns of a data frame that are features, as a frame where scikit-learn can check their names."""
    table = _table(estimator, X, reset=reset)
    columns = names_of(X)
    if list(table.features or ()) == columns and not hasattr(X, "column_names"):  # scikit-learn knows no arrow tables
        return X, None
    if hasattr(X, "iloc") and set(table.features or ()) <= set(columns):
        return X.iloc[:, [columns.index(name) for name in table.features or ()]], None
    return table.values, table.features


def _table(estimator: Any, X: Any, *, reset: bool) -> Table:
    table = as_table(X, name="X", features=None if reset else _fitted_names(estimator, X))
    if reset:
        warn_of(table.notes)
    return table


def _fitted_names(estimator: Any, X: Any) -> list[str] | None:
    """The columns of the fit, if X has names and all of these are among them."""
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    if isinstance(X, Table):
        there = X.features or ()
    elif is_frame(X):
        there = tuple(names_of(X))
    else:
        return None
    return names if names and set(names) <= set(there) else None


def as_components(X: Any, k: int) -> Any:
    """Check that X has k columns, one per component, and return it."""
    X = as_matrix(X.rechunk({1: -1}) if is_dask(X) and X.ndim == 2 else X, "X", finite=not is_dask(X))
    if X.shape[1] != k:
        raise InputError(f"X has {X.shape[1]} columns, but there are {k} components")
    return X


def affine(x: Any, before: Float, matrix: Float, after: Float) -> Any:
    """(x - before) @ matrix + after, computed in float64 chunk by chunk; the kind, device and dtype of x are kept."""
    if is_dask(x):
        return _lazily_affine(x, before, matrix, after)
    if is_tensor(x):
        before, matrix, after = (float64_beside(part, x) for part in (before, matrix, after))
        return like((float64_beside(x, x) - before) @ matrix + after, x)
    floating = x.dtype if np.issubdtype(x.dtype, np.floating) else np.float64
    out = np.empty((len(x), matrix.shape[1]), floating)
    for part in row_chunks(len(x), max(matrix.shape)):
        out[part] = (x[part].astype(np.float64) - before) @ matrix + after
    return out


def _lazily_affine(x: Any, before: Float, matrix: Float, after: Float) -> Any:
    floating = x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.float64)
    chunks = (x.chunks[0], (matrix.shape[1],))
    return x.map_blocks(
        _affine_block, before, matrix, after, chunks=chunks, dtype=floating, meta=np.empty((0, 0), floating)
    )


def _affine_block(rows: Any, before: Float, matrix: Float, after: Float, block_info: Any = None) -> Any:
    first = block_info[0]["array-location"][0][0] if block_info else 0
    check_finite(rows, "X", first=None if np.isnan(first) else int(first))
    return affine(rows, before, matrix, after)
