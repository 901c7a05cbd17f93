"""Fit one condition in one fold, score every experiment, and collect the scores by target and condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.batches._folds import Experiment, Fold, FoldPlan, Screen, scored_rows
from congruence.batches._inference import MeanAUROC, compare_folds, estimate_mean
from congruence.batches.classify import PAPER, auroc, auroc_by_unit, auroc_within, fit_trees
from congruence.batches.conditions import Condition, condition_named
from congruence.batches.deconfounding import Levels, Score, Target
from congruence.batches.leakage import predict_batch
from congruence.batches.retrieval import Precision, judge_replicates, retrieve_replicates, search_replicates
from congruence.batches.sparsity import Concentration, concentrations, hoyer
from congruence.metrics._estimators import mean_of_finite

PartArrays = dict[str, Array]
FoldScores = dict[tuple[str, int], PartArrays]  # by the key of a variant and the number of a fold
ALGEBRA = Lock()  # linear algebra is multi-threaded, so one thread at a time; each tree model uses one thread


@dataclass(frozen=True)
class Variant:
    """A condition, the rows it is fitted on and, for random rotations, the number of the draw."""

    name: str  # in results
    kind: str
    strict: bool = True
    draw: int = 0

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.kind}{self.draw or ''}{'' if self.strict else '-all'}"


@dataclass(frozen=True)
class Work:
    """How conditions are fitted and scored."""

    components: int | float | str | None
    rounds: int
    shares: tuple[float, ...]
    seed: int
    device: str
    leakage: bool
    retrieval: bool

    def condition(self, variant: Variant) -> Condition:
        """The condition of a variant, not fitted yet."""
        return condition_named(variant.kind, self.components, self.seed, variant.draw, self.device)


def embed(screen: Screen, condition: Condition, rows: Array) -> Array:
    """Fit on `rows` (n,) of bool only, and transform all rows, (n, d) to (n, k)."""
    everything = bool(rows.all())
    x, batch, known = screen.x, screen.batch, screen.reference
    condition.fit(*((x, batch, known) if everything else (x[rows], batch[rows], known[rows])))
    return condition.transform(x, batch, known)


class Embeddings:
    """The rows of a screen under each condition; fits on all rows are the same in every fold and are cached."""

    def __init__(self, screen: Screen, work: Work) -> None:
        self.screen, self.work = screen, work
        self.cached: dict[str, tuple[Array, list[str]]] = {}

    def of(self, variant: Variant, fold: Fold) -> tuple[Array, list[str]]:
        """Rows (n, k) as a variant prepares them in a fold, and notes on its fit."""
        if not variant.strict:
            if variant.key not in self.cached:
                self.cached[variant.key] = self._fitted(variant, self.screen.fitted_on)
            return self.cached[variant.key]
        return self._fitted(variant, fold.train & self.screen.fitted_on)

    def on_all(self, variant: Variant) -> Array:
        """Rows (n, k) as a variant prepares them when it is fitted on all rows."""
        key = replace(variant, strict=False).key
        return self.cached[key][0] if key in self.cached else self._fitted(variant, self.screen.fitted_on)[0]

    def _fitted(self, variant: Variant, rows: Array) -> tuple[Array, list[str]]:
        condition = self.work.condition(variant)
        return embed(self.screen, condition, rows), condition.notes


def score_variant(
    embeddings: Embeddings, fold: Fold, variant: Variant, experiments: Sequence[Experiment], tick: Callable[[], None]
) -> Mapping[str, Any]:
    """All scores of a variant in a fold: for each experiment (m,), and for the whole fold."""
    screen, work = embeddings.screen, embeddings.work
    with ALGEBRA:
        z, fit_notes = embeddings.of(variant, fold)
        levels = {} if variant.draw else _levels(screen, fold, z, experiments, work)
    rows = [_experiment(screen, fold, z, one, work, tick) for one in experiments]
    keys = ("auroc", "within", "sparsity", "top", "rest", "units")
    columns = {key: np.array([row[i] for row in rows], dtype=float) for i, key in enumerate(keys)}
    notes = np.frombuffer("\n".join(dict.fromkeys(fit_notes)).encode(), dtype=np.uint8)
    return columns | levels | {"notes": notes.copy()}


def _experiment(
    screen: Screen, fold: Fold, z: Array, one: Experiment, work: Work, tick: Callable[[], None]
) -> tuple[float, float, float, list[float], list[float], Float]:
    test, reason = scored_rows(fold, screen, one)
    nan = float("nan")
    if reason:
        tick()
        return nan, nan, nan, [nan] * len(work.shares), [nan] * len(work.shares), np.full(fold.units, nan)
    train = fold.train & screen.fitted_on & (one.positive | screen.control)
    learned, label = z[train], one.positive[train]
    judged, truth, batch, unit, image = z[test], one.positive[test], screen.batch[test], fold.unit[test], None
    if screen.image is not None:
        image = np.unique(screen.image[test], return_inverse=True)[1].reshape(-1)
        first = np.unique(image, return_index=True)[1]
        truth, batch, unit = truth[first], batch[first], unit[first]

    def scores(trees: Any, columns: Any) -> Float:
        score = trees.score(judged[:, columns])
        return score if image is None else np.bincount(image, score) / np.bincount(image)

    def score_features(chosen: Array) -> float:
        trees = fit_trees(learned[:, chosen], label, rounds=work.rounds, seed=work.seed)
        return auroc(truth, scores(trees, chosen))

    trees = fit_trees(learned, label, rounds=work.rounds, seed=work.seed)
    score = scores(trees, slice(None))
    top, rest = concentrations(trees.splits, trees.gain, work.shares, score_features)
    tick()
    by_unit = auroc_by_unit(truth, score, unit, fold.units)
    return auroc(truth, score), auroc_within(truth, score, batch), hoyer(trees.splits), top, rest, by_unit


def _levels(screen: Screen, fold: Fold, z: Array, experiments: Sequence[Experiment], work: Work) -> dict[str, Array]:
    """Scores of the whole fold that no rotation changes, so one random rotation is enough."""
    levels = {}
    if work.leakage:
        rows = fold.test & screen.control & screen.fitted_on
        levels["leakage"] = np.array(predict_batch(z[rows], screen.batch[rows], work.seed))
    if work.retrieval:
        targets = list(dict.fromkeys(one.target for one in experiments))
        levels["retrieval"] = np.array(_retrieval(screen, fold, z, work))
        levels["replicates"] = search_replicates(z, screen, fold, targets, work.seed)
    return levels


def _retrieval(screen: Screen, fold: Fold, z: Array, work: Work) -> tuple[float, float]:
    """Replicates of held-out rows among other targets; cosines are around the mean control."""
    rows = fold.test & screen.treated & screen.fitted_on
    known = fold.train & screen.fitted_on
    origin = z[known & screen.control if (known & screen.control).any() else known].mean(0)
    return retrieve_replicates(z[rows] - origin, screen.target[rows], screen.batch[rows], work.seed)


def target_of(
    name: str,
    screen: Screen,
    plan: FoldPlan,
    experiments: Sequence[Experiment],
    variants: Sequence[Variant],
    scores: FoldScores,
    shares: tuple[float, ...],
    protocol: str,
) -> Target:
    """One target under all conditions; its experiments are its guides in every fold."""
    own = [i for i, one in enumerate(experiments) if one.target == name]
    units = [(i, number) for i in own for number in range(len(plan.folds))]
    positive = np.any([experiments[i].positive for i in own], axis=0)
    reasons = [scored_rows(plan.folds[number], screen, experiments[i])[1] for i, number in units]
    if all(reasons) and len(np.unique(plan.folds[0].unit[positive])) == 1:
        reasons = ["all its batches are in one group, which is held out whole"] * len(units)

    def values(variant: Variant, key: str, *place: int) -> Float:
        return np.array([scores[variant.key, number][key][(i, *place)] for i, number in units])

    def score(condition: str) -> Score:
        draws = [variant for variant in variants if variant.name == condition]

        def mean(key: str, *place: int) -> Float:
            return np.asarray(np.mean([values(variant, key, *place) for variant in draws], axis=0))

        return Score(
            condition,
            mean("auroc"),
            mean("within"),
            mean("sparsity"),
            tuple(Concentration(share, mean("top", j), mean("rest", j)) for j, share in enumerate(shares)),
            np.array([mean_of_finite(values(variant, "auroc")) for variant in draws]),
            mean("units"),
        )

    with_positives = len(np.unique(screen.batch[positive]))
    target = Target(
        name=name,
        guides=tuple(experiments[i].guide for i in own if experiments[i].guide),
        positives=int(positive.sum()),
        experiments=tuple((experiments[i].guide, number) for i, number in units),
        reasons=tuple(reasons),
        batches=with_positives,
        left_out=len(screen.batches) - with_positives,
        scores={condition: score(condition) for condition in dict.fromkeys(variant.name for variant in variants)},
        paired={},
        trained=None if plan.folds[0].trained < 0 else np.array([plan.folds[number].trained for _, number in units]),
    )
    judged = {
        one: _with_interval(score, estimate_mean((target,), one, None, protocol))
        for one, score in target.scores.items()
    }
    paired = {one: compare_folds((target,), one, "base", protocol) for one in target.scores if one != "base"}
    return replace(target, scores=judged, paired=paired)


def _with_interval(score: Score, mean: MeanAUROC) -> Score:
    low, high = mean.auroc_interval()
    return replace(score, error=mean.error, low=low, high=high)


def with_precision(targets: Sequence[Target], variants: Sequence[Variant], scores: FoldScores) -> tuple[Target, ...]:
    """The targets with the mean average precision of their replicates."""
    found: list[dict[str, Precision]] = [{} for _ in targets]
    for variant in variants:
        if variant.draw:
            continue
        sums = np.sum([part["replicates"] for (key, _), part in scores.items() if key == variant.key], axis=0)
        for place, one in zip(found, judge_replicates(variant.name, sums), strict=True):
            place[variant.name] = one
    return tuple(replace(one, precision=place) for one, place in zip(targets, found, strict=True))


def levels_of(key: str, variants: Sequence[Variant], scores: FoldScores) -> dict[str, Levels]:
    """Scores of whole folds (leakage, retrieval) by condition; no rotation changes them."""
    many = 1 + max(number for _, number in scores)
    levels = {}
    for variant in variants:
        if not variant.draw:
            table = np.array([scores[variant.key, number][key] for number in range(many)])
            levels[variant.name] = Levels(variant.name, table[:, 0], table[:, 1])
    return levels


def notes_on(
    screen: Screen, plan: FoldPlan, targets: Sequence[Target], variants: Sequence[Variant], scores: FoldScores
) -> tuple[str, ...]:
    """What was left out, and warnings of the conditions."""
    notes = list(plan.notes)
    apart = int((screen.reference & ~screen.control).sum())
    if apart:
        notes.append(
            f"{apart} of {apart + int(screen.control.sum())} controls are set apart as the reference of their batch: a "
            "correction by batch puts these near the origin, so they are excluded from training and scoring."
        )
    lacking = [one for one in targets if one.left_out]
    if lacking:
        few = ", ".join(f"{one.name} {one.left_out} of {len(screen.batches)}" for one in lacking[:8])
        more = f" and {len(lacking) - 8} more targets" if len(lacking) > 8 else ""
        notes.append(f"Batches without positives are used for training, but not for scoring: {few}{more}.")
    for one in targets:
        bare = _without_controls(screen, one.name)
        if len(bare):
            notes.append(
                f"{one.name}: {len(bare)} of {one.batches} batches with positives have no controls ({listing(bare)}), "
                "so its AUROC compares batches there; the AUROC within batches does not."
            )
        missing = one.missing
        if missing:
            count, what = len(one.reasons) - one.judged, "folds of guides" if one.guides else "folds"
            notes.append(f"{one.name}: {count} of {len(one.reasons)} {what} were not scored ({'; '.join(missing)}).")
        base = one.scores["base"]
        blank = int((np.isfinite(base.auroc) & np.isnan(base.sparsity)).sum())
        if blank:
            notes.append(
                f"{one.name}: {blank} of {one.judged} models made no split and have AUROC 0.5, because a leaf needs "
                f"{PAPER['min_data_in_leaf']} rows and there are too few training rows."
            )
    if screen.image is not None:
        count = int(screen.fitted_on.sum())
        notes.append(f"Models are fitted on one random row of each of {count} images; scores are averaged by image.")
    for variant in variants:
        texts = [bytes(part["notes"]).decode() for (key, _), part in scores.items() if key == variant.key]
        for text in dict.fromkeys(line for lines in texts for line in lines.split("\n") if line):
            notes.append(f"{variant.name}: {text}")
    return tuple(dict.fromkeys(notes))


def _without_controls(screen: Screen, target: str) -> Array:
    """The names of batches that have positives of a target, but no controls."""
    positive = screen.treated & (screen.target.astype(str) == target)
    bare: Array = screen.batches[np.setdiff1d(screen.batch[positive], screen.batch[screen.control])]
    return bare
