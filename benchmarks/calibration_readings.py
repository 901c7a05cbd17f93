"""What `calibration.py` reads off the answers of `compare` and `compare_layers`: statements, numbers, coverage.

Fields are read where there are any, words otherwise; a number that this version does not report is None.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import calibration_truths as truths
import numpy as np

import congruence
from congruence.errors import InputError

GROUPS = ("identity", "permutation", "rigid", "similarity", "ridge", "linear")
FRESH_ROWS = 50_000  # for population values


@dataclass(frozen=True)
class Outcome:
    """One simulated sample and what the verb said of it."""

    cell: Cell
    sample: truths.Sample
    result: Any
    rng: np.random.Generator

    @property
    def pair(self) -> Any:
        return self.result.pairs[0]

    @cached_property
    def words(self) -> str:
        """The verdict and all notes, which is what a user reads."""
        return " ".join((self.result.verdict, *self.result.notes))

    @cached_property
    def fresh(self) -> tuple[np.ndarray, np.ndarray]:
        """More rows of the same population."""
        return self.sample.fresh(self.rng, FRESH_ROWS)


@dataclass(frozen=True)
class Quantity:
    """What is counted or averaged, and the limit of its rate or mean; `read` returns None where it is undefined."""

    name: str
    read: Callable[[Outcome], Any]
    least: float | None = None
    most: float | None = None
    is_rate: bool = True

    @property
    def limit(self) -> str:
        ends = {">=": self.least, "<=": self.most}
        return " and ".join(f"{sign} {end:g}" for sign, end in ends.items() if end is not None)

    def is_met(self, value: float) -> bool:
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        return low <= value <= high


@dataclass(frozen=True)
class Cell:
    """A truth, how many rows and dimensions are drawn of it, and what is read off the answers."""

    section: str
    name: str
    n: int
    d: int
    draw: Callable[..., truths.Sample]
    quantities: tuple[Quantity, ...]
    verb: str = "compare"
    groups: tuple[str, ...] = GROUPS
    needs: Path | None = None  # a file of real rows; without it, the cell is not simulated and keeps its rows

    def simulate(self, seed: int) -> list[Any]:
        """The value of every quantity for one sample; None where this version does not have the option or number."""
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        sample = self.draw(rng, self.n, self.d)
        verb = getattr(congruence, self.verb)
        if not set(sample.options) <= set(inspect.signature(verb).parameters):
            return [None] * len(self.quantities)
        chosen = {"groups": available(self.groups)} if self.verb == "compare" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rows, on purpose
            outcome = Outcome(self, sample, verb(sample.x, sample.y, **chosen, **sample.options), rng)
            return [quantity.read(outcome) for quantity in self.quantities]


@lru_cache
def available(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups that this version knows."""
    x = np.random.default_rng(0).normal(size=(20, 2))

    def known(group: str) -> bool:
        try:
            congruence.compare(x, x, groups=[group], nulls=0, bootstrap=0)
        except InputError:
            return False
        return True

    return tuple(group for group in groups if known(group))


# What the answer says. Words are read where there is no field yet.


def has_status(status: str, outcome: Outcome) -> bool:
    return outcome.pair.verdict.status == status


def is_changed(outcome: Outcome) -> bool:
    return outcome.pair.verdict.status != "holds"


def is_called_related(outcome: Outcome) -> bool:
    """Whether the runs, or some layers of them, are said to be closer than chance."""
    if outcome.cell.verb == "compare_layers":
        return any(finding.status == "holds" for finding in outcome.result.findings)
    verdict = outcome.pair.verdict
    return verdict.status != "unknown" and "no more alike" not in verdict.headline


def is_flagged(outcome: Outcome) -> bool:
    """Whether the answer is withheld because rows depend on each other."""
    withheld = (
        not is_called_related(outcome) if outcome.cell.verb == "compare_layers" else has_status("unknown", outcome)
    )
    return withheld and re.search(r"depend|copies of others", outcome.words) is not None


def are_duplicates_noted(outcome: Outcome) -> bool:
    return re.search(r"repeats? others|copies of others", outcome.words) is not None


def are_far_rows_named(outcome: Outcome) -> bool:
    return re.search(r"rows? holds? [\d.]+ % of the variance", outcome.words) is not None


def is_misled_by_far_rows(outcome: Outcome) -> bool:
    return is_called_related(outcome) and not are_far_rows_named(outcome)


def is_called_a_permutation(outcome: Outcome) -> bool:
    return "order and signs" in outcome.pair.verdict.headline


def count_moved(outcome: Outcome) -> int:
    """How many rows are said not to match."""
    field = getattr(outcome.pair.verdict, "moved", None)
    if field is not None:
        return int(field)
    found = re.search(r"([\d,]+) of [\d,]+ rows do(?:es)? not match", outcome.words)
    return int(found[1].replace(",", "")) if found else 0


def are_moved_named(outcome: Outcome) -> bool:
    return count_moved(outcome) > 0


def share_of_diameter(outcome: Outcome) -> float:
    return outcome.pair.groups["similarity"].held_out.mean


