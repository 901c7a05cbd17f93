"""Independent components of the latents of a model, some of which may be idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.checks import check_choice, check_seed
from congruence.errors import InputError
from congruence.ica._unmixing import MAX_ITER_FREE
from congruence.ica.components import independent_components

WAYS = {
    "centred": "a rotation of all latents about their mean",
    "as is": "a rotation of all latents about 0, as FastICA without whitening does it",
    "whitened": "a rotation of the latents that vary, after they were whitened",
}
ACTIVE = 1 / 20  # of the largest standard deviation: directions that vary less are idle, as codes are for InfoMEC


@dataclass(frozen=True, eq=False)
class LatentComponents:
    """Components (codes - mean) @ unmixing.T of the codes of a model; mixing leads back."""

    way: str  # one of `WAYS`
    mean: Float  # (L,)
    unmixing: Float  # (k, L)
    mixing: Float  # (L, k)
    converged: bool

    @property
    def k(self) -> int:
        """The number of components: that of the latents, or of those that vary where they were whitened."""
        return len(self.unmixing)

    def transform(self, codes: Array) -> Float:
        """Return the components of codes (n, L), shape (n, k)."""
        components: Float = (np.asarray(codes, dtype=np.float64) - self.mean) @ self.unmixing.T
        return components


def latent_components(codes: Any, *, way: str = "centred", least: float = ACTIVE, seed: int = 0) -> LatentComponents:
    """Find the independent components of the codes of a model that may have more latents than it needs.

    Without whitening all latents are kept and only rotated, as in the paper: idle ones stay small, and no threshold is
    needed. This is sound where the decoder is near an isometry, since latents then have the scale of the factors.
    Rows are centred and divided by one number, so that the contrast sees them at its own scale. FastICA without
    whitening does neither; where the mean of the codes is large, its rotation depends more on the mean than on the
    factors.

    With idle latents a rotation may spread one factor over several axes, since the contrast gains where its variance is
    shared with an idle one. Each component still belongs to one factor, so modularity does not suffer, but compactness
    does. FastICA does the same.

    With whitening, directions that hardly vary are left out first, because whitening would amplify their noise; all
    others get unit variance, so that scales along the axes do not matter.

    Parameters
    ----------
    codes : (n, L)
    way : {"centred", "as is", "whitened"}
    least : float
        With whitening: directions whose standard deviation is at most this share of the largest are idle.
    seed : int
        Of the starts.

    Returns
    -------
    LatentComponents
        `converged` is False where the solver did not converge; there is no warning.

    References
    ----------
    Nelson et al. 2026, section 4.3 and appendix A.7.3.
    """
    check_choice("way", way, WAYS)
    check_seed(seed)
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64)
    mean = z.mean(0)
    sizes = np.linalg.svd(z - mean, compute_uv=False) / np.sqrt(len(z))  # standard deviations, falling
    if sizes[0] == 0:
        raise InputError("all codes are equal, so they have no components")
    options: dict[str, Any]
    if way == "whitened":
        active = int((sizes > least * sizes[0]).sum())
        options, rows = {"n_components": active}, z
    else:
        options, rows = {"whiten": False, "unit": 1.0}, (z - mean) / sizes[0] if way == "centred" else z
    state = int(check_random_state(seed).randint(2**31 - 1))  # as the estimator draws it
    ica = independent_components(rows, **options, check=False, max_iter=MAX_ITER_FREE, seed=state).unmixing
    return LatentComponents(way, mean if way == "centred" else ica.mean, ica.unmixing, ica.mixing, ica.converged)
