"""Marginal shapes of components, and which components of two models have the same one.

A component of unit variance is described by its quantile function. Two are as far apart as Wasserstein's distance of
order 2, up to the sign, which independent components leave open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from congruence.arrays import Float
from congruence.ica.components import Unmixing

LEVELS = (np.arange(200) + 0.5) / 200  # at which quantile functions are read


@dataclass(frozen=True, eq=False)
class Matching:
    """Which component of the new model has the shape of which component of the old one.

    `signs` (k_new, k_old) has one entry of 1 or -1 in the row and column of every match. `squares` (k_new, k_old) are
    squared distances of all pairs, for the better sign.
    """

    signs: Float
    squares: Float

    def of_old(self, j: int) -> tuple[int, float, float, float]:
        """The partner of an old component and its sign, the distance to it, and that to the nearest other one."""
        i = int(np.abs(self.signs[:, j]).argmax())
        others = np.delete(self.squares[:, j], i)
        nearest = float(np.sqrt(others.min())) if len(others) else float("inf")
        return i, float(self.signs[i, j]), float(np.sqrt(self.squares[i, j])), nearest


def quantile_functions(rows: Float, found: Unmixing) -> Float:
    """The quantile functions of the components of `rows` (n, d), each of mean 0 and mean square 1, shape (k, levels).

    The levels leave the farthest rows out, which in heavy tails would decide the variance.
    """
    shapes = np.quantile((rows - found.mean) @ found.unmixing.T, LEVELS, axis=0).T
    shapes -= shapes.mean(1, keepdims=True)
    size = np.sqrt(np.square(shapes).mean(1, keepdims=True))
    return np.asarray(shapes / np.where(size > 0, size, 1.0))


def match_shapes(new: Float, old: Float) -> Matching:
    """Match quantile functions (k_new, levels) and (k_old, levels) one to one, so that squared distances sum to least.

    References
    ----------
    Kuhn 1955 (Hungarian method); in one dimension, Wasserstein's distance is that of the quantile functions.
    """
    mirrored = -old[:, ::-1]  # the quantile function of the component with the other sign
    as_is, turned = _squares(new, old), _squares(new, mirrored)
    squares = np.minimum(as_is, turned)
    rows, columns = optimize.linear_sum_assignment(squares)
    signs = np.zeros(squares.shape)
    signs[rows, columns] = np.where(as_is <= turned, 1.0, -1.0)[rows, columns]
    return Matching(signs, squares)


def half_squares(rows: Float, halves: tuple[Float, Float], found: Unmixing) -> Float:
    """Squared distances between the shapes of the same components in two halves of the rows, shape (k,).

    Four times what the number of rows leaves open of a shape: each half has half of them, and both err.
    """
    first, second = (quantile_functions(rows[half], found) for half in halves)
    return np.asarray(np.square(first - second).mean(1))


def _squares(a: Float, b: Float) -> Float:
    """Mean squared differences of all pairs of rows, shape (len(a), len(b))."""
    return np.asarray(np.square(a[:, None] - b[None]).mean(2))
