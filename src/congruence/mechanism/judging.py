"""From numbers at points to the status of the criteria, one function for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb, nan
from typing import Any, cast

import numpy as np

from congruence.arrays import Array
from congruence.decoder.probed import Probed
from congruence.mechanism.block_check import Criterion, Irreducible, Separable, criterion_of
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.criteria import overlap
from congruence.mechanism.derivatives import step_lengths
from congruence.mechanism.interactions import Interactions
from congruence.mechanism.pointwise import SparseWalk, Walk
from congruence.mechanism.separability import Separability, bent_parts, separability, tensors
from congruence.mechanism.supports import DECADE, GRID, Tolerance
from congruence.result import Basis, Status, combine

RANKED_POINTS = 8  # at most, at which separability is examined
RANKED_NUMBERS = 2**22  # of the derivatives at these points; past it at a single one it is not examined


def status_of(holds_at: Callable[[float], Array], tolerance: Tolerance, *, supports: bool) -> Status:
    """The status of a criterion that holds at each point or not, depending on the tolerance.

    It is ambiguous where it changes within a decade around the tolerance. A criterion on supports is also ambiguous
    where it differs from its value in the widest interval of constant supports or, without such an interval, at either
    end of the sweep.
    """
    here = bool(holds_at(tolerance.rtol).all())
    shifts = (-DECADE / 2, DECADE / 2)
    nearby = tolerance.nearby if supports else tuple(tolerance.rtol * 10**shift for shift in shifts)
    if any(bool(holds_at(t).all()) != here for t in nearby):
        return "ambiguous"
    return "holds" if here else "fails"


def by_threshold(thresholds: Array) -> Callable[[float], Array]:
    """A criterion that holds at each point from its own tolerance on."""
    return lambda t: np.asarray(thresholds <= t)


def judge_disjoint(seen: Walk, at: Tolerance, blocks: Blocks, reach: Array | None) -> Criterion:
    """Type D: no output is reached by two blocks; certified where the structure of the decoder lets none be."""
    holds_at = by_threshold(seen.disjoint_from)
    status = status_of(holds_at, at, supports=True)
    measures = "largest product of two blocks in an output"
    apart = reach is not None and not overlap(reach, blocks)[~np.eye(len(blocks), dtype=bool)].any()
    proof: tuple[Basis | None, tuple[str, ...]] = (None, ())
    if status == "holds" and apart:
        proof = "certified", ("zero weights keep the blocks apart everywhere",)
    basis, remarks = proof
    return _criterion("D", status, holds_at, at, seen.disjoint, measures, largest=True, basis=basis, remarks=remarks)


def judge_contained(seen: Walk, at: Tolerance) -> Criterion:
    """Type M in the given coordinates: no column's outputs are among those of a column of another block."""
    holds_at = _contained_at(seen, at)
    status = status_of(holds_at, at, supports=True)
    return _criterion("M_coord", status, holds_at, at, seen.contained[:, 0], "least share of own outputs")


def _contained_at(seen: Walk, at: Tolerance) -> Callable[[float], Array]:
    def holds_at(t: float) -> Array:
        """At the nearest tolerance of the sweep; rtol has a column of its own."""
        column = 0 if t == at.rtol else 1 + int(np.abs(np.log10(GRID) - np.log10(max(t, 1e-300))).argmin())
        return np.asarray(seen.contained[:, column] > 0)

    return holds_at


def judge_sparsest_contained(seen: Walk, few: SparseWalk, at: Tolerance, blocks: Blocks) -> Criterion:
    """Type M in a sparsest basis of each block."""
    measures = "least share of own outputs"
    if all(len(block) == 1 for block in blocks):  # there is one basis only, up to lengths, so that all points are known
        holds_at = _contained_at(seen, at)
        status = status_of(holds_at, at, supports=True)
        return _criterion("M_sparsest", status, holds_at, at, seen.contained[:, 0], measures)
    statuses = np.where(np.isnan(few.contained), "unknown", np.where(few.contained > 0, "holds", "fails"))
    margins = few.contained[:, 0]
    status = _same_at_all(statuses)
    known = margins[np.isfinite(margins)]
    remarks = ["in a sparsest basis of each block, the first found where several tie"]
    if len(known) < len(margins):
        remarks.append(f"past the budget at {len(margins) - len(known)} points")
    return criterion_of(
        "M_sparsest",
        status,
        float(known.min()) if known.size else nan,
        measures,
        int(np.nanargmin(margins)) if known.size else None,
        float((known > 0).mean()) if known.size else nan,
        len(margins),
        remarks=tuple(remarks),
    )


