"""What a metric promises: its headline scores, range, direction, what it ignores and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HIGHER, LOWER = "higher is better", "lower is better"
MAPS = (
    "permutation",
    "sign",
    "scale",
    "scales",
    "shift",
    "monotone",
    "rotation",
    "linear",
    "factor order",
    "relabelling",
)


@dataclass(frozen=True)
class Metric:
    """One metric of codes against factors.

    `invariant_to` names what may be done without changing the value: to the codes "permutation" (their order), "sign"
    (of each), "scale" (one factor for all), "scales" (each its own), "shift", "monotone" (an increasing function of
    each), "rotation", "linear"; to the factors "factor order" and "relabelling" (of classes).
    """

    name: str
    function: Callable[..., Any]  # of codes (n, L) and factors (n, K); its result has `scores` and `reasons`
    scores: tuple[str, ...]  # headline scores, in order
    range: tuple[float, float]  # the least and the largest value of each
    direction: str  # "higher is better" or "lower is better"
    invariant_to: frozenset[str]
    cost: str  # "fast": seconds for 10,000 rows; "minutes"
    reference: str
    supervised: bool = True  # whether it uses the factors
