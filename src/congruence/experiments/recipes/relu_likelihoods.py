"""Random one-layer ReLU models, and how their likelihood looks along and across their parameters.

The laws are ours, since the paper gives none: weights 0.1 each and the rest by a Dirichlet law of parameter 2, means
N(0, 4), standard deviations uniform from 0.4 to 1, slopes of either sign and of size uniform from 0.5 to 1.5, kinks at
uniform quantiles of the prior from 10 to 90 %, known noise of standard deviation 0.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.mixture.distances import affine_distance
from congruence.mixture.likelihood import PARAMETERS, ReluModel
from congruence.mixture.likelihood_minima import (
    ALIKE,
    REACHED,
    Slice,
    search,
    slice_all,
    slice_along,
    standardised_distance,
)
from congruence.mixture.priors import GaussianMixture
from congruence.result import STATUSES, Status

NOISE = 0.3
KINDS = ("right", "right", "right", "one too many", "one too few")  # components that are fitted, in turn
DRAWS = 20_000  # of the prior, whose quantiles are kinks
REMARK = ((-2.0, -1.0, 3.0), (-2.0, 1.0, 3.0))  # the means of P and P' in Remark 3.12
SPREAD = 0.5  # of their components; the remark holds for any
ABSOLUTE: Mapping[str, Any] = {"slopes": (1.0, -1.0), "biases": (0.0, 0.0), "noise": NOISE, "readout": (1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Case:
    """One random model: its slices, and where searches over all parameters ended."""

    number: int
    kind: str  # of KINDS
    components: int
    units: int
    injective: bool
    slices: tuple[Slice, ...]
    excess: Float  # (starts,) of the ends of searches with the right number of components; empty where none was made
    apart: Float  # (starts,) how far their priors are from the true one

    @property
    def unique(self) -> Status:
        """Whether the centre is the only minimiser along every parameter: the worst of the slices."""
        verdicts = {one.verdict for one in self.slices}
        return next(status for status in STATUSES if status in verdicts)

    @property
    def margin(self) -> float:
        """The least margin of all slices."""
        return min(one.margin for one in self.slices)

    @property
    def found(self) -> Status | None:
        """Whether all lowest ends of searches have the true prior, up to an affine map."""
        if not len(self.excess):
            return None
        if self.excess.min() > REACHED:
            return "unknown"
        return "holds" if self.apart[self.excess <= REACHED].max() <= ALIKE else "ambiguous"

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        return {
            "model": self.number,
            "fitted": self.kind,
            "components": self.components,
            "units": self.units,
            "injective": self.injective,
            "unique": self.unique,
            "margin": self.margin,
            "slices": [one.to_dict() for one in self.slices],
            "search": {"excess": self.excess.tolist(), "apart": self.apart.tolist(), "verdict": self.found},
        }


@dataclass(frozen=True, eq=False)
class Counterexample:
    """The two priors of Remark 3.12, seen through the absolute value and through both halves of it."""

    excess: float  # of the other prior, seen through |z|: 0 where the laws of x are the same
    seen_excess: float  # seen through (ReLU(z), ReLU(-z)), which is injective
    apart: float  # of the priors, standardised, relative: from 0 to 1
    affine: float  # what is left of their L2 distance after the best affine map that was found
    folded: Slice  # along the second mean, through |z|
    seen: Slice  # and through both halves

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        names = ("excess", "seen_excess", "apart", "affine")
        slices_ = {name: getattr(self, name).to_dict() for name in ("folded", "seen")}
        return {name: getattr(self, name) for name in names} | slices_


def draw_model(components: int, units: int, seed: int | list[int]) -> ReluModel:
    """Draw a model from the laws of this file."""
    rng = np.random.default_rng(seed)
    weights = 0.1 + (1 - 0.1 * components) * rng.dirichlet(np.full(components, 2.0))
    means, scales = 2 * rng.normal(size=components), rng.uniform(0.4, 1.0, components)
    prior = GaussianMixture.from_arrays(weights, means, scales**2)
    slopes = rng.choice([-1.0, 1.0], units) * rng.uniform(0.5, 1.5, units)
    drawn = prior.sample(DRAWS, seed=int(rng.integers(2**31)))[:, 0]
    return ReluModel(prior, slopes, -slopes * np.quantile(drawn, rng.uniform(0.1, 0.9, units)), NOISE)


def case_model(number: int, seed: int) -> ReluModel:
    """The truth of one case: two or three components, one or two units, in turn."""
    return draw_model(2 + number // 2 % 2, 1 + number % 2, [seed, number])


def measure_case(number: int, *, values: int, starts: int, seed: int) -> dict[str, Array]:
    """Slices and searches of one model, as arrays."""
    truth = case_model(number, seed)
    surface, kind = truth.surface(), KINDS[number % len(KINDS)]
    centre, excess, apart = truth, np.empty(0), np.empty(0)
    if kind == "one too many":
        centre = split_heaviest(truth)
    elif kind == "one too few":
        fewer = truth.prior.components - 1
        centre = search(truth, components=fewer, starts=starts, surface=surface, seed=number).best.model
    else:
        minima = search(truth, starts=starts, surface=surface, seed=number).minima
        excess, apart = (np.array([getattr(one, name) for one in minima]) for name in ("excess", "apart"))
    found = slice_all(centre, surface=surface, values=values)
    return {
        "which": np.array([(PARAMETERS.index(one.parameter), one.index) for one in found]),
        "truth": np.array([one.truth for one in found]),
        "values": np.array([one.values for one in found]),
        "along": np.array([one.excess for one in found]),
        "excess": excess,
        "apart": apart,
    }


def read_case(number: int, arrays: Mapping[str, Array], seed: int) -> Case:
    """The case that `measure_case` measured."""
    model = case_model(number, seed)
    columns = (arrays[name] for name in ("which", "truth", "values", "along"))
    found = tuple(
        Slice(PARAMETERS[which[0]], int(which[1]), float(truth), values, along)
        for which, truth, values, along in zip(*columns, strict=True)
    )
    return Case(
        number,
        KINDS[number % len(KINDS)],
        model.prior.components,
        len(model.slopes),
        model.injective,
        found,
        arrays["excess"],
        arrays["apart"],
    )


def split_heaviest(model: ReluModel) -> ReluModel:
    """The same law of x, with the heaviest component of the prior written twice."""
    prior, heavy = model.prior, int(model.prior.weights.argmax())
    chosen = np.append(np.arange(prior.components), heavy)
    weights = prior.weights[chosen] / np.where(chosen == heavy, 2, 1)
    twice = GaussianMixture(weights, prior.means[chosen], prior.covariances[chosen])
    return ReluModel(twice, model.slopes, model.biases, model.noise, model.readout)


def measure_remark(values: int) -> Counterexample:
    """Remark 3.12: with the absolute value, which is not weakly injective, two priors give the same law."""
    one, other = (GaussianMixture.from_arrays(np.full(3, 1 / 3), means, np.full(3, SPREAD**2)) for means in REMARK)
    both = {**ABSOLUTE, "readout": None}
    folded, seen = ReluModel(one, **ABSOLUTE).surface(), ReluModel(one, **both).surface()
    return Counterexample(
        excess=folded.excess(ReluModel(other, **ABSOLUTE)),
        seen_excess=seen.excess(ReluModel(other, **both)),
        apart=standardised_distance(one, other),
        affine=affine_distance(one, other).distance,
        folded=slice_along(folded, "means", 1, values=values),
        seen=slice_along(seen, "means", 1, values=values),
    )
