"""A rotation with its gradient, curvature and sampling error, from one pass over the rows.

With C = E[g(s) s^T], slopes E[g'(s_i)] and kappa_i = E[g'(s_i)] - E[g(s_i) s_i], the gradient of a small rotation in
the plane (i, j) is (sign_i C_ij - sign_j C_ji) / 2 and, for independent components, its curvature is
(|kappa_i| + |kappa_j|) / 2. All of it is written for arrays of numpy and of torch alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from congruence.arrays import Float, library
from congruence.ica.passes import Averages
from congruence.ica.rotations import random_rotation

# Radians of sampling error from which on a component may be noise: in all, and in the plane with any other component.
# Components fitted to nothing but Gaussian noise have 0.24 to 0.5 in all, whatever the number of rows and dimensions,
# since the solver finds the direction that looks least Gaussian. With only one other to turn against this varies more,
# but one in a hundred falls below 0.12.
FREE = 0.2
FREE_PAIR = 0.12


class Averaging(Protocol):
    """What can be asked for the averages at a rotation: `passes.Passes`, on whatever machine."""

    n: int
    k: int
    rounds: bool  # whether averages of rounded products are faster

    def averages(self, rotation: Any, *, rough: bool = False) -> Averages:
        """The averages over all rows at a rotation, shape (k, k); `rough` allows for rounding."""

    def lift(self, matrix: Float) -> Any:
        """A matrix as the kind of array in which averages come."""


@dataclass(frozen=True, eq=False)
class Point:
    """A rotation with its gradient and curvature in every plane of two components."""

    rotation: Any  # (k, k)
    at: Averages
    n: int
    active: Any  # (k,) 1 for components that determine the rotation, 0 for frozen ones
    covariance: Any = None  # (k, k) of the rows, where they are not white
    held: Any = None  # (k,) signs that no longer follow the components

    @property
    def kappa(self) -> Any:
        """How far each component is from Gaussian, as the contrast sees it: its sign tells super from sub, (k,)."""
        return self.at.slope * self.variances - library(self.rotation).diag(self.at.cross)

    @property
    def variances(self) -> Any:
        """Of the components, (k,): 1 where the rows are white."""
        xp = library(self.rotation)
        if self.covariance is None:
            return xp.ones_like(self.at.slope)
        return xp.einsum("ij,ij->i", self.rotation @ self.covariance, self.rotation)

    @property
    def signs(self) -> Any:
        """The direction away from the Gaussian, 0 for frozen components, (k,)."""
        if self.held is not None:
            return self.held
        return library(self.rotation).where(self.kappa >= 0, self.active, -self.active)

    @property
    def gradient(self) -> Any:
        """Of a rotation in each plane, skew-symmetric, (k, k)."""
        pushed = self.signs[:, None] * self.at.cross
        return (pushed - pushed.T) / 2

    @property
    def steepest(self) -> float:
        """The largest gradient of any plane."""
        return float(abs(self.gradient).max()) if len(self.rotation) else 0.0

    @property
    def curvature(self) -> Any:
        """Of a rotation in each plane, were the components independent, (k, k)."""
        size = abs(self.kappa) * self.active
        if self.covariance is None:
            return (size[:, None] + size) / 2
        xp = library(self.rotation)
        own = xp.outer(self.at.slope, self.variances) - xp.diag(self.at.cross)[:, None]
        own = self.signs[:, None] * own
        return ((own + own.T) / 2).clip(0.01 * float(size.mean()))

    @property
    def contrast(self) -> float:
        """How far all components together are from Gaussian."""
        return float(abs(self.kappa).sum())

    @property
    def pair_errors(self) -> Any:
        """Share of component j in component i that the number of rows leaves open, in radians, (k, k).

        That of independent components under the symmetric fixed point (Tichavský, Koldovský & Oja 2006, eq. 11).
        """
        xp = library(self.rotation)
        own, size = xp.diag(self.at.cross), abs(self.kappa)
        noise = (self.at.power - own**2).clip(0)  # (k,)
        variance = (noise[:, None] + noise + size**2) / (size[:, None] + size).clip(1e-150) ** 2
        return ((variance - xp.diag(xp.diag(variance))) / self.n) ** 0.5

    @property
    def sampling_error(self) -> Any:
        """Angle between a component and what it would be with endless rows, in radians, as expected by chance, (k,)."""
        return (self.pair_errors**2).sum(1) ** 0.5

    @property
    def noise(self) -> Any:
        """Whether a component is indistinguishable from Gaussian noise, (k,)."""
        if not len(self.rotation):
            return np.zeros(0, dtype=bool)
        return (self.sampling_error >= FREE) | (library(self.rotation).amax(self.pair_errors, 1) >= FREE_PAIR)

    def turned(self, by: Any, source: Averaging, *, rough: bool = False) -> Point:
        """The point after a further rotation `by`; one pass over the rows."""
        rotation = by @ self.rotation
        return replace(self, rotation=rotation, at=source.averages(rotation, rough=rough))


def point_at(rotation: Float, source: Averaging, covariance: Float | None = None, *, rough: bool = False) -> Point:
    """The point of a rotation, with every component active; one pass over the rows."""
    there = source.lift(rotation)
    seen = None if covariance is None else source.lift(covariance)
    return Point(there, source.averages(there, rough=rough), source.n, source.lift(np.ones(source.k)), seen)


def random_gradient(source: Averaging, rng: np.random.Generator, n: int) -> float:
    """The largest gradient at a random rotation of n rows, of which `source` may be a sample.

    A gradient is signal and sampling noise, and with more rows there is less noise.
    """
    point = point_at(random_rotation(source.k, rng), source)
    own = library(point.rotation).diag(point.at.cross)
    noise = 0.5 * float((point.at.power - own**2).mean())  # variance of one row's gradient
    signal = max(float((point.gradient**2).mean()) - noise / source.n, 0.0)
    share = (signal + noise / n) / max(signal + noise / source.n, 1e-300)
    return point.steepest * float(np.sqrt(min(share, 1.0)))
