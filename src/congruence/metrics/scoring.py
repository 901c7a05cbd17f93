"""Score codes by one metric: the value, its interval over subsamples of the rows, and its chance level."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import CongruenceWarning, InputError
from congruence.metrics.draws import FEWEST_ROWS, Draws, draw_rows, held_rows
from congruence.metrics.evaluation import Score
from congruence.metrics.factors import Factors
from congruence.metrics.metric import Metric
from congruence.metrics.notes import Note
from congruence.stats.intervals import subsample_interval

SLOW_ROWS = 10_000  # used at most by metrics that take minutes
CHANCE_ROWS = 20_000  # used at most for re-pairings
HELD_OUT = {"dci": 0.3, "explicitness": 0.3, "sap": 0.3, "block_score": 0.2}  # shares, where rows can be named
ONLY_VALUE = {"nulls": 0, "bootstrap": 0}  # of metrics that have a chance level and an interval of their own

Tick = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Pairing:
    """Codes and factors of the same rows."""

    z: Float  # (n, L)
    s: Factors
    unit: Array | None = None  # (n,) cluster of each row

    def take(self, rows: Array, partners: Array | None = None) -> Pairing:
        """Some of the rows; with `partners`, paired with the factors of other rows."""
        unit = None if self.unit is None else np.unique(self.unit[rows], return_inverse=True)[1].reshape(-1)
        return Pairing(self.z[rows], self.s.take(rows if partners is None else partners), unit)


@dataclass(frozen=True)
class Effort:
    """How often a metric is measured again."""

    parts: int  # for the interval
    repairings: int  # for chance


@dataclass(frozen=True, eq=False)
class Measured:
    """The scores, the result and the notes of one metric."""

    metric: Metric
    scores: tuple[Score, ...]
    result: Any  # what the metric returned; None where it refused the rows
    chance: tuple[Any, ...]  # what it returned for re-paired rows
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, eq=False)
class _Outcome:
    result: Any
    values: dict[str, float]
    reasons: dict[str, str]
    notes: list[Note] = field(default_factory=list)


def score_by(
    metric: Metric,
    pairing: Pairing,
    options: Mapping[str, Any],
    effort: Effort,
    *,
    seed: int,
    strict: bool = False,
    tick: Tick = lambda: None,
) -> Measured:
    """Measure codes against factors by one metric, on all rows, on subsamples and on re-paired rows.

    Parameters
    ----------
    options : mapping
        Keywords for the metric; those that it does not have are left out.
    strict : bool
        Raise what the metric refuses, instead of making it the reason of scores that are NaN.
    tick : function
        Called after each of 1 + parts + repairings measurements.
    """
    pairing, notes = _rows(metric, pairing, seed)
    n = len(pairing.z)
    own = _accepted(metric, options)
    found = _outcome(metric, pairing, own, seed, strict)
    tick()
    repeated = own | {name: value for name, value in ONLY_VALUE.items() if name in _keywords(metric)}
    draws = draw_rows(n, pairing.unit, parts=effort.parts, repairings=0, seed=seed)
    again = _measured_again(metric, pairing, draws, repeated, seed, tick)
    false, more = _false(metric, pairing, effort, repeated, seed, tick)
    sizes = np.array([len(part) for part in draws.parts], dtype=np.float64)
    scores = [_score(metric, name, found, again, sizes, n, false) for name in metric.scores]
    notes += [*found.notes, *(more if any(math.isfinite(score.value) for score in scores) else ())]
    if effort.parts and n >= FEWEST_ROWS:
        notes += [_no_interval(score) for score in scores if math.isfinite(score.value) and math.isnan(score.low)]
    return Measured(metric, tuple(scores), found.result, tuple(one.result for one in false), tuple(notes))


def _rows(metric: Metric, pairing: Pairing, seed: int) -> tuple[Pairing, list[Note]]:
    """The rows that a metric gets: all, or a sample where there are many and it is slow."""
    n, notes = len(pairing.z), list[Note]()
    rng = np.random.default_rng([seed, 4])
    if metric.name == "sis":  # it learns from the first rows, which must not differ from the last
        unit = np.arange(n) if pairing.unit is None else pairing.unit
        pairing = pairing.take(np.lexsort([rng.permutation(n), rng.permutation(n)[unit]]))  # cluster by cluster
        notes.append(Note("Rows were shuffled, because the metric is fitted on the first of them"))
    if metric.cost == "minutes" and n > SLOW_ROWS:
        pairing = pairing.take(np.sort(rng.permutation(n)[:SLOW_ROWS]))
        notes.append(Note(f"Measured on {SLOW_ROWS} of {n} rows, because it takes minutes"))
    return pairing, notes


def _keywords(metric: Metric) -> set[str]:
    return set(inspect.signature(metric.function).parameters)


def _accepted(metric: Metric, options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _keywords(metric)}


def _outcome(metric: Metric, pairing: Pairing, options: Mapping[str, Any], seed: int, strict: bool = False) -> _Outcome:
    """Run the metric; an input that it refuses becomes a reason, warnings become notes."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = metric.function(pairing.z, pairing.s, seed=seed, **options, **_together(metric, pairing, seed))
        except InputError as error:
            if strict:
                raise
            refused = f"Not defined for these rows: {error}."
            return _Outcome(None, dict.fromkeys(metric.scores, math.nan), dict.fromkeys(metric.scores, refused))
    warned = [Note(str(one.message)) for one in caught if issubclass(one.category, CongruenceWarning)]
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        warned.append(Note("A fit stopped before it converged"))
    return _Outcome(result, dict(result.scores), dict(result.reasons), [*result.notes, *dict.fromkeys(warned)])


