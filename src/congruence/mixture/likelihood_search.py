"""Minimise the expected negative log-likelihood over all parameters at once: are all minimisers the truth?

Models that are the same up to a rescaling and shift of the latent have the same likelihood, so that minimisers are
compared by the standardised prior: in one dimension two laws are affinely equivalent exactly when they are the same, or
mirror images, after centring and scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.mixture.distance import l2_distance
from congruence.mixture.gmm import GaussianMixture
from congruence.mixture.likelihood import Parameters, ReluModel, Surface

REACHED = 1e-6  # minima that differ by less are as low as each other: a million rows would hardly tell them apart
ALIKE = 0.02  # standardised priors that differ by less, of the largest possible L2 distance, are the same
STEPS = 500  # of L-BFGS from each start
NARROW = 1e-5  # of the extent of the prior: the least standard deviation
GONE = 1e-6  # a mixture weight of less is of a component that is not there
ORDER = ("weights", "means", "scales", "slopes", "biases")


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a search ended."""

    model: ReluModel
    excess: float  # expected negative log-likelihood minus that at the truth; at least 0 up to rounding
    apart: float  # the prior from the true one, both standardised: relative L2, from 0 (affinely equivalent) to 1


@dataclass(frozen=True, eq=False)
class Search:
    """The minima found from several starts, the lowest first, with a fitted number of components."""

    truth: ReluModel
    components: int
    minima: tuple[Minimum, ...]

    @property
    def best(self) -> Minimum:
        """The lowest minimum."""
        return self.minima[0]

    @property
    def reached(self) -> tuple[Minimum, ...]:
        """The minima as low as the lowest, up to `REACHED`."""
        return tuple(one for one in self.minima if one.excess <= self.best.excess + REACHED)

    @property
    def apart(self) -> float:
        """The farthest prior from the true one among minima that are as low as the lowest."""
        return max(one.apart for one in self.reached)

    @property
    def rival(self) -> Minimum | None:
        """The lowest minimum whose prior is not the true one up to an affine map, if one was found."""
        return next((one for one in self.minima if one.apart > ALIKE), None)

    @property
    def verdict(self) -> str:
        """Whether the prior of every lowest minimum is the true one up to an affine map.

        "ambiguous" where a minimum that is hardly higher has another prior: theory may still exclude it, these numbers
        do not. "unknown" where no search came down to the truth. "fails" where the number of components is too small
        for the truth and the nearest law has another prior.
        """
        within = self.components >= self.truth.prior.components
        if within and self.best.excess > REACHED:
            return "unknown"
        if self.apart <= ALIKE:
            return "holds"
        return "ambiguous" if within else "fails"

    def to_dict(self) -> dict[str, Any]:
        """The numbers, without the models."""
        return {
            "components": self.components,
            "excess": [one.excess for one in self.minima],
            "apart": [one.apart for one in self.minima],
            "rival": None if self.rival is None else {"excess": self.rival.excess, "apart": self.rival.apart},
            "verdict": self.verdict,
        }


def search(
    truth: ReluModel, *, components: int | None = None, starts: int = 8, surface: Surface | None = None, seed: int = 0
) -> Search:
    """Minimise the expected negative log-likelihood under `truth` from random starts.

    Parameters
    ----------
    truth : ReluModel
        The model that makes the data; its noise and the number of its units are known.
    components : int, optional
        Of the prior that is fitted; as many as the truth has unless given. With another number, J is misspecified.
    starts : int
        The first is the truth with a little noise (and its heaviest component split, or its lightest left out), the
        others know nothing but where the prior lies.
    surface : Surface, optional
        That of the truth, where it is at hand.
    seed : int
        The same seed gives the same result.
    """
    components = truth.prior.components if components is None else components
    if components < 1 or starts < 1:
        raise InputError(f"components and starts must be at least 1, not {components} and {starts}")
    surface = truth.surface() if surface is None else surface
    rng = np.random.default_rng(seed)
    begun = [_near(truth, components, rng), *(_anywhere(truth, components, rng) for _ in range(starts - 1))]
    minima = sorted((_descend(surface, start) for start in begun), key=lambda one: one.excess)
    return Search(truth, components, tuple(minima))


