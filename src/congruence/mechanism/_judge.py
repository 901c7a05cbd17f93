"""From Jacobians at points to the status of the criteria.

Jacobians are computed in batches and discarded, except those of the few points at which the sparsity gap is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, nan
from typing import Any, NamedTuple, cast

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.prepared_decoder import PreparedDecoder
from congruence.formatting import count, number, percent
from congruence.mechanism import _criteria as criteria
from congruence.mechanism import _interactions as interactions
from congruence.mechanism._blocks import Blocks
from congruence.mechanism._criteria import GRADED, SINGLE, SWEEP, THIN, Tolerance, random_rotation
from congruence.mechanism._interactions import Separability
from congruence.mechanism._matroid import count_sets, unit_rows
from congruence.mechanism._sparsity_gap import SparsityGap, sparse_decomposition, sparsity_gap
from congruence.mechanism.derivatives import jacobian_chunks
from congruence.mechanism.theorems import CLAIMS, Criterion, Irreducibility, make_criterion
from congruence.result import Status, combine

_NULL_POINTS = 8  # for mixed derivatives in random directions
_STORED_NUMBERS = 2**24  # entries of the Jacobians that are stored for the sparsity gap
_BOUNDED_POINTS = 4  # examined if there are only bounds
_FULL_POINTS = 10  # budgets spent on all points together
_RANKED_POINTS = 8  # at most, at which separability is examined
_RANKED_NUMBERS = 2**22  # of the derivatives at these points; if one point has more, it is not examined

Gaps = Sequence[Sequence[SparsityGap]]


class PointNumbers(NamedTuple):
    """Numbers of the Jacobian at one point, or arrays of them with a row for each point."""

    disjoint: Any  # margin of D
    disjoint_from: Any  # tolerance from which on D holds
    contained: Any  # (g + 1,) margins of M in the coordinates, at rtol and then at each tolerance of the sweep
    contrast: Any  # of independent mechanism analysis
    cosine: Any  # largest between blocks
    lost: Any  # directions that are lost
    disjoint_parts: Any  # (K,) parts of each block by D
    nested_parts: Any  # (K,) parts of each block by M, in the coordinates
    nonzeros: Any  # entries in the support
    below: Any  # largest relative size that counts as zero
    faint: Any  # latents that act, but not above the tolerance
    leak: Any  # graded form of D


@dataclass(frozen=True, eq=False)
class Survey:
    """Numbers of the Jacobians at r points."""

    at: PointNumbers  # arrays with r rows
    overlap: Float  # (K, K) mean over points
    sizes: Float  # (m, d) mean size of the entries over points
    tolerance: Tolerance
    jacobians: tuple[Float, ...]  # Jacobians of the first points
    grades: Mapping[str, tuple[float, float]]  # of criteria: mean over points, and the same for random directions


def survey_points(
    prepared: PreparedDecoder,
    blocks: Blocks,
    *,
    rtol: float,
    atol: float,
    scale: str,
    chunk: int | None,
    tolerance: float,
    seed: int = 0,
) -> Survey:
    """Measure the Jacobian at every point; `tolerance` is that of ranks, the others those of supports."""
    d, m, r = prepared.dimension, prepared.outputs, len(prepared.z)
    points: list[PointNumbers] = []
    stored: list[Float] = []
    overlap, sizes, counts = np.zeros((len(blocks),) * 2), np.zeros((m, d)), np.zeros((), dtype=int)
    for part in jacobian_chunks(prepared, chunk=chunk):
        for j in part:
            shares = np.where(np.abs(j) > atol, criteria.relative_sizes(j, scale), 0.0)
            support = shares > rtol
            exact = np.where(support, j, 0.0)
            contrast, cosine = criteria.block_orthogonality(j, blocks, tolerance)
            points.append(
                PointNumbers(
                    disjoint=criteria.disjoint_margin(j, blocks),
                    disjoint_from=criteria.disjoint_tolerance(shares, blocks),
                    contained=[criteria.containment_margin(shares > t, blocks) for t in (rtol, *SWEEP)],
                    contrast=contrast,
                    cosine=cosine,
                    lost=criteria.lost_directions(j, tolerance),
                    disjoint_parts=[criteria.disjoint_parts(exact, block, tolerance) for block in blocks],
                    nested_parts=[criteria.nested_parts(support, block) for block in blocks],
                    nonzeros=int(support.sum()),
                    below=float(shares[shares <= rtol].max(initial=0.0)),
                    faint=int((~support.any(axis=0) & (np.abs(j).max(axis=0) > max(atol, 0.0))).sum()),
                    leak=criteria.disjoint_leak(j, blocks),
                )
            )
            counts = counts + criteria.histogram_sizes(shares)
            overlap += criteria.block_overlap(support, blocks) / r
            sizes += np.abs(j) / r
            if (len(stored) + 1) * m * d <= _STORED_NUMBERS or not stored:
                stored.append(j)
    arrays = PointNumbers(*map(np.array, zip(*points, strict=True)))
    grades = criteria.grade_points(stored, blocks, tolerance, seed)
    grades["D"] = float(arrays.leak.mean()), grades["D"][1]  # at all points
    known = np.isfinite(arrays.cosine)
    grades["IMA"] = float(arrays.cosine[known].mean()) if known.any() else nan, grades["IMA"][1]
    at = Tolerance(rtol, atol, scale, *criteria.widest_gap(counts))
    return Survey(arrays, overlap, sizes, at, tuple(stored), grades)


def survey_sparsity(
    jacobians: Sequence[Float], blocks: Blocks, at: Tolerance, *, budget: float, tolerance: float, seed: int
) -> tuple[Gaps, Array]:
    """Compute sparsity gaps at as many of the points as the budget allows, (p, t) at t tolerances, rtol first.

    Also return the number of parts of each block by S at rtol, (p, K); -1 if unknown.
    """
    points: list[tuple[SparsityGap, ...]] = []
    parts: list[list[int]] = []
    spent = 0.0
    for j in jacobians:
        exact = at.truncate(j, at.rtol)
        cost = float(count_sets(unit_rows(exact)[0], tolerance))
        spent += min(cost, budget)
        if parts and (spent > _FULL_POINTS * budget or (cost > budget and len(parts) >= _BOUNDED_POINTS)):
            break
        cuts = [at.truncate(j, t) for t in at.nearby]
        keys = [np.packbits(cut != 0).tobytes() for cut in cuts]
        gaps = {  # most tolerances have the same support
            key: sparsity_gap(cut, blocks, budget=budget, tolerance=tolerance, seed=seed)
            for key, cut in dict(zip(keys, cuts, strict=True)).items()
        }
        points.append(tuple(gaps[key] for key in keys))
        inside = (sparse_decomposition(exact[:, list(b)], budget=budget, tolerance=tolerance) for b in blocks)
        parts.append([-1 if one is None else len(one) for one in inside])
    return points, np.array(parts)


def judge_criteria(
    survey: Survey, sparsity: tuple[Gaps, Array], blocks: Blocks, reach: Array | None
) -> tuple[tuple[Criterion, ...], tuple[Irreducibility, ...]]:
    """Judge D, M in the coordinates and in a sparsest basis, S and IMA; and irreducibility by D, M and S.

    D is certified if the structure of the decoder (`reach`, see `reachable_outputs`) separates the blocks.
    """
    at, points, (gaps, sparse_parts) = survey.tolerance, survey.at, sparsity

    def contained_at(t: float) -> Array:
        """The margins of M at the nearest tolerance of the sweep; column 0 is rtol."""
        column = 0 if t == at.rtol else 1 + int(np.abs(np.log10(SWEEP) - np.log10(max(t, 1e-300))).argmin())
        return np.asarray(points.contained[:, column])

    below, faint = float(points.below.max()), int((points.faint > 0).sum())
    small = (f"derivatives up to {number(below, 2)} of the largest count as zero",) if below > 0 else ()
    measures = "largest product of two blocks in an output"
    more = {"remarks": small, **_graded(survey, "D")}
    disjoint = _judge_at("D", points.disjoint_from, at.nearby, points.disjoint, measures, **more)
    apart = reach is not None and not criteria.block_overlap(reach, blocks)[~np.eye(len(blocks), dtype=bool)].any()
    if disjoint.status == "holds" and apart:
        finding = replace(disjoint.finding, basis="certified")
        disjoint = replace(disjoint, finding=finding, remarks=("zero weights separate the blocks everywhere",))
    measures = "smallest share of own outputs"
    margins = np.stack([contained_at(t) for t in at.nearby], axis=1)
    thin = bool(((margins > 0) & (margins <= THIN)).any())
    contained = _judge(
        "M_coord",
        np.where(margins > THIN, "holds", np.where(margins > 0, "ambiguous", "fails")),
        points.contained[:, 0],
        measures,
        sweep=tuple(float((contained_at(t) > THIN).mean()) for t in SWEEP),
        **_graded(survey, "M_coord"),
        remarks=(*small, *((f"a margin of at most {percent(THIN)} is too thin",) if thin else ())),
    )
    nested = points.nested_parts
    if all(len(block) == 1 for block in blocks):  # with one basis only, up to lengths, all points are known
        sparsest = replace(contained, finding=replace(contained.finding, name="M_sparsest", claim=CLAIMS["M_sparsest"]))
    else:
        margins = np.array([[gap.contained for gap in row] for row in gaps])
        beyond = np.array([[gap.beyond for gap in row] for row in gaps])
        statuses = np.where(margins > 0, np.where(beyond > THIN, "holds", "ambiguous"), "fails")
        statuses = np.where(np.isnan(margins), "unknown", statuses)
        remarks = ["in a sparsest basis of each block, the first of several", *small]
        if (statuses[:, 0] == "ambiguous").any():
            remarks.append("hardly more than the choice of a basis gives in a dense Jacobian")
        unknown = int(np.isnan(margins[:, 0]).sum())
        remarks += [f"past the budget at {unknown} points"] if unknown else []
        more = {"remarks": tuple(remarks), **_graded(survey, "M_sparsest")}
        sparsest = _judge("M_sparsest", statuses, margins[:, 0], measures, **more)
        nested = np.array([row[0].nested for row in gaps])
    parts = {"D": points.disjoint_parts, "M_coord": points.nested_parts, "M_sparsest": nested, "S": sparse_parts}
    margins = np.array([row[0].rho_minus_high - row[0].rho_plus for row in gaps], dtype=float)
    one = gaps[int(margins.argmin())][0]
    low = f"from {one.rho_minus_low:g} to " if one.rho_minus is None else ""
    more = {"remarks": (f"rho+ {one.rho_plus}, rho− {low}{one.rho_minus_high:g}", *small), **_graded(survey, "S")}
    measures = "sparsity gap" if all(row[0].exact for row in gaps) else "sparsity gap at most"
    statuses = np.array([[gap.status for gap in row] for row in gaps])
    sparse = _judge("S", statuses, margins, measures, **more)
    supports = [disjoint, contained, sparsest, sparse]
    if faint:  # a block that is weak as a whole would seem to reach nothing, and a criterion hold for this reason alone
        doubt = f"a latent acts below the tolerance at {count(faint, 'point')}; scale='column' compares it with itself"
        for i, old in enumerate(supports):
            doubted = replace(old.finding, status="ambiguous", basis="not refuted")
            finding = doubted if old.status == "holds" else old.finding
            supports[i] = replace(old, finding=finding, remarks=(*old.remarks, doubt))
    measures, known = "largest cosine between blocks", np.isfinite(points.cosine)
    values = np.where(known, points.cosine, 0.0)
    contrast = float(points.contrast[known].mean()) if known.any() else nan
    more = {"remarks": (f"mean contrast {number(contrast)}",), **_graded(survey, "IMA")}
    orthogonal = _judge_at("IMA", values, at.decade, values, measures, **more)
    if not known.all() and orthogonal.status != "fails":
        remark = f"a block loses a direction at {int((~known).sum())} points"
        orthogonal = make_criterion("IMA", "unknown", nan, measures, None, nan, len(known), remarks=(remark,))
    return (*supports, orthogonal), tuple(_irreducibility(name, values) for name, values in parts.items())


def _graded(survey: Survey, name: str) -> dict[str, Any]:
    """The graded score of a criterion; nothing where there are too many latents to grade their pairs."""
    typical, null = survey.grades[name]
    return {} if np.isnan(typical) else {"typical": typical, "null": null, "graded": GRADED[name]}


def _judge_at(
    name: str, thresholds: Array, tolerances: Sequence[float], margins: Array, measures: str, **more: Any
) -> Criterion:
    """Judge a criterion that holds at each point for all tolerances from a threshold on, (points,).

    A criterion on supports is judged at `Tolerance.nearby`: it is also ambiguous if it differs from its value in the
    widest interval of constant supports or, without such an interval, at either end of the sweep.
    """
    statuses = np.where(thresholds[:, None] <= np.array(tolerances), "holds", "fails")
    sweep = tuple(float((thresholds <= t).mean()) for t in SWEEP)
    return _judge(name, statuses, margins, measures, sweep=sweep, largest=True, **more)


def _judge(
    name: str, statuses: Array, margins: Array, measures: str, *, largest: bool = False, **more: Any
) -> Criterion:
    """Judge a criterion by its statuses (points, tolerances), rtol first; it is ambiguous if the tolerance matters.

    Margins, (points,), are NaN at points where they are not known.
    """
    over_points = {combine(cast(list[Status], column.tolist())) for column in statuses.T}
    status: Status = over_points.pop() if len(over_points) == 1 else "ambiguous"
    known = statuses[:, 0][statuses[:, 0] != "unknown"]
    fraction = float((known == "holds").mean()) if known.size else nan
    worst, margin = None, nan
    if not np.isnan(margins).all():
        worst = int(np.nanargmax(margins) if largest else np.nanargmin(margins))
        margin = float(margins[worst])
    return make_criterion(name, status, margin, measures, worst, fraction, len(statuses), **more)


def judge_interactions(
    prepared: PreparedDecoder, blocks: Blocks, order: int, at: Tolerance, *, finite: bool, tolerance: float, seed: int
) -> Criterion:
    """Judge Type H_n, that derivatives (or finite differences) that mix blocks vanish."""
    how: dict[str, Any] = {"differences": finite, "tolerance": tolerance, "seed": seed}
    cross, degenerate, complete = interactions.measure_interactions(prepared, blocks, order, **how)
    few = replace(prepared, z=prepared.z[:_NULL_POINTS])
    turn = random_rotation(np.random.default_rng(seed), prepared.dimension)
    null = interactions.measure_interactions(few, blocks, order, rotation=turn, **how)[0]
    rounded = finite and at.rtol < tolerance == SINGLE
    at = replace(at, rtol=SINGLE) if rounded else at
    empty = bool(degenerate.all())
    remarks = {
        "all derivatives of this order vanish, so it holds trivially": empty,
        "along random directions": not complete,
        "by differences over finite steps, since the derivatives vanish": finite,
        f"differences in float32: shares up to {SINGLE:g} count as zero": rounded,
    }
    measures = "mixed share of derivatives of this order"
    more: dict[str, Any] = {"degenerate": empty, "graded": measures}
    more |= {"typical": float(cross.mean()), "null": float(null.mean())}
    more["remarks"] = tuple(remark for remark, applies in remarks.items() if applies)
    return _judge_at(f"H{order}", cross, at.decade, cross, measures, **more)


def _irreducibility(criterion: str, parts: Array) -> Irreducibility:
    """Statuses from parts (points, K): one part at every point is irreducible; 0 means that a block moves nothing."""
    most = np.where((parts < 0).any(axis=0), -1, parts.max(axis=0))
    statuses: tuple[Status, ...] = tuple(
        "fails" if (column > 1).any() or (column == 0).any() else "unknown" if (column < 0).any() else "holds"
        for column in parts.T
    )
    return Irreducibility(criterion, combine(statuses), statuses, tuple(most.tolist()))


def judge_separability(
    prepared: PreparedDecoder, blocks: Blocks, orders: Sequence[int], finite: bool, tolerance: float, seed: int
) -> tuple[tuple[Separability, ...], tuple[Irreducibility, ...]]:
    """Judge order-n separability, and irreducibility of the blocks by their n-th derivatives, at a few points."""
    d, m = prepared.dimension, prepared.outputs
    few = {n: not finite and m * max(d**n, comb(d + n - 1, n)) <= _RANKED_NUMBERS for n in orders}
    ranked = [n for n in few if few[n]]
    ranks: dict[int, list[Separability]] = {n: [] for n in ranked}
    parts: dict[int, list[list[int]]] = {n: [] for n in ranked}
    flat = dict.fromkeys(ranked, 0)
    top = max(ranked, default=1)
    rows = min(_RANKED_POINTS, len(prepared.z), max(1, _RANKED_NUMBERS // (m * d**top)))
    for derivatives in interactions.derivative_tensors(prepared, rows, top) if ranked else ():
        for n in ranked:
            ranks[n].append(interactions.measure_separability(derivatives, blocks, n, tolerance))
            split = [
                interactions.curved_parts(derivatives, block, n, tolerance=tolerance, seed=seed) for block in blocks
            ]
            parts[n].append([max(number, 1) for number, _ in split])
            flat[n] = max(flat[n], sum(lost for _, lost in split))
    separable, irreducible = [], []
    for n, examined in few.items():
        if not examined:
            why = "the higher derivatives of a piecewise linear decoder vanish"
            why = why if finite else f"there are too many derivatives of order {n}"
            separable.append(Separability(n, "unknown", 0, 0, nan, False, why))
            parts[n] = [[1 if len(block) == 1 else -1 for block in blocks]]
        else:  # the point at which most dimensions are shared; flat directions violate separability
            worst = max(ranks[n], key=lambda one: (one.expected - one.rank, -one.gap))
            worst = replace(worst, degenerate=all(one.degenerate for one in ranks[n]))
            lost = f"{count(flat[n], 'direction')} without curvature beyond lower orders, so not identified"
            separable.append(replace(worst, status="fails", remark=lost) if flat[n] else worst)
        irreducible.append(_irreducibility(f"H{n}", np.array(parts[n])))
    return tuple(separable), tuple(irreducible)
