"""What `translate_unpaired` returns: a translator, how far each of its matches can be trusted, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from congruence.align.verdict import percent
from congruence.errors import InputError
from congruence.result import json_text
from congruence.translation.translate import Translator

CHECK = "Check it on rows that both models embedded (congruence translate fit) before anything rests on it."


@dataclass(frozen=True)
class ComponentMatch:
    """A component of the old model and the one of the new model that has its shape.

    Distances are Wasserstein's of order 2 between components of unit variance: 0 is the same shape. `sampling` is the
    distance that the number of rows leaves open. `confidence`, at most 1, is the correlation of what two halves of the
    rows carry into this component, averaged over splits: about 0 where they match at random, below where they disagree
    about the sign.
    """

    old: int
    new: int
    sign: float
    distance: float
    next_best: float  # distance to the nearest other component of the new model
    sampling: float
    confidence: float
    share: float  # of the old model's variance
    fits: bool  # whether the shapes are as near as one component's would be
    trusted: bool


@dataclass(frozen=True, eq=False)
class UnpairedTranslation:
    """A translator that no paired row has confirmed. Experimental.

    `confidence` is the correlation of what two halves of the rows carry over, over all dimensions and averaged over
    splits, at most 1; `chance` is what random matches stay below in 95 of 100 cases.
    """

    translator: Translator
    matches: list[ComponentMatch] = field(repr=False)
    confidence: float
    chance: float
    n_old: int
    n_new: int
    settings: dict[str, Any]

    @property
    def trusted(self) -> int:
        """How many components are trusted."""
        return sum(match.trusted for match in self.matches)

    @property
    def covered(self) -> float:
        """The share of the old model's variance that lies in trusted components, from 0 to 1."""
        return float(sum(match.share for match in self.matches if match.trusted))

    @property
    def status(self) -> str:
        """Whether the components can be matched.

        "holds" if all are trusted, "ambiguous" if some are, "fails" if most shapes of one model have no like in the
        other, "unknown" if shapes are alike but do not say which component is which.
        """
        if self.trusted == len(self.matches):
            return "holds"
        if self.trusted:
            return "ambiguous"
        return "unknown" if 2 * sum(match.fits for match in self.matches) >= len(self.matches) else "fails"

    @property
    def verdict(self) -> str:
        """What to make of it, in plain words."""
        k, opening = len(self.matches), "Experimental, without paired rows: "
        if self.status == "fails":
            odd = sum(not match.fits for match in self.matches)
            return (
                f"{opening}fails. Of {k} components of the old model, {odd} have none of their shape in the new one: "
                "the models may be unrelated, or their rows from different populations."
            )
        if self.status == "unknown":
            return (
                f"{opening}unknown. None of {k} components can be matched with confidence: shapes that are alike, "
                "symmetric or Gaussian do not say which is which, and few rows blur them."
            )
        who = f"all {k} components are" if self.status == "holds" else f"of {k} components, {self.trusted} could be"
        return f"{opening}{who} matched with confidence, {percent(self.covered)} of the old variance. {CHECK}"

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        return {
            "experimental": True,
            "status": self.status,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "chance": self.chance,
            "trusted": self.trusted,
            "covered": self.covered,
            "n_old": self.n_old,
            "n_new": self.n_new,
            "d_old": self.translator.d_old,
            "d_new": self.translator.d_new,
            "matches": [asdict(match) for match in self.matches],
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The result as JSON text; undefined numbers are null."""
        return json_text(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the translator, with its verdict in the header; one that carries nothing is refused."""
        if self.settings["keep"] == "trusted" and not self.trusted:
            raise InputError(
                "no component is trusted, so there is nothing to carry over; keep='all' (--keep all) carries all"
            )
        self.translator.save(path, experimental=True, status=self.status, verdict=self.verdict)
