"""Bounds on the sparsity gap where not every set of rows can be tried.

Light misaligned vectors bound rho- from above and can refute Type S; rows that only one column reaches cannot cancel,
bound rho- from below and can prove it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.connectivity import null_space

STARTS = 16  # random searches
MOST_ROWS = 2000  # that a search looks at; what it finds is weighed on all of them
STEPS = 30  # of reweighting in each
MOST_COLUMNS = 15  # whose subsets are all enumerated
MOST_PAIRS = 2000  # of basis vectors


def exclusive_margin(support: Array) -> int | None:
    """How surely no combination of columns is lighter than its heaviest column; Type S holds where it is positive.

    The least, over sets A of at least two columns, of the number of rows that exactly one column of A reaches, minus
    the rows of the longest column of A. Rows that one column alone reaches cannot cancel. For two columns it is
    positive where they share less than half of the shorter one.

    Parameters
    ----------
    support : (m, d) bool
        Blocks are single columns. None comes back for more than 15 of them.
    """
    d = support.shape[1]
    if d > MOST_COLUMNS:
        return None
    patterns, counts = np.unique(support, axis=0, return_counts=True)
    sizes = counts @ patterns
    sets = ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(bool)
    sets = sets[sets.sum(1) >= 2]
    least: int | None = None
    for some in np.array_split(sets, max(1, len(sets) * len(patterns) // 2**24)):
        alone = ((some.astype(np.int32) @ patterns.T.astype(np.int32)) == 1) @ counts
        margin = int((alone - np.where(some, sizes, 0).max(axis=1)).min())
        least = margin if least is None else min(least, margin)
    return least


def light_vectors(rows: Float, basis: Float, owner: Array, tolerance: float, seed: int) -> Iterator[tuple[Float, int]]:
    """Vectors of the latents that change few outputs, found by search, with the number of outputs each changes.

    Three kinds: two vectors of an aligned basis of different blocks so combined that as many outputs as possible
    cancel, the same without cancellation, and elementary vectors near random starts by reweighted least squares.
    """
    yield from _pairs(rows, basis, owner, tolerance)
    rng = np.random.default_rng(seed)
    d = rows.shape[1]
    live = rows[np.abs(rows).max(axis=1) > 0]
    if len(live) > MOST_ROWS:
        live = live[rng.permutation(len(live))[:MOST_ROWS]]
    for k in range(STARTS):
        start = live[rng.integers(len(live))] if k % 2 else rng.standard_normal((1, d))[0]
        vector = _descended(live, start, tolerance)
        if vector is not None:
            yield vector, _weight(rows, vector, tolerance)


def _weight(rows: Float, vector: Float, tolerance: float) -> int:
    return int((np.abs(rows @ vector) > tolerance * np.linalg.norm(vector)).sum())


def _pairs(rows: Float, basis: Float, owner: Array, tolerance: float) -> Iterator[tuple[Float, int]]:
    """Combinations of two basis vectors of different blocks that cancel the most outputs, or none."""
    images = rows @ basis  # (m, d)
    alive = np.abs(images) > tolerance
    pairs = [(a, b) for a, b in combinations(range(len(owner)), 2) if owner[a] != owner[b]]
    for a, b in pairs[:MOST_PAIRS]:
        shared = alive[:, a] & alive[:, b]
        for factor in (_commonest(images[shared, a] / images[shared, b]) if shared.any() else None, -np.sqrt(0.5)):
            if factor is not None:
                vector = basis[:, a] - factor * basis[:, b]
                yield vector, _weight(rows, vector, tolerance)


def _commonest(ratios: Float) -> float:
    """The value that most ratios have, up to rounding."""
    order = np.sort(ratios)
    starts = np.concatenate([[True], np.diff(order) > 1e-9 * np.maximum(np.abs(order[1:]), 1e-300)])
    runs = np.diff(np.concatenate([np.flatnonzero(starts), [len(order)]]))
    return float(order[np.flatnonzero(starts)[runs.argmax()]])


def _descended(rows: Float, start: Float, tolerance: float) -> Float | None:
    """An elementary vector that a reweighted least-squares search from q finds: few outputs, and q . u = 1."""
    d = rows.shape[1]
    weights, u = np.ones(len(rows)), start
    for _ in range(STEPS):
        gram = (rows * weights[:, None]).T @ rows
        try:
            u = np.linalg.solve(gram + 1e-12 * np.trace(gram) * np.eye(d), start)
        except np.linalg.LinAlgError:
            return None
        u = u / np.linalg.norm(u)
        weights = 1 / (np.abs(rows @ u) + 1e-4)
    small = np.argsort(np.abs(rows @ u), kind="stable")[: 20 * d]
    kept: list[int] = []
    basis = np.zeros((0, d))
    for n in small:  # the d - 1 independent rows nearest to zero are set to zero
        left = rows[n] - basis.T @ (basis @ rows[n])
        if np.linalg.norm(left) > 1e-6:
            kept.append(int(n))
            basis = np.vstack([basis, left / np.linalg.norm(left)])
        if len(kept) == d - 1:
            break
    found = null_space(rows[kept], d, tolerance)
    return found[:, 0] if found.shape[1] == 1 else None
