"""All linear pieces of a small piecewise linear network, and its exact stretch.

Latents with the same active units form a convex polytope, on which the network is affine. Pieces are enumerated unit
by unit: each unit splits every piece that its border crosses, as decided by a linear programme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.certificates import (
    LINEAR,
    StretchCertificate,
    kind_of,
    latent_shape_of,
    layer_matrix,
    layers_of,
    negative_slopes,
)
from congruence.errors import InputError

_INSIDE = 1e-9  # radius of a ball that a piece must contain; borders and corners are not pieces
_FLAT = 1e-13  # a unit whose slope is less, relative to the others, does not depend on latents
_MOST_UNITS, _MOST_PIECES = 64, 5000


@dataclass(frozen=True, eq=False)
class Piece:
    """Latents z with normals @ z <= limits, on which the network so far is z -> z @ matrix + shift."""

    normals: Float  # (k, d)
    limits: Float  # (k,)
    matrix: Float  # (d, width)
    shift: Float  # (width,)


@dataclass(frozen=True)
class Regions:
    """The number of linear pieces, and the certificate over all of them."""

    count: int
    certificate: StretchCertificate
    box: tuple[float, float] | None


def linear_regions(decoder: Any, box: tuple[float, float] | None = None) -> Regions:
    """Enumerate every linear piece of a small network of linear layers and (leaky) rectifiers.

    The decoder is a `Sequential` with at most 64 units in rectifiers, which may have no leak. `box` is the range of all
    coordinates of the latents; by default all latents.

    The certificate holds the exact least and largest singular value over all pieces. The largest bounds every distance
    in a convex box. The least holds inside each piece: two pieces may still fold onto each other. Pieces that contain
    no ball of radius 1e-9 are ignored.
    """
    pieces = linear_pieces(decoder, box)
    d = pieces[0].matrix.shape[0]
    values = [np.linalg.svd(piece.matrix, compute_uv=False) for piece in pieces]
    lost = pieces[0].matrix.shape[1] < d
    least = min(float(value[-1]) if value[-1] > 1e-12 * value[0] else 0.0 for value in values)  # below is rounding
    where = "everywhere" if box is None else f"for latents between {box[0]:g} and {box[1]:g}"
    how = f"all {len(pieces)} linear pieces, {where}"
    high = float(max(value[0] for value in values))
    certificate = StretchCertificate(0.0 if lost else least, high, d, how, injective=False)
    return Regions(len(pieces), certificate, box)


def linear_pieces(decoder: Any, box: tuple[float, float] | None = None, latents: int | None = None) -> list[Piece]:
    """The linear pieces that `linear_regions` counts; `latents` is needed where no linear layer has their number."""
    parts = list(layers_of(decoder))
    d = latent_shape_of(latents, parts)[0]
    normals, limits = np.zeros((0, d)), np.zeros(0)
    if box is not None:
        if not (np.isfinite(box).all() and box[0] < box[1]):
            raise InputError(f"box must be two numbers, the smaller first; got {box!r}")
        normals, limits = np.vstack([np.eye(d), -np.eye(d)]), np.repeat([box[1], -box[0]], d).astype(float)
    pieces = [Piece(normals, limits, np.eye(d), np.zeros(d))]
    units = 0
    for name, part in parts:
        if kind_of(part) in LINEAR:
            matrix, shift = layer_matrix(name, part, (pieces[0].matrix.shape[1],))
            pieces = [Piece(p.normals, p.limits, p.matrix @ matrix, p.shift @ matrix + shift) for p in pieces]
            continue
        if kind_of(part) not in ("ReLU", "LeakyReLU"):
            raise InputError(
                f"{name} must be a linear layer, ReLU or LeakyReLU, since only these are known to be piecewise linear"
            )
        slope = negative_slopes(part)[0]
        units += pieces[0].matrix.shape[1]
        if units > _MOST_UNITS:
            raise InputError(f"the decoder has more than {_MOST_UNITS} units, too many to find all linear pieces")
        if slope != 1:
            pieces = [split for piece in pieces for split in _apply_rectifier(piece, slope, len(pieces))]
            _check_count(len(pieces))
    return pieces


def _apply_rectifier(piece: Piece, slope: float, count: int) -> list[Piece]:
    """Split a piece along the border of every unit, and apply the rectifier to each part."""
    width = piece.matrix.shape[1]
    parts: list[tuple[Piece, Array]] = [(piece, np.ones(width))]
    for unit in range(width):
        normal, limit = piece.matrix[:, unit], -piece.shift[unit]
        if np.linalg.norm(normal) <= _FLAT * np.linalg.norm(piece.matrix):  # on one side everywhere
            for _, slopes in parts:
                slopes[unit] = 1.0 if limit <= 0 else slope
            continue
        split = []
        for part, slopes in parts:
            for side, factor in ((-1.0, 1.0), (1.0, slope)):  # normal @ z >= limit, and <= limit
                half = _cut(part, side * normal, side * limit)
                if half is not None:
                    chosen = slopes.copy()
                    chosen[unit] = factor
                    split.append((half, chosen))
        parts = split
        _check_count(count - 1 + len(parts))
    return [Piece(p.normals, p.limits, p.matrix * slopes, p.shift * slopes) for p, slopes in parts]


def _cut(piece: Piece, normal: Float, limit: float) -> Piece | None:
    """The part of a piece with normal @ z <= limit, or None if it has no interior."""
    size = float(np.linalg.norm(normal))
    normals, limits = np.vstack([piece.normals, normal / size]), np.append(piece.limits, limit / size)
    return Piece(normals, limits, piece.matrix, piece.shift) if largest_ball(normals, limits)[1] > _INSIDE else None


def largest_ball(normals: Float, limits: Float) -> tuple[Float, float]:
    """Centre and radius, at most 1, of the largest ball where normals @ z <= limits; the radius is -inf if empty."""
    from scipy.optimize import linprog

    d = normals.shape[1]
    solution = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([normals, np.linalg.norm(normals, axis=1)]),
        b_ub=limits,
        bounds=[(None, None)] * d + [(None, 1.0)],
        method="highs",
    )
    return (solution.x[:d], float(solution.x[d])) if solution.status == 0 else (np.zeros(d), -np.inf)


def _check_count(count: int) -> None:
    if count > _MOST_PIECES:
        raise InputError(f"the decoder has more than {_MOST_PIECES} linear pieces, too many to enumerate")
