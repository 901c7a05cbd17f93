"""Score codes by one metric: the value, its interval over subsamples of the rows, and its chance level."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import CongruenceWarning, InputError
from congruence.metrics._registry import NO_INTERVAL, Metric
from congruence.metrics._resampling import (
    FEWEST_CLUSTERS,
    FEWEST_ROWS,
    draw_repairings,
    draw_subsamples,
    hold_out_clusters,
)
from congruence.metrics._results import MetricResult, Note
from congruence.metrics.evaluation import Score
from congruence.metrics.factors import Factors
from congruence.stats.intervals import student_quantile, subsample_interval

SLOW_ROWS = 10_000  # used at most by metrics that take minutes
CHANCE_ROWS = 20_000  # used at most for re-pairings
LEVEL = 0.95  # of intervals, and of the limit of chance
FEWEST_NULLS = 3  # for that limit
HELD_OUT = {"dci": 0.3, "explicitness": 0.3, "sap": 0.3, "block_score": 0.2}  # shares of metrics that take `test`
NULL_FACTORS = 3  # regressed in each re-pairing: boosting is fitted for each, and the score is their mean
ONLY_VALUE = {"nulls": 0, "bootstrap": 0}  # of metrics that have a chance level and an interval of their own


@dataclass(frozen=True, eq=False)
class Pairing:
    """Codes and factors of the same rows."""

    z: Float  # (n, L)
    s: Factors
    unit: Array | None = None  # (n,) cluster of each row, or block of ordered rows
    block: int | None = None  # length of the blocks of ordered rows

    def take(self, rows: Array, partners: Array | None = None) -> Pairing:
        """Some of the rows; with `partners`, paired with the factors of other rows."""
        unit = None if self.unit is None else np.unique(self.unit[rows], return_inverse=True)[1].reshape(-1)
        return Pairing(self.z[rows], self.s.take(rows if partners is None else partners), unit, self.block)


@dataclass(frozen=True, eq=False)
class Measurement:
    """The scores, the result and the notes of one metric."""

    scores: tuple[Score, ...]
    result: Any  # what the metric returned; `Undefined` if it refused the rows
    null_results: tuple[Any, ...]  # what it returned for re-paired rows
    notes: tuple[Note, ...]


@dataclass(frozen=True, eq=False)
class Undefined(MetricResult):
    """The result of a metric that refused the rows."""

    @property
    def scores(self) -> dict[str, float]:
        """NaN for every score."""
        return dict.fromkeys(self.reasons, math.nan)


def score_by(
    metric: Metric,
    pairing: Pairing,
    options: Mapping[str, Any],
    *,
    resamples: int,
    nulls: int,
    informed: int | None = None,
    seed: int,
    strict: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> Measurement:
    """Measure codes against factors by one metric, on all rows, on subsamples and on re-paired rows.

    `options` are keywords for the metric; those that it does not have are left out. `strict` raises the error of a
    metric that refuses the rows, instead of making it the reason of scores that are NaN. Only the first `informed`
    re-pairings (by default all) measure the information that the metric can do without. `tick` is called after each of
    1 + resamples + nulls measurements.
    """
    pairing, notes = _limit_rows(metric, pairing, seed)
    n, keywords = len(pairing.z), inspect.signature(metric.function).parameters
    own = {name: value for name, value in options.items() if name in keywords}
    result, warned = _run(metric, pairing, own, seed, strict)
    tick()

    def repeat(part: Pairing, **changed: Any) -> Any:
        changed |= {name: 0 for name in ONLY_VALUE if name in keywords}
        again, _ = _run(metric, part, own | changed, seed)
        tick()
        return again

    resamples = resamples if any(name not in NO_INTERVAL for name in metric.scores) else 0
    subsamples = draw_subsamples(n, pairing.unit, resamples, seed)
    resampled = [repeat(pairing.take(rows)) for rows in subsamples]
    chance_notes, repaired = [], pairing
    if nulls and n > CHANCE_ROWS:
        some = np.arange(n) if pairing.block else np.sort(np.random.default_rng([seed, 5]).permutation(n))
        repaired = pairing.take(some[:CHANCE_ROWS])
        chance_notes = [Note(f"Chance was measured on {CHANCE_ROWS} of {n} rows")]
    m = len(repaired.z)
    null, rng = list[Any](), np.random.default_rng([seed, 7])
    for i, rows in enumerate(draw_repairings(m, repaired.unit, nulls, seed, repaired.block)):
        part = repaired.take(np.arange(m), rows)
        if metric.name == "regression":
            live = [factor for factor in part.s if not factor.left_out] or part.s
            part = replace(part, s=Factors(tuple(live[k] for k in rng.permutation(len(live))[:NULL_FACTORS])))
        enough = informed is not None and i >= informed and _has_chance(metric, result, null)
        null.append(repeat(part, **({"information": False} if enough else {})))

    sizes = np.array([len(rows) for rows in subsamples], dtype=np.float64)
    scores = tuple(_score(metric, name, result, resampled, sizes, n, null) for name in metric.scores)
    notes += [*result.notes, *warned]
    notes += chance_notes if any(math.isfinite(score.value) for score in scores) else []
    return Measurement(scores, result, tuple(null), tuple(notes))


def _has_chance(metric: Metric, result: Any, null: list[Any]) -> bool:
    """Whether every score that is defined was defined in a re-pairing too."""
    wanted = [name for name in metric.scores if math.isfinite(result.scores[name])]
    return all(any(math.isfinite(one.scores[name]) for one in null) for name in wanted)


def _limit_rows(metric: Metric, pairing: Pairing, seed: int) -> tuple[Pairing, list[Note]]:
    """The rows that a metric gets: all, or a sample if there are many and it is slow; and notes."""
    n, notes = len(pairing.z), list[Note]()
    rng = np.random.default_rng([seed, 4])
    if metric.name == "sis":  # it is fitted on the first rows, which must not differ from the last
        unit = np.arange(n) if pairing.unit is None else pairing.unit
        pairing = pairing.take(np.lexsort([rng.permutation(n), rng.permutation(n)[unit]]))  # cluster by cluster
        notes.append(Note("Rows were shuffled, because the metric is fitted on the first of them"))
    if metric.cost == "minutes" and n > SLOW_ROWS:
        pairing = pairing.take(np.sort(rng.permutation(n)[:SLOW_ROWS]))
        notes.append(Note(f"Measured on {SLOW_ROWS} of {n} rows, because it takes minutes"))
    return pairing, notes


def _run(
    metric: Metric, pairing: Pairing, options: Mapping[str, Any], seed: int, strict: bool = False
) -> tuple[Any, list[Note]]:
    """The result of a metric, `Undefined` if it refuses the rows, and its warnings as notes."""
    from sklearn.exceptions import ConvergenceWarning

    keywords = dict(options)
    if pairing.unit is not None and "cluster" in inspect.signature(metric.function).parameters:
        keywords["cluster"] = pairing.unit
    elif pairing.unit is not None and pairing.unit.any() and metric.name in HELD_OUT:
        keywords["test"] = hold_out_clusters(pairing.unit, HELD_OUT[metric.name], seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = metric.function(pairing.z, pairing.s, seed=seed, **keywords)
        except InputError as error:
            if strict:
                raise
            reason = f"Not defined for these rows: {error}."
            return Undefined(reasons=dict.fromkeys(metric.scores, reason), notes=()), []
    warned = [Note(str(one.message)) for one in caught if issubclass(one.category, CongruenceWarning)]
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        warned.append(Note("A fit stopped before it converged"))
    return result, list(dict.fromkeys(warned))


def _score(
    metric: Metric, name: str, result: Any, resampled: list[Any], sizes: Float, n: int, null: list[Any]
) -> Score:
    value, absent = result.scores[name], NO_INTERVAL.get(name, "")
    values = np.array([] if absent else [one.scores[name] for one in resampled])
    low, high = subsample_interval(value, values, sizes[: len(values)], n, metric.range, LEVEL)
    if math.isfinite(value) and math.isnan(low) and not absent:
        absent = (
            "Too few subsamples of the rows have a score."
            if len(values)
            else f"None was asked for, or there are fewer than {FEWEST_CLUSTERS} clusters."
        )
        absent = f"{n} rows are fewer than {FEWEST_ROWS}." if n < FEWEST_ROWS else absent
    chance = np.array([one.scores[name] for one in null])
    chance = chance[np.isfinite(chance)] if math.isfinite(value) else chance[:0]
    return Score(
        metric=metric.name,
        score=name,
        value=value,
        low=low,
        high=high,
        chance=float(chance.mean()) if chance.size else math.nan,
        range=metric.range,
        direction=metric.direction,
        reason="" if math.isfinite(value) else result.reasons.get(name, ""),
        chance_limit=_chance_limit(chance, 1 if metric.direction.startswith("higher") else -1),
        no_interval=absent if math.isfinite(value) else "",
    )


def _chance_limit(chance: Float, better: int) -> float:
    """The limit that the score of one more random pairing exceeds with probability 5 %, on its better side."""
    count = len(chance)
    if count < FEWEST_NULLS:
        return math.nan
    wide = student_quantile(count - 1, LEVEL) * math.sqrt((1 + 1 / count) * float(np.var(chance, ddof=1)))
    return float(chance.mean()) + better * wide
