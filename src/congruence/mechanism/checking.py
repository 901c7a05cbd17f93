"""`check_blocks`: the criteria of mechanistic independence for given blocks of latents, and which theorem applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.decoder.probed import Probed
from congruence.errors import InputError
from congruence.mechanism.block_check import BlockCheck
from congruence.mechanism.blocks import read_blocks
from congruence.mechanism.connectivity import TOLERANCE
from congruence.mechanism.derivatives import bending, is_double, opened
from congruence.mechanism.interactions import interactions
from congruence.mechanism.judging import (
    judge_contained,
    judge_disjoint,
    judge_interactions,
    judge_irreducible,
    judge_orthogonal,
    judge_separability,
    judge_sparse,
    judge_sparsest_contained,
)
from congruence.mechanism.pointwise import SparseWalk, Walk, sparse_walk, walk
from congruence.mechanism.sparsity_gap import BUDGET
from congruence.mechanism.structure import reachable
from congruence.mechanism.supports import RTOL, SCALES, Tolerance
from congruence.mechanism.theorems import theorems_of
from congruence.result import Status

SINGLE = 1e-4  # tolerance of ranks and of supports where a decoder does not work in float64


def check_blocks(
    decoder: Any,
    z: Any,
    blocks: Any = None,
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    scale: str = "global",
    orders: Sequence[int] = (2, 3),
    budget: float = BUDGET,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> BlockCheck:
    """Check whether blocks of latents act on the outputs independently of each other, at given points.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...). A module must be in evaluation mode; it is not changed.
    z : (r, d)
        Points, whose latents are a sample of the domain. How they are distributed does not matter.
    blocks : list of lists of latents, or text like '0-1,2,3-4'
        Which latents make a factor together; by default each is one.
    rtol, atol : float
        Entries of a Jacobian count as zero up to rtol times its largest entry, or up to atol; rtol is also what mixed
        derivatives and cosines are compared with. 1e-6 unless given, or 1e-4 for what works in float32 only.
    scale : {"global", "column"}
        "column" compares entries after dividing each column by its length: for latents of different units.
    orders : whole numbers of at least 2
        Of the derivatives of Type H_n.
    budget : float
        Sets of rows that may be tried at a point for the exact sparsity gap; past it there are bounds.
    chunk, device
        As in `congruence.mechanism.jacobians`.
    seed : int
        Of random directions and searches.

    Returns
    -------
    BlockCheck
        The criteria D, M (in the given coordinates and in the sparsest basis of the blocks), S, H_n and IMA, each
        `holds`, `fails`, `ambiguous` or `unknown`; and which of Theorems 2 to 5 applies. Each is computed on its own,
        and none is inferred from another.

    References
    ----------
    Matthes et al. 2026, "Mechanistic Independence"; Brady et al. 2023; Gresele et al. 2021 (IMA).
    """
    _check_arguments(RTOL if rtol is None else rtol, atol, scale, orders, budget)
    probed = opened(decoder, z, device)
    parts = read_blocks(blocks, probed.dimension)
    wide = is_double(probed)
    small = TOLERANCE if wide else SINGLE
    rtol = rtol if rtol is not None else RTOL if wide else SINGLE
    seen = walk(probed, parts, rtol=rtol, atol=atol, scale=scale, chunk=chunk, tolerance=small)
    at = Tolerance(rtol, atol, scale, *seen.widest)
    few = sparse_walk(seen.kept, parts, at, budget=budget, tolerance=small, seed=seed)
    kind = bending(probed, seed)
    finite = kind == "piecewise linear"
    mixed = [interactions(probed, parts, n, differences=finite, tolerance=small, seed=seed) for n in orders]
    found = (
        judge_disjoint(seen, at, parts, reachable(decoder)),
        judge_contained(seen, at),
        judge_sparsest_contained(seen, few, at, parts),
        judge_sparse(few),
        *(judge_interactions(one, at) for one in mixed),
        judge_orthogonal(seen, at),
    )
    separable, bent = judge_separability(probed, parts, orders, finite, small, seed)
    irreducible = (*judge_irreducible(seen, few, parts), *bent)
    injective: Status = "holds" if not seen.lost.any() else "fails"
    worst = found[3].worst
    return BlockCheck(
        blocks=parts,
        points=len(probed.z),
        dimension=probed.dimension,
        outputs=probed.outputs,
        output_shape=probed.output_shape,
        bending=kind,
        criteria=found,
        irreducible=irreducible,
        separable=separable,
        theorems=theorems_of(
            {one.name: one for one in found},
            {one.criterion: one for one in irreducible},
            {one.order: one.status for one in separable},
            injective,
            int(seen.nonzeros.min()),
        ),
        tolerance=at,
        injective=injective,
        nonzeros=(int(seen.nonzeros.min()), int(seen.nonzeros.max())),
        contrast=float(seen.contrast.mean()),
        rho=(None, None) if worst is None else (few.gaps[worst].rho_plus, few.gaps[worst].rho_minus),
        overlap=seen.overlap,
        sizes=seen.sizes,
        notes=_notes(probed, kind, at, few, seen, wide),
    )


def _check_arguments(rtol: float, atol: float, scale: str, orders: Sequence[int], budget: float) -> None:
    if not 0 <= rtol < 1:
        raise InputError(f"rtol must be at least 0 and below 1, not {rtol!r}")
    if not 0 <= atol < float("inf"):
        raise InputError(f"atol must be a number of at least 0, not {atol!r}")
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, not {scale!r}")
    if not budget >= 0:
        raise InputError(f"budget must be a number of at least 0, not {budget!r}")
    for n in orders:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 2:
            raise InputError(f"orders must be whole numbers of at least 2, not {n!r}")


def _notes(probed: Probed, kind: str, at: Tolerance, few: SparseWalk, seen: Walk, wide: bool) -> tuple[str, ...]:
    notes = []
    if not wide:
        notes.append("The decoder works in float32 only, so small numbers are less certain.")
    if kind == "piecewise linear":
        notes.append(
            "The decoder is piecewise linear: differences over steps of one standard deviation replace derivatives."
        )
    if at.stable is None:
        notes.append(
            "No interval of a decade of tolerances leaves all supports the same: criteria on supports are uncertain."
        )
    if len(few.gaps) < len(probed.z):
        notes.append(f"The sparsity gap was computed at {len(few.gaps)} of {len(probed.z)} points.")
    if probed.outputs <= probed.dimension:
        notes.append("With no more outputs than latents, every Jacobian splits into single directions in some basis.")
    lost = int((seen.lost > 0).sum())
    if lost:
        notes.append(f"The Jacobian loses a direction at {lost} of {len(probed.z)} points.")
    return tuple(notes)
