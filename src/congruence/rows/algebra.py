"""Matrix decompositions that are safe where LAPACK fails, and principal axes of rows of any conditioning.

Small matrices are decomposed on one thread, and wide ones on a GPU inside `decomposing_on`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import reduce
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, single_threaded, thread_pools

LARGE = 1000  # from this width on a decomposition is faster with several threads
FAR = 200  # from this width on a decomposition is worth the copy to a GPU
# Below this ratio of eigenvalues a scatter matrix, which squares singular values, no longer resolves them.
DOUBTFUL = 1e-11
SQUARE_LOSES = 1e-8  # ratio of eigenvalues of a square below which its root is taken from the matrix itself
ROUGHLY = 1e-13  # the same for a rough root
SCHULZ_STEPS = 48  # convergence is checked in every eighth, since on a GPU a check takes longer than the steps
CLEAR = 1e-7  # and above this one it resolves them to all digits that matter

_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def decomposing_on(device: str) -> Iterator[None]:
    """Send decompositions of wide matrices to a GPU inside the block, if `device` is one, which is ten times faster."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def _decompose_on_device(decomposition: str, matrix: Float, **options: Any) -> tuple[Float, ...]:
    """A decomposition of `torch.linalg` on the device."""
    import torch

    on_device = torch.as_tensor(matrix, dtype=torch.float64, device=_device.get())
    return tuple(part.cpu().numpy() for part in getattr(torch.linalg, decomposition)(on_device, **options))


def _use_device(matrix: Float) -> bool:
    return _device.get() != "cpu" and min(matrix.shape) >= FAR


