"""Orthogonal matrices, of numpy on the CPU or of torch on any device: drawn, nearest, and reached by a small turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, is_tensor, library
from congruence.maps.algebra import eigh, one_thread, svd

SQUARE_LOSES = 1e-8  # ratio of eigenvalues of a square below which its root is taken from the matrix itself
SCHULZ_STEPS = 48  # of which every eighth is looked at: a look costs a GPU more than the steps


def random_rotation(k: int, rng: np.random.Generator) -> Float:
    """A rotation drawn uniformly from all of them, (k, k)."""
    with one_thread(k):
        q, r = linalg.qr(rng.normal(size=(k, k)))
    return np.asarray(q * np.sign(np.diag(r)))


def polar(matrix: Any) -> Any:
    """The orthogonal matrix nearest to a square `matrix`.

    On the CPU from the eigenvectors of its square, which is faster than a singular value decomposition, polished by one
    Newton-Schulz step; from a singular value decomposition where the square has lost too much. On a GPU, where
    decompositions are slow and products fast, by Newton-Schulz steps alone.
    """
    if is_tensor(matrix):
        return _schulz(matrix)
    values, vectors = eigh(matrix @ matrix.T)
    if values[0] < SQUARE_LOSES * values[-1]:
        u, _, vt = svd(matrix)
        return u @ vt
    near = (vectors / np.sqrt(values)) @ vectors.T @ matrix
    return 1.5 * near - 0.5 * near @ near.T @ near


def _schulz(matrix: Any) -> Any:
    import torch

    size = abs(matrix)
    near = matrix / (torch.amax(size.sum(0)) * torch.amax(size.sum(1))).sqrt()  # no singular value is above 1
    one = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for step in range(SCHULZ_STEPS):
        square = near @ near.T
        if step % 8 == 7 and bool(torch.amax(abs(square - one)) < 1e-13 * len(matrix)):
            return near
        near = 1.5 * near - 0.5 * square @ near
    u, _, vt = torch.linalg.svd(matrix)
    return u @ vt


def cayley(skew: Any) -> Any:
    """A rotation that agrees with exp(skew) to second order."""
    xp = library(skew)
    one = xp.diag(xp.ones_like(skew[0]))
    return xp.linalg.solve(one - skew / 2, one + skew / 2)
