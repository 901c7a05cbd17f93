"""`GaussianMixture`: a prior of latents that is a mixture of Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, listing, to_numpy
from congruence.checks import check_choice, check_integer
from congruence.errors import InputError
from congruence.guards import PRIOR_BYTES, reading
from congruence.result import Record
from congruence.tables.access import read_npz_arrays

FLAT = 1e-12  # relative to the largest variance of the mixture: directions with less variance are degenerate
LARGEST = 1e75  # mean or standard deviation, of which products of four stay in the range of floats
_WEIGHT_SUM_ERROR = 1e-4  # models store weights in float32
_COVARIANCE_ERROR = 1e-5  # relative to the largest entry: asymmetry, or a negative eigenvalue, that is rounding
LOG_2PI = math.log(2 * math.pi)
_FIELDS = ("weights", "means", "covariances")
FITS = ("", "full", "diag", "spherical", "tied")


@dataclass(frozen=True, eq=False)
class Draw:
    """Rows drawn from a mixture, each with the component it came from."""

    latents: Float  # (n, m)
    states: Array  # (n,), from 0 to J - 1


@dataclass(frozen=True, eq=False)
class GaussianMixture(Record):
    """The distribution sum_j weights[j] N(means[j], covariances[j]) on R^m.

    Covariances may be degenerate: the component then lies on a subspace, and only the density is undefined. Arrays are
    converted to float64, covariances are symmetrised, and weights are divided by their sum.
    """

    weights: Float  # (J,), above 0
    means: Float  # (J, m)
    covariances: Float  # (J, m, m)
    fitted: str = ""  # covariance type if the mixture was fitted to data; "" if it is known, as the prior of a model

    NAMES = _FIELDS

    def __post_init__(self) -> None:
        weights, means, covariances = (_as_numbers(getattr(self, name), name) for name in _FIELDS)
        if weights.ndim != 1 or not weights.size:
            raise InputError(f"weights must have shape (components,); got {weights.shape}")
        count = len(weights)
        if means.ndim != 2 or len(means) != count or not means.shape[1]:
            raise InputError(f"means must have shape (components, latents) = ({count}, m); got {means.shape}")
        m = means.shape[1]
        if covariances.shape != (count, m, m):
            raise InputError(f"covariances must have shape {(count, m, m)}; got {covariances.shape}")
        if max(np.abs(means).max(), np.sqrt(np.abs(covariances).max())) > LARGEST:
            raise InputError(f"means and standard deviations must be at most {LARGEST:g}; scale the latents")
        if not (weights > 0).all():
            raise InputError(f"weights must be above 0; got {listing(weights[weights <= 0])}")
        if abs(weights.sum() - 1) > _WEIGHT_SUM_ERROR:
            raise InputError(f"weights must sum to 1; got a sum of {weights.sum():.6g}")
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", _symmetrise(covariances))

    @classmethod
    def from_arrays(cls, weights: Any, means: Any, covariances: Any, fitted: Any = "") -> GaussianMixture:
        """Create a mixture from arrays or tensors; components of weight 0 are left out.

        `weights` (J,) sum to 1; `means` are (J, m), or (J,) if m = 1; `covariances` are matrices (J, m, m),
        variances along each axis (J, m), or one variance for all axes (J,). `fitted` is the covariance type ("full",
        "diag", "spherical", "tied") if the mixture was fitted to data; "" if it is known.
        """
        arrays = zip(_FIELDS, (weights, means, covariances), strict=True)
        weights, means, covariances = (_as_numbers(x, name, scalar=False) for name, x in arrays)
        means = means[:, None] if means.ndim == 1 else means
        if covariances.ndim == 1:
            covariances = np.repeat(covariances[:, None], means.shape[-1], axis=1)
        if covariances.ndim == 2:
            size = covariances.nbytes * covariances.shape[1]
            if size > PRIOR_BYTES:
                raise InputError(f"covariances would take {size} bytes as matrices; at most {PRIOR_BYTES} are allowed")
            covariances = covariances[:, :, None] * np.eye(covariances.shape[1])
        if not len(weights) == len(means) == len(covariances):
            raise InputError(
                "weights, means and covariances must have the same number of components; got "
                f"{len(weights)}, {len(means)} and {len(covariances)}"
            )
        positive = weights != 0
        check_choice("fitted", str(fitted), FITS)
        return cls(weights[positive], means[positive], covariances[positive], str(fitted))

    @classmethod
    def from_sklearn(cls, fitted: Any) -> GaussianMixture:
        """Convert a fitted scikit-learn `GaussianMixture` or `BayesianGaussianMixture` of any covariance type."""
        if not hasattr(fitted, "covariances_"):
            raise InputError(f"fitted must be a fitted scikit-learn GaussianMixture; got {type(fitted).__name__}")
        covariances = fitted.covariances_
        if fitted.covariance_type == "tied":
            covariances = np.repeat(covariances[None], len(fitted.means_), axis=0)
        return cls.from_arrays(fitted.weights_, fitted.means_, covariances, fitted.covariance_type)

    @classmethod
    def from_model(cls, model: Any) -> GaussianMixture:
        """Take the prior of a trained model, whose `mixture_prior()` returns weights, means and covariances."""
        if not hasattr(model, "mixture_prior"):
            raise InputError(f"model must have a method mixture_prior(); {type(model).__name__} has none")
        return cls.from_arrays(*model.mixture_prior())

    @classmethod
    def from_torch(cls, distribution: Any) -> GaussianMixture:
        """Convert a torch `MixtureSameFamily` of `MultivariateNormal`, `Normal` or independent `Normal`."""
        parts = distribution.component_distribution
        kind = type(getattr(parts, "base_dist", parts)).__name__
        if kind not in ("MultivariateNormal", "Normal"):
            raise InputError(f"the components of distribution must be normal; got {kind}")
        spread = parts.covariance_matrix if kind == "MultivariateNormal" else parts.variance
        return cls.from_arrays(distribution.mixture_distribution.probs, parts.mean, spread)

    @classmethod
    def from_file(cls, path: str | Path) -> GaussianMixture:
        """Read `weights`, `means`, `covariances` and perhaps `fitted` from a .npz file, which is never unpickled."""
        with reading(path, "a prior (.npz)"):
            found = read_npz_arrays(path, (*_FIELDS, "fitted"), what="a prior (.npz)", most=PRIOR_BYTES)
            missing = [name for name in _FIELDS if name not in found]
            if missing:
                raise InputError(f"prior {path} must have weights, means and covariances; {missing[0]} is missing")
            return cls.from_arrays(**found)

    @classmethod
    def product(cls, parts: Sequence[GaussianMixture]) -> GaussianMixture:
        """The joint distribution of independent mixtures, such as the facets of a model."""
        if not parts:
            raise InputError("parts must hold at least one mixture; got none")
        joint = parts[0]
        for part in parts[1:]:
            i, j = (g.ravel() for g in np.indices((joint.components, part.components)))
            m, k = joint.dimension, part.dimension
            covariances = np.zeros((len(i), m + k, m + k))
            covariances[:, :m, :m], covariances[:, m:, m:] = joint.covariances[i], part.covariances[j]
            means = np.hstack([joint.means[i], part.means[j]])
            joint = cls(joint.weights[i] * part.weights[j], means, covariances)
        return joint

    @property
    def components(self) -> int:
        """The number of components J."""
        return len(self.weights)

    @property
    def dimension(self) -> int:
        """The number of latents m."""
        return int(self.means.shape[1])

    @property
    def mean(self) -> Float:
        """The mean of the mixture, (m,)."""
        return np.asarray(self.weights @ self.means)

    @property
    def covariance(self) -> Float:
        """The covariance of the mixture, (m, m)."""
        away = self.means - self.mean
        return np.asarray(np.einsum("j,jab->ab", self.weights, self.covariances) + (self.weights * away.T) @ away)

    @property
    def degenerate(self) -> tuple[int, ...]:
        """The components without variance in some direction."""
        least = np.linalg.eigvalsh(self.covariances)[:, 0]
        size = max(float(np.linalg.eigvalsh(self.covariance)[-1]), np.finfo(float).tiny)
        return tuple(int(j) for j in np.flatnonzero(least <= FLAT * size))

    def draw(self, n: int, *, seed: int = 0, noise: Any = None) -> Draw:
        """Draw n rows with the component of each; `noise`, (n, m), replaces the standard normal numbers."""
        n = check_integer("n", n)
        rng = np.random.default_rng(seed)
        states = rng.choice(self.components, size=n, p=self.weights)
        normal = rng.normal(size=(n, self.dimension)) if noise is None else np.asarray(noise)
        values, axes = np.linalg.eigh(self.covariances)
        roots = axes * np.sqrt(np.maximum(values, 0))[:, None]  # (J, m, m), root @ root.T = covariance
        latents = self.means[states].copy()
        for j in range(self.components):
            here = states == j
            latents[here] += normal[here] @ roots[j].T
        return Draw(latents, states)

    def sample(self, n: int, *, seed: int = 0) -> Float:
        """Draw n rows, (n, m)."""
        return self.draw(n, seed=seed).latents

    def log_density(self, z: Any) -> Float:
        """The log density at the rows of z, (n, m) -> (n,); an error if a component is degenerate."""
        return _log_sum(self.log_joint(z))

    def responsibilities(self, z: Any) -> Float:
        """The probability of each component given a row of z, (n, m) -> (n, J); rows sum to 1."""
        joint = self.log_joint(z)
        return np.asarray(np.exp(joint - _log_sum(joint)[:, None]))

    def log_joint(self, z: Any) -> Float:
        """Log weights[j] + log N(z; means[j], covariances[j]), (n, m) -> (n, J)."""
        z = to_numpy(as_matrix(z, "z")).astype(np.float64, copy=False)
        if z.shape[1] != self.dimension:
            raise InputError(f"z must have {self.dimension} columns, one for each latent; got {z.shape[1]}")
        if self.degenerate:
            raise InputError(
                f"the mixture has no density: the covariance of component {listing(self.degenerate)} is degenerate"
            )
        roots = np.linalg.cholesky(self.covariances)
        joint = np.empty((len(z), self.components))
        for j, root in enumerate(roots):
            white = np.linalg.solve(root, (z - self.means[j]).T)  # (m, n)
            joint[:, j] = -0.5 * (white * white).sum(0) - np.log(np.diag(root)).sum()
        return joint + np.log(self.weights) - 0.5 * self.dimension * LOG_2PI

    def pushed(self, matrix: Any, shift: Any = 0.0) -> GaussianMixture:
        """The distribution of matrix @ z + shift, a mixture with the same weights; `matrix` is (k, m)."""
        matrix = _as_numbers(matrix, "matrix")
        if matrix.ndim != 2 or matrix.shape[1] != self.dimension:
            raise InputError(f"matrix must have shape (k, {self.dimension}); got {matrix.shape}")
        shift = np.broadcast_to(_as_numbers(shift, "shift"), (len(matrix),))
        covariances = matrix @ self.covariances @ matrix.T
        return GaussianMixture(self.weights, self.means @ matrix.T + shift, covariances, self.fitted)


def as_mixture(prior: Any, name: str = "prior") -> GaussianMixture:
    """Return a mixture in any of its forms as a `GaussianMixture`.

    A `GaussianMixture`, a fitted scikit-learn mixture, a torch mixture of normal distributions, a model with
    `mixture_prior()`, arrays (weights, means, covariances), a mapping or an object with these names, or a .npz file.
    """
    if isinstance(prior, GaussianMixture):
        return prior
    if hasattr(prior, "mixture_prior"):
        return GaussianMixture.from_model(prior)
    if hasattr(prior, "covariances_"):
        return GaussianMixture.from_sklearn(prior)
    if hasattr(prior, "mixture_distribution"):
        return GaussianMixture.from_torch(prior)
    if isinstance(prior, str | Path):
        return GaussianMixture.from_file(prior)
    if is_array_mapping(prior):
        return GaussianMixture.from_arrays(**{key: prior[key] for key in (*_FIELDS, "fitted") if key in prior})
    if isinstance(prior, list | tuple) and len(prior) == len(_FIELDS):
        return GaussianMixture.from_arrays(*prior)
    if all(hasattr(prior, field) for field in _FIELDS):
        return GaussianMixture.from_arrays(*(getattr(prior, field) for field in _FIELDS))
    raise InputError(
        f"{name} must be a GaussianMixture, a fitted scikit-learn mixture, a model with mixture_prior(), arrays of "
        f"weights, means and covariances, or a .npz file of them; got {type(prior).__name__}"
    )


def is_array_mapping(prior: Any) -> bool:
    """Whether this is a mapping with the arrays of one mixture, and not one of names to models."""
    return isinstance(prior, Mapping) and all(name in prior for name in _FIELDS)


def _as_numbers(x: Any, name: str, *, scalar: bool = True) -> Float:
    try:
        given = np.asarray(to_numpy(x) if not isinstance(x, list | tuple) else x)
        if given.dtype.kind in "cmMV":
            raise TypeError(f"its dtype is {given.dtype}")
        numbers = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite; got NaN or infinity")
    if not (numbers.ndim or scalar):
        raise InputError(f"{name} must have one entry for each component; got the number {float(numbers)}")
    return numbers


def _symmetrise(covariances: Float) -> Float:
    """Symmetrise covariances after checking that they are symmetric and positive semidefinite up to rounding."""
    transposed = covariances.transpose(0, 2, 1)
    size = np.abs(covariances).max((1, 2))
    skew = np.abs(covariances - transposed).max((1, 2)) > _COVARIANCE_ERROR * size
    if skew.any():
        raise InputError(f"covariances must be symmetric; that of component {listing(np.flatnonzero(skew))} is not")
    symmetric: Float = (covariances + transposed) / 2
    negative = np.linalg.eigvalsh(symmetric)[:, 0] < -_COVARIANCE_ERROR * size
    if negative.any():
        raise InputError(
            "covariances must be positive semidefinite; that of component "
            f"{listing(np.flatnonzero(negative))} has a negative eigenvalue"
        )
    return symmetric


def log_normal(away: Float, covariances: Float) -> Float:
    """Log N(away; 0, covariance) over the last axes, (..., m) and (..., m, m) -> (...); inf if one is singular."""
    try:
        roots = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return np.full(away.shape[:-1], math.inf)
    white = np.linalg.solve(roots, away[..., None])[..., 0]
    logs = np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(-1)
    return np.asarray(-0.5 * (white * white).sum(-1) - logs - 0.5 * away.shape[-1] * LOG_2PI)


def _log_sum(joint: Float) -> Float:
    """Log sum exp over the last axis."""
    largest = joint.max(-1, keepdims=True)
    return np.asarray(largest[..., 0] + np.log(np.exp(joint - largest).sum(-1)))
