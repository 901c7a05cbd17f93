"""Principal axes of rows of any conditioning, without directions that vary by no more than rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from congruence.arrays import Float
from congruence.maps.algebra import eigh, svd

# Below this ratio of eigenvalues a scatter matrix, which squares singular values, no longer resolves them.
DOUBTFUL = 1e-11
CLEAR = 1e-7  # and above this one it resolves them to all digits that matter


def scaled_axes(
    scatter: Float,
    n: int,
    rounding: Float,
    triangle: Callable[[], Float] | None = None,
    resolution: float | None = None,
) -> tuple[Float, Float, Float]:
    """Units (d,), and in these units the singular values (r,) and axes (r, d) that are more than rounding.

    Every dimension is measured in units of its own rounding, so that one large dimension does not hide the others.
    Taken from the scatter matrix where that resolves the singular values; where it does not, from `triangle`, a matrix
    R that resolves them better with R^T R the scatter (the R of a QR decomposition of the rows, say). Without one, what
    the scatter cannot resolve counts as rounding. `resolution` is the smallest ratio of singular values R resolves.
    """
    d = len(scatter)
    unit = np.where(rounding > 0, rounding, rounding.min(where=rounding > 0, initial=1.0))  # (d,)
    values, vectors = eigh(scatter / np.outer(unit, unit))
    blurred = values[0] < DOUBTFUL * values[-1] or values[-1] <= 0
    if blurred and triangle is not None:
        _, singular, vectors_t = svd(triangle() / unit, full_matrices=False)
    else:
        singular, vectors_t = np.sqrt(np.maximum(values, 0)), vectors.T
    # Noise of unit size in an n x d matrix has singular values up to about this.
    noise = np.sqrt(n) + np.sqrt(d)
    resolution = resolution or np.finfo(np.float64).eps * max(n, d)
    if blurred and triangle is None:
        resolution = np.sqrt(DOUBTFUL)
    keep = singular > max(noise, resolution * singular.max(initial=0))
    return unit, singular[keep], vectors_t[keep]


def principal_axes(unit: Float, singular: Float, vectors_t: Float) -> tuple[Float, Float]:
    """Principal axes (d, r) and singular values (r,), falling, of rows described in the units of `scaled_axes`."""
    if not len(singular):
        return np.zeros((len(unit), 0)), np.zeros(0)
    factor = singular[:, None] * vectors_t * unit  # (r, d): factor.T @ factor is the scatter without rounding
    values, vectors = eigh(factor @ factor.T)  # rising; several times faster than a singular value decomposition
    if values[0] > CLEAR * values[-1]:
        singular = np.sqrt(values[::-1])
        return (factor.T @ vectors[:, ::-1]) / singular, singular
    _, singular, vectors_t = svd(factor, full_matrices=False)
    return vectors_t.T, singular
