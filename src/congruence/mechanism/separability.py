"""Order-n separability and irreducibility: what makes Type H_n identify the blocks.

Both are about the derivatives inside the blocks: whether those of different blocks point along different outputs, also
from all derivatives of lower order, and whether those of one block fall apart into several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.probed import Probed
from congruence.mechanism.blocks import Blocks
from congruence.mechanism.connectivity import TOLERANCE, joined
from congruence.mechanism.derivatives import directional_chunks

TOGETHER = 2**22  # numbers of derivatives at a time
SMALL = 1e-7  # relative: forms and eigenvalues this near to each other are the same


def tensors(probed: Probed, steps: Float, rows: int, order: int) -> Iterator[dict[int, Float]]:
    """All derivatives of order 1 to n along steps of the latents at the first points, (m, d, ..., d) each, by order."""
    d = probed.dimension
    here = replace(probed, z=probed.z[:rows])
    step = max(1, TOGETHER // (probed.outputs * d**order))
    places = {n: np.array(list(combinations_with_replacement(range(d), n))) for n in range(1, order + 1)}
    walks = [directional_chunks(here, np.eye(d)[every] * steps, chunk=step) for every in places.values()]
    for parts in zip(*walks, strict=True):  # (some, q, m) of each order
        for k in range(len(parts[0])):
            yield {n: _filled(part[k].T, places[n], d) for n, part in zip(places, parts, strict=True)}


def _filled(values: Float, places: Array, d: int) -> Float:
    """The symmetric tensors (m, d, ..., d) of values (m, q) at places (q, n)."""
    full = np.empty((len(values), *([d] * places.shape[1])))
    for turn in permutations(range(places.shape[1])):
        full[(slice(None), *places[:, turn].T)] = values
    return full


@dataclass(frozen=True)
class Separability:
    """Ranks that decide n-order separability at a point."""

    order: int
    holds: bool
    degenerate: bool  # nothing of this order anywhere
    rank: int  # of everything together
    block_ranks: tuple[int, ...]  # of the n-th derivatives inside each block
    lower_rank: int  # of all derivatives of lower order
    gap: float  # smallest singular value that counts over the largest that does not; infinite where none is left

    @property
    def missing(self) -> int:
        """How many dimensions are shared; 0 is separable."""
        return sum(self.block_ranks) + self.lower_rank - self.rank


def separability(
    derivatives: dict[int, Float], blocks: Blocks, order: int, tolerance: float = TOLERANCE
) -> Separability:
    """Whether the n-th derivatives inside the blocks share no direction with each other or with lower derivatives.

    Parameters
    ----------
    derivatives : order -> (m, d, ..., d)
        All derivatives of order 1 to n at a point, along steps of comparable length.
    """
    parts = [_inside(derivatives[order], block, order) for block in blocks]
    d = derivatives[1].shape[1]
    lower = np.hstack([_inside(derivatives[n], tuple(range(d)), n) for n in range(1, order)])
    floor = tolerance * float(np.abs(derivatives[1]).max())
    ranks = [_rank(part, floor, tolerance)[0] for part in (*parts, lower)]
    rank, gap = _rank(np.hstack([*parts, lower]), floor, tolerance)
    return Separability(
        order=order,
        holds=rank == sum(ranks),
        degenerate=sum(ranks[:-1]) == 0,
        rank=rank,
        block_ranks=tuple(ranks[:-1]),
        lower_rank=ranks[-1],
        gap=gap,
    )


def _inside(tensor: Float, block: tuple[int, ...], order: int) -> Float:
    """The different derivatives by latents of one block, (m, q)."""
    every = np.array(list(combinations_with_replacement(block, order)))
    return np.asarray(tensor[(slice(None), *every.T)])


def _rank(columns: Float, floor: float, tolerance: float) -> tuple[int, float]:
    """The rank of columns, each taken at length 1 unless it is nothing, and how clear it is."""
    lengths = np.linalg.norm(columns, axis=0)
    live = columns[:, lengths > floor] / lengths[lengths > floor]
    if not live.size:
        return 0, float("inf")
    sizes = np.linalg.svd(np.asarray(np.linalg.qr(live, mode="r")), compute_uv=False)
    rank = int((sizes > tolerance * sizes[0]).sum())
    return rank, float(sizes[rank - 1] / max(sizes[rank], 1e-300)) if rank < len(sizes) else float("inf")


def bent_parts(
    derivatives: dict[int, Float], block: tuple[int, ...], order: int, *, tolerance: float = TOLERANCE, seed: int = 0
) -> tuple[int, int]:
    """Into how many parts a block splits whose n-th derivatives do not mix, and how many directions do not bend.

    Derivatives are taken modulo those of lower order, so that no smooth change of coordinates matters. A splitting is a
    projector X with T(Xu, v, ...) = T(u, Xv, ...); such X form an algebra, and the eigenvalues of a generic one of it
    give the parts. Directions on which nothing of this order is left belong to no part. H_n-irreducible is (1, 0).
    """
    k = len(block)
    d = derivatives[1].shape[1]
    lower = np.hstack([_inside(derivatives[n], tuple(range(d)), n) for n in range(1, order)])
    inner = derivatives[order][np.ix_(range(len(lower)), *([list(block)] * order))].reshape(len(lower), -1)
    lengths = np.linalg.norm(lower, axis=0)
    floor = tolerance * float(np.abs(derivatives[1]).max())
    frame, sizes, _ = np.linalg.svd(lower[:, lengths > floor] / lengths[lengths > floor], full_matrices=False)
    frame = frame[:, sizes > tolerance * sizes.max(initial=0.0)]
    left = inner - frame @ (frame.T @ inner)
    upper = np.asarray(np.linalg.qr(left, mode="r")) if len(left) > left.shape[1] else left  # the same forms, fewer
    forms = upper.reshape(len(upper), *([k] * order))
    size = float(np.abs(forms).max(initial=0.0))
    if size <= max(floor, SMALL * float(np.abs(inner).max(initial=0.0))):
        return 0, k
    flat = np.moveaxis(forms, 1, 0).reshape(k, -1) / size
    turn, values, _ = np.linalg.svd(flat)
    bent = turn[:, : k - int((values <= SMALL * values[0]).sum()) - max(0, k - len(values))]
    for axis in range(1, order + 1):
        forms = np.moveaxis(np.tensordot(forms, bent, axes=(axis, 0)), -1, axis)
    return _parts(forms / size, seed), k - bent.shape[1]


def _parts(forms: Float, seed: int) -> int:
    """The number of parts of forms (q, k, ..., k) without directions that do not bend."""
    k = forms.shape[1]
    if k == 1:
        return 1
    equations = np.empty((forms.size, k, k))
    for a in range(k):
        for b in range(k):
            x = np.zeros((k, k))
            x[a, b] = 1.0
            first = np.moveaxis(np.tensordot(forms, x, axes=(1, 0)), -1, 1)
            second = np.moveaxis(np.tensordot(forms, x, axes=(2, 0)), -1, 2)
            equations[:, a, b] = (first - second).ravel()
    _, sizes, right = np.linalg.svd(np.asarray(np.linalg.qr(equations.reshape(-1, k * k), mode="r")))
    rank = int((sizes > SMALL * max(float(sizes[0]), 1e-300)).sum())
    algebra = right[rank:].reshape(-1, k, k)
    generic = np.tensordot(np.random.default_rng(seed).standard_normal(len(algebra)), algebra, axes=1)
    values = np.linalg.eigvals(generic)
    values = values.real + 1j * np.abs(values.imag)  # a complex pair is one real part
    near = np.abs(values[:, None] - values) <= np.sqrt(SMALL) * np.abs(values).max()
    return joined(k, (np.flatnonzero(row) for row in near))[1]
