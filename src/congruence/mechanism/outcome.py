"""What `check` found: verdicts, irreducibility, separability, and the theorems that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from congruence.arrays import Float
from congruence.mechanism.blocks import Blocks, write_blocks
from congruence.mechanism.supports import GRID, Tolerance
from congruence.mechanism.theorems import APPLIES, CONDITIONAL, Theorem
from congruence.mechanism.verdicts import HOLDS, Verdict
from congruence.result import json_text


@dataclass(frozen=True)
class Irreducible:
    """Whether no block falls apart into smaller ones in the sense of a criterion, at the points looked at."""

    criterion: str
    status: str  # of all blocks together
    blocks: tuple[str, ...]  # of each
    parts: tuple[int, ...]  # the most parts each falls into at a point; -1 where not known, 0 where it does nothing

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return asdict(self) | {"blocks": list(self.blocks), "parts": list(self.parts)}


@dataclass(frozen=True)
class Separable:
    """Order-n separability over points, at the worst of them."""

    order: int
    status: str
    rank: int
    expected: int  # the sum of the ranks of all parts, which the rank must reach
    gap: float  # between singular values that count and those that do not
    degenerate: bool
    note: str = ""


@dataclass(frozen=True, eq=False)
class Mechanism:
    """How the blocks of latents of a decoder act on its outputs."""

    blocks: Blocks
    points: int
    dimension: int
    outputs: int
    output_shape: tuple[int, ...]
    bending: str  # "smooth", "piecewise linear" or "affine"
    verdicts: tuple[Verdict, ...]
    irreducible: tuple[Irreducible, ...]
    separable: tuple[Separable, ...]
    theorems: tuple[Theorem, ...]
    tolerance: Tolerance
    injective: str  # whether no direction is lost at any point
    nonzeros: tuple[int, int]  # fewest and most entries in the support of a Jacobian
    contrast: float  # of independent mechanism analysis, mean over points
    rho: tuple[int | None, float | None]  # rho+ and rho- at the worst point
    overlap: Float = field(repr=False)  # (K, K) share of outputs that two blocks both reach, mean over points
    sizes: Float = field(repr=False)  # (m, d) mean size of the entries of the Jacobian
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, criterion: str) -> Verdict:
        """The verdict on one criterion, by its name."""
        return {one.criterion: one for one in self.verdicts}[criterion]

    @property
    def verdict(self) -> str:
        """One sentence: which criteria hold, and which theorem identifies the blocks."""
        named = ", ".join(one.criterion for one in self.verdicts if one.status == HOLDS)
        held = f"{named} {'hold' if ',' in named else 'holds'}" if named else "no criterion holds"
        said = f"For blocks {write_blocks(self.blocks)} at {_counted(self.points)} {held}"
        for status, words in ((APPLIES, "identify the blocks"), (CONDITIONAL, "identify them for models as sparse")):
            numbers = sorted({str(theorem.number) for theorem in self.theorems if theorem.status == status})
            if len(numbers) == 1:
                return f"{said}; Theorem {numbers[0]} {words.replace('identify', 'identifies')}."
            if numbers:
                return f"{said}; Theorems {', '.join(numbers[:-1])} and {numbers[-1]} {words}."
        return f"{said}; no theorem is seen to apply."

    def to_dict(self) -> dict[str, Any]:
        """All but the image of supports, as in the JSON contract."""
        return {
            "verdict": self.verdict,
            "blocks": [list(block) for block in self.blocks],
            "points": self.points,
            "dimension": self.dimension,
            "outputs": self.outputs,
            "bending": self.bending,
            "verdicts": [one.to_dict() for one in self.verdicts],
            "irreducible": [
                asdict(one) | {"blocks": list(one.blocks), "parts": list(one.parts)} for one in self.irreducible
            ],
            "separable": [asdict(one) for one in self.separable],
            "theorems": [one.to_dict() for one in self.theorems],
            "tolerance": self.tolerance.to_dict() | {"sweep": GRID.tolist()},
            "injective": self.injective,
            "nonzeros": list(self.nonzeros),
            "contrast": self.contrast,
            "rho_plus": self.rho[0],
            "rho_minus": self.rho[1],
            "overlap": self.overlap.tolist(),
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json_text(self.to_dict())

    def __str__(self) -> str:
        lines = [
            f"{self.dimension} latents in blocks {write_blocks(self.blocks)} -> {self.outputs} outputs at "
            f"{_counted(self.points)} ({self.bending})",
            *(f"  {one}" for one in self.verdicts),
            *(f"  {one}" for one in self.theorems),
            f"  supports stay the same for tolerances from {self.tolerance.low:.2g} to {self.tolerance.high:.2g}",
            *(f"  {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def _counted(points: int) -> str:
    return f"{points} point{'' if points == 1 else 's'}"
