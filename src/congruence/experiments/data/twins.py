"""Data sets that are drawn on the spot from their factors, on a grid or with continuous values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.experiments.data.grids import Grid
from congruence.experiments.data.images import FactorImages, check_count, check_seed, draw_rows, drawing_device


@dataclass(frozen=True)
class Twin:
    """A data set that imitates another: its factors, their ranges, and how a picture is drawn from them."""

    name: str
    grid: Grid
    ranges: tuple[tuple[float, float], ...]  # of values; a circular one comes round at the end of its range
    channels: int
    note: str
    draw: Callable[[Float, int, str], Any]  # values (n, k), side, device -> uint8 (n, channels, side, side)
    words: tuple[str, ...] = ()  # what the levels of the one categorical factor show

    @property
    def value_kinds(self) -> tuple[str, ...]:
        """The kinds of factors when they are values and not levels: ordinal ones become continuous."""
        kinds = zip(self.grid.kinds, self.ranges, strict=True)
        words = {"ordinal": "continuous"}
        return tuple(
            f"circular:{top - low:g}" if is_circular(kind) else words.get(kind, kind) for kind, (low, top) in kinds
        )

    def values(self, levels: Array) -> Float:
        """What levels of the grid stand for, (n, k) -> (n, k); classes stay numbers from 0."""
        values = np.empty(levels.shape)
        for j, (kind, size, (low, high)) in enumerate(self._factors):
            if kind == "categorical":
                values[:, j] = levels[:, j]
            else:
                steps = size if is_circular(kind) else size - 1
                values[:, j] = low + (high - low) * levels[:, j] / steps
        return values

    def draw_values(self, n: int, seed: int) -> Float:
        """Draw factors uniformly from their ranges, shape (n, k)."""
        check_count(n)
        check_seed(seed)
        rng = np.random.default_rng(seed)
        shares = rng.random((n, len(self.ranges)))
        for j, (kind, size, (low, high)) in enumerate(self._factors):
            shares[:, j] = rng.integers(size, size=n) if kind == "categorical" else low + (high - low) * shares[:, j]
        return shares

    def make(self, n: int | None, *, seed: int, continuous: bool, side: int, device: str) -> FactorImages:
        """Draw n images of the grid or, with `continuous`, of values from the ranges."""
        check_side(side)
        device = drawing_device(device)
        if continuous:
            factors = values = self.draw_values(len(self.grid) if n is None else n, seed)
            sizes = tuple(size if kind == "categorical" else None for kind, size, _ in self._factors)
            kinds = self.value_kinds
        else:
            factors = self.grid.levels(draw_rows(len(self.grid), n, seed, self.name))
            values, sizes, kinds = self.values(factors), self.grid.sizes, self.grid.kinds
        images = self.draw(values, side, device)
        return FactorImages(self.name, images, factors, self.grid.names, kinds, sizes, self.note)

    @property
    def _factors(self) -> list[tuple[str, int, tuple[float, float]]]:
        return list(zip(self.grid.kinds, self.grid.sizes, self.ranges, strict=True))


def is_circular(kind: str) -> bool:
    """Whether a kind is circular, with or without its period."""
    return kind.partition(":")[0] == "circular"


def check_side(side: int) -> None:
    """Refuse pictures that are too small to show anything, or larger than anybody wants."""
    if isinstance(side, bool) or not isinstance(side, int) or not 8 <= side <= 1024:
        raise InputError(f"side must be a number of pixels from 8 to 1024, not {side!r}")
