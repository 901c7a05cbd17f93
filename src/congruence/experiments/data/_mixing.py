"""A nonlinear map whose distance from an isometry is set by a dial, with a bound on its bi-Lipschitz constant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_number

LAYERS = 4
BLOCK_ROWS = 2**14  # mapped at a time, to avoid a second copy of a large screen


@dataclass(frozen=True, eq=False)
class Mixing:
    """The map z -> Q z_L with z_l = z_(l-1) + dial * A_l cos(B_l z_(l-1)), all matrices orthogonal.

    The cosine is even, so the fields add no linear map on average, which whitening would undo. Its slope is at most 1:
    for dial < 1 every layer is invertible, with singular values from 1 - dial to 1 + dial. With dial 0 the map is the
    rotation Q.
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

        1 is an isometry; lower is closer to one. They do not depend on the rotation.
        """
        stretches = np.array([np.linalg.svd(self._jacobian(row), compute_uv=False) for row in z])
        with np.errstate(divide="ignore"):
            return np.asarray(np.maximum(stretches[:, 0], 1 / stretches[:, -1]))

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
        """An upper bound of the bi-Lipschitz constant: (1 - dial)^-L; infinite for a dial of at least 1."""
        return (1 - self.dial) ** -len(self.inward) if self.dial < 1 else math.inf


def draw_mixing(d: int, dial: float, seed: int, *, layers: int = LAYERS) -> Mixing:
    """Draw the map of a screen; the same seed gives the same rotations for every dial.

    The dial is at least 0, which is an isometry. From 1 on the map may fold, and no bound is guaranteed.
    """
    from scipy.stats import ortho_group

    check_number("dial", dial, 0)
    rng = np.random.default_rng([seed, 11])
    rotations = ortho_group.rvs(d, size=2 * layers + 1, random_state=rng).astype(np.float32)
    return Mixing(rotations[0], rotations[1 : layers + 1], rotations[layers + 1 :], float(dial))
