"""The result of `compare`: runs, pairs, and the rows that differ most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.files import check_writable, write_text
from congruence.maps.groups import GROUPS, Map
from congruence.maps.nearness import HeldOut, Nearness
from congruence.result import Finding, Record, Result, Status, as_data
from congruence.tables import Table

if TYPE_CHECKING:
    from congruence.align._consensus import Consensus
    from congruence.align._distortion import Distortion
    from congruence.align.similarities import SimilarityScore
    from congruence.maps.dependence import Dependence

ROUNDING = 1e-6  # of float32, as a share of the diameter


def efficiency(permutation: float, similarity: float, ica: float) -> float:
    """The share of the gain of a supervised similarity over a permutation that unsupervised ICA reaches.

    (permutation - ica) / (permutation - similarity): 1 when ICA does as well as the similarity, 0 when it does no
    better than matching the raw dimensions, below 0 when worse; NaN where the similarity gains nothing.

    References
    ----------
    Nelson et al. 2026, Table 1 ("efficiency", where the similarity is called rigid).
    """
    gain = permutation - similarity
    defined = gain > ROUNDING and gain > 0.001 * permutation  # otherwise a ratio of rounding errors
    return (permutation - ica) / gain if defined else math.nan


@dataclass(frozen=True)
class Run(Record):
    """One run: its name, its number of rows before pairing, and its number of dimensions."""

    name: str
    n: int
    d: int


@dataclass(frozen=True)
class PairMCC(Record):
    """Mean correlation coefficients, from 0 to 1; higher is closer (Khemakhem et al. 2020). Neither bounds the other.

    `strong` matches the raw dimensions one to one (up to permutation, sign and scale of each) over all rows; `weak`
    does so after canonical correlation analysis (up to any linear map), fitted on some folds and scored on the other;
    it is NaN where a fold has fewer than 10 rows.
    """

    strong: float
    weak: float


@dataclass(frozen=True, eq=False)
class Plane:
    """A sample of rows in the target's principal plane, before and after the best similarity map.

    The points have shape (m, 2) and the units of the target; `share` is the share of the target's variance in the
    plane, and `rows`, shape (m,), which of the paired rows they are.
    """

    target: Array
    before: Array
    after: Array
    share: float
    rows: Array


@dataclass(frozen=True)
class PairVerdict:
    """Whether the difference of two runs is only a rotation and a scale.

    `group` is the smallest group that no larger one clearly improves upon, or "none" if none is better than the null.
    """

    finding: Finding
    group: str
    headline: str
    moved: int = 0  # rows that match no better than unrelated ones

    @property
    def status(self) -> Status:
        """The status of the finding."""
        return self.finding.status


@dataclass(frozen=True, eq=False)
class Pair:
    """The comparison of one run (source) mapped onto another (target).

    Errors are Euclidean distances relative to chance, or divided by the diameter of the target: 0 is a perfect match.
    """

    source: str
    target: str
    n: int
    diameter: float
    diameter_exact: bool
    groups: dict[str, Nearness]
    mcc: PairMCC
    cka: SimilarityScore
    neighbour_overlap: SimilarityScore
    verdict: PairVerdict
    maps: dict[str, Map] = field(repr=False)
    plane: Plane = field(repr=False)
    components: Nearness | None = None  # of ICA, in the space of matched components of unit variance
    distortion: Distortion | None = None  # where a rotation was fitted
    dependence: Dependence | None = None  # of the rows, unless clusters or blocks were given
    notes: tuple[str, ...] = ()
    similarities: dict[str, SimilarityScore] = field(default_factory=dict)  # further measures that were requested

    def __repr__(self) -> str:
        return f"<Pair {self.source} -> {self.target}, {self.verdict.status}: {self.verdict.headline}>"

    @property
    def efficiency(self) -> float:
        """The share of the rotation that ICA finds without using the other run, in sample as in the paper."""
        return self._efficiency(lambda near: near.mean)

    @property
    def held_out_efficiency(self) -> float:
        """The same share, from held-out errors."""
        return self._efficiency(lambda near: near.held_out.mean)

    def _efficiency(self, error: Callable[[Nearness], float]) -> float:
        nears = (self.groups.get(group) for group in ("permutation", "similarity", "ica"))
        return efficiency(*(error(near) if near else math.nan for near in nears))

    def to_dict(self) -> PairNumbers:
        """The pair as plain numbers, as in the JSON schema."""
        numbers = {name: as_data(getattr(self, name, None)) for name in PairNumbers.__annotations__}
        numbers |= {"group": self.verdict.group, "moved": self.verdict.moved}
        if "ica" in self.groups:
            numbers["groups"]["ica"]["efficiency"] = self.efficiency
        return cast(PairNumbers, numbers)


class PairNumbers(TypedDict):
    """A pair in JSON; `group` is the smallest sufficient group.

    Similarities have `value`, `null`, `calibrated` and `p`.
    """

    source: str
    target: str
    n: int
    diameter: float
    diameter_exact: bool
    group: str
    groups: dict[str, dict[str, Any]]
    distortion: dict[str, Any] | None
    dependence: dict[str, Any] | None
    moved: int
    mcc: dict[str, float]
    cka: dict[str, float]
    neighbour_overlap: dict[str, float]
    similarities: dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class MovedRows:
    """The held-out error of each row after the map of `group`, averaged over the pairs: which rows differ between runs.

    `disagreement`, shape (n,), is relative to chance: the error of the row over the mean error of unrelated runs. 0
    means that all runs agree on the row, 1 that they agree no better than unrelated ones. `by_run` averages over the
    pairs of one run, so a run that differs from the others is visible. `of_diameter`, shape (n,), are the same errors
    as shares of the target's diameter, and `null` is the mean for unrelated runs in that unit. Without a null (NaN),
    `disagreement` and `by_run` are shares of the diameter too.
    """

    group: str
    disagreement: Float
    by_run: dict[str, Float]
    of_diameter: Float = field(repr=False)
    null: float
    ids: Array | None = field(repr=False)
    metadata: Mapping[str, Array] = field(repr=False)
    id_name: str | None = None  # the column of the ids
    types: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of ids and metadata in the file

    def __repr__(self) -> str:
        most, unit = float(np.nanmax(self.disagreement)), "of chance" if self.judged else "of the diameter"
        return f"<MovedRows {len(self.disagreement)} rows up to {self.group}: at most {most:.3g} {unit}>"

    @property
    def judged(self) -> bool:
        """Whether there is a null, so that `disagreement` is relative to chance."""
        return math.isfinite(self.null)

    @property
    def order(self) -> Array:
        """The rows by decreasing disagreement, shape (n,)."""
        return np.argsort(-self.disagreement, kind="stable")

    def to_table(self) -> Table:
        """A table by decreasing disagreement, with ids, metadata and the row number.

        Columns `moved` and `moved_RUN` are relative to chance (of the diameter without a null); `moved_diameter` is a
        share of the target's diameter.
        """
        order, number = self.order, "Metadata_row"
        while {number, number.removeprefix("Metadata_")} & set(self.metadata):  # the rows of a plate, for example
            number += "_number"
        columns = {"moved": self.disagreement} | {f"moved_{name}": values for name, values in self.by_run.items()}
        diameter = "moved_diameter"
        while diameter in columns:  # a run of that name
            diameter += "_share"
        columns[diameter] = self.of_diameter
        return Table(
            np.column_stack(list(columns.values()))[order],
            "moved",
            None if self.ids is None else self.ids[order],
            {number: order} | {name: column[order] for name, column in self.metadata.items()},
            tuple(columns),
            id_name=self.id_name,
            types=self.types,
        )


class ComparisonNumbers(TypedDict):
    """The numbers of a comparison in JSON; `series` for checkpoints, `consensus` where it was requested."""

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
    id_name: str | None = None  # the column that they were read from
    types: Mapping[str, Any] = field(default_factory=dict)  # of ids and metadata in the file
    metadata: Mapping[str, Array] = field(default_factory=dict)  # of the first run, each (n,)
    steps: list[float] | None = None  # of checkpoints of one training, one for each run
    consensus: Consensus | None = None  # of all runs, where it was requested
    color: Array | None = None  # (n,) the column by which figures of rows are coloured

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
        """Rank the rows by their held-out error after the map of `group` (similarity, or the largest compared).

        Errors are relative to chance: those of each pair are divided by its null error.
        """
        shared = [g for g in GROUPS if all(g in pair.groups for pair in self.pairs)]
        if group is None:
            group = "similarity" if "similarity" in shared or not shared else shared[-1]
        if group not in shared:
            raise InputError(f"group must be one of those compared ({', '.join(shared) or 'none'}); got {group!r}")
        nears = {(pair.source, pair.target): pair.groups[group] for pair in self.pairs}
        null = float(np.mean([near.null for near in nears.values()]))
        errors = {names: near.errors / (near.null if null > 0 else 1.0) for names, near in nears.items()}
        return MovedRows(
            group=group,
            disagreement=np.mean(list(errors.values()), axis=0),
            by_run={
                run.name: np.mean([error for names, error in errors.items() if run.name in names], axis=0)
                for run in self.runs
            },
            of_diameter=np.mean([near.errors for near in nears.values()], axis=0),
            null=null,
            ids=self.ids,
            metadata=self.metadata,
            id_name=self.id_name,
            types=self.types,
        )

    def numbers(self) -> ComparisonNumbers:
        """Runs and pairs, and the series of checkpoints and the consensus where there are any."""
        numbers: ComparisonNumbers = {
            "runs": as_data(self.runs),
            "pairs": [pair.to_dict() for pair in self.pairs],
        }
        if self.steps is not None:
            numbers["series"] = self.series()
        if self.consensus is not None:
            numbers["consensus"] = self.consensus.to_dict()
        return numbers

    def series(self) -> list[dict[str, Any]]:
        """For checkpoints of one training: the held-out error of each onto the next and onto the last, by group.

        `to_next` and `to_last` are relative to chance; `to_next_diameter` and `to_last_diameter` are the same errors as
        shares of the target's diameter.
        """
        known = self.parts()
        names = [run.name for run in self.runs]

        def onto(key: str, source: str, target: str) -> dict[str, dict[str, float]]:
            pair = known.get((source, target))
            groups = pair.groups if pair else {}
            return {
                key: {name: near.of_chance.mean for name, near in groups.items()},
                f"{key}_diameter": {name: near.held_out.mean for name, near in groups.items()},
            }

        return [
            {"name": name, "step": step} | onto("to_next", name, following) | onto("to_last", name, names[-1])
            for name, following, step in zip(names, [*names[1:], ""], self.steps or [], strict=True)
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per pair and group.

        `of_chance` and `trimmed` are relative to chance, `r2` is the explained share of the variance; `held_out` and
        the columns after it are shares of the target's diameter.
        """
        for pair in self.pairs:
            for name, near in pair.groups.items():
                yield {
                    "source": pair.source,
                    "target": pair.target,
                    "group": name,
                    "pair_status": pair.verdict.status,
                    **_with_interval("of_chance", near.of_chance),
                    **_with_interval("r2", near.r2),
                    "trimmed": near.trimmed,
                    "held_out": near.held_out.mean,
                    "low": near.held_out.low,
                    "high": near.held_out.high,
                    **{field: getattr(near, field) for field in ("null", "mean", "rms", "q95", "sup")},
                    "n": pair.n,
                    "diameter": pair.diameter,
                }

    def to_latex(self, path: str | Path | None = None) -> str:
        r"""Return a booktabs table of held-out errors with R² in parentheses, and write it to `path` if given."""
        from congruence.align._latex import to_latex

        text = to_latex(self)
        if path is not None:
            write_text(check_writable(path), text)
        return text


def _with_interval(name: str, value: HeldOut) -> dict[str, float]:
    return {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
