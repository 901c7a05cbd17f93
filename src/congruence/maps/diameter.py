"""The exact diameter of a cloud of points: the largest distance between two rows.

All n^2 distances are rarely needed. No pair can be farther apart than the sum of its distances from the centre,
so rows are sorted by that radius and pairs that cannot beat the best distance found so far are never looked at;
the rest is a blocked matrix product in float64, and the winner of each block is measured again directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, Rows, as_matrix, row_chunks, to_numpy

BLOCK = 1024  # rows per side of a block of distances
SWEEPS = 8  # farthest-point sweeps for the first lower bound


@dataclass(frozen=True)
class Diameter:
    """The largest distance between two rows, the pair that has it, and whether it is exact."""

    value: float
    exact: bool
    pair: tuple[int, int]


def diameter(x: Any) -> Diameter:
    """Return the exact diameter max_ij |x_i - x_j| of the rows of x, shape (n, d)."""
    return rows_diameter(Rows(as_matrix(x)))


def rows_diameter(rows: Rows) -> Diameter:
    """Return the exact diameter of prepared rows."""
    radius = np.concatenate([to_numpy((c * c).sum(1) ** 0.5) for c in _chunks(rows)])
    best, pair = _sweep(rows, int(radius.argmax()))
    # A row takes part in a pair longer than `best` only if its radius and the largest one exceed it together.
    candidates = np.flatnonzero(radius + radius.max() > best)
    candidates = candidates[np.argsort(-radius[candidates], kind="stable")]
    best, pair = _search(rows, candidates, radius[candidates], best, pair)
    return Diameter(best, True, pair)


def _sweep(rows: Rows, start: int) -> tuple[float, tuple[int, int]]:
    """Walk from a row to the one farthest from it, a few times: a lower bound that is often the answer."""
    best, pair, here = 0.0, (start, start), start
    for _ in range(SWEEPS):
        origin = rows.take(slice(here, here + 1))
        distance = np.concatenate([to_numpy(((c - origin) ** 2).sum(1)) for c in _chunks(rows)])
        there = int(distance.argmax())
        if np.sqrt(distance[there]) <= best:
            break
        best, pair, here = float(np.sqrt(distance[there])), (here, there), there
    return best, pair


def _search(
    rows: Rows, candidates: Array, radius: Float, best: float, pair: tuple[int, int]
) -> tuple[float, tuple[int, int]]:
    """Look at every pair of candidates (sorted by falling radius) that could be longer than `best`."""
    for start in range(0, len(candidates), BLOCK):
        if 2 * radius[start] <= best:
            break
        a = rows.take(candidates[start : start + BLOCK])
        for other in range(start, len(candidates), BLOCK):
            if radius[start] + radius[other] <= best:
                break
            b = rows.take(candidates[other : other + BLOCK])
            value, i, j = _longest(a, b)
            if value > best:
                best, pair = value, (int(candidates[start + i]), int(candidates[other + j]))
    return best, pair


def _longest(a: Any, b: Any) -> tuple[float, int, int]:
    """Return the largest distance between a row of a and a row of b, and where it is."""
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * (a @ b.T)
    i, j = divmod(int(squared.argmax()), b.shape[0])
    return float(((a[i] - b[j]) ** 2).sum() ** 0.5), i, j


def _chunks(rows: Rows) -> Any:
    return (rows.take(part) for part in row_chunks(rows.n, rows.d))
