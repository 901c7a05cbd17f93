"""The section `deconfound` of `calibration.py`: screens whose truth is known, what is read off the answers, and limits.

A screen has plates of 24 wells, 8 of them controls and 4 of each of four genes. Controls of a plate share its shift.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Quantity, mean, rate

from congruence.batches import deconfound

GENES = ("A", "B", "C", "D")
WELLS = (8, 4, 4, 4, 4)  # of a plate: controls, and each gene
BARE: dict[str, Any] = {"leakage": False, "retrieval": False, "profiles": False}
TRUTHS = 200  # screens that give the truth of an AUROC
QUICK = {"rounds": 30, "rotations": 1, "concentration": ()}  # fewer fits; all else as by default


@dataclass(frozen=True)
class Plates:
    """Wells with their gene and plate, and options of `deconfound`."""

    x: np.ndarray  # (n, d)
    gene: np.ndarray
    plate: np.ndarray
    options: dict[str, Any]


@dataclass(frozen=True)
class ScreenOutcome:
    """One simulated screen and its `Deconfounding`."""

    sample: Plates
    result: Any


@dataclass(frozen=True)
class ScreenCell(Cell):
    """A cell whose sample is a screen; `n` wells in `d` dimensions."""

    def simulate(self, seed: int) -> list[Any]:
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        sample = self.draw(rng, self.n, self.d)
        named = {"target": sample.gene, "batch": sample.plate, "control": "none"}
        outcome = ScreenOutcome(sample, deconfound(sample.x, **named, **QUICK, **sample.options))
        return [quantity.read(outcome) for quantity in self.quantities]


# Truths.


def labels(n: int, larger: int = 1) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of plates of n wells, and the gene and plate of each well."""
    wells = larger * sum(WELLS)
    genes = np.repeat(("none", *GENES), larger * np.array(WELLS))
    return n // wells, np.tile(genes, n // wells), np.repeat(np.arange(n // wells), wells)


def isotropic(
    rng: np.random.Generator,
    n: int,
    d: int,
    *,
    effect: float,
    shift: float = 0.7,
    weeks: int = 0,
    larger: int = 1,
    **options: Any,
) -> Plates:
    """Gaussian wells: rotations of the axes and whitening change nothing, so all conditions are equally good.

    Genes move wells by `effect`, plates by `shift` in each dimension and, if there are weeks, weeks by as much. Plates
    may be some times `larger`.
    """
    plates, gene, plate = labels(n, larger)
    x = rng.normal(size=(n, d)) + shift * rng.normal(size=(plates, d))[plate]
    if weeks:
        week = plate * weeks // plates
        x += shift * rng.normal(size=(weeks, d))[week]
        options = {"cluster": week, **options}
    for name in GENES:
        direction = rng.normal(size=d)
        x[gene == name] += effect * direction / np.linalg.norm(direction)
    return Plates(x, gene, plate, options)


def uneven(rng: np.random.Generator, n: int, d: int, *, shift: float, **options: Any) -> Plates:
    """Gaussian wells without effect on plates with 2 controls and 8 wells of each gene, or 8 controls and 2 wells."""
    sizes = ((2, 8, 8, 8, 8), (8, 2, 2, 2, 2))
    pairs = n // sum(map(sum, sizes))
    gene = np.tile(np.concatenate([np.repeat(("none", *GENES), wells) for wells in sizes]), pairs)
    plate = np.repeat(np.arange(2 * pairs), np.tile([sum(wells) for wells in sizes], pairs))
    return Plates(rng.normal(size=(n, d)) + shift * rng.normal(size=(2 * pairs, d))[plate], gene, plate, options)


def mixed(rng: np.random.Generator, n: int, d: int, *, effect: float, shift: float, **options: Any) -> Plates:
    """Laplace sources mixed by a rotation: each gene moves a source of its own, plates move all the others."""
    plates, gene, plate = labels(n)
    sources = rng.laplace(size=(n, d))
    for place, name in enumerate(GENES):
        sources[gene == name, place] += effect
    sources[:, len(GENES) :] += shift * rng.normal(size=(plates, d - len(GENES)))[plate]
    return Plates(sources @ np.linalg.qr(rng.normal(size=(d, d)))[0], gene, plate, options)


# What the answer says.


def marks_a_target(outcome: ScreenOutcome) -> bool:
    """Whether some target is called better or worse under some condition."""
    return any(paired.status in ("holds", "fails") for one in outcome.result.targets for paired in one.paired.values())


def names_a_condition(outcome: ScreenOutcome) -> bool:
    """Whether some condition is called better or worse than another for all targets together."""
    result = outcome.result
    return any(one.status in ("holds", "fails") for one in (*result.overall.values(), *result.contrasts))


def covers_zero(outcome: ScreenOutcome) -> bool:
    """Whether the 95 % interval of the main condition contains no difference."""
    paired = outcome.result.overall[outcome.result.main_condition]
    return bool(paired.low <= 0 <= paired.high)


def improves(condition: str, outcome: ScreenOutcome) -> bool:
    return bool(outcome.result.overall[condition].status == "holds")


def covers(truth: Callable[[], float], outcome: ScreenOutcome) -> bool | None:
    """Whether the 95 % interval of the AUROC of base of the first gene contains the truth."""
    score = outcome.result.targets[0].scores["base"]
    if not hasattr(score, "low"):  # an earlier version shows two standard errors
        return None if math.isnan(score.error) else bool(abs(score.mean - truth()) <= 2 * score.error)
    return None if math.isnan(score.low) else bool(score.low <= truth() <= score.high)


