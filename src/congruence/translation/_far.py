"""Rows far from those that a translator was fitted on: their direction and their size, with held-out limits.

Sizes of embeddings often have heavy tails. In a Mahalanobis distance they would hide an unusual direction, so the two
are measured apart: the Mahalanobis distance of the direction of x - centre, and the length of x - centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float, as_float64_like, on_sphere, to_numpy
from congruence.rows.engine import Rows

RATE = 0.001  # at most about this share of the rows of the same population is flagged, half of it by each measure
FEWEST, MOST = 50, 20_000  # rows that the measures are fitted on
ROUNDING = 1e-6  # rows of one length, or copies, differ by the rounding of float32
TAIL = 0.1  # share of the largest held-out values from which a limit is extrapolated where rows are few


@dataclass(frozen=True, eq=False)
class FitRegion:
    """Where the rows of the fit are: far rows exceed the limit of the direction or of the size."""

    centre: Float  # (d,)
    mean: Float  # (d,) of the directions
    factor: Float  # (d, d), factor factor' is the inverse of the shrunk covariance of the directions
    limits: Float  # (2,) of the squared distance of the direction, and of the squared length

    def exceedance(self, x: Any) -> Any:
        """The larger of both measures as a multiple of its limit, shape (n,); a row above 1 is far."""
        centre, mean, factor, limits = (
            as_float64_like(part, x) for part in (self.centre, self.mean, self.factor, self.limits)
        )
        centred = as_float64_like(x, x) - centre
        direction = (on_sphere(centred) - mean) @ factor
        direction, size = (direction * direction).sum(1) / limits[0], (centred * centred).sum(1) / limits[1]
        return direction + (size - direction) * (size > direction)


def fit_region(rows: Rows, fold_of: Array, seed: int = 0) -> FitRegion | None:
    """Fit both measures to the new vectors, and their limits to rows held out by fold.

    None if there are fewer than `FEWEST` rows or the rows do not vary.
    """
    index = np.arange(rows.n)
    if rows.n > MOST:
        index = np.sort(np.random.default_rng(seed).choice(rows.n, MOST, replace=False))
    if len(index) < FEWEST:
        return None
    x = to_numpy(rows.take(index)).astype(np.float64)  # without the mean of all rows
    folds = fold_of[index]
    held_out = np.empty((2, len(x)))
    for fold in np.unique(folds):
        mine = folds == fold
        held_out[:, mine] = _measures(x[mine], *_fit(x[~mine]))
    limits = (1 + ROUNDING) * np.array([_upper_quantile(values, RATE / 2) for values in held_out])
    if not (np.isfinite(limits).all() and (limits > 0).all()):
        return None
    centre, mean, factor = _fit(x)
    return FitRegion(centre + rows.mean, mean, factor, limits)


def _measures(x: Float, centre: Float, mean: Float, factor: Float) -> Float:
    """The squared distance of the direction and the squared length of every row, shape (2, n)."""
    centred = x - centre
    return np.array([np.square((on_sphere(centred) - mean) @ factor).sum(1), np.square(centred).sum(1)])


def _fit(x: Float) -> tuple[Float, Float, Float]:
    """The centre, the mean direction, and a factor of the inverse covariance of the directions, shrunk.

    The shrinkage is that of Ledoit and Wolf (2004), eq. 14.
    """
    n, d = x.shape
    centre = x.mean(0)
    direction = on_sphere(x - centre)
    mean = direction.mean(0)
    direction = direction - mean
    covariance = direction.T @ direction / n
    size = float(np.trace(covariance)) / d
    target = size * np.eye(d)
    spread = np.square(covariance - target).sum()
    noise = (np.square(np.square(direction).sum(1)).sum() / n - np.square(covariance).sum()) / n
    shrink = min(1.0, noise / spread) if spread > 0 else 1.0
    values, axes = linalg.eigh((1 - shrink) * covariance + shrink * target)
    floor = max(float(values[-1]) * d * np.finfo(np.float64).eps, np.finfo(np.float64).tiny)
    return centre, mean, axes / np.sqrt(np.maximum(values, floor))


def _upper_quantile(values: Float, rate: float) -> float:
    """The quantile 1 - rate: of the sample or, where rows are few, extrapolated from its tail (Hill 1975)."""
    n, falling = len(values), -np.sort(-values)
    rank = int(rate * (n + 1))
    if rank >= 3:
        return float(falling[rank - 1])
    most = max(int(TAIL * n), 2)
    if not falling[most] > 0:
        return float(falling[0])
    index = float(np.log(falling[:most] / falling[most]).mean())
    return float(falling[most] * (most / (rate * n)) ** index)
