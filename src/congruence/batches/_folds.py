"""The rows of a screen with their labels, and folds: batches held out in turn, or one model per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.checks import check_integer
from congruence.errors import InputError
from congruence.tables.table import as_labels, missing_labels, same_label

PROTOCOLS = ("folds", "batch")
FEWEST = 5  # rows; targets with fewer are classified only if `positive` names them


@dataclass(frozen=True, eq=False)
class Screen:
    """Embeddings of a screen, row by row; labels are integers or text."""

    x: Array  # (n, d)
    target: Array  # (n,)
    batch: Array  # (n,) numbers of batches
    batches: Array  # names of batches
    control: Array  # (n,) of bool: controls for training and scoring
    reference: Array  # (n,) of bool: controls that conditions may use as such
    guide: Array | None = None  # (n,)
    cluster: Array | None = None  # (n,) numbers of clusters that may not be split
    image: Array | None = None  # (n,) numbers of the images that rows are patches of
    chosen: Array | None = None  # (n,) of bool: one row of each image, the only ones fitted on

    @property
    def treated(self) -> Array:
        """Which rows are not controls, (n,) of bool."""
        return ~(self.control | self.reference)

    @property
    def fitted_on(self) -> Array:
        """Which rows may be fitted on, (n,) of bool: all, or one of each image."""
        return np.ones(len(self.x), dtype=bool) if self.chosen is None else self.chosen


@dataclass(frozen=True, eq=False)
class Experiment:
    """One classification task: rows of a target, or of one of its guides, against the controls."""

    target: str
    guide: str  # empty if there are none
    positive: Array  # (n,) of bool


def screen_of(
    x: Any,
    target: Any,
    batch: Any,
    control: Any,
    *,
    guide: Any = None,
    cluster: Any = None,
    image: Any = None,
    set_apart: bool = False,
    seed: int = 0,
) -> Screen:
    """Number the labels of rows; refuse rows on which nothing can be scored on held-out batches.

    With `set_apart`, half of the controls of each batch are its reference; only the others are trained on and scored.
    """
    rows = to_numpy(as_matrix(x, "x"))
    n = len(rows)
    treatment = _labels(target)
    batches, where = np.unique(_labels(batch), return_inverse=True)
    if len(batches) < 2:
        raise InputError(f"batch has one value ({batches[0]}), so no batch can be held out; give at least two batches")
    is_control = same_label(to_numpy(target), str(control))
    if not is_control.any():
        raise InputError(
            f"no row of target is {control!r} (control), so there are no controls; "
            f"it has {listing(np.unique(treatment), 8)}"
        )
    if is_control.all():
        raise InputError(f"all {n} rows are controls ({control!r}), so there is nothing to compare with them")
    patches = None if image is None else _numbers(image)
    reference = _half(is_control, where.reshape(-1), patches, seed) if set_apart else is_control
    if patches is not None:
        _check_whole(patches, where, "batch")
        _check_whole(patches, np.unique(treatment, return_inverse=True)[1].reshape(-1), "target")
    return Screen(
        rows,
        treatment,
        where.reshape(-1),
        batches,
        is_control & ~reference if set_apart else is_control,
        reference,
        None if guide is None else _labels(guide),
        None if cluster is None else _numbers(cluster),
        patches,
        None if patches is None else _one_of_each(patches, seed),
    )


def experiments_of(screen: Screen, positive: Any) -> tuple[list[Experiment], dict[str, str]]:
    """The tasks of the targets (all, or those of `positive`), and for targets without a task the reason."""
    names, place = np.unique(screen.target.astype(str), return_inverse=True)
    number = {str(name): i for i, name in enumerate(names)}
    sizes = np.bincount(place.reshape(-1)[screen.treated], minlength=len(names))
    rows = {str(name): int(size) for name, size in zip(names, sizes, strict=True) if size}
    wanted = list(rows) if positive is None else _wanted(positive, list(rows))
    experiments, reasons = [], {}
    for name in wanted:
        is_positive = place.reshape(-1) == number[name]
        where = np.unique(screen.batch[is_positive])
        if len(where) < 2:
            only = "its only row is" if rows[name] == 1 else f"all its {rows[name]} rows are"
            reasons[name] = f"{only} on one batch ({screen.batches[where[0]]})"
        elif positive is None and rows[name] < FEWEST:
            reasons[name] = f"it has {rows[name]} rows, fewer than {FEWEST}"
        else:
            experiments += _by_guide(screen, name, is_positive)
    if not experiments:
        name, reason = next(iter(reasons.items()))
        raise InputError(f"no target can be scored on held-out batches: {name}, because {reason}")
    return experiments, reasons


def _wanted(positive: Any, known: list[str]) -> list[str]:
    wanted = list(dict.fromkeys(map(str, [positive] if isinstance(positive, str) else positive)))
    if not wanted:
        raise InputError(f"positive must name at least one value of target; there are {listing(known, 8)}")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(
            f"positive must name values of target other than the control, but there is no {listing(unknown)}; "
            f"there are {listing(known, 8)}"
        )
    return wanted


def _by_guide(screen: Screen, name: str, positive: Array) -> list[Experiment]:
    if screen.guide is None:
        return [Experiment(name, "", positive)]
    guides = screen.guide.astype(str)
    return [Experiment(name, str(guide), positive & (guides == guide)) for guide in np.unique(guides[positive])]


def _labels(labels: Any) -> Array:
    """Labels as integers or text; a missing one, which only controls may have, becomes empty text."""
    column = to_numpy(labels)
    missing = missing_labels(column)
    if missing.any():
        column = column.astype(object)
        column[missing] = ""
    return as_labels(column)


def _numbers(labels: Any) -> Array:
    numbers: Array = np.unique(_labels(labels), return_inverse=True)[1].reshape(-1)
    return numbers


def _check_whole(patches: Array, codes: Array, name: str) -> None:
    """Refuse images whose rows do not share one batch and one target."""
    first = np.zeros(patches.max() + 1, dtype=int)
    first[patches] = codes
    bad = np.flatnonzero(first[patches] != codes)
    if bad.size:
        raise InputError(
            f"rows of one image must share their {name}, but row {bad[0]} differs from others of its image"
        )


def _half(control: Array, batch: Array, patches: Array | None, seed: int) -> Array:
    """Half of the controls of each batch, rounded down, (n,) of bool; rows of one image stay together."""
    unit = np.arange(len(batch)) if patches is None else patches
    order = np.random.default_rng([seed, 12]).permutation(unit.max() + 1)
    chosen = np.zeros(len(order), dtype=bool)
    for number in np.unique(batch):
        units = np.unique(unit[control & (batch == number)])
        chosen[units[np.argsort(order[units])][: len(units) // 2]] = True
    return control & chosen[unit]


def _one_of_each(patches: Array, seed: int) -> Array:
    order = np.random.default_rng([seed, 11]).permutation(len(patches))
    chosen = np.zeros(len(patches), dtype=bool)
    chosen[order[np.unique(patches[order], return_index=True)[1]]] = True
    return chosen


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
