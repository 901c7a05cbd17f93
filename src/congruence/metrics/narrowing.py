"""Maps from many codes onto fewer coordinates: what a group of maps leaves out is not held against it."""

from __future__ import annotations

import numpy as np

from congruence.arrays import Float
from congruence.maps.groups import Map, centred_map, fit_group
from congruence.rows.algebra import svd
from congruence.rows.sums import PairScatter

STEPS, ENOUGH = 200, 1e-13  # of the search for a rotation, and the relative gain at which it stops


def fit_onto(paired: PairScatter, fold: int | None, *, group: str) -> Map:
    """Fit the map of `group` that carries codes (n, L) onto coordinates (n, M) with the least squared error.

    Up to M codes this is `fit_group`. With more, the result has only M columns to be compared, and its label is
    "linear", because it has no inverse.
    """
    codes, columns = paired.cross.shape
    if codes <= columns or group == "linear":
        return fit_group(paired, group)
    matrix = np.zeros((codes, codes))
    narrow = _picked(paired) if group == "permutation" else _turned(paired, scaled=group == "similarity")
    matrix[:, :columns] = narrow
    return centred_map(paired, "linear", matrix)


def _picked(paired: PairScatter) -> Float:
    """The columns of a signed permutation: |x_i - y_j|^2 is least where |x_i y_j| - |x_i|^2 / 2 is largest, (L, M)."""
    from scipy.optimize import linear_sum_assignment

    gain = np.abs(paired.cross) - np.diag(paired.source.scatter)[:, None] / 2
    rows, columns = linear_sum_assignment(-gain)
    narrow = np.zeros_like(paired.cross)
    narrow[rows, columns] = np.where(paired.cross[rows, columns] < 0, -1.0, 1.0)
    return narrow


def _turned(paired: PairScatter, *, scaled: bool) -> Float:
    """Some columns of a rotation, times one scale where asked, that carry the codes onto the coordinates, (L, M).

    Unlike between equal widths this has no closed form: the rotation decides how much of the codes is left out. Where
    the coordinates are filled up with what the present rotation leaves out, it has one, and that one is no worse
    (Green & Gower 1979); repeated until nothing is gained.
    """
    cross, scatter, columns = paired.cross, paired.source.scatter, paired.cross.shape[1]
    rotation, scale, last = paired.rotation, 1.0, np.inf
    for _ in range(STEPS):
        kept = rotation[:, :columns]
        shared, size = float((kept * cross).sum()), float((kept * (scatter @ kept)).sum())
        if scaled and size > 0:
            scale = max(shared, 0.0) / size
        error = scale * (scale * size - 2 * shared)  # less the size of the target, which does not change
        if last - error <= ENOUGH * abs(error):
            break
        last = error
        filled = np.hstack([cross, scale * (scatter @ rotation[:, columns:])])
        u, _, vt = svd(filled)
        rotation = u @ vt
    return scale * rotation[:, :columns]
