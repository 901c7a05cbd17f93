"""Sets of images with known factors: their grids of levels, how they are drawn, and how they are opened."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer, require
from congruence.errors import InputError
from congruence.experiments.data.factor_data import LARGEST_SEED, FactorImages, draw_rows
from congruence.rows.devices import torch_threads, training_device

DIGITS = 6  # labels of a file that agree to so many decimals are the same level


@dataclass(frozen=True)
class FactorGrid:
    """Factors with their kinds and numbers of levels. Rows are row-major: the last factor changes fastest."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def levels(self, rows: Array | None = None) -> Array:
        """The levels of rows (all by default), counted from 0, shape (n, k) int64."""
        rows = np.arange(len(self)) if rows is None else rows
        return np.stack(np.unravel_index(rows, self.sizes), axis=-1).astype(np.int64)

    def rows(self, levels: Array) -> Array:
        """The row of each combination of levels, (n, k) -> (n,)."""
        rows: Array = np.ravel_multi_index(tuple(levels.T), self.sizes)
        return rows

    def rank_labels(self, labels: Array, where: str) -> Array:
        """Turn the numeric labels (N, k) of a file into levels; they must be this grid, in any order."""
        if labels.shape != (len(self), len(self.names)):
            expected = f"{len(self)} rows of {len(self.names)} ({', '.join(self.names)})"
            raise InputError(f"labels in {where} must be {expected}; got shape {labels.shape}")
        if labels.dtype.kind not in "fiu" or not np.isfinite(labels).all():
            raise InputError(f"labels in {where} must be finite numbers")
        levels = np.empty(labels.shape, np.int64)
        for j, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            values, ranks = np.unique(labels[:, j].round(DIGITS), return_inverse=True)
            if len(values) != size:
                raise InputError(f"{where} must have {size} values of {name}; got {len(values)}")
            levels[:, j] = ranks.reshape(-1)
        if len(np.unique(self.rows(levels))) < len(self):
            raise InputError(f"{where} does not contain every combination of its factors once")
        return levels


@dataclass(frozen=True)
class Renderer:
    """Images that are drawn from their factors: the grid of levels, the range of each factor and the drawing."""

    name: str
    grid: FactorGrid
    ranges: tuple[tuple[float, float], ...]  # of values; the end of a circular range equals its start
    channels: int
    note: str
    draw: Callable[[Float, int, str], Any]  # values (n, k), side, device -> uint8 (n, channels, side, side)
    words: tuple[str, ...] = ()  # names of the levels of the categorical factor

    @property
    def factors(self) -> list[tuple[str, int, tuple[float, float]]]:
        """Kind, number of levels and range of each factor."""
        return list(zip(self.grid.kinds, self.grid.sizes, self.ranges, strict=True))

    def values(self, levels: Array) -> Float:
        """The values that levels of the grid stand for, (n, k) -> (n, k); categories stay integers from 0."""
        values = np.empty(levels.shape)
        for j, (kind, size, (low, high)) in enumerate(self.factors):
            if kind == "categorical":
                values[:, j] = levels[:, j]
            else:
                steps = size if is_circular(kind) else size - 1
                values[:, j] = low + (high - low) * levels[:, j] / steps
        return values

    def draw_values(self, n: int, seed: int) -> Float:
        """Draw factors uniformly from their ranges, shape (n, k)."""
        check_integer("n", n)
        rng = np.random.default_rng(check_integer("seed", seed, 0, LARGEST_SEED))
        shares = rng.random((n, len(self.ranges)))
        for j, (kind, size, (low, high)) in enumerate(self.factors):
            shares[:, j] = rng.integers(size, size=n) if kind == "categorical" else low + (high - low) * shares[:, j]
        return shares

    def make(self, n: int | None, *, seed: int, continuous: bool, side: int, device: str) -> FactorImages:
        """Draw n images of the grid or, with `continuous`, of values from the ranges."""
        check_integer("side", side, 8, 1024)
        require("torch", "drawing images", "torch")
        sizes: tuple[int | None, ...] = self.grid.sizes
        kinds = self.grid.kinds
        if continuous:
            factors = values = self.draw_values(len(self.grid) if n is None else n, seed)
            sizes = tuple(size if kind == "categorical" else None for kind, size, _ in self.factors)
            kinds = tuple(_continuous_kind(kind, *limits) for kind, _, limits in self.factors)
        else:
            factors = self.grid.levels(draw_rows(len(self.grid), n, seed, self.name))
            values = self.values(factors)
        images = self.draw(values, side, training_device(device))
        return FactorImages(self.name, images, factors, self.grid.names, kinds, sizes, self.note)


def is_circular(kind: str) -> bool:
    """Whether a kind is circular, with or without its period."""
    return kind.partition(":")[0] == "circular"


def _continuous_kind(kind: str, low: float, high: float) -> str:
    return f"circular:{high - low:g}" if is_circular(kind) else "continuous" if kind == "ordinal" else kind


@dataclass(frozen=True, eq=False)
class OpenedImages:
    """The levels of all N images of a set, and a function that reads or draws some of the images."""

    levels: Array  # (N, k) int64
    images: Callable[[Array], Any]  # row numbers (n,) -> uint8 (n, channels, height, width)


@dataclass(frozen=True)
class ImageSet:
    """A set of images with known factors: generated (`renderer`), or read from the user's files (`find`, `read`)."""

    name: str
    sentence: str
    count: int  # of images
    shape: tuple[int, int, int]  # channels, height, width
    grid: FactorGrid
    note: str
    renderer: Renderer | None = None
    find: Callable[[], list[Path]] | None = None
    read: Callable[[], OpenedImages] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every combination of levels has one image; only mnist does not."""
        return self.count == len(self.grid)

    def open(self, device: str = "cpu") -> OpenedImages:
        """Find the files and read the factors; images are read later, or drawn later on `device`."""
        if self.read is not None:
            return self.read()
        renderer = self.renderer
        assert renderer is not None

        def draw(rows: Array) -> Any:
            return renderer.draw(renderer.values(renderer.grid.levels(rows)), self.shape[1], device)

        return OpenedImages(self.grid.levels(), draw)


def for_slices(work: Callable[[slice], None], n: int, step: int, device: str) -> None:
    """Call `work` on slices of at most `step` of n rows; on a CPU in as many threads as torch may use.

    Each thread works alone on its slice: many small operations that are split over all threads would wait for the
    slowest thread each time, which was up to 50 times slower on a busy machine.
    """
    torch = require("torch", "drawing images", "torch")
    slices = [slice(start, min(n, start + step)) for start in range(0, n, step)]
    if device != "cpu":
        for part in slices:
            work(part)
        return
    alone = {"initializer": torch.set_num_threads, "initargs": (1,)}  # which changes the number of this process, too
    with torch_threads(None), ThreadPoolExecutor(torch.get_num_threads(), **alone) as pool:
        list(pool.map(work, slices))
