"""Similarities beside chance: the null of a measure, its calibrated value and its p value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.align._run_statistics import PairStatistics
from congruence.arrays import Array, Float
from congruence.stats.nulls import p_values

if TYPE_CHECKING:
    from congruence.align.similarities import Measure

NO_ROOM = 1e-9  # a null this close to perfect leaves no range above chance
P_VALUES_FROM = 199  # re-pairings; with fewer, a p value says little more than the null itself


@dataclass(frozen=True)
class SimilarityScore:
    """The value of a similarity measure, in sample, beside chance.

    `null` is its mean over random re-pairings of the rows, and `calibrated` the position of the value between chance
    (0) and a perfect match (1). `p` is the share of re-pairings, the true pairing counted as one, that are at least as
    close; NaN below 199 re-pairings.
    """

    value: float
    null: float
    calibrated: float
    p: float

    def to_dict(self) -> dict[str, float]:
        """The four numbers by name."""
        return dict(vars(self))


def above_chance(value: Any, null: Any, perfect: float) -> Any:
    """The position of a value between chance (0) and a perfect match (1), for scalars or arrays of one shape.

    Below 0 is further apart than chance; NaN where there is no null, or where the null is perfect.
    """
    room = np.asarray(null, dtype=float) - perfect
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(room) > NO_ROOM, (null - np.asarray(value)) / room, np.nan)[()]


def score_pair(
    measures: Mapping[str, Measure], pair: PairStatistics, orders: Sequence[Array], unit: Array | None = None
) -> dict[str, SimilarityScore]:
    """Score a pair by several measures, with the re-pairings in `orders`; `unit` numbers exchanged clusters."""
    nulls = np.empty((len(orders), len(measures)))
    for r, order in enumerate(orders):
        again = PairStatistics(pair.source, pair.target.reordered(order, unit))
        nulls[r] = [measure.of(again) for measure in measures.values()]
    return {
        name: _calibrate(measure, measure.of(pair), nulls[:, k]) for k, (name, measure) in enumerate(measures.items())
    }


def _calibrate(measure: Measure, value: float, nulls: Float) -> SimilarityScore:
    null = float(nulls.mean()) if nulls.size else math.nan
    calibrated = float(above_chance(value, null, measure.itself))
    p = float(p_values(measure.sign * value, measure.sign * nulls)) if nulls.size >= P_VALUES_FROM else math.nan
    return SimilarityScore(value, null, math.nan if math.isnan(calibrated) else calibrated, p)
