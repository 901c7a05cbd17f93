"""Where each block of latents acts: the graph of latents that act on a common output, and the overlap of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.mechanism._blocks import Blocks, connected_blocks, read_blocks, write_blocks
from congruence.mechanism._criteria import RTOL
from congruence.mechanism._matroid import scale_to_unit
from congruence.mechanism.derivatives import jacobian_chunks, open_decoder
from congruence.mechanism.parts import as_jacobians, finest_disjoint
from congruence.result import Record


def action_graph(jacobian: Any, basis: Any = None, *, rtol: float = RTOL) -> Array:
    """Find which directions act on a common output: G_D of Matthes et al. 2026.

    A Jacobian is (m, d), or (r, m, d) at several points: then an edge at any of them is an edge. The directions are the
    columns of `basis` (d, k), by default the coordinates. A direction acts on an output if its derivative is above
    `rtol` times the direction's largest one. The result is symmetric, (k, k) bool; the diagonal marks directions that
    act at all.
    """
    stack = as_jacobians(jacobian)
    size = np.abs(stack if basis is None else stack @ to_numpy(basis).astype(np.float64))
    support = size > rtol * size.max(axis=(0, 1), keepdims=True)  # (r, m, k); units of latents do not matter
    flat = support.reshape(-1, support.shape[2]).astype(np.float64)
    return np.asarray(flat.T @ flat > 0)


@dataclass(frozen=True)
class ComponentGap:
    """How many components G_D has at most, over aligned bases (each vector in one block) and over all others.

    `gap` is positive exactly if the blocks act on disjoint outputs (Type D) and every latent acts: aligned bases then
    have one component more than any other basis.
    """

    aligned: int
    misaligned: int | None  # None if there is only one block: every basis is aligned

    @property
    def gap(self) -> int | None:
        """`aligned` minus `misaligned`; None if there is only one block."""
        return None if self.misaligned is None else self.aligned - self.misaligned


def component_gap(jacobian: Any, blocks: Any, *, rtol: float = RTOL) -> ComponentGap:
    """Find the largest number of components of G_D over aligned and over misaligned bases, at one point; exact.

    The finest Type-D parts of each block by itself are joined if their outputs intersect: these are the components of
    the best aligned basis. The best of all bases has one component for each finest Type-D part of all latents. If both
    numbers are equal and each part lies in one block, a misaligned vector joins two parts, and one is lost.

    The Jacobian (m, d) must have full column rank; entries up to `rtol` times the largest count as zero.
    """
    matrix = as_jacobians(jacobian)[0]
    d = matrix.shape[1]
    partition = read_blocks(blocks, d)
    whole = finest_disjoint(matrix, rtol=rtol)
    if whole.idle.shape[1]:
        raise InputError(f"jacobian must have full column rank {d}; got rank {d - whole.idle.shape[1]}")
    inside = []
    for block in partition:
        basis = np.eye(d)[:, list(block)]
        inside += [basis @ part for part in finest_disjoint(matrix[:, list(block)], rtol=rtol).parts]
    effects = np.stack([np.abs(matrix @ part).max(axis=1) for part in inside], axis=1)  # (m, parts)
    support = (effects > rtol * effects.max(axis=0)).astype(np.float64)
    aligned = len(connected_blocks(support.T @ support > 0))
    if len(partition) == 1:
        return ComponentGap(aligned, None)
    if aligned < len(whole.parts):
        return ComponentGap(aligned, len(whole.parts))
    sizes = np.array([[np.abs(part[list(block)]).max() for block in partition] for part in whole.parts])
    contained = ((sizes > rtol * sizes.max(axis=1, keepdims=True)).sum(axis=1) == 1).all()
    return ComponentGap(aligned, aligned - 1 if contained else aligned)


@dataclass(frozen=True, eq=False)
class BlockProfile(Record):
    """The effect of each block on each output, over a sample of points."""

    blocks: Blocks
    effects: Float = field(repr=False)  # (K, m) how far each block moves each output, root mean square over points
    overlap: Float  # (K, K) from 0 if two blocks share no output to 1 if they move all outputs equally
    shared: Array  # (K, K) outputs that both move at some point; on the diagonal those that the block moves
    near: Float  # (d, d) the same as `overlap`, between single latents
    graph: Array  # (d, d) which latents move a common output at some point: G_D
    output_shape: tuple[int, ...]
    points: int

    NAMES = ("blocks", "overlap", "shared", "graph", "outputs", "points")

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return int(np.prod(self.output_shape))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the blocks, by their latents."""
        return tuple(f"z{write_blocks([block])}" for block in self.blocks)


def profile_blocks(
    decoder: Any, z: Any, blocks: Any = None, *, rtol: float = RTOL, chunk: int | None = None, device: str = "auto"
) -> BlockProfile:
    """Measure the effect of every block of latents on every output.

    The overlap of blocks i and j at a point is the sum over outputs of |J_i| |J_j|, the lengths of the output's
    derivatives by either block, over the root of the sums of their squares: a compositional contrast of the pair that
    does not depend on the units of the latents. It is averaged over points.

    Parameters
    ----------
    decoder : torch module or function
        As in `jacobians`.
    z : (r, d)
        Points.
    blocks : list of lists of latents, or text
        Such as [[0, 1], [2]] or "0-1,2"; by default each latent is a block.
    rtol : float
        Effects up to this share of the largest effect of a latent count as zero.
    chunk : as in `jacobians`
    device : as in `jacobians`
    """
    prepared = open_decoder(decoder, z, device)
    d, m, r = prepared.dimension, prepared.outputs, len(prepared.z)
    partition = read_blocks(blocks, d)
    effects, moves = np.zeros((len(partition), m)), np.zeros((len(partition), m), dtype=bool)
    overlap, near, graph = np.zeros((len(partition),) * 2), np.zeros((d, d)), np.eye(d, dtype=bool)
    for jacobian in jacobian_chunks(prepared, chunk=chunk):
        squares = np.square(jacobian)
        lengths = np.sqrt(np.stack([squares[:, :, list(block)].sum(2) for block in partition], axis=1))  # (., K, m)
        effects += np.square(lengths).sum(0)
        moves |= (lengths > rtol * lengths.max(axis=2, keepdims=True)).any(0)
        overlap += _cosines(lengths).sum(0)
        near += _cosines(np.abs(jacobian).transpose(0, 2, 1)).sum(0)
        graph |= action_graph(jacobian, rtol=rtol)
    number = moves.astype(np.float64)
    return BlockProfile(
        blocks=partition,
        effects=np.sqrt(effects / r),
        overlap=overlap / r,
        shared=np.rint(number @ number.T).astype(int),
        near=near / r,
        graph=graph,
        output_shape=prepared.output_shape,
        points=r,
    )


def _cosines(lengths: Float) -> Float:
    """Cosines between non-negative rows of (., K, m); 0 for rows of zeros."""
    unit = scale_to_unit(lengths, 2)
    return unit @ unit.transpose(0, 2, 1)
