"""Gaussian mixtures seen through one random ReLU layer: data of which prior and decoder are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.experiments.data.images import check_count
from congruence.experiments.data.rows import FactorRows

NOTE = "one ReLU layer with random weights, on a random Gaussian mixture; what the paper left open is our choice"
SPREAD = 2.0  # standard deviation of the means of components
DEVIATIONS = (0.3, 1.0)  # range of the standard deviations of components along random axes


@dataclass(frozen=True, eq=False)
class ReLUMixture:
    """The model x = max(matrix z + shift, 0) + noise e, where z is of a Gaussian mixture and e of N(0, I)."""

    weights: Float  # (J,)
    means: Float  # (J, m)
    covariances: Float  # (J, m, m)
    matrix: Float  # (p, m)
    shift: Float  # (p,)
    noise: float = 0.0

    def decode(self, latents: Float) -> Float:
        """What latents are seen as without noise, (n, m) -> (n, p)."""
        return np.maximum(latents @ self.matrix.T + self.shift, 0)

    def draw(self, n: int, *, seed: int = 0) -> FactorRows:
        """Draw n rows; factors are the component and the true latents, and `truth` is this model."""
        check_count(n, "rows")
        rng = np.random.default_rng(seed)
        count, m = self.means.shape
        states = rng.choice(count, size=n, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)  # (J, m, m)
        latents = self.means[states] + np.einsum("nab,nb->na", roots[states], rng.normal(size=(n, m)))
        rows = self.decode(latents)
        rows = rows + self.noise * rng.normal(size=rows.shape)
        names = ("component", *(f"z{i}" for i in range(m)))
        kinds, sizes = ("categorical", *["continuous"] * m), (count, *[None] * m)
        factors = np.column_stack([states, latents])
        return FactorRows("random-relu", rows.astype(np.float32), factors, names, kinds, sizes, NOTE, self)


def random_relu_mixture(
    components: int = 3, *, latents: int = 2, observed: int = 10, noise: float = 0.05, seed: int = 0
) -> ReLUMixture:
    """Draw a Gaussian mixture, and one ReLU layer that it is seen through.

    Weights of the layer are N(0, 1 / m), its biases N(0, 1). Means are N(0, 4 I); covariances have random axes and
    standard deviations uniform from 0.3 to 1; weights of components are uniform from 1 to 2, over their sum. Kivva et
    al. draw such models with J = 2 or 3 without saying from which laws, so these are ours. Whether the layer is
    injective is left to chance: with few `observed` it often is not.

    Parameters
    ----------
    components, latents, observed : int
        J, m and p.
    noise : float
        Standard deviation of what is added to each number that is observed.

    References
    ----------
    Kivva, Rajendran, Ravikumar and Aragam 2022, section 4.
    """
    for name, value in {"components": components, "latents": latents, "observed": observed}.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
    if not (np.isfinite(noise) and noise >= 0):
        raise InputError(f"noise must be a finite number, 0 or above, not {noise}")
    rng = np.random.default_rng(seed)
    weights = 1 + rng.random(components)
    means = SPREAD * rng.normal(size=(components, latents))
    axes = np.linalg.qr(rng.normal(size=(components, latents, latents)))[0]
    stretched = axes * rng.uniform(*DEVIATIONS, size=(components, 1, latents))
    matrix = rng.normal(size=(observed, latents)) / np.sqrt(latents)
    covariances = stretched @ stretched.transpose(0, 2, 1)
    return ReLUMixture(weights / weights.sum(), means, covariances, matrix, rng.normal(size=observed), float(noise))
