"""Every measure with what it promises: what it ignores, its range and its direction. Tests hold it to the promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from congruence.align.similarities import cca, distances, kernels, neighbours, shapes
from congruence.align.similarities.sides import Both
from congruence.errors import InputError
from congruence.maps.matching import fit_cca, matched_correlation, strong_mcc, weak_mcc

MAPS = ("permutation", "rotation", "linear", "scale", "translation")
HIGHER, LOWER = "higher is closer", "lower is closer"


@dataclass(frozen=True)
class Measure:
    """One measure of how alike two runs with paired rows are.

    `invariant_to` names the maps that may be applied to either side without changing the value: "permutation" (order
    and signs of dimensions), "rotation" (any orthogonal map), "linear" (any invertible matrix), "scale" (one factor for
    all dimensions) and "translation".
    """

    function: Callable[..., float]  # of arrays x (n, d_x) and y (n, d_y)
    of: Callable[[Both], float]  # the same with its default options, from sums that are already there
    invariant_to: frozenset[str]
    range: tuple[float, float]  # the least and the largest value
    direction: str  # "higher is closer" or "lower is closer"
    reference: str
    symmetric: bool = True

    @property
    def name(self) -> str:
        """What the measure is called, which is what its function is called."""
        return self.function.__name__

    @property
    def itself(self) -> float:
        """The value of a run with itself: the end of the range that means closest."""
        return self.range[1] if self.direction == HIGHER else self.range[0]


def chosen(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the measures asked for, in order: "all" is every one of `MEASURES`; names that are none are refused."""
    known = f"'all' or some of {', '.join(MEASURES)}"
    if names == "all":
        return tuple(MEASURES)
    if isinstance(names, str):
        raise InputError(f"similarities must be {known}, as a list; not {names!r}")
    wanted = tuple(names)
    if wanted == ("all",):
        return tuple(MEASURES)
    for name in wanted:
        if name not in MEASURES:
            raise InputError(f"similarities must be {known}; {name!r} is not")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"similarities names one twice: {', '.join(wanted)}")
    return wanted


def _weak_mcc(both: Both) -> float:
    return matched_correlation(both.sums, fit_cca(both.sums)) if both.vary else float("nan")


def _strong_mcc(both: Both) -> float:
    return matched_correlation(both.sums)


_ANY_LINEAR = frozenset(MAPS)
_SIMILARITY = _ANY_LINEAR - {"linear"}
_RIGID = _SIMILARITY - {"scale"}
_PERMUTATION = _SIMILARITY - {"rotation"}
_SHARE, _CORRELATION = (0.0, 1.0), (-1.0, 1.0)
_CHORD, _ARC, _DISTANCE = (0.0, math.sqrt(2)), (0.0, math.pi / 2), (0.0, math.inf)

MEASURES = {
    measure.name: measure
    for measure in (
        Measure(kernels.cka, kernels.unbiased, _SIMILARITY, _CORRELATION, HIGHER, "Kornblith et al. 2019"),
        Measure(kernels.plain_cka, kernels.plain, _SIMILARITY, _SHARE, HIGHER, "Kornblith et al. 2019"),
        Measure(cca.svcca, cca.mean_correlation, _SIMILARITY, _SHARE, HIGHER, "Raghu et al. 2017"),
        Measure(
            cca.pwcca, cca.weighted_correlation, _PERMUTATION, _SHARE, HIGHER, "Morcos et al. 2018", symmetric=False
        ),
        Measure(distances.rsa, distances.spearman, _SIMILARITY, _CORRELATION, HIGHER, "Kriegeskorte et al. 2008"),
        Measure(
            distances.rsa_pearson, distances.pearson, _SIMILARITY, _CORRELATION, HIGHER, "Kriegeskorte et al. 2008"
        ),
        Measure(neighbours.neighbour_overlap, neighbours.overlap, _SIMILARITY, _SHARE, HIGHER, "Huh et al. 2024"),
        Measure(shapes.procrustes, shapes.shape, _SIMILARITY, _CHORD, LOWER, "Williams et al. 2021, Ding et al. 2021"),
        Measure(shapes.angular_procrustes, shapes.angle, _SIMILARITY, _ARC, LOWER, "Williams et al. 2021"),
        Measure(shapes.size_and_shape, shapes.unscaled, _RIGID, _DISTANCE, LOWER, "Dryden & Mardia 2016"),
        Measure(strong_mcc, _strong_mcc, _PERMUTATION, _SHARE, HIGHER, "Khemakhem et al. 2020"),
        Measure(weak_mcc, _weak_mcc, _ANY_LINEAR, _SHARE, HIGHER, "Khemakhem et al. 2020"),
    )
}