def one_thread(width: int) -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the block, for matrices of up to `LARGE` columns.

    numpy and scipy have a pool of threads each. Where small decompositions and products alternate, the pools wait for
    each other: a 50 x 50 singular value decomposition after a product was seen to take 46 ms instead of 1.
    """
    return single_threaded() if width <= LARGE else nullcontext()


def blas_threads() -> int:
    """The number of threads that BLAS uses now, as the user, the environment or the machine allows."""
    return max((pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"), default=1)


def svd(matrix: Float, *, full_matrices: bool = True) -> tuple[Float, Float, Float]:
    """The singular value decomposition u, s, vt.

    LAPACK's divide and conquer is the fastest, but sometimes fails to converge where many singular values are
    equal (canonical correlations that are all 1, say); the QR iteration, slower, does not.
    """
    if 0 in matrix.shape:  # not every scipy takes an empty matrix
        m, n = matrix.shape
        return np.eye(m, m if full_matrices else 0), np.zeros(0), np.eye(n if full_matrices else 0, n)
    if _use_device(matrix):
        u, s, vt = _decompose_on_device("svd", matrix, full_matrices=full_matrices)
        return u, s, vt
    with one_thread(max(matrix.shape)):
        try:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices)
        except np.linalg.LinAlgError:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices, lapack_driver="gesvd")
    return u, s, vt


def leading_pairs(matrix: Float, k: int) -> tuple[Float, Float]:
    """The singular vectors u, (m, k), and v, (n, k), of the k largest singular values."""
    if 3 * k < min(matrix.shape):
        square = multiply(matrix, matrix.T)
        if _use_device(matrix):
            values, vectors = (part[..., -k:] for part in eigh(square))
        else:
            with one_thread(len(square)):
                top = [len(square) - k, len(square) - 1]
                values, vectors = linalg.eigh(square, subset_by_index=top, check_finite=False)
        if values[0] > SQUARE_LOSES * values[-1]:
            u = vectors[:, ::-1]
            return u, matrix.T @ u / np.sqrt(values[::-1])
    u, _, vt = svd(matrix, full_matrices=False)
    return u[:, :k], vt[:k].T


def eigh(matrix: Float) -> tuple[Float, Float]:
    """The eigenvalues, rising, and eigenvectors (as columns) of a symmetric matrix."""
    if _use_device(matrix):
        values, vectors = _decompose_on_device("eigh", matrix)
        return values, vectors
    with one_thread(len(matrix)):
        values, vectors = linalg.eigh(matrix)
    return values, vectors


def multiply(*factors: Float) -> Float:
    """The product of matrices, from left to right."""
    if not _use_device(factors[0]):
        with one_thread(max(factors[0].shape)):
            return reduce(np.matmul, factors)
    import torch

    there = (torch.as_tensor(factor, dtype=torch.float64, device=_device.get()) for factor in factors)
    return np.asarray(reduce(torch.matmul, there).cpu().numpy())


def solve_factored(factor: Float, right: Float) -> Float:
    """The solution of factor.T @ factor @ x = right, for an upper triangular factor (of Cholesky)."""
    if not _use_device(factor):
        with one_thread(len(factor)):
            return np.asarray(linalg.cho_solve((factor, False), right, check_finite=False))
    import torch

    there = (torch.as_tensor(a, dtype=torch.float64, device=_device.get()) for a in (right, factor))
    return np.asarray(torch.cholesky_solve(*there, upper=True).cpu().numpy())


def polar(matrix: Float, *, rough: bool = False) -> Float | None:
    """The orthogonal matrix nearest to a square matrix; None where the square of the matrix does not determine it.

    From the eigenvectors of the square and one Newton-Schulz step, which is faster than a singular value decomposition;
    by Newton-Schulz steps alone on a GPU, where products are fast and decompositions slow. A rough one may be a
    thousandth of a radian off in directions that hold less than 1e-6 of the largest singular value.
    """
    if _use_device(matrix):
        import torch

        near = newton_schulz(torch.as_tensor(matrix, dtype=torch.float64, device=_device.get()))
        return None if near is None else np.asarray(near.cpu().numpy())
    matrix = matrix / (np.abs(matrix).max(initial=0) or 1.0)  # so that its square neither overflows nor underflows
    with one_thread(len(matrix)):
        values, vectors = linalg.eigh(matrix @ matrix.T)
        if not values[0] > (ROUGHLY if rough else SQUARE_LOSES) * values[-1]:
            return None
        near = (vectors / np.sqrt(values)) @ (vectors.T @ matrix)
        return np.asarray(1.5 * near - 0.5 * near @ (near.T @ near))


def newton_schulz(matrix: Any) -> Any:
    """The orthogonal polar factor of a square tensor; None where the steps do not converge."""
    import torch

    size = abs(matrix)
    near = matrix / (torch.amax(size.sum(0)) * torch.amax(size.sum(1))).sqrt()  # no singular value is above 1
    one = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for step in range(SCHULZ_STEPS):
        square = near @ near.T
        if step % 8 == 7 and bool(torch.amax(abs(square - one)) < 1e-13 * len(matrix)):
            return near
        near = 1.5 * near - 0.5 * square @ near
    return None


def complete_rotation(u: Float, v: Float) -> Float:
    """The rotation that maps the columns of u to those of v, both (d, k), and is otherwise nearest to the identity.

    Directions orthogonal to both are fixed. Inside the span of both, the complement of u is mapped to that of v by the
    orthogonal polar factor.
    """
    d, k = u.shape
    if k == d:
        return u @ v.T
    if k == 0:  # not every scipy takes an empty matrix
        return np.eye(d)
    span = np.eye(d) if 2 * k >= d else linalg.orth(np.hstack([u, v]), rcond=1e-10)  # (d, m)
    rest = [_complement(span.T @ side) for side in (u, v)]  # each (m, m - k)
    a, _, bt = svd(rest[0].T @ rest[1])
    inside = (span.T @ u) @ (span.T @ v).T + rest[0] @ (a @ bt) @ rest[1].T
    return np.eye(d) + span @ (inside - np.eye(span.shape[1])) @ span.T


def _complement(basis: Float) -> Float:
    """Orthonormal columns orthogonal to those of `basis`, shape (m, m - k)."""
    return np.asarray(linalg.qr(basis)[0][:, basis.shape[1] :])


def in_rounding_units(scatter: Float, rounding: Float) -> tuple[Float, Float]:
    """Units (d,), the rounding of every dimension, and the scatter matrix (d, d) in these units."""
    unit = np.where(rounding > 0, rounding, rounding.min(where=rounding > 0, initial=1.0))
    return unit, scatter / np.outer(unit, unit)


def noise_level(n: int, d: int) -> float:
    """About the largest singular value of an n x d matrix of noise of unit size."""
    return float(np.sqrt(n) + np.sqrt(d))


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
    unit, scaled = in_rounding_units(scatter, rounding)
    values, vectors = eigh(scaled)
    blurred = values[0] < DOUBTFUL * values[-1] or values[-1] <= 0
    if blurred and triangle is not None:
        _, singular, vectors_t = svd(triangle() / unit, full_matrices=False)
    else:
        singular, vectors_t = np.sqrt(np.maximum(values, 0)), vectors.T
    resolution = resolution or np.finfo(np.float64).eps * max(n, d)
    if blurred and triangle is None:
        resolution = np.sqrt(DOUBTFUL)
    keep = singular > max(noise_level(n, d), resolution * singular.max(initial=0))
    return unit, singular[keep], vectors_t[keep]


def principal_axes(unit: Float, singular: Float, vectors_t: Float) -> tuple[Float, Float]:
    """Principal axes (d, r) and singular values (r,), falling, of rows described in the units of `scaled_axes`.

    Singular values below the rounding of the largest (next to a value of 1e20) are left out.
    """
    if not len(singular):
        return np.zeros((len(unit), 0)), np.zeros(0)
    factor = singular[:, None] * vectors_t * unit  # (r, d): factor.T @ factor is the scatter without rounding
    values, vectors = eigh(factor @ factor.T)  # rising; several times faster than a singular value decomposition
    if values[0] > CLEAR * values[-1]:
        singular = np.sqrt(values[::-1])
        return (factor.T @ vectors[:, ::-1]) / singular, singular
    _, singular, vectors_t = svd(factor, full_matrices=False)
    resolved = singular > np.finfo(float).eps * singular[0]
    return vectors_t[resolved].T, singular[resolved]
