"""Type S: is the sparsest way to write the Jacobian the one that respects the blocks?

The weight of a basis of the latents is the number of non-zero entries of the Jacobian in it. rho+ is the smallest
weight of bases whose vectors each lie in one block, rho- that of all other bases, and Type S requires rho+ < rho-.
Weights add up, so bases are those of a linear matroid and the greedy one is the lightest: both numbers are exact, at a
cost that is exponential in the number of latents only. Beyond a budget only bounds are computed, and the status is
`unknown` if they do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from congruence.arrays import Array, Float
from congruence.formatting import count
from congruence.mechanism import _matroid
from congruence.mechanism._blocks import Blocks, label_members, merge_groups
from congruence.mechanism._criteria import containment_margin, nested_parts
from congruence.mechanism._matroid import TOLERANCE, ElementaryVectors, null_space, scale_to_unit, unit_rows
from congruence.mechanism._options import BUDGET
from congruence.result import Status

_CHUNK = 2**24  # entries of a product of supports
_GENERIC = (math.sqrt(5) - 1) / 2  # a factor with which nothing cancels by chance
_STARTS = 16  # random searches beyond the budget
_SEARCH_ROWS = 2000  # that a search uses; its result is weighed on all of them
_SEARCH_STEPS = 30  # of reweighting in each
_MOST_COLUMNS = 15  # whose subsets are all enumerated
_MOST_PAIRS = 2000  # of basis vectors
_Bounds = tuple[Status, float, float, Float | None, str]  # status, bounds of rho-, witness, reason


@dataclass(frozen=True, eq=False)
class SparsityGap:
    """rho+ and rho- of a Jacobian at a point; Type S holds if the gap is positive."""

    status: Status  # "holds", "fails" or "unknown"
    rho_minus_low: float  # rho- is at least this ...
    rho_minus_high: float  # ... and at most this; infinite if there is only one block
    witness: Float | None = field(repr=False)  # (d,) a misaligned vector that a basis of weight rho_minus_high has
    reason: str
    rho_plus: int  # smallest weight of aligned bases; an upper bound unless `aligned_exact`
    aligned_exact: bool  # whether rho_plus is certainly the smallest
    contained: float  # margin of Type M in the lightest aligned basis; NaN unless `aligned_exact`
    beyond: float  # the same without outputs that the choice of a basis sets to zero in any Jacobian
    nested: tuple[int, ...]  # parts of each block by Type M in that basis; -1 unless `aligned_exact`

    @property
    def exact(self) -> bool:
        """Whether both numbers are known."""
        return self.aligned_exact and self.rho_minus is not None

    @property
    def rho_minus(self) -> float | None:
        """rho-, if it is known."""
        return self.rho_minus_low if self.rho_minus_low == self.rho_minus_high else None

    @property
    def gap(self) -> float | None:
        """rho- minus rho+, if both are known; Type S requires more than 0."""
        return self.rho_minus_low - self.rho_plus if self.exact else None


def sparsity_gap(
    j: Float, blocks: Blocks, *, budget: float = BUDGET, tolerance: float = TOLERANCE, seed: int = 0
) -> SparsityGap:
    """Compare the sparsest aligned basis with the sparsest misaligned one, exactly if the budget allows.

    `j` is the Jacobian at a point, (m, d), with exact zeros where an output does not depend on a latent. `budget` is
    the number of sets of d - 1 rows tried; beyond it only rigorous bounds are computed, by a search with the `seed`.
    Numbers that should cancel count as zero up to a relative `tolerance`. The result is invariant to the scale of every
    latent and of every output, and to the basis inside a block.

    References
    ----------
    Matthes et al. 2026 (the criterion); the algorithm was derived in this package.
    """
    rows, lengths = unit_rows(j)
    owner = label_members(blocks)
    vectors, weights, exact = _aligned_basis(rows, blocks, budget, tolerance)
    support = np.abs(rows @ vectors) > tolerance * np.linalg.norm(vectors, axis=0)  # (m, d)
    kernel = null_space(rows, rows.shape[1], tolerance)
    bounds: _Bounds
    if len(blocks) == 1:
        bounds = "holds", math.inf, math.inf, None, "there is only one block"
    elif kernel.shape[1]:
        lightest = _lightest_basis(rows, budget, tolerance)
        bounds = _with_kernel(kernel, owner, lightest or (vectors, weights), lightest is not None, tolerance)
    elif (every := _matroid.elementary_vectors(rows, budget, tolerance)) is not None:
        light = _greedy(every.vectors, every.weights, tolerance)
        excess, mixed = _least_excess(every, light, owner, tolerance)
        least = int(every.weights[light].sum()) + excess
        bounds = "holds" if weights.sum() < least else "fails", least, least, mixed, "all sets of rows were tried"
    else:
        bounds = _bound(rows, blocks, vectors, weights, exact, tolerance, seed)
    status, low, high, witness, reason = bounds
    return SparsityGap(
        status=status,
        rho_minus_low=low,
        rho_minus_high=high,
        witness=None if witness is None else witness / lengths,
        reason=reason,
        rho_plus=int(weights.sum()),
        aligned_exact=exact,
        contained=containment_margin(support, blocks) if exact else math.nan,
        beyond=containment_margin(support, blocks, chosen=True) if exact else math.nan,
        nested=tuple(nested_parts(support, block) if exact else -1 for block in blocks),
    )


def sparse_decomposition(j: Float, *, budget: float = BUDGET, tolerance: float = TOLERANCE) -> tuple[Float, ...] | None:
    """Find the finest decomposition of the latents that has a sparsity gap, in any basis; None beyond the budget.

    Returns a basis (d, k) of each part, unique as subspaces. A single part means that the point is S-irreducible.
    """
    rows, lengths = unit_rows(j)
    d = rows.shape[1]
    if d == 1 or null_space(rows, d, tolerance).shape[1]:  # a lost direction can be added to any vector at no cost
        return (np.eye(d),)
    every = _matroid.elementary_vectors(rows, budget, tolerance)
    if every is None:
        return None
    light = _greedy(every.vectors, every.weights, tolerance)
    used, tau = _replaceable(every, light, tolerance)
    tied = np.unique(used[every.weights == tau], axis=0)
    parts = merge_groups(d, (np.flatnonzero(row) for row in tied))
    basis = every.vectors[light].T / lengths[:, None]
    return tuple(basis[:, list(part)] for part in parts)


def _aligned_basis(rows: Float, blocks: Blocks, budget: float, tolerance: float) -> tuple[Float, Array, bool]:
    """The lightest basis of each block, in its columns, the weights, and whether it is certainly the lightest.

    A block beyond the budget keeps its coordinates.
    """
    d, exact = rows.shape[1], True
    vectors, weights = np.zeros((d, d)), np.zeros(d, dtype=int)
    for block in blocks:
        part = rows[:, list(block)]
        basis = _lightest_basis(scale_to_unit(part, 1), budget, tolerance)
        exact = exact and basis is not None
        vectors[np.ix_(block, block)], weights[list(block)] = basis or (np.eye(len(block)), (part != 0).sum(axis=0))
    return vectors, weights, exact


def _lightest_basis(rows: Float, budget: float, tolerance: float) -> tuple[Float, Array] | None:
    """The lightest basis, (d, d) in its columns, and its weights; lost directions come first, with weight 0."""
    d = rows.shape[1]
    if d == 1:
        return np.ones((1, 1)), (rows != 0).sum(axis=0)
    kernel = null_space(rows, d, tolerance)
    lost = kernel.shape[1]
    if lost == d:
        return kernel, np.zeros(d, dtype=int)
    across = np.eye(d) if not lost else null_space(kernel.T, d, tolerance)
    every = _matroid.elementary_vectors(scale_to_unit(rows @ across, 1), budget, tolerance)
    if every is None:
        return None
    light = _greedy(every.vectors, every.weights, tolerance)
    vectors = np.hstack([kernel, across @ every.vectors[light].T])
    return vectors, np.concatenate([np.zeros(lost, dtype=int), every.weights[light]])


def _greedy(vectors: Float, weights: Array, tolerance: float) -> Array:
    """Indices of the vectors of the lightest basis, from the lightest up."""
    order = np.argsort(weights, kind="stable")
    left = vectors[order].copy()
    chosen: list[int] = []
    for _ in range(vectors.shape[1]):
        size = np.linalg.norm(left, axis=1)
        first = int((size > tolerance).argmax())
        chosen.append(int(order[first]))
        direction = left[first] / size[first]
        left -= (left @ direction)[:, None] * direction
        left[: first + 1] = 0.0  # lighter ones are already dependent
    return np.array(chosen)


def _replaceable(every: ElementaryVectors, light: Array, tolerance: float) -> tuple[Array, Array]:
    """Which vectors of the lightest basis each vector could replace, (N, d), and the weight tau of the heaviest."""
    coefficients = np.abs(every.vectors @ np.linalg.inv(every.vectors[light]))
    used = coefficients > tolerance * coefficients.max(axis=1, keepdims=True)
    return used, np.where(used, every.weights[light], 0).max(axis=1)


def _least_excess(every: ElementaryVectors, light: Array, owner: Array, tolerance: float) -> tuple[int, Float]:
    """The least excess weight of a basis with a misaligned vector over the lightest basis, and this vector.

    It is the smallest of w(e) - tau(e) over misaligned elementary vectors and of |supp e + supp e'| - max(tau, tau')
    over pairs that lie in no common block. A pair is never better than w(e) - tau(e) of the one with the larger tau.
    """
    _, tau = _replaceable(every, light, tolerance)
    home = _home_blocks(every.vectors, owner, tolerance)
    excess = every.weights - tau
    best, witness = math.inf, every.vectors[0]
    if (home < 0).any():
        lone = int(np.where(home < 0, excess, excess.max() + 1).argmin())
        best, witness = int(excess[lone]), every.vectors[lone]
    order = np.argsort(excess, kind="stable")
    order = order[home[order] >= 0]
    sized = every.supports * np.sqrt(every.sizes)
    step = max(1, _CHUNK // max(1, len(every.vectors)))
    for first in range(0, len(order), step):
        some = order[first : first + step]
        some = some[excess[some] < best]
        if not some.size:
            break
        shared = np.rint(sized[some] @ sized.T).astype(int)
        union = every.weights[some, None] + every.weights - shared
        allowed = (tau <= tau[some, None]) & ((home != home[some, None]) | (home < 0))
        value = np.where(allowed, union - tau[some, None], np.iinfo(int).max)
        a, b = np.unravel_index(int(value.argmin()), value.shape)
        if value[a, b] < best:
            best = int(value[a, b])
            witness = every.vectors[some[a]] + _GENERIC * every.vectors[b]
    return int(best), witness


def _home_blocks(vectors: Float, owner: Array, tolerance: float) -> Array:
    """The block each vector lies in, or -1 if it is misaligned, (N,)."""
    touched = np.abs(vectors) > tolerance * np.abs(vectors).max(axis=1, keepdims=True)
    low = np.where(touched, owner, owner.max() + 1).min(axis=1)
    high = np.where(touched, owner, -1).max(axis=1)
    return np.where(low == high, low, -1)


def _with_kernel(kernel: Float, owner: Array, basis: tuple[Float, Array], exact: bool, tolerance: float) -> _Bounds:
    """A direction that changes nothing can be added to any other: a lightest basis is misaligned, and S fails."""
    vectors, weights = basis
    lost = kernel.shape[1]
    homes = _home_blocks(np.vstack([kernel.T, vectors.T]), owner, tolerance)
    if (homes < 0).any():
        first = int((homes < 0).argmax())
        witness = kernel[:, first] if first < lost else vectors[:, first - lost]
    else:  # all lost directions lie in one block, and some vector of the basis in another
        witness = vectors[:, int((homes[lost:] != homes[0]).argmax())] + _GENERIC * kernel[:, 0]
    high = int(weights.sum())
    low = high if exact else len(kernel) - lost
    return "fails", low, high, witness, f"the Jacobian loses {count(lost, 'direction')}, free to add to any vector"


def _bound(
    rows: Float, blocks: Blocks, vectors: Float, weights: Array, exact: bool, tolerance: float, seed: int
) -> _Bounds:
    """Bound rho- if not all sets of rows can be tried.

    Light misaligned vectors bound it from above and can refute Type S. Rows that only one column reaches cannot cancel;
    they bound it from below and can prove Type S.
    """
    high, witness, total = math.inf, None, int(weights.sum())
    inverse, owner = np.linalg.inv(vectors), label_members(blocks)
    for vector in _light_vectors(rows, vectors, owner, tolerance, seed):
        if _home_blocks(vector[None], owner, tolerance)[0] >= 0:
            continue
        weight = int((np.abs(rows @ vector) > tolerance * np.linalg.norm(vector)).sum())
        used = np.abs(inverse @ vector)
        heaviest = int(weights[used > tolerance * used.max()].max())
        if total + weight - heaviest < high:
            high, witness = total + weight - heaviest, vector
    low = float(rows.shape[1])
    margin = exclusive_margin(rows != 0) if all(len(block) == 1 for block in blocks) else None
    if margin is not None:
        low = max(low, total + (margin if margin > 0 else len(blocks) * margin))
    reason = "there are too many sets of rows to try; bounds only"
    if margin is not None and margin > 0:
        return "holds", low, high, witness, f"{reason}: no cancellation can be enough"
    if exact and high <= total:
        return "fails", low, high, witness, f"{reason}: a light misaligned vector exists"
    return "unknown", low, high, witness, reason


def exclusive_margin(support: Array) -> int | None:
    """Return a lower bound on how much heavier combinations of columns are than their heaviest column.

    The smallest, over sets A of at least two columns of a support (m, d), of the number of rows that exactly one column
    of A reaches, minus the rows of the longest column of A. Rows that one column alone reaches cannot cancel, so Type S
    holds for single columns if it is positive. For two columns it is positive if they share less than half of the
    shorter one. None for more than 15 columns.
    """
    d = support.shape[1]
    if d > _MOST_COLUMNS:
        return None
    patterns, counts = np.unique(support, axis=0, return_counts=True)
    sizes = counts @ patterns
    sets = ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(bool)
    sets = sets[sets.sum(1) >= 2]
    margins = []
    for some in np.array_split(sets, max(1, len(sets) * len(patterns) // 2**24)):
        alone = ((some.astype(np.int32) @ patterns.T.astype(np.int32)) == 1) @ counts
        margins.append(int((alone - np.where(some, sizes, 0).max(axis=1)).min()))
    return min(margins)


def _light_vectors(rows: Float, basis: Float, owner: Array, tolerance: float, seed: int) -> Iterator[Float]:
    """Vectors of the latents that change few outputs.

    Combinations of two basis vectors of different blocks in which as many outputs as possible cancel, or none, and
    elementary vectors near random starts.
    """
    images = rows @ basis  # (m, d)
    alive = np.abs(images) > tolerance
    pairs = [(a, b) for a, b in combinations(range(len(owner)), 2) if owner[a] != owner[b]]
    for a, b in pairs[:_MOST_PAIRS]:
        shared = alive[:, a] & alive[:, b]
        if shared.any():
            ratios = np.sort(images[shared, a] / images[shared, b])  # the commonest, up to rounding
            apart = np.diff(ratios) > 1e-9 * np.maximum(np.abs(ratios[1:]), 1e-300)
            starts = np.flatnonzero(np.concatenate([[True], apart]))
            commonest = ratios[starts[np.diff([*starts, len(ratios)]).argmax()]]
            yield basis[:, a] - commonest * basis[:, b]
        yield basis[:, a] + np.sqrt(0.5) * basis[:, b]
    rng = np.random.default_rng(seed)
    live = rows[np.abs(rows).max(axis=1) > 0]
    if len(live) > _SEARCH_ROWS:
        live = live[rng.permutation(len(live))[:_SEARCH_ROWS]]
    for k in range(_STARTS):
        start = live[rng.integers(len(live))] if k % 2 else rng.standard_normal((1, rows.shape[1]))[0]
        vector = _search(live, start, tolerance)
        if vector is not None:
            yield vector


def _search(rows: Float, start: Float, tolerance: float) -> Float | None:
    """An elementary vector by reweighted least squares: few outputs, and start . u = 1."""
    d = rows.shape[1]
    weights, u = np.ones(len(rows)), start
    for _ in range(_SEARCH_STEPS):
        gram = (rows * weights[:, None]).T @ rows
        try:
            u = np.linalg.solve(gram + 1e-12 * np.trace(gram) * np.eye(d), start)
        except np.linalg.LinAlgError:
            return None
        u = u / np.linalg.norm(u)
        weights = 1 / (np.abs(rows @ u) + 1e-4)
    chosen: list[int] = []
    basis = np.zeros((0, d))
    for n in np.argsort(np.abs(rows @ u), kind="stable")[: 20 * d]:
        left = rows[n] - basis.T @ (basis @ rows[n])
        if np.linalg.norm(left) > 1e-6:  # the d - 1 independent rows nearest to zero are set to zero
            chosen.append(int(n))
            basis = np.vstack([basis, left / np.linalg.norm(left)])
        if len(chosen) == d - 1:
            break
    null = null_space(rows[chosen], d, tolerance)
    return null[:, 0] if null.shape[1] == 1 else None
