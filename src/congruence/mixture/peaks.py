"""The components of one latent: peaks of its density that stand out, and the Gaussians they are.

A histogram is smoothed by several widths. Two neighbouring peaks are two where the valley between them is deeper than
chance would make it; the width that tells most peaks apart counts. Gaussians are then fitted to the histogram, and the
fit is tested: what peaks did not show shows there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from congruence.arrays import Float

BINS = 2048
WIDTHS = (1.5, 2.5, 4.0, 6.0, 10.0, 16.0, 26.0, 42.0, 70.0, 110.0)  # of the smoothing, in bins
STANDS_OUT = 5.5  # standard deviations of chance by which a valley is below the lower of its peaks; many are looked at
ROUNDS = 60  # of the fit
EXPECTED = 8.0  # rows that a bin of the test must expect; thinner ones are joined


@dataclass(frozen=True, eq=False)
class Peaks:
    """The Gaussians of one latent, from left to right."""

    weights: Float  # (k,)
    means: Float  # (k,)
    deviations: Float  # (k,)
    misfit: float  # chi-square of the fit in its own standard deviations; above about 4 the Gaussians do not do

    @property
    def separation(self) -> float:
        """The least distance of neighbours in units of the larger deviation; infinite for one peak."""
        gaps = np.diff(self.means) / np.maximum(self.deviations[1:], self.deviations[:-1])
        return float(gaps.min()) if gaps.size else math.inf

    def log_likelihoods(self, x: Float) -> Float:
        """Log N(x; mean, deviation) for rows x, (n,) -> (n, k)."""
        away = (x[:, None] - self.means) / self.deviations
        return np.asarray(-0.5 * away * away - np.log(self.deviations))


def find_peaks(x: Float) -> Peaks:
    """The Gaussians that a sample x, (n,), of one latent is made of."""
    low, high = float(x.min()), float(x.max())
    if not high > low:
        return Peaks(np.ones(1), np.array([low]), np.array([np.finfo(float).tiny]), 0.0)
    counts, edges = np.histogram(x, bins=BINS, range=(low, high))
    places = (edges[1:] + edges[:-1]) / 2
    borders = _borders(counts.astype(float))
    return _fitted(counts.astype(float), edges, places, borders)


def _borders(counts: Float) -> list[int]:
    """The bins at which valleys lie, for the smoothing that tells most peaks apart (the widest of those)."""
    from scipy.ndimage import gaussian_filter1d

    best: list[int] = []
    for width in WIDTHS:
        smooth = gaussian_filter1d(counts, width, mode="constant")
        # a smoothed count is a mean over about 2 sqrt(pi) width bins; roots of counts have a deviation of 1/2
        found = _valleys(np.sqrt(np.maximum(smooth, 0) * 2 * math.sqrt(math.pi) * width))
        if len(found) >= len(best):
            best = found
    return best


def _valleys(roots: Float) -> list[int]:
    """Valleys of a curve that are deeper than chance, the shallowest given up first."""
    rising = np.diff(roots) > 0
    change = np.flatnonzero(rising[1:] != rising[:-1]) + 1
    tops = [int(i) for i in change if rising[i - 1]]
    if not rising[0]:
        tops.insert(0, 0)
    if rising[-1]:
        tops.append(len(roots) - 1)
    bottoms = [a + int(np.argmin(roots[a : b + 1])) for a, b in pairwise(tops)]
    while bottoms:
        depths = [min(roots[a], roots[b]) - roots[v] for (a, b), v in zip(pairwise(tops), bottoms, strict=True)]
        least = int(np.argmin(depths))
        if depths[least] >= STANDS_OUT * math.sqrt(0.5):  # two roots, each with a deviation of 1/2
            break
        lower = least if roots[tops[least]] < roots[tops[least + 1]] else least + 1
        tops.pop(lower)
        beside = [i for i in (lower - 1, lower) if 0 <= i < len(bottoms)]  # of the valleys beside it the deeper stays
        bottoms.pop(max(beside, key=lambda i: roots[bottoms[i]]) if len(beside) == 2 else beside[0])
    return bottoms


def _fitted(counts: Float, edges: Float, places: Float, borders: list[int]) -> Peaks:
    """Gaussians fitted to a histogram by expectation and maximisation, from the parts between valleys."""
    parts = np.searchsorted(np.array(borders), np.arange(len(counts)), side="right")
    shares = (parts[:, None] == np.arange(len(borders) + 1)).astype(float)  # (bins, k)
    held = counts > 0
    narrowest = (edges[1] - edges[0]) / 2
    weights, means, deviations = _moments(shares[held], counts[held], places[held], narrowest)
    for _ in range(ROUNDS if borders else 0):
        away = (places[held, None] - means) / deviations
        logs = np.log(weights) - np.log(deviations) - 0.5 * away * away
        logs -= logs.max(1, keepdims=True)
        shares = np.exp(logs)
        shares /= shares.sum(1, keepdims=True)
        before = means
        weights, means, deviations = _moments(shares, counts[held], places[held], narrowest)
        if np.abs(means - before).max() < 1e-4 * narrowest:
            break
    order = np.argsort(means)
    weights, means, deviations = weights[order], means[order], deviations[order]
    return Peaks(weights, means, deviations, _misfit(counts, edges, weights, means, deviations))


def _moments(shares: Float, counts: Float, places: Float, narrowest: float) -> tuple[Float, Float, Float]:
    rows = np.maximum((shares * counts[:, None]).sum(0), np.finfo(float).tiny)
    means = (shares * (counts * places)[:, None]).sum(0) / rows
    squares = (shares * counts[:, None] * (places[:, None] - means) ** 2).sum(0) / rows
    return rows / rows.sum(), means, np.sqrt(np.maximum(squares, narrowest**2))


def _misfit(counts: Float, edges: Float, weights: Float, means: Float, deviations: Float) -> float:
    """How far chi-square over bins lies above what chance gives, in its own standard deviations."""
    from scipy.stats import norm

    below = norm.cdf((edges[:, None] - means) / deviations) @ weights
    below[0], below[-1] = 0.0, 1.0
    expected = counts.sum() * np.diff(below)
    group = np.floor(np.cumsum(expected) / EXPECTED).astype(int)
    seen, due = np.bincount(group, counts), np.bincount(group, expected)
    kept = due > EXPECTED / 2
    freedom = max(int(kept.sum()) - 3 * len(weights), 1)
    square = float((((seen - due)[kept] ** 2) / due[kept]).sum())
    return (square - freedom) / math.sqrt(2 * freedom)
