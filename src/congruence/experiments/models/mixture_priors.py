"""Gaussian mixtures as the prior of codes: learned with diagonal covariances, or given and fixed.

Both have `kl(mean, sigma)`, the divergence of a diagonal Gaussian to every component in closed form, and
`log_joint(z)`, log weight + log density of every component; J is the number of components, m that of latents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.guards import PRIOR_BYTES

PARTS = ("weights", "means", "covariances")
LOG_2PI = math.log(2 * math.pi)
LEAST = 1e-6  # initial weight or variance of a component
SHARPNESS = 10.0  # of the softplus of variances, as in the program of the authors of MFCVAE


class LearnedMixture(nn.Module):  # type: ignore[misc]
    """A mixture whose weights, means and variances are learned; all components start as N(0, 1) in every latent."""

    learned = "log_variances"  # the name of the parameter for variances

    def __init__(self, components: int, latents: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(components))
        self.means = nn.Parameter(torch.zeros(components, latents))
        self.register_parameter(self.learned, nn.Parameter(self.invert(torch.ones(components, latents))))

    @staticmethod
    def invert(variances: Any) -> Any:
        """The parameter that gives these variances."""
        return variances.log()

    def log_weights(self) -> Any:
        """The log of the weights, (J,)."""
        return self.logits.log_softmax(0)

    def kl(self, mean: Any, sigma: Any) -> Any:
        """KL(N(mean, sigma^2) || component) in nats, (n, m) -> (n, J)."""
        ratio = (sigma.log() * 2)[:, None] - self.log_variances  # (n, J, m)
        away = (mean[:, None] - self.means).square() * (-self.log_variances).exp()
        return (ratio.exp() + away - 1 - ratio).sum(2) / 2

    def log_joint(self, z: Any) -> Any:
        """Log of weight times density of every component at z, (n, m) -> (n, J)."""
        away = (z[:, None] - self.means).square() * (-self.log_variances).exp()
        return self.log_weights() - (away + self.log_variances + LOG_2PI).sum(2) / 2

    def start_at(self, weights: Array, means: Array, variances: Array) -> None:
        """Set the initial components; variances are (J, m)."""
        with torch.no_grad():
            self.logits.copy_(torch.as_tensor(np.log(np.maximum(weights, LEAST))))
            self.means.copy_(torch.as_tensor(means))
            getattr(self, self.learned).copy_(self.invert(torch.as_tensor(np.maximum(variances, LEAST))))

    def arrays(self) -> tuple[Float, Float, Float]:
        """Weights (J,), means (J, m) and covariances (J, m, m), float64."""
        weights, means, variances = (
            to_numpy(part.detach().double())
            for part in (self.log_weights().exp(), self.means, self.log_variances.exp())
        )
        return weights / weights.sum(), means, variances[:, :, None] * np.eye(means.shape[1])


class SoftplusMixture(LearnedMixture):
    """A learned mixture with variances log(1 + exp(10 v)) / 10: where they are small, a step of v changes them more."""

    learned = "softplus_variances"

    @property
    def log_variances(self) -> Any:
        """The log of the variances, (J, m)."""
        return nn.functional.softplus(self.softplus_variances, beta=SHARPNESS).log()

    @staticmethod
    def invert(variances: Any) -> Any:
        """The parameter that gives these variances."""
        return variances + (-(-SHARPNESS * variances).expm1()).log() / SHARPNESS


class GivenMixture(nn.Module):  # type: ignore[misc]
    """A fixed mixture with any covariances."""

    def __init__(self, weights: Array, means: Array, covariances: Array) -> None:
        super().__init__()
        inverses, signs = np.linalg.inv(covariances), np.linalg.slogdet(covariances)
        named = {"weights": weights, "means": means, "covariances": covariances, "precisions": inverses}
        for name, value in (named | {"log_determinants": signs[1]}).items():
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32))

    def log_weights(self) -> Any:
        """The log of the weights, (J,)."""
        return self.weights.log()

    def kl(self, mean: Any, sigma: Any) -> Any:
        """KL(N(mean, sigma^2) || component) in nats, (n, m) -> (n, J)."""
        spread = sigma.square() @ self.precisions.diagonal(dim1=1, dim2=2).T  # (n, J), the trace of P diag(sigma^2)
        entropy = 2 * sigma.log().sum(1, keepdim=True)
        return (spread + self._away(mean) - mean.shape[1] + self.log_determinants - entropy) / 2

    def log_joint(self, z: Any) -> Any:
        """Log of weight times density of every component at z, (n, m) -> (n, J)."""
        return self.log_weights() - (self._away(z) + self.log_determinants + z.shape[1] * LOG_2PI) / 2

    def arrays(self) -> tuple[Float, Float, Float]:
        """Weights (J,), means (J, m) and covariances (J, m, m), float64."""
        weights, means, covariances = (to_numpy(getattr(self, name).double()) for name in PARTS)
        return weights, means, covariances

    def _away(self, z: Any) -> Any:
        """Squared Mahalanobis distances to the means, (n, J)."""
        gaps = z[:, None] - self.means  # (n, J, m)
        return torch.einsum("nja,jab,njb->nj", gaps, self.precisions, gaps)


def given_mixture(prior: Any, latents: int) -> GivenMixture:
    """A prior from a mapping or an object with `weights`, `means` and `covariances`; None is the standard Gaussian.

    Weights must be positive and sum to 1, covariances (J, m, m) symmetric and positive definite.
    """
    if prior is None and 8 * latents**2 > PRIOR_BYTES:
        raise InputError(f"the covariance of {latents} latents would take more than {PRIOR_BYTES} bytes")
    if prior is None:
        return GivenMixture(np.ones(1), np.zeros((1, latents)), np.eye(latents)[None])
    weights, means, covariances = (_part(prior, name) for name in PARTS)
    count = len(weights) if weights.ndim == 1 else 0
    if not count or not (weights > 0).all() or not abs(weights.sum() - 1) <= 1e-4:
        raise InputError(f"weights of a prior must be positive and sum to 1; got {weights}")
    if means.shape != (count, latents) or covariances.shape != (count, latents, latents):
        raise InputError(
            f"a prior of {count} components and {latents} latents needs means {(count, latents)} and covariances "
            f"{(count, latents, latents)}; got {means.shape} and {covariances.shape}"
        )
    turned = covariances.transpose(0, 2, 1)
    if not np.allclose(covariances, turned, rtol=1e-5) or np.linalg.eigvalsh(covariances).min() <= 0:
        raise InputError("covariances of a prior must be symmetric and positive definite")
    return GivenMixture(weights / weights.sum(), means, covariances)


def product(parts: Sequence[tuple[Float, Float, Float]], most: int = 10_000) -> tuple[Float, Float, Float]:
    """The product of independent mixtures: one component for each combination of components, at most `most`."""
    count = math.prod(len(weights) for weights, _, _ in parts)
    if count > most:
        raise InputError(f"the product of mixtures may have at most {most} components; got {count}")
    weights, means, covariances = parts[0]
    for other, others, spreads in parts[1:]:
        i, j = (index.ravel() for index in np.indices((len(weights), len(other))))
        m, k = means.shape[1], others.shape[1]
        joint = np.zeros((len(i), m + k, m + k))
        joint[:, :m, :m], joint[:, m:, m:] = covariances[i], spreads[j]
        weights, means, covariances = weights[i] * other[j], np.hstack([means[i], others[j]]), joint
    return weights, means, covariances


def _part(prior: Any, name: str) -> Float:
    found = prior.get(name) if isinstance(prior, Mapping) else getattr(prior, name, None)
    if found is None:
        raise InputError(f"a prior must have weights, means and covariances; {name} is missing")
    try:
        numbers = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} of a prior must be numbers: {error}") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} of a prior must be finite; got NaN or infinity")
    return numbers
