"""What components are made of: their correlations with the columns, and how much of them metadata columns explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_dask, row_chunks, to_numpy
from congruence.ica.components import Components, Unmixing
from congruence.rows.blocks import DaskRows, Partition
from congruence.rows.engine import map_chunk, reduce_rows, row_moments, unit_rows
from congruence.tables.table import as_labels, missing_labels

FEATURES = 10  # columns that are listed for a component
FEWEST = 3  # rows per group, on average; numbers with more different values are cut into deciles
GROUPED = 50  # metadata columns that are looked at


@dataclass(frozen=True)
class Loading:
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
    sums, squares = reduce_rows(data, _block_sums, _merge_sums, *shared, aligned=[codes])  # (k, b) each
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
) -> tuple[Float, Float]:
    """The sums and the sums of squares of each component over the rows of each group, (k, bins) each."""
    sums, squares = np.zeros((2, len(unmixing), bins))
    for some in row_chunks(*data.shape):
        s = to_numpy(map_chunk(data[some], mean, unmixing.T, scale_rows=scale_rows)).T  # (k, m)
        at = codes[some]
        for j, row in enumerate(s):
            weights = np.repeat(row, at.shape[1])
            sums[j] += np.bincount(at.ravel(), weights, bins)
            squares[j] += np.bincount(at.ravel(), weights**2, bins)
    return sums, squares


def _merge_sums(one: tuple[Float, Float], other: tuple[Float, Float]) -> tuple[Float, Float]:
    return one[0] + other[0], one[1] + other[1]
