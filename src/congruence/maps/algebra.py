"""Matrix decompositions that do not give up, and do not fight over the processor."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float

LARGE = 1000  # from this width on a decomposition gains from several threads


def one_thread(width: int) -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the block, for matrices of up to `LARGE` columns.

    numpy and scipy bring a pool of threads each. Where small decompositions and products alternate, the pools wait for
    each other: a 50 x 50 singular value decomposition after a product was seen to take 46 ms instead of 1.
    """
    return _controller().limit(limits=1, user_api="blas") if width <= LARGE else nullcontext()


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def svd(matrix: Float, *, full_matrices: bool = True) -> tuple[Float, Float, Float]:
    """The singular value decomposition u, s, vt.

    LAPACK's divide and conquer is the fastest, but now and then fails to converge where many singular values are
    equal (canonical correlations that are all 1, say); the QR iteration, slower, does not.
    """
    if 0 in matrix.shape:  # not every scipy takes an empty matrix
        m, n = matrix.shape
        return np.eye(m, m if full_matrices else 0), np.zeros(0), np.eye(n if full_matrices else 0, n)
    with one_thread(max(matrix.shape)):
        try:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices)
        except np.linalg.LinAlgError:
            u, s, vt = linalg.svd(matrix, full_matrices=full_matrices, lapack_driver="gesvd")
    return u, s, vt


def eigh(matrix: Float) -> tuple[Float, Float]:
    """The eigenvalues, rising, and eigenvectors (as columns) of a symmetric matrix."""
    with one_thread(len(matrix)):
        values, vectors = linalg.eigh(matrix)
    return values, vectors
