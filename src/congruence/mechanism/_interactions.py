"""Type H_n: do n-th derivatives that mix two blocks vanish, and does that identify the blocks?

All derivatives are along steps as long as the standard deviation of each latent, so units do not matter. If there are
few of them, all are computed; otherwise derivatives along random directions are: a non-zero mixed derivative is
then detected almost surely, but its absence is not proved. Derivatives of a piecewise linear decoder vanish, so finite
differences replace them.

Separability: the derivatives inside different blocks are linearly independent of each other and of all derivatives of
lower order. Irreducibility: those inside one block do not split into several parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations
from math import comb

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.prepared_decoder import PreparedDecoder
from congruence.mechanism._blocks import Blocks, label_members, merge_groups
from congruence.mechanism._matroid import TOLERANCE
from congruence.mechanism.derivatives import difference_chunks, directional_chunks, step_lengths
from congruence.mechanism.parts import symmetric_algebra
from congruence.result import Record, Status

MOST_TUPLES = 400  # of latents, whose derivatives are all computed
_MOST_NUMBERS = 2e7  # tuples times outputs times points
_TRIALS = 2  # of random directions for each block
_SLOPE_POINTS = 8  # for the size of first derivatives
_CHUNK = 2**22  # numbers of derivatives at a time
_SMALL = 1e-7  # relative: forms and eigenvalues this close to each other are the same


def measure_interactions(
    prepared: PreparedDecoder,
    blocks: Blocks,
    order: int,
    *,
    differences: bool = False,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    rotation: Float | None = None,
) -> tuple[Float, Array, bool]:
    """Measure mixed derivatives of an order of at least 2, or differences, at all points of a decoder.

    A `rotation` (d, d) of the latents, in units of their standard deviations, gives the numbers of a decoder whose
    blocks are other directions. Returns for each point, (r,), the largest mixed derivative over the largest of that
    order (0 if all vanish); whether all derivatives of this order, relative to the first, are below `tolerance`, so
    that H_n holds trivially; and whether all derivatives were computed, rather than those along random directions.
    """
    directions, mixed, complete = _directions(prepared, blocks, order, seed)
    lengths = step_lengths(prepared)
    directions = directions if rotation is None else directions @ rotation.T
    parts = (difference_chunks if differences else directional_chunks)(prepared, directions * lengths)
    largest, crossing = [], []
    for part in parts:  # (some, q, m)
        size = np.abs(part).max(axis=2)
        largest.append(size.max(axis=1))
        crossing.append(size[:, mixed].max(axis=1, initial=0.0))
    every, cross = np.concatenate(largest), np.concatenate(crossing)
    few = replace(prepared, z=prepared.z[:_SLOPE_POINTS])
    slope = max(float(np.abs(part).max()) for part in directional_chunks(few, np.diag(lengths)[:, None, :])) or 1e-300
    empty = every <= tolerance * slope
    return np.where(empty, 0.0, cross / np.where(empty, 1.0, every)), empty, complete


def _directions(prepared: PreparedDecoder, blocks: Blocks, order: int, seed: int) -> tuple[Float, Array, bool]:
    """Directions (q, order, d) to differentiate along, which of them mix blocks, and whether they are all there are."""
    d = prepared.dimension
    owner = label_members(blocks)
    tuples = comb(d + order - 1, order)
    if tuples <= MOST_TUPLES and tuples * prepared.outputs * len(prepared.z) <= _MOST_NUMBERS:
        every = np.array(list(combinations_with_replacement(range(d), order)))
        return np.eye(d)[every], owner[every].min(axis=1) != owner[every].max(axis=1), True
    rng = np.random.default_rng(seed)
    drawn, mixed = [], []
    for _ in range(_TRIALS):
        drawn.append(rng.standard_normal((order, d)))
        mixed.append(False)
        for k in range(len(blocks) if len(blocks) > 1 else 0):
            one = rng.standard_normal((order, d))
            one[0, owner != k] = 0.0  # along block k first, then along all others
            one[1, owner == k] = 0.0
            drawn.append(one)
            mixed.append(True)
    directions = np.array(drawn)
    return directions / np.abs(directions).max(axis=2, keepdims=True), np.array(mixed), False


def derivative_tensors(prepared: PreparedDecoder, rows: int, order: int) -> Iterator[dict[int, Float]]:
    """Yield all derivatives of order 1 to n at each of the first points, by order, (m, d, ..., d) each."""
    d = prepared.dimension
    here, steps = replace(prepared, z=prepared.z[:rows]), step_lengths(prepared)
    chunk = max(1, _CHUNK // (prepared.outputs * d**order))
    places = {n: np.array(list(combinations_with_replacement(range(d), n))) for n in range(1, order + 1)}
    walks = [directional_chunks(here, np.eye(d)[every] * steps, chunk=chunk) for every in places.values()]
    for parts in zip(*walks, strict=True):  # (some, q, m) of each order
        for values in zip(*parts, strict=True):
            tensors = {}
            for (n, at), value in zip(places.items(), values, strict=True):
                tensors[n] = np.empty((prepared.outputs, *([d] * n)))
                for axes in permutations(range(n)):
                    tensors[n][(slice(None), *at[:, axes].T)] = value.T
            yield tensors


@dataclass(frozen=True)
class Separability(Record):
    """Order-n separability, by ranks of derivatives: at one point, or at the worst of several."""

    order: int
    status: Status
    rank: int  # of everything together
    expected: int  # the sum of the ranks of all parts, which the rank must reach
    gap: float  # smallest singular value that counts over the largest that does not; infinite if none is left
    degenerate: bool  # all derivatives of this order vanish
    remark: str = ""


def measure_separability(
    derivatives: dict[int, Float], blocks: Blocks, order: int, tolerance: float = TOLERANCE
) -> Separability:
    """Test whether the n-th derivatives inside the blocks are independent of each other and of lower derivatives.

    `derivatives` holds those of order 1 to n at a point, (m, d, ..., d) each, along steps of comparable length.
    """
    parts = [*(_inside(derivatives[order], block, order) for block in blocks), _lower(derivatives, order)]
    floor = tolerance * float(np.abs(derivatives[1]).max())
    ranks = [_rank(part, floor, tolerance)[0] for part in parts]
    rank, gap = _rank(np.hstack(parts), floor, tolerance)
    status: Status = "holds" if rank == sum(ranks) else "fails"
    return Separability(order, status, rank, sum(ranks), gap, degenerate=not any(ranks[:-1]))


def _inside(tensor: Float, block: Sequence[int], order: int) -> Float:
    """The different derivatives with respect to latents of one block, (m, q)."""
    every = np.array(list(combinations_with_replacement(block, order)))
    return np.asarray(tensor[(slice(None), *every.T)])


def _lower(derivatives: dict[int, Float], order: int) -> Float:
    """All derivatives of lower order, (m, q)."""
    latents = range(derivatives[1].shape[1])
    return np.hstack([_inside(derivatives[n], latents, n) for n in range(1, order)])


def _rank(columns: Float, floor: float, tolerance: float) -> tuple[int, float]:
    """The rank of columns, scaled to length 1 unless they are zero, and how clear it is."""
    lengths = np.linalg.norm(columns, axis=0)
    live = columns[:, lengths > floor] / lengths[lengths > floor]
    if not live.size:
        return 0, float("inf")
    sizes = np.linalg.svd(np.asarray(np.linalg.qr(live, mode="r")), compute_uv=False)
    rank = int((sizes > tolerance * sizes[0]).sum())
    return rank, float(sizes[rank - 1] / max(sizes[rank], 1e-300)) if rank < len(sizes) else float("inf")


def curved_parts(
    derivatives: dict[int, Float], block: tuple[int, ...], order: int, *, tolerance: float = TOLERANCE, seed: int = 0
) -> tuple[int, int]:
    """Return into how many parts a block splits whose n-th derivatives do not mix, and how many directions are flat.

    Derivatives are taken modulo those of lower order, so the result is invariant under smooth changes of coordinates.
    A splitting is a projector X with T(Xu, v, ...) = T(u, Xv, ...); such X form an algebra, and the eigenspaces of a
    generic element are the parts. Flat directions, whose derivatives of this order vanish, belong to no
    part. H_n-irreducible is (1, 0).
    """
    k, lower = len(block), _lower(derivatives, order)
    inner = derivatives[order][np.ix_(range(len(lower)), *([list(block)] * order))].reshape(len(lower), -1)
    lengths = np.linalg.norm(lower, axis=0)
    floor = tolerance * float(np.abs(derivatives[1]).max())
    frame, sizes, _ = np.linalg.svd(lower[:, lengths > floor] / lengths[lengths > floor], full_matrices=False)
    frame = frame[:, sizes > tolerance * sizes.max(initial=0.0)]
    left = inner - frame @ (frame.T @ inner)
    upper = np.asarray(np.linalg.qr(left, mode="r")) if len(left) > left.shape[1] else left  # the same forms, fewer
    forms = upper.reshape(len(upper), *([k] * order))
    size = float(np.abs(forms).max(initial=0.0))
    if size <= max(floor, _SMALL * float(np.abs(inner).max(initial=0.0))):
        return 0, k
    basis, values, _ = np.linalg.svd(np.moveaxis(forms, 1, 0).reshape(k, -1) / size)
    curved = basis[:, : k - int((values <= _SMALL * values[0]).sum()) - max(0, k - len(values))]
    for axis in range(1, order + 1):
        forms = np.moveaxis(np.tensordot(forms, curved, axes=(axis, 0)), -1, axis)
    k, flat = curved.shape[1], k - curved.shape[1]
    if k == 1:
        return 1, flat
    # With the last directions fixed, the forms are matrices (q, k, k).
    slices = np.moveaxis((forms / size).reshape(len(forms), k, k, -1), -1, 1).reshape(-1, k, k)
    algebra = symmetric_algebra(slices, _SMALL)
    generic = np.tensordot(np.random.default_rng(seed).standard_normal(len(algebra)), algebra, axes=1)
    values = np.linalg.eigvals(generic)
    values = values.real + 1j * np.abs(values.imag)  # a complex pair is one real part
    near = np.abs(values[:, None] - values) <= np.sqrt(_SMALL) * np.abs(values).max()
    return len(merge_groups(k, (np.flatnonzero(row) for row in near))), flat
