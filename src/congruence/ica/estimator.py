"""`ICA`: independent components as a scikit-learn estimator, and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from congruence.errors import InputError
from congruence.files import replacing
from congruence.ica.components import Components, independent_components
from congruence.ica.opening import as_components, describe_estimator, open_rows
from congruence.ica.unmix import MAX_ITER, TOLERANCE, warn_unless_converged
from congruence.result import SCHEMA_VERSION
from congruence.rows.engine import map_rows

ARRAYS = ("mean_", "components_", "mixing_", "negentropy_", "skewness_", "kurtosis_", "sampling_error_", "identified_")
OPTIONAL = ("agreement_", "variances_", "changes_", "gradients_")


class ICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Independent component analysis that converges, with components in a reproducible order and sign.

    Whitens X and finds the rotation with a stationary point of sum_i sign_i E[G(s_i)], every component pushed away from
    the Gaussian, sub- and super-Gaussian sources at once. Rows are multiplied in float32; everything of size k x k is
    float64. Order and signs are canonical: two fits of the same rows from different starts give the same
    `components_` where `identified_` is True, up to what the given number of starts can detect.

    Parameters
    ----------
    n_components : int, float or None
        Directions to keep in the whitening: so many, the fewest with this share (below 1) of the variance, or all that
        vary by more than rounding.
    contrast : {"logcosh", "exp", "cube"}
        What counts as far from Gaussian. "logcosh" is robust; "exp" for very heavy tails; "cube" is kurtosis.
    whiten : bool
        False takes the rows as they are, neither centred nor scaled, and only rotates them.
    starts : int
        Number of random starts. The best is kept, and `agreement_` measures how well the others agree with it: on real
        data some components depend on the start, which only further starts reveal. 1 is faster, with `agreement_` None.
    rows : int, "all" or "auto"
        Number of rows used to fit the rotation, chosen at random. "auto" uses as many as two disjoint halves need to
        agree, and reports the remaining error in `error_left_`. The whitening always uses all rows.
    tol : float
        Converged when the last step turns no pair of components by more than `tol` radians, and the gradient before it
        is below ``30 * tol`` of a random rotation's.
    max_iter : int
        Maximum number of passes over the rows.
    w_init : (k, k) or None
        The rotation of the whitened rows to begin with (the orthogonal matrix nearest to it), instead of a random one.
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
    skewness_, kurtosis_ : (k,)
        Components are signed so that skewness is not negative; the kurtosis of a Gaussian is 0.
    sampling_error_ : (k,)
        Standard error of each axis in radians, assuming independent components; NaN for rows that are not white.
    identified_ : (k,) of bool
        Whether the component is distinguishable from noise (sampling error below 0.2) and, with several starts, agrees
        across all of them.
    agreement_ : (k,) or None
        Smallest correlation with the same component of another start.
    converged_ : bool
    n_iter_ : int
        Passes over the rows.
    changes_, gradients_ : (n_iter_,)
        Largest turn in radians and largest gradient, relative to a random rotation's, pass by pass.
    rank_ : int
        Directions of X that vary by more than rounding.
    n_rows_ : int
        Rows used to fit the rotation.
    error_left_ : float or None
        With ``rows="auto"``, the angle in radians below which more rows would turn nine in ten components.
    found_ : Components
        All of this as one object, with the whitening; not saved to files.

    References
    ----------
    Hyvärinen 1999; Ablin, Cardoso & Gramfort 2018; Tichavský, Koldovský & Oja 2006.

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

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        contrast: str = "logcosh",
        whiten: bool = True,
        starts: int = 2,
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
        self.starts = starts
        self.rows = rows
        self.tol = tol
        self.max_iter = max_iter
        self.w_init = w_init
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> ICA:
        """Fit to the rows of X, shape (n, d): anything that `as_table` takes, or an iterator of chunks.

        A path may be a pattern such as ``export/*.parquet``, whose files are read as one table.
        """
        data = open_rows(self, X, reset=True)
        found = independent_components(
            data,
            n_components=self.n_components,
            contrast=self.contrast,
            whiten=self.whiten,
            starts=self.starts,
            rows=self.rows,
            tol=self.tol,
            max_iter=self.max_iter,
            start=self.w_init,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            device=self.device,
        )
        self._set_components(found)
        warn_unless_converged(found.unmixing)
        return self

    @classmethod
    def from_components(cls, found: Components, **params: Any) -> ICA:
        """Return an estimator fitted with components that were found before; `params` are those of the constructor."""
        ica = cls(**params)
        ica.n_features_in_ = found.unmixing.unmixing.shape[1]
        ica._set_components(found)
        return ica

    def _set_components(self, found: Components) -> None:
        ica = found.unmixing
        self.found_ = found
        self.mean_, self.components_, self.mixing_ = ica.mean, ica.unmixing, ica.mixing
        self.negentropy_, self.skewness_, self.kurtosis_ = ica.negentropy, ica.skewness, ica.kurtosis
        self.sampling_error_, self.identified_, self.agreement_ = ica.sampling_error, ica.identified, ica.agreement
        self.converged_, self.n_iter_ = ica.converged, ica.iterations
        self.changes_, self.gradients_ = np.array(ica.changes), np.array(ica.gradients)
        self.rank_, self.variances_ = found.whitening.rank, found.whitening.variances
        self.n_rows_, self.error_left_ = ica.n, found.error_left
        self._n_features_out = ica.k

    def transform(self, X: Any) -> Any:
        """Return the components of X, (n, d) to (n, k), with its dtype and device; dask arrays stay lazy."""
        check_is_fitted(self)
        X = open_rows(self, X, reset=False)
        return map_rows(X, self.mean_, self.components_.T, np.zeros(len(self.components_)))

    def inverse_transform(self, X: Any) -> Any:
        """Map components, shape (n, k), back to embeddings, shape (n, d)."""
        check_is_fitted(self)
        return map_rows(
            as_components(X, len(self.components_)), np.zeros(len(self.components_)), self.mixing_.T, self.mean_
        )

    def save(self, path: str | Path, **about: Any) -> None:
        """Write the fitted components as safetensors, with the settings (and `about`) as JSON in its header."""
        from safetensors.numpy import save_file

        check_is_fitted(self)
        plain = (bool, int, float, str, np.integer, np.floating)
        params = {name: value for name, value in self.get_params().items() if isinstance(value, plain)}
        names = getattr(self, "feature_names_in_", None)
        header = {
            "kind": "ica",
            "schema_version": SCHEMA_VERSION,
            "params": params,
            "converged": bool(self.converged_),
            "rank": int(self.rank_),
            "rows": int(self.n_rows_),
            "passes": int(self.n_iter_),
            "error_left": self.error_left_,
            "features": None if names is None else [str(name) for name in names],
            "about": about,
        }
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in ARRAYS}
        for name in OPTIONAL:
            if getattr(self, name) is not None:
                tensors[name] = np.ascontiguousarray(getattr(self, name))
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={"congruence": json.dumps(header, default=_plain)})

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        known = self.__sklearn_is_fitted__()
        fitted = f"{int(self.identified_.sum())} of {len(self.components_)} components identified" if known else ""
        return describe_estimator(self, fitted)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def load_ica(path: str | Path) -> ICA:
    """Read components written by `ICA.save`, also by version 0.1.0; nothing in the file is executed."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("congruence", "{}"))
            if not isinstance(header, dict) or header.get("kind") != "ica":
                raise InputError(f"{path} is a safetensors file, but not components saved by congruence")
            version = header.get("schema_version", header.get("version"))  # 0.1.0 wrote "version"
            if version != SCHEMA_VERSION:
                raise InputError(
                    f"{path} has schema version {version!r}, but this version of congruence reads {SCHEMA_VERSION}"
                )
            parts = {name: file.get_tensor(name) for name in ARRAYS}
            more = {name: file.get_tensor(name) for name in OPTIONAL if name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read components from {path}: {error}") from error
    _check_parts(parts, more, path)
    ica = ICA(**_checked_params(header.get("params"), path))
    for name, value in (dict.fromkeys(OPTIONAL) | parts | more).items():
        setattr(ica, name, value)
    ica.error_left_ = header.get("error_left")
    ica.n_features_in_ = parts["components_"].shape[1]
    ica._n_features_out = len(parts["components_"])
    ica.converged_ = bool(header.get("converged"))
    counts: list[Any] = [header.get(key) for key in ("rank", "rows", "passes")]
    features = header.get("features")
    sound = all(isinstance(count, int) for count in counts) and isinstance(ica.error_left_, float | None)
    if not sound or not _are_names(features, ica.n_features_in_):
        raise InputError(f"{path} does not hold components: its header is damaged")
    ica.rank_, ica.n_rows_, ica.n_iter_ = counts
    if features:
        ica.feature_names_in_ = np.array(features, dtype=object)
    return ica


def _checked_params(params: Any, path: str | Path) -> dict[str, Any]:
    """The settings of a saved estimator, as far as this version knows them."""
    if not isinstance(params, dict):
        raise InputError(f"{path} does not hold components: its header is damaged")
    known = ICA().get_params()
    return {name: value for name, value in params.items() if name in known and not isinstance(value, (list, dict))}


def _are_names(features: Any, d: int) -> bool:
    return features is None or (
        isinstance(features, list) and len(features) == d and all(isinstance(name, str) for name in features)
    )


def _plain(value: Any) -> Any:
    """A numpy number as one that JSON knows."""
    return value.item()


def _check_parts(parts: dict[str, Any], more: dict[str, Any], path: str | Path) -> None:
    shape = parts["components_"].shape
    k, d = shape if len(shape) == 2 else (0, 0)
    expected = dict.fromkeys(ARRAYS, (k,)) | {"mean_": (d,), "components_": (k, d), "mixing_": (d, k)}
    fits = more.get("agreement_", parts["negentropy_"]).shape == (k,) and all(part.ndim == 1 for part in more.values())
    if not k or not fits or any(parts[name].shape != expected[name] for name in ARRAYS):
        raise InputError(f"{path} does not hold components: its parts have shapes {[p.shape for p in parts.values()]}")
    floats = [part for name, part in parts.items() if name not in ("identified_", "sampling_error_")]
    if any(part.dtype != np.float64 or not np.isfinite(part).all() for part in floats):
        raise InputError(f"{path} does not hold components: it has values that are not finite float64 numbers")
