"""From numbers at points to verdicts on the criteria, one function for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb

import numpy as np

from congruence.arrays import Array
from congruence.decoder.probed import Probed
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.criteria import overlap
from congruence.mechanism.derivatives import step_lengths
from congruence.mechanism.interactions import Interactions
from congruence.mechanism.outcome import Irreducible, Separable
from congruence.mechanism.pointwise import SparseWalk, Walk
from congruence.mechanism.separability import Separability, bent_parts, separability, tensors
from congruence.mechanism.supports import GRID, Tolerance
from congruence.mechanism.verdicts import (
    AMBIGUOUS,
    CERTIFIED,
    FAILS,
    HOLDS,
    NOTHING,
    UNKNOWN,
    Verdict,
    all_of,
    by_threshold,
    evidence_of,
    status_of,
)

RANKED_POINTS = 8  # at most, at which separability is looked at
RANKED_NUMBERS = 2**22  # of the derivatives at these points; past it at a single one it is not looked at


def judge_disjoint(seen: Walk, at: Tolerance, blocks: Blocks, reach: Array | None) -> Verdict:
    """Type D: no output is reached by two blocks; certified where the structure of the decoder lets none be."""
    holds_at = by_threshold(seen.disjoint_from)
    status = status_of(holds_at, at, supports=True)
    measures = "largest product of two blocks in an output"
    found = _verdict("D", status, holds_at, at, seen.disjoint, measures, largest=True)
    if status == HOLDS and reach is not None and not overlap(reach, blocks)[~np.eye(len(blocks), dtype=bool)].any():
        return replace(found, evidence=CERTIFIED, note="zero weights keep the blocks apart everywhere")
    return found


def judge_contained(seen: Walk, at: Tolerance) -> Verdict:
    """Type M in the given coordinates: no column's outputs are among those of a column of another block."""
    holds_at = _contained_at(seen, at)
    status = status_of(holds_at, at, supports=True)
    return _verdict("M_coord", status, holds_at, at, seen.contained[:, 0], "least share of own outputs")


def _contained_at(seen: Walk, at: Tolerance) -> Callable[[float], Array]:
    def holds_at(t: float) -> Array:
        """At the nearest tolerance of the sweep; rtol has a column of its own."""
        column = 0 if t == at.rtol else 1 + int(np.abs(np.log10(GRID) - np.log10(max(t, 1e-300))).argmin())
        return np.asarray(seen.contained[:, column] > 0)

    return holds_at


def judge_sparsest_contained(seen: Walk, few: SparseWalk, at: Tolerance, blocks: Blocks) -> Verdict:
    """Type M in a sparsest basis of each block."""
    measures = "least share of own outputs"
    if all(len(block) == 1 for block in blocks):  # there is one basis only, up to lengths, so that all points are known
        holds_at = _contained_at(seen, at)
        status = status_of(holds_at, at, supports=True)
        return _verdict("M_sparsest", status, holds_at, at, seen.contained[:, 0], measures)
    statuses = np.where(np.isnan(few.contained), UNKNOWN, np.where(few.contained > 0, HOLDS, FAILS))
    margins = few.contained[:, 0]
    status = _same_at_all(statuses)
    known = margins[np.isfinite(margins)]
    note = "in a sparsest basis of each block, the first found where several tie"
    if len(known) < len(margins):
        note = f"{note}; past the budget at {len(margins) - len(known)} points"
    return Verdict(
        criterion="M_sparsest",
        status=status,
        margin=float(known.min()) if known.size else float("nan"),
        measures=measures,
        worst=int(np.nanargmin(margins)) if known.size else None,
        fraction=float((known > 0).mean()) if known.size else float("nan"),
        points=len(margins),
        evidence=evidence_of(status),
        note=note,
    )


def judge_sparse(few: SparseWalk) -> Verdict:
    """Type S: the sparsest basis respects the blocks."""
    status = _same_at_all(few.statuses)
    gaps = np.array([gap.rho_minus_high - gap.rho_plus for gap in few.gaps])
    worst = int(gaps.argmin())
    one = few.gaps[worst]
    known = few.statuses[:, 0][few.statuses[:, 0] != UNKNOWN]
    rho_minus = f"{one.rho_minus_high:g}"
    if one.rho_minus is None:
        rho_minus = f"from {one.rho_minus_low:g} to {one.rho_minus_high:g}"
    return Verdict(
        criterion="S",
        status=status,
        margin=float(gaps[worst]),
        measures="sparsity gap" if all(gap.exact for gap in few.gaps) else "sparsity gap at most",
        worst=worst,
        fraction=float((known == HOLDS).mean()) if known.size else float("nan"),
        points=len(few.gaps),
        evidence=evidence_of(status),
        note=f"rho+ {one.rho_plus}, rho- {rho_minus}",
    )


def _same_at_all(statuses: Array) -> str:
    """The status over points, from statuses (points, tolerances), and ambiguous where the tolerance changes it."""
    over_points = [all_of(column.tolist()) for column in statuses.T]
    return over_points[0] if all(other == over_points[0] for other in over_points) else AMBIGUOUS


def judge_interactions(mixed: Interactions, at: Tolerance) -> Verdict:
    """Type H_n: derivatives that mix blocks vanish."""
    holds_at = by_threshold(mixed.cross)
    empty = bool(mixed.degenerate.all())
    notes = {
        "nothing of this order at all, so that it holds trivially": empty,
        "along random directions": not mixed.complete,
        "by differences over finite steps, since derivatives are empty": mixed.differences,
    }
    return _verdict(
        f"H{mixed.order}",
        status_of(holds_at, at, supports=False),
        holds_at,
        at,
        mixed.cross,
        "mixed share of derivatives of this order",
        largest=True,
        degenerate=empty,
        note="; ".join(note for note, said in notes.items() if said),
    )


