"""Supports of Jacobians, the criteria D, M and block orthogonality at a point, and graded scores of D, M and S.

A trained decoder has no exact zeros, so a support depends on the tolerance; it is reliable where it stays the same over
a wide interval of tolerances. Criteria take one Jacobian j, (m, d), or its support, and blocks of its columns. Graded
scores need no tolerance: they weight outputs by the size of their derivatives, after columns are scaled to length 1, so
that the units of latents do not matter. Smaller is closer to the criterion, and 0 where blocks act on disjoint outputs.
Type S is in `_sparsity_gap`, Type H_n in `_interactions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.checks import check_choice
from congruence.decoder.certificates import kind_of, layers_of
from congruence.decoder.prepared_decoder import import_torch
from congruence.mechanism._blocks import Blocks, label_members, merge_groups
from congruence.mechanism._matroid import TOLERANCE, row_components, scale_to_unit, unit_rows

RTOL = 1e-6
SINGLE = 1e-4  # tolerance of ranks and of finite differences for a decoder that does not work in float64
ROUNDING_SINGLE = 16 * float(np.finfo(np.float32).eps)  # of its derivatives, relative to the largest: 1.9e-6
THIN = 0.01  # of a column's outputs: Type M with a smaller margin is ambiguous
SCALES = ("global", "column")
SWEEP = 10.0 ** np.arange(-8.0, -0.75, 0.5)  # tolerances
DECADE = 1.0  # of tolerances over which a support must stay the same to be reliable
_BINS = 200  # of a decade, for the interval without entries
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
# Layers whose outputs depend on the same latents as their inputs.
_ELEMENTWISE = {"ReLU", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Softplus", "Tanh"}
_ELEMENTWISE |= {"Sigmoid", "Hardtanh", "Hardsigmoid", "Hardswish", "Softsign", "LogSigmoid", "Identity", "Dropout"}
_ELEMENTWISE |= {"Flatten"}


def relative_sizes(j: Float, scale: str = "global") -> Float:
    """Return the sizes of the entries of Jacobians (..., m, d) relative to the largest of each, from 0 to 1.

    The scale "column" divides each column by its length first, for latents in different units; "global" does not.
    """
    check_choice("scale", scale, SCALES)
    size = np.abs(j)
    if scale == "column":
        lengths = np.linalg.norm(j, axis=-2, keepdims=True)
        dead = lengths <= np.finfo(np.float64).eps * lengths.max(axis=-1, keepdims=True)  # only rounding
        size = np.where(dead, 0.0, size / np.where(dead, 1.0, lengths))
    largest = size.max(axis=(-2, -1), keepdims=True)
    return np.asarray(size / np.where(largest > 0, largest, 1.0))


def support_of(j: Float, *, rtol: float = RTOL, atol: float = 0.0, scale: str = "global") -> Array:
    """Return which entries are above rtol times the largest, and above atol; bool, of the shape of j."""
    return np.asarray((relative_sizes(j, scale) > rtol) & (np.abs(j) > atol))


def histogram_sizes(shares: Float) -> Array:
    """Count the relative sizes of the entries of a Jacobian between the ends of the sweep, by their logarithm."""
    bins = round(float(np.log10(SWEEP[-1] / SWEEP[0])) * _BINS)
    inside = shares[(shares > SWEEP[0]) & (shares < SWEEP[-1])]
    places = np.floor((np.log10(inside) - np.log10(SWEEP[0])) * _BINS).astype(int)
    return np.bincount(np.clip(places, 0, bins - 1), minlength=bins)


def widest_gap(counts: Array) -> tuple[float, float]:
    """Return the widest interval of tolerances, within those of the sweep, without entries: no support changes."""
    filled = np.concatenate([[-1], np.flatnonzero(counts), [len(counts)]])
    gap = int(np.diff(filled).argmax())
    ends = np.log10(SWEEP[0]) + np.array([filled[gap] + 1, filled[gap + 1]]) / _BINS
    return float(10.0 ** ends[0]), float(10.0 ** ends[1])


@dataclass(frozen=True)
class Tolerance:
    """The tolerance for zeros in a Jacobian, and the interval of tolerances in which no support changes."""

    rtol: float
    atol: float
    scale: str
    low: float  # the widest interval of relative tolerances over which all supports stay the same ...
    high: float  # ... ends here

    @property
    def decades(self) -> float:
        """The width of that interval."""
        return float(np.log10(self.high) - np.log10(self.low)) if self.high > self.low else 0.0

    @property
    def stable(self) -> float | None:
        """The tolerance in the middle of it, if it is at least a decade wide."""
        return float(np.sqrt(self.low * self.high)) if self.decades >= DECADE else None

    @property
    def decade(self) -> tuple[float, float, float]:
        """The tolerance, and the ends of the decade around it."""
        return self.rtol, self.rtol * 10 ** (-DECADE / 2), self.rtol * 10 ** (DECADE / 2)

    @property
    def nearby(self) -> tuple[float, ...]:
        """Tolerances at which a verdict on supports must be the same to be reliable, rtol first.

        The decade around it and the stable one; if there is none, the ends of the sweep.
        """
        return (*self.decade, *((SWEEP[0], SWEEP[-1]) if self.stable is None else (self.stable,)))

    def truncate(self, j: Float, rtol: float) -> Float:
        """Return the Jacobian with exact zeros outside of its support at a relative tolerance."""
        return np.where(support_of(j, rtol=rtol, atol=self.atol, scale=self.scale), j, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON."""
        stable = {"stable_low": self.low, "stable_high": self.high, "stable_decades": self.decades}
        return {"rtol": self.rtol, "atol": self.atol, "scale": self.scale, **stable, "sweep": SWEEP.tolist()}


