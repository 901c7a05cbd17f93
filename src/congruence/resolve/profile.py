"""What components look like: how each is distributed, and the rows that load highest and lowest on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.resolve.unmix import Unmixing
from congruence.resolve.whiten import mapped

EDGES = np.linspace(-6, 6, 61)  # standard deviations
ROWS = 10


@dataclass(frozen=True, eq=False)
class ComponentProfile:
    """The distribution of every component over the rows, and its extreme rows.

    The first and last bin also hold what lies beyond `edges`.
    """

    edges: Float  # (b + 1,) in standard deviations of a component
    counts: Array  # (k, b) rows in each bin
    highest: Array  # (k, m) positions of the rows with the highest values, falling
    highest_values: Float  # (k, m)
    lowest: Array  # (k, m) positions of the rows with the lowest values, rising
    lowest_values: Float  # (k, m)

    def to_dict(self) -> dict[str, Any]:
        """The profile as lists of numbers."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}


def profile_components(data: Any, found: Unmixing, *, rows: int = ROWS) -> ComponentProfile:
    """Describe the components of the rows of `data`, shape (n, d), in one pass.

    Parameters
    ----------
    data : (n, d)
        numpy array, memory map, or tensor on any device.
    found : Unmixing
        The components.
    rows : int
        How many extreme rows to name at either end.
    """
    counts = np.zeros((found.k, len(EDGES) - 1), dtype=np.int64)
    ends = [_Extremes(found.k, rows), _Extremes(found.k, rows)]
    for part in row_chunks(*data.shape):
        s = to_numpy(mapped(data[part], found.mean, found.unmixing.T)).T  # (k, m)
        counts += _histograms(s)
        ends[0].take_in(-s, part.start)
        ends[1].take_in(s, part.start)
    high, low = ends
    return ComponentProfile(EDGES, counts, high.index, -high.values, low.index, low.values)


def _histograms(s: Float) -> Array:
    """How many values of each component, shape (k, m), fall into each bin, shape (k, b)."""
    bins = len(EDGES) - 1
    place = np.clip(np.searchsorted(EDGES, s, side="right") - 1, 0, bins - 1)
    place += np.arange(len(s))[:, None] * bins
    return np.bincount(place.ravel(), minlength=len(s) * bins).reshape(len(s), bins)


class _Extremes:
    """The lowest values of each component seen so far, and where they were."""

    def __init__(self, k: int, rows: int):
        self.rows = rows
        self.values, self.index = np.empty((k, 0)), np.empty((k, 0), dtype=np.int64)

    def take_in(self, s: Float, start: int) -> None:
        """Take in the values (k, m) of the rows from `start` on; of equal values, the earlier row comes first."""
        few = np.argsort(s, axis=1, kind="stable")[:, : self.rows]
        values = np.concatenate([self.values, np.take_along_axis(s, few, 1)], axis=1)
        index = np.concatenate([self.index, few + start], axis=1)
        keep = np.argsort(values, axis=1, kind="stable")[:, : self.rows]
        self.values, self.index = np.take_along_axis(values, keep, 1), np.take_along_axis(index, keep, 1)
