"""`Whitener`: whitening as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from typing import Any

from congruence.arrays import is_dask
from congruence.errors import InputError
from congruence.ica._linear import LinearEstimator, open_rows
from congruence.ica._whitening import fit_whitening
from congruence.rows.engine import Moments, row_moments


class Whitener(LinearEstimator):
    """Whiten rows: unit variance, no correlations.

    Finds a matrix W with W S W^T = 1, S the population covariance of X, on the directions that vary by more than
    rounding. Sums are float64 whatever X is stored in, and X may be larger than memory.

    Parameters
    ----------
    method : {"pca", "zca", "cholesky", "pca-cor", "zca-cor"}
        Which whitening. "pca" returns principal components of unit variance, the largest first. "zca" is the whitening
        closest to X, with as many columns. "cholesky" subtracts from each column what earlier ones predict. The "-cor"
        methods scale every column to unit variance first, so that the units of a column do not matter.
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

    _maps = ("whitening_", "inverse_")

    def __init__(self, method: str = "pca", *, n_components: int | float | None = None, shrinkage: float | str = 0.0):
        self.method = method
        self.n_components = n_components
        self.shrinkage = shrinkage

    def fit(self, X: Any, y: Any = None) -> Whitener:
        """Fit to the rows of X, shape (n, d): anything that `as_table` takes, or an iterator of chunks."""
        data = open_rows(self, X, reset=True)
        reread = partial(row_moments, data, "cpu", None)
        self._moments = reread()
        return self._finish(reread)

    def partial_fit(self, X: Any, y: Any = None) -> Whitener:
        """Include the rows of one more chunk X, shape (m, d)."""
        if is_dask(X):
            raise InputError("partial_fit takes chunks that are in memory; use fit for a dask array")
        first = not hasattr(self, "_moments")
        data = open_rows(self, X, reset=first)
        self._moments = (Moments.empty(data.shape[1]) if first else self._moments).update(data)
        return self._finish(None)

    def _finish(self, reread: Any) -> Whitener:
        whitening = fit_whitening(self._moments, self.method, self.n_components, self.shrinkage, reread)
        self.mean_, self.whitening_, self.inverse_ = whitening.mean, whitening.matrix, whitening.inverse
        self.rank_, self.variances_, self.shrinkage_ = whitening.rank, whitening.variances, whitening.shrinkage
        self.n_samples_seen_ = self._moments.n
        self._n_features_out = len(whitening.matrix)
        return self

    def _summary(self) -> str:
        return f"{len(self.whitening_)} of {self.rank_} directions kept"