def disjoint_margin(j: Float, blocks: Blocks) -> float:
    """Return how far a Jacobian is from Type D: 0 if no output is moved by two blocks, at most 1/2.

    The largest product of the norms of two blocks in one output, over the largest squared norm of an output.
    """
    if len(blocks) < 2:
        return 0.0
    norms = np.stack([np.linalg.norm(j[:, list(block)], axis=1) for block in blocks], axis=1)  # (m, K)
    two = -np.partition(-norms, 1, axis=1)[:, :2]
    largest = float(np.square(norms).sum(axis=1).max())
    return float((two[:, 0] * two[:, 1]).max() / largest) if largest > 0 else 0.0


def disjoint_tolerance(shares: Float, blocks: Blocks) -> float:
    """Return the smallest relative tolerance at which Type D holds, for relative sizes (m, d); 0 if it always holds."""
    if len(blocks) < 2:
        return 0.0
    reach = np.stack([shares[:, list(block)].max(axis=1) for block in blocks], axis=1)
    return float((-np.partition(-reach, 1, axis=1)[:, 1]).max())


def block_overlap(support: Array, blocks: Blocks) -> Float:
    """Return the outputs that two blocks both reach, over those of the block that reaches fewer, (K, K)."""
    reach = np.stack([support[:, list(block)].any(axis=1) for block in blocks], axis=1).astype(np.float64)
    shared = reach.T @ reach
    sizes = np.diag(shared)
    fewer = np.minimum(sizes[:, None], sizes)
    return np.divide(shared, fewer, out=np.zeros_like(shared), where=fewer > 0)


def containment_margin(support: Array, blocks: Blocks, *, chosen: bool = False) -> float:
    """Return how far Type M is from failing: 0 if it fails, at most 1.

    The smallest share of a column's outputs that a column of another block does not reach, over all ordered pairs. A
    column that reaches nothing is contained in every other, so M fails. It depends on the basis of each block. If the
    basis was `chosen` to be sparse, k - 1 outputs do not count for a block of k columns: a dense Jacobian has a basis
    in which every column of such a block is zero at k - 1 outputs.
    """
    owner = label_members(blocks)
    across = owner[:, None] != owner
    if not across.any():
        return 1.0
    inside = support.astype(np.float64)
    sizes = inside.sum(axis=0)[:, None]
    exclusive = sizes - inside.T @ inside  # (a, b): outputs of a that b does not reach
    if chosen:
        exclusive = np.maximum(exclusive - np.array([len(blocks[k]) - 1 for k in owner]), 0.0)
    share = np.divide(exclusive, sizes, out=np.zeros_like(exclusive), where=sizes > 0)
    return float(share[across].min())


