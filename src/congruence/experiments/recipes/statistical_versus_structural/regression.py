"""Lines fitted to a curve: their distances from each other, from the truth, and from the line nearest to the truth.

Inputs are uniform between -1 and 1 and the truth is exp(2 x) with Gaussian noise. The line nearest to it in mean square
has a closed form, and so has every distance: a difference of lines is largest at an end of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import NotInvertibleError
from congruence.stats.intervals import percentile_interval

NOISE = 0.5  # standard deviation
GRID = np.linspace(-1, 1, 2001)  # where a curve is compared with a line; it includes both ends
NEAREST = (math.sinh(2) / 2, 3 * (math.exp(2) + 3 * math.exp(-2)) / 8)  # intercept E f and slope E[x f] / E[x^2]
STEPS = 100_000  # of gradient descent at most
DRAWS = 1000  # of the bootstrap


@dataclass(frozen=True, eq=False)
class LineFits:
    """The numbers of the first example: the largest distance over inputs, by size, mean over draws."""

    sizes: Array
    between: Float  # of fits to two draws
    to_truth: Float
    least_to_truth: Float  # the smallest over draws
    to_nearest: Float  # line
    right: Float  # of the right model to the truth
    starts: float  # the largest difference of coefficients between starting points of the optimiser
    doubled: float  # the same if a column is given twice
    doubled_fit: float  # and the largest difference of the predictions of these
    stays: float  # the nearest line to the truth: no amount of data brings a line nearer in mean square
    lines: Float  # (draws, 2) some fits to the second size
    exponents: Mapping[str, tuple[float, ...]]  # the power p of distance ~ size^p, and its interval over draws


def measure_regression(sizes: Sequence[int], fits: Sequence[dict[str, Float]], seed: int) -> LineFits:
    """Measure the fits of `fit_draws` to draws of several sizes, at least two of them."""
    lines = [fit["lines"] for fit in fits]
    to_truth = [distances_to_truth(some) for some in lines]
    rng = np.random.default_rng(seed)
    x, y = draw_rows(1000, rng)
    once, twice = np.column_stack([np.ones(1000), x]), np.column_stack([np.ones(1000), x, x])
    one, two = descend(once, y, rng.normal(size=(10, 2))), descend(twice, y, rng.normal(size=(10, 3)))
    by_draw = {
        "between": [distances_between(some) for some in lines],
        "to_truth": to_truth,
        "to_nearest": [_largest(some - np.array(NEAREST)) for some in lines],
        "right": [distances_of_right_model(fit["right"]) for fit in fits],
    }
    starts, doubled, doubled_fit = (float(np.ptp(values, axis=0).max()) for values in (one, two, two @ twice.T))
    return LineFits(
        sizes=np.array(sizes),
        **{name: np.array([some.mean() for some in by_size]) for name, by_size in by_draw.items()},
        least_to_truth=np.array([some.min() for some in to_truth]),
        starts=starts,
        doubled=doubled,
        doubled_fit=doubled_fit,
        stays=float(distances_to_truth(np.array([NEAREST]))[0]),
        lines=lines[1][:20],
        exponents={name: fit_exponent(sizes, by_size, seed) for name, by_size in by_draw.items()},
    )


def fit_exponent(sizes: Sequence[int], by_size: Sequence[Float], seed: int) -> tuple[float, float, float]:
    """The power p of mean distance ~ size^p on logarithmic axes, and its 95 % bootstrap interval over draws."""
    rng = np.random.default_rng([seed, 3])
    means = np.array([some.mean() for some in by_size])
    drawn = np.array([some[rng.integers(len(some), size=(DRAWS, len(some)))].mean(1) for some in by_size])
    power, *powers = np.polyfit(np.log(sizes), np.log(np.column_stack([means, drawn])), 1)[0]
    return float(power), *percentile_interval(powers)


def truth(x: Float) -> Float:
    """The function that generates the data."""
    return np.exp(2 * x)


def draw_rows(n: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """Draw n inputs and their noisy outputs."""
    x = rng.uniform(-1, 1, n)
    return x, truth(x) + NOISE * rng.normal(size=n)


def fit_draws(n: int, draws: int, rng: np.random.Generator) -> dict[str, Float]:
    """Fit "lines" (misspecified) and a + b exp(2 x) ("right") to each draw: intercept and slope (draws, 2) each."""
    lines, right = np.empty((draws, 2)), np.empty((draws, 2))
    for i in range(draws):
        x, y = draw_rows(n, rng)
        lines[i], right[i] = _least_squares(x, y), _least_squares(truth(x), y)
    return {"lines": lines, "right": right}


def _least_squares(x: Float, y: Float) -> Float:
    slope = ((x - x.mean()) @ (y - y.mean())) / ((x - x.mean()) @ (x - x.mean()))
    return np.array([y.mean() - slope * x.mean(), slope])


def distances_between(lines: Float) -> Float:
    """The largest distance, over inputs, of each line to the next one: fits to independent draws, (draws // 2,)."""
    half = len(lines) // 2
    return _largest(lines[: 2 * half : 2] - lines[1 : 2 * half : 2])


def _largest(lines: Float) -> Float:
    """The largest value of |a + b x| for x between -1 and 1, exactly."""
    sizes: Float = np.abs(lines).sum(axis=1)
    return sizes


def distances_to_truth(lines: Float) -> Float:
    """The largest distance, over inputs, of each line to the truth, (draws,)."""
    return np.array([np.abs(a + b * GRID - truth(GRID)).max() for a, b in lines])


def distances_of_right_model(right: Float) -> Float:
    """The largest distance of each a + b exp(2 x) to the truth, (draws,); it is at an end of the interval."""
    ends = np.array([math.exp(-2), math.exp(2)])
    distances: Float = np.abs(right[:, :1] + (right[:, 1:] - 1) * ends).max(axis=1)
    return distances


def descend(columns: Float, y: Float, starts: Float, tol: float = 1e-13) -> Float:
    """Minimise the mean squared error of columns @ b by gradient descent from each of `starts`, (starts, columns).

    If the columns are linearly dependent, the solution depends on the start.
    """
    curvature, gradient = columns.T @ columns / len(y), columns.T @ y / len(y)
    rate = 1 / np.linalg.eigvalsh(curvature)[-1]
    solution = starts.copy()
    for _ in range(STEPS):
        move = rate * (solution @ curvature - gradient)
        solution -= move
        if np.abs(move).max() < tol:
            return solution
    raise NotInvertibleError(f"gradient descent did not converge in {STEPS} steps")
