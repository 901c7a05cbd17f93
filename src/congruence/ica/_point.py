"""A rotation of whitened rows with its gradient, curvature and sampling errors; numpy and torch alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, is_tensor, library
from congruence.ica._contrasts import Averages
from congruence.ica._passes import AnyPasses
from congruence.rows.algebra import newton_schulz, one_thread, svd
from congruence.rows.algebra import polar as nearest_rotation

# Radians of sampling error from which a component may be noise: in all, and in the plane with any other component.
# Components fitted to Gaussian noise have 0.24 to 0.5 in all, whatever the number of rows and dimensions, since the
# solver finds the least Gaussian direction. In a single plane this varies more, but one in a hundred is below 0.12.
NOISE_ERROR = 0.2
NOISE_PAIR_ERROR = 0.12
SAME_AXIS = 0.9  # correlation from which two fits count as having found the same component


def random_rotation(k: int, rng: np.random.Generator) -> Float:
    """Draw a rotation uniformly, (k, k)."""
    with one_thread(k):
        q, r = linalg.qr(rng.normal(size=(k, k)))
    return np.asarray(q * np.sign(np.diag(r)))


def polar(matrix: Any) -> Any:
    """Return the orthogonal matrix nearest to a square `matrix`, numpy or tensor."""
    near = newton_schulz(matrix) if is_tensor(matrix) else nearest_rotation(matrix)
    if near is not None:
        return near
    u, _, vt = library(matrix).linalg.svd(matrix) if is_tensor(matrix) else svd(matrix)
    return u @ vt


def cayley(skew: Any) -> Any:
    """Return a rotation that agrees with exp(skew) to second order."""
    xp = library(skew)
    one = xp.diag(xp.ones_like(skew[0]))
    return xp.linalg.solve(one - skew / 2, one + skew / 2)


@dataclass(frozen=True, eq=False)
class Point:
    """A rotation with its gradient, curvature and sampling error, from one pass over the rows.

    With C = E[g(s) s^T], slopes E[g'(s_i)] and kappa_i = E[g'(s_i)] - E[g(s_i) s_i], the gradient of a small rotation
    in the plane (i, j) is (sign_i C_ij - sign_j C_ji) / 2 and, for independent components, its curvature is
    (|kappa_i| + |kappa_j|) / 2.
    """

    rotation: Any  # (k, k)
    at: Averages
    n: int
    active: Any  # (k,) 1 for components that determine the rotation, 0 for frozen ones
    covariance: Any = None  # (k, k) of the rows, where they are not white
    fixed_signs: Any = None  # (k,) signs that no longer follow the components

    @cached_property
    def kappa(self) -> Any:
        """Distance of each component from Gaussian; positive for super-Gaussian, negative for sub-Gaussian, (k,)."""
        return self.at.slope * self._variances - library(self.rotation).diag(self.at.cross)

    @cached_property
    def _variances(self) -> Any:
        xp = library(self.rotation)
        if self.covariance is None:
            return xp.ones_like(self.at.slope)
        return xp.einsum("ij,ij->i", self.rotation @ self.covariance, self.rotation)

    @cached_property
    def signs(self) -> Any:
        """The direction away from the Gaussian, 0 for frozen components, (k,)."""
        if self.fixed_signs is not None:
            return self.fixed_signs
        return library(self.rotation).where(self.kappa >= 0, self.active, -self.active)

    @cached_property
    def gradient(self) -> Any:
        """Of a rotation in each plane, skew-symmetric, (k, k)."""
        pushed = self.signs[:, None] * self.at.cross
        return (pushed - pushed.T) / 2

    @cached_property
    def steepest(self) -> float:
        """The largest gradient of any plane."""
        return float(abs(self.gradient).max()) if len(self.rotation) else 0.0

    @cached_property
    def curvature(self) -> Any:
        """Of a rotation in each plane, if the components were independent, (k, k)."""
        size = abs(self.kappa) * self.active
        if self.covariance is None:
            return (size[:, None] + size) / 2
        xp = library(self.rotation)
        own = xp.outer(self.at.slope, self._variances) - xp.diag(self.at.cross)[:, None]
        own = self.signs[:, None] * own
        return ((own + own.T) / 2).clip(0.01 * float(size.mean()))

    @cached_property
    def contrast(self) -> float:
        """Distance of all components together from Gaussian."""
        return float(abs(self.kappa).sum())

    @cached_property
    def pair_errors(self) -> Any:
        """Standard error of component i in the direction of component j, in radians, (k, k).

        For independent components under the symmetric fixed point (Tichavský, Koldovský & Oja 2006, eq. 11).
        """
        xp = library(self.rotation)
        own, size = xp.diag(self.at.cross), abs(self.kappa)
        noise = (self.at.power - own**2).clip(0)  # (k,)
        variance = (noise[:, None] + noise + size**2) / (size[:, None] + size).clip(1e-150) ** 2
        return ((variance - xp.diag(xp.diag(variance))) / self.n) ** 0.5

    @cached_property
    def sampling_error(self) -> Any:
        """Standard error of each component's axis, in radians, (k,)."""
        return (self.pair_errors**2).sum(1) ** 0.5

    @cached_property
    def noise(self) -> Any:
        """Whether a component is indistinguishable from Gaussian noise, (k,)."""
        if not len(self.rotation):
            return np.zeros(0, dtype=bool)
        pairs = library(self.rotation).amax(self.pair_errors, 1)
        return (self.sampling_error >= NOISE_ERROR) | (pairs >= NOISE_PAIR_ERROR)


def point_at(rotation: Float, source: AnyPasses, covariance: Float | None = None, *, rough: bool = False) -> Point:
    """Return the point of a rotation, with every component active; one pass over the rows."""
    there = source.lift(rotation)
    seen = None if covariance is None else source.lift(covariance)
    return Point(there, source.averages(there, rough=rough), source.n, source.lift(np.ones(source.k)), seen)


def random_gradient(source: AnyPasses, rng: np.random.Generator, n: int) -> float:
    """Return the largest gradient at a random rotation of n rows, of which `source` may be a sample.

    A gradient is signal and sampling noise, and with more rows there is less noise.
    """
    point = point_at(random_rotation(source.k, rng), source)
    own = library(point.rotation).diag(point.at.cross)
    noise = 0.5 * float((point.at.power - own**2).mean())  # variance of one row's gradient
    signal = max(float((point.gradient**2).mean()) - noise / source.n, 0.0)
    share = (signal + noise / n) / max(signal + noise / source.n, 1e-300)
    return point.steepest * float(np.sqrt(min(share, 1.0)))
