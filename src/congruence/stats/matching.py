"""One-to-one matching by the Hungarian method (Kuhn 1955)."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float


def match(score: Any) -> tuple[Array, Array]:
    """The rows and columns, shape (min(k, m),) each, whose one-to-one matching has the largest total score (k, m).

    Rows are in rising order. Missing scores (NaN) count as 0.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(np.nan_to_num(score), maximize=True)
    return rows, columns


def signed_permutation(cross: Float) -> Float:
    """The signed permutation P, shape (d, d), that maximises sum |cross * P|.

    `cross` is a square matrix of centred cross products, so x @ P is as close to y in squared error as a signed
    permutation can bring it. Dimensions that match nothing keep their order and a positive sign.
    """
    rows, columns = match(np.abs(cross))
    matched = cross[rows, columns]
    # Among pairs that match nothing every order is equally good; the first to the first is the readable one.
    idle = matched == 0
    columns[idle] = np.sort(columns[idle])
    permutation = np.zeros_like(cross)
    permutation[rows, columns] = np.where(matched < 0, -1.0, 1.0)
    return permutation


def matched_correlations(correlation: Float) -> Float:
    """The |correlation| of every row of a matrix (k, m) with its matched column, shape (k,).

    0 for rows without a partner because there are fewer columns.
    """
    size = np.abs(correlation)
    rows, columns = match(size)
    matched = np.zeros(len(size))
    matched[rows] = size[rows, columns]
    return matched


def match_columns(score: Any) -> Array:
    """The column matched with each row of a score (k, m), as by `match`, shape (k,); -1 for rows without a partner."""
    matched = np.full(len(score), -1)
    rows, columns = match(score)
    matched[rows] = columns
    return matched
