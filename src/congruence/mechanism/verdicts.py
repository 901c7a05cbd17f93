"""Verdicts over a sample of points: holds, fails, ambiguous or unknown, with what they rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.mechanism.supports import DECADE, Tolerance

HOLDS, FAILS, AMBIGUOUS, UNKNOWN = "holds", "fails", "ambiguous", "unknown"
CERTIFIED, SUPPORTED, NOTHING = "certified", "supported", "none"


@dataclass(frozen=True)
class Verdict:
    """Whether a criterion holds at all points looked at.

    One point where it fails refutes it, which is certified up to the tolerance; that it holds at all of them only
    supports that it holds between them, unless the structure of the decoder proves it.
    """

    criterion: str  # "D", "M_coord", "M_sparsest", "S", "H2", "H3", ... or "IMA"
    status: str  # "holds", "fails", "ambiguous" (depends on the tolerance) or "unknown"
    margin: float  # at the worst point; what it is of says `measures`
    measures: str
    worst: int | None  # row of the worst point
    fraction: float  # of the points looked at where it holds
    points: int  # looked at
    evidence: str  # "certified", "supported" or "none"
    degenerate: bool = False  # it holds for want of anything that could break it
    sweep: tuple[float, ...] = ()  # fraction of points at each tolerance of `GRID`
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return asdict(self) | {"sweep": list(self.sweep)}

    def __str__(self) -> str:
        where = "" if self.worst is None else f", worst at row {self.worst}"
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.criterion:<10} {self.status:<9} at {100 * self.fraction:.3g} % of {self.points} points; "
            f"{self.measures} {self.margin:.3g}{where} ({self.evidence}){note}"
        )


def status_of(holds_at: Callable[[float], Array], tolerance: Tolerance, *, supports: bool) -> str:
    """The status of a criterion that holds at each point or not, depending on the tolerance.

    It is ambiguous where it changes within a decade about the tolerance, and for one that is about supports also where
    it differs from what the widest interval of constant supports says, or, without such an interval, at either end of
    the sweep.
    """
    here = bool(holds_at(tolerance.rtol).all())
    if supports:
        looked = [bool(holds_at(t).all()) for t in tolerance.nearby]
    else:
        looked = [bool(holds_at(tolerance.rtol * 10**shift).all()) for shift in (-DECADE / 2, DECADE / 2)]
    if any(other != here for other in looked):
        return AMBIGUOUS
    return HOLDS if here else FAILS


def evidence_of(status: str) -> str:
    """What a status rests on where only points were looked at."""
    return {HOLDS: SUPPORTED, FAILS: CERTIFIED}.get(status, NOTHING)


def by_threshold(thresholds: Array) -> Callable[[float], Array]:
    """A criterion that holds at each point from its own tolerance on."""
    return lambda t: np.asarray(thresholds <= t)


def all_of(statuses: list[str]) -> str:
    """The status of a conjunction: one that fails decides, then one that is not known."""
    for status in (FAILS, AMBIGUOUS, UNKNOWN):
        if status in statuses:
            return status
    return HOLDS
