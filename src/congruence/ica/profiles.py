"""What components are made of: histograms, extreme rows, correlations with columns, and explaining metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_dask, row_chunks, to_numpy
from congruence.ica._unmixing import Unmixing, first_components
from congruence.ica.components import Components
from congruence.result import Record
from congruence.rows.blocks import DaskRows, Partition
from congruence.rows.engine import map_chunk, reduce_rows, row_moments, unit_rows
from congruence.tables import Table
from congruence.tables.table import as_labels, missing_labels

EDGES = np.linspace(-6, 6, 61)  # standard deviations
ROWS = 10
PROFILED = 12  # components that `first_profiles` describes
EXTREMES = 5  # rows at either end of these
FEATURES = 10  # columns that are listed for a component
FEWEST = 3  # rows per group, on average; numbers with more different values are cut into deciles
GROUPED = 50  # metadata columns that are used


@dataclass(frozen=True, eq=False)
class ComponentProfiles(Record):
    """The distribution of every component over the rows, and its extreme rows.

    The first and last bin also hold what lies beyond `edges`.
    """

    edges: Float  # (b + 1,) in standard deviations of a component
    counts: Array  # (k, b) rows in each bin
    highest: Array  # (k, m) positions of the rows with the highest values, falling
    highest_values: Float  # (k, m)
    lowest: Array  # (k, m) positions of the rows with the lowest values, rising
    lowest_values: Float  # (k, m)


def profile_components(
    data: Any, unmixing: Unmixing, *, rows: int = ROWS, scale_rows: bool = False
) -> ComponentProfiles:
    """Return histogram and extreme rows, `rows` at either end, of every component of `data`, (n, d), in one pass.

    `data` is a numpy array, memory map, tensor on any device, or dask array. With `scale_rows`, rows are scaled to unit
    length first.
    """
    data, shared = DaskRows(data) if is_dask(data) else data, (unmixing.mean, unmixing.unmixing, rows, scale_rows)
    profiles: _Profiles = reduce_rows(data, _block_profiles, _Profiles.merge, *shared)
    (high, high_at), (low, low_at) = profiles.high, profiles.low
    return ComponentProfiles(EDGES, profiles.counts, high_at, -high, low_at, low)


@dataclass(frozen=True)
class ExtremeRow(Record):
    """The value of a component at one row, with the id and metadata of the row."""

    row: int
    value: float  # in standard deviations
    id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ComponentProfile(Record):
    """Histogram of one component, the rows with its highest and lowest values, and what metadata explain of it."""

    counts: Array  # (b,) rows in each bin of `EDGES`; the first and last also hold what lies beyond
    highest: tuple[ExtremeRow, ...]  # from the highest down
    lowest: tuple[ExtremeRow, ...]  # from the lowest up
    explained: Mapping[str, float] = field(default_factory=dict)  # share of its variance, by metadata column


def first_profiles(table: Table, components: Components, *, scale_rows: bool = False) -> tuple[ComponentProfile, ...]:
    """Return the profiles of the first components of a table, in one pass over its rows, two with metadata."""
    first = first_components(components.unmixing, PROFILED)
    every = profile_components(table.values, first, rows=EXTREMES, scale_rows=scale_rows)
    explained = explained_variance(table.values, first, table.metadata, scale_rows=scale_rows)

    def extremes(rows: Array, values: Array) -> tuple[ExtremeRow, ...]:
        ids = [None if table.ids is None else _plain(table.ids[row]) for row in rows]
        about = [{name: _plain(column[row]) for name, column in table.metadata.items()} for row in rows]
        return tuple(map(ExtremeRow, rows.tolist(), values.tolist(), ids, about))

    highest = map(extremes, every.highest, every.highest_values)
    return tuple(
        map(ComponentProfile, every.counts, highest, map(extremes, every.lowest, every.lowest_values), explained)
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


@dataclass(frozen=True)
class Loading(Record):
    """The correlation of a column with a component over all rows, from -1 to 1.

    Components are uncorrelated, so that its square is the share of the column's variance that the component explains.
    """

    feature: str
    value: float


def top_loadings(correlations: Float, names: Sequence[str], most: int = FEATURES) -> tuple[tuple[Loading, ...], ...]:
    """Return the columns with the largest |correlation| (d, k) for each component, the largest first."""
    order = np.argsort(-np.abs(correlations), axis=0, kind="stable")[:most].T  # (k, most)
    return tuple(tuple(Loading(str(names[i]), float(correlations[i, j])) for i in rows) for j, rows in enumerate(order))


def column_correlations(data: Any, components: Components, *, whiten: bool, scale_rows: bool = False) -> Float:
    """Return the correlations of the columns of `data` with the components, shape (d, k); 0 for constant columns.

    Whitened components have unit variance and are uncorrelated, so that the mixing matrix holds their covariances
    with the columns; otherwise `data` is read once more.
    """
    unmixing, scale = components.unmixing, components.whitening.scale
    covariance, size = unmixing.mixing, np.ones(unmixing.k)
    if not whiten:
        data = unit_rows(data) if scale_rows else data
        columns = row_moments(DaskRows(data) if is_dask(data) else data).finish()
        covariance = columns @ unmixing.unmixing.T
        size = np.sqrt(np.maximum(np.sum(unmixing.unmixing.T * covariance, axis=0), 0))
    both = np.outer(scale, size)
    correlations = np.divide(covariance, both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(np.clip(correlations, -1, 1))


def explained_variance(
    data: Any, unmixing: Unmixing, metadata: Mapping[str, Array], *, scale_rows: bool = False
) -> list[dict[str, float]]:
    """Return the share of the variance of every component that the groups of each metadata column explain, k.

    Omega squared (Hays 1963): 0 is what random groups explain on average, 1 is a component that is constant within
    groups. Numbers with many different values are cut into deciles; rows without a value are left out, and columns
    that hardly group the rows, such as ids, are left out altogether.
    """
    groups = {name: codes for name, column in metadata.items() if (codes := _group_codes(column)) is not None}
    names = list(groups)[:GROUPED]
    if not names:
        return [{} for _ in range(unmixing.k)]
    sizes = [int(groups[name].max()) + 1 for name in names]  # group 0 are rows without a value
    starts = np.cumsum([0, *sizes])
    codes = np.column_stack([groups[name] for name in names]) + starts[:-1]  # (n, m), each column in its own range
    data = DaskRows(data) if is_dask(data) else data
    shared = (unmixing.mean, unmixing.unmixing, int(starts[-1]), scale_rows)
    sums, squares = reduce_rows(data, _block_sums, np.add, *shared, aligned=[codes])  # (k, b) each
    counts = np.bincount(codes.ravel(), minlength=starts[-1])
    shares = []
    for start, stop in zip(starts[:-1] + 1, starts[1:], strict=True):
        n, total = counts[start:stop], sums[:, start:stop]
        shares.append(_omega_squared(n, total, squares[:, start:stop].sum(1)))
    return [dict(zip(names, row, strict=True)) for row in np.transpose(shares).tolist()]


def _omega_squared(n: Array, sums: Float, squares: Float) -> Float:
    """The share of the variance between groups of n rows each, (k,), from the sums (k, g) and the squares (k,)."""
    rows, groups = n.sum(), len(n)
    middle = sums.sum(1) ** 2 / rows
    total, between = squares - middle, (sums**2 / n).sum(1) - middle
    within = (total - between) / (rows - groups)
    share = np.divide(between - (groups - 1) * within, total + within, out=np.zeros(len(total)), where=total > 0)
    return np.asarray(np.clip(share, 0, 1))


def _group_codes(column: Any) -> Array | None:
    """The group of each row from 1 on, 0 where the value is missing, shape (n,); None where there are no groups."""
    column = np.asarray(column)
    there = ~missing_labels(column)
    if column.dtype.kind == "f":
        there &= np.isfinite(column)
    labels = column[there]
    if column.dtype.kind not in "biuf":
        labels = as_labels(labels)
    kinds, codes = np.unique(labels, return_inverse=True)
    if len(kinds) * FEWEST > len(labels) and column.dtype.kind in "iuf" and len(kinds) > 1:
        edges = np.unique(np.quantile(labels, np.arange(1, 10) / 10))
        kinds, codes = np.unique(np.searchsorted(edges, labels), return_inverse=True)
    if len(kinds) < 2 or len(kinds) * FEWEST > len(labels):
        return None
    groups = np.zeros(len(column), dtype=np.int64)
    groups[there] = codes + 1
    return groups


def _block_sums(
    data: Any, part: Partition, codes: Array, mean: Float, unmixing: Float, bins: int, scale_rows: bool
) -> Float:
    """The sums and the sums of squares of each component over the rows of each group, (2, k, bins)."""
    totals = np.zeros((2, len(unmixing), bins))
    for some in row_chunks(*data.shape):
        s = to_numpy(map_chunk(data[some], mean, unmixing.T, scale_rows=scale_rows)).T  # (k, m)
        at = codes[some]
        for j, row in enumerate(s):
            weights = np.repeat(row, at.shape[1])
            totals[0, j] += np.bincount(at.ravel(), weights, bins)
            totals[1, j] += np.bincount(at.ravel(), weights**2, bins)
    return totals
