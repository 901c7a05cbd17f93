"""Scores of trees on held-out plates; of a simulated screen also how well axes match the true factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._deconfound import deconfound
from congruence.batches.conditions import condition_named
from congruence.batches.deconfounding import Deconfounding, Score
from congruence.experiments.data.screen import CONTROL, SimulatedScreen
from congruence.experiments.processes import available_cores
from congruence.experiments.recipes.claims import Estimate
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.metrics._estimators import mean_of_finite
from congruence.parts import Arrays, Parts
from congruence.stats.intervals import t_interval
from congruence.stats.matching import match

CONDITIONS = ("base", "whitened", "ica", "rotated")
UNUSED = "not used"  # rows that whitening and components are fitted on, but no tree


class Difference(Estimate):
    """A mean difference with its 95 % interval; the ends are NaN below three values."""

    def __str__(self) -> str:
        mean, low, high = (f"{value:+.3f}".replace("-", "−") for value in self)
        return mean if math.isnan(self.low) else f"{mean} [{low}, {high}]"


def estimate_difference(values: Float, *, folds: bool = True) -> Difference:
    """The mean of the finite values (n,) with its t interval.

    The training rows of folds overlap, for which the interval is corrected (Nadeau & Bengio 2003): it is about other
    plates of the same screen. Other values, such as those of factors, are taken to be independent.
    """
    known = values[np.isfinite(values)]
    interval = t_interval(known, folds=folds) if len(known) else (math.nan, math.nan)
    return Difference(mean_of_finite(known), *interval)


@dataclass(frozen=True, eq=False)
class TreeScores:
    """The scores of trees on held-out plates; arrays by condition, NaN where a target has no positives."""

    guides: tuple[str, ...]  # E of them, or targets that have none
    auroc: Mapping[str, Float]  # (E, F) by guide and fold
    sparsity: Mapping[str, Float]  # (E, F)
    top: Mapping[str, Float]  # (S, E, F) AUROC of the top features, for S shares
    rest: Mapping[str, Float]  # (S, E, F)

    @property
    def genes(self) -> tuple[str, ...]:
        """The genes, or targets, that the guides are of."""
        return tuple(dict.fromkeys(map(_gene, self.guides)))

    def of_gene(self, values: Float, gene: str) -> Float:
        """The entries of values (E, F) of the guides of a gene, (guides, F)."""
        return values[[i for i, guide in enumerate(self.guides) if _gene(guide) == gene]]

    def by_fold(self, values: Float) -> Float:
        """The mean of values (E, F) in each fold, (F,): first over the guides of a gene, then over genes."""
        return _mean(np.array([_mean(self.of_gene(values, gene)) for gene in self.genes]))

    def concentration(self, place: int) -> dict[str, Float]:
        """The AUROC of the axes used most minus that of the rest at one share, (E, F) by condition."""
        return {name: self.top[name][place] - self.rest[name][place] for name in CONDITIONS}

    def gain(self, condition: str, reference: str) -> Float:
        """The AUROC of one condition minus that of another, in each fold, (F,)."""
        return self.by_fold(self.auroc[condition] - self.auroc[reference])


@dataclass(frozen=True, eq=False)
class ScreenScores(TreeScores):
    """The scores of a simulated screen at one dial."""

    dial: float
    bound: float  # of the mixing's bi-Lipschitz constant
    constant: Mapping[str, float]  # "median" and "max" over some rows
    match: Mapping[str, Float]  # (b,) |correlation| of each biology factor with the axis matched to it
    taint: Mapping[str, Float]  # (b,) share of that axis' variance that technical factors explain


def _gene(guide: str) -> str:
    return guide.rsplit("_guide_", 1)[0]


def _mean(values: Float) -> Float:
    """The mean of the finite values of each column of (n, m), (m,); NaN without any."""
    return np.array([mean_of_finite(column) for column in values.T])


def tree_labels(screen: SimulatedScreen, guides: int, controls: int | None, seed: int) -> Array:
    """The gene of each row, "control", or `UNUSED` for rows that trees do not see, (n,).

    Trees see the first `guides` of each gene, and `controls` control rows (None: all).
    """
    number = np.array([int(guide.rsplit("_", 1)[1]) if "_" in guide else 0 for guide in screen.guide])
    labels = np.where(number <= guides, screen.gene, UNUSED)
    rows = np.flatnonzero(screen.is_control)
    if controls is not None and controls < len(rows):
        labels[np.random.default_rng([seed, 29]).permutation(rows)[controls:]] = UNUSED
    return labels


def score_screen(
    screen: SimulatedScreen,
    job: RecipeJob,
    parts: Parts,
    guides: int,
    shares: tuple[float, ...],
    rotations: int,
) -> ScreenScores:
    """Score a screen on held-out plates, and compare its axes with the truth."""
    dial = screen.mixing.dial
    result = deconfound(
        screen.x,
        batch=screen.plate,
        target=tree_labels(screen, guides, job.parameters["controls"], job.seed),
        control=CONTROL,
        positive=list(screen.genes),
        guide=screen.guide,
        components="all",
        conditions=CONDITIONS,
        folds=job.parameters["folds"],
        rounds=job.parameters["rounds"],
        rotations=rotations,
        concentration=shares,
        leakage=False,
        retrieval=False,
        profiles=False,
        seed=job.seed,
        jobs=available_cores(),
        device=job.device,
        progress=lambda what, done, total: job.progress(f"dial {dial:g}, {what}", done, total),
        parts=parts,
    )
    axes = parts.get("axes", lambda: match_axes(screen, job.seed, job.device))

    constants = screen.mixing.constants(screen.factors)
    return ScreenScores(
        dial=dial,
        bound=screen.mixing.bound,
        constant={"median": float(np.median(constants)), "max": float(constants.max())},
        **tree_scores(result, len(shares)),
        match={name: axes[f"match.{name}"] for name in CONDITIONS},
        taint={name: axes[f"taint.{name}"] for name in CONDITIONS},
    )


def tree_scores(result: Deconfounding, shares: int) -> dict[str, Any]:
    """The fields of `TreeScores`; targets that no fold scored are left out."""
    targets = result.scored

    def by_condition(value: Callable[[Score], Any]) -> dict[str, Float]:
        """A value for each guide and fold, (E, F), by condition."""
        return {
            name: np.concatenate(
                [np.asarray(value(one.scores[name])).reshape(len(one.guides) or 1, -1) for one in targets]
            )
            for name in CONDITIONS
        }

    def by_share(part: str) -> dict[str, Float]:
        values = [
            by_condition(lambda score, i=i: getattr(score.concentration[i], part))  # type: ignore[misc]
            for i in range(shares)
        ]
        return {name: np.array([one[name] for one in values]) for name in CONDITIONS}

    return {
        "guides": tuple(guide for one in targets for guide in one.guides or (one.name,)),
        "auroc": by_condition(lambda score: score.auroc),
        "sparsity": by_condition(lambda score: score.sparsity),
        "top": by_share("top"),
        "rest": by_share("rest"),
    }


def match_axes(screen: SimulatedScreen, seed: int, device: str) -> Arrays:
    """Match the axes of every condition to the true biology, and measure how technical the matched ones are."""
    arrays: Arrays = {}
    plates = np.unique(screen.plate, return_inverse=True)[1]
    technical = _standardise(screen.technical)
    inverse = np.linalg.pinv(technical.T @ technical)
    for name in CONDITIONS:
        condition = condition_named(name, None, seed, 0, device).fit(screen.x, plates, screen.is_control)
        axes = _standardise(condition.transform(screen.x, plates, screen.is_control))
        size = np.abs(_standardise(screen.biology).T @ axes) / len(axes)  # (b, k)
        rows, columns = match(size)
        cross = technical.T @ axes[:, columns]  # (t, b)
        arrays[f"match.{name}"] = size[rows, columns]
        arrays[f"taint.{name}"] = np.einsum("ij,ik,kj->j", cross, inverse, cross) / len(axes)
    return arrays


def _standardise(x: Array) -> Float:
    centred: Float = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    return np.asarray(centred / centred.std(0))
