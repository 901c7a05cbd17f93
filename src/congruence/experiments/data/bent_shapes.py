"""Half-moons and circles: two classes that no two Gaussians make, so that a mixture prior is misspecified."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.errors import InputError
from congruence.experiments.data.images import check_count
from congruence.experiments.data.rows import FactorRows

MOONS = "two half circles that reach into each other; scikit-learn draws them"
CIRCLES = "a circle in a circle; scikit-learn draws them. A Gaussian has no hole: the prior cannot be right"


def half_moons(n: int = 10_000, *, noise: float = 0.1, seed: int = 0) -> FactorRows:
    """Draw n points from two half circles, with Gaussian noise of a standard deviation; the factor is the moon."""
    from sklearn.datasets import make_moons

    _check(n, noise)
    return _labelled("moons", make_moons(n, noise=noise, random_state=seed), "moon", MOONS)


def circles(n: int = 10_000, *, noise: float = 0.05, ratio: float = 0.5, seed: int = 0) -> FactorRows:
    """Draw n points from two circles around the origin, of radius 1 and `ratio` (below 1); the factor is the circle."""
    from sklearn.datasets import make_circles

    _check(n, noise)
    if not 0 <= ratio < 1:
        raise InputError(f"ratio must be from 0 to below 1, not {ratio}")
    return _labelled("circles", make_circles(n, noise=noise, factor=ratio, random_state=seed), "circle", CIRCLES)


def _check(n: int, noise: float) -> None:
    check_count(n, "rows")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise must be a finite number, 0 or above, not {noise}")


def _labelled(name: str, drawn: tuple[Any, Any], factor: str, note: str) -> FactorRows:
    points, labels = drawn
    factors = np.asarray(labels, dtype=np.float64)[:, None]
    return FactorRows(name, points.astype(np.float32), factors, (factor,), ("categorical",), (2,), note)
