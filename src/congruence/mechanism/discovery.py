"""Discover the factors that a decoder supports: the finest parts at every point, and over the sample.

Parts at a point do not depend on the basis of the latents, so a decoder whose latents were mixed has the same parts.
They are exact up to the tolerance. Over the sample, the result is the finest partition of the coordinates whose blocks
are sums of parts at every point. Whether a partition exists in other coordinates of the whole domain is not decided:
parts are only matched between neighbouring points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.decoder.prepared_decoder import PreparedDecoder, import_torch
from congruence.errors import FewOutputsWarning, InputError, UnknownKeyError, warn_caller
from congruence.formatting import count
from congruence.mechanism import derivatives
from congruence.mechanism._blocks import Blocks, merge_groups, write_blocks
from congruence.mechanism._criteria import RTOL, SINGLE, SWEEP
from congruence.mechanism._options import BUDGET
from congruence.mechanism._sparsity_gap import sparse_decomposition
from congruence.mechanism.block_check import check_budget
from congruence.mechanism.derivatives import jacobian_chunks
from congruence.mechanism.domains import standardise
from congruence.mechanism.parts import MOST_LATENTS, Splitting, finest_additive, global_components, hat_tree, split
from congruence.mechanism.profile import action_graph
from congruence.result import Record
from congruence.stats.matching import match

TYPES = {"D": "act on disjoint outputs", "S": "are the sparsest way to write the Jacobian", "H2": "add up"}


@dataclass(frozen=True, eq=False)
class PartTracking:
    """Parts matched from neighbour to neighbour over the sample."""

    order: Array  # (r, K) which part of each point continues part k of the first; -1 if it was lost
    overlap: Float  # (r,) cosine of the largest angle to the neighbour it was matched with; NaN for the first point

    @property
    def lost(self) -> int:
        """The number of points at which the parts have other dimensions than at most points."""
        return int((self.order < 0).any(axis=1).sum())


@dataclass(frozen=True, eq=False)
class FinestParts(Record):
    """The finest parts of one type."""

    type: str  # "D", "S" or "H2"
    splittings: tuple[Splitting, ...] = field(repr=False)  # one for each point; empty if the parts are unknown
    partition: Blocks | None  # finest blocks of the coordinates that are sums of parts at every point
    followed: PartTracking | None = field(repr=False)
    sweep: tuple[tuple[float, tuple[int, ...]], ...] = ()  # tolerance and the most common dimensions at it; Type D
    outputs: tuple[Array, ...] = field(default=(), repr=False)  # Type D: outputs that are connected at any point
    notes: tuple[str, ...] = ()
    forced: bool = False  # any decoder with so few outputs splits at least as finely at a point

    NAMES = ("type", "dims", "agreeing", "partition", "aligned", "forced")

    @property
    def dims(self) -> tuple[int, ...] | None:
        """Dimensions of the parts at most points, from the smallest; None if unknown."""
        return _most_common(one.dims for one in self.splittings)

    @property
    def agreeing(self) -> float:
        """The share of points with those dimensions."""
        return float(np.mean([one.dims == self.dims for one in self.splittings])) if self.splittings else float("nan")

    @property
    def aligned(self) -> bool | None:
        """Whether the parts lie along the coordinates: then the partition is as fine as the parts."""
        if self.partition is None or not self.dims:
            return None
        largest = np.max([one.shares.max(axis=0, initial=0.0) for one in self.splittings], axis=0)  # (d,)
        acting = [block for block in self.partition if largest[list(block)].max() >= 1e-12]
        return len(acting) == len(self.dims) and self.agreeing == 1.0

    @property
    def steady(self) -> float | None:
        """Over how many decades of tolerance the dimensions stay the same, of the seven in the sweep; Type D."""
        if not self.sweep:
            return None
        runs = [len([*run]) for same, run in groupby(self.sweep, lambda one: one[1] == self.dims) if same]
        return max([run - 1 for run in runs], default=0) / 2

    @property
    def sentence(self) -> str:
        """The parts, in words."""
        if self.dims is None or self.partition is None:
            return f"Type {self.type}: unknown. {self.notes[0]}"
        if not self.dims:
            return f"Type {self.type}: no direction is determined."
        where = "at every point" if self.agreeing == 1 else f"at {100 * self.agreeing:.3g} % of points"
        if len(self.dims) == 1:
            text = f"no finer than one part of {self.dims[0]} {where}"
            finer = [(rtol, len(dims)) for rtol, dims in self.sweep if len(dims) > 1]
            if finer:  # a trained decoder has no exact zeros
                text += f" ({finer[0][1]} parts from a tolerance of {finer[0][0]:.1g} on)"
        else:
            text = f"{len(self.dims)} parts of dimensions {', '.join(map(str, self.dims))} {where}"
        idle = self.splittings[0].idle.shape[1]
        if idle:
            text += f", and {count(idle, 'direction')} that it does not determine"
        if len(self.dims) > 1:
            text += "; along the coordinates {}" if self.aligned else ", but not along the coordinates ({})"
            text = text.format(write_blocks(self.partition))
            if not self.aligned and len(self.outputs) == len(self.dims):
                text += f"; over all points the outputs form {len(self.outputs)} groups"
        return f"Type {self.type}: {text}."

    def to_dict(self) -> dict[str, Any]:
        """Numbers over the sample, without those of single points."""
        seen = self.followed.overlap[np.isfinite(self.followed.overlap)] if self.followed else np.zeros(0)
        least = float(seen.min()) if seen.size else float("nan")
        more = {
            "idle": max((one.idle.shape[1] for one in self.splittings), default=0),
            "lost": None if self.followed is None else self.followed.lost,
            "overlap": None if self.followed is None else least,
            "outputs": [len(part) for part in self.outputs],
            "steady": self.steady,
            "sweep": [{"rtol": rtol, "dims": list(dims)} for rtol, dims in self.sweep],
        }
        return {**super().to_dict(), **more, "summary": self.sentence, "notes": list(self.notes)}


@dataclass(frozen=True, eq=False)
class Discovery(Record):
    """The finest parts that a decoder supports, for each type. ``discovery["D"]`` has those of one type."""

    found: tuple[FinestParts, ...]
    points: int
    dimension: int
    outputs: int
    graph: Array = field(repr=False)  # (d, d) which latents act on a common output at any point: G_D
    notes: tuple[str, ...] = ()

    NAMES = ("points", "dimension", "outputs", "found", "graph", "notes")

    def __getitem__(self, type: str) -> FinestParts:
        found = {one.type: one for one in self.found}
        if type not in found:
            raise UnknownKeyError(f"there is no type {type!r}; there are {', '.join(found)}")
        return found[type]

    def __str__(self) -> str:
        return "\n".join([*(one.sentence for one in self.found), *(f"note: {note}" for note in self.notes)])


def _most_common(dims: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    return next((one for one, _ in Counter(dims).most_common(1)), None)


def discover(
    decoder: Any,
    z: Any,
    *,
    types: Sequence[str] = ("D", "S", "H2"),
    rtol: float | None = None,
    budget: float = BUDGET,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> Discovery:
    """Find the finest partition of the latents that a decoder supports, in any basis.

    Parameters
    ----------
    decoder : torch module or function
        As in `jacobians`.
    z : (r, d)
        Points; a few dozen suffice.
    types : sequence of "D", "S" and "H2"
        D: parts act on disjoint outputs. S: parts make the Jacobian sparsest. H2: parts add up, in some smooth
        coordinates; second derivatives of up to 20 latents.
    rtol : float, optional
        Derivatives up to this share of the largest count as zero; by default 1e-6, or 1e-4 for a decoder that only
        works in float32. Trained decoders have no exact zeros: see `sweep` of the result.
    budget : float
        Number of sets of outputs tried for Type S at a point; beyond it the parts are unknown.
    chunk : as in `jacobians`
    device : as in `jacobians`
    seed : int
        Seed of the random elements drawn for H2.

    Warns
    -----
    FewOutputsWarning
        If there are at most as many outputs as latents: any invertible square Jacobian splits into single directions.
    """
    wanted = tuple(dict.fromkeys(types.split(",") if isinstance(types, str) else types))
    unknown = [one for one in wanted if one not in TYPES]
    if unknown or not wanted:
        raise InputError(f"types must be some of {', '.join(TYPES)}; got {', '.join(map(str, unknown)) or 'nothing'}")
    check_budget(rtol, budget)
    prepared = derivatives.open_decoder(decoder, z, device)
    rows = to_numpy(prepared.z).astype(np.float64)
    small = rtol if rtol is not None else RTOL if prepared.z.dtype == import_torch().float64 else SINGLE
    notes = []
    if prepared.outputs <= prepared.dimension:
        notes.append(
            f"The decoder has {prepared.outputs} outputs for {prepared.dimension} latents; parts of type D and S at a "
            "point are uninformative then, since any invertible square Jacobian splits into single directions."
        )
        warn_caller(notes[0], FewOutputsWarning)
    if small == SINGLE and rtol is None:
        notes.append(f"The decoder works in float32 only: to find parts, links up to {SINGLE:g} count as zero.")
    finders: dict[str, Callable[[], FinestParts]] = {
        "D": lambda: _find_disjoint(prepared, rows, small, chunk),
        "S": lambda: _find_sparse(prepared, rows, small, budget, chunk),
        "H2": lambda: _find_additive(prepared, rows, small, chunk, seed),
    }
    graph = np.eye(prepared.dimension, dtype=bool)
    for part in jacobian_chunks(prepared, chunk=chunk):
        graph |= action_graph(part, rtol=small)
    parts = tuple(finders[type]() for type in wanted)
    return Discovery(parts, len(rows), prepared.dimension, prepared.outputs, graph, tuple(notes))


def _find_disjoint(prepared: PreparedDecoder, rows: Float, rtol: float, chunk: int | None) -> FinestParts:
    trees = [hat_tree(jacobian) for jacobian in chain.from_iterable(jacobian_chunks(prepared, chunk=chunk))]
    sweep = tuple((at, _most_common(tree.dims(at) for tree in trees) or ()) for at in SWEEP.tolist())
    splittings = [tree.splitting(rtol) for tree in trees]
    more = {"sweep": sweep, "outputs": global_components(trees, rtol)}
    return _combine("D", splittings, rows, rtol, forced=prepared.outputs <= prepared.dimension, **more)


def _find_sparse(prepared: PreparedDecoder, rows: Float, rtol: float, budget: float, chunk: int | None) -> FinestParts:
    splittings = []
    for jacobian in chain.from_iterable(jacobian_chunks(prepared, chunk=chunk)):
        size = np.abs(jacobian).max(axis=1, keepdims=True)
        moving = np.where(size > rtol * size.max(), jacobian, 0.0)  # without outputs that are nearly constant
        parts = sparse_decomposition(moving, budget=budget)
        if parts is None:
            note = f"A point needs more than {budget:g} sets of outputs; raise the budget or use fewer outputs."
            return FinestParts("S", (), None, None, notes=(note,))
        splittings.append(split(jacobian, parts, np.zeros((prepared.dimension, 0))))
    return _combine("S", splittings, rows, rtol, forced=prepared.outputs <= prepared.dimension)


def _find_additive(prepared: PreparedDecoder, rows: Float, rtol: float, chunk: int | None, seed: int) -> FinestParts:
    note = ""
    if prepared.dimension > MOST_LATENTS:
        note = f"It is computed for at most {MOST_LATENTS} latents; the decoder has {prepared.dimension}."
    elif (kind := derivatives.classify_curvature(prepared, seed)) != "smooth":
        note = f"The decoder is {kind}, so its second derivatives vanish."
    if note:
        return FinestParts("H2", (), None, None, notes=(note,))
    both = zip(
        chain.from_iterable(jacobian_chunks(prepared, chunk=1)),
        chain.from_iterable(derivatives.second_derivative_chunks(prepared, chunk=chunk)),
        strict=True,
    )
    splittings = [finest_additive(j, h, rtol=rtol, seed=seed) for j, h in both]
    return _combine("H2", splittings, rows, rtol, forced=any(one.forced for one in splittings))


def _combine(type: str, splittings: list[Splitting], rows: Float, rtol: float, **more: Any) -> FinestParts:
    """The parts of all points together."""
    partition = merge_groups(rows.shape[1], (block for one in splittings for block in one.partition(rtol)))
    notes = tuple(dict.fromkeys(note for one in splittings for note in one.notes))
    return FinestParts(type, tuple(splittings), partition, _track_parts(splittings, rows), notes=notes, **more)


def _track_parts(splittings: Sequence[Splitting], z: Any) -> PartTracking:
    """Match the parts of neighbouring points by the angles between them.

    Points are visited along the shortest tree that joins them, from the one in the middle; only points with the same
    dimensions can be matched. This does not decide whether the parts are tangent to coordinates of a global chart.
    """
    scaled = standardise(np.asarray(z, dtype=np.float64))
    dims = [one.dims for one in splittings]
    common = max(set(dims), key=lambda one: (dims.count(one), one))
    left = np.array([one == common for one in dims])
    start = int(np.argmin(np.where(left, np.linalg.norm(scaled - scaled.mean(0), axis=1), np.inf)))
    order, overlap = np.full((len(dims), len(common)), -1), np.full(len(dims), np.nan)
    order[start] = np.arange(len(common))
    left[start] = False
    away, source = np.linalg.norm(scaled - scaled[start], axis=1), np.full(len(scaled), start)
    while left.any():
        there = int(np.argmin(np.where(left, away, np.inf)))
        here = source[there]
        order[there], overlap[there] = order[here], 1.0
        if len(common):  # cosines of the largest principal angles between parts, -1 for other dimensions
            before, after = splittings[here].parts, splittings[there].parts
            near = np.array([[_cosine(before[k], part) for part in after] for k in order[here]])
            rows, order[there] = match(near)
            overlap[there] = near[rows, order[there]].min()
        left[there] = False
        nearer = np.linalg.norm(scaled - scaled[there], axis=1)
        source[nearer < away] = there
        away = np.minimum(away, nearer)
    return PartTracking(order, overlap)


def _cosine(one: Float, two: Float) -> float:
    return float(np.linalg.svd(one.T @ two, compute_uv=False)[-1]) if one.shape == two.shape else -1.0
