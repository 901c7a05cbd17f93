"""`Whitener`: whitening as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from congruence.arrays import is_dask
from congruence.errors import InputError
from congruence.ica.opening import as_components, describe_estimator, open_rows
from congruence.ica.whiten import whitening
from congruence.rows.engine import Moments, map_rows, row_moments


class Whitener(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Whiten rows: unit variance, no correlations.

    Finds a matrix W with W S W^T = 1, S the population covariance of X, on the directions that vary by more than
    rounding. Sums are float64 whatever X is stored in, and X may be larger than memory.

    Parameters
    ----------
    method : {"pca", "zca", "cholesky", "pca-cor", "zca-cor"}
        Which whitening. "pca" gives principal components of unit variance, the largest first. "zca" stays as close to X
        as a whitening can and has as many columns. "cholesky" subtracts from each column what earlier ones predict. The
        "-cor" methods scale every column to unit variance first, so that the units of a column do not matter.
    n_components : int, float or None
        Directions to keep: so many, the fewest with this share (below 1) of the variance, or all that are more than
        rounding. "zca" then projects onto them.
    shrinkage : float or "auto"
        0 uses the sample covariance, 1 a multiple of the identity; in between, small directions are amplified less.
        "auto" chooses by Chen et al. 2010 (OAS).

    Attributes
    ----------
    mean_ : (d,)
    whitening_ : (k, d)
        The matrix W.
    inverse_ : (d, k)
        Maps whitened rows back.
    rank_ : int
        Directions that vary by more than rounding.
    variances_ : (rank_,)
        Variances along the principal axes, falling.
    shrinkage_ : float
        The shrinkage used.
    n_samples_seen_ : int

    References
    ----------
    Kessy, Lewin & Strimmer 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from congruence import Whitener
    >>> x = np.random.default_rng(0).normal(size=(500, 3)) @ [[2, 1, 0], [0, 1, 0], [0, 0, 9]] + 5
    >>> z = Whitener("zca").fit_transform(x)
    >>> bool(np.allclose(np.cov(z, rowvar=False, bias=True), np.eye(3)))
    True
    """

    def __init__(self, method: str = "pca", *, n_components: int | float | None = None, shrinkage: float | str = 0.0):
        self.method = method
        self.n_components = n_components
        self.shrinkage = shrinkage

    def fit(self, X: Any, y: Any = None) -> Whitener:
        """Fit to the rows of X, shape (n, d): anything that `as_table` takes, or an iterator of chunks."""
        data = open_rows(self, X, reset=True)
        again = partial(row_moments, data, "cpu", None)
        self._moments = again()
        return self._finish(again)

    def partial_fit(self, X: Any, y: Any = None) -> Whitener:
        """Take in the rows of one more chunk X, shape (m, d); call it with chunk after chunk."""
        if is_dask(X):
            raise InputError(
                "partial_fit takes chunks that are in memory; give a dask array to fit, which takes it whole"
            )
        first = not hasattr(self, "_moments")
        data = open_rows(self, X, reset=first)
        self._moments = (Moments.empty(data.shape[1]) if first else self._moments).update(data)
        return self._finish(None)

    def _finish(self, again: Any) -> Whitener:
        found = whitening(self._moments, self.method, self.n_components, self.shrinkage, again)
        self.mean_, self.whitening_, self.inverse_ = found.mean, found.matrix, found.inverse
        self.rank_, self.variances_, self.shrinkage_ = found.rank, found.variances, found.shrinkage
        self.n_samples_seen_ = self._moments.n
        self._n_features_out = len(found.matrix)
        return self

    def transform(self, X: Any) -> Any:
        """Whiten the rows of X, shape (n, d), to shape (n, k); tensors stay on their device, dask arrays lazy."""
        check_is_fitted(self)
        X = open_rows(self, X, reset=False)
        return map_rows(X, self.mean_, self.whitening_.T, np.zeros(len(self.whitening_)))

    def inverse_transform(self, X: Any) -> Any:
        """Map whitened rows, shape (n, k), back to shape (n, d); directions that were not kept are at their mean."""
        check_is_fitted(self)
        return map_rows(
            as_components(X, len(self.whitening_)), np.zeros(len(self.whitening_)), self.inverse_.T, self.mean_
        )

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        known = self.__sklearn_is_fitted__()
        return describe_estimator(self, f"{len(self.whitening_)} of {self.rank_} directions kept" if known else "")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "whitening_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
