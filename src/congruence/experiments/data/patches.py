"""Pictures of six patches with three known factors: a non-linear mixing that is an exact isometry.

Patch j sees one combination s_j = r_j . u of the factors and shows it as a point on a circle. The directions r_j are
the six axes of the icosahedron, for which sum_j r_j r_j^T = 2 I, and the circle is walked at unit speed, so that
distances between nearby factors are those between their pictures. Any three patches tell the factors; two leave a line
of them open, and what the best guess is then can be written down.
"""

from __future__ import annotations

import math

import numpy as np

from congruence.arrays import Float
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
    """Draw which patches each row shows, shape (n, 6): 1 for `visible` of them, 0 for those that are masked."""
    if not 1 <= visible <= PATCHES:
        raise InputError(f"visible must be between 1 and {PATCHES}, not {visible}")
    places = rng.random((n, PATCHES)).argsort(1)
    return (places < visible).astype(float)


def patches(factors: Float) -> Float:
    """Make the pictures of factors, (n, 3) -> (n, 6, 2)."""
    seen = factors @ DIRECTIONS.T  # (n, 6)
    return np.stack([np.cos(seen), np.sin(seen)], axis=-1) / math.sqrt(2)


def expected_given_two(factors: Float, shown: Float) -> tuple[Float, Float]:
    """Compute what is known of rows that show two patches: E[factors | shown] and E[patches | shown].

    Two patches tell two combinations of the three factors. What they leave open is a chord of the cube along the
    direction that neither sees, and factors are uniform on it: their mean is its middle, and the mean picture an
    integral of sines and cosines. No function of the shown patches is nearer to the factors, in mean square, than the
    first; the second is what a masked autoencoder with a squared loss aims at (Nelson et al., A.3.3).

    Returns
    -------
    factors : (n, 3)
    patches : (n, 6, 2)
    """
    if not (shown.sum(1) == 2).all():
        raise InputError("expected_given_two needs rows that show two patches")
    first, second = np.nonzero(shown)[1].reshape(-1, 2).T
    open_ = np.cross(DIRECTIONS[first], DIRECTIONS[second])
    open_ /= np.linalg.norm(open_, axis=1, keepdims=True)
    open_[np.abs(open_) < LEAST] = 0.0
    start, end = _chord(factors, open_)

    seen, pace = factors @ DIRECTIONS.T, open_ @ DIRECTIONS.T  # (n, 6), where each patch is and how fast it moves
    middle, half = seen + pace * ((start + end) / 2)[:, None], pace * ((end - start) / 2)[:, None]
    shrunk = np.sinc(half / np.pi)  # the mean of a cosine over an interval: sin(half) / half times that of its middle
    mean = np.stack([np.cos(middle), np.sin(middle)], axis=-1) * shrunk[..., None] / math.sqrt(2)
    return factors + open_ * ((start + end) / 2)[:, None], mean


def _chord(points: Float, directions: Float) -> tuple[Float, Float]:
    """From where to where points can move along directions without leaving the cube, each (n,)."""
    moves = directions != 0
    pace = np.where(moves, directions, 1.0)
    reach = np.sign(directions)
    start = np.where(moves, (-reach - points) / pace, -np.inf).max(1)
    end = np.where(moves, (reach - points) / pace, np.inf).min(1)
    return start, end
