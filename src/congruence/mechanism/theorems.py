"""Which theorem of mechanistic independence applies, and what it identifies.

Each pairs a criterion with irreducibility of the blocks, and some ask for more. All are about points: that blocks are
identified on a whole domain takes Theorem 1 on top. None is about how the latents are distributed, so that none changes
when their density is re-weighted, and none asks for an invertible generator beyond local injectivity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from congruence.mechanism.verdicts import FAILS, HOLDS, UNKNOWN, Verdict, all_of

APPLIES, CONDITIONAL, NOT = "applies", "conditional", "does not apply"
ASSUMED = "assumed"
BLOCKS = (
    "each block, up to an invertible map of its own and the order of blocks, near every point; on a whole domain with "
    "Theorem 1; for every density of the latents that is positive there"
)


@dataclass(frozen=True)
class Condition:
    """One premise of a theorem."""

    name: str
    status: str  # of a verdict, or "assumed" where it is about a model that is not at hand
    evidence: str


@dataclass(frozen=True)
class Theorem:
    """Whether a theorem applies to a generator and its blocks."""

    number: int
    criterion: str
    status: str  # "applies", "conditional" (on what is assumed), "does not apply" or "unknown"
    conditions: tuple[Condition, ...]
    identifies: str  # what is identified where it applies

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return asdict(self) | {"conditions": [asdict(condition) for condition in self.conditions]}

    def __str__(self) -> str:
        open_ = [f"{c.name}: {c.status}" for c in self.conditions if c.status != HOLDS]
        return f"Theorem {self.number} (Type {self.criterion}) {self.status}" + (
            f" ({'; '.join(open_)})" if open_ else ""
        )


def theorems(
    verdicts: Mapping[str, Verdict],
    irreducible: Mapping[str, str],
    separable: Mapping[int, str],
    injective: str,
    nonzeros: int | None,
) -> tuple[Theorem, ...]:
    """Put verdicts into Theorems 2 to 5.

    Parameters
    ----------
    verdicts : criterion -> Verdict
        As `check` makes them.
    irreducible : criterion -> status
        Whether all blocks are irreducible in the sense of that criterion.
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
    for number, criterion in ((2, "D"), (3, "M_coord"), (3, "M_sparsest"), (4, "S")):
        if criterion in verdicts:
            extra = [_sparsity(nonzeros)] if number == 3 else []
            found.append(_theorem(number, verdicts[criterion], irreducible, injective, extra))
    for order in sorted(separable):
        verdict = verdicts.get(f"H{order}")
        if verdict is not None:
            name = f"order-{order} separable, and every direction bends"
            extra = [Condition(name, separable[order], "ranks of derivatives at points")]
            found.append(_theorem(5, verdict, irreducible, injective, extra))
    return tuple(found)


def _sparsity(nonzeros: int | None) -> Condition:
    known = "" if nonzeros is None else f", here {nonzeros} at the sparsest point"
    return Condition(
        "the model's Jacobian has no more non-zero entries",
        ASSUMED,
        f"than that of the generator{known}; not looked at",
    )


def _theorem(
    number: int, verdict: Verdict, irreducible: Mapping[str, str], injective: str, extra: list[Condition]
) -> Theorem:
    name = verdict.criterion
    conditions = (
        Condition(f"Type {name}", verdict.status, f"{verdict.points} points, {verdict.evidence}"),
        Condition("irreducible blocks", irreducible.get(name, UNKNOWN), "at points"),
        Condition("no direction is lost", injective, "rank of the Jacobian at points"),
        *extra,
    )
    status = all_of([c.status for c in conditions])
    if status == HOLDS:
        status = CONDITIONAL if any(c.status == ASSUMED for c in conditions) else APPLIES
    else:
        status = NOT if status == FAILS else UNKNOWN
    return Theorem(number, name, status, conditions, BLOCKS)
