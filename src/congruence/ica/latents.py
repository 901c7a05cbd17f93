"""Independent components of the latents of a model, of which some may be idle."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError, NotConvergedWarning
from congruence.ica.estimator import ICA
from congruence.ica.unmix import OF_ALL

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
    converged: bool  # whether the solver came to rest

    @property
    def k(self) -> int:
        """The number of components: that of the latents, or of those that vary where they were whitened."""
        return len(self.unmixing)

    def transform(self, codes: Array) -> Float:
        """The components of codes (n, L), shape (n, k)."""
        found: Float = (np.asarray(codes, dtype=np.float64) - self.mean) @ self.unmixing.T
        return found


def latent_components(codes: Any, *, way: str = "centred", least: float = ACTIVE, seed: int = 0) -> LatentComponents:
    """Find the independent components of the codes of a model that may have more latents than it needs.

    Without whitening all latents are kept and only rotated, as in the paper: idle ones stay small, and nothing has to
    be chosen. That is sound where the decoder is near an isometry, since latents then have the scale of the factors.
    ICA is about deviations from a mean, so rows are centred (and divided by one number, so that the contrast sees them
    at its own scale). FastICA without whitening does neither; where the mean of the codes is large, the rotation that
    it finds has more to do with the mean than with the factors.

    Beside idle latents a rotation may lay one factor on several axes, since the contrast gains where its variance is
    shared with an idle one. Each component still is of one factor only, so that modularity does not suffer, but
    compactness does. FastICA does the same.

    With whitening the directions that hardly vary are first left out, because whitening would blow up their noise; all
    others get unit variance, so that stretches along the axes do not matter.

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
        Whether the solver came to rest is in `converged`; nothing is warned of.

    References
    ----------
    Nelson et al. 2026, section 4.3 and appendix A.7.3.
    """
    if way not in WAYS:
        raise InputError(f"way must be one of {', '.join(WAYS)}, not {way!r}")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be at least 0 and below 2**32, not {seed}")
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64)
    mean, sizes = z.mean(0), _sizes(z)
    if sizes[0] == 0:
        raise InputError("codes are all the same, so that they have no components")
    if way == "whitened":
        ica = _fit(ICA(int((sizes > least * sizes[0]).sum()), max_iter=OF_ALL, random_state=seed), z)
        return LatentComponents(way, ica.mean_, ica.components_, ica.mixing_, ica.converged_)
    rows = (z - mean) / sizes[0] if way == "centred" else z
    ica = _fit(ICA(whiten=False, max_iter=OF_ALL, random_state=seed), rows)
    mean = mean if way == "centred" else np.zeros_like(mean)
    return LatentComponents(way, mean, ica.components_, ica.mixing_, ica.converged_)


def _fit(ica: ICA, rows: Float) -> ICA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return ica.fit(rows)


def active_directions(codes: Any, least: float = ACTIVE) -> int:
    """The number of principal directions of codes (n, L) that vary by more than `least` of the one that varies most."""
    sizes = _sizes(to_numpy(codes).astype(np.float64))
    return int((sizes > least * sizes[0]).sum())


def _sizes(z: Float) -> Float:
    """Standard deviations along the principal directions, from the largest down."""
    found: Float = np.linalg.svd(z - z.mean(0), compute_uv=False) / np.sqrt(len(z))
    return found
