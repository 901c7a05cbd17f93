"""Mutual information of numbers with classes (Ross 2014) or with numbers (Kraskov et al. 2004), from near neighbours.

Both estimates equal those of scikit-learn for the same random numbers, but for classes of fewer than 2k + 2 rows: there
it takes distances from expanded squares, whose rounding moves its estimate by some thousandths. Columns have one
dimension, so neighbours are found in sorted order, without trees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float

NOISE = 1e-10  # breaks ties, as a share of the size of a column of unit variance


def scaled(column: Float) -> Float:
    """A column divided by its standard deviation; a constant one is left as it is."""
    size = float(column.std())
    return column / size if size > _rounding(column) else column.copy()


def standardised(columns: Float) -> Float:
    """Columns (n, L) of mean 0 and standard deviation 1; a constant one becomes 0."""
    centred = columns - columns.mean(0)
    size = columns.std(0)
    constant = size <= [_rounding(column) for column in columns.T]
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, size))


def jittered(column: Float, random: np.random.RandomState) -> Float:
    """A scaled column with noise far below its spread, so that no two values are equal; one draw of n numbers."""
    column = scaled(column)
    return column + NOISE * max(1.0, float(np.abs(column).mean())) * random.standard_normal(len(column))


@dataclass(frozen=True, eq=False)
class Grouping:
    """Rows grouped by class, without the classes of one row: what the neighbour search needs to know of a factor."""

    rows: Array  # (m,) rows that are left
    classes: Array  # (m,) their classes
    counts: Array  # (m,) of rows in the class, in the order of classes
    first: Array  # (m,) where the class begins, in that order
    k: Array  # (m,) neighbours looked for: k, or all others of a small class
    whole: Array  # (m - k,) whether the k + 1 rows from here on are of one class


def grouping(classes: Array, k: int) -> Grouping:
    """Group rows by their class numbers (n,); classes of one row have no neighbours and are dropped."""
    size = np.bincount(classes)
    rows = np.flatnonzero(size[classes] > 1)
    kept = classes[rows]
    ordered = np.sort(kept)
    counts = size[ordered]
    first = np.searchsorted(ordered, ordered)
    # Small integers are sorted by counting, which is much the fastest here.
    small = kept.astype(np.int16) if len(size) < 2**15 else kept
    return Grouping(rows, small, counts, first, np.minimum(k, counts - 1), ordered[:-k] == ordered[k:])


def information_with_classes(column: Float, group: Grouping, k: int) -> float:
    """Mutual information of a column without ties (n,) with the classes of `group`, in nats, at least 0.

    Each row has a radius just short of its k-th nearest neighbour in its own class; the more rows of other classes fall
    within it, the less informative the column is about the class. NaN if every class has one row.

    References
    ----------
    Ross 2014, eq. 2.
    """
    m = len(group.rows)
    if m == 0:
        return float("nan")
    column = column[group.rows]
    order = np.argsort(column)
    ascending = column[order]
    grouped = ascending[np.argsort(group.classes[order], kind="stable")]  # by class, ascending in each
    radius = np.nextafter(_distance_in_class(grouped, group, k), 0)
    psi = _digammas(m)
    means = psi[group.k].mean() - psi[group.counts].mean() - psi[_count_within(ascending, grouped, radius)].mean()
    return max(0.0, float(psi[m] + means))


def information_of_numbers(x: Float, y: Float, k: int) -> float:
    """Mutual information of two columns without ties (n,) in nats, at least 0; NaN for one row.

    References
    ----------
    Kraskov, Stoegbauer & Grassberger 2004, eq. 8.
    """
    from scipy.spatial import cKDTree

    n = len(x)
    k = min(k, n - 1)
    if k < 1:
        return float("nan")
    both = np.column_stack([x, y])
    distance = cKDTree(both).query(both, [k + 1], p=np.inf)[0][:, 0]  # the nearest is the row itself
    radius = np.nextafter(distance, 0)
    psi = _digammas(n)
    within = [psi[_count_within(np.sort(column), column, radius)].mean() for column in (x, y)]
    return max(0.0, float(psi[n] + psi[k] - sum(within)))


def _distance_in_class(grouped: Float, group: Grouping, k: int) -> Float:
    """The distance of each row to its k-th nearest neighbour in its class; to the farthest one in a small class.

    In sorted order the k nearest neighbours and the row itself are k + 1 rows side by side: the nearest such window
    counts, over all that hold the row.
    """
    last = group.first + group.counts - 1
    distance: Float = np.maximum(grouped - grouped[group.first], grouped[last] - grouped)
    windows = len(group.whole)
    if windows == 0:
        return distance
    low = np.where(group.whole, grouped[:windows], -np.inf)
    high = np.where(group.whole, grouped[k:], np.inf)
    left, right = np.empty(windows), np.empty(windows)
    for shift in range(k + 1):
        here = slice(shift, shift + windows)
        np.subtract(grouped[here], low, out=left)
        np.subtract(high, grouped[here], out=right)
        np.maximum(left, right, out=left)
        np.minimum(distance[here], left, out=distance[here])
    return distance


def _count_within(ascending: Float, centres: Float, radius: Float) -> Array:
    """How many of the ascending values differ from each centre by at most its radius.

    A sum of centre and radius is rounded, and may let the value in that the radius just excludes: both ends are found
    by such sums and then moved until the differences themselves agree.
    """
    fenced = np.concatenate([[-np.inf], ascending, [np.inf]])
    above = np.searchsorted(ascending, centres + radius, side="right") + 1  # the first that is too large, in `fenced`
    below = np.searchsorted(ascending, centres - radius, side="left")  # the last that is too small
    while (move := fenced[above] - centres <= radius).any():
        above += move
    while (move := fenced[above - 1] - centres > radius).any():
        above -= move
    while (move := centres - fenced[below] <= radius).any():
        below -= move
    while (move := centres - fenced[below + 1] > radius).any():
        below += move
    return above - below - 1


def _digammas(n: int) -> Float:
    """The digamma function of 0 to n (minus infinity at 0)."""
    from scipy.special import digamma

    table: Float = digamma(np.arange(n + 1.0))
    return table


def _rounding(column: Float) -> float:
    """What the standard deviation of a constant column may be, from rounding alone."""
    return len(column) * float(np.finfo(np.float64).eps) * float(np.abs(column).max())
