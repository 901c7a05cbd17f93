"""Matrix decompositions with a fallback where LAPACK fails, and with a suitable number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, single_threaded, thread_pools

LARGE = 1000  # from this width on a decomposition is faster with several threads
FAR = 200  # from this width on a decomposition is worth the copy to a GPU

_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def decomposing_on(device: str) -> Iterator[None]:
    """Send decompositions of wide matrices to a GPU inside the block, if `device` is one: it is ten times faster."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def _there(decomposition: str, matrix: Float, **options: Any) -> tuple[Float, ...]:
    """A decomposition of `torch.linalg` on the device."""
    import torch

    on_device = torch.as_tensor(matrix, dtype=torch.float64, device=_device.get())
    return tuple(part.cpu().numpy() for part in getattr(torch.linalg, decomposition)(on_device, **options))


def _is_far(matrix: Float) -> bool:
    return _device.get() != "cpu" and min(matrix.shape) >= FAR


def one_thread(width: int) -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the block, for matrices of up to `LARGE` columns.

    numpy and scipy bring a pool of threads each. Where small decompositions and products alternate, the pools wait for
    each other: a 50 x 50 singular value decomposition after a product was seen to take 46 ms instead of 1.
    """
    return single_threaded() if width <= LARGE else nullcontext()


def blas_threads() -> int:
    """The number of threads that BLAS uses now, as the user, the environment or the machine allows."""
    return max((pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"), default=1)


def svd(matrix: Float, *, full_matrices: bool = True) -> tuple[Float, Float, Float]:
    """The singular value decomposition u, s, vt.

    LAPACK's divide and conquer is the fastest, but now and then fails to converge where many singular values are
    equal (canonical correlations that are all 1, say); the QR iteration, slower, does not.
    """
    if 0 in matrix.shape:  # not every scipy takes an empty matrix
        m, n = matrix.shape
        return np.eye(m, m if full_matrices else 0), np.zeros(0), np.eye(n if full_matrices else 0, n)
    if _is_far(matrix):
        u, s, vt = _there("svd", matrix, full_matrices=full_matrices)
        return u, s, vt
    with one_thread(max(matrix.shape)):
        try:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices)
        except np.linalg.LinAlgError:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices, lapack_driver="gesvd")
    return u, s, vt


def eigh(matrix: Float) -> tuple[Float, Float]:
    """The eigenvalues, rising, and eigenvectors (as columns) of a symmetric matrix."""
    if _is_far(matrix):
        values, vectors = _there("eigh", matrix)
        return values, vectors
    with one_thread(len(matrix)):
        values, vectors = linalg.eigh(matrix)
    return values, vectors


def complete_rotation(u: Float, v: Float) -> Float:
    """The rotation that maps the columns of u to those of v, both (d, k), and is otherwise nearest to the identity.

    Directions orthogonal to both are fixed. Inside the span of both, the complement of u is mapped to that of v by the
    orthogonal polar factor.
    """
    d, k = u.shape
    if k == d:
        return u @ v.T
    span = np.eye(d) if 2 * k >= d else linalg.orth(np.hstack([u, v]), rcond=1e-10)  # (d, m)
    rest = [_complement(span.T @ side) for side in (u, v)]  # each (m, m - k)
    a, _, bt = svd(rest[0].T @ rest[1])
    inside = (span.T @ u) @ (span.T @ v).T + rest[0] @ (a @ bt) @ rest[1].T
    return np.eye(d) + span @ (inside - np.eye(span.shape[1])) @ span.T


def _complement(basis: Float) -> Float:
    """Orthonormal columns orthogonal to those of `basis`, shape (m, m - k)."""
    if basis.shape[1] == 0:
        return np.eye(len(basis))
    return np.asarray(linalg.qr(basis)[0][:, basis.shape[1] :])
