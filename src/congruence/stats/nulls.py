"""Re-pairings for permutation nulls: each row gets a partner as if the two runs were unrelated.

A valid re-pairing keeps the dependence between the rows of each run. Independent rows are shuffled, clusters are
exchanged whole, and ordered rows are shifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError

ROUNDING = 1e-9  # values this close, as a share, are equal
WINDOW = 10  # clusters of similar size that are exchanged among each other


def repairing(
    n: int,
    rng: np.random.Generator,
    *,
    folds: Sequence[Array] | None = None,
    unit: Array | None = None,
    block: int | None = None,
) -> Array:
    """Draw for each of n rows a partner other than itself, shape (n,).

    Parameters
    ----------
    n : int
        The number of rows, at least 2.
    rng : numpy.random.Generator
        The source of random numbers.
    folds : sequence of arrays of row numbers, optional
        Independent rows are shuffled inside each fold, so that each fit uses the same rows as in the true pairing.
    unit : array of shape (n,), optional
        The number of the cluster of each row, from 0: whole clusters are exchanged (`exchange_clusters`).
    block : int, optional
        Rows are ordered and depend on rows fewer than `block` places away: they are shifted (`shift_rows`).
    """
    if unit is not None:
        return exchange_clusters(unit, rng)
    if block is not None:
        return shift_rows(n, block, rng)
    partner = np.arange(n)
    for fold in [partner.copy()] if folds is None else folds:
        _cycle(partner, fold, rng)
    return partner


def exchange_clusters(unit: Array, rng: np.random.Generator) -> Array:
    """Draw for each row a row of the cluster that its own is exchanged with, shape (n,).

    Clusters of equal size are exchanged along one random cycle, and their rows are matched in random order. Clusters of
    unequal size are exchanged among `WINDOW` or more of similar size. A partner that is larger gives a sample of its
    rows, one that is smaller gives rows repeatedly: splitting clusters instead, so that each row is used once, makes
    re-paired runs look less alike than unrelated runs are.
    """
    sizes = np.bincount(unit)
    if len(sizes) < 2:
        raise InputError("all rows belong to one cluster, so no clusters can be exchanged; cluster by something finer")
    by_size = np.lexsort([rng.random(len(sizes)), sizes])
    windows = 1 if sizes.min() == sizes.max() else max(1, len(sizes) // WINDOW)
    other = np.arange(len(sizes))
    for window in np.array_split(by_size, windows):
        _cycle(other, window, rng)
    shuffled = np.lexsort([rng.random(len(unit)), unit])  # cluster by cluster, rows in random order
    start = np.cumsum(sizes) - sizes
    place = np.arange(len(unit)) - start[unit[shuffled]]  # of each row in its cluster
    mate = other[unit[shuffled]]
    partner = np.empty(len(unit), dtype=np.intp)
    partner[shuffled] = shuffled[start[mate] + place % sizes[mate]]
    return partner


def shift_rows(n: int, block: int, rng: np.random.Generator) -> Array:
    """Shift n ordered rows in a circle, by a random amount from `block` to n - `block`, shape (n,).

    Rows near each other stay near each other, so the dependence within each run is kept but at the two ends.
    """
    if not 1 <= block <= n // 2:
        raise InputError(f"blocks of ordered rows must hold 1 to half of the {n} rows; got {block}")
    return np.roll(np.arange(n), rng.integers(block, n - block + 1))


def restrict(order: Array, rows: Array) -> Array:
    """A permutation of some rows, by increasing number, of the kind of a permutation of all: positions in `rows`.

    Ranks keep what it does to the order: independent rows are shuffled, and ordered rows shifted. Clusters of which
    only some rows are chosen cannot be exchanged in this way.
    """
    return order if len(rows) == len(order) else np.argsort(np.argsort(order[rows]))


def p_values(closeness: Any, null: Float) -> Float:
    """The p value (1 + number of null values at least as close) / (1 + number of null values) of each entry.

    Closeness has any shape, the null shape (re-pairings,); larger is closer. The true pairing counts as one of the
    re-pairings, which makes the p value valid for any number of them. NaN has no p value.

    References
    ----------
    Phipson & Smyth 2010.
    """
    closeness, null = np.asarray(closeness, dtype=float), np.sort(null[np.isfinite(null)])
    slack = ROUNDING * np.abs(closeness)
    closer = len(null) - np.searchsorted(null, closeness - slack)
    return np.where(np.isfinite(closeness) & (len(null) > 0), (1 + closer) / (1 + len(null)), np.nan)


def _cycle(partner: Array, among: Array, rng: np.random.Generator) -> None:
    """Give each of some rows (or clusters) another as partner, along one random cycle: none keeps its own."""
    ring = rng.permutation(among)
    partner[ring] = np.roll(ring, 1)
