"""Whitening: the linear map after which rows have unit variance in every direction and no correlation.

All methods are z = (x - mean) @ matrix.T with matrix @ covariance @ matrix.T = 1 on the retained directions; they
differ by a rotation (Kessy, Lewin & Strimmer 2018). Directions that vary by no more than rounding are not retained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.rows.algebra import eigh, principal_axes, scaled_axes
from congruence.rows.engine import Moments

METHODS = ("pca", "zca", "cholesky", "pca-cor", "zca-cor")
# A whitening from sums is exact to about the rounding of float64 over this ratio of eigenvalues. Where the rows have
# smaller ones, they are read again.
BLURRED = 1e-8
RESOLVED = np.finfo(np.float64).eps / np.sqrt(BLURRED)  # times the width: what reading them twice resolves
SPURIOUS = 0.01  # variance, where 1 is expected: directions with less are rounding
SMALLEST = 1e-250  # of squares, below which smaller ones underflow

Reread = Callable[[Float, Float], Moments]  # reads the rows once more: the moments of (x - mean) @ matrix


@dataclass(frozen=True, eq=False)
class Whitening:
    """The map z = (x - mean) @ matrix.T, and its inverse x = z @ inverse.T + mean."""

    mean: Float  # (d,)
    matrix: Float  # (k, d)
    inverse: Float  # (d, k)
    rank: int  # directions in which the rows vary by more than rounding
    variances: Float  # (rank,) of the principal axes (of the scaled columns, for the -cor methods), falling
    retained: int  # of these directions
    scale: Float  # (d,) standard deviations of the columns, 0 where they are constant
    shrinkage: float = 0.0


def fit_whitening(
    moments: Moments,
    method: str = "pca",
    n_components: int | float | None = None,
    shrinkage: float | str = 0.0,
    reread: Reread | None = None,
) -> Whitening:
    """Return the whitening of rows with the given moments; the parameters are those of `Whitener`.

    For "cholesky", `n_components` are the first so many columns that earlier ones do not predict. With shrinkage, rows
    are white only up to it. `reread` is called as reread(mean, matrix) where the sums cannot resolve the smallest
    directions of the rows x: it reads them once more, and returns the moments of (x - mean) @ matrix.
    """
    check_choice("method", method, METHODS)
    if moments.n < 2:
        raise InputError(f"whitening needs at least 2 rows; got {moments.n}")
    columns = np.sqrt(np.diag(moments.finish()))
    scale = columns = np.where(columns > moments.rounding, columns, 0.0)  # standard deviations, 0 where it is rounding
    if ((columns > 0) & (np.diag(moments.scatter) < SMALLEST)).any():
        raise InputError("the values vary too little to be squared; rescale them")
    if not columns.any():
        raise InputError("all rows are equal, so there is nothing to whiten")
    columns = columns if method.endswith("-cor") else np.ones(moments.d)
    axes, deviations, shrunk = _axes(moments, columns, shrinkage, reread)
    if not len(deviations):
        raise InputError("all rows are equal but for rounding, so there is nothing to whiten")
    k = _retained(deviations**2, n_components)
    if method == "cholesky":
        if isinstance(n_components, float) and n_components < 1:
            raise InputError(f"n_components of cholesky whitening must be an integer or None; got {n_components!r}")
        matrix, inverse = _triangular(axes, deviations, moments.rounding)
        matrix, inverse = matrix[:k], inverse[:, :k]
        k = len(matrix)
    else:
        axes = axes[:, :k] * largest_positive(axes[:, :k])  # so that a fit can be repeated
        matrix, inverse = axes.T / deviations[:k, None], axes * deviations[:k]  # (k, d), (d, k)
    units = np.divide(1.0, columns, out=np.zeros(moments.d), where=columns > 0)  # constant columns have no weight
    matrix, inverse = matrix * units, inverse * columns[:, None]
    if reread is not None and not shrunk and deviations[k - 1] ** 2 < BLURRED * deviations[0] ** 2:
        matrix, inverse, real = _corrected(matrix, inverse, moments.mean, reread, lower=method == "cholesky")
        if not real.all():  # the smallest directions are rounding
            k = len(matrix)
            axes, deviations = axes[:, : len(real)][:, real], deviations[:k]
    if method.startswith("zca"):
        matrix, inverse = axes @ matrix, inverse @ axes.T
    return Whitening(moments.mean, matrix, inverse, len(deviations), deviations**2, k, scale, shrunk)


def check_share(name: str, value: Any) -> None:
    """Check that a value is a positive integer or a share below 1; 1.0 could be either and is refused."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not (0 < value < 1 or (value >= 1 and value == int(value))):
        raise InputError(f"{name} must be a positive integer or a share of the variance below 1; got {value!r}")
    if isinstance(value, float | np.floating) and value == 1:
        raise InputError(
            f"{name} is 1.0, which could mean one component or all of the variance; use 1 for one component, and leave "
            f"{name} out to keep all directions that vary"
        )


def largest_positive(columns: Float) -> Float:
    """Return the signs (k,) that make the largest entry of every column of a (d, k) matrix positive."""
    largest = np.take_along_axis(columns, np.abs(columns).argmax(0)[None], 0)[0]
    return np.where(largest < 0, -1.0, 1.0)


