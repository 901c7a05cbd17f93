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


@dataclass(frozen=True, eq=False)
class RowMatching:
    """The evidence for a map that was fitted without paired rows.

    Distances are in units of the root mean square distance of old rows from their mean. `residual` is the mean distance
    of a mapped row to the nearest row of the other model, averaged over both directions; `same_model` is that distance
    within each model, the least that a perfect map would leave. `nulls` are residuals of the same search on new rows
    without shared structure: "permuted" (principal scores permuted column by column) and "rearranged" (whitened scores
    rotated at random: clusters stay, their arrangement does not). `agreement` is the R² of the maps of two halves of
    the rows, one entry per split, and `agreement_within` the same for deviations from the mean of a row's cluster.
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
    def null(self) -> float:
        """The mean residual of the null that comes nearest; NaN without nulls."""
        return min(_mean(values) for values in self.nulls.values())

    @property
    def p(self) -> float:
        """The larger of the p values against both nulls: one-sided t tests for one new value."""
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

    Errors (`groups`, `curve`) are shares of the old space's `diameter`. `rows_enough` is the smallest number of paired
    rows from which on the error stays within 10 % of the last. Unpaired translations have `matching`, paired ones all
    other optional entries.
    """

    group: str
    n_old: int
    n_new: int
    d_old: int
    d_new: int
    diameter: NotRequired[float]
    groups: NotRequired[dict[str, dict[str, Any]]]
    retrieval: NotRequired[dict[str, Any]]
    probe: NotRequired[dict[str, Any] | None]
    curve: NotRequired[list[dict[str, float]]]
    rows_enough: NotRequired[int | None]
    still_falling: NotRequired[bool]
    drift: NotRequired[dict[str, Any]]
    matching: NotRequired[dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Translation(Result):
    """A fitted translator, and its quality on held-out rows.

    ``result.translator(x)`` translates rows of the new model. A paired translation has a `certificate` and the
    nearness of every group that was tried (`candidates`, shares of the old `diameter`), and ``result["linear"]`` is the
    nearness of one group. An unpaired one has a `matching` instead. On a page, the statuses of a paired translation
    read go, no-go and unsure.
    """

    translator: Translator
    n_old: int
    n_new: int
    finding: Finding
    headlines: tuple[str, ...]  # the answer, the evidence, further sentences
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    diameter: float = nan
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
            certificate = asdict(self.certificate)
            numbers |= {
                "diameter": self.diameter,
                "groups": {name: near.to_dict() for name, near in self.candidates.items()},
                "retrieval": certificate["retrieval"],
                "probe": certificate["probe"],
                "curve": certificate["curve"],
                "rows_enough": self.certificate.rows_enough,
                "still_falling": self.certificate.still_falling,
                "drift": certificate["drift"],
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
        yield _row("itself", retrieval.itself)
        yield _row("rank_agreement", retrieval.rank_agreement)
        if probe is not None:
            yield _row(f"probe {probe.score}", probe.after, nan, nan, probe.before, probe.baseline)
        for name, near in self.candidates.items():
            held = near.held_out
            yield _row(f"error {name}", held.mean, held.low, held.high, nan, near.null)

    def document(self) -> Document:
        """Headline, held-out scores, probe, learning curve and groups of maps; or the evidence without pairs."""
        from congruence.translation._document import describe

        return describe(self)

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
