"""The result of `translate`: a translator, and the evidence for its quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from congruence.errors import InputError
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Result
from congruence.translation.certificate import Certificate
from congruence.translation.translator import Translator

if TYPE_CHECKING:
    from congruence.document import Document


@dataclass(frozen=True)
class ComponentMatch:
    """A component of the old model and the component of the new model whose distribution has the same shape.

    Distances are Wasserstein distances of order 2 between components of unit variance: 0 is the same shape.
    `sampling` is the distance expected from the number of rows. `confidence`, at most 1, is the correlation of the
    values of this component under the maps of two halves of the rows, averaged over splits: about 0 where they match
    at random, below 0 where they disagree about the sign.
    """

    old: int
    new: int
    sign: float
    distance: float
    next_best: float  # distance to the nearest other component of the new model
    sampling: float
    confidence: float
    share: float  # of the old model's variance
    fits: bool  # whether the distance is no larger than sampling explains
    trusted: bool


@dataclass(frozen=True, eq=False)
class ComponentMatching:
    """The components of two models, matched by their shapes without paired rows.

    `confidence`, at most 1, is the correlation of the maps of two halves of the rows over all dimensions, averaged over
    splits; `chance` is its 95 % quantile for random matches.
    """

    matches: tuple[ComponentMatch, ...]
    confidence: float
    chance: float

    @property
    def trusted(self) -> int:
        """The number of trusted components."""
        return sum(match.trusted for match in self.matches)

    @property
    def covered(self) -> float:
        """The share of the old model's variance in trusted components, from 0 to 1."""
        return float(sum(match.share for match in self.matches if match.trusted))