def _axes(
    moments: Moments, columns: Float, shrinkage: float | str, reread: Reread | None
) -> tuple[Float, Float, float]:
    """Principal axes (d, r) and standard deviations (r,), falling, of the rows divided by `columns`; the shrinkage."""
    live = np.where(columns > 0, columns, 1.0)
    scatter = moments.scatter / np.outer(live, live)
    scatter[columns == 0] = scatter[:, columns == 0] = 0
    amount = _shrinkage_of(scatter / moments.n, moments.n, shrinkage)
    if amount > 0:
        values, vectors = eigh(scatter / moments.n)
        values = (1 - amount) * np.maximum(values, 0) + amount * np.trace(scatter) / moments.n / moments.d
        return vectors[:, ::-1], np.sqrt(values[::-1]), amount
    refine = None if reread is None else lambda: _refined(moments, scatter, columns, reread)
    rounding = moments.rounding / live * (columns > 0)
    axes, singular = principal_axes(*scaled_axes(scatter, moments.n, rounding, refine, RESOLVED * moments.d))
    return axes, singular / np.sqrt(moments.n), amount


def _refined(moments: Moments, scatter: Float, columns: Float, reread: Reread) -> Float:
    """A matrix R with R^T R the scatter, which resolves directions that the scatter itself has lost, shape (d, d).

    The rows are read once more in coordinates in which they are nearly round, so that their sums resolve them.
    """
    live = np.where(columns > 0, columns, 1.0)
    unit = np.sqrt(np.diag(scatter))
    unit = np.where(unit > 0, unit, 1.0)
    values, vectors = eigh(scatter / np.outer(unit, unit))
    size = np.sqrt(np.maximum(values, BLURRED * values[-1]))  # (d,)
    to_round = (vectors / size) / (live * unit)[:, None] * (columns > 0)[:, None]  # (d, d)
    values, turned = eigh(reread(moments.mean, to_round).scatter)
    root: Float = np.sqrt(np.maximum(values, 0))[:, None] * (turned.T * size) @ vectors.T * unit
    return root


def _shrinkage_of(covariance: Float, n: int, shrinkage: float | str) -> float:
    """The shrinkage as a number (Chen, Wiesel, Eldar & Hero 2010, eq. 23, for "auto")."""
    if shrinkage == "auto":
        d = len(covariance)
        square, size = np.mean(covariance**2), np.trace(covariance) / d
        wander = (n + 1) * (square - size**2 / d)
        return float(min(1.0, (square + size**2) / wander)) if wander > 0 else 1.0
    if isinstance(shrinkage, str) or not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage must be a number from 0 to 1 or 'auto'; got {shrinkage!r}")
    return float(shrinkage)


def _retained(variances: Float, n_components: int | float | None) -> int:
    """How many directions to keep, given the variances of all that are above rounding."""
    rank = len(variances)
    if n_components is None:
        return rank
    check_share("n_components", n_components)
    if n_components < 1:
        share = np.cumsum(variances) / variances.sum()
        return min(int(np.searchsorted(share, n_components * (1 - 1e-12)) + 1), rank)
    return min(int(n_components), rank)


def _corrected(
    matrix: Float, inverse: Float, mean: Float, reread: Reread, *, lower: bool
) -> tuple[Float, Float, Array]:
    """The same whitening without the correlation that rounding left, which one more pass over the rows measures.

    A triangular matrix stays triangular; any other is changed as little as possible. Also returns which directions
    are real, (k,): those in which the rows hardly vary after all are left out.
    """
    left = reread(mean, matrix.T).finish()
    real = np.diag(left) > SPURIOUS
    left, matrix, inverse = left[real][:, real], matrix[real], inverse[:, real]
    if lower:
        root = linalg.cholesky(left, lower=True)
        return linalg.solve_triangular(root, matrix, lower=True), inverse @ root, real
    values, vectors = eigh(left)
    back = (vectors * np.sqrt(values)) @ vectors.T
    return (vectors / np.sqrt(values)) @ vectors.T @ matrix, inverse @ back, real


def _triangular(axes: Float, deviations: Float, rounding: Float) -> tuple[Float, Float]:
    """Whitening matrix (r, d) and inverse (d, r) in which every column is freed of what earlier columns predict.

    A column that earlier ones predict entirely has no output.
    """
    root = (axes * deviations).T  # (r, d): root.T @ root is the covariance
    sizes = np.linalg.norm(root, axis=0)
    basis: list[Float] = []  # orthonormal directions in the order of the columns (modified Gram-Schmidt)
    chosen: list[int] = []
    left = root.copy()
    for j in range(root.shape[1]):
        size = np.linalg.norm(left[:, j])
        if len(chosen) < len(root) and size > max(1e-10 * sizes[j], 10 * rounding[j]):
            direction = left[:, j] / size
            for earlier in basis:  # once more, since rounding leaves the directions not quite orthogonal
                direction -= (earlier @ direction) * earlier
            direction /= np.linalg.norm(direction)
            basis.append(direction)
            chosen.append(j)
            left[:, j:] -= np.outer(direction, direction @ left[:, j:])
    lower = (np.array(basis) @ root).T  # (d, r)
    matrix = np.zeros((len(basis), root.shape[1]))
    matrix[:, chosen] = linalg.solve_triangular(np.tril(lower[chosen]), np.eye(len(basis)), lower=True)
    return matrix, lower
