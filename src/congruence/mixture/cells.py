"""Cells formed by the components of all latents in a sample: their weights, and whether latents depend on them.

Every latent was cut into peaks on its own. A cell is a choice of one peak on each latent.
"""

from __future__ import annotations

import math

import numpy as np

from congruence.arrays import Array, Float
from congruence.mixture.peaks import Peaks

LEAST = 1e-3  # share of rows: lighter cells come from rows that were given to a neighbour
CUT = 3.0  # by how much the lightest cell must outweigh the heaviest that is left out
WEIGHING = 50  # rounds
TIED = 0.05  # correlation within cells, beyond chance, that is too much
WINDOW = 2.0  # standard deviations about a peak, where neighbours hardly reach
SHIFTED = 0.05  # standard deviations by which cells may be off their peak
CHANCE = 1e-5  # probability below which they are not off by chance


def weighed_cells(z: Float, peaks: list[Peaks]) -> tuple[Array, Float]:
    """Cells of components of all latents that rows fall into, the heaviest first, weighed by likelihood."""
    logs = [peak.log_likelihoods(column) for peak, column in zip(peaks, z.T, strict=True)]
    nearest = np.column_stack([(log + np.log(peak.weights)).argmax(1) for log, peak in zip(logs, peaks, strict=True)])
    sizes = [len(peak.means) for peak in peaks]
    names, counts = np.unique(np.ravel_multi_index(tuple(nearest.T), sizes), return_counts=True)
    labels = np.column_stack(np.unravel_index(names, sizes))
    kept = counts >= max(2.0, LEAST * len(z) / 2)
    labels, counts = labels[kept], counts[kept]
    joint = np.sum([log[:, labels[:, t]] for t, log in enumerate(logs)], axis=0)  # (n, cells)
    joint = np.exp(joint - joint.max(1, keepdims=True))
    weights = counts / counts.sum()
    for _ in range(WEIGHING):  # a row between two cells counts for both, so that cells made by chance fade
        weights = weights * (joint.T @ (1 / (joint @ weights))) / len(z)
    order = np.argsort(-weights, kind="stable")
    return labels[order], weights[order]


def keepable(weights: Float) -> list[int]:
    """How many of the cells, falling in weight, to keep: at the widest drops first, never a light one nor one alone."""
    padded = np.append(weights, LEAST / CUT)
    drops = padded[:-1] / np.maximum(padded[1:], LEAST / CUT)
    order = np.argsort(-drops, kind="stable")
    chosen = [int(i) + 1 for i in order if weights[i] >= LEAST and drops[i] >= CUT and i > 0]
    return chosen[:3]


def dependence(z: Float, peaks: list[Peaks]) -> str | None:
    """Why the peaks do not describe the latents: they correlate within cells, or a peak moves between cells."""
    nearest = np.column_stack([peak.log_likelihoods(column).argmax(1) for peak, column in zip(peaks, z.T, strict=True)])
    means = np.column_stack([peak.means[nearest[:, t]] for t, peak in enumerate(peaks)])
    spread = np.column_stack([peak.deviations[nearest[:, t]] for t, peak in enumerate(peaks)])
    white = (z - means) / spread
    return _correlated(white) or _moving(white, nearest, [len(peak.means) for peak in peaks])


def _correlated(white: Float) -> str | None:
    """The pooled correlation within cells, compared with chance."""
    inside = (np.abs(white) < 3).all(1)
    varies = white[inside].std(0) > 0 if inside.any() else np.zeros(white.shape[1], dtype=bool)
    if varies.sum() < 2 or inside.sum() < 10:  # what is constant correlates with nothing
        return None
    tied = np.abs(np.corrcoef(white[inside][:, varies], rowvar=False) - np.eye(varies.sum())).max()
    if tied <= TIED + 4 / math.sqrt(inside.sum()):
        return None
    return f"latents correlate by {tied:.2g} within components; rotate to the canonical axes of P2 first"


def _moving(white: Float, nearest: Array, sizes: list[int]) -> str | None:
    """Whether a peak of one latent lies or spreads differently from peak to peak of another.

    It is then more than one component, too near to be seen on that latent alone.
    """
    for t in range(white.shape[1]):
        inside = np.abs(white[:, t]) < WINDOW
        x, here = white[inside, t], nearest[inside, t]
        for other in range(white.shape[1]):
            group = here * sizes[other] + nearest[inside, other]
            if other != t and (_differs(x, here, group) or _differs(x * x, here, group)):
                return f"unresolved components of latent {t} move with latent {other}"
    return None


def _differs(x: Float, here: Array, group: Array) -> bool:
    """Whether means of x differ between the groups of a peak, by more than chance and by more than a trifle."""
    from scipy.stats import chi2

    groups, which, count = np.unique(group, return_inverse=True, return_counts=True)
    peaks, peak = np.unique(here, return_inverse=True)
    if len(groups) == len(peaks):
        return False
    away = x - (np.bincount(peak, x) / np.bincount(peak))[peak]
    if not away.var() > 0:
        return False
    square = float((np.bincount(which, away) ** 2 / count).sum() / away.var())
    freedom = len(groups) - len(peaks)
    return bool(chi2.sf(square, freedom) < CHANCE and square - freedom > SHIFTED**2 * len(x))