class TranslationNumbers(TypedDict):
    """The numbers of a translation in JSON.

    `groups` holds the held-out scores of every kind of map that was tried: `recall_10` on a sample of the rows, the
    explained variance `r2`, and the error relative to chance `of_chance`. `rows_enough` is the smallest number of
    paired rows from which on the recall stays within 0.02 of the last. Unpaired translations have `matching`, paired
    ones all other optional entries.
    """

    group: str
    n_old: int
    n_new: int
    d_old: int
    d_new: int
    groups: NotRequired[dict[str, dict[str, Any]]]
    retrieval: NotRequired[dict[str, Any]]
    probe: NotRequired[dict[str, Any] | None]
    curve: NotRequired[list[dict[str, float]]]
    rows_enough: NotRequired[int | None]
    still_rising: NotRequired[bool]
    drift: NotRequired[dict[str, Any]]
    relevance: NotRequired[dict[str, Any] | None]
    dependence: NotRequired[dict[str, Any] | None]
    near_duplicates: NotRequired[dict[str, Any] | None]
    matching: NotRequired[dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Translation(Result):
    """A fitted translator, and its quality on held-out rows.

    ``result.translator(x)`` translates rows of the new model. A paired translation has a `certificate` and the
    nearness of every kind of map that was tried (`candidates`, errors in units of the old vectors), and
    ``result["ridge"]`` is that of one kind. An unpaired one has a `matching` instead, and ``result[0]`` is the match of
    the old model's component 0. On a page, the statuses of a paired translation read go, no-go and unsure.
    """

    translator: Translator
    n_old: int
    n_new: int
    finding: Finding
    headlines: tuple[str, ...]  # the answer, the evidence, further sentences
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    candidates: Mapping[str, Nearness] = field(default_factory=dict)
    certificate: Certificate | None = None
    matching: ComponentMatching | None = None

    @property
    def group(self) -> str:
        """The kind of map that was fitted."""
        return self.translator.map.group

    @property
    def verdict(self) -> str:
        """The answer and its evidence."""
        return " ".join(self.headlines[:2])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding: translated vectors find enough neighbours; or, unpaired, all components are matched."""
        return (self.finding,)

    def parts(self) -> dict[Any, Any]:
        """The nearness of each group that was fitted; of an unpaired translation, the match of each old component."""
        return dict(self.candidates) if self.matching is None else {match.old: match for match in self.matching.matches}

    def numbers(self) -> TranslationNumbers:
        """The certificate, or the matching, as plain data."""
        numbers: TranslationNumbers = {
            "group": self.group,
            "n_old": self.n_old,
            "n_new": self.n_new,
            "d_old": self.translator.d_old,
            "d_new": self.translator.d_new,
        }
        if self.certificate is not None:
            certificate = self.certificate
            recall = certificate.by_group or {}
            numbers |= {
                "groups": {
                    name: {"recall_10": recall.get(name), "r2": vars(near.r2), "of_chance": vars(near.of_chance)}
                    for name, near in self.candidates.items()
                },
                "retrieval": asdict(certificate.retrieval),
                "relevance": None if certificate.relevance is None else asdict(certificate.relevance),
                "probe": None if certificate.probe is None else asdict(certificate.probe),
                "curve": [asdict(point) for point in certificate.curve],
                "rows_enough": certificate.rows_enough,
                "still_rising": certificate.still_rising,
                "drift": asdict(certificate.drift),
                "dependence": None if certificate.dependence is None else certificate.dependence.to_dict(),
                "near_duplicates": None if certificate.duplicates is None else asdict(certificate.duplicates),
            }
        if self.matching is not None:
            matching = self.matching
            numbers["matching"] = {
                "confidence": matching.confidence,
                "chance": matching.chance,
                "trusted": matching.trusted,
                "covered": matching.covered,
                "matches": [asdict(match) for match in matching.matches],
            }
        return numbers

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per held-out score and per group of maps; or, unpaired, per component of the old model."""
        if self.matching is not None:
            yield from (asdict(match) for match in self.matching.matches)
        if self.certificate is None:
            return
        retrieval, probe = self.certificate.retrieval, self.certificate.probe
        for name, recall in (("recall_10", retrieval.recall_10), ("recall_1", retrieval.recall_1)):
            others = (retrieval.before, retrieval.chance) if name == "recall_10" else (nan, nan)
            yield _row(name, recall.mean, recall.low, recall.high, *others)
        for point in retrieval.containment:
            yield _row(f"containment_{point.depth}", point.share.mean, point.share.low, point.share.high)
        if retrieval.itself is not None:
            yield _row("itself", retrieval.itself)
        for size in retrieval.sizes:
            kind = "extrapolated recall_10" if size.extrapolated else "recall_10"
            yield _row(f"{kind} of {size.rows}", size.recall, size.low, size.high)
        if retrieval.full is not None:
            yield _row("full_re_embedding", retrieval.full.mean, retrieval.full.low, retrieval.full.high)
        if probe is not None:
            yield _row(f"probe {probe.score}", probe.after, nan, nan, probe.before, probe.baseline)
        for name, near in self.candidates.items():
            yield _row(f"r2 {name}", near.r2.mean, near.r2.low, near.r2.high)
            yield _row(f"error of chance {name}", near.of_chance.mean, near.of_chance.low, near.of_chance.high)

    def document(self) -> Document:
        """Headline, held-out scores, probe, learning curve and groups of maps; or the matched components."""
        from congruence.translation._document import describe

        return describe(self)

    def save(self, path: str | Path) -> None:
        """Write the translator, with its status and verdict in the header; one without components is refused."""
        if self.matching is not None and self.settings["keep"] == "trusted" and not self.matching.trusted:
            raise InputError("no component is trusted, so the map is constant; keep='all' (--keep all) maps all")
        self.translator.save(path, status=self.status, verdict=self.verdict)


def _row(
    score: str, translated: float, low: float = nan, high: float = nan, untranslated: float = nan, chance: float = nan
) -> dict[str, Any]:
    values = {"translated": translated, "low": low, "high": high, "untranslated": untranslated, "chance": chance}
    return {"score": score, **values}