def _together(metric: Metric, pairing: Pairing, seed: int) -> dict[str, Any]:
    """Keywords that keep the rows of a cluster on one side of a split."""
    if pairing.unit is None:
        return {}
    if metric.name in HELD_OUT and pairing.unit.any():
        return {"test": held_rows(pairing.unit, HELD_OUT[metric.name], seed)}
    return {"cluster": pairing.unit} if "cluster" in _keywords(metric) else {}


def _measured_again(
    metric: Metric, pairing: Pairing, draws: Draws, options: Mapping[str, Any], seed: int, tick: Tick
) -> list[_Outcome]:
    outcomes = []
    for part in draws.parts:
        outcomes.append(_outcome(metric, pairing.take(part), options, seed))
        tick()
    return outcomes


def _false(
    metric: Metric, pairing: Pairing, effort: Effort, options: Mapping[str, Any], seed: int, tick: Tick
) -> tuple[list[_Outcome], list[Note]]:
    """The metric on re-paired rows; nothing for a metric that ignores the factors."""
    n, notes = len(pairing.z), list[Note]()
    if metric.supervised and n > CHANCE_ROWS and effort.repairings:
        pairing = pairing.take(np.sort(np.random.default_rng([seed, 5]).permutation(n)[:CHANCE_ROWS]))
        notes.append(Note(f"Chance was measured on {CHANCE_ROWS} of {n} rows"))
    count = effort.repairings if metric.supervised else 0
    draws = draw_rows(len(pairing.z), pairing.unit, parts=0, repairings=count, seed=seed)
    outcomes = []
    for partners in draws.repairings:
        outcomes.append(_outcome(metric, pairing.take(np.arange(len(partners)), partners), options, seed))
        tick()
    return outcomes, notes


def _score(
    metric: Metric,
    name: str,
    found: _Outcome,
    again: list[_Outcome],
    sizes: Float,
    n: int,
    false: list[_Outcome],
) -> Score:
    value = found.values[name]
    low, high = subsample_interval(value, np.array([one.values[name] for one in again]), sizes, n, metric.range)
    chance = np.array([one.values[name] for one in false])
    chance = chance[np.isfinite(chance)]
    return Score(
        metric=metric.name,
        score=name,
        value=value,
        low=low,
        high=high,
        chance=float(chance.mean()) if chance.size and not math.isnan(value) else math.nan,
        range=metric.range,
        direction=metric.direction,
        reason=found.reasons.get(name, "") if not math.isfinite(value) else "",
    )


def _no_interval(score: Score) -> Note:
    return Note(f"{score.score} has no interval, because too few subsamples have a score")
