"""The trainings of `mechanistic-overlap`: data sets, members, and what is measured of each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from congruence.arrays import Array, Float
from congruence.experiments.recipes.overlap_ensemble import Progress, SlotMember, SlotOutcome, SlotPlan, train_slots
from congruence.experiments.recipes.processes import cores
from congruence.mechanism.overlap import OverlapGenerator, overlap_generator
from congruence.metrics._sis import sis

Arrays = dict[str, Array]
SAME = 1e-12  # a margin below counts as 0
WORTH_PROCESSES = 40  # members: kernel regressions hold on to the interpreter, so threads would wait for each other


@dataclass(frozen=True, eq=False)
class DataSet:
    """Latents and what a generator makes of them, scaled to unit variance over all entries."""

    generator: OverlapGenerator = field(repr=False)
    latents: Float  # (n, d)
    x: Float  # (n, m)
    scale: float  # that x was divided by


@dataclass(frozen=True, eq=False)
class Grid:
    """Results of one number of slots: axes are overlaps, strengths, data seeds and, of what is trained, restarts."""

    slots: int
    turned: bool
    overlaps: tuple[float, ...]
    strengths: tuple[float, ...]
    error: Float  # (overlaps, strengths, data seeds, restarts) mean squared, held out
    contrast: Float
    unexplained: Float  # share of the variance of x
    sis: Float
    ceiling: Float  # (overlaps, data seeds) the SIS of the true latents themselves
    truth: Float  # (overlaps, data seeds) the contrast of the true generator
    margin: Float  # (overlaps, data seeds) how far from Type D the generator is; 0 is Type D

    @property
    def loss(self) -> Float:
        """What a restart is chosen by, (overlaps, strengths, data seeds, restarts): no true latent enters it."""
        found = self.error + np.array(self.strengths)[:, None, None] * self.contrast
        return np.asarray(np.where(np.isfinite(found), found, np.inf))

    def selected(self, values: Float) -> Float:
        """The values of the restarts with the lowest loss, (overlaps, strengths, data seeds)."""
        best = self.loss.argmin(-1)[..., None]
        return np.asarray(np.take_along_axis(values, best, axis=-1)[..., 0])

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        told: dict[str, Any] = {"slots": self.slots, "turned": self.turned}
        told |= {"overlaps": list(self.overlaps), "strengths": list(self.strengths)}
        told |= {name: getattr(self, name).tolist() for name in ("error", "contrast", "unexplained", "sis")}
        told |= {name: getattr(self, name).tolist() for name in ("ceiling", "truth", "margin")}
        return told | {"selected_sis": self.selected(self.sis).tolist()}


def draw_data(generator: OverlapGenerator, rows: int, seed: int, mixing: Float | None = None) -> DataSet:
    """Latents, normal and independent, or Laplace variates times `mixing` (d, d), and their observations."""
    rng = np.random.default_rng([seed, 1])
    if mixing is None:
        latents = rng.normal(size=(rows, generator.dimension))
    else:
        latents = rng.laplace(scale=np.sqrt(0.5), size=(rows, generator.dimension)) @ mixing.T
    x = generator(latents)
    scale = float(x.std())
    return DataSet(generator, latents, x / scale, scale)


def train_grid(
    slots: int, parameters: Mapping[str, Any], seed: int, device: str, *, turned: bool, progress: Progress
) -> Arrays:
    """Train every overlap, strength, data seed and restart of one number of slots at once, and score them."""
    overlaps, strengths = parameters["overlaps"][str(slots)], parameters["strengths"]
    seeds, restarts = data_seeds(parameters, seed), parameters["restarts"]
    rows = parameters["rows"] + parameters["test_rows"]
    sets = [draw_data(overlap_generator(slots, r, seed=s), rows, s) for r in overlaps for s in seeds]
    shape = (len(overlaps), len(strengths), len(seeds), restarts)
    members = [
        SlotMember(data=i * len(seeds) + k, strength=strengths[j], seed=1000 * seeds[k] + restart)
        for i, j, k, restart in np.ndindex(*shape)
    ]
    plan = plan_of(parameters, parameters["steps"][str(slots)], turned=turned)
    held_out = [one.x[parameters["rows"] :] for one in sets]
    training = [one.x[: parameters["rows"]] for one in sets]
    (outcome,) = train_sets(training, [held_out], members, slots, plan, device, seed, progress)
    test = [one.latents[parameters["rows"] :] for one in sets]
    found = scored(outcome, members, test, slots)
    told: Arrays = {name: values.reshape(shape) for name, values in found.items()}
    grid = (len(overlaps), len(seeds))
    told["ceiling"] = np.tile([score(one, one, slots) for one in test[: len(seeds)]], (len(overlaps), 1))
    told["truth"] = np.array([true_contrast(one, slots) for one in sets]).reshape(grid)
    told["margin"] = np.array([disjoint_margin(one, slots) for one in sets]).reshape(grid)
    return told


def data_seeds(parameters: Mapping[str, Any], seed: int) -> list[int]:
    """The seeds of the data; with another seed of the recipe they are others."""
    return [1000 * seed + one for one in parameters["data_seeds"]]


def plan_of(parameters: Mapping[str, Any], steps: int, *, turned: bool) -> SlotPlan:
    """How members are trained; without turns as in the paper, but for the standardised latents."""
    options = {name: parameters[name] for name in ("batch", "rate", "hidden")}
    first, last = parameters["ramp"]
    return SlotPlan(steps, **options, ramp=(first, last), turns=tuple(parameters["turns"]) if turned else ())


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
    outputs = [one.shape[1] for one in x]
    others = [_padded(rows) for rows in held_out]
    options: dict[str, Any] = {"device": device, "seed": seed, "progress": progress}
    return train_slots(_padded(x), others, outputs, members, slots, plan, **options)


def _padded(sets: Sequence[Float]) -> Array:
    """Data sets (n, m) as one array (sets, n, largest m)."""
    found = np.zeros((len(sets), len(sets[0]), max(one.shape[1] for one in sets)), np.float32)
    for i, one in enumerate(sets):
        found[i, :, : one.shape[1]] = one
    return found


def scored(outcome: SlotOutcome, members: Sequence[SlotMember], latents: Sequence[Float], slots: int) -> Arrays:
    """What was measured of each member, (members,) each, with the SIS of its codes."""
    tasks = outcome.codes, [latents[member.data] for member in members], repeat(slots)
    if len(members) < WORTH_PROCESSES:
        scores = list(map(score, *tasks))
    else:
        with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn"), threadpool_limits, (1,)) as pool:
            scores = list(pool.map(score, *tasks, chunksize=5))
    told = {name: getattr(outcome, name) for name in ("error", "contrast", "unexplained")}
    return told | {"sis": np.array(scores)}


def score(codes: Float, latents: Float, slots: int) -> float:
    """SIS of codes (n, d) in slots; -1 where a training diverged."""
    if not np.isfinite(codes).all():
        return -1.0
    return sis(codes.reshape(len(codes), slots, -1), latents.reshape(len(latents), slots, -1)).sis


def true_contrast(one: DataSet, slots: int, points: int = 500) -> float:
    """The contrast of the true generator, by standardised latents, in the mean over points."""
    norms = _norms(one, slots, points)
    return float(_pairs(norms).sum(1).mean())


def disjoint_margin(one: DataSet, slots: int, points: int = 500) -> float:
    """The largest product of two slots in a row of the Jacobian over the largest sum of squares; 0 for Type D."""
    norms = _norms(one, slots, points)
    largest = max(float((norms[:, :, i] * norms[:, :, j]).max()) for i in range(slots) for j in range(slots) if i < j)
    return largest / float(np.square(norms).sum(2).max())


def _norms(one: DataSet, slots: int, points: int) -> Float:
    """The length of each row of the Jacobian in each slot, by standardised latents, (points, m, K)."""
    found = one.generator.jacobian(one.latents[-points:]) * (one.latents.std(0) / one.scale)
    return np.asarray(np.linalg.norm(found.reshape(*found.shape[:2], slots, -1), axis=3))


def _pairs(norms: Float) -> Float:
    """Products of all pairs of slots, added up, (points, m)."""
    return np.asarray((norms[..., 1:] * norms.cumsum(-1)[..., :-1]).sum(-1))
