"""Mutual nearest neighbours: does each row keep its neighbours?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.align.similarities.sides import Both, Side, paired_rows, sampled
from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.rows.engine import Rows

NEIGHBOURS = 10
NEIGHBOUR_ROWS = 10_000  # distances are quadratic in rows: more than this many are sampled
_BLOCK = 512


def neighbour_overlap(x: Any, y: Any, *, k: int = NEIGHBOURS, seed: int = 0) -> float:
    """The mean share of a row's k nearest neighbours in x that are also among its k nearest in y (mutual k-NN).

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. More than 10 000 rows are
    sampled (by `seed`); distances are made in blocks, never as an n x n matrix. Of equally near rows any will do.

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
    return shared(nearest(source, k, seed), nearest(target, k, seed))


def overlap(both: Both) -> float:
    """Neighbour overlap from what each run keeps of its own neighbours."""
    return shared(both.source.once(_nearest), both.target.once(_nearest))


def _nearest(side: Side) -> Neighbours:
    return nearest(side.rows, seed=side.seed)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k nearest neighbours of each row, or of each row of a sample where there are many."""

    rows: Rows
    index: Array  # (m,) the rows looked at
    found: Array  # (m, k) places in `index`; no columns where all rows are equal, so that none is nearer than another

    @cached_property
    def reach(self) -> Float:
        """The distance of the farthest neighbour, rounding allowed for, shape (m,)."""
        return np.asarray(self.distances(self.found).max(1) * (1 + 1e-12) + self.rows.rounding.max())

    def distances(self, others: Array) -> Float:
        """How far each row is from some others, given by their places, shape (m, k)."""
        points = to_numpy(self.rows.take(self.index))
        away = np.empty(others.shape)
        for part in row_chunks(len(points), others.shape[1] * self.rows.d):
            away[part] = np.sqrt(np.square(points[part, None] - points[others[part]]).sum(2))
        return away


def nearest(rows: Rows, k: int = NEIGHBOURS, seed: int = 0) -> Neighbours:
    """Find the k nearest neighbours of each row (of a sample of rows where there are many)."""
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
    return Neighbours(rows, index, found)


def shared(a: Neighbours, b: Neighbours) -> float:
    """The mean share of neighbours in one run that are no farther than the k-th in the other, both ways.

    Where no two distances are equal these are the common neighbours; where some are, any of the equal ones will do.
    """
    if not (a.found.size and b.found.size):
        return float("nan")
    hits = (one.distances(other.found) <= one.reach[:, None] for one, other in ((a, b), (b, a)))
    return float(np.mean([hit.mean() for hit in hits]))
