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
from congruence.errors import InputError
from congruence.mixture.conditions import AMBIGUOUS, FAILS, HOLDS, UNKNOWN, Counterexample
from congruence.result import Status

MOST_PROGRAMMES = 3000  # linear programmes, of about 2 ms each
TRIED = 2000  # points of the search
ORTHOGONAL = 1e-9  # cosine of a row and a direction
RANK = 1e-10  # of the largest singular value
ON, DOUBTFUL = 1e-9, 1e-6  # margin by which all rows must be inactive, in units of latents; less may be rounding


@dataclass(frozen=True, eq=False)
class LayerVerdict:
    """Whether a layer is injective on the whole of R^m."""

    status: Status  # "ambiguous": it depends on rounding; "unknown": the layer is too large to decide
    how: str
    pair: Counterexample | None = None


def relu_injective(weight: Any, bias: Any, *, most: int = MOST_PROGRAMMES, seed: int = 0) -> LayerVerdict:
    """Whether x -> max(weight @ x + bias, 0) is injective on R^m.

    Parameters
    ----------
    weight : (n, m)
    bias : (n,)
    most : int
        Largest number of linear programmes; where more are needed, a search may refute, else the status is unknown.
    seed : int
        Of the search.

    Returns
    -------
    LayerVerdict
        With two latents of the same output where the layer is not injective.

    References
    ----------
    Puthawala et al. 2022 for bias 0. With a bias: F(x) = F(y) makes F constant between x and y, and halfway all rows
    that are on, or on their border, are orthogonal to x - y.
    """
    weight, bias = _checked(weight, bias)
    n, m = weight.shape
    lost = _null_direction(weight)
    if lost is not None:
        return _refuted(weight, bias, np.zeros(m), lost, "not of full column rank")
    found = _search(weight, bias, seed)
    if found is not None:
        return _refuted(weight, bias, *found, "too few rows are active at a point")
    if math.comb(n, m - 1) > most:
        return LayerVerdict(UNKNOWN, f"{n} rows in {m} dimensions are too many to decide; no counterexample was found")
    doubtful = False
    for direction in _directions(weight):
        point, margin = _switched_off(weight, bias, direction)
        if margin > DOUBTFUL:
            return _refuted(weight, bias, point, direction, "only rows within one hyperplane are active at a point")
        doubtful = doubtful or margin > ON
    if doubtful:
        return LayerVerdict(AMBIGUOUS, f"only a cell smaller than {DOUBTFUL:g}, perhaps rounding, refutes it")
    return LayerVerdict(HOLDS, f"exact test of {n} rows in {m} dimensions")


def leaky_injective(weight: Any, slope: float) -> LayerVerdict:
    """Whether x -> LeakyReLU(weight @ x + bias) is injective: if and only if weight, (n, m), has rank m.

    The bias does not matter, since LeakyReLU of positive slope is a bijection.
    """
    weight, _ = _checked(weight, np.zeros(len(to_numpy(weight))))
    if not (math.isfinite(slope) and slope > 0):
        raise InputError(f"slope must be a number above 0, not {slope!r}; with 0 it is a ReLU, below it folds")
    lost = _null_direction(weight)
    if lost is None:
        return LayerVerdict(HOLDS, "full column rank")
    pair = Counterexample(np.zeros(len(lost)), lost, float(np.linalg.norm(weight @ lost)), 1.0)
    return LayerVerdict(FAILS, "not of full column rank", pair)


def _checked(weight: Any, bias: Any) -> tuple[Float, Float]:
    weight, bias = to_numpy(weight).astype(np.float64), to_numpy(bias).astype(np.float64)
    if weight.ndim != 2 or not weight.size or bias.shape != (len(weight),):
        raise InputError(f"weight and bias must have shapes (n, m) and (n,), not {weight.shape} and {bias.shape}")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise InputError("weight and bias must be finite, but NaN or infinity is among them")
    return weight, bias


def _null_direction(rows: Float) -> Float | None:
    """A unit vector that all rows, (k, m), are orthogonal to, or None."""
    m = rows.shape[1]
    if len(rows) == 0:
        return np.asarray(np.eye(m)[0], float)
    _, values, vt = np.linalg.svd(rows, full_matrices=True)
    if len(values) < m or values[-1] <= RANK * values[0]:
        return np.asarray(vt[-1])
    return None


def _search(weight: Float, bias: Float, seed: int) -> tuple[Float, Float] | None:
    """A point, near or far, where the rows that are on leave a direction free."""
    m = weight.shape[1]
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(TRIED, m)) * 10 ** rng.uniform(-2, 3, size=(TRIED, 1))
    values = points @ weight.T + bias
    for index in np.argsort((values > 0).sum(1), kind="stable")[:50]:
        on = values[index] >= 0
        free = _null_direction(weight[on])
        if free is not None and _margin(weight, bias, points[index], ~on) > DOUBTFUL:
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
        flat = np.packbits(np.abs(units @ vt[-1]) <= ORTHOGONAL).tobytes()
        if flat not in seen:
            seen.add(flat)
            yield np.asarray(vt[-1])


def _switched_off(weight: Float, bias: Float, direction: Float) -> tuple[Float, float]:
    """The point where all rows that are not orthogonal to a direction are off by as much as can be, at most 1."""
    from scipy.optimize import linprog

    lengths = np.linalg.norm(weight, axis=1)
    others = np.abs(weight @ direction) > ORTHOGONAL * lengths
    m = weight.shape[1]
    rows = weight[others] / lengths[others, None]
    limits = -bias[others] / lengths[others]
    found = linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=np.column_stack([rows, np.ones(len(rows))]),
        b_ub=limits,
        bounds=[(None, None)] * m + [(None, 1.0)],
        method="highs",
    )
    if found.status != 0:
        return np.zeros(m), -math.inf
    # The programme keeps its limits only up to a tolerance, so the point itself is asked.
    return found.x[:m], _margin(weight, bias, found.x[:m], others)


def _margin(weight: Float, bias: Float, point: Float, off: Array) -> float:
    """By how much the rows in `off` are off at a point, in units of latents."""
    lengths = np.linalg.norm(weight, axis=1)
    off = off & (lengths > 0)  # a row of zeros is off everywhere, or nowhere
    if not off.any():
        return math.inf
    return float((-(weight[off] @ point + bias[off]) / lengths[off]).min())


def _refuted(weight: Float, bias: Float, point: Float, direction: Float, how: str) -> LayerVerdict:
    """Go from the point along the direction for as long as the rows that are off stay off."""
    speed = weight @ direction
    moving = np.abs(speed) > ORTHOGONAL * np.linalg.norm(weight, axis=1)
    room = -(weight[moving] @ point + bias[moving])  # all above 0, or the direction is lost altogether
    step = float((room / np.abs(speed[moving])).min()) / 2 if moving.any() else 1.0
    other = point + min(step, 1.0) * direction
    one, two = (np.maximum(weight @ x + bias, 0) for x in (point, other))
    pair = Counterexample(point, other, float(np.linalg.norm(one - two)), float(np.linalg.norm(point - other)))
    return LayerVerdict(FAILS, how, pair)
