"""Where the latents live: a box, a union of boxes, or a sample; and the premises of Theorem 1 that are about it.

What was computed from the shape is `certified`, what a sample speaks for is `supported`, and what nothing here can
decide is `assumed`. A sample never certifies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.mechanism.blocks import Blocks, read_blocks
from congruence.mechanism.clouds import cloud_connected, cloud_filled, cloud_slices
from congruence.mechanism.graphs import connected
from congruence.mechanism.loops import loops_of

CELLS = 100_000  # values of a factor at which slices are looked at
EVIDENCE = ("assumed", "supported", "certified")  # from the weakest


@dataclass(frozen=True)
class Premise:
    """One premise of Theorem 1: whether it holds, and what says so."""

    name: str
    status: str  # "holds", "fails" or "unknown"
    evidence: str  # "certified", "supported" or "assumed"
    reason: str


@dataclass(frozen=True, eq=False)
class LatentDomain:
    """The set the latents come from. Made by `box`, `boxes` or `sample`."""

    kind: str  # "box", "boxes" or "sample"
    low: Float  # (b, d) corners of closed boxes; of a sample, those of the box around it
    high: Float
    rows: Float | None = None  # (n, d), of a sample

    @classmethod
    def box(cls, low: Any, high: Any) -> LatentDomain:
        """The box from corner `low` to corner `high`, (d,) each; infinite ends are allowed."""
        return cls.boxes([(low, high)])

    @classmethod
    def boxes(cls, corners: Any) -> LatentDomain:
        """The union of closed boxes, a list of pairs (low, high) of corners, (d,) each; boxes that touch are joined."""
        try:
            pairs = [(np.atleast_1d(to_numpy(a)), np.atleast_1d(to_numpy(b))) for a, b in corners]
            low, high = (np.stack(side).astype(np.float64) for side in zip(*pairs, strict=True))
        except (TypeError, ValueError) as error:
            raise InputError(
                "boxes must be pairs (low, high) of corners, all with the same number of latents"
            ) from error
        if low.ndim != 2 or low.shape != high.shape:
            raise InputError(f"corners must be two rows of d numbers each, not of shapes {low.shape} and {high.shape}")
        if np.isnan(low).any() or np.isnan(high).any():
            raise InputError("corners must be numbers, but NaN is among them; a box without an end has infinity there")
        flat = np.argwhere(~(low < high))
        if len(flat):
            k, a = flat[0]
            raise InputError(f"box {k} must have low < high, but latent {a} has {low[k, a]:g} and {high[k, a]:g}")
        return cls("box" if len(low) == 1 else "boxes", low, high)

    @classmethod
    def sample(cls, z: Any) -> LatentDomain:
        """Rows of latents (n, d) in the place of a set that is not known."""
        rows = to_numpy(as_matrix(z, "z")).astype(np.float64)
        return cls("sample", rows.min(0)[None], rows.max(0)[None], rows)

    @property
    def dimension(self) -> int:
        """The number of latents."""
        return int(self.low.shape[1])

    def contains(self, z: Any) -> Array:
        """Which rows of z, (n, d), lie in the domain, (n,); for a sample: in the box around it."""
        rows = to_numpy(z)[:, None, :]
        inside = np.all((rows >= self.low) & (rows <= self.high), axis=2)  # (n, boxes)
        return np.asarray(np.any(inside, axis=1))

    def simply_connected(self) -> Premise:
        """Whether it is in one piece and every loop in it can be drawn together."""
        name = "the latents fill a simply connected set"
        if self.kind == "box":
            return Premise(name, "holds", "certified", "A box is convex.")
        if self.rows is not None:
            return _of_cloud(name, *_simple_cloud(self.rows))
        touching = _touching(self.low, self.high)
        pieces = len(connected(touching))
        if pieces > 1:
            return Premise(name, "fails", "certified", f"The boxes fall into {pieces} pieces.")
        loops = loops_of(touching)
        if loops is None:
            return Premise(name, "unknown", "assumed", "The loops of this union of boxes could not be decided.")
        if loops:
            holes = "one loop" if loops == 1 else f"{loops} loops"
            return Premise(name, "fails", "certified", f"{holes.capitalize()} around a hole cannot be drawn together.")
        return Premise(name, "holds", "certified", "Every loop through the boxes can be drawn together.")

    def connected_slices(self, blocks: Any) -> Premise:
        """Whether what is left when the value of any one factor is fixed is in one piece.

        It is our reading of the paper's (K-1)-slices: one factor is fixed, the other K - 1 vary.
        """
        partition = read_blocks(blocks, self.dimension)
        name = "what is left when one factor is fixed is connected"
        if self.kind == "box":
            return Premise(name, "holds", "certified", "Slices of a box are boxes.")
        if len(partition) == 1:
            return Premise(name, "holds", "certified", "There is one factor only; what is left is a point.")
        if self.rows is not None:
            return _of_cloud(name, *cloud_slices(self.rows, partition))
        return self._slices_of_boxes(name, partition)

    def _slices_of_boxes(self, name: str, partition: Blocks) -> Premise:
        for block in partition:
            rest = [a for a in range(self.dimension) if a not in block]
            touching = _touching(self.low[:, rest], self.high[:, rest])
            low, high = self.low[:, list(block)], self.high[:, list(block)]
            values = [_places(low[:, a], high[:, a]) for a in range(len(block))]
            if np.prod([float(len(one)) for one in values]) > CELLS:
                reason = f"Latents {_listed(block)} have too many different values to look at every slice."
                return Premise(name, "unknown", "assumed", reason)
            for at in product(*values):
                there = ((low <= at) & (np.array(at) <= high)).all(axis=1)
                pieces = len(connected(touching[np.ix_(there, there)])) if there.any() else 0
                if pieces > 1:
                    where = ", ".join(f"z{a} = {value:.4g}" for a, value in zip(block, at, strict=True))
                    return Premise(name, "fails", "certified", f"With {where} fixed, {pieces} pieces are left.")
        return Premise(name, "holds", "certified", "Every slice of the boxes is in one piece.")


def weakest(premises: Iterator[Premise] | tuple[Premise, ...]) -> str:
    """The weakest evidence among premises."""
    return min((one.evidence for one in premises), key=EVIDENCE.index)


def _touching(low: Float, high: Float) -> Array:
    """Which closed boxes (b, d) have a point in common."""
    return np.asarray(np.all((low[:, None] <= high[None]) & (low[None] <= high[:, None]), axis=2))


def _places(low: Float, high: Float) -> list[float]:
    """A value at each end of the intervals and one between any two neighbouring ends: all slices there are."""
    ends = np.unique(np.concatenate([low, high]))
    finite = ends[np.isfinite(ends)]
    if not len(finite):
        return [0.0]
    between = (finite[1:] + finite[:-1]) / 2
    beyond = [finite[0] - 1.0] * bool(np.isneginf(ends[0])) + [finite[-1] + 1.0] * bool(np.isposinf(ends[-1]))
    return [float(value) for value in np.sort(np.concatenate([finite, between, beyond]))]


def _simple_cloud(rows: Float) -> tuple[bool | None, str]:
    pieces, reason = cloud_connected(rows)
    if pieces is not True:
        return pieces, reason
    return cloud_filled(rows)


def _of_cloud(name: str, holds: bool | None, reason: str) -> Premise:
    if holds is None:
        return Premise(name, "unknown", "assumed", reason)
    return Premise(name, "holds" if holds else "fails", "supported", reason)


def _listed(block: tuple[int, ...]) -> str:
    return ", ".join(str(a) for a in block)