def standardised_distance(p: GaussianMixture, q: GaussianMixture) -> float:
    """How far two priors of one latent are apart after centring and scaling, up to a mirror: relative L2, 0 to 1."""
    scaled = [one.pushed([[1 / root]], -one.mean / root) for one in (p, q) if (root := _spread(one))]
    return min(l2_distance(scaled[0], scaled[1].pushed([[sign]])).relative for sign in (1.0, -1.0))


def _spread(prior: GaussianMixture) -> float:
    return float(np.sqrt(prior.covariance[0, 0]))


def _near(truth: ReluModel, components: int, rng: np.random.Generator) -> Float:
    """The truth with a tenth of noise, with as many components as asked for."""
    weights, means = truth.prior.weights.copy(), truth.prior.means[:, 0].copy()
    scales = np.sqrt(truth.prior.covariances[:, 0, 0])
    while len(weights) < components:
        heavy = int(weights.argmax())
        weights[heavy] /= 2
        weights, means, scales = (np.append(some, some[heavy]) for some in (weights, means, scales))
    kept = np.sort(np.argsort(-weights)[:components])
    found = [np.log(weights[kept]), means[kept], np.log(scales[kept]), truth.slopes, truth.biases]
    flat = np.concatenate(found)
    return np.asarray(flat + 0.1 * rng.normal(size=len(flat)))


def _anywhere(truth: ReluModel, components: int, rng: np.random.Generator) -> Float:
    """Means and kinks anywhere where the true prior has mass, slopes of any sign."""
    centre, spread = float(truth.prior.mean[0]), _spread(truth.prior)
    means = centre + spread * rng.normal(size=components)
    scales = np.log(spread) + rng.uniform(-1.5, 0, components)
    slopes = rng.choice([-1.0, 1.0], len(truth.slopes)) * rng.uniform(0.5, 1.5, len(truth.slopes))
    kinks = centre + spread * rng.uniform(-1, 1, len(truth.slopes))
    return np.concatenate([np.zeros(components), means, scales, slopes, -slopes * kinks])


def _descend(surface: Surface, start: Float) -> Minimum:
    import torch
    from scipy.optimize import minimize

    units = len(surface.truth.slopes)

    def value(flat: Float) -> tuple[float, Float]:
        leaf = torch.tensor(flat, requires_grad=True)
        found = surface(_unpacked(leaf, units))
        found.backward()
        assert leaf.grad is not None
        return float(found.detach()), np.nan_to_num(leaf.grad.numpy())

    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    done = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    with torch.no_grad():
        found = {name: some.numpy() for name, some in _unpacked(torch.tensor(done.x), units).items()}
    kept = found["weights"] > GONE
    weights = found["weights"][kept] / found["weights"][kept].sum()
    prior = GaussianMixture.from_arrays(weights, found["means"][kept], found["scales"][kept] ** 2)
    truth = surface.truth
    slopes = np.where(found["slopes"] == 0, 1e-12, found["slopes"])
    model = ReluModel(prior, slopes, found["biases"], truth.noise, truth.readout)
    return Minimum(model, float(done.fun) - surface.least, standardised_distance(prior, truth.prior))


def _unpacked(flat: Any, units: int) -> Parameters:
    components = (len(flat) - 2 * units) // 3
    logits, means, scales = (flat[i * components : (i + 1) * components] for i in range(3))
    widths = scales.clamp(-12, 12).exp()
    widths = widths + NARROW * (widths.max() + means.max() - means.min())  # no component becomes a point
    values = (logits.softmax(-1), means, widths, flat[-2 * units : -units], flat[-units:])
    return dict(zip(ORDER, values, strict=True))