def of_chance(near: Any) -> tuple[float, float, float]:
    """Held-out error / null error with its interval; a version without it has the interval of the error only."""
    ratio = getattr(near, "of_chance", None)
    if ratio is not None:
        return ratio.mean, ratio.low, ratio.high
    return tuple(value / near.null for value in (near.held_out.mean, near.held_out.low, near.held_out.high))


def share_of_chance(outcome: Outcome) -> float:
    return of_chance(outcome.pair.groups["similarity"])[0]


def share_above_chance(outcome: Outcome) -> float:
    """The mean of (null - value) / (null - perfect) over all pairs of layers: 0 if the null is right for these rows."""
    return float(np.mean(outcome.result.above_chance))


def trimmed_share(outcome: Outcome) -> float | None:
    return getattr(outcome.pair.groups["similarity"], "trimmed", None)


def explained(outcome: Outcome) -> float | None:
    r2 = getattr(outcome.pair.groups["similarity"], "r2", None)
    return None if r2 is None else r2.mean


def relative_to_before(read: Callable[[Outcome], float | None], outcome: Outcome) -> float | None:
    """A number relative to that of the same runs before rows were moved far away."""
    value = read(outcome)
    if value is None:
        return None
    plain = congruence.compare(*outcome.sample.before, groups=outcome.cell.groups)
    return value / read(Outcome(outcome.cell, outcome.sample, plain, outcome.rng))


# Coverage: does the interval contain the population value of the map that was returned?


def mapped_errors(outcome: Outcome, group: str) -> np.ndarray:
    x, y = outcome.fresh
    return np.linalg.norm(outcome.pair.maps[group](x) - y, axis=1)


@lru_cache
def null_error(cell: Cell, group: str, repetitions: int = 40) -> float:
    """The population error of maps fitted to as many rows of unrelated runs."""
    rng = np.random.default_rng(zlib.crc32(cell.name.encode()))
    errors = []
    for _ in range(repetitions):
        sample = cell.draw(rng, cell.n, cell.d)
        (x, _), (_, y) = sample.fresh(rng, cell.n), sample.fresh(rng, cell.n)
        h = congruence.compare(x, y, groups=[group], nulls=0, bootstrap=0).pairs[0].maps[group]
        (x, _), (_, y) = sample.fresh(rng, 5000), sample.fresh(rng, 5000)
        errors.append(np.linalg.norm(h(x) - y, axis=1).mean())
    return float(np.mean(errors))


def covers_of_chance(group: str, repaired: bool, outcome: Outcome) -> bool | None:
    """Whether the interval of error / null contains the population value."""
    near = outcome.pair.groups.get(group)
    if near is None:
        return None
    y = outcome.fresh[1]
    null = null_error(outcome.cell, group) if repaired else np.linalg.norm(y - y.mean(0), axis=1).mean()
    _, low, high = of_chance(near)
    return bool(low <= mapped_errors(outcome, group).mean() / null <= high)


def covers_r2(group: str, outcome: Outcome) -> bool | None:
    near = outcome.pair.groups.get(group)
    r2 = getattr(near, "r2", None)
    if r2 is None:
        return None
    left = (mapped_errors(outcome, group) ** 2).mean() / outcome.fresh[1].var(0).sum()
    return bool(r2.low <= 1 - left <= r2.high)


@lru_cache
def mean_over_seeds(measure: str, d: int) -> float:
    """The population value of `truths.seeds`: the mean over many pairs of seeds and rows."""
    from congruence.align.similarities import MEASURES

    samples = (truths.seeds(np.random.default_rng([1, i]), 5000, d, 1) for i in range(400))
    pairs = ((sample.x[0]["layer"], sample.y[0]["layer"]) for sample in samples)
    return float(np.mean([MEASURES[measure].function(x, y) for x, y in pairs]))


def covers_mean_over_seeds(outcome: Outcome) -> bool:
    low, high = (float(end[0, 0]) for end in outcome.result.interval)
    return bool(low <= mean_over_seeds(outcome.sample.options["measure"], outcome.cell.d) <= high)


def has_interval(group: str, outcome: Outcome) -> bool | None:
    near = outcome.pair.groups.get(group)
    return None if near is None else bool(np.isfinite(of_chance(near)[1:]).all())


def rate(name: str, read: Callable[[Outcome], Any], least: float | None = None, most: float | None = None) -> Quantity:
    return Quantity(name, read, least, most)


def mean(name: str, read: Callable[[Outcome], Any], least: float | None = None, most: float | None = None) -> Quantity:
    return Quantity(name, read, least, most, is_rate=False)


def holds(**limit: float) -> Quantity:
    return rate("called holds", partial(has_status, "holds"), **limit)


def fails(**limit: float) -> Quantity:
    return rate("called fails", partial(has_status, "fails"), **limit)


def related(**limit: float) -> Quantity:
    return rate("called related", is_called_related, **limit)


def flagged(**limit: float) -> Quantity:
    return rate("flagged as dependent", is_flagged, **limit)


def moved(**limit: float) -> Quantity:
    return rate("moved rows named", are_moved_named, **limit)
