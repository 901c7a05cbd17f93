"""`ICA`: independent components as a scikit-learn estimator, and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from congruence._saved import read_saved, write_saved
from congruence.errors import CongruenceWarning, InputError, warn_caller
from congruence.ica._linear import LinearEstimator, open_rows
from congruence.ica._unmixing import MAX_ITER
from congruence.ica.components import (
    STARTS,
    TOLERANCE,
    Components,
    fewer_than_requested,
    independent_components,
    warn_unless_converged,
)

ARRAYS = ("mean_", "components_", "mixing_", "negentropy_", "skewness_", "kurtosis_", "sampling_error_", "identified_")
FITTED = ("n_components", "contrast", "whiten", "standardize", "starts", "check", "rows", "tol", "max_iter", "device")
OPTIONAL = ("agreement_", "returned_", "variances_", "changes_", "gradients_")


class ICA(LinearEstimator):
    """Independent component analysis that converges, with components in a reproducible order and sign.

    Whitens X and finds the rotation with a stationary point of sum_i sign_i E[G(s_i)], every component pushed away from
    the Gaussian, sub- and super-Gaussian sources at once. Rows are multiplied in float32; everything of size k x k is
    float64. Order and signs are canonical: two fits of the same rows from different starts have the same
    `components_` where `identified_` is True, up to what the given number of starts can detect.

    Parameters
    ----------
    n_components : int, float or None
        Directions to keep in the whitening: so many, the fewest with this share (below 1) of the variance, or all that
        vary by more than rounding.
    contrast : {"logcosh", "exp", "cube"}
        Measure of the distance from Gaussian. "logcosh" is robust; "exp" is for very heavy tails; "cube" is kurtosis.
    whiten : bool
        False takes the rows as they are, neither centred nor scaled, and only rotates them.
    standardize : bool
        Scale columns to unit variance before whitening, so that the units of a column do not matter. Whitening undoes
        every invertible linear map, so this changes only which directions are kept: those of the correlation matrix
        instead of the covariance. Where all are kept, components and their identifiability stay the same. Constant
        columns are left out. `components_`, `mixing_` and `mean_` are in the units of X.
    normalize : {None, "cosine"}
        "cosine" scales every row to unit length before anything else, also in `transform`. This is not linear: the
        lengths of rows are lost, `inverse_transform` returns rows on the unit sphere, and rows that were a linear
        mixture of independent sources no longer are one. Use it where only angles between rows have a meaning.
    starts : int
        Number of random starts. The best is kept, and `agreement_` measures how well the others agree with it: on real
        data some components depend on the start, which only further starts reveal. 1 is faster, with `agreement_` None.
        Where rows are few for so many components, a start is random eigenvectors of fourth cumulants.
    check : bool
        Whether identified components must also return on two disjoint halves of the rows, each fitted from its own
        starts. Successive rows, equal rows and those of a cluster stay together. Takes about as long as the fit.
    rows : int, "all" or "auto"
        Number of rows used to fit the rotation, chosen at random. "auto" uses as many as two disjoint halves need to
        agree, and reports a limit of the remaining error in `error_left_`. The whitening always uses all rows.
    tol : float
        Converged when the last step turns no pair of components by more than `tol` radians, and the gradient before it
        is below ``30 * tol`` of a random rotation's.
    max_iter : int
        Maximum number of passes over the rows.
    w_init : (k, k) or None
        The rotation of the whitened rows to start from (the orthogonal matrix nearest to it), instead of a random one.
    random_state : int, RandomState or None
        Of the starts and of the choice of rows.
    device : {"auto", "cpu", "cuda"}
        Where to compute: "auto" is where X is.

    Attributes
    ----------
    components_ : (k, d)
        The unmixing matrix W: components are ``(X - mean_) @ components_.T``, of unit variance.
    mixing_ : (d, k)
        The mixing matrix A, the pseudo-inverse of W.
    mean_ : (d,)
    negentropy_ : (k,)
        Squared distance of the average contrast from a Gaussian's; 0 is Gaussian. Components are in falling order, but
        those that are indistinguishable from noise come last.
    skewness_ : (k,)
        Components are signed so that it is not negative.
    kurtosis_ : (k,)
        That of a Gaussian is 0.
    sampling_error_ : (k,)
        Standard error of each axis in radians; NaN for rows that are not white. With `check` from blocks of rows (a
        sandwich estimate), which assumes neither independent components nor independent rows; else assuming both.
    identified_ : (k,) of bool
        Whether the component is distinguishable from noise (an error below 0.2 in all, and below 0.12 in the direction
        of any one other component) and agrees across all starts (correlation of at least 0.9). With `check` also by
        errors from blocks (below 0.1 of two components), in which a few far rows cannot determine an axis, and only if
        it returns on disjoint halves of the rows (correlation of at least 0.9). Without, axes that exist on these rows
        alone count, too.
    agreement_ : (k,) or None
        Smallest correlation with the same component of another start.
    returned_ : (k,) or None
        Smallest correlation between the component and its partners on the two halves; None without `check`.
    converged_ : bool
    n_iter_ : int
        Passes over the rows.
    changes_ : (n_iter_,)
        Largest turn in radians, pass by pass.
    gradients_ : (n_iter_,)
        Largest gradient, relative to a random rotation's, pass by pass.
    rank_ : int
        Directions of X that vary by more than rounding.
    n_rows_ : int
        Rows used to fit the rotation.
    error_left_ : float or None
        With ``rows="auto"``, the angle in radians below which more rows would turn nine in ten identified components,
        with 95 % confidence.
    found_ : Components
        All of this as one object, with the whitening; not saved to files.

    References
    ----------
    Hyvärinen 1999; Ablin, Cardoso & Gramfort 2018; Tichavský, Koldovský & Oja 2006; White 1980 (sandwich errors).

    Examples
    --------
    >>> import numpy as np
    >>> from congruence import ICA
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(5000, 3))
    >>> x = sources @ rng.normal(size=(3, 3))
    >>> ica = ICA(random_state=0).fit(x)
    >>> matched = np.abs(np.corrcoef(ica.transform(x), sources, rowvar=False)[:3, 3:]).max(1)
    >>> bool((matched > 0.99).all()), bool(ica.identified_.all())
    (True, True)
    """

    _maps = ("components_", "mixing_")

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        contrast: str = "logcosh",
        whiten: bool = True,
        standardize: bool = False,
        normalize: str | None = None,
        starts: int = STARTS,
        check: bool = True,
        rows: int | str = "all",
        tol: float = TOLERANCE,
        max_iter: int = MAX_ITER,
        w_init: Any = None,
        random_state: Any = None,
        device: str = "auto",
    ):
        self.n_components = n_components
        self.contrast = contrast
        self.whiten = whiten
        self.standardize = standardize
        self.normalize = normalize
        self.starts = starts
        self.check = check
        self.rows = rows
        self.tol = tol
        self.max_iter = max_iter
        self.w_init = w_init
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None, *, cluster: Any = None) -> ICA:
        """Fit to the rows of X, shape (n, d): anything that `as_table` takes, or an iterator of chunks.

        A path may be a pattern such as ``export/*.parquet``, whose files are read as one table. `cluster`, shape (n,),
        is the cluster of every row (patient, plate, document); the check does not divide clusters between halves.
        """
        data, seed = open_rows(self, X, reset=True), int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {name: getattr(self, name) for name in FITTED}
        components = independent_components(data, **options, cluster=cluster, start=self.w_init, seed=seed)
        self._set_components(components)
        warn_unless_converged(components.unmixing)
        if text := fewer_than_requested(self.n_components, components):
            warn_caller(text, CongruenceWarning)
        return self

    @classmethod
    def from_components(cls, found: Components, **params: Any) -> ICA:
        """Return a fitted estimator from existing components; `params` are those of the constructor."""
        ica = cls(**params)
        ica.n_features_in_ = found.unmixing.unmixing.shape[1]
        ica._set_components(found)
        return ica

    def _set_components(self, components: Components) -> None:
        ica = components.unmixing
        self.found_ = components
        self.mean_, self.components_, self.mixing_ = ica.mean, ica.unmixing, ica.mixing
        self.negentropy_, self.skewness_, self.kurtosis_ = ica.negentropy, ica.skewness, ica.kurtosis
        self.sampling_error_, self.identified_, self.agreement_ = ica.sampling_error, ica.identified, ica.agreement
        self.returned_ = ica.returned
        self.converged_, self.n_iter_ = ica.converged, ica.iterations
        self.changes_, self.gradients_ = np.array(ica.changes), np.array(ica.gradients)
        self.rank_, self.variances_ = components.whitening.rank, components.whitening.variances
        self.n_rows_, self.error_left_ = ica.n, components.error_left
        self._n_features_out = ica.k

    @property
    def _scale_rows(self) -> bool:  # type: ignore[override]
        return self.normalize is not None

    def _summary(self) -> str:
        return f"{int(self.identified_.sum())} of {len(self.components_)} components identified"

    def save(self, path: str | Path, **about: Any) -> None:
        """Write the fitted components as safetensors, with the settings (and `about`) as JSON in its header."""
        check_is_fitted(self)
        plain = (bool, int, float, str, np.integer, np.floating)
        params = {name: value for name, value in self.get_params().items() if isinstance(value, plain)}
        names = getattr(self, "feature_names_in_", None)
        header = {
            "params": params,
            "converged": bool(self.converged_),
            "rank": int(self.rank_),
            "rows": int(self.n_rows_),
            "passes": int(self.n_iter_),
            "error_left": self.error_left_,
            "features": None if names is None else [str(name) for name in names],
            "about": about,
        }
        arrays = {name: getattr(self, name) for name in (*ARRAYS, *OPTIONAL)}
        tensors = {name: array for name, array in arrays.items() if array is not None}
        write_saved(path, "ica", json.loads(json.dumps(header, default=lambda value: value.item())), tensors)


def load_ica(path: str | Path) -> ICA:
    """Read components written by `ICA.save`, also by version 0.1.0; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        A safetensors file.
    """
    header, found = read_saved(path, ARRAYS, kinds=("ica",), what="components", optional=OPTIONAL)
    parts, more = ({name: found[name] for name in names if name in found} for names in (ARRAYS, OPTIONAL))
    damaged = f"{path} does not hold components: its header is damaged"
    _check_parts(parts, more, path)
    params, known = header.get("params"), ICA().get_params()
    if not isinstance(params, dict) or params.get("normalize") not in (None, "cosine"):
        raise InputError(damaged)
    ica = ICA(**{name: value for name, value in params.items() if name in known and not isinstance(value, list | dict)})
    for name, value in (dict.fromkeys(OPTIONAL) | parts | more).items():
        setattr(ica, name, value)
    ica._n_features_out, ica.n_features_in_ = parts["components_"].shape
    ica.error_left_, ica.converged_ = header.get("error_left"), bool(header.get("converged"))
    counts: list[Any] = [header.get(key) for key in ("rank", "rows", "passes")]
    features = header.get("features")
    named = isinstance(features, list) and [type(name) for name in features] == [str] * ica.n_features_in_
    sound = all(isinstance(count, int) for count in counts) and isinstance(ica.error_left_, float | None)
    if not sound or not (features is None or named):
        raise InputError(damaged)
    ica.rank_, ica.n_rows_, ica.n_iter_ = counts
    if features:
        ica.feature_names_in_ = np.array(features, dtype=object)
    return ica


def _check_parts(parts: dict[str, Any], more: dict[str, Any], path: str | Path) -> None:
    shape = parts["components_"].shape
    k, d = shape if len(shape) == 2 else (0, 0)
    expected = dict.fromkeys(ARRAYS, (k,)) | {"mean_": (d,), "components_": (k, d), "mixing_": (d, k)}
    fits = all(more.get(name, parts["negentropy_"]).shape == (k,) for name in ("agreement_", "returned_")) and all(
        part.ndim == 1 for part in more.values()
    )
    if not k or not fits or any(parts[name].shape != expected[name] for name in ARRAYS):
        raise InputError(f"{path} does not hold components: its parts have shapes {[p.shape for p in parts.values()]}")
    floats = [part for name, part in parts.items() if name not in ("identified_", "sampling_error_")]
    if any(part.dtype != np.float64 or not np.isfinite(part).all() for part in floats):
        raise InputError(f"{path} does not hold components: it has values that are not finite float64 numbers")
