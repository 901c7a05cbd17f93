"""What `compare` returns: small frozen objects that print, turn into JSON and feed the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.maps.nearness import Nearness
from congruence.results import json_text

if TYPE_CHECKING:
    from congruence.align.consensus import Consensus
    from congruence.align.moved import MovedRows

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
    """Whether the difference of two runs is only a rotation and a scale, and the sentences that say so.

    `status` is "holds", "fails", "ambiguous" or "unknown"; `rung` is the smallest group that explains as much as
    any larger one, or "none" if no group beats the null.
    """

    status: str
    rung: str
    headline: str
    detail: str


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

    @property
    def efficiency(self) -> float:
        """The share of the rotation that ICA undoes without seeing the other run, in sample as in the paper."""
        return efficiency(*(self.groups[g].mean if g in self.groups else math.nan for g in ICA_LADDER))

    @property
    def held_out_efficiency(self) -> float:
        """The same share, from held-out errors."""
        return efficiency(*(self.groups[g].held_out.mean if g in self.groups else math.nan for g in ICA_LADDER))

    def to_dict(self) -> dict[str, Any]:
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
            "groups": groups,
            "mcc": {"strong": self.mcc.strong, "weak": self.mcc.weak},
            "cka": self.cka,
            "neighbour_overlap": self.neighbour_overlap,
            **({"similarities": dict(self.similarities)} if self.similarities else {}),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answer to "did retraining only rotate my embeddings?" for two or more runs.

    `verdict` is the plain-language answer, `advice` what would make it more certain, `settings` what was asked
    for. ``comparison["a", "b"]`` is the pair from run a to run b.
    """

    runs: list[Run]
    pairs: list[Pair]
    verdict: str
    advice: list[str]
    settings: Mapping[str, Any]
    ids: Array | None = field(default=None, repr=False)  # (n,) of the paired rows
    metadata: Mapping[str, Array] = field(default_factory=dict, repr=False)  # of the first run, each (n,)
    steps: list[float] | None = None  # of checkpoints of one training, one for each run
    consensus: Consensus | None = None  # what all runs have in common, where it was asked for

    def __getitem__(self, names: tuple[str, str]) -> Pair:
        for pair in self.pairs:
            if (pair.source, pair.target) == names:
                return pair
        known = ", ".join(f"{p.source} -> {p.target}" for p in self.pairs)
        raise InputError(f"there is no pair {names[0]} -> {names[1]}; the pairs are {known}")

    def moved(self, group: str | None = None) -> MovedRows:
        """Which rows moved, by the held-out errors of `group` (similarity, or else the largest that was compared)."""
        from congruence.align.moved import moved_rows

        return moved_rows(self, group)

    def to_dict(self) -> dict[str, Any]:
        """The whole result as plain numbers, lists and strings (the JSON contract)."""
        return {
            "runs": [{"name": run.name, "n": run.n, "d": run.d} for run in self.runs],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "verdict": self.verdict,
            **({"series": self.series()} if self.steps is not None else {}),
            **({"consensus": self.consensus.to_dict()} if self.consensus is not None else {}),
        }

    def series(self) -> list[dict[str, Any]]:
        """For checkpoints of one training: the held-out error of each onto the next and onto the last, by group."""
        known = {(pair.source, pair.target): pair for pair in self.pairs}
        names = [run.name for run in self.runs]

        def onto(source: str, target: str) -> dict[str, float]:
            pair = known.get((source, target))
            return {} if pair is None else {name: near.held_out.mean for name, near in pair.groups.items()}

        return [
            {"name": name, "step": step, "to_next": onto(name, following), "to_last": onto(name, names[-1])}
            for name, following, step in zip(names, [*names[1:], ""], self.steps or [], strict=True)
        ]

    def to_json(self) -> str:
        """The result as JSON text. The same data and seed give the same bytes; undefined numbers are null."""
        return json_text(self.to_dict())

    def rows(self) -> Iterator[dict[str, Any]]:
        """A tidy table: one row per pair and group."""
        for pair in self.pairs:
            for name, near in pair.groups.items():
                yield {
                    "source": pair.source,
                    "target": pair.target,
                    "group": name,
                    "status": pair.verdict.status,
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

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        lines.append(f"{'pair':<24} {'group':<12} {'held out':>9} {'95 % interval':>17} {'null':>8} {'in sample':>9}")
        for row in self.rows():
            pair = f"{row['source']} -> {row['target']}"
            interval = f"{row['low']:.4f}..{row['high']:.4f}"
            lines.append(
                f"{pair:<24} {row['group']:<12} {row['held_out']:9.4f} {interval:>17}"
                f" {row['null']:8.4f} {row['mean']:9.4f}"
            )
        return "\n".join([*lines, *(f"note: {advice}" for advice in self.advice)])
