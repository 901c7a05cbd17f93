"""The linear matroid of the rows of a Jacobian: its connected components and its elementary vectors.

Two rows are connected if some minimal set of linearly dependent rows contains both. Each component is one part with
disjoint outputs into which the tangent space splits, in any basis. The components are the components of the bipartite
graph between d independent rows and the rows that are combinations of them, and of the graph of the hat matrix J J^+.

A direction u is elementary if no other direction, its multiples apart, changes fewer of the outputs that u changes.
Every direction is a sum of elementary ones inside the outputs it changes, so sparsest bases consist of them. They are
computed by setting d - 1 independent rows of the Jacobian to zero. Parallel rows count as one row and unconnected parts
of the Jacobian are treated separately; both only change the cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism._blocks import label_members, merge_groups

TOLERANCE = 1e-8  # for rows of length 1: smaller numbers are rounding error
_SETS_CHUNK = 8192  # sets of rows at a time
_MOST_BITS = 2**28  # of supports, elementary vectors times rows


def scale_to_unit(values: Float, axis: int) -> Float:
    """Scale to length 1 along an axis; zeros stay zeros."""
    lengths = np.linalg.norm(values, axis=axis, keepdims=True)
    return np.asarray(values / np.where(lengths > 0, lengths, 1.0))


def unit_rows(j: Float) -> tuple[Float, Float]:
    """Scale columns, then rows, of a Jacobian (m, d) to length 1; return it with the lengths of its columns, (d,).

    This changes no support and makes one tolerance right for all entries.
    """
    lengths = np.linalg.norm(j, axis=0)
    return scale_to_unit(scale_to_unit(j, 0), 1), np.where(lengths > 0, lengths, 1.0)


def row_components(rows: Float, tolerance: float = TOLERANCE) -> tuple[Array, int]:
    """Return the component of each row, (m,), with -1 for zero rows, and the number of components.

    Rows (m, d) have length 1 or 0, as from `unit_rows`; coefficients and pivots below the tolerance count as zero.
    """
    from scipy.linalg import qr, solve_triangular

    owner = np.full(len(rows), -1)
    live = np.flatnonzero(np.abs(rows).max(axis=1, initial=0.0) > 0)
    if not live.size:
        return owner, 0
    upper, order = qr(rows[live].T, mode="r", pivoting=True)
    size = np.abs(np.diag(upper))
    rank = int((size > tolerance * size[0]).sum())
    coefficients = np.empty((live.size, rank))  # of every row in the first `rank` pivots
    coefficients[order] = solve_triangular(upper[:rank, :rank], upper[:rank]).T
    touched = np.abs(coefficients) > tolerance * np.abs(coefficients).max(axis=1, keepdims=True)
    parts = merge_groups(rank, (np.flatnonzero(row) for row in np.unique(touched, axis=0)))
    owner[live] = label_members(parts)[touched.argmax(axis=1)]
    return owner, len(parts)


def null_space(rows: Float, d: int, tolerance: float = TOLERANCE) -> Float:
    """Return an orthonormal basis of the directions that rows (m, d) send to zero, shape (d, k)."""
    if not len(rows):
        return np.eye(d)
    if len(rows) > d:  # the triangular factor has the same null space and is small
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    _, size, right = np.linalg.svd(rows)
    rank = int((size > tolerance * max(float(size[0]), 1e-300)).sum()) if size[0] > 0 else 0
    return np.ascontiguousarray(right[rank:].T)


@dataclass(frozen=True, eq=False)
class ElementaryVectors:
    """The elementary vectors of a Jacobian of full column rank."""

    vectors: Float  # (N, d), of length 1
    supports: Array  # (N, c) whether the vector changes the outputs of a class of parallel rows
    sizes: Array  # (c,) outputs in each class
    weights: Array  # (N,) how many outputs the vector changes


def count_sets(rows: Float, tolerance: float = TOLERANCE) -> int:
    """Return how many sets of rows `elementary_vectors` would try for unit rows (m, d): its cost."""
    owner, count = row_components(rows, tolerance)
    total = 0
    for c in range(count):
        part = rows[owner == c]
        classes = len(_merge_parallel(part, tolerance)[0])
        total += math.comb(classes, np.linalg.matrix_rank(part, tol=tolerance * len(part)) - 1)
    return total


def elementary_vectors(rows: Float, budget: float, tolerance: float) -> ElementaryVectors | None:
    """Return all elementary vectors of unit rows (m, d) of full column rank; None beyond `budget` sets."""
    owner, count = row_components(rows, tolerance)
    parts, spent = [], 0
    for c in range(count):
        # Directions that change this part alone.
        inside = null_space(rows[(owner != c) & (owner >= 0)], rows.shape[1], tolerance)
        distinct, sizes = _merge_parallel(rows[owner == c], tolerance)
        spent += math.comb(len(distinct), inside.shape[1] - 1)
        if spent > budget or spent * len(distinct) > _MOST_BITS:
            return None
        parts.append((inside, distinct @ inside, sizes))
    every = np.concatenate([sizes for _, _, sizes in parts])
    vectors, supports, first = [], [], 0
    for inside, within, sizes in parts:
        inner, changed = _connected_vectors(scale_to_unit(within, 1), tolerance)
        wide = np.zeros((len(inner), len(every)), dtype=bool)
        wide[:, first : first + len(sizes)] = changed
        first += len(sizes)
        vectors.append(inner @ inside.T)
        supports.append(wide)
    both = np.concatenate(supports)
    return ElementaryVectors(np.concatenate(vectors), both, every, both @ every)


def _connected_vectors(rows: Float, tolerance: float) -> tuple[Float, Array]:
    """Elementary vectors of connected rows, (N, k), and the rows they change, (N, c)."""
    c, k = rows.shape
    if k == 1:
        return np.ones((1, 1)), np.ones((1, c), dtype=bool)
    unique: dict[bytes, tuple[Float, Array]] = {}
    every = combinations(range(c), k - 1)
    while sets := list(islice(every, _SETS_CHUNK)):
        vectors = _null_vectors(rows[np.array(sets)], tolerance)
        if not len(vectors):
            continue
        changed = np.abs(vectors @ rows.T) > tolerance
        packed = np.packbits(changed, axis=1)
        _, first = np.unique(packed.view(f"V{packed.shape[1]}")[:, 0], return_index=True)
        for i in first:
            unique.setdefault(packed[i].tobytes(), (vectors[i], changed[i]))
    every_vector, every_changed = zip(*unique.values(), strict=True)
    return np.array(every_vector), np.array(every_changed)


def _null_vectors(rows: Float, tolerance: float) -> Float:
    """The direction of length 1 that k - 1 rows send to zero, for each set (s, k - 1, k) that is independent."""
    k = rows.shape[2]
    null: Float
    if k == 2:
        null = rows[:, 0, ::-1] * np.array([1.0, -1.0])
    elif k == 3:
        crossed = np.cross(rows[:, 0], rows[:, 1])
        size = np.linalg.norm(crossed, axis=1, keepdims=True)
        null = crossed[size[:, 0] > tolerance] / size[size[:, 0] > tolerance]
    else:
        _, sizes, right = np.linalg.svd(rows)
        null = right[sizes[:, -1] > tolerance * sizes[:, 0], -1]
    return null


def _merge_parallel(rows: Float, tolerance: float) -> tuple[Float, Array]:
    """One row of each class of parallel rows of length 1, (c, k), and how many rows each class has, (c,)."""
    # Parallel rows have projections of the same size on any direction, so only neighbours in that order are compared.
    shadow = np.abs(rows @ np.random.default_rng(0).standard_normal(rows.shape[1]))
    order = np.argsort(shadow, kind="stable")
    apart = np.diff(shadow[order]) > 10 * tolerance * math.sqrt(rows.shape[1])
    alone = np.concatenate([[True], apart]) & np.concatenate([apart, [True]])
    distinct, sizes = [rows[order[alone]]], [1] * int(alone.sum())
    crowd = order[~alone]
    cuts = np.flatnonzero(np.diff(shadow[crowd]) > 10 * tolerance * math.sqrt(rows.shape[1])) + 1
    for near in np.split(crowd, cuts):
        while near.size:
            first = rows[near[0]]
            same = np.abs(rows[near] - np.sign(rows[near] @ first)[:, None] * first).max(axis=1) <= tolerance
            distinct.append(first[None])
            sizes.append(int(same.sum()))
            near = near[~same]
    return np.concatenate(distinct), np.array(sizes)
