"""What `check_blocks` finds: criteria, irreducibility, separability, and the theorems that follow, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict, cast

from congruence.arrays import Float
from congruence.errors import UnknownKeyError
from congruence.formatting import number, percent
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.supports import GRID, Tolerance
from congruence.mechanism.theorems import Theorem, TheoremNumbers
from congruence.result import Basis, Finding, Status

CLAIMS = {  # of the criteria, about the blocks
    "D": "No output is reached by two blocks.",
    "M_coord": "No latent reaches all outputs that a latent of another block reaches.",
    "M_sparsest": "No direction of the sparsest basis of a block reaches all outputs of one of another block.",
    "S": "Bases that mix blocks reach more outputs than those that do not.",
    "H2": "The blocks are additive: no second derivative mixes them.",
    "IMA": "The derivatives by different blocks are orthogonal.",
}


class CriterionNumbers(TypedDict):
    """A criterion in JSON; `sweep` has the fraction of points at each tolerance."""

    criterion: str
    claim: str
    status: Status
    basis: Basis
    margin: float | None
    measures: str
    worst: int | None
    fraction: float
    points: int
    degenerate: bool
    sweep: list[float]
    remarks: list[str]


@dataclass(frozen=True)
class Criterion:
    """Whether a criterion holds at all points.

    One point where it fails refutes it, up to the tolerance. Holding at all points only supports that it holds between
    them, unless the structure of the decoder proves it. It is ambiguous where the answer depends on the tolerance.
    """

    finding: Finding  # its name is that of the criterion, its number the margin at the worst point
    measures: str  # what the margin is
    worst: int | None  # row of the worst point
    fraction: float  # of the points where it holds
    points: int
    degenerate: bool = False  # it holds because there is nothing that could violate it
    sweep: tuple[float, ...] = ()  # fraction of points at each tolerance of `GRID`
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """One of "D", "M_coord", "M_sparsest", "S", "H2", "H3", ... and "IMA"."""
        return self.finding.name

    @property
    def status(self) -> Status:
        """That of the finding."""
        return self.finding.status

    @property
    def basis(self) -> Basis:
        """That of the finding."""
        return cast(Basis, self.finding.basis)

    @property
    def margin(self) -> float:
        """The margin at the worst point; NaN where it is not known."""
        return math.nan if self.finding.number is None else self.finding.number

    def to_dict(self) -> CriterionNumbers:
        """The fields, as in the JSON contract."""
        return {
            "criterion": self.name,
            "claim": self.finding.claim,
            "status": self.status,
            "basis": self.basis,
            "margin": self.finding.number,
            "measures": self.measures,
            "worst": self.worst,
            "fraction": self.fraction,
            "points": self.points,
            "degenerate": self.degenerate,
            "sweep": list(self.sweep),
            "remarks": list(self.remarks),
        }


def criterion_of(
    name: str,
    status: Status,
    margin: float,
    measures: str,
    worst: int | None,
    fraction: float,
    points: int,
    *,
    basis: Basis | None = None,
    **more: Any,
) -> Criterion:
    """Make a `Criterion` with its finding."""
    known = not math.isnan(margin)
    evidence = f"It holds at {percent(fraction)} of {points} points; {measures}: {number(margin)}."
    finding = Finding(
        name,
        CLAIMS.get(name, f"No derivative of order {name[1:]} mixes blocks."),
        status,
        basis,
        evidence=evidence if known else "It is not known at all points.",
        number=margin if known else None,
    )
    return Criterion(finding, measures, worst, fraction, points, **more)


@dataclass(frozen=True)
class Irreducible:
    """Whether no block splits into smaller ones in the sense of a criterion, at the points."""

    criterion: str
    status: Status  # of all blocks together
    blocks: tuple[Status, ...]  # of each
    parts: tuple[int, ...]  # the most parts each splits into at a point; -1 where not known, 0 where it moves nothing

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return asdict(self) | {"blocks": list(self.blocks), "parts": list(self.parts)}


@dataclass(frozen=True)
class Separable:
    """Order-n separability over points, at the worst of them."""

    order: int
    status: Status
    rank: int
    expected: int  # the sum of the ranks of all parts, which the rank must reach
    gap: float  # between singular values that count and those that do not
    degenerate: bool
    remark: str = ""


class BlockCheckNumbers(TypedDict):
    """A check of blocks in JSON."""

    blocks: list[list[int]]
    points: int
    dimension: int
    outputs: int
    bending: str
    criteria: list[CriterionNumbers]
    irreducible: list[dict[str, Any]]
    separable: list[dict[str, Any]]
    theorems: list[TheoremNumbers]
    tolerance: dict[str, Any]
    injective: Status
    nonzeros: list[int]
    contrast: float
    rho_plus: int | None
    rho_minus: float | None
    overlap: list[list[float]]


@dataclass(frozen=True, eq=False)
class BlockCheck:
    """How the blocks of latents of a decoder act on its outputs. ``check["D"]`` is one criterion."""

    blocks: Blocks
    points: int
    dimension: int
    outputs: int
    output_shape: tuple[int, ...]
    bending: str  # "smooth", "piecewise linear" or "affine"
    criteria: tuple[Criterion, ...]
    irreducible: tuple[Irreducible, ...]
    separable: tuple[Separable, ...]
    theorems: tuple[Theorem, ...]
    tolerance: Tolerance
    injective: Status  # whether no direction is lost at any point
    nonzeros: tuple[int, int]  # fewest and most entries in the support of a Jacobian
    contrast: float  # of independent mechanism analysis, mean over points
    rho: tuple[int | None, float | None]  # rho+ and rho- at the worst point
    overlap: Float = field(repr=False)  # (K, K) share of outputs that two blocks both reach, mean over points
    sizes: Float = field(repr=False)  # (m, d) mean size of the entries of the Jacobian
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Criterion:
        """One criterion by its name."""
        known = {one.name: one for one in self.criteria}
        if name not in known:
            raise UnknownKeyError(f"there is no criterion {name!r}; there are {', '.join(known)}")
        return known[name]

    def to_dict(self) -> BlockCheckNumbers:
        """All but the sizes of single entries, as in the JSON contract."""
        return {
            "blocks": [list(block) for block in self.blocks],
            "points": self.points,
            "dimension": self.dimension,
            "outputs": self.outputs,
            "bending": self.bending,
            "criteria": [one.to_dict() for one in self.criteria],
            "irreducible": [one.to_dict() for one in self.irreducible],
            "separable": [asdict(one) for one in self.separable],
            "theorems": [one.to_dict() for one in self.theorems],
            "tolerance": self.tolerance.to_dict() | {"sweep": GRID.tolist()},
            "injective": self.injective,
            "nonzeros": list(self.nonzeros),
            "contrast": self.contrast,
            "rho_plus": self.rho[0],
            "rho_minus": self.rho[1],
            "overlap": self.overlap.tolist(),
        }
