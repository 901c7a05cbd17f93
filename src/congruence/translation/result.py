"""The result of `translate`: a translator, and the evidence for its quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan, nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from congruence.errors import InputError
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Result
from congruence.translation.certificate import Certificate
from congruence.translation.translator import Translator

if TYPE_CHECKING:
    from congruence.document import Document

INSIDE = "rearranged within clusters"  # the kind of null that keeps the means of clusters


@dataclass(frozen=True, eq=False)
class RowMatching:
    """The evidence for a map that was fitted without paired rows.

    Distances are in units of the root mean square distance of old rows from their mean. `residual` is the mean distance
    of a mapped row to the nearest row of the other model, averaged over both directions; `same_model` is that distance
    within each model, the least that a perfect map would leave. `nulls` are residuals of the same search on new rows
    without shared structure: "permuted" (principal scores permuted column by column), "rearranged" (whitened scores
    rotated at random: clusters stay, their arrangement does not) and "rearranged within clusters" (the same for
    deviations from the mean of a row's cluster: the arrangement of clusters stays, rows inside are unrelated).
    `agreement` is the R² of the maps of two halves of the rows, one entry per split, and `agreement_within` the same
    for deviations from the mean of a row's cluster.
    """

    residual: float
    same_model: float
    nulls: Mapping[str, tuple[float, ...]]
    agreement: tuple[float, ...]
    agreement_within: tuple[float, ...]
    rival: float  # residual of the best different map; NaN if every start found the same
    lead: float  # of the map over that one, in standard errors; infinite if every start found the same
    rows: int  # of each model, in the search
    directions: int  # principal directions that are mapped
    explained: float  # share of the variance along them, of the model with the smaller share

    @property
    def nearest(self) -> str:
        """The kind of null whose mean residual is the smallest."""
        return min(self.nulls, key=lambda kind: _mean(self.nulls[kind]))

    @property
    def null(self) -> float:
        """The mean residual of the nearest null; NaN without nulls."""
        return _mean(self.nulls[self.nearest])

    @property
    def p(self) -> float:
        """The largest of the p values against each kind of null: one-sided t tests for one new value."""
        return max(_p_below(self.residual, values) if values else nan for values in self.nulls.values())

    @property
    def shared(self) -> float:
        """The residual on a scale from 0 (the nearest null) to 1 (two samples of one model)."""
        room = self.null - self.same_model
        return nan if isnan(room) else (self.null - self.residual) / room if room > 0 else 0.0

    @property
    def mean_agreement(self) -> float:
        """The mean R² of the maps of two halves."""
        return _mean(self.agreement)

    @property
    def mean_agreement_within(self) -> float:
        """The mean R² of the maps of two halves, within clusters."""
        return _mean(self.agreement_within)

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain data."""
        derived = ("null", "p", "shared", "mean_agreement", "mean_agreement_within")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan


def _p_below(value: float, draws: Sequence[float]) -> float:
    """The p value of a new value that lies below the draws of a normal distribution, one-sided."""
    from scipy.stats import t

    spread = stdev(draws) * sqrt(1 + 1 / len(draws))
    gap = fmean(draws) - value
    if spread == 0:
        return float(gap <= 0)
    return float(t.sf(gap / spread, len(draws) - 1))


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
    ``result["ridge"]`` is that of one kind. An unpaired one has a `matching` instead. On a page, the statuses of a
    paired translation read go, no-go and unsure.
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
    matching: RowMatching | None = None

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
        """One finding: translated vectors find enough neighbours; or, unpaired, the rows determine the map."""
        return (self.finding,)

    def parts(self) -> dict[Any, Any]:
        """The nearness of each group that was fitted; an unpaired translation has none."""
        return dict(self.candidates)

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
            numbers["matching"] = self.matching.to_dict()
        return numbers

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per held-out score and per group of maps; or, unpaired, per measurement."""
        if self.matching is not None:
            values = self.matching.to_dict()
            values |= {f"null {kind}": _mean(draws) for kind, draws in values.pop("nulls").items()}
            yield from ({"score": name, "value": value} for name, value in values.items() if isinstance(value, float))
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
        """Headline, held-out scores, probe, learning curve and groups of maps; or the evidence without pairs."""
        from congruence.translation._certificate_document import describe_certificate
        from congruence.translation._unpaired_document import describe_unpaired

        return describe_certificate(self) if self.matching is None else describe_unpaired(self, self.matching)

    def save(self, path: str | Path) -> None:
        """Write the translator, with its status and verdict in the header; an undetermined one is refused."""
        if self.matching is not None and self.status != "holds":
            raise InputError(
                "without paired rows the map is not determined (status unknown), so it is not saved; in Python, "
                "result.translator.save(path) writes it anyway"
            )
        self.translator.save(path, status=self.status, verdict=self.verdict)


def _row(
    score: str, translated: float, low: float = nan, high: float = nan, untranslated: float = nan, chance: float = nan
) -> dict[str, Any]:
    values = {"translated": translated, "low": low, "high": high, "untranslated": untranslated, "chance": chance}
    return {"score": score, **values}
