"""Grids of factors: data sets that show every combination of some levels exactly once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError

DIGITS = 6  # to which labels of a file are told apart


@dataclass(frozen=True)
class Grid:
    """Factors with their kinds and numbers of levels; rows are row-major, so that the last factor changes fastest."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def levels(self, rows: Array | None = None) -> Array:
        """The levels of rows, counted from 0, shape (n, k) int64; of all rows without any given."""
        rows = np.arange(len(self)) if rows is None else rows
        return np.stack(np.unravel_index(rows, self.sizes), axis=-1).astype(np.int64)

    def rows(self, levels: Array) -> Array:
        """The row of each combination of levels, (n, k) -> (n,)."""
        rows: Array = np.ravel_multi_index(tuple(levels.T), self.sizes)
        return rows

    def ranked(self, labels: Array, where: str) -> Array:
        """Turn the labels of a file, any numbers (N, k), into levels; they must be this grid, in whatever order."""
        if labels.shape != (len(self), len(self.names)):
            expected = f"{len(self)} rows of {len(self.names)} ({', '.join(self.names)})"
            raise InputError(f"{where} has labels of the shape {labels.shape}, but {expected} were expected")
        if labels.dtype.kind not in "fiu" or not np.isfinite(labels).all():
            raise InputError(f"{where} has labels that are no finite numbers")
        levels = np.empty(labels.shape, np.int64)
        for j, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            values, ranks = np.unique(labels[:, j].round(DIGITS), return_inverse=True)
            if len(values) != size:
                raise InputError(f"{where} has {len(values)} values of {name}, but {size} were expected")
            levels[:, j] = ranks.reshape(-1)
        if len(np.unique(self.rows(levels))) < len(self):
            raise InputError(f"{where} does not show every combination of its factors once")
        return levels
