"""Rows drawn at random: held-out rows, subsamples and re-pairings."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.stats.nulls import exchange_clusters, shift_rows

MOST_ROWS = 2500  # of a subsample; more add little to the estimate of the variance
FEWEST_ROWS = 20  # below which halves are too small for an interval
FEWEST_CLUSTERS = 20  # with ten, an interval of 95 % covers 88 %, with two none


def split_rows(n: int, train: Any = None, test: Any = 0.3, seed: int = 0) -> tuple[Array, Array]:
    """Numbers of the training rows and of the held-out rows of n rows.

    `train` and `test` are row numbers or masks of shape (n,); without `train`, all rows that are not held out are
    training rows. A share `test` between 0 and 1 is rounded up and drawn as by scikit-learn's `train_test_split`.
    """
    if isinstance(test, int | float) and not isinstance(test, bool):
        if train is not None:
            raise InputError(f"train names rows, so test must name rows too; got the share {test!r}")
        if not 0 < test < 1:
            raise InputError(f"test must be row numbers or a share between 0 and 1; got {test!r}")
        if n < 2:
            raise InputError(f"holding rows out takes at least 2 rows, but there is only {n}")
        order = np.random.RandomState(seed).permutation(n)
        count = min(int(np.ceil(test * n)), n - 1)
        return order[count:], order[:count]
    held = _row_numbers(test, n, "test")
    fitted = np.setdiff1d(np.arange(n), held) if train is None else _row_numbers(train, n, "train")
    if not fitted.size:
        raise InputError("test names all rows, so there is none left to fit on")
    if np.intersect1d(fitted, held).size:
        raise InputError("some rows are named in both train and test; a row cannot be both")
    return fitted, held


def _row_numbers(rows: Any, n: int, name: str) -> Array:
    index = to_numpy(rows)
    if index.dtype.kind == "b" and index.shape == (n,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or not index.size or index.dtype.kind not in "iu":
        raise InputError(f"{name} must be row numbers, or a mask of {n} rows")
    if index.min() < 0 or index.max() >= n:
        raise InputError(f"{name} must name rows from 0 to {n - 1}, but names {index.min()} to {index.max()}")
    return index


def number_clusters(cluster: Array | None) -> Array | None:
    """The number of the cluster of each row, shape (n,); None without clusters."""
    if cluster is None:
        return None
    labels = cluster.astype(str) if cluster.dtype.kind == "O" else cluster
    unit = np.unique(labels, return_inverse=True)[1].reshape(-1)
    if not unit.any():
        raise InputError("all rows belong to one cluster, so no part of them can be drawn; cluster by something finer")
    return unit


def draw_subsamples(n: int, unit: Array | None, count: int, seed: int, most: int = MOST_ROWS) -> list[Array]:
    """Draw half of the rows or `most`, without replacement and `count` times; clusters are drawn whole.

    None below `FEWEST_ROWS` rows or `FEWEST_CLUSTERS` clusters.
    """
    rng, least = np.random.default_rng([seed, 1]), min(n // 2, most)
    if n < FEWEST_ROWS:
        return []
    if unit is None:
        return [np.sort(rng.permutation(n)[:least]) for _ in range(count)]
    sizes = np.bincount(unit)
    if len(sizes) < FEWEST_CLUSTERS:
        return []
    return [_rows_of_clusters(unit, sizes, rng.permutation(len(sizes)), least) for _ in range(count)]


def hold_out_clusters(unit: Array, share: float, seed: int) -> Array:
    """Held-out rows of whole clusters: about this share, at least one cluster and never all."""
    sizes = np.bincount(unit)
    order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(sizes))
    return _rows_of_clusters(unit, sizes, order, share * len(unit))


def _rows_of_clusters(unit: Array, sizes: Array, order: Array, least: float) -> Array:
    """The rows of the first clusters in this order that have at least `least` rows together, but never of all."""
    count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), least))
    return np.flatnonzero(np.isin(unit, order[: max(1, min(count, len(order) - 1))]))


def draw_repairings(n: int, unit: Array | None, count: int, seed: int, block: int | None = None) -> list[Array]:
    """Draw the row whose factors each row gets, shape (n,), `count` times.

    Clusters are paired whole; rows keep their order in them where all have the same size. Ordered rows are shifted.
    """
    rng = np.random.default_rng([seed, 2])
    if block is not None:
        return [shift_rows(n, block, rng) for _ in range(count)]
    if unit is None:
        return [rng.permutation(n) for _ in range(count)]
    sizes = np.bincount(unit)
    if (sizes != sizes[0]).any():
        return [exchange_clusters(unit, rng) for _ in range(count)]
    rows = np.argsort(unit, kind="stable").reshape(len(sizes), -1)
    pairings = np.empty((count, n), dtype=int)
    for partner in pairings:
        ring = rng.permutation(len(sizes))
        partner[rows[ring]] = rows[np.roll(ring, 1)]  # one cycle: no cluster keeps its factors
    return list(pairings)
