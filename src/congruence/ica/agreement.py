"""How well the components of one fit are reproduced by another, whatever rows each was fitted to.

A component is a direction in the space of all whitened rows, and the correlation of two components over all rows is the
cosine of their directions: no pass over the rows is needed to compare two fits.
"""

from __future__ import annotations

import numpy as np

from congruence.arrays import Float
from congruence.ica.rotations import random_rotation
from congruence.ica.samples import PreparedRows
from congruence.maps.algebra import eigh
from congruence.stats.matching import matched_correlations

CHANCE_COMPONENTS = 2000  # drawn in all


def whitened_space(prepared: PreparedRows) -> Float:
    """A matrix B, shape (d, r), with B @ B.T the covariance of all rows (second moments, where they are not whitened).

    From the whitening and not from the covariance itself, in which the smallest directions may be lost to rounding.
    """
    if prepared.whiten:
        white = prepared.whitening
        return white.inverse if white.retained == white.rank else prepared.retaining(None).whitening.inverse
    mean = prepared.moments.mean
    values, vectors = eigh(prepared.moments.finish() + np.outer(mean, mean))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


def directions(unmixing: Float, space: Float) -> Float:
    """Unit vectors (k, r), one for each row of `unmixing` (k, d): their products are correlations over all rows."""
    found = unmixing @ space
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(length > 0, length, 1.0))


def matched_to(base: Float, other: Float) -> Float:
    """The |correlation| of every component of `base` (k, r) with its own partner in `other` (m, r), shape (k,).

    Partners are chosen one to one so that the sum is largest (Hungarian method). From 0 to 1, higher is closer; 0 for
    components that are left without a partner because the other fit has fewer.
    """
    return np.minimum(matched_correlations(base @ other.T), 1.0)


def chance_agreement(k: int, seed: int = 0) -> float:
    """The mean matched |correlation| of k components with a random rotation of themselves.

    What agreement is worth nothing: 0.9 for 2 components, 0.5 for 16, 0.2 for 256.
    """
    rng = np.random.default_rng(seed)
    draws = max(3, CHANCE_COMPONENTS // k)
    return float(np.mean([matched_to(np.eye(k), random_rotation(k, rng)).mean() for _ in range(draws)]))
