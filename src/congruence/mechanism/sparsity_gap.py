"""Type S: is the sparsest way to write the Jacobian the one that respects the blocks?

The weight of a basis of the latents is the number of non-zero entries of the Jacobian in it. rho+ is the least weight
of bases whose vectors each lie in one block, rho- that of all other bases, and Type S asks for rho+ < rho-. Weights add
up, so that bases are those of a linear matroid and the greedy one is the lightest: both numbers are exact, at a cost
that is exponential in the number of latents only. Past a budget there are bounds, and `unknown` where they do not meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.formatting import count
from congruence.mechanism.blocks import Blocks, block_of
from congruence.mechanism.connectivity import TOLERANCE, joined, null_space, unit_rows
from congruence.mechanism.elementary import Elementary, elementary_vectors
from congruence.mechanism.gap_bounds import exclusive_margin, light_vectors
from congruence.result import Status

BUDGET = 200_000  # sets of rows tried at a point
AT_A_TIME = 2**24  # entries of a product of supports


@dataclass(frozen=True, eq=False)
class SparsityGap:
    """rho+ and rho- of a Jacobian at a point; Type S holds where the gap is positive."""

    status: Status  # "holds", "fails" or "unknown"
    exact: bool  # whether both numbers are known
    rho_plus: int  # least weight of aligned bases; an upper bound where `aligned_exact` is False
    rho_minus_low: float  # rho- is at least this ...
    rho_minus_high: float  # ... and at most this; infinite where there is one block only
    basis: Float = field(repr=False)  # (d, d) the lightest aligned basis that was found, in its columns
    basis_blocks: tuple[int, ...]  # the block of each of its vectors
    witness: Float | None = field(repr=False)  # (d,) a misaligned vector that a basis of weight rho_minus_high has
    aligned_exact: bool  # whether the basis is surely the lightest of the aligned ones
    reason: str

    @property
    def rho_minus(self) -> float | None:
        """rho-, where it is known."""
        return self.rho_minus_low if self.rho_minus_low == self.rho_minus_high else None

    @property
    def gap(self) -> float | None:
        """rho- minus rho+, where both are known; Type S asks for more than 0."""
        return self.rho_minus_low - self.rho_plus if self.exact else None

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON contract."""
        return {
            "status": self.status,
            "exact": self.exact,
            "rho_plus": self.rho_plus,
            "rho_minus": self.rho_minus,
            "rho_minus_low": self.rho_minus_low,
            "rho_minus_high": self.rho_minus_high,
            "gap": self.gap,
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class SparsestBasis:
    """The lightest basis of the latents for a Jacobian, blocks or not."""

    vectors: Float  # (d, d), in its columns; not unique where weights tie
    weights: Array  # (d,) from the lightest up
    kernel: int  # how many of them, the first, are sent to zero


def sparsity_gap(
    j: Float, blocks: Blocks, *, budget: float = BUDGET, tolerance: float = TOLERANCE, seed: int = 0
) -> SparsityGap:
    """Compare the sparsest aligned basis with the sparsest misaligned one, exactly where the budget allows.

    Parameters
    ----------
    j : (m, d)
        Jacobian at a point, with exact zeros where an output does not depend on a latent.
    blocks : tuple of tuples of latents
        A partition of the d latents.
    budget : float
        Sets of d - 1 rows that may be tried; past it rigorous bounds are given, and `unknown` where they do not decide.
    tolerance : float
        Relative size below which a number that should cancel counts as zero.
    seed : int
        Of the search for light misaligned vectors past the budget.

    Returns
    -------
    SparsityGap
        Invariant to the scale of every latent and of every output, and to the basis inside a block.

    References
    ----------
    Matthes et al. 2026 (the criterion); the algorithm is of this package.
    """
    rows, lengths = unit_rows(j)
    aligned = aligned_basis(rows, blocks, budget, tolerance)
    if len(blocks) == 1:
        return _result("holds", aligned, lengths, (math.inf, math.inf), None, "there is one block only")
    kernel = null_space(rows, rows.shape[1], tolerance)
    if kernel.shape[1]:
        return _with_kernel(rows, kernel, block_of(blocks), aligned, lengths, budget, tolerance)
    found = elementary_vectors(rows, budget, tolerance)
    if found is None:
        return _bounded(rows, blocks, aligned, lengths, tolerance, seed)
    light = _greedy(found.vectors, found.weights, tolerance)
    excess, witness = _least_excess(found, light, block_of(blocks), tolerance)
    rho_minus = int(found.weights[light].sum()) + excess
    holds = aligned.total < rho_minus
    reason = "all sets of rows were tried"
    return _result("holds" if holds else "fails", aligned, lengths, (rho_minus, rho_minus), witness, reason)


def sparsest_basis(j: Float, *, budget: float = BUDGET, tolerance: float = TOLERANCE) -> SparsestBasis | None:
    """The lightest basis of all for a Jacobian (m, d); None where that takes more sets of rows than the budget."""
    rows, lengths = unit_rows(j)
    basis = _lightest(rows, budget, tolerance)
    if basis is None:
        return None
    vectors, weights = basis
    return SparsestBasis(vectors / lengths[:, None], weights, int((weights == 0).sum()))


def sparse_decomposition(j: Float, *, budget: float = BUDGET, tolerance: float = TOLERANCE) -> tuple[Float, ...] | None:
    """The finest decomposition of the latents that has a sparsity gap, in any basis; None past the budget.

    Returns
    -------
    tuple of (d, k) arrays
        A basis of each part; unique as subspaces. One part alone means that the point is S-irreducible.
    """
    rows, lengths = unit_rows(j)
    d = rows.shape[1]
    if d == 1 or null_space(rows, d, tolerance).shape[1]:  # adding what is lost to any vector costs nothing
        return (np.eye(d),)
    found = elementary_vectors(rows, budget, tolerance)
    if found is None:
        return None
    light = _greedy(found.vectors, found.weights, tolerance)
    used = _used(found.vectors, found.vectors[light], tolerance)  # (N, d)
    tied = found.weights == _heaviest(used, found.weights[light])
    labels, count = joined(d, (np.flatnonzero(row) for row in np.unique(used[tied], axis=0)))
    basis = found.vectors[light].T / lengths[:, None]
    return tuple(basis[:, labels == k] for k in range(count))


@dataclass(frozen=True, eq=False)
class Aligned:
    """The lightest basis whose vectors each lie in one block."""

    vectors: Float  # (d, d), in its columns, of unit rows
    weights: Array
    owner: Array  # the block of each
    exact: bool

    @property
    def total(self) -> int:
        """rho+, or an upper bound of it where not exact."""
        return int(self.weights.sum())


def aligned_basis(rows: Float, blocks: Blocks, budget: float, tolerance: float) -> Aligned:
    """The lightest basis of each block, together; coordinates where a block is past the budget."""
    d = rows.shape[1]
    vectors, weights, owner, exact = [], [], [], True
    for k, block in enumerate(blocks):
        part = rows[:, list(block)]
        size = np.linalg.norm(part, axis=1, keepdims=True)
        basis = _lightest(part / np.where(size > 0, size, 1.0), budget, tolerance)
        if basis is None:
            exact = False
            basis = np.eye(len(block)), (part != 0).sum(axis=0)
        wide = np.zeros((d, len(block)))
        wide[list(block)] = basis[0]
        vectors.append(wide)
        weights.append(basis[1])
        owner.extend([k] * len(block))
    return Aligned(np.hstack(vectors), np.concatenate(weights), np.array(owner), exact)


def _lightest(rows: Float, budget: float, tolerance: float) -> tuple[Float, Array] | None:
    """The lightest basis, (d, d) in its columns, and its weights; what is sent to zero comes first, at no weight."""
    d = rows.shape[1]
    if d == 1:
        return np.ones((1, 1)), (rows != 0).sum(axis=0)
    kernel = null_space(rows, d, tolerance)
    if kernel.shape[1] == d:
        return kernel, np.zeros(d, dtype=int)
    across = np.eye(d) if not kernel.shape[1] else null_space(kernel.T, d, tolerance)
    within = rows @ across
    size = np.linalg.norm(within, axis=1, keepdims=True)
    found = elementary_vectors(within / np.where(size > 0, size, 1.0), budget, tolerance)
    if found is None:
        return None
    light = _greedy(found.vectors, found.weights, tolerance)
    vectors = np.hstack([kernel, across @ found.vectors[light].T])
    return vectors, np.concatenate([np.zeros(kernel.shape[1], dtype=int), found.weights[light]])


def _greedy(vectors: Float, weights: Array, tolerance: float) -> Array:
    """Numbers of the vectors of the lightest basis, from the lightest up."""
    order = np.argsort(weights, kind="stable")
    left = vectors[order].copy()
    chosen: list[int] = []
    for _ in range(vectors.shape[1]):
        size = np.linalg.norm(left, axis=1)
        first = int((size > tolerance).argmax())
        chosen.append(int(order[first]))
        direction = left[first] / size[first]
        left -= (left @ direction)[:, None] * direction
        left[: first + 1] = 0.0  # lighter ones were dependent already
    return np.array(chosen)


def _used(vectors: Float, basis: Float, tolerance: float) -> Array:
    """Which vectors of a basis (rows) each vector needs, (N, d)."""
    coefficients = np.abs(vectors @ np.linalg.inv(basis))
    used: Array = coefficients > tolerance * coefficients.max(axis=1, keepdims=True)
    return used


def _heaviest(used: Array, weights: Array) -> Array:
    """tau: the heaviest vector of the lightest basis that each vector could take the place of."""
    heaviest: Array = np.where(used, weights, 0).max(axis=1)
    return heaviest


def _least_excess(found: Elementary, light: Array, owner: Array, tolerance: float) -> tuple[int, Float]:
    """By how much a basis with a misaligned vector is heavier than the lightest, and such a vector.

    It is the least of w(e) - tau(e) over misaligned elementary vectors and of |supp e + supp e'| - max(tau, tau')
    over pairs that lie in no common block. A pair is never better than w(e) - tau(e) of the one with the larger tau.
    """
    tau = _heaviest(_used(found.vectors, found.vectors[light], tolerance), found.weights[light])
    home = _homes(found.vectors, owner, tolerance)
    excess = found.weights - tau
    best, witness = math.inf, found.vectors[0]
    if (home < 0).any():
        lone = int(np.where(home < 0, excess, excess.max() + 1).argmin())
        best, witness = int(excess[lone]), found.vectors[lone]
    order = np.lexsort((np.arange(len(found)), excess))
    order = order[home[order] >= 0]
    sized = found.supports * np.sqrt(found.sizes)
    step = max(1, AT_A_TIME // max(1, len(found)))
    for first in range(0, len(order), step):
        some = order[first : first + step]
        some = some[excess[some] < best]
        if not some.size:
            break
        shared = np.rint(sized[some] @ sized.T).astype(int)
        union = found.weights[some, None] + found.weights - shared
        allowed = (tau <= tau[some, None]) & ((home != home[some, None]) | (home < 0))
        value = np.where(allowed, union - tau[some, None], np.iinfo(int).max)
        a, b = np.unravel_index(int(value.argmin()), value.shape)
        if value[a, b] < best:
            best = int(value[a, b])
            witness = found.vectors[some[a]] + GENERIC * found.vectors[b]
    return int(best), witness


GENERIC = (math.sqrt(5) - 1) / 2  # a factor that makes nothing cancel by chance


def _homes(vectors: Float, owner: Array, tolerance: float) -> Array:
    """The block each vector lies in, or -1 where it is misaligned, (N,)."""
    touched = np.abs(vectors) > tolerance * np.abs(vectors).max(axis=1, keepdims=True)
    low = np.where(touched, owner, owner.max() + 1).min(axis=1)
    high = np.where(touched, owner, -1).max(axis=1)
    return np.where(low == high, low, -1)


def _with_kernel(
    rows: Float, kernel: Float, owner: Array, aligned: Aligned, lengths: Float, budget: float, tolerance: float
) -> SparsityGap:
    """A direction that changes nothing can be added to any other: a lightest basis is misaligned, and S fails."""
    found = _lightest(rows, budget, tolerance)
    vectors, weights = (aligned.vectors, aligned.weights) if found is None else found
    homes = _homes(np.vstack([kernel.T, vectors.T]), owner, tolerance)
    lost = kernel.shape[1]
    if (homes < 0).any():
        first = int((homes < 0).argmax())
        witness = kernel[:, first] if first < lost else vectors[:, first - lost]
    else:  # all that is lost lies in one block, and some vector of the basis in another
        witness = vectors[:, int((homes[lost:] != homes[0]).argmax())] + GENERIC * kernel[:, 0]
    high = int(weights.sum())
    low = high if found is not None else rows.shape[1] - lost
    reason = f"the Jacobian loses {count(lost, 'direction')}, which can be added to any vector at no cost"
    return _result("fails", aligned, lengths, (low, high), witness, reason)


def _bounded(rows: Float, blocks: Blocks, aligned: Aligned, lengths: Float, tolerance: float, seed: int) -> SparsityGap:
    """Bounds on rho- where not all sets of rows can be tried."""
    high, witness = math.inf, None
    inverse = np.linalg.inv(aligned.vectors)
    owner = block_of(blocks)
    for vector, weight in light_vectors(rows, aligned.vectors, aligned.owner, tolerance, seed):
        if _homes(vector[None], owner, tolerance)[0] >= 0:
            continue
        used = np.abs(inverse @ vector)
        heaviest = int(aligned.weights[used > tolerance * used.max()].max())
        if aligned.total + weight - heaviest < high:
            high, witness = aligned.total + weight - heaviest, vector
    low, surely = float(rows.shape[1]), False
    if all(len(block) == 1 for block in blocks):
        margin = exclusive_margin(rows != 0)
        if margin is not None:
            surely = margin > 0
            low = max(low, aligned.total + (margin if margin > 0 else len(blocks) * margin))
    reason = "there are too many sets of rows to try; bounds only"
    if surely:
        return _result("holds", aligned, lengths, (low, high), witness, f"{reason}: no cancellation can be enough")
    if aligned.exact and high <= aligned.total:
        return _result("fails", aligned, lengths, (low, high), witness, f"{reason}: a light misaligned vector exists")
    return _result("unknown", aligned, lengths, (low, high), witness, reason)


def _result(
    status: Status,
    aligned: Aligned,
    lengths: Float,
    rho_minus: tuple[float, float],
    witness: Float | None,
    reason: str,
) -> SparsityGap:
    low, high = rho_minus
    return SparsityGap(
        status=status,
        exact=aligned.exact and low == high,
        rho_plus=aligned.total,
        rho_minus_low=low,
        rho_minus_high=high,
        basis=aligned.vectors / lengths[:, None],
        basis_blocks=tuple(aligned.owner.tolist()),
        witness=None if witness is None else witness / lengths,
        aligned_exact=aligned.exact,
        reason=reason,
    )
