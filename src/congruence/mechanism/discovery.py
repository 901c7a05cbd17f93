"""Which factors a decoder supports, without given blocks: the finest parts at every point, and over the sample.

At a point parts are found in any basis of the latents, so a decoder whose latents were mixed has the same parts. Parts
at a point are exact up to the tolerance; over the sample, the result is the finest partition of the given coordinates
whose blocks are sums of parts at every point. Points do not decide whether there is a partition in other coordinates of
the whole domain: parts are only matched from neighbour to neighbour.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.decoder.probed import Probed, import_torch
from congruence.errors import FewOutputsWarning, InputError, UnknownKeyError
from congruence.formatting import count
from congruence.mechanism.additive_parts import LARGEST, finest_additive
from congruence.mechanism.blocks import Blocks, write_blocks
from congruence.mechanism.checking import SINGLE
from congruence.mechanism.derivatives import bending, jacobian_chunks, opened, second_derivative_chunks
from congruence.mechanism.disjoint_parts import HatTree, global_components, hat_tree
from congruence.mechanism.graphs import action_graph, join_partitions
from congruence.mechanism.sparsity_gap import BUDGET, sparse_decomposition
from congruence.mechanism.splitting import Followed, Splitting, follow, split
from congruence.mechanism.supports import RTOL

TYPES = {"D": "act on disjoint outputs", "S": "are the sparsest way to write the Jacobian", "H2": "add up"}
SWEEP = tuple(10.0 ** (k / 2) for k in range(-16, -1))  # tolerances from 1e-8 to 0.1


@dataclass(frozen=True, eq=False)
class Found:
    """The finest parts of one type."""

    type: str  # "D", "S" or "H2"
    splittings: tuple[Splitting, ...] = field(repr=False)  # one for each point; empty where nothing could be found
    partition: Blocks | None  # finest blocks of the given coordinates that are sums of parts at every point
    followed: Followed | None = field(repr=False)
    sweep: tuple[tuple[float, tuple[int, ...]], ...] = ()  # tolerance and the most common dimensions at it; Type D
    outputs: tuple[Array, ...] = field(default=(), repr=False)  # Type D: outputs that are connected at any point
    notes: tuple[str, ...] = ()

    @property
    def dims(self) -> tuple[int, ...] | None:
        """Dimensions of the parts at most points, from the smallest; None where nothing could be found."""
        return Counter(one.dims for one in self.splittings).most_common(1)[0][0] if self.splittings else None

    @property
    def agreeing(self) -> float:
        """The share of points with those dimensions."""
        return float(np.mean([one.dims == self.dims for one in self.splittings])) if self.splittings else float("nan")

    @property
    def aligned(self) -> bool | None:
        """Whether the parts lie along the given coordinates: then the partition is as fine as the parts."""
        if self.partition is None or not self.dims:
            return None
        acting = [block for block in self.partition if not _still(block, self.splittings)]
        return len(acting) == len(self.dims) and self.agreeing == 1.0

    @property
    def steady(self) -> float | None:
        """Over how many decades of tolerance the dimensions stay the same, of the seven in the sweep; Type D."""
        if not self.sweep:
            return None
        runs = [dims == self.dims for _, dims in self.sweep]
        longest = current = 0
        for same in runs:
            current = current + 1 if same else 0
            longest = max(longest, current)
        return max(longest - 1, 0) / 2

    @property
    def sentence(self) -> str:
        """The parts, in words."""
        if self.dims is None or self.partition is None:
            return f"Type {self.type}: unknown. {self.notes[0]}"
        if not self.dims:
            return f"Type {self.type}: no direction is determined."
        where = "at every point" if self.agreeing == 1 else f"at {100 * self.agreeing:.3g} % of points"
        if len(self.dims) == 1:
            text = f"no finer than one part of {self.dims[0]} {where}" + self._finer()
        else:
            text = f"{len(self.dims)} parts of dimensions {', '.join(map(str, self.dims))} {where}"
        idle = self.splittings[0].idle.shape[1]
        if idle:
            text += f", and {count(idle, 'direction')} that it does not determine"
        if len(self.dims) > 1:
            named = write_blocks(self.partition)
            text += f"; along the coordinates {named}" if self.aligned else f", but not along the coordinates ({named})"
            if not self.aligned and len(self.outputs) == len(self.dims):
                text += f"; over all points the outputs form {len(self.outputs)} groups"
        return f"Type {self.type}: {text}."

    def _finer(self) -> str:
        """The tolerance from which there would be more parts: a trained decoder has no exact zeros."""
        finer = [(rtol, len(dims)) for rtol, dims in self.sweep if len(dims) > 1]
        return f" ({finer[0][1]} parts from a tolerance of {finer[0][0]:.1g} on)" if finer else ""

    def to_dict(self) -> dict[str, Any]:
        """What holds over the sample; nothing of single points."""
        return {
            "type": self.type,
            "dims": None if self.dims is None else list(self.dims),
            "agreeing": self.agreeing,
            "partition": None if self.partition is None else [list(block) for block in self.partition],
            "aligned": self.aligned,
            "idle": max((one.idle.shape[1] for one in self.splittings), default=0),
            "lost": None if self.followed is None else self.followed.lost,
            "overlap": None if self.followed is None else _least(self.followed.overlap),
            "outputs": [len(part) for part in self.outputs],
            "steady": self.steady,
            "sweep": [{"rtol": rtol, "dims": list(dims)} for rtol, dims in self.sweep],
            "summary": self.sentence,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class Discovery:
    """What `discover` found: for each type the finest parts that a decoder supports."""

    found: tuple[Found, ...]
    points: int
    dimension: int
    outputs: int
    graph: Array = field(repr=False)  # (d, d) which latents act on a common output at any point: G_D
    notes: tuple[str, ...] = ()

    def __getitem__(self, type: str) -> Found:
        for one in self.found:
            if one.type == type:
                return one
        raise UnknownKeyError(f"there is no type {type!r}; there are {', '.join(one.type for one in self.found)}")

    def to_dict(self) -> dict[str, Any]:
        """All but single points, as in the JSON contract."""
        return {
            "points": self.points,
            "dimension": self.dimension,
            "outputs": self.outputs,
            "found": [one.to_dict() for one in self.found],
            "graph": self.graph.tolist(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join([*(one.sentence for one in self.found), *(f"note: {note}" for note in self.notes)])


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
    z : (r, d)
        Points; some dozens are as informative as thousands.
    types : of "D", "S" and "H2"
        D: parts act on disjoint outputs. S: parts make the Jacobian sparsest. H2: parts add up, in some smooth
        coordinates; second derivatives of up to 20 latents.
    rtol : float, optional
        What counts as zero relative to the largest; 1e-6 unless given, or 1e-4 for what works in float32 only. Trained
        decoders have no exact zeros: see `Found.sweep`.
    budget : float
        Of Type S at a point, see `sparsity_gap`; past it the parts are unknown.
    chunk, device
        As in `jacobians`.
    seed : int
        Of the elements drawn for H2.

    Warns
    -----
    FewOutputsWarning
        Where there are no more outputs than latents: any invertible square Jacobian splits into single directions.
    """
    wanted = _types(types)
    if rtol is not None and not 0 <= rtol < 1:
        raise InputError(f"rtol must be at least 0 and below 1, not {rtol!r}")
    if not budget >= 0:
        raise InputError(f"budget must be a number of at least 0, not {budget!r}")
    probed = opened(decoder, z, device)
    rows = to_numpy(probed.z).astype(np.float64)
    small = rtol if rtol is not None else RTOL if probed.z.dtype == import_torch().float64 else SINGLE
    notes = []
    if probed.outputs <= probed.dimension:
        text = (
            f"The decoder has {probed.outputs} outputs for {probed.dimension} latents; parts of type D and S at a "
            "point are uninformative then, since any invertible square Jacobian splits into single directions."
        )
        notes.append(text)
        warnings.warn(text, FewOutputsWarning, stacklevel=2)
    finders: dict[str, Callable[[], Found]] = {
        "D": lambda: _disjoint(probed, rows, small, chunk),
        "S": lambda: _sparse(probed, rows, small, budget, chunk),
        "H2": lambda: _additive(probed, rows, small, chunk, seed),
    }
    graph = np.eye(probed.dimension, dtype=bool)
    for jacobian in jacobian_chunks(probed, chunk=chunk):
        graph |= action_graph(jacobian, rtol=small)
    found = tuple(finders[type]() for type in wanted)
    return Discovery(found, len(rows), probed.dimension, probed.outputs, graph, tuple(notes))


