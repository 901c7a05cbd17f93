"""Histograms of components, and the rows with their highest and lowest values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_dask, row_chunks, to_numpy
from congruence.ica.components import Components, Unmixing, first_components
from congruence.ica.loadings import explained_variance
from congruence.rows.blocks import DaskRows, Partition
from congruence.rows.engine import map_chunk, reduce_rows
from congruence.tables import Table

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


def profile_components(
    data: Any, unmixing: Unmixing, *, rows: int = ROWS, scale_rows: bool = False
) -> ComponentProfiles:
    """Return histogram and extreme rows of every component of `data`, shape (n, d), in one pass.

    Parameters
    ----------
    data : (n, d)
        numpy array, memory map, tensor on any device, or dask array.
    unmixing : Unmixing
        The components.
    rows : int
        Number of extreme rows at either end.
    scale_rows : bool
        Scale rows to unit length first.
    """
    data = DaskRows(data) if is_dask(data) else data
    profiles: _Profiles = reduce_rows(
        data, _block_profiles, _Profiles.merge, unmixing.mean, unmixing.unmixing, rows, scale_rows
    )
    (high, high_at), (low, low_at) = profiles.high, profiles.low
    return ComponentProfiles(EDGES, profiles.counts, high_at, -high, low_at, low)


@dataclass(frozen=True)
class ExtremeRow:
    """The value of a component at one row, with the id and metadata of the row."""

    row: int
    value: float  # in standard deviations
    id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ComponentProfile:
    """Histogram of one component, the rows with its highest and lowest values, and what metadata explain of it."""

    counts: Array  # (b,) rows in each bin of `EDGES`; the first and last also hold what lies beyond
    highest: tuple[ExtremeRow, ...]  # from the highest down
    lowest: tuple[ExtremeRow, ...]  # from the lowest up
    explained: Mapping[str, float] = field(default_factory=dict)  # share of its variance, by metadata column

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        ends = {name: [asdict(one) for one in getattr(self, name)] for name in ("highest", "lowest")}
        return {"counts": self.counts.tolist(), **ends, "explained": dict(self.explained)}


def first_profiles(table: Table, components: Components, *, scale_rows: bool = False) -> tuple[ComponentProfile, ...]:
    """Return the profiles of the first components of a table, in one pass over its rows, two with metadata."""
    first = first_components(components.unmixing, PROFILED)
    every = profile_components(table.values, first, rows=EXTREMES, scale_rows=scale_rows)

    explained = explained_variance(table.values, first, table.metadata, scale_rows=scale_rows)

    def extremes(rows: Array, values: Array) -> tuple[ExtremeRow, ...]:
        return tuple(
            ExtremeRow(
                row,
                value,
                None if table.ids is None else _plain(table.ids[row]),
                {name: _plain(column[row]) for name, column in table.metadata.items()},
            )
            for row, value in zip(rows.tolist(), values.tolist(), strict=True)
        )

    return tuple(
        ComponentProfile(
            every.counts[j],
            extremes(every.highest[j], every.highest_values[j]),
            extremes(every.lowest[j], every.lowest_values[j]),
            explained[j],
        )
        for j in range(first.k)
    )


def _plain(value: Any) -> Any:
    """Numbers and text as they are, anything else (such as dates) as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, str | int | float | bool) else str(value)


Extremes = tuple[Float, Array]  # lowest values of each component so far, rising, and the rows they are at, each (k, m)


@dataclass(frozen=True, eq=False)
class _Profiles:
    """Histograms and extreme rows of the components over the rows so far."""

    counts: Array  # (k, b)
    high: Extremes  # of the negated components
    low: Extremes
    most: int  # rows to keep

    def update(self, s: Float, start: int) -> _Profiles:
        """Include the components (k, m) of the rows from `start` on; of equal values, the earlier row comes first."""
        bins = len(EDGES) - 1
        place = np.clip(np.searchsorted(EDGES, s, side="right") - 1, 0, bins - 1)
        place += np.arange(len(s))[:, None] * bins
        counts = np.bincount(place.ravel(), minlength=len(s) * bins).reshape(len(s), bins)
        at = np.broadcast_to(np.arange(start, start + s.shape[1]), s.shape)
        return self.merge(_Profiles(counts, _lowest(-s, at, self.most), _lowest(s, at, self.most), self.most))

    def merge(self, later: _Profiles) -> _Profiles:
        """Include the profiles of later rows."""
        high, low = (
            _lowest(np.hstack([one[0], other[0]]), np.hstack([one[1], other[1]]), self.most)
            for one, other in ((self.high, later.high), (self.low, later.low))
        )
        return _Profiles(self.counts + later.counts, high, low, self.most)


def _lowest(values: Float, index: Array, most: int) -> Extremes:
    keep = np.argsort(values, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(values, keep, 1), np.take_along_axis(index, keep, 1)


def _block_profiles(data: Any, part: Partition, mean: Float, unmixing: Float, rows: int, scale_rows: bool) -> _Profiles:
    k = len(unmixing)
    none = np.empty((k, 0)), np.empty((k, 0), dtype=np.int64)
    profiles = _Profiles(np.zeros((k, len(EDGES) - 1), dtype=np.int64), none, none, rows)
    for some in row_chunks(*data.shape):
        s = to_numpy(map_chunk(data[some], mean, unmixing.T, scale_rows=scale_rows)).T  # (k, m)
        profiles = profiles.update(s, part.first + some.start)
    return profiles
