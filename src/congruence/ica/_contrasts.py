"""Contrasts: how far a component is from Gaussian; and the averages over rows that the solver and its errors need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, is_tensor, library
from congruence.checks import check_choice

Sums = tuple[Any, Any]  # of g'(s) and g(s)^2 over the rows, each (k,)


@dataclass(frozen=True, eq=False)
class Averages:
    """Averages over all rows at one rotation, in the coordinates of the components s."""

    cross: Any  # (k, k) of g(s_i) s_j
    slope: Any  # (k,) of g'(s_i)
    power: Any  # (k,) of g(s_i)^2


@dataclass(frozen=True, eq=False)
class Shape:
    """The distribution of each component."""

    contrast: Float  # (k,) average of G(s)
    skewness: Float  # (k,) average of s^3
    kurtosis: Float  # (k,) average of s^4, minus 3


@dataclass(frozen=True, eq=False)
class Fourth:
    """Fourth moments of the whitened rows z, contracted with a symmetric matrix M of unit size."""

    product: Any  # (k, k) average of (z^T M z) z z^T


@dataclass(frozen=True, eq=False)
class Scores:
    """Averages of the scores of rotations in all planes, and their true curvature, at one rotation."""

    cross: Any  # (k, k) of g(s_i) s_j
    second: Any  # (k, k) of s_i s_j
    curvature: Any  # (k, k) of g'(s_i) s_j^2


@dataclass(frozen=True)
class Contrast:
    """A contrast function G, which measures how far a component s of unit variance is from Gaussian; g = G'."""

    name: str
    apply: Callable[[Any], Sums]  # turns s (n, k) into g(s) in place
    value: Callable[[Any], Any]  # G(s), elementwise
    derivative: Callable[[Any, Any], Any]  # g'(s) from s and g(s), elementwise
    gaussian: float  # the expectation of G for a standard Gaussian
    slope: float  # sup |g|
    curvature: float  # sup |g'|

    def __reduce__(self) -> tuple[Any, ...]:
        return contrast_named, (self.name,)  # its functions cannot be sent to another process


def column_sums(a: Any, b: Any) -> Any:
    """Return the sums of a * b over the rows."""
    if is_tensor(a):
        return (a * b).sum(0, dtype=library(a).float64)  # torch's einsum is seven times slower on a GPU
    return np.einsum("ij,ij->j", a, b)  # without a copy


def _logcosh(s: Any) -> Sums:
    library(s).tanh(s, out=s)
    power = column_sums(s, s)
    return s.shape[0] - power, power


def _logcosh_value(s: Any) -> Any:
    xp, size = library(s), abs(s)
    return size + xp.log(1 + xp.exp(-2 * size)) - float(np.log(2))  # log1p is slow in float32


def _exp(s: Any) -> Sums:
    square = s * s
    weight = library(s).exp(square * -0.5)
    slope = column_sums(1 - square, weight)
    s *= weight
    return slope, column_sums(s, s)


def _exp_derivative(s: Any, g: Any) -> Any:
    square = s * s
    return (1 - square) * library(s).exp(square * -0.5)


def _cube(s: Any) -> Sums:
    square = s * s
    slope = 3 * square.sum(0)
    s *= square
    return slope, column_sums(s, s)


CONTRASTS = {
    contrast.name: contrast
    for contrast in (
        Contrast("logcosh", _logcosh, _logcosh_value, lambda s, g: 1 - g * g, 0.3745672075, 1.0, 1.0),  # by quadrature
        Contrast(
            "exp", _exp, lambda s: -library(s).exp(s * s * -0.5), _exp_derivative, -(0.5**0.5), float(np.exp(-0.5)), 1.0
        ),
        Contrast("cube", _cube, lambda s: s**4 / 4, lambda s, g: 3 * s * s, 0.75, float("inf"), float("inf")),
    )
}


def contrast_named(name: str) -> Contrast:
    """Return the contrast of that name."""
    return CONTRASTS[check_choice("contrast", name, CONTRASTS)]