def _types(types: Sequence[str]) -> tuple[str, ...]:
    wanted = tuple(types.split(",")) if isinstance(types, str) else tuple(types)
    unknown = [one for one in wanted if one not in TYPES]
    if unknown or not wanted:
        raise InputError(f"types must be some of {', '.join(TYPES)}, not {', '.join(map(str, unknown)) or 'nothing'}")
    return tuple(dict.fromkeys(wanted))


def _each(probed: Probed, chunk: int | None) -> Iterator[Float]:
    """Jacobians (m, d), point by point."""
    for some in jacobian_chunks(probed, chunk=chunk):
        yield from some


def _disjoint(probed: Probed, rows: Float, rtol: float, chunk: int | None) -> Found:
    trees = [hat_tree(jacobian) for jacobian in _each(probed, chunk)]
    splittings = tuple(tree.splitting(rtol) for tree in trees)
    sweep = tuple((at, _common(trees, at)) for at in SWEEP)
    return _gathered("D", splittings, rows, rtol, sweep=sweep, outputs=global_components(trees, rtol))


def _common(trees: list[HatTree], rtol: float) -> tuple[int, ...]:
    return Counter(tree.dims(rtol) for tree in trees).most_common(1)[0][0]


def _sparse(probed: Probed, rows: Float, rtol: float, budget: float, chunk: int | None) -> Found:
    splittings = []
    for jacobian in _each(probed, chunk):
        parts = sparse_decomposition(_without_specks(jacobian, rtol), budget=budget)
        if parts is None:
            note = f"A point needs more than {budget:g} sets of outputs; raise the budget or use fewer outputs."
            return Found("S", (), None, None, notes=(note,))
        splittings.append(split(jacobian, parts, np.zeros((probed.dimension, 0))))
    return _gathered("S", tuple(splittings), rows, rtol)


