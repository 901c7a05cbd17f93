"""Conditions of the hierarchy, P1 to P3 and F1 to F4: each is a `Finding` with the data behind its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from congruence.arrays import Float
from congruence.formatting import number
from congruence.result import Basis, Finding, Status

HOLDS: Status = "holds"
FAILS: Status = "fails"
AMBIGUOUS: Status = "ambiguous"  # depends on the tolerance
UNKNOWN: Status = "unknown"
CERTIFIED: Basis = "certified"
ABOUT = {
    "P1": "the latents follow a Gaussian mixture",
    "P2": "latents are independent within components, and two components have distinct variance ratios",
    "P3": "the discrete variables behind the components can be recovered by counting",
    "F1": "the decoder is piecewise affine",
    "F2": "the decoder is weakly injective",
    "F3": "the decoder is injective except for outputs of measure 0",
    "F4": "the decoder is injective",
    "data": "the model fits the data",
}
NAMES = ("P1", "P2", "P3", "F1", "F2", "F3", "F4")
SHOWN = 8  # coordinates of a latent in a sentence


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Two latents that a decoder maps to the same point."""

    first: Float  # (m,)
    second: Float  # (m,)
    gap: float  # distance between the two outputs
    apart: float  # distance between the two latents

    def to_dict(self) -> dict[str, Any]:
        """The pair as plain data."""
        return {"first": self.first.tolist(), "second": self.second.tolist(), "gap": self.gap, "apart": self.apart}

    def __str__(self) -> str:
        first, second = (
            ", ".join(number(float(value)) for value in one[:SHOWN]) + (", …" if len(one) > SHOWN else "")
            for one in (self.first, self.second)
        )
        return f"The outputs of the latents ({first}) and ({second}) differ by {number(self.gap, 2)}."


class ConditionNumbers(TypedDict):
    """A condition in JSON."""

    name: str
    status: str
    basis: str | None
    exact: bool
    evidence: str
    pair: dict[str, Any] | None
    numbers: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Condition:
    """The finding on one condition. `exact`: it was decided for all inputs, up to rounding, and not on a sample."""

    finding: Finding
    exact: bool = False
    pair: Counterexample | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """P1, P2, P3, F1, F2, F3, F4, or "data" for the fit of the whole model."""
        return self.finding.name

    @property
    def status(self) -> Status:
        """That of the finding."""
        return self.finding.status

    def to_dict(self) -> ConditionNumbers:
        """The finding and its data, as in the JSON."""
        return {
            "name": self.name,
            "status": self.status,
            "basis": self.finding.basis,
            "exact": self.exact,
            "evidence": self.finding.evidence,
            "pair": None if self.pair is None else self.pair.to_dict(),
            "numbers": dict(self.numbers),
        }


def judged(
    name: str,
    status: Status,
    evidence: str,
    *,
    exact: bool = False,
    pair: Counterexample | None = None,
    numbers: Mapping[str, Any] | None = None,
) -> Condition:
    """Return the condition of this name; one that holds exactly is certified."""
    evidence = evidence if pair is None else f"{evidence} {pair}"
    basis = CERTIFIED if exact and status == HOLDS else None
    return Condition(Finding(name, f"{name}: {ABOUT[name]}.", status, basis, evidence), exact, pair, numbers or {})
