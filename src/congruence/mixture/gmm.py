"""`GaussianMixture`: a prior of latents that is a mixture of Gaussians, with its density, marginals and images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, listing, to_numpy
from congruence.errors import InputError

SUMS = 1e-4  # by how much the sum of weights may be off 1, since models store them in float32
SKEW = 1e-5  # of the largest entry: by how much a covariance may be asymmetric or dip below 0
FLAT = 1e-12  # of the largest variance of the mixture: directions that vary by less are degenerate
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Draw:
    """Rows drawn from a mixture, each with the component it came from."""

    latents: Float  # (n, m)
    states: Array  # (n,), from 0 to J - 1


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """The law sum_j weights[j] N(means[j], covariances[j]) on R^m.

    Covariances may be degenerate (a component then lies on a subspace): everything but the density is defined for them.
    Arrays are checked, brought to float64 and made symmetric; weights are divided by their sum.
    """

    weights: Float  # (J,), above 0
    means: Float  # (J, m)
    covariances: Float  # (J, m, m)

    def __post_init__(self) -> None:
        weights, means, covariances = (
            _numbers(getattr(self, name), name) for name in ("weights", "means", "covariances")
        )
        if weights.ndim != 1 or not weights.size:
            raise InputError(f"weights must be a list of at least one number, not of shape {weights.shape}")
        count = len(weights)
        if means.ndim != 2 or len(means) != count or not means.shape[1]:
            raise InputError(f"means must have shape (components, latents) = ({count}, m), not {means.shape}")
        m = means.shape[1]
        if covariances.shape != (count, m, m):
            raise InputError(f"covariances must have shape {(count, m, m)}, not {covariances.shape}")
        if not (weights > 0).all():
            raise InputError(f"weights must be above 0, but {listing(weights[weights <= 0])} is among them")
        if abs(weights.sum() - 1) > SUMS:
            raise InputError(f"weights must sum to 1, not to {weights.sum():.6g}")
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", _symmetric(covariances))

    @classmethod
    def from_arrays(cls, weights: Any, means: Any, covariances: Any) -> GaussianMixture:
        """Make a mixture from arrays or tensors, leaving out components of weight 0.

        Parameters
        ----------
        weights : (J,)
            At least 0, summing to 1.
        means : (J, m)
            Or (J,) where m = 1.
        covariances : (J, m, m), (J, m) or (J,)
            Matrices; or the variance along each axis; or one variance for all axes.
        """
        weights, means, covariances = (
            _numbers(weights, "weights"),
            _numbers(means, "means"),
            _numbers(covariances, "covariances"),
        )
        for name, array in (("weights", weights), ("means", means), ("covariances", covariances)):
            if not array.ndim:
                raise InputError(f"{name} must have an entry for each component, not be the number {float(array)}")
        means = means[:, None] if means.ndim == 1 else means
        if covariances.ndim == 1:
            covariances = np.repeat(covariances[:, None], means.shape[-1], axis=1)
        if covariances.ndim == 2:
            covariances = covariances[:, :, None] * np.eye(covariances.shape[1])
        if not len(weights) == len(means) == len(covariances):
            raise InputError(
                f"weights, means and covariances must be of as many components, not {len(weights)}, {len(means)} and "
                f"{len(covariances)}"
            )
        kept = weights != 0
        return cls(weights[kept], means[kept], covariances[kept])

    @classmethod
    def from_sklearn(cls, fitted: Any) -> GaussianMixture:
        """Take over a fitted `sklearn.mixture.GaussianMixture` (or the Bayesian one) of any covariance type."""
        if not hasattr(fitted, "covariances_"):
            raise InputError(f"fitted must be a fitted GaussianMixture of scikit-learn, not {type(fitted).__name__}")
        covariances = fitted.covariances_
        if fitted.covariance_type == "tied":
            covariances = np.repeat(covariances[None], len(fitted.means_), axis=0)
        return cls.from_arrays(fitted.weights_, fitted.means_, covariances)

    @classmethod
    def from_model(cls, model: Any) -> GaussianMixture:
        """The prior of a trained model: what its method `mixture_prior()` gives as (weights, means, covariances)."""
        if not hasattr(model, "mixture_prior"):
            raise InputError(f"model must have a method mixture_prior(), which {type(model).__name__} has not")
        return cls.from_arrays(*model.mixture_prior())

    @classmethod
    def product(cls, parts: Sequence[GaussianMixture]) -> GaussianMixture:
        """The joint law of independent mixtures (the facets of a model): one component for each choice of one each."""
        if not parts:
            raise InputError("parts must hold at least one mixture")
        found = parts[0]
        for part in parts[1:]:
            i, j = (g.ravel() for g in np.indices((found.components, part.components)))
            m, k = found.dimension, part.dimension
            covariances = np.zeros((len(i), m + k, m + k))
            covariances[:, :m, :m], covariances[:, m:, m:] = found.covariances[i], part.covariances[j]
            means = np.hstack([found.means[i], part.means[j]])
            found = cls(found.weights[i] * part.weights[j], means, covariances)
        return found

    @property
    def components(self) -> int:
        """J, how many components there are."""
        return len(self.weights)

    @property
    def dimension(self) -> int:
        """m, how many latents there are."""
        return int(self.means.shape[1])

    @property
    def mean(self) -> Float:
        """The mean of the whole law, (m,)."""
        return np.asarray(self.weights @ self.means)

    @property
    def covariance(self) -> Float:
        """The covariance of the whole law, (m, m)."""
        away = self.means - self.mean
        return np.asarray(np.einsum("j,jab->ab", self.weights, self.covariances) + (self.weights * away.T) @ away)

    @property
    def degenerate(self) -> tuple[int, ...]:
        """Components that do not vary in some direction."""
        least = np.linalg.eigvalsh(self.covariances)[:, 0]
        size = max(float(np.linalg.eigvalsh(self.covariance)[-1]), np.finfo(float).tiny)
        return tuple(int(j) for j in np.flatnonzero(least <= FLAT * size))

    def draw(self, n: int, *, seed: int = 0) -> Draw:
        """Draw n rows with the component of each."""
        if isinstance(n, bool) or not isinstance(n, int | float | np.number) or n % 1 != 0 or n < 1:
            raise InputError(f"n must be a whole number of at least 1, not {n!r}")
        rng = np.random.default_rng(seed)
        states = rng.choice(self.components, size=int(n), p=self.weights)
        normal = rng.normal(size=(int(n), self.dimension))
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
        """The log density at the rows of z, (n, m) -> (n,); refused where a component is degenerate."""
        return _log_sum(self.log_joint(z))

    def responsibilities(self, z: Any) -> Float:
        """The probability of each component given a row of z, (n, m) -> (n, J); rows sum to 1."""
        joint = self.log_joint(z)
        return np.asarray(np.exp(joint - _log_sum(joint)[:, None]))

    def log_joint(self, z: Any) -> Float:
        """Log weights[j] + log N(z; means[j], covariances[j]), (n, m) -> (n, J)."""
        z = to_numpy(as_matrix(z, "z")).astype(np.float64, copy=False)
        if z.shape[1] != self.dimension:
            raise InputError(f"z must have {self.dimension} columns, as the mixture has latents, not {z.shape[1]}")
        if self.degenerate:
            raise InputError(
                f"component {listing(self.degenerate)} has a degenerate covariance, so the mixture has no density"
            )
        roots = np.linalg.cholesky(self.covariances)
        joint = np.empty((len(z), self.components))
        for j, root in enumerate(roots):
            white = np.linalg.solve(root, (z - self.means[j]).T)  # (m, n)
            joint[:, j] = -0.5 * (white * white).sum(0) - np.log(np.diag(root)).sum()
        return joint + np.log(self.weights) - 0.5 * self.dimension * LOG_2PI

    def pushed(self, matrix: Any, shift: Any = 0.0) -> GaussianMixture:
        """The law of matrix @ z + shift: a mixture again, with the same weights; `matrix` is (k, m)."""
        matrix = _numbers(matrix, "matrix")
        if matrix.ndim != 2 or matrix.shape[1] != self.dimension:
            raise InputError(f"matrix must have shape (k, {self.dimension}), not {matrix.shape}")
        shift = np.broadcast_to(_numbers(shift, "shift"), (len(matrix),))
        return GaussianMixture(self.weights, self.means @ matrix.T + shift, matrix @ self.covariances @ matrix.T)

    def marginal(self, axes: Sequence[int]) -> GaussianMixture:
        """The law of some latents, in the order asked for; components that become equal are not merged."""
        chosen = np.asarray(axes).ravel()
        if (
            not chosen.size
            or chosen.dtype.kind not in "iu"
            or (chosen < 0).any()
            or (chosen >= self.dimension).any()
            or len(set(chosen)) < len(chosen)
        ):
            raise InputError(f"axes must be different numbers from 0 to {self.dimension - 1}, not {list(axes)}")
        covariances = self.covariances[:, chosen[:, None], chosen]
        return GaussianMixture(self.weights, self.means[:, chosen], covariances)

    def to_dict(self) -> dict[str, Any]:
        """Weights, means and covariances as lists, as in the JSON contract."""
        return {name: getattr(self, name).tolist() for name in ("weights", "means", "covariances")}


def _numbers(x: Any, name: str) -> Float:
    try:
        found = np.array(to_numpy(x) if not isinstance(x, list | tuple) else x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from error
    if not np.isfinite(found).all():
        raise InputError(f"{name} must be finite, but NaN or infinity is among them")
    return found


def as_mixture(prior: Any, name: str = "prior") -> GaussianMixture:
    """A mixture from whatever holds one: itself, a fitted scikit-learn mixture, or a model."""
    if isinstance(prior, GaussianMixture):
        return prior
    if hasattr(prior, "mixture_prior"):
        return GaussianMixture.from_model(prior)
    if hasattr(prior, "covariances_"):
        return GaussianMixture.from_sklearn(prior)
    raise InputError(
        f"{name} must be a GaussianMixture, a fitted one of scikit-learn or a model with mixture_prior(), not "
        f"{type(prior).__name__}"
    )


def _symmetric(covariances: Float) -> Float:
    """Check that matrices are symmetric without negative directions, up to the rounding of float32."""
    turned = covariances.transpose(0, 2, 1)
    size = np.abs(covariances).max((1, 2))
    skew = np.abs(covariances - turned).max((1, 2)) > SKEW * size
    if skew.any():
        raise InputError(f"covariances must be symmetric, but that of component {listing(np.flatnonzero(skew))} is not")
    halved: Float = (covariances + turned) / 2
    dips = np.linalg.eigvalsh(halved)[:, 0] < -SKEW * size
    if dips.any():
        raise InputError(
            f"covariances must have no negative direction, but that of component {listing(np.flatnonzero(dips))} has"
        )
    return halved


def _log_sum(joint: Float) -> Float:
    """Log sum exp over the last axis."""
    largest = joint.max(-1, keepdims=True)
    return np.asarray(largest[..., 0] + np.log(np.exp(joint - largest).sum(-1)))
