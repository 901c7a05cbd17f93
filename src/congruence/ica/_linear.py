"""How estimators read X, and the base of estimators that map rows linearly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from congruence.arrays import as_matrix, is_dask, is_tensor, listing, row_chunks, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.memory import spill_chunks
from congruence.rows.blocks import DaskRows, whole_rows
from congruence.rows.engine import map_rows, unit_rows
from congruence.tables import Table, as_table, is_table
from congruence.tables.inputs import warn_of
from congruence.tables.table import is_frame, names_of


def open_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a matrix (n, d) that can be read in chunks, several times; check its width against the estimator's.

    Tensors stay tensors and memory maps stay maps. Paths, tables, data frames and AnnData objects are read by
    `as_table`, without their ids and metadata; after the fit, the columns of the fit are taken. An iterator of chunks,
    which can be read only once, is copied into memory or, if it is large, into a temporary file. A dask array stays
    lazy; for a fit it becomes `DaskRows`. Rows for a fit of an estimator with ``normalize="cosine"`` are scaled to
    unit length.
    """
    if not reset:
        return _open_rows(estimator, X, reset=False)
    normalize = check_choice("normalize", getattr(estimator, "normalize", None), (None, "cosine"))
    X = _open_rows(estimator, X, reset=True)
    X = unit_rows(X) if normalize else X
    return DaskRows(X) if is_dask(X) else X


def _open_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    names = None
    if isinstance(X, np.ndarray):
        X = to_numpy(X) if isinstance(X, np.ma.MaskedArray) else X  # check_array ignores the mask
    elif is_table(X):
        table = as_table(X, name="X", features=None if reset else _fitted_names(estimator, X))
        if reset:
            warn_of(table.notes)
        X, names = _features_of(X, table)
    elif isinstance(X, Iterator):
        X = spill_chunks(X)
    elif hasattr(X, "to_dask_array"):
        raise InputError("X is a dask data frame; X.to_dask_array(lengths=True) returns its rows")
    elif is_dask(X):
        X = whole_rows(X) if reset or X.ndim != 2 else X.rechunk({1: -1})
    elif hasattr(X, "chunks") and hasattr(X, "ndim"):  # zarr, h5py
        X = spill_chunks(X[part] for part in row_chunks(*X.shape)) if X.ndim == 2 else X[...]
    if not is_tensor(X) and not is_dask(X) and not isinstance(X, np.memmap) and names is None:
        few = {"ensure_min_samples": 2} if reset else {}
        return validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], **few)
    # check_array would copy a tensor to the CPU, and search a whole map for NaN, which the moments of a fit find
    X = as_matrix(X, "X", finite=not reset and not is_dask(X))
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


def _fitted_names(estimator: Any, X: Any) -> list[str] | None:
    """The columns of the fit, if X has names and all of these are among them."""
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    there = (X.features or ()) if isinstance(X, Table) else names_of(X) if is_frame(X) else ()
    return names if names and set(names) <= set(there) else None


def _features_of(X: Any, table: Table) -> tuple[Any, tuple[str, ...] | None]:
    """The features of a table and their names; of a pandas frame as a frame, whose names scikit-learn checks."""
    features = list(table.features or ())
    if is_frame(X):
        columns = names_of(X)
        if features == columns and not hasattr(X, "column_names"):  # scikit-learn knows no arrow tables
            return X, None
        if hasattr(X, "iloc") and set(features) <= set(columns):
            return X.iloc[:, [columns.index(name) for name in features]], None
    return table.values, table.features


class LinearEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of estimators that map rows to (X - mean_) @ matrix.T and back; `_maps` names the two matrices."""

    _maps: tuple[str, str]  # attributes of shape (k, d) and (d, k)
    _scale_rows = False  # to unit length, before the map

    def transform(self, X: Any) -> Any:
        """Map rows X, shape (n, d), to shape (n, k); dtype and device are kept, and dask arrays stay lazy."""
        check_is_fitted(self)
        X, matrix = open_rows(self, X, reset=False), getattr(self, self._maps[0])
        return map_rows(X, self.mean_, matrix.T, np.zeros(len(matrix)), scale_rows=self._scale_rows)

    def inverse_transform(self, X: Any) -> Any:
        """Map transformed rows, shape (n, k), back to shape (n, d); directions that were not kept are at their mean."""
        check_is_fitted(self)
        back = getattr(self, self._maps[1])
        X = as_matrix(X.rechunk({1: -1}) if is_dask(X) and X.ndim == 2 else X, "X", finite=not is_dask(X))
        if X.shape[1] != back.shape[1]:
            raise InputError(f"X has {X.shape[1]} columns, but there are {back.shape[1]} components")
        return map_rows(X, np.zeros(back.shape[1]), back.T, self.mean_)

    def _summary(self) -> str:
        """What was fitted, in a few words."""
        raise NotImplementedError

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        defaults = type(self)().get_params()
        changed = {name: value for name, value in self.get_params().items() if not _same(value, defaults[name])}
        listed = [f"{k}=array{np.shape(v)}" if np.ndim(v) else f"{k}={v!r}" for k, v in changed.items()]
        call = f"{type(self).__name__}({', '.join(listed)})"
        fitted = self.__sklearn_is_fitted__()
        return f"<{call} fitted on {self.n_features_in_} columns: {self._summary()}>" if fitted else call

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._maps[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.ndim(value) == 0 and type(value) is type(default) and value == default)
