"""One pass over the points: numbers of each Jacobian for D, M, orthogonality and irreducibility, and then for S.

Jacobians are computed a few at a time and not kept, except those of the few points at which the sparsity gap is
computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.probed import Probed
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.connectivity import unit_rows
from congruence.mechanism.criteria import (
    block_orthogonality,
    containment_margin,
    disjoint_from,
    disjoint_margin,
    disjoint_parts,
    lost_directions,
    nested_parts,
    overlap,
)
from congruence.mechanism.derivatives import jacobian_chunks
from congruence.mechanism.elementary import count_sets
from congruence.mechanism.sparsity_gap import SparsityGap, sparse_decomposition, sparsity_gap
from congruence.mechanism.supports import GRID, Sizes, Tolerance, relative, without_small

KEPT_NUMBERS = 2**24  # of Jacobians that are kept for the sparsity gap
BOUNDED_POINTS = 4  # examined where there are bounds only
FULL_POINTS = 10  # budgets spent on all points together


@dataclass(frozen=True, eq=False)
class Walk:
    """Numbers of the Jacobians at r points."""

    disjoint: Float  # (r,) margins of D
    disjoint_from: Float  # (r,) tolerance from which on D holds
    contained: Float  # (r, g + 1) margins of M in the given coordinates, at rtol first and then at each of `GRID`
    contrast: Float  # (r,) of independent mechanism analysis
    cosine: Float  # (r,) largest between blocks
    lost: Array  # (r,) directions that are lost
    disjoint_parts: Array  # (r, K) parts of each block by D
    nested_parts: Array  # (r, K) parts of each block by M, in the given coordinates
    nonzeros: Array  # (r,) entries in the support
    overlap: Float  # (K, K) mean over points
    sizes: Float  # (m, d) mean size of the entries over points
    widest: tuple[float, float]  # interval of tolerances with constant supports
    kept: tuple[Float, ...]  # Jacobians of the first points


def walk(
    probed: Probed, blocks: Blocks, *, rtol: float, atol: float, scale: str, chunk: int | None, tolerance: float
) -> Walk:
    """Look at the Jacobian at every point; `tolerance` is that of ranks, the others those of supports."""
    d, m, r = probed.dimension, probed.outputs, len(probed.z)
    numbers: dict[str, list[float]] = {name: [] for name in ("disjoint", "from", "contrast", "cosine")}
    counts: dict[str, list[int]] = {name: [] for name in ("lost", "nonzeros")}
    contained, own, nested = [], [], []
    kept: list[Float] = []
    shared, total, histogram = np.zeros((len(blocks),) * 2), np.zeros((m, d)), Sizes()
    for part in jacobian_chunks(probed, chunk=chunk):
        for j in part:
            shares = np.where(np.abs(j) > atol, relative(j, scale), 0.0)
            support = shares > rtol
            exact = np.where(support, j, 0.0)
            histogram.add(shares)
            numbers["disjoint"].append(disjoint_margin(j, blocks))
            numbers["from"].append(disjoint_from(shares, blocks))
            contained.append([containment_margin(shares > t, blocks) for t in (rtol, *GRID)])
            angles = block_orthogonality(j, blocks, tolerance)
            numbers["contrast"].append(angles.contrast)
            numbers["cosine"].append(angles.cosine)
            counts["lost"].append(lost_directions(j, tolerance))
            counts["nonzeros"].append(int(support.sum()))
            own.append([disjoint_parts(exact, block, tolerance) for block in blocks])
            nested.append([nested_parts(support, block) for block in blocks])
            shared += overlap(support, blocks) / r
            total += np.abs(j) / r
            if (len(kept) + 1) * m * d <= KEPT_NUMBERS or not kept:
                kept.append(j)
    return Walk(
        disjoint=np.array(numbers["disjoint"]),
        disjoint_from=np.array(numbers["from"]),
        contained=np.array(contained),
        contrast=np.array(numbers["contrast"]),
        cosine=np.array(numbers["cosine"]),
        lost=np.array(counts["lost"]),
        disjoint_parts=np.array(own),
        nested_parts=np.array(nested),
        nonzeros=np.array(counts["nonzeros"]),
        overlap=shared,
        sizes=total,
        widest=histogram.widest(),
        kept=tuple(kept),
    )


@dataclass(frozen=True, eq=False)
class SparseWalk:
    """Numbers of p points for S, and for M in the sparsest aligned basis, at t tolerances, rtol first."""

    gaps: tuple[SparsityGap, ...]  # at rtol
    statuses: Array  # (p, t) of S
    contained: Float  # (p, t) margins of M in the sparsest aligned basis; NaN where that is not known
    nested_parts: Array  # (p, K) parts of each block by M in that basis; -1 where not known
    sparse_parts: Array  # (p, K) parts of each block by S; -1 where not known


def sparse_walk(
    jacobians: tuple[Float, ...], blocks: Blocks, at: Tolerance, *, budget: float, tolerance: float, seed: int
) -> SparseWalk:
    """Look at the sparsity gap at as many of the points as the budget allows."""
    seen: list[_Sparse] = []
    parts: list[list[int]] = []
    spent = 0.0
    for j in jacobians:
        exact = _cut(j, at, at.rtol)
        cost = float(count_sets(unit_rows(exact)[0], tolerance))
        spent += min(cost, budget)
        if parts and (spent > FULL_POINTS * budget or (cost > budget and len(parts) >= BOUNDED_POINTS)):
            break
        known: dict[bytes, _Sparse] = {}  # most tolerances give the same support
        for t in at.nearby:
            cut = _cut(j, at, t)
            key = np.packbits(cut != 0).tobytes()
            if key not in known:
                known[key] = _sparse(cut, blocks, budget, tolerance, seed)
            seen.append(known[key])
        parts.append([_sparse_parts(exact[:, list(block)], budget, tolerance) for block in blocks])
    grid = np.array(seen, dtype=object).reshape(len(parts), -1)
    return SparseWalk(
        gaps=tuple(one.gap for one in grid[:, 0]),
        statuses=np.array([[one.gap.status for one in row] for row in grid]),
        contained=np.array([[one.contained for one in row] for row in grid]),
        nested_parts=np.array([one.nested for one in grid[:, 0]]),
        sparse_parts=np.array(parts),
    )


@dataclass(frozen=True, eq=False)
class _Sparse:
    gap: SparsityGap
    contained: float
    nested: tuple[int, ...]


def _cut(j: Float, at: Tolerance, rtol: float) -> Float:
    return without_small(j, rtol=rtol, atol=at.atol, scale=at.scale)


def _sparse(j: Float, blocks: Blocks, budget: float, tolerance: float, seed: int) -> _Sparse:
    gap = sparsity_gap(j, blocks, budget=budget, tolerance=tolerance, seed=seed)
    if not gap.aligned_exact:
        return _Sparse(gap, float("nan"), (-1,) * len(blocks))
    rows, lengths = unit_rows(j)
    basis = gap.basis * lengths[:, None]
    support = np.abs(rows @ basis) > tolerance * np.linalg.norm(basis, axis=0)  # (m, d)
    own = tuple(tuple(np.flatnonzero(np.array(gap.basis_blocks) == k).tolist()) for k in range(len(blocks)))
    return _Sparse(gap, containment_margin(support, own), tuple(nested_parts(support, block) for block in own))


def _sparse_parts(j: Float, budget: float, tolerance: float) -> int:
    found = sparse_decomposition(j, budget=budget, tolerance=tolerance)
    return -1 if found is None else len(found)
