"""The numbers of a `Deconfounding` as plain data: their types make the JSON schema."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from congruence.arrays import Float
from congruence.metrics._estimators import mean_of_finite
from congruence.result import Status

if TYPE_CHECKING:
    from congruence.batches._inference import Paired
    from congruence.batches.deconfounding import Levels, Score, Target
    from congruence.batches.leakage import FeatureProfile


class PairedNumbers(TypedDict):
    """The difference of two conditions in JSON; `status` is about the claim that `condition` is better."""

    condition: str
    reference: str
    difference: float
    low: float
    high: float
    folds: int
    units: int
    p: float
    adjusted: float
    comparisons: int
    status: Status


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


def target_numbers(one: Target) -> TargetNumbers:
    """A target as plain data."""
    return {
        "name": one.name,
        "guides": list(one.guides),
        "positives": one.positives,
        "batches": one.batches,
        "left_out": one.left_out,
        "experiments": [
            {"guide": guide, "fold": fold, "reason": reason}
            for (guide, fold), reason in zip(one.experiments, one.reasons, strict=True)
        ],
        "scores": {name: _score_numbers(score) for name, score in one.scores.items()},
        "paired": {name: paired_numbers(paired) for name, paired in one.paired.items()},
        "precision": {name: asdict(found) for name, found in one.precision.items()},
    }


def _score_numbers(score: Score) -> dict[str, Any]:
    return {
        "auroc": score.auroc.tolist(),
        "mean": score.mean,
        "error": score.error,
        "low": score.low,
        "high": score.high,
        "within": mean_of_finite(score.within),
        "rotations": score.draws.tolist() if len(score.draws) > 1 else None,
        "sparsity": {"mean": mean_of_finite(score.sparsity), "error": error_of(score.sparsity)},
        "concentration": [
            {"share": one.share}
            | {name: mean_of_finite(getattr(one, name)) for name in ("top", "rest", "difference", "ratio")}
            for one in score.concentration
        ],
    }


def paired_numbers(one: Paired) -> PairedNumbers:
    """The difference of two conditions as plain data."""
    return cast(PairedNumbers, asdict(one) | {"status": one.status})


def level_numbers(one: Levels) -> LevelNumbers:
    """Accuracy or precision by fold as plain data."""
    return {"mean": one.mean, "error": one.error, "chance": one.by_chance, "folds": one.value.tolist()}


def profile_numbers(one: FeatureProfile) -> dict[str, Any]:
    """A feature profile as plain data."""
    lists = {name: getattr(one, name).tolist() for name in ("technical", "biological", "noise", "entangled")}
    return lists | {"level": one.level}
