"""Training and test rows: batches held out in turn, or one model per batch, scored on all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, listing
from congruence.batches._rows import Experiment, Screen
from congruence.checks import check_integer
from congruence.errors import InputError

PROTOCOLS = ("folds", "batch")


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and test rows; no batch and no cluster is in both."""

    train: Array  # (n,) of bool
    test: Array  # (n,) of bool
    held: tuple[str, ...]  # batches held out; with one model per batch, the training batch
    unit: Array  # (n,) the sampling unit of each row: its batch, or a cluster of batches held out together
    units: int
    trained: int = -1  # with one model per batch, the unit of the training batch


@dataclass(frozen=True)
class FoldPlan:
    """The folds, and notes on them."""

    folds: tuple[Fold, ...]
    notes: tuple[str, ...] = ()


def hold_out_batches(screen: Screen, experiments: Sequence[Experiment], folds: int, seed: int) -> FoldPlan:
    """Divide batches into folds, each with positives of every experiment as far as there are batches with positives.

    Experiments with few batches are distributed first (Sechidis et al. 2011), then batches without positives, so that
    folds have about the same size. If each batch belongs to one cluster (site, experiment), clusters are held out
    whole. If clusters cross batches (compounds), a fold also holds out a part of the clusters: it is scored on held-out
    clusters in held-out batches, and trained on neither; controls belong to no cluster.
    """
    check_integer("folds", folds, 2)
    notes = []
    crossing = screen.cluster is not None and _crosses(screen)
    unit = screen.batch if crossing else _whole_clusters(screen)
    counts, sizes = _counts(unit, experiments), np.bincount(unit)
    if len(sizes) < 2:
        raise InputError("all batches belong to one cluster, so none can be held out; choose a finer cluster")
    if len(sizes) < folds:
        what = "clusters of batches" if len(sizes) < len(screen.batches) else "batches"
        notes.append(f"There are {len(sizes)} {what}, so each is one fold: {len(sizes)} folds instead of {folds}.")
    k = min(folds, len(sizes))
    place = spread(counts, sizes, k, np.random.default_rng([seed, 1]))[unit]
    if crossing:
        apart = _cluster_places(screen, experiments, k, seed)
        notes.append(
            "Clusters are held out in addition to batches: each fold is scored on unseen clusters in unseen batches."
        )
    splits = []
    sampled = (place, k) if crossing else (unit, len(sizes))  # clusters that cross batches are independent over folds
    for number in range(k):
        test, train = place == number, place != number
        if crossing:
            test &= ~screen.treated | (apart == number)
            train &= ~screen.treated | (apart != number)
        held = tuple(map(str, screen.batches[np.unique(screen.batch[place == number])]))
        splits.append(Fold(train, test, held, *sampled))
    return FoldPlan(tuple(splits), tuple(notes))


def batch_by_batch(screen: Screen, experiments: Sequence[Experiment]) -> FoldPlan:
    """One model for each batch that has positives and controls, scored on all other batches (appendix A.7.4)."""
    if screen.cluster is not None and _crosses(screen):
        raise InputError("a cluster that crosses batches needs protocol 'folds'; protocol 'batch' cannot hold it out")
    cluster = _whole_clusters(screen)
    positive = np.any([one.positive for one in experiments], axis=0)
    with_both = np.intersect1d(screen.batch[positive], screen.batch[screen.control])
    if not len(with_both):
        raise InputError(
            "no batch has both controls and a target, so no model can be trained on one; use protocol 'folds'"
        )
    splits = []
    for number in with_both:
        train = screen.batch == number
        test = ~np.isin(cluster, np.unique(cluster[train]))
        held = (str(screen.batches[number]),)
        splits.append(Fold(train, test, held, cluster, int(cluster.max()) + 1, int(cluster[train][0])))
    return FoldPlan(tuple(splits))


