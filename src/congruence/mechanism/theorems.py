"""Criteria, irreducibility, and which theorem of mechanistic independence applies (Matthes et al. 2026).

Each theorem combines a criterion with irreducibility of the blocks and premises about the model whose blocks it
identifies; some need more. Without a model its premises are assumptions. All are about points: identification on a
whole domain needs Theorem 1 as well. None depends on the distribution of the latents, and none needs an invertible
generator beyond local injectivity. The theorems are known to us from a summary of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, TypedDict, cast

from congruence.decoder.stretch import unseen_share
from congruence.formatting import number, percent
from congruence.result import Basis, Finding, Record, Status, as_data, conclude

IDENTIFIED = (
    "In a model that fulfils the premises each block is identified near every point, up to an invertible map of the "
    "block and the order of the blocks, for every density of the latents that is positive there. On a whole domain "
    "this needs Theorem 1 as well."
)
ORIGIN = (
    "The theorems, and their numbers, are known to us from a summary of the paper only. Numbers marked * (Types D and "
    "S) are inferred; that the model must be of the same type is our reading of Theorems 2, 4 and 5."
)
CLAIMS = {
    "D": "No output is reached by two blocks.",
    "M_coord": "No latent reaches all outputs that a latent of another block reaches.",
    "M_sparsest": "No direction of the sparsest basis of a block reaches all outputs of one of another block.",
    "S": "Bases that mix blocks reach more outputs than those that do not.",
    "H2": "The blocks are additive: no second derivative mixes them.",
    "IMA": "The derivatives by different blocks are orthogonal.",
}
_STRENGTH = ("holds", "conditional", "ambiguous", "unknown", "premise fails")  # from the strongest
_THEOREMS = {"D": 2, "M_coord": 3, "M_sparsest": 3, "S": 4}  # H_n has Theorem 5, IMA none
_INFERRED = (2, 4)  # numbers that the summary of the paper does not have
_ASSUMED = "It is assumed: no model is given (model=)."


class CriterionNumbers(TypedDict):
    """A criterion in JSON; `sweep` has the fraction of points at each tolerance.

    `typical` grades it, as described by `graded`; `null` is the same number for random directions of the latents.
    """

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
    typical: float
    null: float
    graded: str


@dataclass(frozen=True)
class Criterion:
    """Whether a criterion holds at all points.

    One point where it fails refutes it, up to the tolerance. Holding at all points only supports that it holds between
    them, unless the structure of the decoder proves it. It is ambiguous if the answer depends on the tolerance.
    """

    finding: Finding  # its name is that of the criterion, its number the margin at the worst point
    measures: str  # what the margin is
    worst: int | None  # row of the worst point
    fraction: float  # of the points at which it holds
    points: int
    degenerate: bool = False  # it holds trivially: all derivatives of its order vanish
    sweep: tuple[float, ...] = ()  # fraction of points at each tolerance of the sweep
    remarks: tuple[str, ...] = ()
    typical: float = math.nan  # how far it is from holding, mean over points: 0 holds; NaN if it is not graded
    null: float = math.nan  # the same for random directions of the latents, in blocks of the same sizes
    graded: str = ""  # what `typical` and `null` are

    # One of "D", "M_coord", "M_sparsest", "S", "H2", "H3", ... and "IMA"; the others are those of the finding.
    name = property(attrgetter("finding.name"))
    claim, evidence = property(attrgetter("finding.claim")), property(attrgetter("finding.evidence"))
    status, basis = property(attrgetter("finding.status")), property(attrgetter("finding.basis"))

    @property
    def margin(self) -> float:
        """The margin at the worst point; NaN if it is not known."""
        return math.nan if self.finding.number is None else self.finding.number

    def to_dict(self) -> CriterionNumbers:
        """The finding and the other fields, as in the JSON."""
        finding = {"criterion": self.name, "claim": self.claim, "status": self.status, "basis": self.basis}
        more = {field.name: as_data(getattr(self, field.name)) for field in fields(self)[1:]}
        return cast(CriterionNumbers, finding | {"margin": self.finding.number} | more)


def make_criterion(
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
    """Create a `Criterion` with its finding."""
    claim = CLAIMS.get(name, f"No derivative of order {name[1:]} mixes blocks.")
    evidence = f"It holds at {percent(fraction)} of {points} points; {measures}: {number(margin)}."
    if status == "holds" and basis != "certified":
        evidence += f" Regions with less than {100 * unseen_share(points):.2g} % of the latents are not excluded."
    known: dict[str, Any] = (
        {"evidence": "The margin is unknown."} if math.isnan(margin) else {"evidence": evidence, "number": margin}
    )
    return Criterion(Finding(name, claim, status, basis, **known), measures, worst, fraction, points, **more)


@dataclass(frozen=True)
class Irreducibility(Record):
    """Whether no block splits into smaller ones in the sense of a criterion, at the points."""

    criterion: str
    status: Status  # of all blocks together
    blocks: tuple[Status, ...]  # of each
    parts: tuple[int, ...]  # most parts each splits into at a point; -1 if not known, 0 if it moves nothing


class TheoremNumbers(TypedDict):
    """A theorem in JSON; `conclusion` is a finding with its premises, `assumed` names those about an unseen model.

    `number_from` is "summary", or "inferred" where the summary of the paper does not have the number.
    """

    number: int
    number_from: str
    criterion: str
    conditional: bool
    assumed: list[str]
    conclusion: dict[str, Any]


@dataclass(frozen=True)
class Theorem(Record):
    """Whether a theorem applies to a generator and its blocks."""

    number: int
    criterion: str
    conclusion: Finding
    assumed: tuple[str, ...] = ()  # premises about a model, which is not available

    NAMES = ("number", "number_from", "criterion", "conditional", "assumed", "conclusion")

    @property
    def inferred(self) -> bool:
        """Whether its number was inferred, and is not in the summary of the paper that we have."""
        return self.number in _INFERRED

    status = property(attrgetter("conclusion.status"))

    @property
    def open_premises(self) -> tuple[Finding, ...]:
        """The premises that are not known to hold."""
        return tuple(premise for premise in self.conclusion.premises if premise.status != "holds")

    @property
    def conditional(self) -> bool:
        """Whether only the assumptions about a model are open."""
        return bool(self.assumed) and {premise.name for premise in self.open_premises} <= set(self.assumed)

    @property
    def strength(self) -> str:
        """From strong to weak: "holds", "conditional", "ambiguous", "unknown" or "premise fails"."""
        if self.status == "unknown" and self.conditional:
            return "conditional"
        return "premise fails" if self.conclusion.basis == "premise fails" else self.status

    @property
    def number_from(self) -> str:
        """Where its number is from: "summary" of the paper, or "inferred"."""
        return "inferred" if self.inferred else "summary"


def strongest(theorems: Sequence[Theorem]) -> Theorem:
    """Return the strongest theorem, the first of several."""
    return min(theorems, key=lambda one: _STRENGTH.index(one.strength))


def apply_theorems(
    criteria: Sequence[Criterion],
    irreducible: Sequence[Irreducibility],
    separable: Mapping[int, Status],
    injective: Status,
    nonzeros: int,
) -> tuple[Theorem, ...]:
    """Apply Theorems 2 to 5 of Matthes et al. 2026, as far as a summary of the paper states them.

    `irreducible` has an entry for each criterion but IMA, `separable` one for each order. `injective`: the Jacobian
    loses no direction. `nonzeros` is the smallest number of non-zero entries of the Jacobian over points, which a model
    must not exceed for Theorem 3.
    """
    parts = {one.criterion: one for one in irreducible}
    by_name = {one.name: one for one in criteria}
    theorems = []
    for name in (*_THEOREMS, *(f"H{order}" for order in sorted(separable))):
        numbered = _THEOREMS.get(name, 5)
        split = ", ".join("unknown" if n < 0 else str(n) for n in parts[name].parts)
        premises = [
            by_name[name].finding,
            Finding(*_IRREDUCIBLE, parts[name].status, evidence=f"Largest number of parts of each block: {split}."),
            Finding("injective", "No direction is lost.", injective, evidence="Rank of the Jacobian at the points."),
        ]
        if numbered == 5:
            order = int(name[1:])
            claim = f"The blocks are separable of order {order}, and every direction is curved."
            evidence = "Ranks of derivatives at a few of the points."
            premises.append(Finding("separable", claim, separable[order], evidence=evidence))
        assumed = [Finding(*_RECONSTRUCTION, "unknown", evidence=_ASSUMED)]
        if numbered == 3:
            evidence = f"{_ASSUMED} The sparsest Jacobian of the generator has {nonzeros}."
            assumed.append(Finding(*_SPARSE_MODEL, "unknown", evidence=evidence))
        else:
            assumed.append(Finding("model_type", _SAME_TYPE.format(name), "unknown", evidence=_ASSUMED))
        claim = f"Theorem {numbered} identifies the blocks (Type {name})."
        conclusion = conclude(f"theorem{numbered}_{name}", claim, (*premises, *assumed))
        theorems.append(Theorem(numbered, name, conclusion, tuple(one.name for one in assumed)))
    return tuple(theorems)


_RECONSTRUCTION = "reconstruction", "The model explains the same observations as the generator."
_SPARSE_MODEL = "sparse_model", "The model's Jacobian has at most as many non-zero entries as the generator's."
_EQUAL, _MISSED = 1e-3, 0.05  # of the spread of the outputs: the model's outputs are equal, or are missed


_SAME_TYPE = "The model is of Type {} as well, in blocks of its codes."
_IRREDUCIBLE = "irreducible", "The blocks are irreducible: none splits into smaller ones of the same type."


def apply_to_model(
    theorems: Sequence[Theorem], model: Sequence[Criterion], missed: float, sparse: float | None, reason: str = ""
) -> tuple[Theorem, ...]:
    """Replace what theorems assume about a model by what was measured of it.

    `model` are the criteria of its decoder in the blocks of its codes; if there are none, `reason` says why. `missed`
    is the largest distance of its outputs from the generator's, over their spread. `sparse` is the share of points at
    which its Jacobian is at least as sparse as the generator's.
    """
    status: Status = "fails" if missed > _MISSED else "holds" if missed <= _EQUAL else "unknown"
    evidence = f"Its outputs are at most {percent(missed)} of their spread from the generator's."
    evidence = "The outputs of the model are not known." if math.isnan(missed) else evidence
    found = {"reconstruction": Finding(*_RECONSTRUCTION, status, evidence=evidence)}
    if sparse is not None:
        evidence = f"At {percent(sparse)} of the points."
        found["sparse_model"] = Finding(*_SPARSE_MODEL, "holds" if sparse == 1 else "fails", evidence=evidence)
    by_name = {one.name: one for one in model}
    applied = []
    for theorem in theorems:
        like, claim, old = by_name.get(theorem.criterion), _SAME_TYPE.format(theorem.criterion), theorem.conclusion
        if like is None:
            found["model_type"] = Finding("model_type", claim, "fails" if reason else "unknown", evidence=reason)
        else:
            found["model_type"] = Finding("model_type", claim, like.status, like.basis, like.evidence)
        conclusion = conclude(old.name, old.claim, [found.get(one.name, one) for one in old.premises])
        applied.append(replace(theorem, conclusion=conclusion, assumed=()))
    return tuple(applied)
