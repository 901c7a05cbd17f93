"""Show what each factor changes, as a sheet: one image, and the same with one factor changed while all others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.checks import check_integer, check_integers
from congruence.errors import InputError
from congruence.experiments.data._image_sets import ImageSet, is_circular
from congruence.experiments.data.factor_data import LARGEST_SEED
from congruence.experiments.data.registry import check_continuous, find_image_set
from congruence.files import check_writable, replacing

FORMATS = (".png", ".svg", ".pdf")
INCH = 0.72  # width of one image
LABEL = 1.15  # inches at the left for the names of rows
BELOW = 0.22  # inches under each row for the labels of its images
GAP = 0.06  # between images, as a share of their width
FONT = 8.0
DOTS = 128  # per inch


@dataclass(frozen=True, eq=False)
class Variation:
    """A row of images: random ones, or one factor from its first to its last level."""

    name: str  # of the factor, or "random"
    labels: tuple[str, ...]  # the value of the factor in each image; empty for random ones
    images: Array  # (m, channels, height, width) uint8


def vary_factors(
    name: str, *, columns: int = 10, rows: int = 1, seed: int = 0, continuous: bool = False
) -> list[Variation]:
    """Show a data set: rows of random images, then every factor varied alone around one random image.

    Parameters
    ----------
    name : str
        As in `load_images`.
    columns : int
        The most images in a row; a factor with more levels is shown at as many, evenly spaced.
    rows : int
        Rows of random images.
    seed : int
        Of the choice of images.
    continuous : bool
        rooms and sprites: also values between the levels.
    """
    check_integers(1, columns=columns, rows=rows)
    check_integer("seed", seed, 0, LARGEST_SEED)
    chosen = find_image_set(name)
    check_continuous(chosen, continuous)
    return (_vary_values if continuous else _vary_levels)(chosen, columns, rows, seed)


def _vary_levels(chosen: ImageSet, columns: int, rows: int, seed: int) -> list[Variation]:
    rng, opened, grid = np.random.default_rng(seed), chosen.open(), chosen.grid
    total = len(opened.levels)
    drawn = rng.choice(total, min(total, columns * rows), replace=False)
    shown = _random_rows(to_numpy(opened.images(drawn)), columns)
    middle = opened.levels[rng.integers(total)]
    row_of = np.argsort(grid.rows(opened.levels)) if chosen.is_whole else None  # the image of each combination
    for j, (factor, size) in enumerate(zip(grid.names, grid.sizes, strict=True)):
        levels = np.unique(np.linspace(0, size - 1, min(columns, size)).round().astype(int))
        wanted = np.tile(middle, (len(levels), 1))
        wanted[:, j] = levels
        if row_of is not None:
            numbers = row_of[grid.rows(wanted)]
        else:  # not every combination exists: show any image with that level
            levels = np.intersect1d(levels, opened.levels[:, j])
            numbers = np.array([rng.choice(np.flatnonzero(opened.levels[:, j] == level)) for level in levels])
        values = wanted if chosen.renderer is None else chosen.renderer.values(wanted)
        labels = tuple(str(level) for level in levels) if chosen.renderer is None else _labels(chosen, j, values)
        shown.append(Variation(factor, labels, to_numpy(opened.images(numbers))))
    return shown


def _vary_values(chosen: ImageSet, columns: int, rows: int, seed: int) -> list[Variation]:
    renderer, side = chosen.renderer, chosen.shape[1]
    assert renderer is not None
    drawn = renderer.draw_values(columns * rows + 1, seed)
    shown = _random_rows(to_numpy(renderer.draw(drawn[1:], side, "cpu")), columns)
    for j, (kind, size, (low, high)) in enumerate(renderer.factors):
        if kind == "categorical":
            column = np.arange(min(size, columns), dtype=float)
        else:
            column = np.linspace(low, high, columns, endpoint=not is_circular(kind))
        values = np.tile(drawn[:1], (len(column), 1))
        values[:, j] = column
        images = to_numpy(renderer.draw(values, side, "cpu"))
        shown.append(Variation(renderer.grid.names[j], _labels(chosen, j, values), images))
    return shown


def _labels(chosen: ImageSet, j: int, values: Array) -> tuple[str, ...]:
    """Factor j of drawn images in words; values are (m, k)."""
    assert chosen.renderer is not None
    if chosen.grid.kinds[j] == "categorical":
        return tuple(chosen.renderer.words[int(value)] for value in values[:, j])
    return tuple(f"{value:.3g}" for value in values[:, j])


def _random_rows(images: Array, columns: int) -> list[Variation]:
    parts = [images[start : start + columns] for start in range(0, len(images), columns)]
    return [Variation("random", ("",) * len(part), part) for part in parts]


def check_sheet_path(path: Path) -> None:
    """Refuse, before any work, a path to which no sheet can be written."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"a sheet of images is written as {', '.join(FORMATS)}; got {path.name!r}")
    check_writable(path)


def write_sheet(rows: Sequence[Variation], path: str | Path, *, title: str) -> None:
    """Write rows of images as .png, .svg or .pdf, each with its name at the left and a label below every image."""
    from matplotlib import style
    from matplotlib.figure import Figure

    path = Path(path)
    check_sheet_path(path)
    most = max(len(row.images) for row in rows)
    width, height = LABEL + most * INCH * (1 + GAP) + 0.1, 0.35 + len(rows) * (INCH + BELOW)
    with style.context(["default", {"svg.hashsalt": title, "font.size": FONT}]):
        figure = Figure(figsize=(width, height), facecolor="white")
        figure.text(0.1 / width, 1 - 0.2 / height, title, va="center", color="0.35")
        for number, row in enumerate(rows):
            bottom = height - 0.35 - number * (INCH + BELOW) - INCH
            _paint_row(figure, row, bottom, (width, height))
        stamp = {"Date": None} if path.suffix.lower() == ".svg" else {}
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=DOTS, metadata=stamp)


def _paint_row(figure: Any, row: Variation, bottom: float, size: tuple[float, float]) -> None:
    figure.text(0.1 / size[0], (bottom + INCH / 2) / size[1], row.name, va="center")
    for place, (image, label) in enumerate(zip(row.images, row.labels, strict=True)):
        left = LABEL + place * INCH * (1 + GAP)
        axes = figure.add_axes((left / size[0], bottom / size[1], INCH / size[0], INCH / size[1]))
        axes.set_axis_off()
        pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
        if pixels.shape[-1] == 1:
            axes.imshow(pixels[..., 0], cmap="gray", vmin=0, vmax=255)
        else:
            axes.imshow(pixels)
        figure.text((left + INCH / 2) / size[0], (bottom - BELOW / 2) / size[1], label, ha="center", va="center")
