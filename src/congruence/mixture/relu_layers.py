"""Injectivity of one ReLU layer: an exact test for small layers, and a search that can only refute.

x -> ReLU(W x + b) is not injective if and only if a point x and a direction v exist such that every row of W that is
not orthogonal to v is inactive at x: the output is then constant from x along v. Rows orthogonal to v span at most
m - 1 dimensions, so it is enough to check the directions that m - 1 rows determine, and to find x by a linear
programme. This is as exact as enumerating all cells of the arrangement, with far fewer programmes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.decoder.regions import largest_ball
from congruence.errors import InputError
from congruence.mixture.conditions import Counterexample
from congruence.result import Status

_TRIED = 2000  # points of the search
_ORTHOGONAL = 1e-9  # cosine of a row and a direction
RANK = 1e-10  # relative to the largest singular value: smaller ones are 0
_CLEAR, _DOUBTFUL = 1e-6, 1e-9  # margin by which rows must be inactive, in units of latents; less may be rounding


@dataclass(frozen=True, eq=False)
class LayerVerdict:
    """Whether a layer is injective on the whole of R^m."""

    status: Status  # "ambiguous": it depends on rounding; "unknown": the layer is too large to decide
    how: str
    pair: Counterexample | None = None


def relu_injective(weight: Any, bias: Any, *, most: int = 3000, seed: int = 0) -> LayerVerdict:
    """Test whether x -> max(weight @ x + bias, 0) is injective on R^m.

    Parameters
    ----------
    weight : (n, m)
    bias : (n,)
    most : int
        Largest number of linear programmes, of about 2 ms each. If more are needed, a search may refute injectivity;
        otherwise the status is unknown.
    seed : int
        Seed of the search.

    References
    ----------
    Puthawala et al. 2022 for bias 0. With a bias: F(x) = F(y) makes F constant between x and y, and halfway all rows
    that are active, or on their border, are orthogonal to x - y.
    """
    weight, bias = (to_numpy(x).astype(np.float64) for x in (weight, bias))
    if weight.ndim != 2 or not weight.size or bias.shape != (len(weight),):
        raise InputError(f"weight and bias must have shapes (n, m) and (n,); got {weight.shape} and {bias.shape}")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise InputError("weight and bias must be finite; got NaN or infinity")
    n, m = weight.shape
    lost = _null_direction(weight)
    if lost is not None:
        return _refute(weight, bias, np.zeros(m), lost, "not of full column rank")
    witness = _search(weight, bias, seed)
    if witness is not None:
        return _refute(weight, bias, *witness, "too few rows are active at a point")
    if math.comb(n, m - 1) > most:
        how = f"{n} rows in {m} dimensions are too many for an exact test; the search found no counterexample"
        return LayerVerdict("unknown", how)
    lengths = np.linalg.norm(weight, axis=1)
    largest = -math.inf
    for direction in _directions(weight):
        # The point where all rows that are not orthogonal to the direction are inactive by the largest margin.
        others = np.abs(weight @ direction) > _ORTHOGONAL * lengths
        point, radius = largest_ball(weight[others] / lengths[others, None], -bias[others] / lengths[others])
        # The programme satisfies its limits only up to a tolerance, so the margin is computed at the point itself.
        margin = _margin(weight, bias, point, others) if math.isfinite(radius) else -math.inf
        if margin > _CLEAR:
            return _refute(weight, bias, point, direction, "only rows within one hyperplane are active at a point")
        largest = max(largest, margin)
    if largest > _DOUBTFUL:
        return LayerVerdict("ambiguous", f"only a cell smaller than {_CLEAR:g}, perhaps rounding, refutes it")
    return LayerVerdict("holds", f"exact test of {n} rows in {m} dimensions")


def linear_injective(weight: Float) -> LayerVerdict:
    """Test whether x -> weight @ x + bias is injective, also followed by a LeakyReLU: weight, (n, m), has rank m."""
    lost = _null_direction(weight)
    if lost is None:
        return LayerVerdict("holds", "full column rank")
    pair = Counterexample(np.zeros(len(lost)), lost, float(np.linalg.norm(weight @ lost)), 1.0)
    return LayerVerdict("fails", "not of full column rank", pair)


def _null_direction(rows: Float) -> Float | None:
    """A unit vector that all rows, (k, m), are orthogonal to, or None."""
    m = rows.shape[1]
    if len(rows) == 0:
        return np.asarray(np.eye(m)[0], float)
    _, values, vt = np.linalg.svd(rows, full_matrices=True)
    return np.asarray(vt[-1]) if len(values) < m or values[-1] <= RANK * values[0] else None


def _search(weight: Float, bias: Float, seed: int) -> tuple[Float, Float] | None:
    """A point, near or far, where the active rows leave a direction free, and that direction."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(_TRIED, weight.shape[1])) * 10 ** rng.uniform(-2, 3, size=(_TRIED, 1))
    values = points @ weight.T + bias
    for index in np.argsort((values > 0).sum(1), kind="stable")[:50]:
        active = values[index] >= 0
        free = _null_direction(weight[active])
        if free is not None and _margin(weight, bias, points[index], ~active) > _CLEAR:
            return points[index], free
    return None


def _directions(weight: Float) -> Iterator[Float]:
    """The unit vectors that m - 1 independent rows are orthogonal to, each once up to its sign."""
    m = weight.shape[1]
    lengths = np.linalg.norm(weight, axis=1)
    units = weight[lengths > 0] / lengths[lengths > 0, None]
    seen: set[bytes] = set()
    for chosen in combinations(range(len(units)), m - 1):
        _, values, vt = np.linalg.svd(units[list(chosen)].reshape(m - 1, m), full_matrices=True)
        if m > 1 and values[-1] <= RANK:
            continue
        orthogonal = np.packbits(np.abs(units @ vt[-1]) <= _ORTHOGONAL).tobytes()
        if orthogonal not in seen:
            seen.add(orthogonal)
            yield np.asarray(vt[-1])


def _margin(weight: Float, bias: Float, point: Float, inactive: Array) -> float:
    """The smallest distance by which the `inactive` rows are inactive at a point, in units of latents."""
    lengths = np.linalg.norm(weight, axis=1)
    rows = inactive & (lengths > 0)  # a row of zeros is inactive everywhere, or nowhere
    return float((-(weight[rows] @ point + bias[rows]) / lengths[rows]).min(initial=math.inf))


def _refute(weight: Float, bias: Float, point: Float, direction: Float, how: str) -> LayerVerdict:
    """Move from the point along the direction while the inactive rows stay inactive."""
    speed = weight @ direction
    moving = np.abs(speed) > _ORTHOGONAL * np.linalg.norm(weight, axis=1)
    room = -(weight[moving] @ point + bias[moving])  # all above 0, or the direction is lost altogether
    step = float((room / np.abs(speed[moving])).min()) / 2 if moving.any() else 1.0
    other = point + min(step, 1.0) * direction
    one, two = (np.maximum(weight @ x + bias, 0) for x in (point, other))
    pair = Counterexample(point, other, float(np.linalg.norm(one - two)), float(np.linalg.norm(point - other)))
    return LayerVerdict("fails", how, pair)
