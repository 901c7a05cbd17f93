"""What `compare` returns: runs, pairs and the comparison of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from congruence.arrays import Array
from congruence.files import check_writable, write_text
from congruence.maps.groups import Map
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.align._consensus import Consensus
    from congruence.align.moved import MovedRows
    from congruence.document import Document

NOTHING = 1e-6  # of the diameter: rounding of float32
ICA_LADDER = ("permutation", "similarity", "ica")


def efficiency(permutation: float, similarity: float, ica: float) -> float:
    """How much of what a supervised similarity gains over a permutation, unsupervised ICA gains too.

    (permutation - ica) / (permutation - similarity): 1 when ICA does as well as the similarity, 0 when it does no
    better than matching the raw dimensions, below 0 when worse; NaN where the similarity gains nothing.

    References
    ----------
    Nelson et al. 2026, Table 1 ("efficiency", where the similarity is called rigid).
    """
    gain = permutation - similarity
    worthwhile = gain > NOTHING and gain > 0.001 * permutation  # a ratio of rounding errors would say nothing
    return (permutation - ica) / gain if worthwhile else math.nan


@dataclass(frozen=True)
class Run:
    """One run: its name, the rows its file holds and its number of dimensions."""

    name: str
    n: int
    d: int


@dataclass(frozen=True)
class MCC:
    """Mean correlation coefficients, from 0 to 1, higher is closer (Khemakhem et al. 2020). Neither bounds the other.

    `strong` matches the raw dimensions one to one (up to permutation, sign and scale of each) over all rows; `weak`
    does so after canonical correlation analysis (up to any linear map), fitted on some folds and scored on the other;
    it is NaN where a fold has fewer than 10 rows.
    """

    strong: float
    weak: float


@dataclass(frozen=True, eq=False)
class Plane:
    """A sample of rows in the target's principal plane, before and after the best similarity map.

    All arrays have shape (m, 2) and the units of the target; `share` is the part of the target's variance that
    the plane shows.
    """

    target: Array
    before: Array
    after: Array
    share: float


@dataclass(frozen=True)
class PairVerdict:
    """Whether the difference of two runs is only a rotation and a scale.

    `group` is the smallest group that explains as much as any larger one, or "none" if no group beats the null.
    """

    finding: Finding
    group: str
    headline: str

    @property
    def status(self) -> Status:
        """That of the finding."""
        return self.finding.status


@dataclass(frozen=True, eq=False)
class Pair:
    """The comparison of one run (source) mapped onto another (target).

    All errors are Euclidean distances divided by the diameter of the target: 0 is a perfect match.
    """

    source: str
    target: str
    n: int
    diameter: float
    diameter_exact: bool
    groups: dict[str, Nearness]
    mcc: MCC
    cka: float
    neighbour_overlap: float
    verdict: PairVerdict
    maps: dict[str, Map] = field(repr=False)
    plane: Plane = field(repr=False)
    components: Nearness | None = None  # the ICA row once more, in the space of matched unit-variance components
    similarities: dict[str, float] = field(default_factory=dict)  # further measures, where they were asked for

    def __repr__(self) -> str:
        return f"<Pair {self.source} -> {self.target}, {self.verdict.status}: {self.verdict.headline}>"

    @property
    def efficiency(self) -> float:
        """The share of the rotation that ICA undoes without seeing the other run, in sample as in the paper."""
        return efficiency(*(self.groups[g].mean if g in self.groups else math.nan for g in ICA_LADDER))

    @property
    def held_out_efficiency(self) -> float:
        """The same share, from held-out errors."""
        return efficiency(*(self.groups[g].held_out.mean if g in self.groups else math.nan for g in ICA_LADDER))

    def to_dict(self) -> PairNumbers:
        """The pair as plain numbers, in the form of the JSON contract."""
        groups: dict[str, dict[str, Any]] = {name: near.to_dict() for name, near in self.groups.items()}
        if "ica" in groups:
            groups["ica"]["efficiency"] = self.efficiency
        return {
            "source": self.source,
            "target": self.target,
            "n": self.n,
            "diameter": self.diameter,
            "diameter_exact": self.diameter_exact,
            "group": self.verdict.group,
            "groups": groups,
            "mcc": {"strong": self.mcc.strong, "weak": self.mcc.weak},
            "cka": self.cka,
            "neighbour_overlap": self.neighbour_overlap,
            "similarities": dict(self.similarities),
        }


class PairNumbers(TypedDict):
    """A pair in JSON. Errors are shares of the target's diameter; `group` is the smallest that explains the rest."""

    source: str
    target: str
    n: int
    diameter: float
    diameter_exact: bool
    group: str
    groups: dict[str, dict[str, Any]]
    mcc: dict[str, float]
    cka: float
    neighbour_overlap: float
    similarities: dict[str, float]


