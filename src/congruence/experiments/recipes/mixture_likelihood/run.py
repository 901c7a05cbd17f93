"""Section 4 of Kivva et al., maximum likelihood: is the truth the only minimiser, in 50 random one-layer ReLU models?

The distributions are ours, since the paper gives none: two units, two or three components in turn, weights 0.1 each and
the rest Dirichlet with parameter 2, means N(0, 4), standard deviations uniform from 0.4 to 1, slopes of either sign and
of size uniform from 0.5 to 1.5, kinks at uniform quantiles of the prior from 10 to 90 %, known noise of standard
deviation 0.3. With a single unit, a component where it is inactive would hardly change the distribution of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes.mixture_likelihood import claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, from_numbers
from congruence.mixture.distances import affine_distance
from congruence.mixture.likelihood import PARAMETERS as MODEL_PARAMETERS
from congruence.mixture.likelihood import ReluModel
from congruence.mixture.likelihood_minima import (
    ALIKE,
    REACHED,
    RESOLUTION,
    Slice,
    search,
    slice_all,
    slice_along,
    standardised_distance,
)
from congruence.mixture.priors import GaussianMixture
from congruence.result import Status, combine

EDITION = 2
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"models": 5, "values": 21, "starts": 2},
    "small": {"models": 50, "values": 61, "starts": 4},
    "paper": {"models": 50, "values": 121, "starts": 10},
    "full": {"models": 500, "values": 241, "starts": 20},
}
NOISE, UNITS = 0.3, 2
KINDS = ("right", "right", "right", "one too many", "one too few")  # components that are fitted, in turn
DRAWS = 20_000  # from the prior, to find the quantiles of the kinks
ABSOLUTE: Mapping[str, Any] = {"slopes": (1.0, -1.0), "biases": (0.0, 0.0), "noise": NOISE, "readout": (1.0, 1.0)}


@dataclass(frozen=True)
class SliceSummary:
    """A slice without its values."""

    parameter: str
    margin: float
    valleys: int
    verdict: Status


@dataclass(frozen=True, eq=False)
class LikelihoodCase:
    """One random model: its slices, and where searches over all parameters ended."""

    number: int
    kind: str  # of KINDS
    components: int
    injective: bool
    slices: tuple[SliceSummary, ...]
    excess: Float  # (starts,) of the ends of searches with the right number of components; empty where none was made
    apart: Float  # (starts,) how far their priors are from the true one

    @property
    def unique(self) -> Status:
        """Whether the centre is the only minimiser along every parameter: the worst of the slices."""
        return combine(one.verdict for one in self.slices)

    @property
    def margin(self) -> float:
        """The smallest margin of all slices."""
        return min(one.margin for one in self.slices)

    @property
    def is_bent(self) -> bool:
        """Whether some slice has more than one local minimum."""
        return any(one.valleys > 1 for one in self.slices)

    @property
    def search_status(self) -> Status | None:
        """Whether all minima reached by searches have the true prior, up to an affine map."""
        if not len(self.excess):
            return None
        if self.excess.min() > REACHED:
            return "unknown"
        return "holds" if self.apart[self.excess <= REACHED].max() <= ALIKE else "ambiguous"


@dataclass(frozen=True, eq=False)
class ShownSlice:
    """A slice that is drawn."""

    number: int  # of the case
    components: int
    slice: Slice


@dataclass(frozen=True, eq=False)
class Remark:
    """The two priors of remark 3.12, observed through the absolute value and through both halves of it."""

    excess: float  # of the other prior, observed through |z|: 0 if x has the same distribution
    seen_excess: float  # observed through (ReLU(z), ReLU(-z)), which is injective
    apart: float  # distance of the priors, standardised, relative: from 0 to 1
    affine: float  # their L2 distance after the best affine map that was found
    folded: Slice  # along the second mean, through |z|
    seen: Slice  # and through both halves


def compute(job: RecipeJob) -> dict[str, Any]:
    """Measure all models and the counterexample."""
    count, values, starts = (job.parameters[name] for name in ("models", "values", "starts"))
    cases, slices = [], {}
    for i in range(count):
        job.progress("measuring likelihoods", i, count + 1)
        measure = partial(measure_case, i, values=values, starts=starts, seed=job.seed)
        case, slices[i] = read_case(i, job.parts.get(f"case-{i}", measure), job.seed)
        cases.append(case)
    job.progress("the counterexample", count, count + 1)
    shown = [ShownSlice(one.number, one.components, slices[one.number][i]) for one, i in claims.choose_slices(cases)]
    # Unlike `Slice.to_dict`, `asdict` keeps the values of slices.
    return {"cases": cases, "shown": list(map(asdict, shown)), "remark 3.12": asdict(measure_remark(values))}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims of the paper."""
    cases = from_numbers(tuple[LikelihoodCase, ...], ours["cases"])
    remark = from_numbers(Remark, ours["remark 3.12"])
    return Presentation(
        headlines=claims.headline(cases),
        findings=claims.judge(cases, remark),
        tables=claims.make_tables(cases, remark),
        figures=(claims.draw_slices(from_numbers(tuple[ShownSlice, ...], ours["shown"])), claims.draw_remark(remark)),
    )


