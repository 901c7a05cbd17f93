"""Matrices with orthonormal columns (or rows, where there are fewer): drawn, kept, and moved along; many at once.

The last two dimensions are the matrix. `tangent` removes what a gradient wants to do to the singular values, and
`nearest_orthogonal` is the polar retraction: after any step of any optimiser it takes the nearest such matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

ENOUGH = 1e-4  # largest entry of Z A Z - 1 from which one more step, on the matrix itself, ends at rounding
ROUNDS = 7  # of Newton-Schulz; a step of a training needs 3 to 5, and what needs more has lost digits in its square


def draw_orthogonal(widths: Sequence[int], seed: int) -> list[Any]:
    """Draw a stack of layers uniformly, one matrix (out, in) in float32 for each pair of neighbouring widths."""
    rng = np.random.default_rng(seed)
    stack = []
    for inside, out in pairwise(widths):
        q, r = np.linalg.qr(rng.normal(size=(max(inside, out), min(inside, out))))
        q = q * np.sign(np.diag(r))  # without the signs it would not be uniform
        stack.append(np.ascontiguousarray(q if out >= inside else q.T).astype(np.float32))
    return stack


def tangent(weight: Any, gradient: Any) -> Any:
    """The part of a gradient that keeps a matrix orthonormal to first order: G - W sym(W^T G) for a tall W."""
    if weight.shape[-2] < weight.shape[-1]:
        return tangent(weight.mT, gradient.mT).mT
    inner = weight.mT @ gradient
    return gradient - weight @ ((inner + inner.mT) / 2)


def nearest_orthogonal(weight: Any) -> Any:
    """The matrix with orthonormal columns (or rows) nearest to each of many: W (W^T W)^(-1/2) for a tall W.

    The root is found by coupled Newton-Schulz steps, which are products and so are fast for many small matrices on any
    device; where they do not soon come to rest, because a matrix is far from orthogonal, by singular values.
    """
    import torch

    if weight.shape[-2] < weight.shape[-1]:
        return nearest_orthogonal(weight.mT).mT
    square = weight.mT @ weight
    size = square.abs().sum(-1).amax(-1)[..., None, None].clamp(min=torch.finfo(weight.dtype).tiny)
    one = torch.eye(square.shape[-1], dtype=weight.dtype, device=weight.device)
    size = torch.where(size > 1.9, size / 1.9, torch.ones_like(size))  # eigenvalues below 2, or they do not converge
    root, inverse = square / size, one.expand_as(square)
    for _ in range(ROUNDS):
        product = inverse @ root
        done = (product - one).abs().amax((-1, -2), keepdim=True) < ENOUGH
        if bool(done.all()):
            return _polished(weight @ (inverse / size.sqrt()), one)
        half = torch.where(done, one, 1.5 * one - 0.5 * product)  # none depends on how long others take
        root, inverse = root @ half, half @ inverse
    u, _, vt = torch.linalg.svd(weight, full_matrices=False)
    return u @ vt


def _polished(weight: Any, one: Any) -> Any:
    """One more step on the matrix itself: its error does not depend on what the square has lost to rounding."""
    return weight @ (1.5 * one - 0.5 * (weight.mT @ weight))
