"""Minima of the expected negative log-likelihood of a `ReluModel`: along one parameter, and over all at once.

Slices move one parameter. On the grid of a `Surface` every model with the same noise is a distribution that sums to 1
up to rounding, so the truth is a minimiser on the grid too, and a small margin is not an error of the sum.

Searches minimise over all parameters. Models that are equal up to a rescaling and shift of the latent have the same
likelihood, so minimisers are compared by the standardised prior: in one dimension two distributions are affinely
equivalent exactly if they are equal, or mirror images, after centring and scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer, check_integers
from congruence.errors import InputError
from congruence.mixture.distances import l2_distance
from congruence.mixture.likelihood import PARAMETERS, Parameters, ReluModel, Surface
from congruence.mixture.priors import GaussianMixture
from congruence.result import Status

RESOLUTION = 1e-12  # divergences that differ by less are equal; they are exact to about 1e-20
REACHED = 1e-6  # minima that differ by less are equally low: a million rows would hardly distinguish them
ALIKE = 0.02  # relative L2 distance of standardised priors that count as equal
_SPAN = 3.0  # range of a mean, slope or bias to either side; a scale varies from a fifth to five times the centre
_SHARE = 0.01  # weights lie between this and 1 minus this
_VALLEY = 2  # values next to the centre that belong to its valley
_STEPS = 500  # of L-BFGS from each start
_NARROW = 1e-5  # relative to the extent of the prior: the least standard deviation
_GONE = 1e-6  # components with a smaller weight are dropped


@dataclass(frozen=True, eq=False)
class Slice:
    """The expected negative log-likelihood, minus its value at the centre, along one parameter.

    The centre is the truth unless the slices were taken about another model.
    """

    parameter: str  # "means", ...
    index: int
    truth: float  # the value at the centre
    values: Float  # (k,), increasing, the centre among them
    excess: Float  # (k,), at least 0 up to rounding

    @property
    def name(self) -> str:
        """The parameter in words, such as "mean 2"; numbers start at 1."""
        return f"{self.parameter.removesuffix('s') if self.parameter != 'biases' else 'bias'} {self.index + 1}"

    @property
    def at_truth(self) -> int:
        """The place of the centre among the values."""
        return int(np.argmin(np.abs(self.values - self.truth)))

    @property
    def _away(self) -> Array:
        """The places outside the valley of the centre."""
        return np.flatnonzero(np.abs(np.arange(len(self.values)) - self.at_truth) > _VALLEY)

    @property
    def margin(self) -> float:
        """The least excess away from the centre: 0 if another value is as good, below 0 if one is better."""
        return float(self.excess[self._away].min())

    @property
    def rival(self) -> float:
        """The value away from the centre with the lowest excess."""
        return float(self.values[self._away[self.excess[self._away].argmin()]])

    @property
    def valleys(self) -> int:
        """The number of local minima inside the range; more than one: the slice is not convex."""
        fall, rise = np.diff(self.excess)[:-1] < -RESOLUTION, np.diff(self.excess)[1:] > RESOLUTION
        return int((fall & rise).sum())

    @property
    def verdict(self) -> Status:
        """Whether the centre is the only minimiser: "holds", "fails", or "ambiguous" within the resolution."""
        if self.excess.min() < -RESOLUTION:
            return "fails"
        return "holds" if self.margin > RESOLUTION else "ambiguous"

    def to_dict(self) -> dict[str, Any]:
        """The summary of the slice, without its values."""
        names = ("truth", "margin", "rival", "valleys", "verdict")
        return {"parameter": self.name} | {name: getattr(self, name) for name in names}


def slice_all(model: ReluModel, *, surface: Surface | None = None, values: int = 121) -> list[Slice]:
    """Slices of `values` points along every parameter of a model: weights, means, scales, slopes and biases.

    When a weight moves, the others keep their ratios; of two weights only the first is moved. `surface` is that of the
    truth; by default the model is the truth.
    """
    surface = model.surface() if surface is None else surface
    sizes = {name: len(some) for name, some in model.parameters().items()}
    sizes["weights"] = sizes["weights"] if sizes["weights"] > 2 else sizes["weights"] - 1
    moved = [(name, i) for name in PARAMETERS for i in range(sizes[name])]
    return [slice_along(surface, name, i, centre=model, values=values) for name, i in moved]


def slice_along(
    surface: Surface, parameter: str, index: int, *, centre: ReluModel | None = None, values: int = 121
) -> Slice:
    """The slice along one parameter, about the truth of the surface or another centre."""
    import torch

    at = (surface.truth if centre is None else centre).parameters()
    if parameter not in at or not 0 <= index < len(at[parameter]):
        known = ", ".join(f"{name} 0 to {len(some) - 1}" for name, some in at.items())
        raise InputError(f"parameter must be one of {known}; got {parameter} {index}")
    check_integer("values", values, 2 * _VALLEY + 3)
    half, at_centre = (values - 1) // 2, float(at[parameter][index])  # half of the values on either side
    steps = np.linspace(-1, 1, 2 * half + 1)
    if parameter == "weights":
        low, high = min(_SHARE, at_centre / 2), max(1 - _SHARE, (1 + at_centre) / 2)
        sides = np.linspace(low, at_centre, half, endpoint=False), np.linspace(at_centre, high, half + 1)
        grid = np.concatenate(sides)
    elif parameter == "scales":
        grid = at_centre * np.exp(np.log(5.0) * steps)
    else:
        grid = at_centre + _SPAN * steps
    moved = torch.as_tensor(grid)
    batch = {name: some.expand(len(grid), -1).clone() for name, some in at.items()}
    if parameter == "weights":
        batch["weights"] *= ((1 - moved) / (1 - at["weights"][index]))[:, None]
    batch[parameter][:, index] = moved
    excess = (surface.divergence(batch) - surface.divergence(at)).numpy()
    return Slice(parameter, index, at_centre, grid, excess)


@dataclass(frozen=True, eq=False)
class Minimum:
    """The end of a search."""

    model: ReluModel
    excess: float  # expected negative log-likelihood minus that at the truth; at least 0 up to rounding
    apart: float  # the prior from the true one, both standardised: relative L2, from 0 (affinely equivalent) to 1


@dataclass(frozen=True, eq=False)
class Search:
    """Minima from several starts, the lowest first, for one number of components."""

    truth: ReluModel
    components: int
    minima: tuple[Minimum, ...]

    @property
    def best(self) -> Minimum:
        """The lowest minimum."""
        return self.minima[0]

    @property
    def apart(self) -> float:
        """The largest distance of a prior from the true one, among minima as low as the lowest up to `REACHED`."""
        return max(one.apart for one in self.minima if one.excess <= self.best.excess + REACHED)

    @property
    def rival(self) -> Minimum | None:
        """The lowest minimum whose prior is not the true one up to an affine map; None if there is none."""
        return next((one for one in self.minima if one.apart > ALIKE), None)

    @property
    def verdict(self) -> Status:
        """Whether the prior of every lowest minimum is the true one up to an affine map.

        "ambiguous": a minimum that is hardly higher has another prior; theory may still exclude it, these numbers do
        not. "unknown": no search reached the truth. "fails": the number of components is too small for the truth, and
        the closest distribution has another prior.
        """
        specified = self.components >= self.truth.prior.components
        if specified and self.best.excess > REACHED:
            return "unknown"
        if self.apart <= ALIKE:
            return "holds"
        return "ambiguous" if specified else "fails"

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
    """Minimise the expected negative log-likelihood under `truth`, whose noise and number of units are known.

    By default the fitted prior has as many `components` as that of the truth. The first start is the truth with a
    little noise (with its heaviest component split, or its lightest left out); the others are random and use only the
    location of the prior. `surface` is that of the truth, to avoid computing it again.
    """
    components = truth.prior.components if components is None else components
    check_integers(1, components=components, starts=starts)
    surface = truth.surface() if surface is None else surface
    rng = np.random.default_rng(seed)
    initial = [_start_near(truth, components, rng)]
    initial += [_start_anywhere(truth, components, rng) for _ in range(starts - 1)]
    minima = sorted((_minimise(surface, start) for start in initial), key=lambda one: one.excess)
    return Search(truth, components, tuple(minima))


def standardised_distance(p: GaussianMixture, q: GaussianMixture) -> float:
    """The relative L2 distance of two priors of one latent after centring and scaling, up to a mirror: 0 to 1."""
    p, q = (one.pushed([[1 / (root := _spread(one))]], -one.mean / root) for one in (p, q))
    return min(l2_distance(p, q.pushed([[sign]])).relative for sign in (1.0, -1.0))


def _spread(prior: GaussianMixture) -> float:
    return float(np.sqrt(prior.covariance[0, 0]))


def _start_near(truth: ReluModel, components: int, rng: np.random.Generator) -> Float:
    """The truth with noise of standard deviation 0.1, with the requested number of components."""
    weights, means = truth.prior.weights.copy(), truth.prior.means[:, 0].copy()
    scales = np.sqrt(truth.prior.covariances[:, 0, 0])
    while len(weights) < components:
        heavy = int(weights.argmax())
        weights[heavy] /= 2
        weights, means, scales = (np.append(some, some[heavy]) for some in (weights, means, scales))
    heaviest = np.sort(np.argsort(-weights)[:components])
    weights, means, scales = (some[heaviest] for some in (weights, means, scales))
    flat = np.concatenate([np.log(weights), means, np.log(scales), truth.slopes, truth.biases])
    return np.asarray(flat + 0.1 * rng.normal(size=len(flat)))


def _start_anywhere(truth: ReluModel, components: int, rng: np.random.Generator) -> Float:
    """Means and kinks where the true prior has mass, slopes of any sign."""
    centre, spread = float(truth.prior.mean[0]), _spread(truth.prior)
    means = centre + spread * rng.normal(size=components)
    scales = np.log(spread) + rng.uniform(-1.5, 0, components)
    slopes = rng.choice([-1.0, 1.0], len(truth.slopes)) * rng.uniform(0.5, 1.5, len(truth.slopes))
    kinks = centre + spread * rng.uniform(-1, 1, len(truth.slopes))
    return np.concatenate([np.zeros(components), means, scales, slopes, -slopes * kinks])


def _minimise(surface: Surface, start: Float) -> Minimum:
    import torch
    from scipy.optimize import minimize

    truth = surface.truth
    units = len(truth.slopes)

    def objective(flat: Float) -> tuple[float, Float]:
        leaf = torch.tensor(flat, requires_grad=True)
        value = surface(_unpack(leaf, units))
        value.backward()
        assert leaf.grad is not None
        return float(value.detach()), np.nan_to_num(leaf.grad.numpy())

    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    done = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    fitted = {name: some.numpy() for name, some in _unpack(torch.tensor(done.x), units).items()}
    used = fitted["weights"] > _GONE
    weights = fitted["weights"][used] / fitted["weights"][used].sum()
    prior = GaussianMixture.from_arrays(weights, fitted["means"][used], fitted["scales"][used] ** 2)
    slopes = np.where(fitted["slopes"] == 0, 1e-12, fitted["slopes"])
    model = ReluModel(prior, slopes, fitted["biases"], truth.noise, truth.readout)
    return Minimum(model, surface.excess(model), standardised_distance(prior, truth.prior))


def _unpack(flat: Any, units: int) -> Parameters:
    components = (len(flat) - 2 * units) // 3
    logits, means, scales = (flat[i * components : (i + 1) * components] for i in range(3))
    widths = scales.clamp(-12, 12).exp()
    widths = widths + _NARROW * (widths.max() + means.max() - means.min())  # no component becomes a point
    values = (logits.softmax(-1), means, widths, flat[-2 * units : -units], flat[-units:])
    return dict(zip(PARAMETERS, values, strict=True))
