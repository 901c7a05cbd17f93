"""Procrustes distances: how far apart two runs stay after the best rotation. Lower is closer, and 0 is the same.

Runs are centred, and the narrower is zero-padded. The best rotation leaves |X|^2 + |Y|^2 - 2 |X'Y|_* (nuclear norm), so
d x d sums suffice, except for distances near 0, which they cannot resolve: those are summed over the rows. The rotation
is fitted to the rows it is scored on, so unrelated runs come nearer the more dimensions they have for their rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align.similarities.sides import Both, both_of
from congruence.arrays import as_float64_like, row_chunks

RESOLVED = 1e-3  # a squared distance below this share of the squared sizes loses digits as a difference of sums


def procrustes(x: Any, y: Any) -> float:
    """Distance between the shapes of two runs: centred, scaled to norm 1, and rotated onto each other.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection), one
    scale and translation of either side.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 to sqrt(2), lower is closer: 0 for equal runs up to the above. NaN if one side is constant.

    References
    ----------
    Williams et al. 2021; Ding et al. 2021, who print its square (0 to 2).
    """
    return shape(both_of(x, y))


def angular_procrustes(x: Any, y: Any) -> float:
    """Angle between two runs as vectors of norm 1, after the best rotation: the arc whose chord is `procrustes`.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection), one
    scale and translation of either side.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 to pi / 2, lower is closer: arccos(|X'Y|_* / (|X| |Y|)). NaN if one side is constant.

    References
    ----------
    Williams et al. 2021 (angular ground metric).
    """
    return angle(both_of(x, y))


def size_and_shape(x: Any, y: Any) -> float:
    """Distance between two runs, centred and rotated onto each other, in their own units: the size counts too.

    A metric: symmetric, and the triangle inequality holds. Invariant to permutation, rotation (with reflection) and
    translation of either side, not to scale. It is a norm over all rows, so it grows with the root of n.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 up, lower is closer. NaN if one side is constant.

    References
    ----------
    Dryden & Mardia 2016; Williams et al. 2021 (Euclidean ground metric).
    """
    return unscaled(both_of(x, y))


def shape(both: Both) -> float:
    """The shape distance from prepared sums."""
    return _distance(both, 1 / both.source.size, 1 / both.target.size) if both.vary else float("nan")


def angle(both: Both) -> float:
    """The angular distance from prepared sums; by the chord, because arccos loses half the digits near 0."""
    return float(2 * np.arcsin(min(shape(both), np.sqrt(2)) / 2)) if both.vary else float("nan")


def unscaled(both: Both) -> float:
    """The size-and-shape distance from prepared sums."""
    return _distance(both, 1.0, 1.0) if both.vary else float("nan")


def _distance(both: Both, scale_x: float, scale_y: float) -> float:
    sizes = (scale_x * both.source.size) ** 2 + (scale_y * both.target.size) ** 2
    squared = sizes - 2 * scale_x * scale_y * both.sums.svd[1].sum()
    if squared < RESOLVED * sizes:
        squared = _squared_rows(both, scale_x, scale_y)
    return float(np.sqrt(squared))


def _squared_rows(both: Both, scale_x: float, scale_y: float) -> float:
    """The squared distance, summed over the rows after the best rotation.

    In the directions that the runs share it carries u onto v; the others it can lay orthogonal to each other.
    """
    width, total = both.sums.width, 0.0
    u, v = both.sums.svd[0], both.sums.svd[2].T  # (width, k)
    for part in row_chunks(both.source.rows.n, width):
        x, y = scale_x * both.source.rows.take(part, width), scale_y * both.target.rows.take(part, width)
        to_u, to_v = as_float64_like(u, x), as_float64_like(v, y)
        shared_x, shared_y = x @ to_u, y @ to_v
        for left in (shared_x - shared_y, x - shared_x @ to_u.T, y - shared_y @ to_v.T):
            total += float((left * left).sum())
    return total