@cache
def expected_auroc(plates: int, effect: float) -> float:
    """The mean AUROC of base over other screens: what the interval of a target should cover."""
    rng = np.random.default_rng([53, plates])
    screens = [isotropic(rng, plates * sum(WELLS), 10, effect=effect, **BARE, conditions=()) for _ in range(TRUTHS)]
    results = [
        deconfound(one.x, target=one.gene, batch=one.plate, control="none", **QUICK, **one.options) for one in screens
    ]
    return float(np.mean([result.mean("base") for result in results]))


def squared_deviation(outcome: ScreenOutcome) -> float:
    """The squared deviation of the AUROC from 0.5, relative to its squared standard error, mean over genes."""
    scores = [one.scores["base"] for one in outcome.result.targets]
    return float(
        np.mean([np.square(score.mean - 0.5) for score in scores])
        / np.mean([np.square(score.error) for score in scores])
    )


def above_the_line(outcome: ScreenOutcome) -> float | None:
    """The share of features drawn above the chance line of the feature figure."""
    profile = outcome.result.profiles["base"]
    level = getattr(profile, "level", None)
    if level is None:  # an earlier version: the median of the levels of single targets
        level = float(np.median(profile.noise))
    return float(np.mean(profile.strongest > level))


def finds_replicates(outcome: ScreenOutcome) -> bool | None:
    """Whether some gene has a mean average precision above chance."""
    found = [getattr(one, "precision", {}).get("base") for one in outcome.result.targets]
    return None if None in found else any(one.adjusted <= 0.05 for one in found)


def deconfounding() -> Iterator[Cell]:
    """Screens in which no condition is better, and screens in which removing the batch effect helps."""
    wells = sum(WELLS)

    def cell(name: str, plates: int, d: int, draw: Callable[..., Plates], *quantities: Quantity) -> Cell:
        return ScreenCell("deconfound", f"{name}, {plates} plates", plates * wells, d, draw, quantities)

    marked = rate("a target marked", marks_a_target, most=0.05)
    named = rate("a condition called better or worse", names_a_condition, most=0.05)
    covered = rate("interval of the main condition contains 0", covers_zero, least=0.95)
    error = mean("squared error of a target / its estimate", squared_deviation, most=1.2)
    inside = rate("interval of a target covers", partial(covers, lambda: 0.5), least=0.9)
    for plates in (15, 40):
        draw = partial(isotropic, effect=0.0, **BARE)
        yield cell("no effect", plates, 10, draw, marked, named, covered)
        draw = partial(isotropic, effect=1.2, **BARE)
        yield cell("equal conditions", plates, 10, draw, marked, named, covered)
    draw = partial(isotropic, effect=0.0, weeks=8, **BARE)
    yield cell("no effect, 8 weeks held out", 32, 10, draw, marked, named, covered)
    alone: dict[str, Any] = {"conditions": (), **BARE}
    for plates, weeks in ((15, 0), (40, 0), (32, 8)):
        name = f"base alone, no effect{f', {weeks} weeks held out' if weeks else ''}"
        yield cell(name, plates, 10, partial(isotropic, effect=0.0, weeks=weeks, **alone), error, inside)
    inside = rate("interval of a target covers", partial(covers, partial(expected_auroc, 15, 4.5)), least=0.9)
    yield cell("base alone, AUROC of 0.97", 15, 10, partial(isotropic, effect=4.5, **alone), inside)
    draw = partial(isotropic, effect=0.0, larger=6, protocol="batch", **BARE)  # leaves need 30 wells
    name = "no effect, one model per plate of 144 wells"
    yield ScreenCell("deconfound", f"{name}, 8 plates", 8 * 144, 10, draw, (marked, named, covered, error))
    best = {"conditions": ("whitened", "rotated", "standardised", "tvn"), **BARE}
    yield cell("no effect, best of four conditions", 15, 10, partial(isotropic, effect=0.0, **best), marked, named)

    power = rate("standardised called better", partial(improves, "standardised"), least=0.8)
    best = {"conditions": ("standardised", "tvn"), **BARE}
    yield cell("plates shift all features", 20, 10, partial(isotropic, effect=2.0, shift=2.0, **best), power)
    found = rate("ICA called better", partial(improves, "ica"), least=0.8)
    yield cell("biology in sources of its own", 60, 12, partial(mixed, effect=1.5, shift=2.0, **BARE), found)

    drawn: dict[str, Any] = {"conditions": (), "leakage": False}
    line = mean("share of features above the line", above_the_line, least=0.03, most=0.06)
    by_chance = rate("a target has mAP above chance", finds_replicates, most=0.05)
    for shift in (0.0, 0.7):
        draw = partial(isotropic, effect=0.0, shift=shift, **drawn)
        yield cell(f"noise features, shift {shift}", 12, 200, draw, line, by_chance)
    draw = partial(uneven, shift=2.0, **drawn, profiles=False)
    yield ScreenCell("deconfound", "no effect, uneven plates, shift 2, 6 plates", 150, 50, draw, (by_chance,))
    draw = partial(isotropic, effect=0.0, shift=0.5, **drawn, profiles=False)
    yield cell("more features than controls, shift 0.5", 6, 1000, draw, by_chance)
    draw = partial(isotropic, effect=4.0, **drawn)
    yield cell("effect", 12, 20, draw, rate("a target has mAP above chance", finds_replicates, least=0.8))
