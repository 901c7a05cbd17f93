"""The trainings of `mechanistic-overlap`: data sets, members, and the scores of each.

Dependent latents are Laplace variates, which suit ICA, mixed so that their covariance is drawn from a Wishart
distribution; with infinitely many degrees of freedom they are independent. Everything is fitted on such latents, and
scored on independent ones: if slots depend on each other, even the true ones predict each other, and no score could be
high.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from congruence.arrays import Array, Float
from congruence.errors import NotConvergedWarning
from congruence.experiments.data.overlap import OverlapGenerator, dependent_covariance, overlap_generator
from congruence.experiments.processes import available_cores, run_tasks
from congruence.experiments.recipes.mechanistic_overlap.slots import (
    Progress,
    SlotMember,
    SlotOutcome,
    SlotPlan,
    train_slots,
)
from congruence.metrics import sis
from congruence.parts import Arrays
from congruence.stats.matching import signed_permutation

WORTH_PROCESSES = 40  # members; kernel regressions hold the interpreter lock, so threads would not help
SLOTS, STRENGTH = 2, 0.01  # of the trainings on dependent latents


@dataclass(frozen=True, eq=False)
class SlotData:
    """Latents and their observations, scaled to unit variance over all entries."""

    generator: OverlapGenerator = field(repr=False)
    latents: Float  # (n, d)
    x: Float  # (n, m)
    scale: float  # that x was divided by


@dataclass(frozen=True, eq=False)
class OverlapGrid:
    """Results of one number of slots: axes are overlaps, strengths, data seeds and, of what is trained, restarts."""

    slots: int
    turned: bool  # whether latents are rotated during training
    overlaps: tuple[float, ...]
    strengths: tuple[float, ...]
    error: Float  # (overlaps, strengths, data seeds, restarts) mean squared, held out
    contrast: Float
    unexplained: Float  # share of the variance of x
    sis: Float
    ceiling: Float  # (overlaps, data seeds) the SIS of the true latents themselves
    truth: Float  # (overlaps, data seeds) the contrast of the true generator
    margin: Float  # (overlaps, data seeds) distance of the generator from Type D
    published: bool = False  # by the published protocol: the slots of the generator share one network

    @property
    def title(self) -> str:
        """The number of slots, and how the training differs from ours with rotations."""
        how = "" if self.turned else ", published protocol" if self.published else ", without rotations"
        return f"{self.slots} slots{how}"

    @property
    def loss(self) -> Float:
        """The loss that selects a restart, (overlaps, strengths, data seeds, restarts); it uses no true latent."""
        loss = self.error + np.array(self.strengths)[:, None, None] * self.contrast
        return np.asarray(np.where(np.isfinite(loss), loss, np.inf))

    @cached_property
    def gaps(self) -> list[int]:
        """The sparsity gap of the generators by overlap, the same for almost all weights; Type S if above 0."""
        return [overlap_generator(self.slots, overlap).sparsity_gap for overlap in self.overlaps]

    def selected(self, values: Float) -> Float:
        """The values of the restarts with the lowest loss, (overlaps, strengths, data seeds)."""
        best = self.loss.argmin(-1)[..., None]
        return np.asarray(np.take_along_axis(values, best, axis=-1)[..., 0])


def draw_data(generator: OverlapGenerator, rows: int, seed: int, mixing: Float | None = None) -> SlotData:
    """Latents, normal and independent, or Laplace variates times `mixing` (d, d), and their observations."""
    rng = np.random.default_rng([seed, 1])
    if mixing is None:
        latents = rng.normal(size=(rows, generator.dimension))
    else:
        latents = rng.laplace(scale=np.sqrt(0.5), size=(rows, generator.dimension)) @ mixing.T
    x = generator(latents)
    scale = float(x.std())
    return SlotData(generator, latents, x / scale, scale)


def train_grid(
    slots: int, parameters: Mapping[str, Any], seed: int, device: str, *, turned: bool, progress: Progress
) -> Arrays:
    """Train every overlap, strength, data seed and restart of one number of slots at once, and score them."""
    overlaps, strengths = parameters["overlaps"][str(slots)], parameters["strengths"]
    seeds, restarts = data_seeds(parameters, seed), parameters["restarts"]
    rows = parameters["rows"] + parameters["test_rows"]
    shared = is_published(parameters)
    sets = [draw_data(overlap_generator(slots, r, shared_net=shared, seed=s), rows, s) for r in overlaps for s in seeds]
    shape = (len(overlaps), len(strengths), len(seeds), restarts)
    members = [
        SlotMember(data=i * len(seeds) + k, strength=strengths[j], seed=1000 * seeds[k] + restart)
        for i, j, k, restart in np.ndindex(*shape)
    ]
    plan = make_plan(parameters, slots, turned=turned)
    held_out = [one.x[parameters["rows"] :] for one in sets]
    training = [one.x[: parameters["rows"]] for one in sets]
    (outcome,) = train_sets(training, [held_out], members, slots, plan, device, seed, progress)
    test = [one.latents[parameters["rows"] :] for one in sets]
    arrays: Arrays = {name: getattr(outcome, name).reshape(shape) for name in ("error", "contrast", "unexplained")}
    arrays["sis"] = score_members(outcome, members, test, slots).reshape(shape)
    arrays["ceiling"] = np.tile([score_codes(one, one, slots) for one in test[: len(seeds)]], (len(overlaps), 1))
    for name, measure in (("truth", true_contrast), ("margin", disjoint_margin)):
        arrays[name] = np.array([measure(one, slots) for one in sets]).reshape(len(overlaps), len(seeds))
    return arrays


def is_published(parameters: Mapping[str, Any]) -> bool:
    """Whether data and training are those of Brady et al. 2023, which Matthes et al. follow."""
    return parameters.get("data") == "published"


def data_seeds(parameters: Mapping[str, Any], seed: int) -> list[int]:
    """The seeds of the data, which depend on the seed of the recipe."""
    return [1000 * seed + one for one in parameters["data_seeds"]]


def make_plan(parameters: Mapping[str, Any], slots: int, *, turned: bool) -> SlotPlan:
    """How members are trained."""
    options = {name: parameters[name] for name in ("batch", "rate", "hidden")}
    options |= dict.fromkeys(("cosine", "standardised"), not is_published(parameters))
    rotate_at = tuple(parameters["turns"]) if turned else ()
    return SlotPlan(parameters["steps"][str(slots)], **options, ramp=tuple(parameters["ramp"]), rotate_at=rotate_at)


def train_sets(
    x: Sequence[Float],
    held_out: Sequence[Sequence[Float]],
    members: Sequence[SlotMember],
    slots: int,
    plan: SlotPlan,
    device: str,
    seed: int,
    progress: Progress | None,
) -> list[SlotOutcome]:
    """Train members on data sets x, each (n, m) with its own m: all are padded to the same number of outputs."""

    def pad(sets: Sequence[Float]) -> Array:
        padded = np.zeros((len(sets), len(sets[0]), max(one.shape[1] for one in sets)), np.float32)
        for i, one in enumerate(sets):
            padded[i, :, : one.shape[1]] = one
        return padded

    outputs = [one.shape[1] for one in x]
    options: dict[str, Any] = {"device": device, "seed": seed, "progress": progress}
    return train_slots(pad(x), list(map(pad, held_out)), outputs, members, slots, plan, **options)


def score_members(outcome: SlotOutcome, members: Sequence[SlotMember], latents: Sequence[Float], slots: int) -> Float:
    """SIS of the codes of each member, (members,)."""
    tasks = [(codes, latents[member.data], slots) for codes, member in zip(outcome.codes, members, strict=True)]
    if len(members) < WORTH_PROCESSES:
        return np.array([score_codes(*task) for task in tasks])
    return np.array(run_tasks(_score_on_one_thread, tasks, available_cores()))


def _score_on_one_thread(codes: Float, latents: Float, slots: int) -> float:
    with threadpool_limits(1):  # each process has one core
        return score_codes(codes, latents, slots)


def score_codes(codes: Float, latents: Float, slots: int) -> float:
    """SIS of codes (n, d) in slots; -1 where a training diverged."""
    if not np.isfinite(codes).all():
        return -1.0
    return sis(codes.reshape(len(codes), slots, -1), latents.reshape(len(latents), slots, -1)).sis


def true_contrast(one: SlotData, slots: int, points: int = 500) -> float:
    """The contrast of the true generator, by standardised latents, mean over points."""
    norms = _norms(one, slots, points)
    products = (norms[..., 1:] * norms.cumsum(-1)[..., :-1]).sum(-1)  # of all pairs of slots, (points, m)
    return float(products.sum(1).mean())


def disjoint_margin(one: SlotData, slots: int, points: int = 500) -> float:
    """The largest product of two slots in a row of the Jacobian over the largest sum of squares; 0 for Type D."""
    norms = _norms(one, slots, points)
    largest = max(float((norms[:, :, i] * norms[:, :, j]).max()) for i, j in combinations(range(slots), 2))
    return largest / float(np.square(norms).sum(2).max())


def _norms(one: SlotData, slots: int, points: int) -> Float:
    """The length of each row of the Jacobian in each slot, by standardised latents, (points, m, K)."""
    jacobian = one.generator.jacobian(one.latents[-points:]) * (one.latents.std(0) / one.scale)
    return np.asarray(np.linalg.norm(jacobian.reshape(*jacobian.shape[:2], slots, -1), axis=3))


@dataclass(frozen=True, eq=False)
class Densities:
    """Results by the dependence of latents; axes are degrees of freedom and data seeds, then restarts."""

    degrees: tuple[float, ...]  # of the Wishart distribution; inf for independent latents
    dependence: Float  # (degrees, data seeds) largest canonical correlation between the slots
    margin: Float  # (degrees, data seeds) distance of the generator from Type D at these latents
    ceiling: Float  # (degrees, data seeds) SIS of the true latents themselves, on independent latents like the others
    ica_mixture: Float  # SIS of ICA on an invertible linear mixture of the latents: the best case for ICA
    ica_observed: Float  # SIS of ICA on the observations
    error: Float  # (degrees, data seeds, restarts)
    contrast: Float
    sis: Float

    @property
    def selected(self) -> Float:
        """The SIS of the restart with the lowest loss, (degrees, data seeds)."""
        best = (self.error + STRENGTH * self.contrast).argmin(-1)[..., None]
        return np.asarray(np.take_along_axis(self.sis, best, axis=-1)[..., 0])

    def share(self, values: Float) -> Float:
        """Values divided by those of the true latents."""
        return np.asarray(values / self.ceiling)


def train_densities(parameters: Mapping[str, Any], seed: int, device: str, progress: Progress) -> Arrays:
    """Train on independent and on dependent latents, without overlap, and apply ICA to the same data."""
    seeds, rows, tested = data_seeds(parameters, seed), parameters["rows"], parameters["test_rows"]
    degrees, restarts = read_degrees(parameters), parameters["density_restarts"]
    sets, test, dependence = [], [], []
    for freedom in degrees:
        for one in seeds:
            generator = overlap_generator(SLOTS, 0.0, seed=one)
            covariance = dependent_covariance(generator.dimension, freedom, seed=one)
            sets.append(draw_data(generator, rows + tested, one, symmetric_root(covariance)))
            test.append(draw_data(generator, tested, one + 500, np.eye(generator.dimension)))
            dependence.append(between_slots(covariance))
    members = [
        SlotMember(data=i, strength=STRENGTH, seed=1000 * seeds[i % len(seeds)] + restart)
        for i in range(len(sets))
        for restart in range(restarts)
    ]
    fresh = [new.x * (new.scale / old.scale) for new, old in zip(test, sets, strict=True)]  # in the units trained on
    training, held_out = [one.x[:rows] for one in sets], [one.x[rows:] for one in sets]
    plan = make_plan(parameters, SLOTS, turned=True)
    here, there = train_sets(training, [held_out, fresh], members, SLOTS, plan, device, seed, progress)
    shape, true = (len(degrees), len(seeds)), [one.latents for one in test]
    trained = {"error": here.error, "contrast": here.contrast, "sis": score_members(there, members, true, SLOTS)}
    arrays: Arrays = {name: values.reshape(*shape, restarts) for name, values in trained.items()}
    mixing = np.random.default_rng([seed, 5]).normal(size=(sets[0].latents.shape[1],) * 2)
    columns = {
        "dependence": dependence,
        "margin": [disjoint_margin(one, SLOTS) for one in sets],
        "ceiling": [score_codes(one, one, SLOTS) for one in true],
        "ica_mixture": [
            score_ica(old.latents @ mixing.T, old.latents, new.latents @ mixing.T, new.latents, seed)
            for old, new in zip(sets, test, strict=True)
        ],
        "ica_observed": [
            score_ica(old.x, old.latents, x, new.latents, seed) for old, new, x in zip(sets, test, fresh, strict=True)
        ],
    }
    return arrays | {name: np.array(values, dtype=float).reshape(shape) for name, values in columns.items()}


def read_degrees(parameters: Mapping[str, Any]) -> list[float]:
    """The degrees of freedom; null in JSON stands for infinity."""
    return [np.inf if value is None else float(value) for value in parameters["degrees"]]


def symmetric_root(covariance: Float) -> Float:
    """The symmetric matrix whose square is the covariance: the mixing that moves independent variates least."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


def between_slots(covariance: Float) -> float:
    """The largest canonical correlation between the first and the second half of the latents, from 0 to 1."""
    half = len(covariance) // 2
    inner = covariance[:half, :half], covariance[half:, half:]
    left, right = (np.linalg.inv(np.linalg.cholesky(part)) for part in inner)
    return float(np.linalg.svd(left @ covariance[:half, half:] @ right.T, compute_uv=False)[0])


def score_ica(x: Array, latents: Float, fresh: Array, true: Float, seed: int) -> float:
    """SIS of ICA fitted to x (n, m), on the rows `fresh` with their true latents.

    ICA does not know the slots, so each component is assigned to the slot of the latent of x that it is matched to.
    That can only improve its score.
    """
    from congruence.ica.estimator import ICA

    d = latents.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # a Gaussian direction has no solution to converge to
        ica = ICA(d, starts=1, check=False, random_state=seed).fit(x)
    cross = np.corrcoef(ica.transform(x), latents, rowvar=False)[:d, d:]
    return score_codes(ica.transform(fresh) @ np.abs(signed_permutation(cross)), true, SLOTS)
