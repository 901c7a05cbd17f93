"""The domain of the latents (a box, a union of boxes, or a sample), and the premises of Theorem 1 about it.

What is computed from the shape is `certified`, what holds for a sample is `supported`, and what cannot be decided is
`unknown`. A sample never certifies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.formatting import count
from congruence.mechanism.blocks import Blocks, read_blocks
from congruence.mechanism.clouds import cloud_connected, cloud_filled, cloud_slices
from congruence.mechanism.graphs import connected
from congruence.mechanism.loops import loops_of
from congruence.result import Basis, Finding, Status

CELLS = 100_000  # values of a factor at which slices are examined
SIMPLE = "simply_connected", "The latents fill a simply connected set."
SLICES = "connected_slices", "What is left when one factor is fixed is connected."


@dataclass(frozen=True, eq=False)
class LatentDomain:
    """The set that the latents come from; made by `box`, `boxes` or `sample`."""

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
        """Rows of latents (n, d) that stand for a set that is not known."""
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

    def simply_connected(self) -> Finding:
        """Whether it is in one piece and every loop in it can be contracted."""
        if self.kind == "box":
            return _finding(SIMPLE, "holds", "A box is convex.")
        if self.rows is not None:
            return _of_cloud(SIMPLE, *_simple_cloud(self.rows))
        touching = _touching(self.low, self.high)
        pieces = len(connected(touching))
        if pieces > 1:
            return _finding(SIMPLE, "fails", f"The boxes form {pieces} separate pieces.")
        loops = loops_of(touching)
        if loops is None:
            return _finding(SIMPLE, "unknown", "The loops of this union of boxes could not be decided.")
        if loops:
            return _finding(SIMPLE, "fails", f"{count(loops, 'loop')} around a hole cannot be contracted.")
        return _finding(SIMPLE, "holds", "Every loop through the boxes can be contracted.")

    def connected_slices(self, blocks: Any) -> Finding:
        """Whether what is left when the value of any one factor is fixed is in one piece.

        It is our reading of the paper's (K-1)-slices: one factor is fixed, the other K - 1 vary.
        """
        partition = read_blocks(blocks, self.dimension)
        if self.kind == "box":
            return _finding(SLICES, "holds", "Slices of a box are boxes.")
        if len(partition) == 1:
            return _finding(SLICES, "holds", "There is only one factor; what is left is a point.")
        if self.rows is not None:
            return _of_cloud(SLICES, *cloud_slices(self.rows, partition))
        return self._slices_of_boxes(partition)

    def _slices_of_boxes(self, partition: Blocks) -> Finding:
        for block in partition:
            rest = [a for a in range(self.dimension) if a not in block]
            touching = _touching(self.low[:, rest], self.high[:, rest])
            low, high = self.low[:, list(block)], self.high[:, list(block)]
            values = [_places(low[:, a], high[:, a]) for a in range(len(block))]
            if np.prod([float(len(one)) for one in values]) > CELLS:
                reason = f"Latents {_listed(block)} have too many different values to examine every slice."
                return _finding(SLICES, "unknown", reason)
            for at in product(*values):
                there = ((low <= at) & (np.array(at) <= high)).all(axis=1)
                pieces = len(connected(touching[np.ix_(there, there)])) if there.any() else 0
                if pieces > 1:
                    where = ", ".join(f"z{a} = {value:.4g}" for a, value in zip(block, at, strict=True))
                    return _finding(SLICES, "fails", f"With {where} fixed, {pieces} pieces are left.")
        return _finding(SLICES, "holds", "Every slice of the boxes is in one piece.")


def _finding(about: tuple[str, str], status: Status, evidence: str, basis: Basis = "certified") -> Finding:
    """A premise by its name and claim; `basis` is that of a premise that holds."""
    if status == "holds":
        return Finding(*about, status, basis, evidence)
    return Finding(*about, status, evidence=evidence)


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


def _of_cloud(about: tuple[str, str], holds: bool | None, reason: str) -> Finding:
    status: Status = "unknown" if holds is None else "holds" if holds else "fails"
    return _finding(about, status, reason, "supported")


def _listed(block: tuple[int, ...]) -> str:
    return ", ".join(str(a) for a in block)
