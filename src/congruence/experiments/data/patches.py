"""Images of six patches with three known factors: a non-linear mixing that is an exact isometry.

Patch j encodes one combination s_j = r_j . u of the factors as a point on a circle. The directions r_j are the six axes
of the icosahedron, for which sum_j r_j r_j^T = 2 I, and s_j is arc length on the circle, so the map is an isometry. Any
three patches determine the factors; two leave a line undetermined, on which conditional means have a closed form.
"""

from __future__ import annotations

import math

import numpy as np

from congruence.arrays import Float
from congruence.checks import check_integer
from congruence.errors import InputError

_GOLDEN = (1 + math.sqrt(5)) / 2
_AXES = [(0, 1, _GOLDEN), (0, -1, _GOLDEN), (1, _GOLDEN, 0), (-1, _GOLDEN, 0), (_GOLDEN, 0, 1), (_GOLDEN, 0, -1)]
DIRECTIONS = np.array(_AXES) / math.hypot(1, _GOLDEN)  # (6, 3), unit rows
PATCHES, FACTORS, PIXELS = 6, 3, 2
LEAST = 1e-9  # a coordinate of a direction below this is 0


def draw_factors(n: int, rng: np.random.Generator) -> Float:
    """Draw factors that are independent and uniform between -1 and 1, shape (n, 3)."""
    return rng.uniform(-1, 1, (n, FACTORS))


def draw_shown(n: int, visible: int, rng: np.random.Generator) -> Float:
    """Draw a mask of visible patches for each row, shape (n, 6): 1 for `visible` of them, 0 for masked ones."""
    check_integer("visible", visible, 1, PATCHES)
    places = rng.random((n, PATCHES)).argsort(1)
    return (places < visible).astype(float)


def patches(factors: Float) -> Float:
    """The images of factors, (n, 3) -> (n, 6, 2)."""
    seen = factors @ DIRECTIONS.T  # (n, 6)
    return np.stack([np.cos(seen), np.sin(seen)], axis=-1) / math.sqrt(2)


def expected_given_two(factors: Float, shown: Float) -> tuple[Float, Float]:
    """E[factors | shown] and E[patches | shown] of rows that show two patches.

    Two patches determine two combinations of the three factors. The factors are then uniform on a chord of the cube,
    along the direction orthogonal to both: their mean is its midpoint, and the mean image an integral of sines and
    cosines. The first minimises the mean squared error over all functions of the shown patches; the second is the
    target of a masked autoencoder with a squared loss (Nelson et al., A.3.3).

    Returns
    -------
    factors : (n, 3)
    patches : (n, 6, 2)
    """
    if not (shown.sum(1) == 2).all():
        raise InputError("shown must have exactly two visible patches in each row")
    first, second = np.nonzero(shown)[1].reshape(-1, 2).T
    open_ = np.cross(DIRECTIONS[first], DIRECTIONS[second])
    open_ /= np.linalg.norm(open_, axis=1, keepdims=True)
    open_[np.abs(open_) < LEAST] = 0.0
    start, end = _chord(factors, open_)

    seen, pace = (factors @ DIRECTIONS.T, open_ @ DIRECTIONS.T)  # (n, 6), arc lengths and their rates
    middle, half = seen + pace * ((start + end) / 2)[:, None], pace * ((end - start) / 2)[:, None]
    shrunk = np.sinc(half / np.pi)  # the mean of a cosine over an interval: sin(half) / half times that of its middle
    mean = np.stack([np.cos(middle), np.sin(middle)], axis=-1) * shrunk[..., None] / math.sqrt(2)
    return factors + open_ * ((start + end) / 2)[:, None], mean


def _chord(points: Float, directions: Float) -> tuple[Float, Float]:
    """The interval of t for which point + t * direction is in the cube: start and end, each (n,)."""
    moves = directions != 0
    pace = np.where(moves, directions, 1.0)
    reach = np.sign(directions)
    start = np.where(moves, (-reach - points) / pace, -np.inf).max(1)
    end = np.where(moves, (reach - points) / pace, np.inf).min(1)
    return start, end