def scored_rows(fold: Fold, screen: Screen, experiment: Experiment) -> tuple[Array, str]:
    """Rows that score an experiment in a fold, (n,) of bool, or none and the reason.

    Batches without positives are excluded: their controls could only separate batches from each other.
    """
    train = fold.train & screen.fitted_on
    if not (train & experiment.positive).any():
        return np.zeros_like(train), "no positives to train on"
    if not (train & screen.control).any():
        return np.zeros_like(train), "no controls to train on"
    with_positives = np.unique(screen.batch[fold.test & experiment.positive])
    rows = fold.test & np.isin(screen.batch, with_positives) & (experiment.positive | screen.control)
    if not len(with_positives):
        return np.zeros_like(train), "no positives held out"
    if not (rows & screen.control).any():
        return np.zeros_like(train), "no controls on the held-out batches with positives"
    return rows, ""


def spread(counts: Array, sizes: Array, folds: int, rng: np.random.Generator) -> Array:
    """Assign units to folds so that each label, counts (units, labels), is in as many folds as possible; (units,).

    The label with the fewest remaining units is handled first. Its largest unit is assigned to the fold with the fewest
    units of this label; ties are broken by the fewest rows of this label, then by the fewest rows.
    """
    place = np.full(len(counts), -1)
    order = rng.permutation(len(counts))  # ties are broken at random, not by the names of batches
    here = counts[order] > 0
    units, rows, total = np.zeros((folds, counts.shape[1])), np.zeros((folds, counts.shape[1])), np.zeros(folds)
    left = np.ones(len(order), dtype=bool)
    while left.any():
        among = here[left].sum(0)
        label = int(np.where(among > 0, among, np.iinfo(int).max).argmin()) if among.any() else -1
        weight = sizes[order] if label < 0 else counts[order, label]
        one = int(np.where(left, weight, -1).argmax())
        fold = int(total.argmin()) if label < 0 else int(np.lexsort((total, rows[:, label], units[:, label]))[0])
        place[order[one]] = fold
        units[fold] += here[one]
        rows[fold] += counts[order[one]]
        total[fold] += sizes[order[one]]
        left[one] = False
    return place


def _counts(unit: Array, experiments: Sequence[Experiment]) -> Array:
    """Positives of each experiment in each unit, (units, experiments)."""
    many = int(unit.max()) + 1
    return np.column_stack([np.bincount(unit[one.positive], minlength=many) for one in experiments])


def _crosses(screen: Screen) -> bool:
    """Whether treated rows of one batch belong to several clusters."""
    assert screen.cluster is not None
    pairs = np.unique(np.column_stack([screen.batch, screen.cluster])[screen.treated], axis=0)
    return bool((np.bincount(pairs[:, 0]) > 1).any())


def _whole_clusters(screen: Screen) -> Array:
    """The number of the unit of each row, (n,), that is held out whole: batches of one cluster together.

    Controls stay with their batch, whatever their cluster. A batch that holds only controls of a separate cluster is a
    separate unit.
    """
    if screen.cluster is None:
        return screen.batch
    of_batch = -1 - np.arange(len(screen.batches))
    for rows in (~screen.treated & np.isin(screen.cluster, screen.cluster[screen.treated]), screen.treated):
        of_batch[screen.batch[rows]] = screen.cluster[rows]
    unit: Array = np.unique(of_batch, return_inverse=True)[1].reshape(-1)[screen.batch]
    return unit


def _cluster_places(screen: Screen, experiments: Sequence[Experiment], folds: int, seed: int) -> Array:
    """The fold in which each row's cluster is held out, (n,)."""
    assert screen.cluster is not None
    counts = _counts(screen.cluster, experiments)
    few = [one.target for one, column in zip(experiments, counts.T, strict=True) if (column > 0).sum() < 2]
    if len(few) == len(experiments):
        raise InputError(f"no target has more than one cluster ({listing(few)}), so clusters cannot be held out")
    sizes = np.bincount(screen.cluster[screen.treated], minlength=len(counts))
    return spread(counts, sizes, folds, np.random.default_rng([seed, 2]))[screen.cluster]