def judge_sparse(few: SparseWalk) -> Criterion:
    """Type S: the sparsest basis respects the blocks."""
    status = _same_at_all(few.statuses)
    gaps = np.array([gap.rho_minus_high - gap.rho_plus for gap in few.gaps])
    worst = int(gaps.argmin())
    one = few.gaps[worst]
    known = few.statuses[:, 0][few.statuses[:, 0] != "unknown"]
    rho_minus = f"{one.rho_minus_high:g}"
    if one.rho_minus is None:
        rho_minus = f"from {one.rho_minus_low:g} to {one.rho_minus_high:g}"
    return criterion_of(
        "S",
        status,
        float(gaps[worst]),
        "sparsity gap" if all(gap.exact for gap in few.gaps) else "sparsity gap at most",
        worst,
        float((known == "holds").mean()) if known.size else nan,
        len(few.gaps),
        remarks=(f"rho+ {one.rho_plus}, rho- {rho_minus}",),
    )


def _same_at_all(statuses: Array) -> Status:
    """The status over points, from statuses (points, tolerances), and ambiguous where the tolerance changes it."""
    over_points = [combine(cast(list[Status], column.tolist())) for column in statuses.T]
    return over_points[0] if all(other == over_points[0] for other in over_points) else "ambiguous"


def judge_interactions(mixed: Interactions, at: Tolerance) -> Criterion:
    """Type H_n: derivatives that mix blocks vanish."""
    holds_at = by_threshold(mixed.cross)
    empty = bool(mixed.degenerate.all())
    remarks = {
        "all derivatives of this order vanish, so it holds trivially": empty,
        "along random directions": not mixed.complete,
        "by differences over finite steps, since the derivatives vanish": mixed.differences,
    }
    return _criterion(
        f"H{mixed.order}",
        status_of(holds_at, at, supports=False),
        holds_at,
        at,
        mixed.cross,
        "mixed share of derivatives of this order",
        largest=True,
        degenerate=empty,
        remarks=tuple(remark for remark, applies in remarks.items() if applies),
    )


def judge_orthogonal(seen: Walk, at: Tolerance) -> Criterion:
    """Independent mechanism analysis: blocks are orthogonal to each other."""
    measures = "largest cosine between blocks"
    known = np.isfinite(seen.cosine)
    values = np.where(known, seen.cosine, 0.0)
    holds_at = by_threshold(values)
    status = status_of(holds_at, at, supports=False)
    if not known.all() and status != "fails":
        remark = f"a block loses a direction at {int((~known).sum())} points"
        return criterion_of("IMA", "unknown", nan, measures, None, nan, len(known), remarks=(remark,))
    remark = f"mean contrast {seen.contrast[known].mean():.3g}"
    return _criterion("IMA", status, holds_at, at, values, measures, largest=True, remarks=(remark,))


def _criterion(
    name: str,
    status: Status,
    holds_at: Callable[[float], Array],
    at: Tolerance,
    margins: Array,
    measures: str,
    *,
    largest: bool = False,
    **more: Any,
) -> Criterion:
    worst = int(margins.argmax() if largest else margins.argmin())
    here = holds_at(at.rtol)
    return criterion_of(
        name,
        status,
        float(margins[worst]),
        measures,
        worst,
        float(here.mean()),
        len(here),
        sweep=tuple(float(holds_at(t).mean()) for t in GRID),
        **more,
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
    """Statuses from parts (points, K): one part at every point is irreducible; 0 means that a block moves nothing."""
    most = np.where((parts < 0).any(axis=0), -1, parts.max(axis=0))
    statuses: tuple[Status, ...] = tuple(
        "fails" if (column > 1).any() or (column == 0).any() else "unknown" if (column < 0).any() else "holds"
        for column in parts.T
    )
    return Irreducible(criterion, combine(statuses), statuses, tuple(int(value) for value in most))


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
            Separable(n, "unknown", 0, 0, nan, False, why) if why else _separable(n, ranks[n], flat[n])
            for n, why in reasons.items()
        ),
        tuple(_irreducible(f"H{n}", unknown if why else np.array(parts[n])) for n, why in reasons.items()),
    )


def _not_ranked(probed: Probed, order: int, finite: bool) -> str:
    """Why separability is not examined; empty where it is."""
    if finite:
        return "the higher derivatives of a piecewise linear decoder vanish"
    if probed.outputs * max(probed.dimension**order, comb(probed.dimension + order - 1, order)) > RANKED_NUMBERS:
        return f"there are too many derivatives of order {order}"
    return ""


def _separable(order: int, ranks: list[Separability], flat: int) -> Separable:
    worst = max(ranks, key=lambda one: (one.missing, -one.gap))
    remark = f"{flat} directions do not bend beyond lower orders, so nothing identifies them" if flat else ""
    return Separable(
        order=order,
        status="holds" if worst.holds and not flat else "fails",
        rank=worst.rank,
        expected=sum(worst.block_ranks) + worst.lower_rank,
        gap=worst.gap,
        degenerate=all(one.degenerate for one in ranks),
        remark=remark,
    )
