"""Elementary vectors: the directions of the latents that leave as many outputs untouched as they can.

A direction u is elementary where no other direction, its multiples apart, changes fewer of the outputs that u changes.
Every direction is a sum of elementary ones inside the outputs it changes, so that sparsest bases are made of them. They
are found by setting d - 1 independent rows of the Jacobian to zero; rows that are parallel are one row, and parts of
the Jacobian that are not connected are treated separately; both only change the cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.connectivity import TOLERANCE, null_space, row_components

AT_A_TIME = 8192  # sets of rows
MOST_BITS = 2**28  # of supports, elementary vectors times rows


@dataclass(frozen=True, eq=False)
class Elementary:
    """The elementary vectors of a Jacobian of full column rank."""

    vectors: Float  # (N, d), of length 1
    supports: Array  # (N, c) whether the vector changes the outputs of a class of parallel rows
    sizes: Array  # (c,) outputs in each class
    weights: Array  # (N,) how many outputs the vector changes

    def __len__(self) -> int:
        return len(self.vectors)


def count_sets(rows: Float, tolerance: float = TOLERANCE) -> int:
    """How many sets of rows `elementary_vectors` would try for unit rows (m, d): the cost, without paying it."""
    owner, count = row_components(rows, tolerance)
    total = 0
    for c in range(count):
        part = rows[owner == c]
        classes = len(_parallel(part, tolerance)[0])
        total += math.comb(classes, np.linalg.matrix_rank(part, tol=tolerance * len(part)) - 1)
    return total


def elementary_vectors(rows: Float, budget: float = math.inf, tolerance: float = TOLERANCE) -> Elementary | None:
    """All elementary vectors of unit rows (m, d) of full column rank; None where that takes more sets than `budget`."""
    d = rows.shape[1]
    owner, count = row_components(rows, tolerance)
    parts, spent, classes = [], 0, 0
    for c in range(count):
        inside = null_space(rows[(owner != c) & (owner >= 0)], d, tolerance)  # directions that change this part alone
        kept, sizes = _parallel(rows[owner == c], tolerance)
        spent += math.comb(len(kept), inside.shape[1] - 1)
        if spent > budget or spent * len(kept) > MOST_BITS:
            return None
        parts.append((inside, kept @ inside, sizes))
        classes += len(kept)
    vectors, supports, first = [], [], 0
    for inside, within, sizes in parts:
        size = np.linalg.norm(within, axis=1, keepdims=True)
        found, changed = _of_part(within / size, tolerance)
        wide = np.zeros((len(found), classes), dtype=bool)
        wide[:, first : first + len(sizes)] = changed
        first += len(sizes)
        vectors.append(found @ inside.T)
        supports.append(wide)
    every = np.concatenate([sizes for _, _, sizes in parts])
    both = np.concatenate(supports)
    return Elementary(np.concatenate(vectors), both, every, both @ every)


def _of_part(rows: Float, tolerance: float) -> tuple[Float, Array]:
    """Elementary vectors of connected rows, (N, k), and the rows they change, (N, c)."""
    c, k = rows.shape
    if k == 1:
        return np.ones((1, 1)), np.ones((1, c), dtype=bool)
    kept: dict[bytes, tuple[Float, Array]] = {}
    for sets in _sets(c, k - 1):
        vectors = _null_vectors(rows[sets], tolerance)
        if not len(vectors):
            continue
        changed = np.abs(vectors @ rows.T) > tolerance
        packed = np.packbits(changed, axis=1)
        _, first = np.unique(packed.view(f"V{packed.shape[1]}")[:, 0], return_index=True)
        for i in first:
            kept.setdefault(packed[i].tobytes(), (vectors[i], changed[i]))
    return np.array([vector for vector, _ in kept.values()]), np.array([changed for _, changed in kept.values()])


def _sets(n: int, k: int) -> Iterator[Array]:
    every = combinations(range(n), k)
    while some := list(islice(every, AT_A_TIME)):
        yield np.array(some)


def _null_vectors(rows: Float, tolerance: float) -> Float:
    """The direction of length 1 that k - 1 rows send to zero, for each set (s, k - 1, k) that is independent."""
    k = rows.shape[2]
    found: Float
    if k == 2:
        found = rows[:, 0, ::-1] * np.array([1.0, -1.0])
    elif k == 3:
        crossed = np.cross(rows[:, 0], rows[:, 1])
        size = np.linalg.norm(crossed, axis=1, keepdims=True)
        found = crossed[size[:, 0] > tolerance] / size[size[:, 0] > tolerance]
    else:
        _, sizes, right = np.linalg.svd(rows)
        found = right[sizes[:, -1] > tolerance * sizes[:, 0], -1]
    return found


def _parallel(rows: Float, tolerance: float) -> tuple[Float, Array]:
    """One row of each class of parallel rows of length 1, (c, k), and how many rows each class has, (c,)."""
    # Parallel rows have the same length along any direction, so that only neighbours in that order are compared.
    shadow = np.abs(rows @ np.random.default_rng(0).standard_normal(rows.shape[1]))
    order = np.argsort(shadow, kind="stable")
    apart = np.diff(shadow[order]) > 10 * tolerance * math.sqrt(rows.shape[1])
    alone = np.concatenate([[True], apart]) & np.concatenate([apart, [True]])
    kept, sizes = [rows[order[alone]]], [1] * int(alone.sum())
    crowd = order[~alone]
    cuts = np.flatnonzero(np.diff(shadow[crowd]) > 10 * tolerance * math.sqrt(rows.shape[1])) + 1
    for near in np.split(crowd, cuts):
        while near.size:
            first = rows[near[0]]
            same = np.abs(rows[near] - np.sign(rows[near] @ first)[:, None] * first).max(axis=1) <= tolerance
            kept.append(first[None])
            sizes.append(int(same.sum()))
            near = near[~same]
    return np.concatenate(kept), np.array(sizes)
