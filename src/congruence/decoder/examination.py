"""`DecoderExamination`: how much a decoder stretches lengths, and what Theorem 1 guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from congruence.decoder.bounds import Bound
from congruence.decoder.stretch import BiLipschitz
from congruence.result import Finding, Result

if TYPE_CHECKING:
    from congruence.document import Document


class StretchNumbers(TypedDict):
    """The bi-Lipschitz constants over all points; those of single points are in the table."""

    n: int
    dimension: int
    outputs: int
    method: Literal["exact", "lanczos", "directions"]
    certified: bool
    constant: float
    mean: float
    quantiles: dict[str, float]
    s_min: float
    s_max: float
    isometry_defect: float
    condition: float
    scale: float
    scale_free: float


class DecoderNumbers(TypedDict):
    """The numbers of an examination; `theorem1` is null where all latents are the same point."""

    stretch: StretchNumbers
    diameter: float
    diameter_from: Literal["latents", "given"]
    theorem1: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class DecoderExamination(Result):
    """The answer to "what does the decoder guarantee?".

    The one finding is the conclusion of Theorem 1, with its premises. ``examination["convex"]`` is a premise by name.
    """

    stretch: BiLipschitz
    bound: Bound | None  # None where all latents are the same point
    theorem1: Finding  # the conclusion
    diameter: float
    diameter_from: Literal["latents", "given"]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The conclusion of Theorem 1; its premises are in the finding."""
        return (self.theorem1,)

    @property
    def premises(self) -> tuple[Finding, ...]:
        """The premises of Theorem 1."""
        return self.theorem1.premises

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict: what was measured, and what follows."""
        b = self.stretch
        if not np.isfinite(b.constant):
            lost = int(np.isinf(b.constants).sum())
            return (f"The decoder loses a direction at {lost} of {b.n} points.", "Theorem 1 guarantees nothing there.")
        low, high = b.s_min.min(), b.s_max.max()
        return (f"The decoder multiplies short lengths by {low:.4g} to {high:.4g} at {b.n} points.", self._consequence)

    @property
    def _consequence(self) -> str:
        if self.bound is None:
            return "All latents are the same point, so there is nothing to bound."
        if self.bound.vacuous:
            return "The bound of Theorem 1 is vacuous: any two sets of this size are as close."
        share = 100 * self.bound.epsilon / self.bound.diameter
        return (
            "If its premises hold, Theorem 1 says that two such trainings differ by a rigid motion, up to "
            f"{share:.3g} % of the diameter."
        )

    @property
    def verdict(self) -> str:
        """How much the decoder stretches, and whether Theorem 1 says anything."""
        return " ".join(self.headlines)

    def parts(self) -> dict[str, Finding]:
        """The conclusion and its premises by name."""
        return {finding.name: finding for finding in (self.theorem1, *self.premises)}

    def numbers(self) -> DecoderNumbers:
        """Constants over all points, the diameter and the bounds."""
        return {
            "stretch": self.stretch.to_dict(),  # type: ignore[typeddict-item]
            "diameter": self.diameter,
            "diameter_from": self.diameter_from,
            "theorem1": None if self.bound is None else self.bound.to_dict(),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each point, in the order of the latents."""
        yield from self.stretch.table()

    def document(self) -> Document:
        """Constants, their distribution, the bounds of Theorem 1 and its premises."""
        from congruence.decoder._document import describe

        return describe(self)
