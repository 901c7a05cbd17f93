"""Features without a partner: are they combinations of a few features of the other dictionary (split or merged)?"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.features._neighbours import place, top_neighbours

CANDIDATES = 32  # nearest features among which a combination is sought
TERMS = 3  # features in a combination


def explained_by_few(a: Array, b: Array, device: str = "cpu", terms: int = TERMS) -> tuple[Float, Array]:
    """The squared cosine of each row of a with the span of `terms` rows of b, (m,), and these rows, (m, terms).

    Orthogonal matching pursuit among the `CANDIDATES` nearest rows: each step adds the row that explains most of what
    remains. 1 means that a feature is a combination of these.
    """
    near = top_neighbours(place(a, device), place(b, device), CANDIDATES)
    terms = min(terms, near.shape[1])
    shares, chosen = np.empty(len(a)), np.empty((len(a), terms), np.intp)
    step = max(1, 2**22 // (near.shape[1] * a.shape[1]))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        share, at = _pursue(a[rows].astype(np.float64), b[near[rows]].astype(np.float64), terms)
        shares[rows], chosen[rows] = share, np.take_along_axis(near[rows], at, 1)
    return shares, chosen


def _pursue(target: Float, candidates: Float, terms: int) -> tuple[Float, Array]:
    """Matching pursuit of targets (n, d) of length 1 in their candidates (n, c, d)."""
    n = len(target)
    rest, basis = target.copy(), candidates.copy()
    chosen = np.empty((n, terms), np.intp)
    here = np.arange(n)
    for term in range(terms):
        length = np.sqrt((basis**2).sum(2))  # what earlier terms leave of each candidate
        gain = np.abs(np.einsum("ncd,nd->nc", basis, rest)) / np.where(length > 1e-6, length, np.inf)
        best = gain.argmax(1)
        chosen[:, term] = best
        unit = basis[here, best] / np.maximum(length[here, best], 1e-6)[:, None]  # (n, d)
        rest -= (rest * unit).sum(1, keepdims=True) * unit
        basis -= np.einsum("ncd,nd->nc", basis, unit)[:, :, None] * unit[:, None]
    return 1 - (rest**2).sum(1), chosen


def sample_rows(count: Any, most: int, rng: np.random.Generator) -> Array:
    """At most this many of some positions, in rising order."""
    positions = np.asarray(count)
    return positions if len(positions) <= most else np.sort(rng.choice(positions, most, replace=False))
