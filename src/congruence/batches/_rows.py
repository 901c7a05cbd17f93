"""The rows of a screen: embeddings with the target, batch and further labels of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.errors import InputError
from congruence.tables.table import as_labels, missing_labels, same_label

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
