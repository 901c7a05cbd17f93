"""Overlaps of the images of the linear pieces of a network: exact answers on F2, F3 and F4 for small networks.

A ReLU network is affine on each of finitely many polytopes. It is injective (F4) if every piece has full rank and no
two images meet except along shared faces; observably injective (F3) if the images of full-rank pieces overlap in no
volume; weakly injective (F2) if part of the image of some piece is covered by no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.decoder.regions import Piece
from congruence.mixture.conditions import FAILS, HOLDS, UNKNOWN, Counterexample
from congruence.result import Status

MOST_PIECES = 60  # all pairs are compared
RANK = 1e-10  # of the largest singular value
INSIDE = 1e-7  # radius of a ball that counts as volume
APART = 1e-6  # latents nearer than this are one
MEET = 1e-4  # of what the pieces make of so much latent: outputs nearer than this are one, the rest is rounding
MOST_CUTS = 2000  # parts of a piece that are looked at for one that no other covers
Region = tuple[Float, Float]  # normals (k, m) and limits (k,): latents with normals @ z <= limits


@dataclass(frozen=True, eq=False)
class Overlaps:
    """The status of F2, F3 and F4, and what decides it."""

    f2: Status
    f3: Status
    f4: Status
    pieces: int
    full: int  # pieces of full rank
    pair: Counterexample | None  # against F4
    overlap: Counterexample | None  # against F3: two latents with neighbourhoods of the same image
    seen_once: Float | None  # for F2: a latent about which all outputs have one latent


def overlaps(pieces: Sequence[Piece], seed: int = 0) -> Overlaps:
    """Decide F2, F3 and F4 from all linear pieces of a network."""
    full = [piece for piece in pieces if _keeps_all(piece.matrix)]
    pair = _lost_direction(pieces) if len(full) < len(pieces) else None
    if not full:
        return Overlaps(FAILS, FAILS, FAILS, len(pieces), 0, pair, None, None)
    if len(pieces) > MOST_PIECES:
        f4 = FAILS if pair is not None else UNKNOWN
        return Overlaps(UNKNOWN, UNKNOWN, f4, len(pieces), len(full), pair, None, None)
    covers = _covers(full)
    overlap = next((c for i in range(len(full)) for c in _meeting(full, covers, i)), None)
    if pair is None:
        pair = overlap or _collision(full, np.random.default_rng(seed))
    lone = _seen_once(full, covers)
    f2 = lone if isinstance(lone, str) else HOLDS
    return Overlaps(
        f2,
        HOLDS if overlap is None else FAILS,
        HOLDS if pair is None else FAILS,
        len(pieces),
        len(full),
        pair,
        overlap,
        None if isinstance(lone, str) else lone,
    )


def _keeps_all(matrix: Float) -> bool:
    """Whether a piece z -> z @ matrix, (m, n), loses no direction."""
    if matrix.shape[1] < matrix.shape[0]:
        return False
    values = np.linalg.svd(matrix, compute_uv=False)
    return bool(values[-1] > RANK * values[0])


def _in_units(normals: Float, limits: Float) -> Region:
    """The same region with normals of length 1: programmes keep limits up to a tolerance that knows no scale."""
    lengths = np.linalg.norm(normals, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return normals / lengths[:, None], limits / lengths


def _centre(normals: Float, limits: Float) -> tuple[Float, float]:
    """The middle of the largest ball, of radius 1 at most, within a polytope, and its radius (below 0 if none)."""
    from scipy.optimize import linprog

    m = normals.shape[1]
    normals, limits = _in_units(normals, limits)
    found = linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=np.column_stack([normals, np.linalg.norm(normals, axis=1)]),
        b_ub=limits,
        bounds=[(None, None)] * m + [(None, 1.0)],
        method="highs",
    )
    return (found.x[:m], float(found.x[m])) if found.status == 0 else (np.zeros(m), -1.0)


def _lost_direction(pieces: Sequence[Piece]) -> Counterexample:
    """Two latents of a piece that loses a direction."""
    piece = next(piece for piece in pieces if not _keeps_all(piece.matrix))
    centre, radius = _centre(piece.normals, piece.limits)
    lost = np.linalg.svd(piece.matrix)[0][:, -1]
    other = centre + 0.9 * radius * lost
    return _pair(piece, centre, piece, other)


def _pair(a: Piece, x: Float, b: Piece, y: Float) -> Counterexample:
    gap = np.linalg.norm(x @ a.matrix + a.shift - y @ b.matrix - b.shift)
    return Counterexample(x, y, float(gap), float(np.linalg.norm(x - y)))


def _covers(full: Sequence[Piece]) -> dict[tuple[int, int], Region]:
    """For pieces i, j with images in one affine space: the latents of i's frame that j's image covers."""
    found = {}
    for i, a in enumerate(full):
        back = np.linalg.pinv(a.matrix)  # (n, m): of rows y - shift
        for j, b in enumerate(full):
            if i == j:
                continue
            there = np.linalg.pinv(b.matrix)
            # z' = (z @ A + a - b) @ B^+, and it is an answer only where A and a - b lie in the row space of B
            matrix, shift = a.matrix @ there, (a.shift - b.shift) @ there
            size = np.abs(a.matrix).max() + np.abs(b.matrix).max()
            offset = a.shift - b.shift
            same = np.abs(matrix @ b.matrix - a.matrix).max() <= 1e-9 * size
            same &= bool(np.abs(shift @ b.matrix - offset).max() <= 1e-9 * (size + np.abs(offset).max()))
            if same and back.shape == there.shape:
                found[i, j] = (b.normals @ matrix.T, b.limits - b.normals @ shift)
    return found


def _meeting(full: Sequence[Piece], covers: dict[tuple[int, int], Region], i: int) -> Any:
    """Pairs of latents, one of piece i and one of a later piece, about which images overlap in volume."""
    a = full[i]
    for (first, j), (normals, limits) in covers.items():
        if first != i or j <= i:
            continue
        centre, radius = _centre(np.vstack([a.normals, normals]), np.append(a.limits, limits))
        if radius > INSIDE:
            b = full[j]
            yield _pair(a, centre, b, (centre @ a.matrix + a.shift - b.shift) @ np.linalg.pinv(b.matrix))


def _collision(full: Sequence[Piece], rng: np.random.Generator) -> Counterexample | None:
    """Two latents of different pieces with one output, found by linear programmes over both.

    The difference of the two latents is pushed along one random direction and back: where neither moves it off 0, it is
    0 for all, but for a set of directions of measure 0.
    """
    from scipy.optimize import linprog

    for i, a in enumerate(full):
        m = len(a.matrix)
        for b in full[i + 1 :]:
            size = max(np.abs(a.matrix).max(), np.abs(b.matrix).max())
            equal = np.hstack([a.matrix.T, -b.matrix.T]) / size  # (n, 2 m)
            gap = (b.shift - a.shift) / size
            solved = np.linalg.lstsq(equal, gap, rcond=None)[0]
            if np.abs(equal @ solved - gap).max() > 1e-9 * (np.abs(gap).max() + np.abs(equal).max()):
                continue
            (here, ends), (there, others) = _in_units(a.normals, a.limits), _in_units(b.normals, b.limits)
            limits = np.block([[here, np.zeros((len(here), m))], [np.zeros((len(there), m)), there]])
            least = min(np.linalg.svd(one.matrix, compute_uv=False)[-1] for one in (a, b))
            push = rng.normal(size=m)
            for sign in (1.0, -1.0):
                found = linprog(
                    np.concatenate([sign * push, -sign * push]),
                    A_ub=limits,
                    b_ub=np.append(ends, others),
                    A_eq=equal,
                    b_eq=gap,
                    bounds=(-1e3, 1e3),
                    method="highs",
                )
                if found.status != 0:
                    continue
                pair = _pair(a, found.x[:m], b, found.x[m:])
                if pair.apart > APART and pair.gap <= MEET * least * pair.apart:
                    return pair
    return None


def _seen_once(full: Sequence[Piece], covers: dict[tuple[int, int], Region]) -> Float | Status:
    """A latent around which every output has one latent; else "fails", or "unknown" at the limit."""
    cuts = [MOST_CUTS]
    for i, piece in enumerate(full):
        others = [region for (first, _), region in covers.items() if first == i]
        found = _uncovered(piece.normals, piece.limits, others, cuts)
        if found is not None:
            return found
        if cuts[0] <= 0:
            return UNKNOWN
    return FAILS


def _uncovered(normals: Float, limits: Float, others: Sequence[Region], cuts: list[int]) -> Float | None:
    """A point of a polytope in none of the others: what is left after taking them away one by one."""
    cuts[0] -= 1
    centre, radius = _centre(normals, limits)
    if radius <= INSIDE or cuts[0] <= 0:
        return None
    if not others:
        return centre
    inside: Region = (normals, limits)
    for normal, limit in zip(*others[0], strict=True):  # beyond one side of the first, within all sides before
        beyond = (np.vstack([inside[0], -normal]), np.append(inside[1], -limit))
        found = _uncovered(*beyond, others[1:], cuts)
        if found is not None:
            return found
        inside = (np.vstack([inside[0], normal]), np.append(inside[1], limit))
    return None