def nested_parts(support: Array, block: tuple[int, ...]) -> int:
    """Return into how many parts a block splits so that no column contains one of another part; 1 is M-irreducible.

    This is our interpretation of irreducibility for Type M, and it depends on the basis.
    """
    inside = support[:, list(block)]
    pairs = (
        (a, b)
        for a, b in combinations(range(len(block)), 2)
        if not (inside[:, a] & ~inside[:, b]).any() or not (inside[:, b] & ~inside[:, a]).any()
    )
    return len(merge_groups(len(block), pairs))


def disjoint_parts(j: Float, block: tuple[int, ...], tolerance: float = TOLERANCE) -> int:
    """Return into how many parts with disjoint outputs a block splits, in any basis.

    1 is D-irreducible; 0 is a block that moves nothing.
    """
    if len(block) == 1:
        return int(j[:, block[0]].any())
    return row_components(unit_rows(j[:, list(block)])[0], tolerance)[1]


def block_orthogonality(j: Float, blocks: Blocks, tolerance: float = TOLERANCE) -> tuple[float, float]:
    """Return the contrast of independent mechanism analysis for blocks, and the largest cosine between two of them.

    The contrast is sum_k 1/2 log det(J_k^T J_k) - 1/2 log det(J^T J), at least 0, and 0 if the blocks are orthogonal.
    For single latents and as many outputs it is that of Gresele et al. 2021. It does not change with the basis inside a
    block. It is infinite if the Jacobian loses a direction between blocks; both are NaN if a block loses one.
    """
    scaled, frames, total = scale_to_unit(j, 0), np.empty_like(j), 0.0
    for block in map(list, blocks):
        frame, upper = np.linalg.qr(scaled[:, block])
        sizes = np.linalg.svd(upper, compute_uv=False)
        if len(block) > len(scaled) or sizes[-1] <= tolerance:
            return float("nan"), float("nan")
        frames[:, block] = frame
        total += float(np.log(sizes).sum())
    products = frames.T @ frames
    cosines = [np.linalg.norm(products[np.ix_(one, two)], ord=2) for one, two in combinations(blocks, 2)]
    cosine = min(float(max(cosines, default=0.0)), 1.0)
    sizes = _singular_values(scaled)
    if scaled.shape[1] > len(scaled) or sizes[-1] <= tolerance:
        return float("inf"), cosine
    return max(total - float(np.log(sizes).sum()), 0.0), cosine


def lost_directions(j: Float, tolerance: float = TOLERANCE) -> int:
    """Return how many directions of the latents a Jacobian sends to zero; 0 is locally injective."""
    sizes = _singular_values(scale_to_unit(j, 0))
    return int(j.shape[1] - (sizes > tolerance * max(float(sizes[0]), 1e-300)).sum())


def _singular_values(matrix: Float) -> Float:
    """Singular values by way of the triangular factor, which is small."""
    return np.linalg.svd(np.asarray(np.linalg.qr(matrix, mode="r")), compute_uv=False)


def reachable_outputs(decoder: Any) -> Array | None:
    """Return which outputs each latent can reach at any point, (m, d) bool; None if the structure cannot be read.

    In a chain of linear layers and functions of single numbers, an output that no path of non-zero weights connects to
    a latent does not depend on it anywhere.
    """
    torch = import_torch()
    layers = [part for _, part in layers_of(decoder)] if isinstance(decoder, torch.nn.Module) else []
    reach: Array | None = None
    for layer in layers:
        if kind_of(layer) == "Linear":
            weights = to_numpy(layer.weight) != 0
            reach = weights if reach is None else (weights.astype(np.float32) @ reach.astype(np.float32)) > 0
        elif kind_of(layer) not in _ELEMENTWISE:
            return None
    return reach


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


def random_rotation(rng: np.random.Generator, d: int) -> Float:
    """Draw a uniformly distributed orthogonal matrix (d, d)."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(q * np.sign(np.diag(r)))
