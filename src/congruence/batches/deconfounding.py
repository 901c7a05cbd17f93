"""What `deconfound` returns: AUROC on held-out batches by target and condition, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._inference import ON_ALL as ON_ALL
from congruence.batches._inference import Paired, PairedNumbers, compare_conditions, main_condition
from congruence.batches._inference import compare_folds as compare_folds
from congruence.batches.leakage import FeatureProfile, Nesting
from congruence.batches.retrieval import Precision
from congruence.batches.sparsity import Concentration
from congruence.errors import InputError
from congruence.metrics._estimators import mean_of_finite
from congruence.result import Finding, Result, Status, as_data
from congruence.tables import Table


class LevelNumbers(TypedDict):
    """Accuracy for the batch or precision for replicates in JSON."""

    mean: float
    error: float
    chance: float
    folds: list[float]


class TargetNumbers(TypedDict):
    """One target in JSON; scores and differences from base by condition."""

    name: str
    guides: list[str]
    positives: int
    batches: int
    left_out: int
    experiments: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    paired: dict[str, PairedNumbers]
    precision: dict[str, dict[str, Any]]


class DeconfoundingNumbers(TypedDict):
    """The numbers of a `Deconfounding` in JSON; `means` has one entry for each measure."""

    name: str
    n: int
    d: int
    batches: int
    controls: int
    conditions: list[str]
    main_condition: str
    targets: list[TargetNumbers]
    skipped: dict[str, str]
    variance: dict[str, float]
    nesting: dict[str, Any] | None
    overall: dict[str, PairedNumbers]
    contrasts: list[PairedNumbers]
    means: list[dict[str, Any]]
    leakage: dict[str, LevelNumbers]
    retrieval: dict[str, LevelNumbers]
    profiles: dict[str, dict[str, Any]]


def error_of(values: Float) -> float:
    """The standard error of the mean of the finite values; NaN for fewer than two."""
    good = values[np.isfinite(values)]
    return float(good.std(ddof=1) / np.sqrt(len(good))) if len(good) > 1 else math.nan


@dataclass(frozen=True, eq=False)
class Score:
    """One condition on one target: a value for each experiment (a guide in a fold), NaN if it was not scored."""

    condition: str
    auroc: Float  # (m,) on held-out batches; for random rotations, their mean
    within: Float  # (m,) the same within batches, without differences between batches
    sparsity: Float  # (m,) Hoyer sparsity of the split counts
    concentration: tuple[Concentration, ...]  # for each share of top features
    draws: Float  # (r,) mean AUROC of each random rotation; r is 1 for other conditions
    units: Float | None = None  # (m, units) what each held-out batch, or cluster of batches, contributes to the AUROC
    error: float = math.nan  # standard error of the mean, over held-out batches
    low: float = math.nan  # 95 % interval of the mean; NaN below three units, and where all units are equal
    high: float = math.nan

    @property
    def mean(self) -> float:
        """Mean AUROC over the experiments."""
        return mean_of_finite(self.auroc)

    def to_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        parts = ("top", "rest", "difference", "ratio")
        return {name: as_data(getattr(self, name)) for name in ("auroc", "mean", "error", "low", "high")} | {
            "within": mean_of_finite(self.within),
            "rotations": self.draws.tolist() if len(self.draws) > 1 else None,
            "sparsity": {"mean": mean_of_finite(self.sparsity), "error": error_of(self.sparsity)},
            "concentration": [
                {"share": one.share} | {name: mean_of_finite(getattr(one, name)) for name in parts}
                for one in self.concentration
            ],
        }


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """One target (gene, compound) against the controls."""

    name: str
    guides: tuple[str, ...]  # empty if there are none
    positives: int  # rows
    experiments: tuple[tuple[str, int], ...]  # (m,) guide and number of the fold
    reasons: tuple[str, ...]  # (m,) why an experiment was not scored; empty if it was
    batches: int  # with positives
    left_out: int  # batches without positives, not used for scoring
    scores: Mapping[str, Score]
    paired: Mapping[str, Paired]  # each condition against base
    trained: Array | None = None  # (m,) with one model per batch, the unit of the training batch
    precision: Mapping[str, Precision] = field(default_factory=dict)  # of replicates among controls, by condition

    @property
    def judged(self) -> int:
        """Number of experiments with a score."""
        return sum(not reason for reason in self.reasons)

    @property
    def units(self) -> int:
        """Number of held-out batches, or groups of batches, with a score."""
        known = self.scores["base"].units
        return self.judged if known is None else int(np.isfinite(known).any(0).sum())

    @property
    def missing(self) -> list[str]:
        """Why experiments were not scored."""
        return sorted({reason for reason in self.reasons if reason})

    def to_dict(self) -> TargetNumbers:
        """The target as plain data."""
        numbers = {name: as_data(getattr(self, name)) for name in TargetNumbers.__annotations__}
        tasks = zip(self.experiments, self.reasons, strict=True)
        numbers["experiments"] = [{"guide": guide, "fold": fold, "reason": why} for (guide, fold), why in tasks]
        return cast(TargetNumbers, numbers)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {score.mean:.3f}" for name, score in self.scores.items())
        return f"<Target {self.name}: AUROC {means}>"


@dataclass(frozen=True, eq=False)
class Levels:
    """One number for each fold and its chance level: accuracy for the batch, or precision for replicates."""

    condition: str
    value: Float  # (folds,)
    chance: Float  # (folds,)

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return mean_of_finite(self.value)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return error_of(self.value)

    @property
    def by_chance(self) -> float:
        """Mean chance level."""
        return mean_of_finite(self.chance)

    def to_dict(self) -> LevelNumbers:
        """The numbers as plain data."""
        return {"mean": self.mean, "error": self.error, "chance": self.by_chance, "folds": self.value.tolist()}


@dataclass(frozen=True, eq=False)
class Embedding:
    """The embedding under one condition, fitted on all rows, with ids and metadata."""

    condition: str
    table: Table  # (n, k); rows with missing labels or values are left out
    kept: Array | None = None  # (n,) their numbers in the input, where some were left out
    total: int = 0  # rows of the input

    def aligned(self) -> Array:
        """One row for each row of the input, (total, k); NaN for rows that were left out."""
        if self.kept is None:
            return self.table.values
        whole = np.full((self.total, self.table.d), np.nan, self.table.values.dtype)
        whole[self.kept] = self.table.values
        return whole


@dataclass(frozen=True, eq=False, repr=False)
class Deconfounding(Result):
    """The answer to "does it generalise to unseen batches?" for an embedding under several conditions.

    ``result["GENE"]`` is one target. There is a finding for each condition (is it better than base on held-out
    batches?) and for ICA against its controls; `status` is that of the main condition: ICA, or else the best.
    """

    name: str
    n: int
    d: int
    batches: int
    controls: int  # rows
    conditions: tuple[str, ...]
    targets: tuple[Target, ...]
    skipped: Mapping[str, str]  # targets on too few batches or rows to be scored, and why
    overall: Mapping[str, Paired]  # each condition against base, all targets together
    leakage: Mapping[str, Levels]  # balanced accuracy for the batch, from held-out controls
    retrieval: Mapping[str, Levels]  # mean average precision of replicates across batches
    profiles: Mapping[str, FeatureProfile]
    notes: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    embedding: Embedding | None = None  # under the requested condition
    variance: Mapping[str, float] = field(default_factory=dict)  # share of the controls' variance between batches
    nesting: Nesting | None = None  # what batches are nested in, if groups of batches are not held out whole

    @property
    def main_condition(self) -> str:
        """The condition that the verdict is about: ICA, or else the one with the highest mean AUROC."""
        return main_condition(self.targets, list(self.overall))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The answer, the mean AUROC, and how the main condition compares with its controls; one sentence each."""
        from congruence.batches._verdict import headlines_of

        return headlines_of(self)

    @property
    def verdict(self) -> str:
        """The answer, and the mean AUROC of base and of the main condition."""
        return " ".join(self.headlines[:2])

    @property
    def status(self) -> Status:
        """Whether the main condition is better than base on held-out batches."""
        paired = self.overall.get(self.main_condition)
        return "unknown" if paired is None else paired.status

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Each condition against base, the main one first, and the main condition against its controls."""
        from congruence.batches._verdict import findings_of

        return findings_of(self)

    @property
    def contrasts(self) -> tuple[Paired, ...]:
        """The main condition against its controls: ICA against random rotations and whitening; fits on all rows."""
        return compare_conditions(self.targets, self.conditions, self._protocol)[1]

    def parts(self) -> dict[str, Target]:
        """The targets by name."""
        return {one.name: one for one in self.targets}

    def against(self, condition: str, reference: str = "base", target: str | None = None) -> Paired:
        """The difference of two conditions, for one target or for all together."""
        for name in (condition, reference):
            if name not in self.conditions:
                raise InputError(f"there is no condition {name!r}; there are {', '.join(self.conditions)}")
        chosen = self.targets if target is None else (self[target],)
        return compare_folds(chosen, condition, reference, self._protocol)

    @property
    def _protocol(self) -> str:
        return str(self.settings.get("protocol", "folds"))

    @property
    def scored(self) -> tuple[Target, ...]:
        """The targets with a score."""
        return tuple(one for one in self.targets if one.judged)

    def mean(self, condition: str) -> float:
        """Mean AUROC over the targets with a score, each counted once."""
        return mean_of_finite(np.array([one.scores[condition].mean for one in self.targets]))

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per target and condition; `difference`, its interval and `status` are relative to base."""
        unknown, nowhere = (
            Paired("", "", math.nan, math.nan, math.nan, 0),
            Precision("", math.nan, math.nan, math.nan, math.nan, 0),
        )
        for target in self.targets:
            for score in target.scores.values():
                paired = target.paired.get(score.condition, unknown)
                found = target.precision.get(score.condition, nowhere)
                yield {
                    "target": target.name,
                    "condition": score.condition,
                    "guides": max(1, len(target.guides)),
                    "experiments": target.judged,
                    "auroc": score.mean,
                    "error": score.error,
                    "auroc_low": score.low,
                    "auroc_high": score.high,
                    **{name: getattr(paired, name) for name in ("difference", "low", "high", "p")},
                    "p_adjusted": paired.adjusted,
                    "status": "" if paired is unknown else paired.status,
                    "within": mean_of_finite(score.within),
                    "map": found.mean,
                    "map_p": found.p,
                    "map_p_adjusted": found.adjusted,
                    "rotations": float(np.std(score.draws)) if len(score.draws) > 1 else math.nan,
                    "sparsity": mean_of_finite(score.sparsity),
                    "sparsity_error": error_of(score.sparsity),
                } | {
                    f"concentration{round(100 * one.share)}_{reading}": mean_of_finite(getattr(one, reading))
                    for one in score.concentration
                    for reading in ("difference", "ratio")
                }

    def numbers(self) -> DeconfoundingNumbers:
        """All scores, differences and feature profiles."""
        from congruence.batches._verdict import measures_of

        own = {name: getattr(self, name, None) for name in DeconfoundingNumbers.__annotations__}
        return cast(DeconfoundingNumbers, as_data(own | {"means": measures_of(self)}))
