"""Independent components of the latents of a model, of which some may be idle."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from congruence.arrays import as_matrix, to_numpy
from congruence.errors import NotConvergedWarning
from congruence.resolve.ica import ICA

ACTIVE = 1 / 20  # of the largest standard deviation: directions that vary less are idle, as codes are for InfoMEC


def latent_components(codes: Any, *, whiten: bool = False, least: float = ACTIVE, seed: int = 0) -> ICA:
    """Fit ICA to the codes of a model that may have more latents than it needs.

    Without whitening all latents are kept and only rotated, as in the paper: idle ones stay small, and nothing has to
    be chosen. That is sound where the decoder is near an isometry, since latents then have the scale of the factors.
    With whitening the directions that hardly vary are first left out, because whitening would blow up their noise; all
    others get unit variance, so that the decoder need not be an isometry but only nearly linear.

    Parameters
    ----------
    codes : (n, L)
    whiten : bool
        Whether to whiten the active directions first.
    least : float
        With whitening: directions whose standard deviation is at most this share of the largest are idle.
    seed : int
        Of the starts.

    Returns
    -------
    ICA
        Fitted: ``transform(codes)`` are the components, (n, L), or (n, active directions) with whitening. Whether it
        came to rest is in ``converged_``; nothing is warned of.

    References
    ----------
    Nelson et al. 2026, section 4.3 and appendix A.7.3 (without whitening).
    """
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64)
    kept = active_directions(z, least) if whiten else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return ICA(kept, whiten=whiten, random_state=seed).fit(z)


def active_directions(codes: Any, least: float = ACTIVE) -> int:
    """The number of principal directions of codes (n, L) that vary by more than `least` of the one that varies most."""
    z = to_numpy(codes).astype(np.float64)
    sizes = np.linalg.svd(z - z.mean(0), compute_uv=False)
    return max(1, int((sizes > least * sizes[0]).sum()))
