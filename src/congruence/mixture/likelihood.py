"""The exact likelihood of x = ReLU(a z + b) + noise, where the single latent z follows a mixture of Gaussians.

Between two kinks the decoder is affine, so the density of x is a sum over components and pieces of a Gaussian times the
share of the component's posterior that lies on the piece: nothing is sampled. Expectations over x are sums on a grid
that is finer than the noise; for such smooth densities the error of the sum decreases faster than any power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.checks import check_number
from congruence.errors import InputError
from congruence.mixture.priors import LOG_2PI, GaussianMixture

_FAR = 1e8  # replaces infinity as the end of a piece, so that derivatives stay finite
_STEEP = 1e-12  # smallest slope, so that the kink is finite
_REACH = 8.0  # standard deviations covered by the grid
_RARE = 1e-16  # relative to the largest density: points of the grid with less are left out
_SMALL = 1e-6  # divergences below are computed without cancellation
_CELLS = 2**21  # largest number of points of the grid before rare ones are left out

PARAMETERS = ("weights", "means", "scales", "slopes", "biases")
Parameters = dict[str, Any]  # tensors "weights", "means", "scales" (..., J) and "slopes", "biases" (..., h)


@dataclass(frozen=True, eq=False)
class ReluModel:
    """The distribution of x = ReLU(slopes z + biases) + noise e, with z from `prior` and e standard normal.

    There are one latent, h units and n observed numbers: every unit, n = h, or with a readout one sum of them, n = 1.
    Rescaling and shifting z and the layer together does not change the distribution of x.
    """

    prior: GaussianMixture  # of one latent
    slopes: Float  # (h,), not 0
    biases: Float  # (h,)
    noise: float  # standard deviation, above 0, assumed known
    readout: Float | None = None  # (h,), the weight of each unit in the observed sum

    def __post_init__(self) -> None:
        if self.prior.dimension != 1:
            raise InputError(f"prior must have one latent; got {self.prior.dimension}")
        if self.prior.degenerate:
            raise InputError("prior must have components of variance above 0")
        slopes, biases = np.array(self.slopes, dtype=float), np.array(self.biases, dtype=float)
        if slopes.ndim != 1 or slopes.shape != biases.shape or not slopes.size:
            raise InputError(f"slopes and biases must have the same shape (h,); got {slopes.shape} and {biases.shape}")
        if not slopes.all():
            raise InputError("slopes must not be 0: a unit of slope 0 does not depend on the latent")
        check_number("noise", self.noise, 0, open_low=True)
        object.__setattr__(self, "slopes", slopes)
        object.__setattr__(self, "biases", biases)
        if self.readout is not None:
            readout = np.array(self.readout, dtype=float)
            if readout.shape != slopes.shape:
                raise InputError(f"readout must have shape {slopes.shape}; got {readout.shape}")
            object.__setattr__(self, "readout", readout)

    @property
    def observed(self) -> Float:
        """The matrix from units to observations, (n, h)."""
        return np.eye(len(self.slopes)) if self.readout is None else self.readout[None]

    @property
    def kinks(self) -> Float:
        """The latents at which a unit changes between active and inactive, (h,)."""
        return np.asarray(-self.biases / self.slopes)

    @property
    def injective(self) -> bool:
        """Whether no two latents have the same output (F4), exactly.

        If all units are observed, some unit must be active on every piece; a sum of them must be monotonic.
        """
        kinks = np.unique(self.kinks)
        inside = np.concatenate([[kinks[0] - 1], (kinks[1:] + kinks[:-1]) / 2, [kinks[-1] + 1]])
        active = self.slopes * inside[:, None] + self.biases > 0
        derivatives = (active * self.slopes) @ self.observed.T  # (pieces, n)
        if self.readout is None:
            return bool(derivatives.any(axis=1).all())
        return bool((derivatives > 0).all() or (derivatives < 0).all())

    def decode(self, z: Any) -> Float:
        """Observations without noise, (k, n), of latents (k,) or (k, 1)."""
        units = np.maximum(np.asarray(z, dtype=float).reshape(-1, 1) * self.slopes + self.biases, 0)
        return np.asarray(units @ self.observed.T)

    def sample(self, n: int, *, seed: int = 0) -> Float:
        """Draw n observations, (n, observations)."""
        clean = self.decode(self.prior.sample(n, seed=seed))
        return np.asarray(clean + self.noise * np.random.default_rng([seed, 1]).normal(size=clean.shape))

    def parameters(self) -> Parameters:
        """The free parameters as float64 tensors: weights, means, scales (standard deviations), slopes, biases."""
        import torch

        prior = self.prior
        scales = np.sqrt(prior.covariances[:, 0, 0])
        values = (prior.weights, prior.means[:, 0], scales, self.slopes, self.biases)
        return {name: torch.tensor(x, dtype=torch.float64) for name, x in zip(PARAMETERS, values, strict=True)}

    def log_density(self, x: Any) -> Float:
        """The log density of observations, (k, n) -> (k,), exact up to rounding."""
        import torch

        x = np.asarray(to_numpy(x), dtype=float).reshape(-1, len(self.observed))
        return np.asarray(log_density(torch.tensor(x), self.parameters(), self.observed, self.noise).numpy())

    def surface(self, *, step: float = 0.75) -> Surface:
        """The expected negative log-likelihood when this model is the truth, as a function of the parameters.

        `step` is that of the grid of observations, in standard deviations of the noise; with the default, distributions
        sum to 1 up to 1e-14.
        """
        points = self._grid(step * self.noise)
        density = np.exp(self.log_density(points))
        likely = density > _RARE * density.max()
        weights = density[likely] * (step * self.noise) ** len(self.observed)
        return Surface(self, points[likely], weights)

    def _grid(self, step: float) -> Array:
        scales, means = np.sqrt(self.prior.covariances[:, 0, 0]), self.prior.means[:, 0]
        ends = [(means - _REACH * scales).min(), (means + _REACH * scales).max()]
        seen, reach = self.decode(np.concatenate([ends, self.kinks])), _REACH * self.noise
        lines = [np.arange(a - reach, b + reach + step, step) for a, b in zip(seen.min(0), seen.max(0), strict=True)]
        count = math.prod(len(line) for line in lines)
        if count > _CELLS:
            raise InputError(f"step must be larger: its grid has {count} points, and at most {_CELLS} are allowed")
        return np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], axis=1)


@dataclass(frozen=True, eq=False)
class Surface:
    """The expected negative log-likelihood under a true model, by a sum over a grid of observations."""

    truth: ReluModel
    points: Float  # (g, n)
    weights: Float  # (g,), probabilities: they sum to 1 up to the error of the sum

    def __call__(self, parameters: Parameters) -> Any:
        """E[-log p(x; parameters)] with derivatives; parameters may be a batch, (..., J) and (..., h), of any J."""
        import torch

        logs = log_density(torch.as_tensor(self.points), parameters, self.truth.observed, self.truth.noise)
        return -(logs * torch.as_tensor(self.weights)).sum(-1)

    @property
    def least(self) -> float:
        """The value at the truth, the entropy of x: a lower bound for every distribution of x."""
        return float(self(self.truth.parameters()))

    def divergence(self, parameters: Parameters) -> Any:
        """KL(truth, model) of one or many models, (...), also where it is far below the rounding error of the entropy.

        With r the ratio of both densities, KL is the expectation of r - 1 - log r, whose terms are not negative, so
        that nothing cancels. This is used below 1e-6; above, where a model may have mass outside the grid, KL is the
        difference of the expected log-likelihoods.
        """
        import torch

        points, weights = torch.as_tensor(self.points), torch.as_tensor(self.weights)
        truth = log_density(points, self.truth.parameters(), self.truth.observed, self.truth.noise)
        ratio = log_density(points, parameters, self.truth.observed, self.truth.noise) - truth
        plain, exact = -(ratio * weights).sum(-1), ((torch.expm1(ratio) - ratio) * weights).sum(-1)
        return torch.where(plain.abs() > _SMALL, plain, exact)

    def excess(self, model: ReluModel) -> float:
        """KL(truth, model), which is 0 only if x has the same distribution in both."""
        return float(self.divergence(model.parameters()))


def log_density(x: Any, parameters: Parameters, observed: Float, noise: float) -> Any:
    """Log density of observations (g, n) under one or many models, (..., g); torch, differentiable.

    Per component j and piece p of the decoder, on which it is c + d z, the density is w_j N(x; c + d mu_j,
    noise^2 I + s_j^2 d d^T) times the probability that z, given x and j, lies on p.
    """
    import torch

    weights, means, scales, slopes, biases = (parameters[name] for name in PARAMETERS)
    slopes = torch.where(slopes.abs() < _STEEP, torch.where(slopes < 0, -_STEEP, _STEEP), slopes)
    kinks = (-biases / slopes).clamp(-_FAR / 2, _FAR / 2).sort(-1).values  # (..., h)
    end = torch.full_like(kinks[..., :1], _FAR)
    low, high = torch.cat([-end, kinks], -1), torch.cat([kinks, end], -1)  # (..., p)
    inside = torch.where(low <= -_FAR, high - 1, torch.where(high >= _FAR, low + 1, (low + high) / 2))
    active = (slopes[..., None, :] * inside[..., None] + biases[..., None, :] > 0).to(slopes.dtype)  # (..., p, h)
    readout = torch.as_tensor(observed)  # (n, h)
    d = (active * slopes[..., None, :]) @ readout.T  # (..., p, n)
    c = (active * biases[..., None, :]) @ readout.T

    # axes from here on: (..., j, p, g)
    mu, s2 = means[..., :, None, None], (scales**2)[..., :, None, None]
    steep = (d * d).sum(-1)[..., None, :, None] / noise**2  # (..., 1, p, 1)
    gain = 1 + s2 * steep
    rest = x - c[..., None, :]  # (..., p, g, n)
    pull = (rest @ d[..., :, None]).squeeze(-1)[..., None, :, :] / noise**2  # (..., 1, p, g), d . (x - c) / noise^2
    along = pull - steep * mu
    size = (rest * rest).sum(-1)[..., None, :, :] / noise**2 - 2 * mu * pull + mu * mu * steep
    n = readout.shape[0]
    log_normal = -0.5 * (size - s2 * along * along / gain + gain.log() + n * (2 * math.log(noise) + LOG_2PI))

    centre, width = (mu + s2 * pull) / gain, (s2 / gain).sqrt()  # of z given x, j and the line of p
    low, high = ((edge[..., None, :, None] - centre) / width for edge in (low, high))
    joint = weights.log()[..., :, None, None] + log_normal + _log_mass(low, high)
    return joint.flatten(-3, -2).logsumexp(-2)


def _log_mass(low: Any, high: Any) -> Any:
    """Log of the standard normal probability between low and high, also far out in a tail."""
    import torch

    turned = low + high > 0  # by symmetry use the left tail, where logarithms keep their digits
    low, high = torch.where(turned, -high, low), torch.where(turned, -low, high)
    left, right = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    return right + torch.log(-torch.expm1((left - right).clamp(max=-1e-15)))
