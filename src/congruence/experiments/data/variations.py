"""What each factor does: one image, and the same with one factor changed while all others stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.experiments.data.image_set import ImageSet, OpenedImages
from congruence.experiments.data.images import check_count, check_seed
from congruence.experiments.data.registry import TWINS, find_image_set
from congruence.experiments.data.twins import Twin, is_circular


@dataclass(frozen=True, eq=False)
class Variation:
    """A row of images: some drawn at random, or one factor from its first to its last level."""

    name: str  # of the factor; "random"
    labels: tuple[str, ...]  # what the factor is in each image; empty words for random ones
    images: Array  # (m, channels, height, width) uint8


def vary_factors(
    name: str, *, columns: int = 10, rows: int = 1, seed: int = 0, continuous: bool = False
) -> list[Variation]:
    """Show what a data set holds: rows of random images, then every factor varied alone around one random image.

    Parameters
    ----------
    name : str
        As in `load_images`.
    columns : int
        The most images in a row; a factor with more levels is shown at as many, evenly spread.
    rows : int
        Rows of random images.
    continuous : bool
        Of rooms and sprites: values between the levels as well.
    """
    for given in (columns, rows):
        check_count(given)
    check_seed(seed)
    chosen, rng = find_image_set(name), np.random.default_rng(seed)
    if not continuous:
        return _vary_levels(chosen, chosen.opened(), columns, rows, rng)
    if chosen.twin is None:
        raise InputError(f"{name} has no continuous factors; continuous goes with {' and '.join(TWINS)}")
    return _vary_values(chosen.twin, chosen.shape[1], columns, rows, seed)


def _vary_levels(
    chosen: ImageSet, opened: OpenedImages, columns: int, rows: int, rng: np.random.Generator
) -> list[Variation]:
    grid, total = chosen.grid, len(opened.levels)
    drawn = rng.choice(total, min(total, columns * rows), replace=False)
    shown = _random_rows(to_numpy(opened.images(drawn)), columns)
    middle = opened.levels[rng.integers(total)]
    place = np.argsort(grid.rows(opened.levels)) if chosen.is_whole else None  # of each combination in the data
    for j, (factor, size) in enumerate(zip(grid.names, grid.sizes, strict=True)):
        levels = np.unique(np.linspace(0, size - 1, min(columns, size)).round().astype(int))
        wanted = np.tile(middle, (len(levels), 1))
        wanted[:, j] = levels
        if place is not None:
            numbers = place[grid.rows(wanted)]
        else:  # there is no such image; any of that level is shown
            levels = np.intersect1d(levels, opened.levels[:, j])
            numbers = np.array([rng.choice(np.flatnonzero(opened.levels[:, j] == level)) for level in levels])
        labels = tuple(_level_word(chosen.twin, j, level) for level in levels)
        shown.append(Variation(factor, labels, to_numpy(opened.images(numbers))))
    return shown


def _vary_values(twin: Twin, side: int, columns: int, rows: int, seed: int) -> list[Variation]:
    drawn = twin.draw_values(columns * rows + 1, seed)
    shown = _random_rows(to_numpy(twin.draw(drawn[1:], side, "cpu")), columns)
    for j, (factor, kind, size) in enumerate(zip(twin.grid.names, twin.grid.kinds, twin.grid.sizes, strict=True)):
        low, high = twin.ranges[j]
        count = min(size, columns) if kind == "categorical" else columns
        values = np.tile(drawn[:1], (count, 1))
        values[:, j] = (
            np.arange(count) if kind == "categorical" else np.linspace(low, high, count, not is_circular(kind))
        )
        labels = tuple(twin.words[int(v)] if kind == "categorical" else f"{v:.3g}" for v in values[:, j])
        shown.append(Variation(factor, labels, to_numpy(twin.draw(values, side, "cpu"))))
    return shown


def _level_word(twin: Twin | None, j: int, level: Any) -> str:
    if twin is None:
        return str(level)
    if twin.grid.kinds[j] == "categorical":
        return twin.words[int(level)]
    levels = np.zeros((1, len(twin.ranges)), int)
    levels[0, j] = level
    return f"{twin.values(levels)[0, j]:.3g}"


def _random_rows(images: Array, columns: int) -> list[Variation]:
    parts = [images[start : start + columns] for start in range(0, len(images), columns)]
    return [Variation("random", ("",) * len(part), part) for part in parts]