def _without_specks(jacobian: Float, rtol: float) -> Float:
    """The Jacobian without outputs that hardly move."""
    size = np.abs(jacobian).max(axis=1, keepdims=True)
    return np.where(size > rtol * size.max(), jacobian, 0.0)


def _additive(probed: Probed, rows: Float, rtol: float, chunk: int | None, seed: int) -> Found:
    if probed.dimension > LARGEST:
        note = f"It can be found for up to {LARGEST} latents, and there are {probed.dimension}."
        return Found("H2", (), None, None, notes=(note,))
    kind = bending(probed, seed)
    if kind != "smooth":
        return Found("H2", (), None, None, notes=(f"The decoder is {kind}, so its second derivatives vanish.",))
    splittings = []
    for jacobian, hessian in zip(
        _each(probed, 1), (one for some in second_derivative_chunks(probed, chunk=chunk) for one in some), strict=True
    ):
        splittings.append(finest_additive(jacobian, hessian, rtol=rtol, seed=seed))
    return _gathered("H2", tuple(splittings), rows, rtol)


def _gathered(type: str, splittings: tuple[Splitting, ...], rows: Float, rtol: float, **more: Any) -> Found:
    """The parts of all points together."""
    partition = join_partitions((one.partition(rtol) for one in splittings), rows.shape[1])
    notes = tuple(dict.fromkeys(note for one in splittings for note in one.notes))
    followed = follow(splittings, rows)
    return Found(type, splittings, partition, followed, notes=notes, **more)


def _still(block: tuple[int, ...], splittings: tuple[Splitting, ...]) -> bool:
    """Whether a block of coordinates is in no part at any point."""
    return all(not len(one.shares) or one.shares[:, list(block)].max() < 1e-12 for one in splittings)


def _least(overlap: Float) -> float:
    seen = overlap[np.isfinite(overlap)]
    return float(seen.min()) if seen.size else float("nan")
