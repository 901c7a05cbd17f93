"""A nonlinear map that is as far from an isometry as a dial says, with a bound on how far that can be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError

LAYERS = 4
BLOCK_ROWS = 2**14  # mapped at a time, so that no second copy of a large screen is held


@dataclass(frozen=True, eq=False)
class Mixing:
    """The map z -> Q z_L with z_l = z_(l-1) + dial * A_l cos(B_l z_(l-1)), all matrices orthogonal.

    The cosine is even, so fields bend without adding a linear map on average, which whitening would undo. Its slope is
    at most 1: while dial < 1 every layer is invertible, stretches by at most 1 + dial and shrinks to no less than
    1 - dial. With dial 0 the map is the rotation Q.
    """

    rotation: Array  # (d, d) Q, float32
    outward: Array  # (L, d, d) A
    inward: Array  # (L, d, d) B
    dial: float

    def __call__(self, z: Array) -> Array:
        """Map rows of factors (n, d) to rows of embeddings (n, d), float32."""
        x = np.empty(z.shape, np.float32)
        for start in range(0, len(z), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            x[rows] = self._bent(z[rows].astype(np.float32)) @ self.rotation.T
        return x

    def _bent(self, z: Array) -> Array:
        if self.dial == 0:
            return z
        for outward, inward in zip(self.outward, self.inward, strict=True):
            field = np.cos(z @ inward.T)
            z = z + np.float32(self.dial) * (field @ outward.T)
        return z

    def constants(self, z: Array) -> Float:
        """Local bi-Lipschitz constants at rows of factors (n, d): max(s_max, 1 / s_min) of the Jacobian, (n,).

        1 is an isometry; lower is nearer to one. The rotation changes none of them.
        """
        return np.array([_constant(np.linalg.svd(self._jacobian(row), compute_uv=False)) for row in z])

    def _jacobian(self, z: Array) -> Float:
        """The Jacobian before the rotation, (d, d): a product of I - dial * A diag(sin(B z)) B over the layers."""
        z, jacobian = z.astype(np.float64), np.eye(len(z))
        for outward, inward in zip(self.outward.astype(np.float64), self.inward.astype(np.float64), strict=True):
            seen = inward @ z
            jacobian -= self.dial * (outward * np.sin(seen)) @ (inward @ jacobian)
            z = z + self.dial * outward @ np.cos(seen)
        return jacobian

    @property
    def bound(self) -> float:
        """What the bi-Lipschitz constant cannot exceed anywhere: (1 - dial)^-L; infinite from dial 1 on."""
        return (1 - self.dial) ** -len(self.inward) if self.dial < 1 else math.inf


def draw_mixing(d: int, dial: float, seed: int, *, layers: int = LAYERS) -> Mixing:
    """Draw the map of a screen; the same seed gives the same rotations whatever the dial.

    Parameters
    ----------
    d : int
        Dimensions of factors and embeddings.
    dial : float
        From 0 (an isometry) up. From 1 on the map may fold, and no constant is guaranteed.
    seed : int
        Of the rotations.
    layers : int
        How many fields are added, one after the other.
    """
    if not (math.isfinite(dial) and dial >= 0):
        raise InputError(f"dial must be a number of at least 0, not {dial!r}")
    rng = np.random.default_rng([seed, 11])
    rotations = np.stack([_rotation(d, rng) for _ in range(2 * layers + 1)]).astype(np.float32)
    return Mixing(rotations[0], rotations[1 : layers + 1], rotations[layers + 1 :], float(dial))


def _constant(stretches: Array) -> float:
    most, least = float(stretches[0]), float(stretches[-1])
    return max(most, 1 / least if least > 0 else math.inf)


def _rotation(d: int, rng: np.random.Generator) -> Float:
    """A random orthogonal matrix, uniform (signs of the diagonal of R taken out)."""
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))