def judge_orthogonal(seen: Walk, at: Tolerance) -> Verdict:
    """Independent mechanism analysis: blocks are orthogonal to each other."""
    measures = "largest cosine between blocks"
    known = np.isfinite(seen.cosine)
    values = np.where(known, seen.cosine, 0.0)
    holds_at = by_threshold(values)
    status = status_of(holds_at, at, supports=False)
    if not known.all() and status != FAILS:
        note = f"a block loses a direction at {int((~known).sum())} points"
        return Verdict("IMA", UNKNOWN, float("nan"), measures, None, float("nan"), len(known), NOTHING, note=note)
    note = f"contrast {seen.contrast[known].mean():.3g} in the mean"
    return _verdict("IMA", status, holds_at, at, values, measures, largest=True, note=note)


def _verdict(
    criterion: str,
    status: str,
    holds_at: Callable[[float], Array],
    at: Tolerance,
    margins: Array,
    measures: str,
    *,
    largest: bool = False,
    degenerate: bool = False,
    note: str = "",
) -> Verdict:
    worst = int(margins.argmax() if largest else margins.argmin())
    here = holds_at(at.rtol)
    return Verdict(
        criterion=criterion,
        status=status,
        margin=float(margins[worst]),
        measures=measures,
        worst=worst,
        fraction=float(here.mean()),
        points=len(here),
        evidence=evidence_of(status),
        degenerate=degenerate,
        sweep=tuple(float(holds_at(t).mean()) for t in GRID),
        note=note,
    )


def judge_irreducible(seen: Walk, few: SparseWalk, blocks: Blocks) -> tuple[Irreducible, ...]:
    """Irreducibility of the blocks by D, M and S."""
    singles = all(len(block) == 1 for block in blocks)
    return (
        _irreducible("D", seen.disjoint_parts),
        _irreducible("M_coord", seen.nested_parts),
        _irreducible("M_sparsest", seen.nested_parts if singles else few.nested_parts),
        _irreducible("S", few.sparse_parts),
    )


def _irreducible(criterion: str, parts: Array) -> Irreducible:
    """Statuses from parts (points, K): one part at every point is irreducible; none means that a block does nothing."""
    most = np.where((parts < 0).any(axis=0), -1, parts.max(axis=0))
    statuses = tuple(
        FAILS if (column > 1).any() or (column == 0).any() else UNKNOWN if (column < 0).any() else HOLDS
        for column in parts.T
    )
    return Irreducible(criterion, all_of(list(statuses)), statuses, tuple(int(value) for value in most))


def judge_separability(
    probed: Probed, blocks: Blocks, orders: Sequence[int], finite: bool, tolerance: float, seed: int
) -> tuple[tuple[Separable, ...], tuple[Irreducible, ...]]:
    """Order-n separability, and irreducibility of the blocks by their n-th derivatives, at a few points."""
    reasons = {n: _not_ranked(probed, n, finite) for n in orders}
    ranked = [n for n in orders if not reasons[n]]
    ranks: dict[int, list[Separability]] = {n: [] for n in ranked}
    parts: dict[int, list[list[int]]] = {n: [] for n in ranked}
    flat = dict.fromkeys(ranked, 0)
    top = max(ranked, default=1)
    rows = min(RANKED_POINTS, len(probed.z), max(1, RANKED_NUMBERS // (probed.outputs * probed.dimension**top)))
    for derivatives in tensors(probed, step_lengths(probed), rows, top) if ranked else ():
        for n in ranked:
            ranks[n].append(separability(derivatives, blocks, n, tolerance))
            split = [bent_parts(derivatives, block, n, tolerance=tolerance, seed=seed) for block in blocks]
            parts[n].append([max(count, 1) for count, _ in split])
            flat[n] = max(flat[n], sum(lost for _, lost in split))
    unknown = np.array([[1 if len(block) == 1 else -1 for block in blocks]])
    return (
        tuple(
            Separable(n, UNKNOWN, 0, 0, float("nan"), False, why) if why else _separable(n, ranks[n], flat[n])
            for n, why in reasons.items()
        ),
        tuple(_irreducible(f"H{n}", unknown if why else np.array(parts[n])) for n, why in reasons.items()),
    )


def _not_ranked(probed: Probed, order: int, finite: bool) -> str:
    """Why separability is not looked at; empty where it is."""
    if finite:
        return "the derivatives of a piecewise linear decoder are empty"
    if probed.outputs * max(probed.dimension**order, comb(probed.dimension + order - 1, order)) > RANKED_NUMBERS:
        return f"there are too many derivatives of order {order}"
    return ""


def _separable(order: int, ranks: list[Separability], flat: int) -> Separable:
    worst = max(ranks, key=lambda one: (one.missing, -one.gap))
    note = f"{flat} directions do not bend beyond lower orders, so that nothing identifies them" if flat else ""
    return Separable(
        order=order,
        status=HOLDS if worst.holds and not flat else FAILS,
        rank=worst.rank,
        expected=sum(worst.block_ranks) + worst.lower_rank,
        gap=worst.gap,
        degenerate=all(one.degenerate for one in ranks),
        note=note,
    )
