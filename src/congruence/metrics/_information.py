"""Bins, entropy and mutual information, in nats.

Information comes from counts of classes, or from near neighbours: of numbers about classes (Ross 2014) and of numbers
about numbers (Kraskov et al. 2004). Both neighbour estimates equal those of scikit-learn for the same random numbers,
except for classes of fewer than 2k + 2 rows: there scikit-learn computes distances from expanded squares, whose
rounding changes its estimate by some thousandths. Columns have one dimension, so neighbours are found by sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from congruence.arrays import Array, Float
from congruence.errors import InputError

RULES = ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")  # of numpy.histogram_bin_edges
NOISE = 1e-10  # breaks ties, relative to a column of unit variance
BLOCK = 512  # rows whose candidates stay in the cache
ROUNDING = 1e-14  # of a sum of entropies: information below this is 0


def bin_columns(columns: Float, bins: int | str = 20) -> Array:
    """Cut columns (n, L) into bins of equal width, as the reference implementations do, and number those in use from 0.

    `bins` is a number, or a rule of `numpy.histogram_bin_edges` such as "auto". The largest value falls into the last
    bin.
    """
    if bins not in RULES and (isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1):
        raise InputError(f"bins must be an integer of at least 1 or one of {', '.join(RULES)}; got {bins!r}")
    return number_values(np.column_stack([_bin(column, bins) for column in columns.T]))


def _bin(column: Float, bins: int | str) -> Array:
    if (column == column[0]).all():
        return np.zeros(len(column), dtype=np.intp)
    try:
        return np.digitize(column, np.histogram_bin_edges(column, bins)[:-1])
    except ValueError:  # fewer floats between the smallest and the largest value than bins
        return column


def number_values(columns: Array) -> Array:
    """Number the distinct values of each column (n, L) from 0, in sorted order."""
    return np.column_stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns.T])


def entropy(classes: Array) -> Float:
    """Entropy of each column of class numbers (n, K), from the share of rows in each class; shape (K,)."""
    return np.array([_entropy(np.bincount(column)) for column in classes.T])


def _entropy(counts: Array) -> float:
    counts = counts[counts > 0]
    n = counts.sum()
    return float(np.log(n) - counts @ np.log(counts) / n)


def class_information(codes: Array, factors: Array) -> Float:
    """Mutual information of class numbers (n, L) about class numbers (n, K), from counts; shape (K, L).

    The plug-in estimate: it is biased upwards by about (classes of one - 1)(classes of the other - 1) / 2n.
    """
    own, other = entropy(codes), entropy(factors)
    shared = np.empty((len(other), len(own)))
    width = codes.max(0) + 1
    for i, factor in enumerate(factors.T):
        for j, code in enumerate(codes.T):
            shared[i, j] = own[j] + other[i] - _entropy(np.bincount(factor * width[j] + code))
    return np.where(shared > ROUNDING * np.add.outer(other, own), shared, 0.0)


def lead(rows: Float) -> Float:
    """The largest less the second largest value of each row (m, k), shape (m,); NaN for k < 2."""
    if rows.shape[1] < 2:
        return np.full(len(rows), np.nan)
    ordered = np.sort(rows, axis=1)
    first: Float = ordered[:, -1] - ordered[:, -2]
    return first


def jitter(column: Float, random: np.random.RandomState) -> Float:
    """A column (n,) of unit variance with noise far below it, so that no two values are equal; draws n numbers."""
    size = float(column.std())
    constant = size <= len(column) * np.finfo(np.float64).eps * float(np.abs(column).max())  # but for rounding
    column = column.copy() if constant else column / size
    return column + NOISE * max(1.0, float(np.abs(column).mean())) * random.standard_normal(len(column))


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """Rows sorted by class, without the classes of one row."""

    rows: Array  # (m,) rows that are left
    classes: Array  # (m,) their classes
    counts: Array  # (m,) of rows in the class, in the order of classes
    first: Array  # (m,) where the class begins, in that order
    k: Array  # (m,) neighbours to find: k, or all others of a small class
    whole: Array  # (m - k,) whether the k + 1 rows from here on are of one class


def group_by_class(classes: Array, k: int) -> ClassGroups:
    """Sort rows by their class numbers (n,); classes of one row have no neighbours and are dropped."""
    size = np.bincount(classes)
    rows = np.flatnonzero(size[classes] > 1)
    kept = classes[rows]
    ordered = np.sort(kept)
    counts = size[ordered]
    first = np.searchsorted(ordered, ordered)
    # Small integers are sorted by counting, which is the fastest here by far.
    small = kept.astype(np.int16) if len(size) < 2**15 else kept
    return ClassGroups(rows, small, counts, first, np.minimum(k, counts - 1), ordered[:-k] == ordered[k:])


def ross_information(column: Float, group: ClassGroups, k: int) -> float:
    """Mutual information of a column without ties (n,) about classes, at least 0 (Ross 2014, eq. 2).

    Each row has a radius just below the distance to its k-th nearest neighbour in its own class. The more rows of other
    classes are within it, the less informative the column is. NaN if every class has one row.
    """
    m = len(group.rows)
    if m == 0:
        return float("nan")
    column = column[group.rows]
    order = np.argsort(column)
    ascending = column[order]
    grouped = ascending[np.argsort(group.classes[order], kind="stable")]  # by class, ascending in each
    radius = np.nextafter(_distance_in_class(grouped, group, k), 0)
    psi = _digamma_table(m)
    means = psi[group.k].mean() - psi[group.counts].mean() - psi[_count_within(ascending, grouped, radius)].mean()
    return max(0.0, float(psi[m] + means))


def kraskov_information(x: Float, y: Float, k: int) -> float:
    """Mutual information of two columns without ties (n,), at least 0; NaN for one row.

    Kraskov, Stoegbauer & Grassberger 2004, eq. 8.
    """
    n = len(x)
    k = min(k, n - 1)
    if k < 1:
        return float("nan")
    order = np.argsort(x)
    x, y = x[order], y[order]
    radius = np.nextafter(_distance_in_plane(x, y, k), 0)
    psi, upwards = _digamma_table(n), np.argsort(y)
    within = psi[_count_within(x, x, radius)].mean()
    within += psi[_count_within(y[upwards], y[upwards], radius[upwards])].mean()
    return max(0.0, float(psi[n] + psi[k] - within))


def _distance_in_plane(x: Float, y: Float, k: int) -> Float:
    """The distance of each row to its k-th nearest neighbour, by the larger of the differences in x and y.

    Rows ascend in x. They are cut into strips of x of h rows each. In the three strips around a row, sorted by y, the
    candidates are the 3k rows before it and the 3k after it. The k-th nearest of these is the k-th nearest of all if
    every other row is farther: those outside the strips in x, those in the strips in y. For a few per cent of the rows
    it is not certain; a tree finds theirs. On 10,000 rows this takes less than half as long as a tree for all.
    """
    from scipy.spatial import cKDTree

    n, w = len(x), 3 * k
    h = int(0.7 * np.sqrt(k * n)) + 1  # a strip is then about 1.4 times as wide as the distance
    strips = -(-n // h)
    before, after = np.full(h, np.inf), np.full(strips * h - n + h, np.inf)
    padded_x, padded_y = np.concatenate([-before, x, after]), np.concatenate([before, y, after])
    by_y = np.argsort(sliding_window_view(padded_y, 3 * h)[::h], axis=1)  # (strips, 3h)
    strip, place = np.nonzero((by_y >= h) & (by_y < 2 * h))  # every row, in the three strips around its own
    by_y += h * np.arange(strips)[:, None]
    row = by_y[strip, place] - h
    strip, place, row = (part[row < n] for part in (strip, place, row))
    wide = ((0, 0), (w + 1, w + 1))
    sorted_x = np.pad(padded_x[by_y], wide, constant_values=np.inf)
    sorted_y = np.pad(padded_y[by_y], wide, constant_values=(-np.inf, np.inf))
    start = strip * sorted_x.shape[1] + place + 1  # of the candidates, in the flat arrays
    sorted_x, sorted_y = sorted_x.ravel(), sorted_y.ravel()
    windows_x, windows_y = (sliding_window_view(column, 2 * w + 1) for column in (sorted_x, sorted_y))

    distance, at_x, at_y = np.empty(n), x[row], y[row]
    for block in (slice(first, first + BLOCK) for first in range(0, n, BLOCK)):
        apart_x = np.abs(windows_x[start[block]] - at_x[block, None])
        apart_y = np.abs(windows_y[start[block]] - at_y[block, None])
        np.maximum(apart_x, apart_y, out=apart_x).partition(k, axis=1)  # the nearest is the row itself
        distance[row[block]] = apart_x[:, k]

    fenced = np.concatenate([[-np.inf], x, [np.inf]])
    left, right = (fenced[np.clip((strip + shift) * h + edge, 0, n + 1)] for shift, edge in ((-1, 0), (2, 1)))
    others = np.minimum(np.minimum(at_x - left, right - at_x), sorted_y[start + 2 * w + 1] - at_y)
    others = np.minimum(others, at_y - sorted_y[start - 1])
    rest = row[distance[row] > others]
    if rest.size:
        both = np.column_stack([x, y])
        distance[rest] = cKDTree(both, balanced_tree=False).query(both[rest], [k + 1], p=np.inf)[0][:, 0]
    return distance


def _distance_in_class(grouped: Float, group: ClassGroups, k: int) -> Float:
    """The distance of each row to its k-th nearest neighbour in its class; to the farthest one in a small class.

    In sorted order the k nearest neighbours and the row itself are k + 1 adjacent rows: the distance is the least over
    all such windows that hold the row.
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

    The sum of centre and radius is rounded, and may include the value that the radius just excludes: both ends are
    found by such sums and then moved until the differences themselves agree.
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


def _digamma_table(n: int) -> Float:
    """The digamma function of 0 to n (minus infinity at 0)."""
    from scipy.special import digamma

    table: Float = digamma(np.arange(n + 1.0))
    return table
