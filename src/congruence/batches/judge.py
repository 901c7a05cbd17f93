"""Fit one condition in one fold and score every experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches.classify import auroc, auroc_within, fit_trees
from congruence.batches.conditions import Condition, condition_named
from congruence.batches.folds import Fold, scored_rows
from congruence.batches.leakage import predict_batch
from congruence.batches.retrieval import retrieve_replicates
from congruence.batches.rows import Experiment, Screen
from congruence.batches.sparsity import concentrations, hoyer

ONE_AT_A_TIME = Lock()  # linear algebra is multi-threaded; each tree model uses one thread


@dataclass(frozen=True)
class Variant:
    """A condition, the rows it is fitted on and, for random rotations, the number of the draw."""

    name: str  # as it is shown
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
        self.kept: dict[str, tuple[Array, list[str]]] = {}

    def of(self, variant: Variant, fold: Fold) -> tuple[Array, list[str]]:
        """Rows (n, k) as a variant prepares them in a fold, and notes on its fit."""
        if not variant.strict:
            if variant.key not in self.kept:
                self.kept[variant.key] = self._fitted(variant, self.screen.fitted_on)
            return self.kept[variant.key]
        return self._fitted(variant, fold.train & self.screen.fitted_on)

    def on_all(self, variant: Variant) -> Array:
        """The same, fitted on all rows."""
        key = replace(variant, strict=False).key
        return self.kept[key][0] if key in self.kept else self._fitted(variant, self.screen.fitted_on)[0]

    def _fitted(self, variant: Variant, rows: Array) -> tuple[Array, list[str]]:
        condition = self.work.condition(variant)
        return embed(self.screen, condition, rows), condition.notes


def judge(
    embeddings: Embeddings, fold: Fold, variant: Variant, experiments: Sequence[Experiment], tick: Callable[[], None]
) -> Mapping[str, Any]:
    """All scores of a variant in a fold: for each experiment (m,), and for the whole fold."""
    screen, work = embeddings.screen, embeddings.work
    with ONE_AT_A_TIME:
        z, said = embeddings.of(variant, fold)
        leaked = _leakage(screen, fold, z, work)
        found = _retrieval(screen, fold, z, work)
    rows = [_experiment(screen, fold, z, one, work, tick) for one in experiments]
    keys = ("auroc", "within", "sparsity", "top", "rest")
    columns = {key: np.array([row[i] for row in rows], dtype=float) for i, key in enumerate(keys)}
    notes = np.frombuffer("\n".join(dict.fromkeys(said)).encode(), dtype=np.uint8)
    return columns | {"leakage": np.array(leaked), "retrieval": np.array(found), "notes": notes.copy()}


def _experiment(
    screen: Screen, fold: Fold, z: Array, one: Experiment, work: Work, tick: Callable[[], None]
) -> tuple[float, float, float, list[float], list[float]]:
    test, reason = scored_rows(fold, screen, one)
    nothing = float("nan")
    if reason:
        tick()
        return nothing, nothing, nothing, [nothing] * len(work.shares), [nothing] * len(work.shares)
    train = fold.train & screen.fitted_on & (one.positive | screen.control)
    learned, label = z[train], one.positive[train]
    judged, truth, batch, image = z[test], one.positive[test], screen.batch[test], None
    if screen.image is not None:
        image = np.unique(screen.image[test], return_inverse=True)[1].reshape(-1)
        first = np.unique(image, return_index=True)[1]
        truth, batch = truth[first], batch[first]

    def scores(trees: Any, columns: Any) -> Float:
        score = trees.score(judged[:, columns])
        return score if image is None else np.bincount(image, score) / np.bincount(image)

    def alone(chosen: Array) -> float:
        trees = fit_trees(learned[:, chosen], label, rounds=work.rounds, seed=work.seed)
        return auroc(truth, scores(trees, chosen))

    trees = fit_trees(learned, label, rounds=work.rounds, seed=work.seed)
    score = scores(trees, slice(None))
    top, rest = concentrations(trees.splits, trees.gain, work.shares, alone)
    tick()
    return auroc(truth, score), auroc_within(truth, score, batch), hoyer(trees.splits), top, rest


def _leakage(screen: Screen, fold: Fold, z: Array, work: Work) -> tuple[float, float]:
    if not work.leakage:
        return float("nan"), float("nan")
    rows = fold.test & screen.control & screen.fitted_on
    return predict_batch(z[rows], screen.batch[rows], work.seed)


def _retrieval(screen: Screen, fold: Fold, z: Array, work: Work) -> tuple[float, float]:
    """Replicates among held-out batches; cosines are relative to the mean training control."""
    if not work.retrieval:
        return float("nan"), float("nan")
    rows = fold.test & screen.treated & screen.fitted_on
    known = fold.train & screen.fitted_on
    origin = z[known & screen.control if (known & screen.control).any() else known].mean(0)
    return retrieve_replicates(z[rows] - origin, screen.target[rows], screen.batch[rows], work.seed)
