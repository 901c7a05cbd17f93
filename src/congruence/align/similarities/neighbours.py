"""Mutual nearest neighbours: does each row keep its neighbours?"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align.similarities.sides import Both, Side, paired_rows, sampled
from congruence.arrays import Array, Rows, to_numpy
from congruence.errors import InputError

NEIGHBOURS = 10
NEIGHBOUR_ROWS = 10_000  # distances are quadratic in rows: more than this many are sampled
_BLOCK = 512


def neighbour_overlap(x: Any, y: Any, *, k: int = NEIGHBOURS, seed: int = 0) -> float:
    """The mean share of a row's k nearest neighbours in x that are also among its k nearest in y (mutual k-NN).

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. More than 10 000 rows are
    sampled (by `seed`); distances are made in blocks, never as an n x n matrix.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows; distances are Euclidean. On rows of unit length neighbours by cosine are the same.
    k : int
        Neighbours per row, at most n - 1.

    Returns
    -------
    float
        From 0 to 1, higher is closer; unrelated runs give about k / (n - 1). NaN if one side is constant.

    References
    ----------
    Huh et al. 2024 (mutual k-NN), who take the inner product of unit rows.
    """
    source, target = paired_rows(x, y)
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    return rows_overlap(nearest(source, k, seed), nearest(target, k, seed))


def overlap(both: Both) -> float:
    """Neighbour overlap from what each run keeps of its own neighbours."""
    return rows_overlap(both.source.once(_nearest), both.target.once(_nearest))


def _nearest(side: Side) -> Array:
    return nearest(side.rows, seed=side.seed)


def nearest(rows: Rows, k: int = NEIGHBOURS, seed: int = 0) -> Array:
    """The k nearest neighbours of each row (of a sample of rows where there are many), shape (m, k).

    Where all rows are equal none is nearer than another: the table then has no columns.
    """
    index = sampled(rows.n, NEIGHBOUR_ROWS, seed)
    points = to_numpy(rows.take(index))
    squares = (points * points).sum(1)
    varies = ((points * points).mean(0) > rows.rounding**2).any()
    k = min(k, len(index) - 1) if varies else 0
    found = np.empty((len(index), k), dtype=np.intp)
    for start in range(0, len(index) if k else 0, _BLOCK):
        part = slice(start, start + _BLOCK)
        distance = squares - 2 * points[part] @ points.T  # up to a constant per row
        distance[np.arange(len(distance)), np.arange(len(index))[part]] = np.inf
        found[part] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return found


def rows_overlap(a: Array, b: Array) -> float:
    """The mean share of common entries in the rows of two tables of neighbours, each (m, k)."""
    if not (a.size and b.size):
        return float("nan")
    return float(
        np.mean([len(np.intersect1d(p, q, assume_unique=True)) for p, q in zip(a, b, strict=True)]) / a.shape[1]
    )
