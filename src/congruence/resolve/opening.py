"""The rows an estimator is given (array, tensor, memory map, path, chunks) as one matrix that can be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from congruence.arrays import Float, as_matrix, float64_beside, is_tensor, like, listing, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.tables import read_table
from congruence.tables.spill import spill_chunks


def open_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a matrix (n, d) that can be read chunk by chunk, and again; check its width against the estimator's.

    Tensors stay tensors and memory maps stay maps. A path is read as an embedding table. An iterable of chunks, which
    can be read only once, is put into memory, or where it is large into a temporary file.
    """
    names = None
    if isinstance(X, (str, os.PathLike)):
        table = read_table(Path(X))
        X, names = table.values, table.features
    elif isinstance(X, Iterator):
        X = spill_chunks(X)
    elif hasattr(X, "chunks") and hasattr(X, "ndim") and not hasattr(X, "__dask_graph__"):  # zarr, h5py
        X = spill_chunks(X[part] for part in row_chunks(*X.shape)) if X.ndim == 2 else X[...]
    if isinstance(X, np.ma.MaskedArray):  # check_array would take what is masked for a value
        X = to_numpy(X)
    if not is_tensor(X) and not isinstance(X, np.memmap) and names is None:
        few = {"ensure_min_samples": 2} if reset else {}
        return validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], **few)
    # check_array would bring a tensor to the CPU, and count a map's NaNs in memory
    X = as_matrix(X, "X", finite=not reset)  # when fitting, the moments find what is not finite
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
    return X


def as_components(X: Any, k: int) -> Any:
    """Check that X has k columns to lead back from, and return it."""
    X = as_matrix(X, "X")
    if X.shape[1] != k:
        raise InputError(f"X has {X.shape[1]} columns, but there are {k} components to lead back from")
    return X


def affine(x: Any, before: Float, matrix: Float, after: Float) -> Any:
    """(x - before) @ matrix + after, computed in float64 chunk by chunk; the kind, device and dtype of x are kept."""
    if is_tensor(x):
        before, matrix, after = (float64_beside(part, x) for part in (before, matrix, after))
        return like((float64_beside(x, x) - before) @ matrix + after, x)
    floating = x.dtype if np.issubdtype(x.dtype, np.floating) else np.float64
    out = np.empty((len(x), matrix.shape[1]), floating)
    for part in row_chunks(len(x), max(matrix.shape)):
        out[part] = (x[part].astype(np.float64) - before) @ matrix + after
    return out
