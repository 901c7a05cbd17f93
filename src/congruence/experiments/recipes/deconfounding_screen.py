"""One simulated screen, measured: how well batches never seen are told apart, and which axes are the true factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._deconfound import deconfound
from congruence.batches.conditions import condition_named
from congruence.batches.deconfounding import Score
from congruence.experiments.data.screen import CONTROL, SimulatedScreen
from congruence.experiments.processes import available_cores
from congruence.parts import Parts
from congruence.progress import Progress

Arrays = dict[str, Array]
CONDITIONS = ("base", "whitened", "ica", "rotated")
UNUSED = "not used"  # rows that whitening and components are fitted on, and that no tree sees


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its 95 % interval; the ends are NaN where there are fewer than three folds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" [{_signed(self.low)}, {_signed(self.high)}]"
        return _signed(self.mean) + ends


def interval_of(folds: Float) -> Interval:
    """A t interval of the mean over folds, (F,), whose training rows overlap: 1 / F + 1 / (F - 1) times the variance.

    The correction is that of Nadeau & Bengio 2003. It tells of other plates of the same screen.
    """
    from scipy.stats import t

    k, mean = len(folds), float(np.mean(folds))
    if k < 3:
        return Interval(mean, math.nan, math.nan)
    half = float(t.ppf(0.975, k - 1)) * math.sqrt((1 / k + 1 / (k - 1)) * float(np.var(folds, ddof=1)))
    return Interval(mean, mean - half, mean + half)


def gene_of(guide: str) -> str:
    """The gene that a guide is against."""
    return guide.rsplit("_guide_", 1)[0]


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found of a screen at one dial; arrays by condition."""

    dial: float
    bound: float  # of the mixing's bi-Lipschitz constant
    constants: Float  # (m,) at some rows
    guides: tuple[str, ...]  # E of them
    auroc: Mapping[str, Float]  # (E, F) by guide and fold
    sparsity: Mapping[str, Float]  # (E, F)
    top: Mapping[str, Float]  # (S, E, F) AUROC of the top features, for S shares
    rest: Mapping[str, Float]  # (S, E, F)
    match: Mapping[str, Float]  # (b,) |correlation| of each biology factor with an axis of its own
    taint: Mapping[str, Float]  # (b,) share of that axis' variance that technical factors explain

    def of_gene(self, values: Float, gene: str) -> Float:
        """The entries of values (E, F) of the guides of a gene, flat."""
        return values[self._rows(gene)].ravel()

    def by_fold(self, values: Float) -> Float:
        """The mean of values (E, F) in each fold, (F,): guides of a gene averaged first, so that genes count alike."""
        genes = dict.fromkeys(gene_of(guide) for guide in self.guides)
        return np.asarray(np.nanmean([np.nanmean(values[self._rows(gene)], axis=0) for gene in genes], axis=0))

    def ahead(self, condition: str, reference: str) -> Float:
        """By how much AUROC is higher in one condition than in another, in each fold, (F,)."""
        return self.by_fold(self.auroc[condition] - self.auroc[reference])

    def _rows(self, gene: str) -> list[int]:
        return [i for i, guide in enumerate(self.guides) if gene_of(guide) == gene]

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        return {
            "dial": self.dial,
            "bound": self.bound,
            "constant": {"median": float(np.median(self.constants)), "max": float(self.constants.max())},
            "guides": list(self.guides),
            "auroc": {name: values.tolist() for name, values in self.auroc.items()},
            "sparsity": {name: values.tolist() for name, values in self.sparsity.items()},
            "top": {name: values.tolist() for name, values in self.top.items()},
            "rest": {name: values.tolist() for name, values in self.rest.items()},
            "match": {name: values.tolist() for name, values in self.match.items()},
            "taint": {name: values.tolist() for name, values in self.taint.items()},
        }


