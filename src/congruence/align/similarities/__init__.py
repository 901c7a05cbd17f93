"""Similarity measures that need no map: how alike are two runs with paired rows?

Each measure is a function of paired rows x (n, d_x) and y (n, d_y). `MEASURES` declares the invariances, the range and
the direction of each; tests check these declarations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.align._run_statistics import PairStatistics
from congruence.align.similarities import correlations, distances, neighbours
from congruence.align.similarities.correlations import cka, plain_cka, pwcca, soft_matching, svcca
from congruence.align.similarities.distances import angular_procrustes, procrustes, rsa, rsa_pearson, size_and_shape
from congruence.align.similarities.neighbours import neighbour_overlap
from congruence.arrays import Array, Float
from congruence.checks import check_names
from congruence.maps.matching import fit_cca, matched_correlation, strong_mcc, weak_mcc
from congruence.result import Record
from congruence.stats.nulls import p_values

__all__ = [
    "MEASURES",
    "Measure",
    "SimilarityScore",
    "angular_procrustes",
    "cka",
    "neighbour_overlap",
    "plain_cka",
    "procrustes",
    "pwcca",
    "rsa",
    "rsa_pearson",
    "size_and_shape",
    "soft_matching",
    "strong_mcc",
    "svcca",
    "weak_mcc",
]

MAPS = ("permutation", "rotation", "linear", "scale", "translation")
ALIASES = {"bures": "angular_procrustes"}  # names of the same measure in other papers
HIGHER, LOWER = "higher is closer", "lower is closer"
NO_ROOM = 1e-9  # a null this close to perfect leaves no range above chance
P_VALUES_FROM = 199  # re-pairings; with fewer, a p value says little more than the null itself


@dataclass(frozen=True)
class Measure:
    """One measure of how alike two runs with paired rows are.

    `invariant_to` names the maps that may be applied to either side without changing the value: "permutation" (order
    and signs of dimensions), "rotation" (any orthogonal map), "linear" (any invertible matrix), "scale" (one factor for
    all dimensions) and "translation".
    """

    function: Callable[..., float]  # of arrays x (n, d_x) and y (n, d_y)
    of: Callable[[PairStatistics], float]  # the same with its default options, from cached statistics
    title: str
    meaning: str
    invariant_to: frozenset[str]
    range: tuple[float, float]  # the least and the largest value
    direction: str  # "higher is closer" or "lower is closer"
    reference: str
    symmetric: bool = True

    @property
    def name(self) -> str:
        """The name of the function, by which the measure is chosen."""
        return self.function.__name__

    @property
    def sign(self) -> float:
        """1 if higher is closer, -1 if lower is."""
        return 1.0 if self.direction == HIGHER else -1.0

    @property
    def itself(self) -> float:
        """The value of a run compared with itself: the closest end of the range."""
        return self.range[1] if self.direction == HIGHER else self.range[0]


def _weak_mcc(pair: PairStatistics) -> float:
    return matched_correlation(pair.sums, fit_cca(pair.sums)) if pair.vary else math.nan


_LINEAR = frozenset(MAPS)
_SIMILARITY = _LINEAR - {"linear"}
_RIGID = _SIMILARITY - {"scale"}
_PERMUTATION = _SIMILARITY - {"rotation"}
_SHARE, _CORRELATION = (0.0, 1.0), (-1.0, 1.0)
_CHORD, _ARC, _DISTANCE = (0.0, math.sqrt(2)), (0.0, math.pi / 2), (0.0, math.inf)
_CKA, _RSA, _MCC = "Kornblith et al. 2019", "Kriegeskorte et al. 2008", "Khemakhem et al. 2020"

# fmt: off
MEASURES = {measure.name: measure for measure in (
    Measure(cka, correlations.cka_of, "CKA", "agreement of the linear kernels, without bias",
            _SIMILARITY, _CORRELATION, HIGHER, _CKA),
    Measure(plain_cka, correlations.plain_cka_of, "CKA, plain", "agreement of the linear kernels, biased for few rows",
            _SIMILARITY, _SHARE, HIGHER, _CKA),
    Measure(svcca, correlations.svcca_of, "SVCCA",
            "mean canonical correlation of the directions with 99 % of the variance",
            _SIMILARITY, _SHARE, HIGHER, "Raghu et al. 2017"),
    Measure(pwcca, correlations.pwcca_of, "PWCCA", "canonical correlations, weighted by their use in the source",
            _PERMUTATION, _SHARE, HIGHER, "Morcos et al. 2018", symmetric=False),
    Measure(rsa, distances.rsa_of, "RSA", "rank correlation of the distances between rows",
            _SIMILARITY, _CORRELATION, HIGHER, _RSA),
    Measure(rsa_pearson, distances.rsa_pearson_of, "RSA, Pearson", "correlation of the squared distances between rows",
            _SIMILARITY, _CORRELATION, HIGHER, _RSA),
    Measure(neighbour_overlap, neighbours.overlap_of, "neighbour overlap", "share of nearest neighbours in common",
            _SIMILARITY, _SHARE, HIGHER, "Huh et al. 2024"),
    Measure(procrustes, distances.procrustes_of, "Procrustes distance",
            "between shapes of norm 1 after the best rotation",
            _SIMILARITY, _CHORD, LOWER, "Williams et al. 2021, Ding et al. 2021"),
    Measure(angular_procrustes, distances.angle_of, "Procrustes angle (Bures)",
            "between shapes after the best rotation; the Bures angle of the kernels",
            _SIMILARITY, _ARC, LOWER, "Williams et al. 2021, Harvey et al. 2024"),
    Measure(size_and_shape, distances.size_and_shape_of, "size-and-shape distance",
            "after the best rotation, without scaling, over all rows",
            _RIGID, _DISTANCE, LOWER, "Dryden & Mardia 2016"),
    Measure(strong_mcc, lambda pair: matched_correlation(pair.sums), "MCC, strong",
            "correlation of dimensions matched one to one",
            _PERMUTATION, _SHARE, HIGHER, _MCC),
    Measure(soft_matching, correlations.soft_matching_of, "soft matching",
            "correlation of dimensions matched by optimal transport",
            _PERMUTATION, _SHARE, HIGHER, "Khosla & Williams 2024"),
    Measure(weak_mcc, _weak_mcc, "MCC, weak, in sample", "correlation after the best linear map (CCA)",
            _LINEAR, _SHARE, HIGHER, _MCC),
)}
# fmt: on


def check_measures(names: Any) -> tuple[str, ...]:
    """The measures asked for, by the names of their functions; "all" is all of them."""
    if not isinstance(names, str):
        names = [ALIASES.get(name, name) for name in names]
    return check_names("similarities", names, MEASURES, shortcuts={"all": MEASURES}, least=0)


@dataclass(frozen=True)
class SimilarityScore(Record):
    """The value of a similarity measure, in sample, and its chance level.

    `null` is its mean over random re-pairings of the rows, and `calibrated` the position of the value between chance
    (0) and a perfect match (1). `p` is the share of re-pairings, the true pairing counted as one, that are at least as
    close; NaN below 199 re-pairings.
    """

    value: float
    null: float
    calibrated: float
    p: float


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
    return {name: _calibrate(one, one.of(pair), nulls[:, k]) for k, (name, one) in enumerate(measures.items())}


def _calibrate(measure: Measure, value: float, nulls: Float) -> SimilarityScore:
    null = float(nulls.mean()) if nulls.size else math.nan
    calibrated = float(above_chance(value, null, measure.itself))
    p = float(p_values(measure.sign * value, measure.sign * nulls)) if nulls.size >= P_VALUES_FROM else math.nan
    return SimilarityScore(value, null, math.nan if math.isnan(calibrated) else calibrated, p)
