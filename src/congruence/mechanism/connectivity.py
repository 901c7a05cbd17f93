"""Which outputs are connected: the components of the linear matroid of the rows of a Jacobian.

Two rows are connected where some smallest set of linearly dependent rows holds both. The components give into how many
parts with disjoint outputs the tangent space can be split, in any basis, and need no search over subsets: they are the
components of the bipartite graph between d independent rows and the rows that are combinations of them. They are also
those of the graph of the hat matrix J J^+.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from congruence.arrays import Array, Float

TOLERANCE = 1e-8  # of rows of length 1: below it a number is rounding


def unit_rows(j: Float) -> tuple[Float, Float]:
    """The Jacobian (m, d) with columns, then rows, of length 1, and the lengths of its columns, (d,).

    No support changes by that, and it makes one tolerance right for all of them. Zeros stay zeros.
    """
    lengths = np.linalg.norm(j, axis=0)
    scaled = j / np.where(lengths > 0, lengths, 1.0)
    size = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(size > 0, size, 1.0), np.where(lengths > 0, lengths, 1.0)


def row_components(rows: Float, tolerance: float = TOLERANCE) -> tuple[Array, int]:
    """The component of each row, (m,), with -1 for zero rows, and the number of components.

    Parameters
    ----------
    rows : (m, d)
        Of length 1 or 0, as `unit_rows` makes them.
    tolerance : float
        Coefficients and pivots below it count as zero.
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
    labels, count = joined(rank, (np.flatnonzero(row) for row in np.unique(touched, axis=0)))
    owner[live] = labels[touched.argmax(axis=1)]
    return owner, count


def joined(n: int, groups: Iterable[Array]) -> tuple[Array, int]:
    """Number the parts of 0, ..., n - 1 once all members of each group are in one part: (n,) labels and their count."""
    labels = np.arange(n)
    for group in groups:
        hit = np.isin(labels, labels[group])
        labels[hit] = labels[hit].min(initial=n)
    kept, labels = np.unique(labels, return_inverse=True)
    return labels, len(kept)


def null_space(rows: Float, d: int, tolerance: float = TOLERANCE) -> Float:
    """An orthonormal basis of what rows (m, d) send to zero, shape (d, k)."""
    if not len(rows):
        return np.eye(d)
    if len(rows) > d:  # the triangle has the same null space, and is small
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    _, size, right = np.linalg.svd(rows)
    rank = int((size > tolerance * max(float(size[0]), 1e-300)).sum()) if size[0] > 0 else 0
    return np.ascontiguousarray(right[rank:].T)
