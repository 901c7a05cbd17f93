"""The graph G_D of latents that act on a common output, its components, and the gap of their number between bases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.mechanism.blocks import Blocks, read_blocks
from congruence.mechanism.supports import RTOL


@dataclass(frozen=True)
class ComponentGap:
    """How many components G_D has at most, over bases that keep to the blocks and over all others.

    `gap` is positive exactly where the blocks act on disjoint outputs (Type D) and every latent acts: bases that keep
    to the blocks then have one component more than any other can reach.
    """

    aligned: int
    misaligned: int | None  # None where there is one block only: every basis keeps to it

    @property
    def gap(self) -> int | None:
        """The first less the second; None where there is nothing to compare with."""
        return None if self.misaligned is None else self.aligned - self.misaligned


def action_graph(jacobian: Any, basis: Any = None, *, rtol: float = RTOL) -> Array:
    """Which directions act on a common output: G_D of Matthes et al. 2026.

    Parameters
    ----------
    jacobian : (m, d) or (r, m, d)
        At one point, or at several: then an edge at any of them is an edge.
    basis : (d, k), optional
        Directions as columns, the coordinates unless given.
    rtol : float
        An output counts for a direction where its derivative is above this share of the direction's largest one.

    Returns
    -------
    (k, k) array of bool
        Symmetric; the diagonal marks the directions that act at all.
    """
    stack = as_stack(jacobian)
    moved = stack if basis is None else stack @ to_numpy(basis).astype(np.float64)
    size = np.abs(moved)
    largest = size.max(axis=(0, 1), keepdims=True)  # per direction: units of latents do not matter
    support = size > rtol * largest  # (r, m, k)
    flat = support.reshape(-1, support.shape[2]).astype(np.float64)
    edges: Array = flat.T @ flat > 0
    return edges


def connected(adjacency: Any) -> Blocks:
    """Connected components of a symmetric (k, k) adjacency, each sorted, ordered by their first member."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(np.asarray(adjacency, dtype=np.int8)), directed=False)
    return grouped(label, count)


def grouped(label: Any, count: int | None = None) -> Blocks:
    """The members of each label, ordered by the first member; labels below 0 are left out."""
    label = np.asarray(label)
    found = range(count) if count is not None else np.unique(label[label >= 0])
    parts = (tuple(int(i) for i in np.flatnonzero(label == k)) for k in found)
    return tuple(sorted(part for part in parts if part))


def join_partitions(partitions: Iterable[Sequence[Sequence[int]]], d: int) -> Blocks:
    """The finest partition of range(d) that is coarser than every one of those given."""
    adjacency = np.eye(d, dtype=bool)
    for partition in partitions:
        for part in partition:
            adjacency[np.ix_(list(part), list(part))] = True
    return connected(adjacency)


def component_gap(jacobian: Any, blocks: Any, *, rtol: float = RTOL) -> ComponentGap:
    """The largest number of components of G_D over aligned and over misaligned bases, at one point; exact, no search.

    The finest Type-D parts of each block by itself are joined where their outputs meet: that is what the best aligned
    basis has. The best of all bases has one component for each finest Type-D part of all latents. Where these are the
    same and each part lies in one block, a misaligned vector joins two parts, and one is lost.

    Parameters
    ----------
    jacobian : (m, d)
        Of full column rank.
    blocks : as in `read_blocks`
    """
    from congruence.mechanism.disjoint_parts import finest_disjoint

    matrix = as_stack(jacobian)[0]
    partition = read_blocks(blocks, matrix.shape[1])
    whole = finest_disjoint(matrix, rtol=rtol)
    if whole.idle.shape[1]:
        raise InputError(
            f"the Jacobian has rank {matrix.shape[1] - whole.idle.shape[1]} of {matrix.shape[1]}; components are "
            "counted where every direction acts"
        )
    inside = []
    for block in partition:
        basis = np.eye(matrix.shape[1])[:, list(block)]
        inside += [basis @ part for part in finest_disjoint(matrix[:, list(block)], rtol=rtol).parts]
    aligned = _meeting(matrix, inside, rtol)
    if len(partition) == 1:
        return ComponentGap(aligned, None)
    if aligned < len(whole.parts):
        return ComponentGap(aligned, len(whole.parts))
    contained = all(len(_touched(part, partition, rtol)) == 1 for part in whole.parts)
    return ComponentGap(aligned, aligned - 1 if contained else aligned)


def as_stack(jacobian: Any) -> Float:
    """Jacobians as (r, m, d) float64, one or several points; refuses what is not."""
    stack = to_numpy(jacobian).astype(np.float64)
    if stack.ndim == 2:
        stack = stack[None]
    if stack.ndim != 3 or 0 in stack.shape:
        raise InputError(f"jacobian must have shape (m, d) or (r, m, d), with at least one of each, not {stack.shape}")
    if not np.isfinite(stack).all():
        raise InputError("jacobian has NaN or infinite values")
    return stack


def _meeting(matrix: Float, parts: list[Float], rtol: float) -> int:
    """Components of parts that are joined where they act on a common output."""
    effects = np.stack([np.abs(matrix @ part).max(axis=1) for part in parts], axis=1)  # (m, parts)
    support = (effects > rtol * effects.max(axis=0)).astype(np.float64)
    return len(connected(support.T @ support > 0))


def _touched(part: Float, partition: Blocks, rtol: float) -> list[int]:
    """The blocks in which a part has something."""
    size = np.array([np.abs(part[list(block)]).max() for block in partition])
    return [int(k) for k in np.flatnonzero(size > rtol * size.max())]
