"""`Aligner`: fitting a map as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from congruence.arrays import Float, to_numpy
from congruence.errors import InputError
from congruence.ica._linear import open_rows
from congruence.maps.groups import fit_map
from congruence.tables import as_paired, as_table, is_table, join_two


class Aligner(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Map the rows of X onto the rows of y by the least-squares map of a group.

    Solves min_h sum_i |h(x_i) - y_i|^2 over h in the group. The narrower side is zero-padded, so transformed rows
    have max(d_X, d_y) columns.

    Parameters
    ----------
    group : {"identity", "permutation", "rigid", "similarity", "ridge", "linear"}
        The group of maps, from small to large; for "ridge" a penalty is chosen, see `fit_map`.

    Attributes
    ----------
    map_ : Map
        The fitted map; callable, with `inverse` and `save`.
    n_features_in_ : int
        The number of columns of X.

    Examples
    --------
    >>> import numpy as np
    >>> from congruence import Aligner
    >>> y = np.random.default_rng(0).normal(size=(50, 3))
    >>> x = 2 * y[:, ::-1] + 1
    >>> round(Aligner("similarity").fit(x, y).score(x, y), 6)
    1.0
    """

    def __init__(self, group: str = "similarity"):
        self.group = group

    def fit(self, X: Any, y: Any) -> Aligner:
        """Fit the map from paired rows X, shape (n, d_X), and y, shape (n, d_y) or (n,).

        Arrays are paired by position; data frames, tables and paths are joined by id.
        """
        names = None
        if is_table(X) or is_table(y):
            joined = join_two(X, y if is_table(y) else _columns(to_numpy(y)), ("X", "y"))
            named = all(isinstance(one, str) for one in getattr(X, "columns", ()))  # scikit-learn knows no other names
            (X, y), names = joined.values, joined.features[0] if named else None
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=[np.float64, np.float32])
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.map_ = fit_map(X, _columns(y), self.group)
        self._n_features_out = self.map_.width
        return self

    def transform(self, X: Any) -> Float:
        """Map the rows of X, shape (n, d_X), into the space of y: shape (n, max(d_X, d_y))."""
        check_is_fitted(self)
        mapped: Float = self.map_(open_rows(self, X, reset=False))
        return mapped

    def inverse_transform(self, X: Any) -> Float:
        """Map rows of the target space back to the space of X: shape (n, max(d_X, d_y)). Linear maps may refuse."""
        check_is_fitted(self)
        back: Float = self.map_.inverse()(check_array(X, dtype=[np.float64, np.float32]))
        return back

    def score(self, X: Any, y: Any) -> float:
        """The share of y's variance that the mapped X explains (R squared): 1 is perfect, higher is better."""
        if is_table(X) or is_table(y):
            check_is_fitted(self)
            names = getattr(self, "feature_names_in_", None)
            table = as_table(X, name="X", features=None if names is None else list(names)) if is_table(X) else X
            X, y = as_paired(table, y if is_table(y) else _columns(to_numpy(y)), ("X", "y"))
            mapped = self.map_(to_numpy(X))
        else:
            mapped = self.transform(X)
        y = _columns(check_array(y, ensure_2d=False, dtype=np.float64))
        check_consistent_length(mapped, y)
        if y.shape[1] > mapped.shape[1]:
            raise InputError(f"y must have at most {mapped.shape[1]} columns, the width of the map; got {y.shape[1]}")
        miss = mapped - np.pad(y, ((0, 0), (0, mapped.shape[1] - y.shape[1])))
        variance = np.square(y - y.mean(0)).sum()
        return float(1 - np.square(miss).sum() / variance) if variance > 0 else float("nan")

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the transformed columns: aligner0, aligner1, ..."""
        check_is_fitted(self)
        return np.asarray([f"aligner{i}" for i in range(self.map_.width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _columns(y: Any) -> Any:
    return y.reshape(-1, 1) if y.ndim == 1 else y
