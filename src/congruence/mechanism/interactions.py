"""Type H_n: do n-th derivatives that mix two blocks vanish?

All derivatives are along steps as long as the spread of each latent, so that units do not matter. Where there are few
of them, every one is taken; else random directions find a mixed derivative that is not zero almost surely, and finding
none only supports that there is none. Derivatives of a piecewise linear decoder are empty, and differences over finite
steps take their place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.probed import Probed
from congruence.mechanism.blocks import Blocks, block_of
from congruence.mechanism.connectivity import TOLERANCE
from congruence.mechanism.derivatives import difference_chunks, directional_chunks, step_lengths

MOST_TUPLES = 400  # of latents, whose derivatives are all taken
MOST_NUMBERS = 2e7  # tuples times outputs times points
TRIALS = 2  # of random directions for each block
FEW = 8  # points for the size of first derivatives


@dataclass(frozen=True, eq=False)
class Interactions:
    """Mixed derivatives of order n at r points, relative to all of that order; 0 where H_n holds."""

    order: int
    cross: Float  # (r,) largest mixed one over the largest of all; 0 where there is nothing of this order
    degenerate: Array  # (r,) whether there is nothing of this order at all, so that H_n holds trivially
    complete: bool  # whether all derivatives were taken, and not random directions
    differences: bool  # whether finite differences took their place


def interactions(
    probed: Probed,
    blocks: Blocks,
    order: int,
    *,
    differences: bool = False,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Interactions:
    """Measure mixed derivatives of an order of at least 2 at all points of a decoder.

    Below `tolerance`, relative to the first derivatives, there is nothing of this order.
    """
    directions, mixed, complete = _directions(probed, blocks, order, seed)
    steps = directions * step_lengths(probed)
    parts = difference_chunks(probed, steps) if differences else directional_chunks(probed, steps)
    largest, crossing = [], []
    for part in parts:  # (some, q, m)
        size = np.abs(part).max(axis=2)
        largest.append(size.max(axis=1))
        crossing.append(size[:, mixed].max(axis=1, initial=0.0))
    every, cross = np.concatenate(largest), np.concatenate(crossing)
    empty = every <= tolerance * _slope(probed)
    return Interactions(order, np.where(empty, 0.0, cross / np.where(empty, 1.0, every)), empty, complete, differences)


def _slope(probed: Probed) -> float:
    """The largest first derivative along a step, over a few points."""
    few = replace(probed, z=probed.z[:FEW])
    unit = np.diag(step_lengths(probed))[:, None, :]
    return max(float(np.abs(part).max()) for part in directional_chunks(few, unit)) or 1e-300


def _directions(probed: Probed, blocks: Blocks, order: int, seed: int) -> tuple[Float, Array, bool]:
    """Directions (q, order, d) to differentiate along, which of them mix blocks, and whether they are all there are."""
    d = probed.dimension
    tuples = comb(d + order - 1, order)
    if tuples <= MOST_TUPLES and tuples * probed.outputs * len(probed.z) <= MOST_NUMBERS:
        every = np.array(list(combinations_with_replacement(range(d), order)))
        owner = block_of(blocks)[every]
        return np.eye(d)[every], owner.min(axis=1) != owner.max(axis=1), True
    rng = np.random.default_rng(seed)
    owner = block_of(blocks)
    found, mixed = [], []
    for _ in range(TRIALS):
        found.append(rng.standard_normal((order, d)))
        mixed.append(False)
        for k in range(len(blocks) if len(blocks) > 1 else 0):
            drawn = rng.standard_normal((order, d))
            drawn[0, owner != k] = 0.0  # along block k first, then along all others
            drawn[1, owner == k] = 0.0
            found.append(drawn)
            mixed.append(True)
    drawn = np.array(found)
    return drawn / np.abs(drawn).max(axis=2, keepdims=True), np.array(mixed), False
