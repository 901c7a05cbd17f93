"""Histograms of components, and the rows with their highest and lowest values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_dask, row_chunks, to_numpy
from congruence.ica.components import Components, first_components
from congruence.ica.unmix import Unmixing
from congruence.rows.engine import map_chunk
from congruence.tables import Table
from congruence.tables.blocks import DaskRows, Partition, merged

EDGES = np.linspace(-6, 6, 61)  # standard deviations
ROWS = 10
PROFILED = 12  # components that `first_profiles` describes
EXTREMES = 5  # rows at either end of these


@dataclass(frozen=True, eq=False)
class ComponentProfiles:
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


def profile_components(data: Any, found: Unmixing, *, rows: int = ROWS) -> ComponentProfiles:
    """Return histogram and extreme rows of every component of `data`, shape (n, d), in one pass.

    Parameters
    ----------
    data : (n, d)
        numpy array, memory map, tensor on any device, or dask array.
    found : Unmixing
        The components.
    rows : int
        Number of extreme rows at either end.
    """
    data = DaskRows(data) if is_dask(data) else data
    if isinstance(data, DaskRows):
        seen: _Seen = merged(data.each(_seen_in_block, found.mean, found.unmixing, rows), _merge_seen)
    else:
        seen = _seen_in(data, found.mean, found.unmixing, rows, 0)
    high, low = seen.high, seen.low
    return ComponentProfiles(EDGES, seen.counts, high.index, -high.values, low.index, low.values)


@dataclass(frozen=True)
class Loading:
    """The value of a component at one row, with the id and metadata of the row."""

    row: int
    value: float  # in standard deviations
    id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ComponentProfile:
    """Histogram of one component, and the rows with its highest and lowest values."""

    counts: Array  # (b,) rows in each bin of `EDGES`; the first and last also hold what lies beyond
    highest: tuple[Loading, ...]  # from the highest down
    lowest: tuple[Loading, ...]  # from the lowest up

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        return {
            "counts": self.counts.tolist(),
            "highest": [asdict(one) for one in self.highest],
            "lowest": [asdict(one) for one in self.lowest],
        }


def first_profiles(table: Table, found: Components) -> tuple[ComponentProfile, ...]:
    """Return the profiles of the first components of a table, in one pass over its rows."""
    first = first_components(found.unmixing, PROFILED)
    every = profile_components(table.values, first, rows=EXTREMES)
    return tuple(
        ComponentProfile(
            every.counts[j],
            _loadings(table, every.highest[j], every.highest_values[j]),
            _loadings(table, every.lowest[j], every.lowest_values[j]),
        )
        for j in range(first.k)
    )


def _loadings(table: Table, rows: Array, values: Array) -> tuple[Loading, ...]:
    return tuple(_loading(table, row, value) for row, value in zip(rows.tolist(), values.tolist(), strict=True))


def _loading(table: Table, row: int, value: float) -> Loading:
    id = None if table.ids is None else _plain(table.ids[row])
    return Loading(row, value, id, {name: _plain(column[row]) for name, column in table.metadata.items()})


def _plain(value: Any) -> Any:
    """Numbers and text as they are, anything else (dates, say) as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, str | int | float | bool) else str(value)


@dataclass(eq=False)
class _Seen:
    """Histograms and extreme rows of the components over some rows."""

    counts: Array  # (k, b)
    high: _Extremes  # of the components turned round
    low: _Extremes


def _seen_in(data: Any, mean: Float, unmixing: Float, rows: int, first: int) -> _Seen:
    k = len(unmixing)
    seen = _Seen(np.zeros((k, len(EDGES) - 1), dtype=np.int64), _Extremes(k, rows), _Extremes(k, rows))
    for part in row_chunks(*data.shape):
        s = to_numpy(map_chunk(data[part], mean, unmixing.T)).T  # (k, m)
        seen.counts += _histograms(s)
        seen.high.take_in(-s, first + part.start)
        seen.low.take_in(s, first + part.start)
    return seen


def _seen_in_block(data: Any, part: Partition, mean: Float, unmixing: Float, rows: int) -> _Seen:
    return _seen_in(to_numpy(data), mean, unmixing, rows, part.first)


def _merge_seen(parts: list[_Seen]) -> _Seen:
    """Histograms and extreme rows over all parts, which are in the order of the rows."""
    k, rows = len(parts[0].counts), parts[0].high.rows
    total = _Seen(sum((part.counts for part in parts), np.zeros((), np.int64)), _Extremes(k, rows), _Extremes(k, rows))
    for part in parts:
        total.high.keep_lowest(part.high.values, part.high.index)
        total.low.keep_lowest(part.low.values, part.low.index)
    return total


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
        self.keep_lowest(np.take_along_axis(s, few, 1), few + start)

    def keep_lowest(self, values: Float, index: Array) -> None:
        """Keep the lowest of the values known so far and of others (k, m) with the positions of their rows."""
        values = np.concatenate([self.values, values], axis=1)
        index = np.concatenate([self.index, index], axis=1)
        keep = np.argsort(values, axis=1, kind="stable")[:, : self.rows]
        self.values, self.index = np.take_along_axis(values, keep, 1), np.take_along_axis(index, keep, 1)
