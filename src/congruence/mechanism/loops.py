"""Loops in a union of boxes: its fundamental group, from which boxes touch.

Boxes that meet pairwise meet all together, so the union can be contracted to the complex of all cliques of
the graph of touching boxes (nerve theorem), whose loops are words in the edges outside a spanning tree, with a relation
for each triangle.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from congruence.arrays import Array

Letter = tuple[int, int]  # the number of an edge, 0 for none, and the direction in which it is passed


def loops_of(touching: Array) -> int | None:
    """How many independent loops cannot be contracted, for a connected graph (b, b) of touching boxes.

    0 is simply connected, for certain: all edges could be removed by triangles. More than 0 counts loops with values
    modulo 2 (first homology), so that the set is certainly not simply connected. None: neither was found.
    """
    edges = _numbered(touching)
    relations = [_word(edges, *triangle) for triangle in _triangles(touching)]
    number = max(edges.values(), default=0)
    if _all_removed(number, relations):
        return 0
    loops = number - _rank(number, relations)
    return loops or None


def _numbered(touching: Array) -> dict[tuple[int, int], int]:
    """A number for each edge (i, j) with i < j, 0 for those of a spanning tree."""
    reached, tree = {0}, set()
    queue = [0]
    while queue:
        here = queue.pop()
        for there in map(int, np.flatnonzero(touching[here])):
            if there not in reached:
                reached.add(there)
                tree.add((min(here, there), max(here, there)))
                queue.append(there)
    edges, number = {}, 0
    for i, j in zip(*map(np.ndarray.tolist, np.nonzero(np.triu(touching, 1))), strict=True):
        number += (i, j) not in tree
        edges[i, j] = 0 if (i, j) in tree else number
    return edges


def _triangles(touching: Array) -> Iterator[tuple[int, int, int]]:
    upper = np.triu(touching, 1)
    for i, j in zip(*np.nonzero(upper), strict=True):
        for k in np.flatnonzero(upper[i] & upper[j]):
            yield int(i), int(j), int(k)


def _word(edges: dict[tuple[int, int], int], i: int, j: int, k: int) -> list[Letter]:
    """The way around a triangle i < j < k."""
    return [(edges[i, j], 1), (edges[j, k], 1), (edges[i, k], -1)]


def _all_removed(number: int, relations: list[list[Letter]]) -> bool:
    """Whether relations of one letter (it is nothing) and of two (one is the other) make every edge nothing."""
    same: dict[int, Letter] = {edge: (edge, 1) for edge in range(number + 1)}

    def root(edge: int, sign: int) -> Letter:
        while same[edge] != (edge, 1):
            edge, turn = same[edge]
            sign *= turn
        return edge, sign

    changed = True
    while changed:
        changed = False
        for relation in relations:
            word = _reduced([root(*letter) for letter in relation])
            if len(word) == 1:
                same[word[0][0]] = (0, 1)
                changed = True
            elif len(word) == 2 and word[0][0] != word[1][0]:  # a b = 1, so b is a backwards
                same[word[1][0]] = (word[0][0], -word[0][1] * word[1][1])
                changed = True
    return all(root(edge, 1)[0] == 0 for edge in range(number + 1))


def _reduced(word: list[Letter]) -> list[Letter]:
    """Without edges of the tree, and without an edge followed by itself backwards."""
    kept: list[Letter] = []
    for edge, sign in word:
        if edge == 0:
            continue
        if kept and kept[-1] == (edge, -sign):
            kept.pop()
        else:
            kept.append((edge, sign))
    if len(kept) > 1 and kept[0] == (kept[-1][0], -kept[-1][1]):  # the word is a loop: its ends meet
        return kept[1:-1]
    return kept


def _rank(number: int, relations: list[list[Letter]]) -> int:
    """The rank of the relations modulo 2."""
    rows = []
    for relation in relations:
        row = 0
        for edge, _ in relation:
            row ^= (1 << edge) if edge else 0
        rows.append(row)
    rank = 0
    basis: dict[int, int] = {}
    for row in rows:
        while row:
            top = row.bit_length()
            if top not in basis:
                basis[top] = row
                rank += 1
                break
            row ^= basis[top]
    return rank
