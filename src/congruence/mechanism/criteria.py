"""The criteria of mechanistic independence at a point, on arrays: D, M and the orthogonality of blocks.

S is in `sparsity_gap`, H_n in `interactions`. Every function takes one Jacobian j, (m, d), and blocks of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.blocks import Blocks, block_of
from congruence.mechanism.connectivity import TOLERANCE, joined, row_components, unit_rows


def block_norms(j: Float, blocks: Blocks) -> Float:
    """How much each block moves each output: lengths of the parts of the rows, (m, K)."""
    return np.stack([np.linalg.norm(j[:, list(block)], axis=1) for block in blocks], axis=1)


def disjoint_margin(j: Float, blocks: Blocks) -> float:
    """How far a Jacobian is from Type D: 0 where no output is moved by two blocks, at most 1/2.

    The largest product of the norms of two blocks in one output, over the largest squared norm of an output.
    """
    norms = block_norms(j, blocks)
    if norms.shape[1] < 2:
        return 0.0
    two = -np.partition(-norms, 1, axis=1)[:, :2]
    largest = float(np.square(norms).sum(axis=1).max())
    return float((two[:, 0] * two[:, 1]).max() / largest) if largest > 0 else 0.0


def disjoint_from(shares: Float, blocks: Blocks) -> float:
    """The relative tolerance from which on Type D holds, of relative sizes (m, d): 0 where it does for all of them."""
    if len(blocks) < 2:
        return 0.0
    reach = np.stack([shares[:, list(block)].max(axis=1) for block in blocks], axis=1)
    return float((-np.partition(-reach, 1, axis=1)[:, 1]).max())


def overlap(support: Array, blocks: Blocks) -> Float:
    """Outputs that two blocks both reach, over those of the block that reaches fewer, (K, K); 0 is disjoint."""
    reach = np.stack([support[:, list(block)].any(axis=1) for block in blocks], axis=1).astype(np.float64)
    shared = reach.T @ reach
    sizes = np.diag(shared)
    fewer = np.minimum(sizes[:, None], sizes)
    shares: Float = np.divide(shared, fewer, out=np.zeros_like(shared), where=fewer > 0)
    return shares


def containment_margin(support: Array, blocks: Blocks) -> float:
    """How far Type M is from failing: 0 where it fails, at most 1.

    The least share of a column's outputs that a column of another block does not reach, over all ordered pairs. A
    column that reaches nothing is contained in every other, so that M fails. It depends on the basis of each block.
    """
    owner = block_of(blocks)
    across = owner[:, None] != owner
    if not across.any():
        return 1.0
    inside = support.astype(np.float64)
    sizes = inside.sum(axis=0)
    own = sizes[:, None] - inside.T @ inside  # (a, b): outputs of a that b does not reach
    share = np.divide(own, sizes[:, None], out=np.zeros_like(own), where=sizes[:, None] > 0)
    return float(share[across].min())


def nested_parts(support: Array, block: tuple[int, ...]) -> int:
    """Into how many parts the columns of a block split so that none contains one of another part; 1 is M-irreducible.

    It is our interpretation of irreducibility for Type M, and depends on the basis.
    """
    inside = support[:, list(block)]
    pairs = [
        np.array([a, b])
        for a, b in combinations(range(len(block)), 2)
        if not (inside[:, a] & ~inside[:, b]).any() or not (inside[:, b] & ~inside[:, a]).any()
    ]
    return joined(len(block), pairs)[1]


def disjoint_parts(j: Float, block: tuple[int, ...], tolerance: float = TOLERANCE) -> int:
    """Into how many parts with disjoint outputs a block splits, in any basis; 1 is D-irreducible, 0 moves nothing."""
    if len(block) == 1:
        return int(j[:, block[0]].any())
    return row_components(unit_rows(j[:, list(block)])[0], tolerance)[1]


@dataclass(frozen=True)
class Orthogonality:
    """How far the blocks of a Jacobian are from orthogonal to each other."""

    contrast: float  # at least 0, and 0 where they are orthogonal; infinite where directions are lost between blocks
    cosine: float  # the largest between directions of two blocks, from 0 to 1


def block_orthogonality(j: Float, blocks: Blocks, tolerance: float = TOLERANCE) -> Orthogonality:
    """The contrast of independent mechanism analysis for blocks, and the largest cosine between two of them.

    sum_k 1/2 log det(J_k^T J_k) - 1/2 log det(J^T J), which for single latents and as many outputs is that of
    Gresele et al. 2021. It is not changed by a change of basis inside a block. NaN where a block loses a direction.
    """
    scaled, frames, total = _unit_columns(j), np.empty_like(j), 0.0
    for block in map(list, blocks):
        frame, upper = np.linalg.qr(scaled[:, block])
        sizes = np.linalg.svd(upper, compute_uv=False)
        if len(block) > len(scaled) or sizes[-1] <= tolerance:
            return Orthogonality(float("nan"), float("nan"))
        frames[:, block] = frame
        total += float(np.log(sizes).sum())
    products = frames.T @ frames
    cosines = [np.linalg.norm(products[np.ix_(one, two)], ord=2) for one, two in combinations(blocks, 2)]
    cosine = min(float(max(cosines, default=0.0)), 1.0)
    sizes = np.linalg.svd(np.asarray(np.linalg.qr(scaled, mode="r")), compute_uv=False)
    if scaled.shape[1] > len(scaled) or sizes[-1] <= tolerance:
        return Orthogonality(float("inf"), cosine)
    return Orthogonality(max(total - float(np.log(sizes).sum()), 0.0), cosine)


def _unit_columns(j: Float) -> Float:
    """Columns of length 1, which adds the same to both terms of the contrast; zeros stay."""
    lengths = np.linalg.norm(j, axis=0)
    return j / np.where(lengths > 0, lengths, 1.0)


def lost_directions(j: Float, tolerance: float = TOLERANCE) -> int:
    """How many directions of the latents a Jacobian sends to zero; 0 is locally injective."""
    scaled = _unit_columns(j)
    sizes = np.linalg.svd(np.asarray(np.linalg.qr(scaled, mode="r")), compute_uv=False)
    return int(j.shape[1] - (sizes > tolerance * max(float(sizes[0]), 1e-300)).sum())
