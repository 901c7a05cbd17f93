"""The pinwheel: as many curved arms as asked for, each a Gaussian that was bent."""

from __future__ import annotations

import math

import numpy as np

from congruence.errors import InputError
from congruence.experiments.data.images import check_count
from congruence.experiments.data.rows import FactorRows

NOTE = "arms are bent Gaussians: no affine map makes them so again, and a mixture prior with one component each can"


def pinwheel(
    n: int = 10_000,
    *,
    arms: int = 3,
    radial: float = 0.3,
    tangential: float = 0.05,
    rate: float = 0.25,
    scale: float = 1.0,
    seed: int = 0,
) -> FactorRows:
    """Draw n points of the plane from arms that are equally likely.

    A point is scale * (r, t) turned by the angle of its arm plus rate * exp(r), where r ~ N(1, radial^2) and
    t ~ N(0, tangential^2): the farther out, the more it is turned. Factors are the arm, r and t.

    Parameters
    ----------
    radial, tangential : float
        Standard deviations along and across an arm, 0 or above.
    rate : float
        How much an arm is bent; at 0 arms are straight, and the data is a Gaussian mixture itself.
    scale : float
        Of the points. Johnson et al. multiply by 10; here most points are within 2 of the origin.

    References
    ----------
    Johnson, Duvenaud, Wiltschko, Datta and Adams 2016 (the generator).
    """
    check_count(n, "rows")
    if isinstance(arms, bool) or not isinstance(arms, int | np.integer) or arms < 1:
        raise InputError(f"arms must be a whole number of at least 1, not {arms!r}")
    spreads = {"radial": radial, "tangential": tangential, "scale": scale}
    for name, value in spreads.items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name} must be a finite number, 0 or above, not {value}")
    rng = np.random.default_rng(seed)
    arm = rng.integers(arms, size=n)
    along, across = 1 + radial * rng.normal(size=n), tangential * rng.normal(size=n)
    angle = 2 * math.pi * arm / arms + rate * np.exp(along)
    x = along * np.cos(angle) - across * np.sin(angle)
    y = along * np.sin(angle) + across * np.cos(angle)
    rows = (scale * np.column_stack([x, y])).astype(np.float32)
    kinds = ("categorical", "continuous", "continuous")
    factors = np.column_stack([arm, along, across])
    return FactorRows("pinwheel", rows, factors, ("arm", "along", "across"), kinds, (arms, None, None), NOTE)
