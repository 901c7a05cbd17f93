"""Verdicts on the conditions of the hierarchy: holds, fails, ambiguous or unknown, with what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from congruence.arrays import Float

HOLDS, FAILS, AMBIGUOUS, UNKNOWN = "holds", "fails", "ambiguous", "unknown"
CERTIFIED, SUPPORTED, NOTHING = "certified", "supported", "none"


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Two latents that a decoder sends to one point."""

    first: Float  # (m,)
    second: Float  # (m,)
    gap: float  # distance of the two outputs
    apart: float  # distance of the two latents

    def to_dict(self) -> dict[str, Any]:
        """The pair, as in the JSON contract."""
        return {
            "first": self.first.tolist(),
            "second": self.second.tolist(),
            "gap": self.gap,
            "apart": self.apart,
        }


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition on the prior or the decoder: what was found of it."""

    name: str  # "P1", "P2", "P3", "F1", "F2", "F3" or "F4"
    status: str  # "holds", "fails", "ambiguous" (depends on the tolerance) or "unknown"
    evidence: str  # one or two sentences
    basis: str  # "certified", "supported" (by a sample or a test) or "none"
    pair: Counterexample | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)  # what the evidence is made of

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "name": self.name,
            "status": self.status,
            "evidence": self.evidence,
            "basis": self.basis,
            "pair": None if self.pair is None else self.pair.to_dict(),
            "numbers": dict(self.numbers),
        }

    def __str__(self) -> str:
        return f"{self.name}  {self.status:<9} ({self.basis}) {self.evidence}"


def all_of(statuses: list[str]) -> str:
    """The status of a conjunction: one that fails decides, then one that is not known."""
    for status in (FAILS, AMBIGUOUS, UNKNOWN):
        if status in statuses:
            return status
    return HOLDS
