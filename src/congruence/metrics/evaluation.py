"""What `evaluate` returns: scores with intervals and chance levels, and which code encodes which factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import numpy as np

from congruence.arrays import Float, listing
from congruence.formatting import count
from congruence.metrics._conditions import dependence_sentence
from congruence.metrics._results import Note, NoteData
from congruence.metrics._structural import StructuralNearness
from congruence.result import Finding, Record, Result, Status, as_data

if TYPE_CHECKING:
    from congruence.maps.dependence import Dependence

FEWEST_ROWS = 20  # on which codes are judged
_LISTED = 12  # names in a sentence at most


@dataclass(frozen=True)
class Score(Record):
    """One headline score of one metric."""

    metric: str  # such as "infomec"
    score: str  # such as "infom"
    value: float  # NaN where it is undefined; see `reason`
    low: float  # 95 % interval over subsamples of rows (or clusters); NaN where there is none, see `no_interval`
    high: float
    chance: float  # mean of the same score with the rows of codes and factors paired at random
    range: tuple[float, float]
    direction: str  # "higher is better" or "lower is better"
    reason: str = ""  # why the value is NaN or infinite, for which JSON has null
    chance_limit: float = math.nan  # one more random pairing stays on the worse side of this with 95 % probability
    corrected: float = math.nan  # InfoM, InfoC: without the information that unrelated codes appear to have
    no_interval: str = ""  # why there is no interval
    conditions: tuple[str, ...] = ()  # properties of these data that mislead the score; see `Evaluation.conditions`

    @property
    def beats_chance(self) -> bool | None:
        """Whether the value is beyond `chance_limit`, or else its interval beyond chance; None if that is unknown."""
        higher = self.direction.startswith("higher")
        end, limit = self.value, self.chance_limit
        if not math.isfinite(limit):
            end, limit = self.low if higher else self.high, self.chance
        if any(math.isnan(x) for x in (self.value, end, limit)):
            return None
        return end > limit if higher else end < limit

    def to_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        return {**super().to_dict(), "beats_chance": self.beats_chance}


@dataclass(frozen=True)
class FactorRow(Record):
    """How one factor is encoded."""

    factor: str
    kind: str
    levels: int  # distinct values
    code: str  # the most informative code; empty where none is more informative than chance
    share: float  # normalised information of the most informative code about the factor
    second: float  # and of the next one
    linear: float  # R2 of all codes together, held out; NaN where it was not requested
    nonlinear: float
    explained: bool  # whether any code, or all together, are more informative than chance
    own_code: str = ""  # the code that depends on this factor and hardly on any other; empty if none does
    conditional: float = math.nan  # of the best code's variance beyond all other factors, the share due to this factor
    leakage: float = math.nan  # how far all other factors move that code, relative to this factor


@dataclass(frozen=True)
class CodeRow(Record):
    """What one code encodes."""

    code: str
    factor: str  # the factor it is most informative about; empty where that is none
    share: float
    modularity: float  # share of its information that is about this factor; NaN for a constant code
    active: bool  # whether it varies enough to count
    idle: bool  # whether it is no more informative about any factor than chance


class ScoreNumbers(TypedDict):
    """A score in JSON."""

    metric: str
    score: str
    value: float
    low: float
    high: float
    chance: float
    beats_chance: bool | None
    range: list[float]
    direction: str
    reason: str
    chance_limit: float
    corrected: float
    no_interval: str
    conditions: list[str]


class FactorNumbers(FactorRow):
    """A factor in JSON: the fields of `FactorRow`."""


class CodeNumbers(CodeRow):
    """A code in JSON: the fields of `CodeRow`."""


class EvaluationNumbers(TypedDict):
    """The numbers of an evaluation in JSON. Matrices have a row for each factor and a column for each code."""

    name: str
    n: int
    codes: list[str]
    factors: list[str]
    scores: list[ScoreNumbers]
    matrices: dict[str, list[list[float]]]
    order: list[int]
    per_factor: list[FactorNumbers]
    per_code: list[CodeNumbers]
    own_codes: dict[str, str]
    unexplained: list[str]
    unmeasured: list[str]
    idle: list[str]
    structural: dict[str, dict[str, Any]] | None
    sensitivity: list[dict[str, float]]
    notes: list[NoteData]
    conditions: dict[str, str]
    dependence: dict[str, Any] | None
    compared: NotRequired[list[dict[str, Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Result):
    """The answer to "are the axes the true factors?".

    ``evaluation["infom"]`` is a score, ``evaluation["size"]`` the row of a factor (unless a score has the same name).
    """

    name: str
    n: int
    codes: tuple[str, ...]  # names, (L,)
    factors: tuple[str, ...]  # names, (K,)
    scores: tuple[Score, ...]
    matrices: Mapping[str, Float]  # each (K, L): "nmi" always, "importance" with dci, "correlation" with mcc
    per_factor: tuple[FactorRow, ...]
    per_code: tuple[CodeRow, ...]
    order: tuple[int, ...]  # of the codes: those matched with the factors first, in the order of the factors
    structural: StructuralNearness | None  # Definition 2, where it was requested
    sensitivity: tuple[Mapping[str, float], ...]  # scores for several numbers of bins, where they were requested
    sample: tuple[Float, Float]  # (m, L) codes and (m, K) factors of some rows, for plots
    levels: Mapping[str, tuple[str, ...]]  # of factors given as words: what each number of the sample stands for
    notes: tuple[str, ...]  # those of metrics are `congruence.metrics.Note`
    settings: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)  # properties that mislead scores, and what was measured
    dependence: Dependence | None = None  # of the rows, unless clusters or blocks were given
    compared: tuple[Evaluation, ...] = ()  # the same rows with other codes; the first are the codes as they were given
    pictures: Any = None  # images, reconstructions and latent traversals of a model

    @property
    def own_codes(self) -> dict[str, str]:
        """The factors that have a code of their own, and that code.

        It is more informative about the factor than chance, and given this factor it hardly depends on any other (see
        `leakage`); no other code depends on the factor a third as much, unless it is a copy. Correlated factors do not
        change this, since each is judged given the others; a rotated code depends on several, so it belongs to none.
        """
        return {row.factor: row.own_code for row in self.per_factor if row.own_code}

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Factors that were measured and about which the codes are no more informative than chance."""
        return tuple(row.factor for row in self.per_factor if not row.explained and not math.isnan(row.share))

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Factors that cannot be measured: they are constant, or no two rows share a class; see `notes`."""
        return tuple(row.factor for row in self.per_factor if math.isnan(row.share))

    @property
    def mixed(self) -> tuple[str, ...]:
        """Factors that are encoded, but have no code of their own."""
        own = self.own_codes
        return tuple(row.factor for row in self.per_factor if row.explained and row.factor not in own)

    @property
    def idle(self) -> tuple[str, ...]:
        """Codes that are no more informative about any factor than chance."""
        return tuple(row.code for row in self.per_code if row.idle)

    @property
    def is_measured(self) -> bool:
        """Whether any factor could be measured."""
        return bool(np.isfinite(self.matrices["nmi"]).any())

    @property
    def depends(self) -> bool:
        """Whether rows depend on each other so much that the result could be due to that; see `dependence`."""
        return self.dependence is not None and self.dependence.matters

    @property
    def is_judged(self) -> bool:
        """Whether codes can be distinguished from chance: on enough rows, which do not depend on each other."""
        return self.is_measured and self.n >= FEWEST_ROWS and not self.depends

    @property
    def headlines(self) -> tuple[str, ...]:
        """How many factors have a code of their own, and which do not."""
        if not self.is_measured:
            reason = next((score.reason for score in self.scores if score.reason), "")
            return tuple(filter(None, ("No factor could be measured.", reason)))
        if self.n < FEWEST_ROWS:
            return (f"{self.n} rows are too few to tell a code from chance; {FEWEST_ROWS} are needed.",)
        own, measured = len(self.own_codes), len(self.factors) - len(self.unmeasured)
        if self.depends and self.dependence is not None:
            return (
                "Rows depend on each other, so no code can be distinguished from chance.",
                dependence_sentence(self.dependence),
            )
        if measured == 1:
            subject = "The only factor that could be measured" if self.unmeasured else "The factor"
            sentences = [f"{subject} has {'a' if own else 'no'} code of its own."]
        else:
            who = {0: f"None of {measured}", measured: f"All {measured}"}.get(own, f"{own} of {measured}")
            sentences = [f"{who} factors {'has a code of its' if own < 2 else 'have a code of their'} own."]
        if self.mixed and len(self.factors) > 1:
            their = "its" if len(self.mixed) == 1 else "their"
            sentences.append(f"Encoded, but without a code of {their} own: {listing(self.mixed, _LISTED)}.")
        if self.unexplained:
            sentences.append(f"Not encoded: {listing(self.unexplained, _LISTED)}.")
        return tuple(sentences)

    @property
    def details(self) -> tuple[str, ...]:
        """Which codes encode nothing, and which factors could not be measured."""
        if not self.is_judged:
            return ()
        sentences = ["Every code encodes a factor."]
        if self.idle:
            encode = "encodes" if len(self.idle) == 1 else "encode"
            sentences = [f"{count(len(self.idle), 'code')} {encode} no factor: {listing(self.idle, _LISTED)}."]
        if self.unmeasured:
            sentences.append(f"Not measured (see the notes): {listing(self.unmeasured, _LISTED)}.")
        return tuple(sentences)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding: does each factor have a code of its own? It is ambiguous where only some have."""
        own, measured = len(self.own_codes), len(self.factors) - len(self.unmeasured)
        status: Status = "unknown"
        if self.is_judged:
            status = "ambiguous" if 0 < own < measured else "holds" if own else "fails"
        share = own / measured if self.is_judged else None
        evidence = " ".join((*self.headlines, *self.details))
        return (Finding("own codes", "Each factor has a code of its own.", status, number=share, evidence=evidence),)

    def parts(self) -> dict[str, Any]:
        """The scores by name, then the rows of factors whose name is not that of a score."""
        return {row.factor: row for row in self.per_factor} | {one.score: one for one in self.scores}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per score, of this evaluation and then of those it is compared with."""
        names = ("metric", "score", "value", "low", "high", "chance", "corrected", "direction", "reason", "no_interval")
        for evaluation in (self, *self.compared):
            for score in evaluation.scores:
                row = {"codes": evaluation.name} | {name: getattr(score, name) for name in names}
                yield row | {"conditions": "; ".join(score.conditions)}

    def numbers(self) -> EvaluationNumbers:
        """Everything but the sample of rows and the pictures."""
        values: dict[str, Any] = {name: getattr(self, name) for name in EvaluationNumbers.__annotations__}
        near = self.structural
        values["structural"] = near and {group: near.groups[group] for group in near.asked}
        values["notes"] = [note for note in self.notes if isinstance(note, Note)]
        del values["compared"]
        if self.compared:
            values["compared"] = [dict(one.numbers()) for one in self.compared]
        return cast(EvaluationNumbers, as_data(values))
