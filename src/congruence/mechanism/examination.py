"""`MechanismExamination`: do blocks of latents act on separate parts of the observation, and are they identified?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from congruence.formatting import count
from congruence.mechanism.block_check import BlockCheck, BlockCheckNumbers, Criterion
from congruence.mechanism.blocks import write_blocks
from congruence.mechanism.decomposable import Disentanglement
from congruence.mechanism.discovery import Discovery
from congruence.mechanism.profile import BlockProfile
from congruence.mechanism.theorems import Theorem, strongest
from congruence.result import Finding, Result, conclude

if TYPE_CHECKING:
    from congruence.document import Document

BlocksFrom = Literal["given", "D", "S", "H2", "none"]
ORIGINS: Mapping[BlocksFrom, str] = {
    "given": "The blocks were given.",
    "D": "The blocks were found: the finest along the coordinates that act on disjoint outputs (Type D).",
    "S": "The blocks were found: the finest along the coordinates that make the Jacobian sparsest (Type S).",
    "H2": "The blocks were found: the finest along the coordinates whose curvatures do not mix (Type H2).",
    "none": "No blocks were given and none lie along the coordinates, so each latent is a block.",
}
REASONS = {  # why a theorem identifies the blocks
    "D": "they act on disjoint outputs",
    "M_coord": "no latent moves all outputs of a latent of another block",
    "M_sparsest": "no direction of one moves all outputs of a direction of another",
    "S": "mixing them moves more outputs",
    "H2": "they are additive",
}


class MechanismNumbers(TypedDict):
    """The numbers of an examination; `blocks_from` is "given", the type that was discovered, or "none"."""

    blocks: list[list[int]]
    blocks_from: BlocksFrom
    check: BlockCheckNumbers
    profile: dict[str, Any]
    discovery: dict[str, Any] | None
    disentanglement: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class MechanismExamination(Result):
    """The answer to "do factors act on separate parts of the observation?".

    The first finding is that a theorem identifies the blocks: the conclusion of the strongest theorem, with its
    premises. Where a model was given, two more say whether its codes are disentangled. ``examination["D"]`` is one
    criterion, ``examination["theorem2_D"]`` one theorem.
    """

    check: BlockCheck
    profile: BlockProfile
    discovery: Discovery | None  # None where blocks were given
    blocks_from: BlocksFrom
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    disentanglement: Disentanglement | None = None  # of a model, where one was given

    @property
    def strongest(self) -> Theorem:
        """The theorem that says most about the blocks."""
        return strongest(self.check.theorems)

    @property
    def identified(self) -> Finding:
        """Whether a theorem identifies the blocks."""
        best = self.strongest
        claim = f"Theorem {best.number} (Type {best.criterion}) identifies the blocks {self.blocks_text}."
        open_premises = ", ".join(premise.name for premise in best.open_premises)
        evidence = f"Premises that are not shown: {open_premises or 'none'}."
        return conclude("identified", claim, best.conclusion.premises, evidence=evidence)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the blocks are identified and, where a model was given, whether its codes are disentangled."""
        model = self.disentanglement
        return (self.identified,) if model is None else (self.identified, model.local, model.everywhere)

    @property
    def blocks_text(self) -> str:
        """The blocks as `read_blocks` takes them."""
        return write_blocks(self.check.blocks)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict, the answer first."""
        model = () if self.disentanglement is None else self.disentanglement.headlines
        return (self._answer, self._criteria, ORIGINS[self.blocks_from], *model)

    @property
    def _answer(self) -> str:
        best = self.strongest
        why = REASONS.get(best.criterion, f"no derivative of order {best.criterion[1:]} mixes them")
        if best.strength == "holds":
            return f"Theorem {best.number} identifies the blocks {self.blocks_text}: {why}."
        if best.strength == "conditional":
            models = "for models whose Jacobian is as sparse"
            return f"Theorem {best.number} identifies the blocks {self.blocks_text} {models}: {why}."
        if self.blocks_from == "none" and self.discovery is not None:
            for found in self.discovery.found:
                if found.dims is not None and len(found.dims) > 1:
                    return f"The decoder has {len(found.dims)} parts of type {found.type}, but its latents mix them."
        return f"No theorem is shown to identify the blocks {self.blocks_text}."

    @property
    def _criteria(self) -> str:
        names = [one.name for one in self.check.criteria if one.status == "holds"]
        points = count(self.check.points, "point")
        return f"Criteria that hold at {points}: {', '.join(names)}." if names else f"No criterion holds at {points}."

    @property
    def verdict(self) -> str:
        """Which theorem identifies the blocks, which criteria hold, and what follows for a model."""
        return " ".join(self.headlines)

    def parts(self) -> dict[str, Finding | Criterion]:
        """The findings, the conclusions of the theorems and the criteria, by name."""
        found: dict[str, Finding | Criterion] = {one.name: one for one in self.findings}
        found |= {one.conclusion.name: one.conclusion for one in self.check.theorems}
        return found | {one.name: one for one in self.check.criteria}

    def numbers(self) -> MechanismNumbers:
        """Criteria, theorems, overlaps, what was discovered, and what a model makes of the factors."""
        return {
            "blocks": [list(block) for block in self.check.blocks],
            "blocks_from": self.blocks_from,
            "check": self.check.to_dict(),
            "profile": self.profile.to_dict(),
            "discovery": None if self.discovery is None else self.discovery.to_dict(),
            "disentanglement": None if self.disentanglement is None else self.disentanglement.to_dict(),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each criterion."""
        for one in self.check.criteria:
            values = {key: value for key, value in one.to_dict().items() if key not in ("claim", "sweep")}
            yield values | {"remarks": "; ".join(one.remarks)}

    def document(self) -> Document:
        """Criteria and theorems, where each block acts, and what the decoder supports without given blocks."""
        from congruence.mechanism._document import describe

        return describe(self)
