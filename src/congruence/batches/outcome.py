"""What `deconfound` returns: AUROC on batches never seen, condition by condition, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.batches.leakage import Carriers
from congruence.batches.sparsity import Concentration
from congruence.errors import InputError
from congruence.result import json_text


@dataclass(frozen=True, eq=False)
class Score:
    """One condition on one target: a value for each experiment (a guide in a fold), NaN where it cannot be judged."""

    condition: str
    auroc: Float  # (m,) on held-out batches; of random rotations, their mean
    within: Float  # (m,) the same inside batches, so that differences between batches do not enter
    sparsity: Float  # (m,) Hoyer sparsity of the split counts
    concentration: tuple[Concentration, ...]  # for each share of top features
    draws: Float  # (r,) mean AUROC of each random rotation; of other conditions, r is 1

    @property
    def mean(self) -> float:
        """Mean AUROC over the experiments."""
        return mean_of(self.auroc)

    @property
    def error(self) -> float:
        """Standard error of the mean over all folds of all guides, as in the paper; NaN for one."""
        return error_of(self.auroc)


@dataclass(frozen=True)
class Paired:
    """How far one condition is ahead of another, fold by fold, with a 95 % interval."""

    condition: str
    reference: str
    difference: float  # of mean AUROC; positive where `condition` is better
    low: float
    high: float
    folds: int  # that the interval comes from

    @property
    def verdict(self) -> str:
        """Whether it is "better", "worse", "no difference seen", or "unknown" where there is no interval."""
        if math.isnan(self.low):
            return "unknown"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "no difference seen"


@dataclass(frozen=True, eq=False)
class Target:
    """One perturbation against the controls."""

    name: str
    guides: tuple[str, ...]  # empty where there are none
    positives: int  # rows
    experiments: tuple[tuple[str, int], ...]  # (m,) guide and number of the fold
    reasons: tuple[str, ...]  # (m,) why an experiment was not judged; empty where it was
    batches: int  # with positives
    left_out: int  # batches without, which are kept out of scoring
    scores: Mapping[str, Score]
    paired: Mapping[str, Paired]  # of each condition against base

    @property
    def judged(self) -> int:
        """How many experiments have a score."""
        return sum(not reason for reason in self.reasons)


@dataclass(frozen=True, eq=False)
class Levels:
    """One number for each fold beside that of chance: how well the batch is predicted, or replicates are found."""

    condition: str
    value: Float  # (folds,)
    chance: Float  # (folds,)

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return mean_of(self.value)

    @property
    def error(self) -> float:
        """Its standard error."""
        return error_of(self.value)

    @property
    def by_chance(self) -> float:
        """Mean chance level."""
        return mean_of(self.chance)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A screen under several conditions."""

    name: str
    n: int
    d: int
    batches: int
    controls: int  # rows
    conditions: tuple[str, ...]
    targets: tuple[Target, ...]
    skipped: Mapping[str, str]  # targets that could not be judged, and why
    overall: Mapping[str, Paired]  # each condition against base, all targets together
    leakage: Mapping[str, Levels]  # balanced accuracy of the batch, from controls held out
    retrieval: Mapping[str, Levels]  # mean average precision of replicates across batches
    carriers: Mapping[str, Carriers]
    notes: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, target: str) -> Target:
        for one in self.targets:
            if one.name == target:
                return one
        raise KeyError(f"no target {target!r}; there are {', '.join(one.name for one in self.targets)}")

    def against(self, condition: str, reference: str = "base", target: str | None = None) -> Paired:
        """How far `condition` is ahead of `reference`, of one target or of all together."""
        for name in (condition, reference):
            if name not in self.conditions:
                raise InputError(f"there is no condition {name!r}; there are {', '.join(self.conditions)}")
        chosen = self.targets if target is None else (self[target],)
        return compare_folds(chosen, condition, reference, self.settings.get("protocol", "folds"))

    def mean(self, condition: str) -> float:
        """Mean AUROC over targets, each counted once."""
        return mean_of(np.array([one.scores[condition].mean for one in self.targets]))

    def table(self) -> list[dict[str, Any]]:
        """One row per target and condition: a tidy table."""
        return [self._row(one, score) for one in self.targets for score in one.scores.values()]

    def _row(self, target: Target, score: Score) -> dict[str, Any]:
        paired = target.paired.get(score.condition)
        nothing = math.nan
        return {
            "target": target.name,
            "condition": score.condition,
            "guides": max(1, len(target.guides)),
            "experiments": target.judged,
            "auroc": score.mean,
            "error": score.error,
            "difference": nothing if paired is None else paired.difference,
            "low": nothing if paired is None else paired.low,
            "high": nothing if paired is None else paired.high,
            "within": mean_of(score.within),
            "rotations": float(np.std(score.draws)) if len(score.draws) > 1 else nothing,
            "sparsity": mean_of(score.sparsity),
            "sparsity_error": error_of(score.sparsity),
        } | {
            f"concentration{round(100 * one.share)}_{reading}": mean_of(getattr(one, reading))
            for one in score.concentration
            for reading in ("difference", "ratio")
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists and numbers."""
        return {
            "name": self.name,
            "n": self.n,
            "d": self.d,
            "batches": self.batches,
            "controls": self.controls,
            "conditions": list(self.conditions),
            "targets": [_target_dict(one) for one in self.targets],
            "skipped": dict(self.skipped),
            "overall": {name: _paired_dict(one) for name, one in self.overall.items()},
            "leakage": {name: _levels_dict(one) for name, one in self.leakage.items()},
            "retrieval": {name: _levels_dict(one) for name, one in self.retrieval.items()},
            "carriers": {name: _carriers_dict(one) for name, one in self.carriers.items()},
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json_text(self.to_dict())


def compare_folds(targets: tuple[Target, ...], condition: str, reference: str, protocol: str) -> Paired:
    """Mean difference of two conditions over folds, with a 95 % t interval.

    Guides of a target, and targets, are averaged inside each fold, whose batches they share. Folds share most of their
    training rows, so their variance is taken (1 / k + test / train) times, not 1 / k (Nadeau & Bengio 2003): with five
    folds, intervals are half as wide again as the naive ones. For one model per batch, training batches are disjoint
    and the interval is the plain one: it tells of other training batches, not of others to be judged on.
    """
    by_fold: dict[int, list[float]] = {}
    for one in targets:
        difference = one.scores[condition].auroc - one.scores[reference].auroc
        own: dict[int, list[float]] = {}
        for (_, fold), value in zip(one.experiments, difference, strict=True):
            if not math.isnan(value):
                own.setdefault(fold, []).append(float(value))
        for fold, values in own.items():
            by_fold.setdefault(fold, []).append(float(np.mean(values)))
    folds = np.array([np.mean(values) for _, values in sorted(by_fold.items())])
    k = len(folds)
    if not k:
        return Paired(condition, reference, math.nan, math.nan, math.nan, 0)
    mean = float(folds.mean())
    if k < 3:
        return Paired(condition, reference, mean, math.nan, math.nan, k)
    from scipy.stats import t

    share = 1 / k + (1 / (k - 1) if protocol == "folds" else 0.0)
    half = float(t.ppf(0.975, k - 1)) * math.sqrt(share * float(folds.var(ddof=1)))
    return Paired(condition, reference, mean, mean - half, mean + half, k)


def mean_of(values: Float) -> float:
    """The mean of those that are numbers; NaN where there are none."""
    good = values[np.isfinite(values)]
    return float(good.mean()) if len(good) else math.nan


def error_of(values: Float) -> float:
    """The standard error of the mean of those that are numbers; NaN for fewer than two."""
    good = values[np.isfinite(values)]
    return float(good.std(ddof=1) / np.sqrt(len(good))) if len(good) > 1 else math.nan


def _target_dict(one: Target) -> dict[str, Any]:
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
        "scores": {name: _score_dict(score) for name, score in one.scores.items()},
        "paired": {name: _paired_dict(paired) for name, paired in one.paired.items()},
    }


def _score_dict(score: Score) -> dict[str, Any]:
    return {
        "auroc": score.auroc.tolist(),
        "mean": score.mean,
        "error": score.error,
        "within": mean_of(score.within),
        "rotations": score.draws.tolist() if len(score.draws) > 1 else None,
        "sparsity": {"mean": mean_of(score.sparsity), "error": error_of(score.sparsity)},
        "concentration": [
            {
                "share": one.share,
                "top": mean_of(one.top),
                "rest": mean_of(one.rest),
                "difference": mean_of(one.difference),
                "ratio": mean_of(one.ratio),
            }
            for one in score.concentration
        ],
    }


def _paired_dict(one: Paired) -> dict[str, Any]:
    return {
        "reference": one.reference,
        "difference": one.difference,
        "low": one.low,
        "high": one.high,
        "folds": one.folds,
        "verdict": one.verdict,
    }


def _levels_dict(one: Levels) -> dict[str, Any]:
    return {"mean": one.mean, "error": one.error, "chance": one.by_chance, "folds": one.value.tolist()}


def _carriers_dict(one: Carriers) -> dict[str, Any]:
    return {
        "technical": one.technical.tolist(),
        "biological": one.biological.tolist(),
        "noise": one.noise.tolist(),
        "entangled": one.entangled.tolist(),
    }
