"""Cosines of two dictionaries, block by block: nearest features and all pairs above a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, is_tensor, library, to_numpy, to_tensor

BLOCK_VALUES = 2**24  # cosines that are computed at a time
MOST_PAIRS = 64  # above the limit, for each feature on average; beyond, only the largest of each block row are kept


@dataclass(frozen=True, eq=False)
class Similar:
    """The nearest feature on the other side of every feature, and all pairs above a limit."""

    nearest: Array  # (m_a,) of b
    cosine: Array  # (m_a,) with it
    back: Array  # (m_b,) nearest row of a of every row of b, the first of several
    back_cosine: Array  # (m_b,) with it
    rows: Array  # (pairs,) of a
    columns: Array  # (pairs,) of b
    values: Array  # (pairs,) their cosines, all above the limit
    thinned: bool  # whether pairs were left out because there were too many


def place(directions: Array, device: str) -> Any:
    """The directions as the array that is multiplied: a tensor on a GPU, else numpy."""
    return directions if device == "cpu" else to_tensor(directions, device)


def blocks(a: Any, b: Any, unsigned: bool) -> Iterator[tuple[int, Any]]:
    """Yield the cosines of some rows of a with all rows of b, and the position of the first."""
    step = max(1, BLOCK_VALUES // len(b))
    for start in range(0, len(a), step):
        cosines = a[start : start + step] @ b.T
        yield start, abs(cosines) if unsigned else cosines


def row_maxima(a: Any, b: Any, unsigned: bool) -> Array:
    """The cosine of every row of a with its nearest row of b, shape (m_a,)."""
    return np.concatenate([to_numpy(library(block).amax(block, 1)) for _, block in blocks(a, b, unsigned)])


def find_similar(a: Any, b: Any, limit: float, unsigned: bool) -> Similar:
    """The nearest neighbours of two dictionaries in both directions, and all pairs with a cosine above `limit`."""
    nearest, cosine = np.empty(len(a), np.intp), np.empty(len(a), np.float32)
    back, back_cosine = np.zeros(len(b), np.intp), np.full(len(b), -2.0, np.float32)
    found, thinned = [], False
    for start, block in blocks(a, b, unsigned):
        rows = slice(start, start + len(block))
        nearest[rows] = to_numpy(block.argmax(1))
        cosine[rows] = to_numpy(library(block).amax(block, 1))
        largest = to_numpy(library(block).amax(block, 0))
        nearer = largest > back_cosine
        back[nearer], back_cosine[nearer] = start + to_numpy(block.argmax(0))[nearer], largest[nearer]
        some, cut = _above(block, limit)
        found.append((some[0] + start, some[1], some[2]))
        thinned |= cut
    pairs = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return Similar(nearest, cosine, back, back_cosine, pairs[0], pairs[1], pairs[2], thinned)


def _above(block: Any, limit: float) -> tuple[tuple[Array, Array, Array], bool]:
    """The positions and values above the limit; of too many, the largest of each row."""
    most = min(MOST_PAIRS, block.shape[1])
    above = block > limit
    cut = int(above.sum()) > most * len(block)
    if cut:
        if is_tensor(block):
            kth = block.topk(most, 1).values[:, -1:]
        else:
            kth = np.partition(block, -most, axis=1)[:, -most, None]
        above &= block >= kth
    rows, columns = (to_numpy(part) for part in _nonzero(above))
    return (rows, columns, to_numpy(block[above])), cut


def _nonzero(mask: Any) -> tuple[Any, Any]:
    if is_tensor(mask):
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    rows, columns = np.nonzero(mask)
    return rows, columns


def nearest_of_own(a: Any, rows: Array, unsigned: bool) -> Array:
    """The largest cosine of some rows of a, given by their positions, with the other rows of a."""
    parts = [np.empty(0, np.float32)]
    for start, block in blocks(a[rows], a, unsigned):
        here = rows[start : start + len(block)]
        block[np.arange(len(block)), here] = -2  # with itself
        parts.append(to_numpy(library(block).amax(block, 1)))
    return np.concatenate(parts)


def top_neighbours(a: Any, b: Any, k: int) -> Array:
    """The k rows of b with the largest |cosine| for every row of a, shape (m_a, k), in no order."""
    k = min(k, len(b))
    parts = []
    for _, block in blocks(a, b, True):
        top = block.topk(k, 1).indices if is_tensor(block) else np.argpartition(block, -k, axis=1)[:, -k:]
        parts.append(to_numpy(top))
    return np.concatenate(parts)