def measure_axes(screen: SimulatedScreen, seed: int, device: str) -> Arrays:
    """Match the axes of every condition to the true biology, and see how technical the matched ones are."""
    from scipy.optimize import linear_sum_assignment

    found: Arrays = {}
    where = np.unique(screen.plate, return_inverse=True)[1]
    technical = _standard(screen.technical)
    solve = np.linalg.pinv(technical.T @ technical)
    for name in CONDITIONS:
        condition = condition_named(name, None, seed, 0, device).fit(screen.x, where, screen.is_control)
        axes = _standard(condition.transform(screen.x, where, screen.is_control))
        size = np.abs(_standard(screen.biology).T @ axes) / len(axes)  # (b, k)
        rows, columns = linear_sum_assignment(-size)
        cross = technical.T @ axes[:, columns]  # (t, b)
        found[f"match.{name}"] = size[rows, columns]
        found[f"taint.{name}"] = np.einsum("ij,ik,kj->j", cross, solve, cross) / len(axes)
    return found


def _standard(x: Array) -> Float:
    centred: Float = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    return np.asarray(centred / centred.std(0))


@dataclass(frozen=True)
class Prefixed:
    """Parts of one screen among those of several: the same names with something before them."""

    parts: Parts
    prefix: str

    def get(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """Return the arrays of a part, from disk where they are, or else from `compute`."""
        return self.parts.get(f"{self.prefix}-{name}", compute)


@dataclass(frozen=True)
class Task:
    """How a screen is judged."""

    guides: int  # of a gene, at most
    controls: int | None  # rows that trees may see; None for all
    folds: int
    rounds: int
    rotations: int
    shares: tuple[float, ...]
    seed: int
    device: str

    def labels(self, screen: SimulatedScreen) -> Array:
        """The gene of each row, "control", or `UNUSED` where no tree is to see it, (n,)."""
        number = np.array([int(guide.rsplit("_", 1)[1]) if "_" in guide else 0 for guide in screen.guide])
        labels = np.where(number <= self.guides, screen.gene, UNUSED)
        rows = np.flatnonzero(screen.is_control)
        if self.controls is not None and self.controls < len(rows):
            labels[np.random.default_rng([self.seed, 29]).permutation(rows)[self.controls :]] = UNUSED
        return labels


def measure_screen(screen: SimulatedScreen, task: Task, parts: Prefixed, progress: Progress) -> Measured:
    """Score a screen on held-out plates, and compare its axes with the truth."""
    outcome = deconfound(
        screen.x,
        batch=screen.plate,
        target=task.labels(screen),
        control=CONTROL,
        positive=list(screen.genes),
        guide=screen.guide,
        components="all",
        conditions=CONDITIONS,
        folds=task.folds,
        rounds=task.rounds,
        rotations=task.rotations,
        concentration=task.shares,
        leakage=False,
        retrieval=False,
        profiles=False,
        seed=task.seed,
        jobs=available_cores(),
        device=task.device,
        progress=progress,
        parts=parts,
    )
    axes = parts.get("axes", lambda: measure_axes(screen, task.seed, task.device))

    def of(key: Callable[[Score], Float]) -> dict[str, Float]:
        """By condition, a value for each guide and fold, (E, F)."""
        return {
            name: np.concatenate([key(one.scores[name]).reshape(len(one.guides), -1) for one in outcome.targets])
            for name in CONDITIONS
        }

    shown = [of(partial(_concentration, part, i)) for part in ("top", "rest") for i in range(len(task.shares))]
    top, rest = shown[: len(task.shares)], shown[len(task.shares) :]
    return Measured(
        dial=screen.mixing.dial,
        bound=screen.mixing.bound,
        constants=screen.mixing.constants(screen.factors),
        guides=tuple(guide for one in outcome.targets for guide in one.guides),
        auroc=of(lambda score: score.auroc),
        sparsity=of(lambda score: score.sparsity),
        top={name: np.array([one[name] for one in top]) for name in CONDITIONS},
        rest={name: np.array([one[name] for one in rest]) for name in CONDITIONS},
        match={name: axes[f"match.{name}"] for name in CONDITIONS},
        taint={name: axes[f"taint.{name}"] for name in CONDITIONS},
    )


def _concentration(part: str, share: int, score: Score) -> Float:
    return np.asarray(getattr(score.concentration[share], part))
