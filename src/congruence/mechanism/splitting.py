"""How the latent directions at a point split into parts, in terms of coordinates, and from point to point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.graphs import connected


@dataclass(frozen=True, eq=False)
class Splitting:
    """The latent directions at one point as a direct sum of parts, and of directions that are not determined."""

    parts: tuple[Float, ...]  # each (d, k), orthonormal columns; determined up to `idle`
    idle: Float  # (d, k), may be empty
    shares: Float  # (parts, d): the effect of each coordinate that goes through each part, of its whole effect
    rows: tuple[Array, ...] = ()  # the outputs of each part, where the parts act on separate ones
    notes: tuple[str, ...] = ()

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions of the parts, from the smallest."""
        return tuple(sorted(part.shape[1] for part in self.parts))

    def partition(self, rtol: float) -> Blocks:
        """The finest blocks of coordinates that are sums of parts.

        Two coordinates belong together where both have more than `rtol` of their effect in one part.
        """
        touched = self.shares > rtol  # (parts, d)
        d = self.shares.shape[1]
        adjacency = np.eye(d, dtype=bool)
        for part in touched:
            adjacency[np.ix_(part, part)] = True
        return connected(adjacency)


def split(
    jacobian: Float,
    parts: Sequence[Float],
    idle: Float,
    rows: Sequence[Array] = (),
    notes: Sequence[str] = (),
) -> Splitting:
    """Make a splitting of parts that span all directions together with `idle`; parts are ordered by their coordinates.

    The share of coordinate a in part c is |J P_c e_a| / |J e_a|, with P_c the projection onto the part along the
    others: it does not change with the units of the latents.
    """
    unit = [np.linalg.qr(part)[0] for part in parts]
    basis = np.concatenate([*unit, idle], axis=1)  # (d, d)
    inverse = np.linalg.inv(basis)
    whole = np.linalg.norm(jacobian, axis=0)
    shares, first = [], 0
    for part in unit:
        projected = jacobian @ part @ inverse[first : first + part.shape[1]]  # (m, d)
        shares.append(np.linalg.norm(projected, axis=0) / np.where(whole > 0, whole, 1.0))
        first += part.shape[1]
    order = sorted(range(len(unit)), key=lambda c: (int(np.argmax(shares[c])), c))
    return Splitting(
        parts=tuple(unit[c] for c in order),
        idle=idle,
        shares=np.array([shares[c] for c in order]).reshape(len(unit), len(whole)),
        rows=tuple(rows[c] for c in order) if rows else (),
        notes=tuple(notes),
    )


@dataclass(frozen=True, eq=False)
class Followed:
    """Parts followed from neighbour to neighbour over the sample."""

    order: Array  # (r, K) which part of each point continues part k of the first; -1 where it was lost
    overlap: Float  # (r,) cosine of the largest angle to the neighbour it was followed from; NaN for the first point

    @property
    def lost(self) -> int:
        """The number of points at which the parts have other dimensions than where they came from."""
        return int((self.order < 0).any(axis=1).sum())


def follow(splittings: Sequence[Splitting], z: Any) -> Followed:
    """Match the parts of neighbouring points by the angles between them.

    Points are walked along the shortest tree that joins them, from the one in the middle; only points with the same
    dimensions can be matched. Whether the parts are tangent to coordinates of a global chart is not decided by this.
    """
    scaled = _standardised(np.asarray(z, dtype=np.float64))
    start = _most_common(splittings, scaled)
    count = len(splittings[start].parts)
    order = np.full((len(splittings), count), -1)
    overlap = np.full(len(splittings), np.nan)
    order[start] = np.arange(count)
    for here, there in _walk(splittings, scaled, start):
        order[there], overlap[there] = _matched(splittings[here], order[here], splittings[there])
    return Followed(order, overlap)


def _matched(before: Splitting, order: Array, after: Splitting) -> tuple[Array, float]:
    """Which parts of `after` continue those of `before`, and the worst cosine of a principal angle between them."""
    from scipy.optimize import linear_sum_assignment

    if not len(order):
        return order, 1.0
    parts = [before.parts[k] for k in order]
    near = np.array([[_nearness(one, two) for two in after.parts] for one in parts])
    rows, columns = linear_sum_assignment(-near)
    return columns, float(near[rows, columns].min())


def _nearness(one: Float, two: Float) -> float:
    """The cosine of the largest principal angle between subspaces of the same dimension; -1 for other dimensions."""
    if one.shape != two.shape:
        return -1.0
    return float(np.linalg.svd(one.T @ two, compute_uv=False)[-1])


def _most_common(splittings: Sequence[Splitting], z: Float) -> int:
    """The point nearest to the middle among those with the most common dimensions."""
    dims = [one.dims for one in splittings]
    common = max(set(dims), key=lambda one: (dims.count(one), one))
    away = np.linalg.norm(z - z.mean(0), axis=1)
    away[[one != common for one in dims]] = np.inf
    return int(np.argmin(away))


def _walk(splittings: Sequence[Splitting], z: Float, start: int) -> list[tuple[int, int]]:
    """Steps (from, to) over the points with the dimensions of the start, each from its nearest point already met."""
    alike = np.array([one.dims == splittings[start].dims for one in splittings])
    alike[start] = False
    away = np.linalg.norm(z - z[start], axis=1)
    source = np.full(len(z), start)
    steps = []
    while alike.any():
        there = int(np.argmin(np.where(alike, away, np.inf)))
        steps.append((int(source[there]), there))
        alike[there] = False
        nearer = np.linalg.norm(z - z[there], axis=1)
        source[nearer < away] = there
        away = np.minimum(away, nearer)
    return steps


def _standardised(z: Float) -> Float:
    spread = z.std(0)
    scaled: Float = (z - z.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled
