"""Contrast functions: what makes a component count as far from Gaussian.

For a component s of unit variance, G(s) is the contrast and g = G' its derivative. `apply` turns an array of
components into g(s) in place, so that a pass over the rows needs no second copy of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import library
from congruence.errors import InputError

Sums = tuple[Any, Any]  # of g'(s) and g(s)^2 over the rows, each (k,)


@dataclass(frozen=True)
class Contrast:
    """One contrast, with what Theorem 2 asks of it."""

    name: str
    apply: Callable[[Any, Any], Sums]  # (s, np or torch): s becomes g(s)
    value: Callable[[Any], Any]  # G(s), elementwise, of numpy or torch
    gaussian: float  # the expectation of G for a standard Gaussian
    slope: float  # sup |g|
    curvature: float  # sup |g'|

    def __reduce__(self) -> tuple[Any, ...]:
        return contrast_named, (self.name,)  # its functions cannot be sent to another process


def _logcosh(s: Any, xp: Any) -> Sums:
    xp.tanh(s, out=s)
    power = _column_sums(s, s, xp)
    return s.shape[0] - power, power


def _exp(s: Any, xp: Any) -> Sums:
    square = s * s
    weight = xp.exp(square * -0.5)
    slope = _column_sums(1 - square, weight, xp)
    s *= weight
    return slope, _column_sums(s, s, xp)


def _cube(s: Any, xp: Any) -> Sums:
    square = s * s
    slope = 3 * square.sum(0)
    s *= square
    return slope, _column_sums(s, s, xp)


def _column_sums(a: Any, b: Any, xp: Any) -> Any:
    if xp is np:
        return np.einsum("ij,ij->j", a, b)  # without a copy
    return (a * b).sum(0)  # torch's einsum makes many thin products of it, seven times slower on a GPU


def _logcosh_value(s: Any) -> Any:
    xp, size = library(s), abs(s)
    return size + xp.log1p(xp.exp(-2 * size)) - float(np.log(2))


def _exp_value(s: Any) -> Any:
    return -library(s).exp(s * s * -0.5)


CONTRASTS = {
    contrast.name: contrast
    for contrast in (
        # logcosh: the default, robust; good for most sources.  E[log cosh] of a standard Gaussian by quadrature.
        Contrast("logcosh", _logcosh, _logcosh_value, 0.3745672075, 1.0, 1.0),
        # exp: for very heavy tails. E[-exp(-s^2/2)] = -1/sqrt(2).
        Contrast("exp", _exp, _exp_value, -(0.5**0.5), float(np.exp(-0.5)), 1.0),
        # cube: kurtosis; fastest, but outliers decide.
        Contrast("cube", _cube, lambda s: s**4 / 4, 0.75, float("inf"), float("inf")),
    )
}


def contrast_named(name: str) -> Contrast:
    """The contrast of that name."""
    if name not in CONTRASTS:
        raise InputError(f"contrast must be one of {', '.join(CONTRASTS)}, not {name!r}")
    return CONTRASTS[name]
