"""Graded scores: how far blocks of latents are from D, M and S at a point, beside random directions of the latents.

A trained decoder has no exact zeros, so that a criterion on supports holds or fails with the tolerance. These scores
need none: they weight outputs by the size of their derivatives. Columns of a Jacobian are scaled to length 1 first, so
that the units of latents do not matter. Smaller is closer to the criterion, and 0 where blocks act on disjoint outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import nan

import numpy as np

from congruence.arrays import Float
from congruence.mechanism._blocks import Blocks, label_members
from congruence.mechanism._criteria import block_orthogonality
from congruence.mechanism._interactions import random_rotation
from congruence.mechanism._matroid import scale_to_unit

_POINTS, _ROTATIONS = 8, 4  # for the scores of random directions
_OUTPUTS = 2000  # at most, evenly spread, on which pairs of latents are compared
_PAIR_NUMBERS = 2**22  # outputs times squared latents, beyond which pairs are not graded
_ANGLES = np.arange(1, 12) * np.pi / 24  # by which two latents are rotated into each other
_SWEEPS = 4  # of rotations inside blocks
GRADED = {
    "D": "share of squared derivatives outside of the strongest block of each output",
    "M_coord": "largest share of squared derivatives that two latents of different blocks have in common",
    "M_sparsest": "the same after rotating the latents of each block to the fewest outputs",
    "S": "share of outputs, weighted by size, saved by rotating two latents of different blocks into each other",
    "IMA": "largest cosine between blocks",
}


def grade_points(
    jacobians: Sequence[Float], blocks: Blocks, tolerance: float, seed: int
) -> dict[str, tuple[float, float]]:
    """Return the mean over some points of each score, and the same for random directions of the latents.

    The latents are rotated, in units of their effect. For IMA the directions of the outputs are random: orthogonal
    columns stay so in a rotation. Scores of pairs are NaN if there are too many latents.
    """
    rng = np.random.default_rng(seed)
    own, random = [], []
    for j in jacobians[:_POINTS]:
        unit = scale_to_unit(j, 0)
        own.append(_scores(unit, blocks) | {"IMA": nan})
        for _ in range(_ROTATIONS):
            turned = _scores(unit @ random_rotation(rng, j.shape[1]), blocks)
            random.append(turned | {"IMA": block_orthogonality(rng.standard_normal(j.shape), blocks, tolerance)[1]})
    typical, null = ({name: float(np.mean([one[name] for one in some])) for name in GRADED} for some in (own, random))
    return {name: (typical[name], null[name]) for name in GRADED}


def _scores(j: Float, blocks: Blocks) -> dict[str, float]:
    some = j[:: -(-len(j) // _OUTPUTS)]
    scores = dict.fromkeys(GRADED, nan) | {"D": disjoint_leak(j, blocks)}
    if some.size * j.shape[1] <= _PAIR_NUMBERS:
        sparse = rotate_inside(some, blocks)
        scores |= {"M_coord": common_share(some, blocks), "M_sparsest": common_share(sparse, blocks)}
        scores["S"] = mixing_gain(sparse, blocks)
    return scores


def disjoint_leak(j: Float, blocks: Blocks) -> float:
    """Return the share of squared derivatives that are not by the strongest block of each output, from 0 (Type D)."""
    squares = np.square(scale_to_unit(j, 0))
    energy = np.stack([squares[:, list(block)].sum(axis=1) for block in blocks], axis=1)  # (m, K)
    others = np.sort(energy, axis=1)[:, :-1].sum()
    return float(others / max(energy.sum(), np.finfo(float).tiny))


def common_share(j: Float, blocks: Blocks) -> float:
    """Return the largest share of squared derivatives that two latents of different blocks have in common, from 0 to 1.

    The sum over outputs of the smaller of both, for columns of length 1; 0 if no two latents reach a common output.
    """
    squares, owner = np.square(scale_to_unit(j, 0)), label_members(blocks)
    shares = (
        np.minimum(squares[:, [a]], squares[:, owner != k]).sum(axis=0).max(initial=0.0) for a, k in enumerate(owner)
    )
    return float(max(shares, default=0.0))


def effective_outputs(columns: Float) -> Float:
    """Return the number of outputs of each column weighted by size, |x|_1^2 / |x|_2^2, (m, ...) -> (...)."""
    squares = np.square(columns).sum(axis=0)
    return np.asarray(np.square(np.abs(columns).sum(axis=0)) / np.where(squares > 0, squares, 1.0))


def rotate_inside(j: Float, blocks: Blocks) -> Float:
    """Rotate pairs of latents inside each block, in units of their effect, to as few effective outputs as possible."""
    columns = scale_to_unit(j, 0)
    for a, b in (pair for _ in range(_SWEEPS) for block in blocks for pair in combinations(block, 2)):
        first, second, weights = _rotated(columns[:, a], columns[:, [b]])
        best = int(weights[:, 0].argmin())
        if weights[best, 0] < effective_outputs(columns[:, [a, b]]).sum():
            columns[:, [a, b]] = scale_to_unit(np.column_stack([first[:, best, 0], second[:, best, 0]]), 0)
    return columns


def mixing_gain(j: Float, blocks: Blocks) -> float:
    """Return the share of effective outputs that rotating two latents of different blocks saves at most, from 0 to 1.

    0 if each rotation of two such latents, by multiples of 7.5 degrees, reaches at least as many outputs as they do. It
    is a graded form of Type S for pairs: a basis that mixes blocks is not sparser.
    """
    columns, owner = scale_to_unit(j, 0), label_members(blocks)
    best = 0.0
    for a, k in enumerate(owner):
        later = np.flatnonzero((owner != k) & (np.arange(len(owner)) > a))
        if later.size:
            before = effective_outputs(columns[:, [a]]) + effective_outputs(columns[:, later])
            after = _rotated(columns[:, a], columns[:, later])[2].min(axis=0)
            best = max(best, float((1 - after / np.where(before > 0, before, 1.0)).max()))
    return best


def _rotated(one: Float, others: Float) -> tuple[Float, Float, Float]:
    """Rotate a column (m,) and each of others (m, p) into each other: both, (m, angles, p), and their outputs."""
    cos, sin = np.cos(_ANGLES)[:, None], np.sin(_ANGLES)[:, None]
    first = one[:, None, None] * cos + others[:, None] * sin
    second = others[:, None] * cos - one[:, None, None] * sin
    return first, second, effective_outputs(first) + effective_outputs(second)
