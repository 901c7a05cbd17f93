"""Which theorem of mechanistic independence applies, and what it identifies (Matthes et al. 2026).

Each combines a criterion with irreducibility of the blocks, and some need more. All are about points: identification on
a whole domain needs Theorem 1 as well. None depends on how the latents are distributed, and none needs an invertible
generator beyond local injectivity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from congruence.result import Finding, Status, conclude

if TYPE_CHECKING:
    from congruence.mechanism.block_check import Criterion, Irreducible

IDENTIFIED = (
    "Each block is identified near every point, up to an invertible map of its own and the order of the blocks, for "
    "every density of the latents that is positive there. On a whole domain this needs Theorem 1 as well."
)
STRENGTH = ("holds", "conditional", "ambiguous", "unknown", "premise fails")  # from the strongest


class TheoremNumbers(TypedDict):
    """A theorem in JSON; `conclusion` is a finding with its premises, `assumed` names those about an unseen model."""

    number: int
    criterion: str
    conditional: bool
    assumed: list[str]
    conclusion: dict[str, Any]


@dataclass(frozen=True)
class Theorem:
    """Whether a theorem applies to a generator and its blocks."""

    number: int
    criterion: str
    conclusion: Finding
    assumed: tuple[str, ...] = ()  # premises about a model that was not given

    @property
    def status(self) -> Status:
        """That of the conclusion."""
        return self.conclusion.status

    @property
    def open_premises(self) -> tuple[Finding, ...]:
        """The premises that are not shown to hold."""
        return tuple(premise for premise in self.conclusion.premises if premise.status != "holds")

    @property
    def conditional(self) -> bool:
        """Whether only what is assumed about a model is open."""
        return bool(self.assumed) and {premise.name for premise in self.open_premises} <= set(self.assumed)

    @property
    def strength(self) -> str:
        """How much it says: "holds", "conditional", "ambiguous", "unknown" or "premise fails"."""
        if self.status == "unknown" and self.conditional:
            return "conditional"
        return "premise fails" if self.conclusion.basis == "premise fails" else self.status

    def to_dict(self) -> TheoremNumbers:
        """The fields, as in the JSON contract."""
        return {
            "number": self.number,
            "criterion": self.criterion,
            "conditional": self.conditional,
            "assumed": list(self.assumed),
            "conclusion": self.conclusion.to_dict(),
        }


def strongest(theorems: Sequence[Theorem]) -> Theorem:
    """Return the theorem that says most, the first where several do."""
    return min(theorems, key=lambda one: STRENGTH.index(one.strength))


def theorems_of(
    criteria: Mapping[str, Criterion],
    irreducible: Mapping[str, Irreducible],
    separable: Mapping[int, Status],
    injective: Status,
    nonzeros: int | None,
) -> tuple[Theorem, ...]:
    """Apply Theorems 2 to 5.

    Parameters
    ----------
    criteria, irreducible : by criterion
        As `check_blocks` makes them.
    separable : order -> status
        Of n-order separability, with directions that do not bend counted against it.
    injective : status
        Whether the Jacobian loses no direction.
    nonzeros : int, optional
        Least number of non-zero entries of the Jacobian over points, which a model must not exceed for Theorem 3.

    References
    ----------
    Matthes et al. 2026. The numbers of the theorems for D and S are inferred from a summary of the paper.
    """
    found = []
    for number, name in ((2, "D"), (3, "M_coord"), (3, "M_sparsest"), (4, "S")):
        if name in criteria:
            extra = [_sparsity(nonzeros)] if number == 3 else []
            found.append(_theorem(number, criteria[name], irreducible.get(name), injective, extra))
    for order in sorted(separable):
        if f"H{order}" in criteria:
            claim = f"The blocks are separable of order {order}, and every direction bends."
            extra = [Finding("separable", claim, separable[order], evidence="Ranks of derivatives at the points.")]
            found.append(_theorem(5, criteria[f"H{order}"], irreducible.get(f"H{order}"), injective, extra))
    return tuple(found)


def _sparsity(nonzeros: int | None) -> Finding:
    claim = "The model's Jacobian has no more non-zero entries than the generator's."
    known = "" if nonzeros is None else f" The sparsest Jacobian of the generator has {nonzeros}."
    return Finding("sparse_model", claim, "unknown", evidence=f"It is assumed, not measured.{known}")


def _theorem(
    number: int, criterion: Criterion, irreducible: Irreducible | None, injective: Status, extra: list[Finding]
) -> Theorem:
    premises = (
        criterion.finding,
        _irreducible(irreducible),
        Finding("injective", "No direction is lost.", injective, evidence="Rank of the Jacobian at the points."),
        *extra,
    )
    claim = f"Theorem {number} identifies the blocks (Type {criterion.name})."
    conclusion = conclude(f"theorem{number}_{criterion.name}", claim, premises)
    return Theorem(number, criterion.name, conclusion, tuple(one.name for one in extra if one.name == "sparse_model"))


def _irreducible(found: Irreducible | None) -> Finding:
    claim = "The blocks are irreducible: none splits into smaller ones of the same type."
    if found is None:
        return Finding("irreducible", claim, "unknown", evidence="It was not examined.")
    parts = ", ".join("unknown" if n < 0 else str(n) for n in found.parts)
    return Finding("irreducible", claim, found.status, evidence=f"Largest number of parts of each block: {parts}.")