class ComparisonNumbers(TypedDict):
    """The numbers of a comparison in JSON; `series` for checkpoints, `consensus` where it was asked for."""

    runs: list[dict[str, Any]]
    pairs: list[PairNumbers]
    series: NotRequired[list[dict[str, Any]]]
    consensus: NotRequired[dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The answer to "did retraining only rotate my embeddings?" for two or more runs.

    ``comparison["a", "b"]`` is the pair from run a to run b; there is a finding for each pair.
    """

    runs: list[Run]
    pairs: list[Pair]
    headlines: tuple[str, ...]  # the sentences of the verdict
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    ids: Array | None = None  # (n,) of the paired rows
    metadata: Mapping[str, Array] = field(default_factory=dict)  # of the first run, each (n,)
    steps: list[float] | None = None  # of checkpoints of one training, one for each run
    consensus: Consensus | None = None  # what all runs have in common, where it was asked for

    @property
    def verdict(self) -> str:
        """The answer in one or two sentences."""
        return " ".join(self.headlines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding for each pair: is the difference only a rotation and a scale?"""
        return tuple(pair.verdict.finding for pair in self.pairs)

    def __getitem__(self, key: tuple[str, str]) -> Pair:
        pair: Pair = super().__getitem__(key)
        return pair

    def parts(self) -> dict[tuple[str, str], Pair]:
        """The pairs by (source, target)."""
        return {(pair.source, pair.target): pair for pair in self.pairs}

    def moved(self, group: str | None = None) -> MovedRows:
        """Rank the rows by their held-out error after the map of `group` (similarity, or the largest compared)."""
        from congruence.align.moved import moved_rows

        return moved_rows(self, group)

    def numbers(self) -> ComparisonNumbers:
        """Runs, pairs and, where there are, the series of checkpoints and the consensus."""
        numbers: ComparisonNumbers = {
            "runs": [{"name": run.name, "n": run.n, "d": run.d} for run in self.runs],
            "pairs": [pair.to_dict() for pair in self.pairs],
        }
        if self.steps is not None:
            numbers["series"] = self.series()
        if self.consensus is not None:
            numbers["consensus"] = self.consensus.to_dict()
        return numbers

    def series(self) -> list[dict[str, Any]]:
        """For checkpoints of one training: the held-out error of each onto the next and onto the last, by group."""
        known = self.parts()
        names = [run.name for run in self.runs]

        def onto(source: str, target: str) -> dict[str, float]:
            pair = known.get((source, target))
            return {} if pair is None else {name: near.held_out.mean for name, near in pair.groups.items()}

        return [
            {"name": name, "step": step, "to_next": onto(name, following), "to_last": onto(name, names[-1])}
            for name, following, step in zip(names, [*names[1:], ""], self.steps or [], strict=True)
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per pair and group; errors are shares of the target's diameter."""
        for pair in self.pairs:
            for name, near in pair.groups.items():
                yield {
                    "source": pair.source,
                    "target": pair.target,
                    "group": name,
                    "pair_status": pair.verdict.status,
                    "held_out": near.held_out.mean,
                    "low": near.held_out.low,
                    "high": near.held_out.high,
                    "null": near.null,
                    "mean": near.mean,
                    "rms": near.rms,
                    "q95": near.q95,
                    "sup": near.sup,
                    "n": pair.n,
                    "diameter": pair.diameter,
                }

    def document(self) -> Document:
        """Headline, table of pairs, figures of each pair, and which rows moved."""
        from congruence.align._document import describe

        return describe(self)

    def to_latex(self, path: str | Path | None = None) -> str:
        r"""Return a booktabs table of held-out errors with the null in parentheses, and write it to `path` if given."""
        from congruence.align._latex import to_latex

        text = to_latex(self)
        if path is not None:
            write_text(check_writable(path), text)
        return text
