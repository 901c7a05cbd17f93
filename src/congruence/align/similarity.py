"""Similarities that need no map: linear CKA and the overlap of nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float, Rows, as_matrix, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps.sums import PairSums

NEIGHBOURS = 10
NEIGHBOUR_ROWS = 10_000  # distances are quadratic in rows: more than this many are sampled
_BLOCK = 512


def unbiased_cka(sums: PairSums) -> float:
    """Linear centred kernel alignment of two runs, without the bias that makes unrelated wide runs look alike.

    Worked out from d x d sums and one pass over the rows, never from an n x n kernel. Invariant to rotation,
    translation and one scale of either run.

    Returns
    -------
    float
        1 for equal runs up to these, about 0 for unrelated ones (it may be slightly negative); NaN for fewer
        than 4 rows or a constant run.

    References
    ----------
    Kornblith et al. 2019; Song et al. 2012, eq. 5 (the unbiased estimator).
    """
    x, y = sums.source.rows, sums.target.rows
    if x.n < 4:
        return float("nan")
    diag_x, diag_y = _kernel_diagonal(x), _kernel_diagonal(y)
    xx, yy = sums.source.products.sum(0), sums.target.products.sum(0)
    xy = sums.products.sum(0)
    both = _hsic((xy * xy).sum(), diag_x, diag_y)
    own_x = _hsic((xx * xx).sum(), diag_x, diag_x)
    own_y = _hsic((yy * yy).sum(), diag_y, diag_y)
    return float(both / np.sqrt(own_x * own_y)) if own_x > 0 and own_y > 0 else float("nan")


def _kernel_diagonal(rows: Rows) -> Float:
    diagonal = np.empty(rows.n)
    for part in row_chunks(rows.n, rows.d):
        chunk = rows.take(part)
        diagonal[part] = to_numpy((chunk * chunk).sum(1))
    return diagonal


def _hsic(squares: float, diag_k: Float, diag_l: Float) -> float:
    """Unbiased HSIC of two linear kernels with zeroed diagonals, times n (n - 3).

    The rows are centred, so each row of a kernel sums to 0 with its diagonal and to -diagonal without it.
    """
    n, both = len(diag_k), float(diag_k @ diag_l)
    middle = float(diag_k.sum() * diag_l.sum()) / ((n - 1) * (n - 2))
    return squares - both + middle - 2 * both / (n - 2)


def neighbour_overlap(x: Any, y: Any, *, k: int = NEIGHBOURS, seed: int = 0) -> float:
    """The mean share of a row's k nearest neighbours in x that are also among its k nearest in y.

    Invariant to rotation, translation and scale of either side. More than 10 000 rows are sampled (by `seed`).

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows; distances are Euclidean.
    k : int
        Neighbours per row, at most n - 1.

    Returns
    -------
    float
        From 0 to 1, higher is closer; unrelated runs give about k / (n - 1).
    """
    x, y = as_matrix(x, "x"), as_matrix(y, "y")
    if len(x) != len(y):
        raise InputError(f"x and y must have paired rows, but x has {len(x)} and y has {len(y)}")
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    return rows_overlap(nearest(Rows(x), k, seed), nearest(Rows(y), k, seed))


def nearest(rows: Rows, k: int = NEIGHBOURS, seed: int = 0) -> Array:
    """The k nearest neighbours of each row (of a sample of rows where there are many), shape (m, k)."""
    index = np.arange(rows.n)
    if rows.n > NEIGHBOUR_ROWS:
        index = np.sort(np.random.default_rng(seed).choice(rows.n, NEIGHBOUR_ROWS, replace=False))
    k = min(k, len(index) - 1)
    points = to_numpy(rows.take(index))
    squares = (points * points).sum(1)
    found = np.empty((len(index), k), dtype=np.intp)
    for start in range(0, len(index), _BLOCK):
        part = slice(start, start + _BLOCK)
        distance = squares - 2 * points[part] @ points.T  # up to a constant per row
        distance[np.arange(len(distance)), np.arange(len(index))[part]] = np.inf
        found[part] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return found


def rows_overlap(a: Array, b: Array) -> float:
    """The mean share of common entries in the rows of two tables of neighbours, each (m, k)."""
    return float(
        np.mean([len(np.intersect1d(p, q, assume_unique=True)) for p, q in zip(a, b, strict=True)]) / a.shape[1]
    )
