"""Where each block of latents acts: how strongly it moves every output, and how much two blocks overlap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.blocks import Blocks, read_blocks, write_blocks
from congruence.mechanism.derivatives import jacobian_chunks, opened
from congruence.mechanism.graphs import action_graph
from congruence.mechanism.supports import RTOL


@dataclass(frozen=True, eq=False)
class BlockProfile:
    """The effect of each block on each output, over a sample of points."""

    blocks: Blocks
    effects: Float = field(repr=False)  # (K, m) how far each block moves each output, root mean square over points
    overlap: Float  # (K, K) from 0, where two blocks share no output, to 1, where they move all of them alike
    shared: Array  # (K, K) outputs that both move at some point; on the diagonal those that the block moves
    near: Float  # (d, d) the same as `overlap`, between single latents
    graph: Array  # (d, d) which latents move a common output at some point: G_D
    output_shape: tuple[int, ...]
    points: int

    @property
    def names(self) -> tuple[str, ...]:
        """What each block is called: its latents."""
        return tuple(f"z{write_blocks([block])}" for block in self.blocks)

    def to_dict(self) -> dict[str, Any]:
        """Overlaps and the graph, without single outputs."""
        return {
            "blocks": [list(block) for block in self.blocks],
            "overlap": self.overlap.tolist(),
            "shared": self.shared.tolist(),
            "graph": self.graph.tolist(),
            "outputs": int(np.prod(self.output_shape)),
            "points": self.points,
        }


def profile_blocks(
    decoder: Any, z: Any, blocks: Any = None, *, rtol: float = RTOL, chunk: int | None = None, device: str = "auto"
) -> BlockProfile:
    """Measure what every block of latents moves.

    The overlap of blocks i and j at a point is the sum over outputs of |J_i| |J_j|, the lengths of the output's
    derivatives by either block, over the root of the sums of their squares: a compositional contrast of the pair that
    does not change with the units of the latents. It is averaged over points.

    Parameters
    ----------
    decoder, z, chunk, device
        As in `jacobians`.
    blocks : as in `read_blocks`
        Each latent by itself unless given.
    rtol : float
        Of the largest effect of a latent: what is below counts as none.
    """
    probed = opened(decoder, z, device)
    d, m, r = probed.dimension, probed.outputs, len(probed.z)
    partition = read_blocks(blocks, d)
    effects, moves = np.zeros((len(partition), m)), np.zeros((len(partition), m), dtype=bool)
    overlap, near, graph = np.zeros((len(partition),) * 2), np.zeros((d, d)), np.eye(d, dtype=bool)
    for jacobian in jacobian_chunks(probed, chunk=chunk):
        squares = np.square(jacobian)
        lengths = np.sqrt(np.stack([squares[:, :, list(block)].sum(2) for block in partition], axis=1))  # (., K, m)
        effects += np.square(lengths).sum(0)
        moves |= (lengths > rtol * lengths.max(axis=2, keepdims=True)).any(0)
        overlap += _cosines(lengths).sum(0)
        near += _cosines(np.abs(jacobian).transpose(0, 2, 1)).sum(0)
        graph |= action_graph(jacobian, rtol=rtol)
    count = moves.astype(np.float64)
    return BlockProfile(
        blocks=partition,
        effects=np.sqrt(effects / r),
        overlap=overlap / r,
        shared=np.rint(count @ count.T).astype(int),
        near=near / r,
        graph=graph,
        output_shape=probed.output_shape,
        points=r,
    )


def _cosines(lengths: Float) -> Float:
    """Cosines between rows of (., K, m) that are not negative; 0 for rows of zeros."""
    size = np.linalg.norm(lengths, axis=2, keepdims=True)
    unit = lengths / np.where(size > 0, size, 1.0)
    return unit @ unit.transpose(0, 2, 1)