def draw_model(components: int, units: int, seed: int | list[int]) -> ReluModel:
    """Draw a model from the distributions of this file."""
    rng = np.random.default_rng(seed)
    weights = 0.1 + (1 - 0.1 * components) * rng.dirichlet(np.full(components, 2.0))
    means, scales = 2 * rng.normal(size=components), rng.uniform(0.4, 1.0, components)
    prior = GaussianMixture.from_arrays(weights, means, scales**2)
    slopes = rng.choice([-1.0, 1.0], units) * rng.uniform(0.5, 1.5, units)
    drawn = prior.sample(DRAWS, seed=int(rng.integers(2**31)))[:, 0]
    return ReluModel(prior, slopes, -slopes * np.quantile(drawn, rng.uniform(0.1, 0.9, units)), NOISE)


def case_model(number: int, seed: int) -> ReluModel:
    """The true model of a case: two or three components in turn, two units."""
    return draw_model(2 + number // 2 % 2, UNITS, [seed, number])


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
        minima = tuple(one for one in minima if one.excess > -RESOLUTION)  # below, the arithmetic broke down
        excess, apart = (np.array([getattr(one, name) for one in minima]) for name in ("excess", "apart"))
    along = slice_all(centre, surface=surface, values=values)
    return {
        "which": np.array([(MODEL_PARAMETERS.index(one.parameter), one.index) for one in along]),
        "truth": np.array([one.truth for one in along]),
        "values": np.array([one.values for one in along]),
        "along": np.array([one.excess for one in along]),
        "excess": excess,
        "apart": apart,
    }


def read_case(number: int, arrays: Mapping[str, Array], seed: int) -> tuple[LikelihoodCase, tuple[Slice, ...]]:
    """The case that `measure_case` measured, and its slices."""
    model = case_model(number, seed)
    columns = (arrays[name] for name in ("which", "truth", "values", "along"))
    along = tuple(
        Slice(MODEL_PARAMETERS[which[0]], int(which[1]), float(truth), values, excess)
        for which, truth, values, excess in zip(*columns, strict=True)
    )
    summaries = tuple(SliceSummary(one.parameter, one.margin, one.valleys, one.verdict) for one in along)
    kind, searched = KINDS[number % len(KINDS)], (arrays["excess"], arrays["apart"])
    return LikelihoodCase(number, kind, model.prior.components, model.injective, summaries, *searched), along


def split_heaviest(model: ReluModel) -> ReluModel:
    """The same distribution of x, with the heaviest component of the prior split in two."""
    prior, heavy = model.prior, int(model.prior.weights.argmax())
    chosen = np.append(np.arange(prior.components), heavy)
    weights = prior.weights[chosen] / np.where(chosen == heavy, 2, 1)
    twice = GaussianMixture(weights, prior.means[chosen], prior.covariances[chosen])
    return ReluModel(twice, model.slopes, model.biases, model.noise, model.readout)


def measure_remark(values: int) -> Remark:
    """Remark 3.12: through |z|, which is not weakly injective, two priors give the same distribution."""
    one, other = (
        GaussianMixture.from_arrays(np.full(3, 1 / 3), means, np.full(3, claims.SPREAD**2)) for means in claims.MEANS
    )
    both = {**ABSOLUTE, "readout": None}
    folded, seen = ReluModel(one, **ABSOLUTE).surface(), ReluModel(one, **both).surface()
    return Remark(
        excess=folded.excess(ReluModel(other, **ABSOLUTE)),
        seen_excess=seen.excess(ReluModel(other, **both)),
        apart=standardised_distance(one, other),
        affine=affine_distance(one, other).distance,
        folded=slice_along(folded, "means", 1, values=values),
        seen=slice_along(seen, "means", 1, values=values),
    )
