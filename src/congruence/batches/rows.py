"""The rows of a screen: embeddings with what was done to each, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.errors import InputError
from congruence.tables.labels import as_labels, missing_labels, same_label

FEWEST = 5  # rows of a perturbation, below which it is not taken for a target unless it is asked for


@dataclass(frozen=True, eq=False)
class Screen:
    """Embeddings of a screen, row by row; labels are integers or text."""

    x: Array  # (n, d)
    perturbation: Array  # (n,)
    batch: Array  # (n,) numbers of batches
    batches: Array  # names of batches
    control: Array  # (n,) of bool: controls that are trained on and judged by
    reference: Array  # (n,) of bool: controls that conditions may know as such
    guides: Array | None = None  # (n,)
    groups: Array | None = None  # (n,) numbers of groups that may not be split
    images: Array | None = None  # (n,) numbers of what rows are parts of
    chosen: Array | None = None  # (n,) of bool: one row of each image, which everything is fitted on

    @property
    def treated(self) -> Array:
        """Which rows are no controls, (n,) of bool."""
        return ~(self.control | self.reference)

    @property
    def fitted_on(self) -> Array:
        """Which rows may be fitted on, (n,) of bool: all, or one of each image."""
        return np.ones(len(self.x), dtype=bool) if self.chosen is None else self.chosen


@dataclass(frozen=True, eq=False)
class Experiment:
    """One classification task: rows of a target, or of one of its guides, against the controls."""

    target: str
    guide: str  # empty where there are no guides
    positive: Array  # (n,) of bool


def screen_of(
    x: Any,
    perturbation: Any,
    batch: Any,
    control: Any,
    *,
    guides: Any = None,
    groups: Any = None,
    images: Any = None,
    set_apart: bool = False,
    seed: int = 0,
) -> Screen:
    """Check what was given and bring labels into one form; refuse what could not be judged on other batches.

    With `set_apart`, half of the controls of each batch are its reference, and no others are judged or trained on.
    """
    rows = to_numpy(as_matrix(x, "x"))
    n = len(rows)
    done = _labels(perturbation, n, "perturbation")
    batches, where = np.unique(_labels(batch, n, "batch"), return_inverse=True)
    if len(batches) < 2:
        raise InputError(
            f"batch has one value ({batches[0]}), so no batch can be held out, and nothing can be said of batches "
            "that were never seen; give rows of at least two"
        )
    is_control = same_label(to_numpy(perturbation), str(control))
    if not is_control.any():
        raise InputError(
            f"no row of perturbation is {control!r}, so there are no controls; it has {listing(np.unique(done), 8)}"
        )
    if is_control.all():
        raise InputError(f"all {n} rows are controls ({control!r}), so there is nothing to tell from them")
    parts = None if images is None else _numbers(images, n, "images")
    reference = _half(is_control, where.reshape(-1), parts, seed) if set_apart else is_control
    if parts is not None:
        _check_whole(parts, where, "batch")
        _check_whole(parts, np.unique(done, return_inverse=True)[1].reshape(-1), "perturbation")
    return Screen(
        rows,
        done,
        where.reshape(-1),
        batches,
        is_control & ~reference if set_apart else is_control,
        reference,
        None if guides is None else _labels(guides, n, "guides", blank=is_control),
        None if groups is None else _numbers(groups, n, "groups", blank=is_control),
        parts,
        None if parts is None else _one_of_each(parts, seed),
    )


def experiments_of(screen: Screen, targets: Any) -> tuple[list[Experiment], dict[str, str]]:
    """The tasks of the targets (by default all perturbations), and for targets that have none the reason."""
    names, place = np.unique(screen.perturbation.astype(str), return_inverse=True)
    number = {str(name): i for i, name in enumerate(names)}
    sizes = np.bincount(place.reshape(-1)[screen.treated], minlength=len(names))
    found = {str(name): int(size) for name, size in zip(names, sizes, strict=True) if size}
    if targets is None:
        wanted = list(found)
    else:
        wanted = list(dict.fromkeys(map(str, [targets] if isinstance(targets, str) else targets)))
        if not wanted:
            raise InputError(f"targets must name at least one perturbation; there are {listing(list(found), 8)}")
        unknown = [name for name in wanted if name not in found]
        if unknown:
            raise InputError(
                f"targets must be perturbations other than the control, but there is no {listing(unknown)}; "
                f"there are {listing(list(found), 8)}"
            )
    experiments, reasons = [], {}
    for name in wanted:
        positive = place.reshape(-1) == number[name]
        where = np.unique(screen.batch[positive])
        if len(where) < 2:
            rows = "its only row is" if found[name] == 1 else f"all its {found[name]} rows are"
            reasons[name] = f"{rows} on one batch ({screen.batches[where[0]]})"
        elif targets is None and found[name] < FEWEST:
            reasons[name] = f"it has {found[name]} rows, fewer than {FEWEST}"
        else:
            experiments += _by_guide(screen, name, positive)
    if not experiments:
        name, reason = next(iter(reasons.items()))
        raise InputError(f"no perturbation can be judged on other batches: {name}, because {reason}")
    return experiments, reasons


def _by_guide(screen: Screen, name: str, positive: Array) -> list[Experiment]:
    if screen.guides is None:
        return [Experiment(name, "", positive)]
    guides = screen.guides.astype(str)
    return [Experiment(name, str(guide), positive & (guides == guide)) for guide in np.unique(guides[positive])]


def _labels(given: Any, n: int, name: str, *, blank: Array | None = None) -> Array:
    """One label for each row; rows of `blank` may do without."""
    column = to_numpy(given)
    if column.shape != (n,):
        raise InputError(f"{name} must have one label for each of {n} rows, but has shape {column.shape}")
    missing = missing_labels(column)
    bad = np.flatnonzero(missing if blank is None else missing & ~blank)
    if bad.size:
        raise InputError(f"{name} is missing in {bad.size} of {n} rows (row {listing(bad)}); leave them out first")
    if missing.any():
        column = column.astype(object)
        column[missing] = ""
    return as_labels(column)


def _numbers(given: Any, n: int, name: str, *, blank: Array | None = None) -> Array:
    numbers: Array = np.unique(_labels(given, n, name, blank=blank), return_inverse=True)[1].reshape(-1)
    return numbers


def _check_whole(parts: Array, codes: Array, name: str) -> None:
    """Refuse images whose rows do not have one batch and one perturbation."""
    first = np.zeros(parts.max() + 1, dtype=int)
    first[parts] = codes
    bad = np.flatnonzero(first[parts] != codes)
    if bad.size:
        raise InputError(
            f"rows of one image must share their {name}, but row {bad[0]} differs from others of its image"
        )


def _half(control: Array, batch: Array, parts: Array | None, seed: int) -> Array:
    """Half of the controls of each batch, rounded down, (n,) of bool; rows of one image stay together."""
    unit = np.arange(len(batch)) if parts is None else parts
    order = np.random.default_rng([seed, 12]).permutation(unit.max() + 1)
    chosen = np.zeros(len(order), dtype=bool)
    for number in np.unique(batch):
        units = np.unique(unit[control & (batch == number)])
        chosen[units[np.argsort(order[units])][: len(units) // 2]] = True
    return control & chosen[unit]


def _one_of_each(parts: Array, seed: int) -> Array:
    order = np.random.default_rng([seed, 11]).permutation(len(parts))
    chosen = np.zeros(len(parts), dtype=bool)
    chosen[order[np.unique(parts[order], return_index=True)[1]]] = True
    return chosen
