"""Components of a sample of latents: peaks of each latent, and the cells that the peaks of all latents form.

A histogram of one latent is smoothed with several widths. Two neighbouring peaks are distinct if the valley between
them is deeper than expected by chance; the width that separates most peaks is used. Gaussians are then fitted to the
histogram, and the goodness of fit reveals components that are not visible as peaks. A cell is a choice of one peak on
each latent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from congruence.arrays import Array, Float

_BINS = 2048
_WIDTHS = (1.5, 2.5, 4.0, 6.0, 10.0, 16.0, 26.0, 42.0, 70.0, 110.0)  # of the smoothing, in bins
_DEPTH = 5.5  # standard deviations by which a valley is below the lower of its peaks; many valleys are tested
_FIT_ROUNDS = 60  # of expectation maximisation
_EXPECTED = 8.0  # rows that a bin of the goodness-of-fit test must expect; thinner bins are merged
_LEAST = 1e-3  # share of rows: lighter cells come from rows that were assigned to a neighbour
_DROP = 3.0  # ratio of the weights of the lightest included cell and the heaviest excluded one
_WEIGHT_ROUNDS = 50
_CORRELATION = 0.05  # within cells, beyond chance, that is too much
_WINDOW = 2.0  # standard deviations about a peak, where neighbours contribute little
_SHIFT = 0.05  # standard deviations by which cells may be off their peak
_CHANCE = 1e-5  # p-value below which they are not off by chance


@dataclass(frozen=True, eq=False)
class Peaks:
    """The Gaussians of one latent, from left to right."""

    weights: Float  # (k,)
    means: Float  # (k,)
    deviations: Float  # (k,)
    misfit: float  # chi-square of the fit in its own standard deviations; above about 4 the Gaussians do not fit

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
    """Fit a mixture of Gaussians to a sample x, (n,), of one latent."""
    from scipy.ndimage import gaussian_filter1d

    low, high = float(x.min()), float(x.max())
    if not high > low:
        return Peaks(np.ones(1), np.array([low]), np.array([np.finfo(float).tiny]), 0.0)
    histogram, edges = np.histogram(x, bins=_BINS, range=(low, high))
    counts = histogram.astype(float)
    borders: list[int] = []  # bins of the valleys, for the smoothing that separates most peaks
    for width in _WIDTHS:  # the widest of those
        smooth = gaussian_filter1d(counts, width, mode="constant")
        # a smoothed count is a mean over about 2 sqrt(pi) width bins; roots of counts have a deviation of 1/2
        valleys = _find_valleys(np.sqrt(np.maximum(smooth, 0) * 2 * math.sqrt(math.pi) * width))
        borders = valleys if len(valleys) >= len(borders) else borders
    return _fit_gaussians(counts, edges, borders)


def _find_valleys(roots: Float) -> list[int]:
    """Valleys of a curve that are deeper than chance; the shallowest is removed first."""
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
        if depths[least] >= _DEPTH * math.sqrt(0.5):  # two roots, each with a deviation of 1/2
            break
        lower = least if roots[tops[least]] < roots[tops[least + 1]] else least + 1
        tops.pop(lower)
        adjacent = [i for i in (lower - 1, lower) if 0 <= i < len(bottoms)]
        bottoms.pop(max(adjacent, key=lambda i: roots[bottoms[i]]))  # the deeper valley remains
    return bottoms


def _fit_gaussians(counts: Float, edges: Float, borders: list[int]) -> Peaks:
    """Gaussians fitted to a histogram by expectation maximisation, starting from the parts between valleys."""
    parts = np.searchsorted(np.array(borders), np.arange(len(counts)), side="right")
    held = counts > 0
    shares = (parts[held, None] == np.arange(len(borders) + 1)).astype(float)  # (bins, k)
    rows, places = counts[held], ((edges[1:] + edges[:-1]) / 2)[held]
    narrowest = (edges[1] - edges[0]) / 2
    weights, means, deviations = _moments(shares, rows, places, narrowest)
    for _ in range(_FIT_ROUNDS if borders else 0):
        away = (places[:, None] - means) / deviations
        logs = np.log(weights) - np.log(deviations) - 0.5 * away * away
        logs -= logs.max(1, keepdims=True)
        shares = np.exp(logs)
        shares /= shares.sum(1, keepdims=True)
        before = means
        weights, means, deviations = _moments(shares, rows, places, narrowest)
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
    """Chi-square over bins minus its expectation, in its own standard deviations."""
    from scipy.stats import norm

    below = norm.cdf((edges[:, None] - means) / deviations) @ weights
    below[0], below[-1] = 0.0, 1.0
    expected = counts.sum() * np.diff(below)
    group = np.floor(np.cumsum(expected) / _EXPECTED).astype(int)
    seen, due = np.bincount(group, counts), np.bincount(group, expected)
    full = due > _EXPECTED / 2
    freedom = max(int(full.sum()) - 3 * len(weights), 1)
    square = float((((seen - due)[full] ** 2) / due[full]).sum())
    return (square - freedom) / math.sqrt(2 * freedom)


def weigh_cells(z: Float, peaks: list[Peaks]) -> tuple[Array, Float]:
    """The cells that rows fall into, as peaks of each latent, (cells, m), and their weights, the heaviest first."""
    logs = [peak.log_likelihoods(column) for peak, column in zip(peaks, z.T, strict=True)]
    nearest = np.column_stack([(log + np.log(peak.weights)).argmax(1) for log, peak in zip(logs, peaks, strict=True)])
    sizes = [len(peak.means) for peak in peaks]
    names, counts = np.unique(np.ravel_multi_index(tuple(nearest.T), sizes), return_counts=True)
    labels = np.column_stack(np.unravel_index(names, sizes))
    frequent = counts >= max(2.0, _LEAST * len(z) / 2)
    labels, counts = labels[frequent], counts[frequent]
    joint = np.sum([log[:, labels[:, t]] for t, log in enumerate(logs)], axis=0)  # (n, cells)
    joint = np.exp(joint - joint.max(1, keepdims=True))
    weights = counts / counts.sum()
    for _ in range(_WEIGHT_ROUNDS):  # a row between two cells counts for both, so that chance cells vanish
        weights = weights * (joint.T @ (1 / (joint @ weights))) / len(z)
    order = np.argsort(-weights, kind="stable")
    return labels[order], weights[order]


def cell_counts(weights: Float) -> list[int]:
    """Candidate numbers of cells, at least 2, for decreasing weights: the largest drops first, without light cells."""
    padded = np.append(weights, _LEAST / _DROP)
    drops = padded[:-1] / np.maximum(padded[1:], _LEAST / _DROP)
    order = np.argsort(-drops, kind="stable")
    return [int(i) + 1 for i in order if weights[i] >= _LEAST and drops[i] >= _DROP and i > 0][:3]


def explain_dependence(z: Float, peaks: list[Peaks]) -> str | None:
    """Explain why latents are not independent within cells: they correlate, or a peak moves between cells.

    A peak of one latent whose position or width depends on another latent consists of several components that cannot be
    distinguished on that latent alone.
    """
    nearest = np.column_stack([peak.log_likelihoods(column).argmax(1) for peak, column in zip(peaks, z.T, strict=True)])
    places = list(zip(peaks, z.T, nearest.T, strict=True))
    white = np.column_stack([(x - peak.means[at]) / peak.deviations[at] for peak, x, at in places])
    central = white[(np.abs(white) < 3).all(1)]
    varies = central.std(0) > 0 if len(central) else np.zeros(len(peaks), dtype=bool)
    if varies.sum() >= 2 and len(central) >= 10:
        correlation = np.abs(np.corrcoef(central[:, varies], rowvar=False) - np.eye(varies.sum())).max()
        if correlation > _CORRELATION + 4 / math.sqrt(len(central)):
            return f"latents correlate by {correlation:.2g} within components; rotate to the canonical axes of P2 first"
    for t in range(len(peaks)):
        inside = np.abs(white[:, t]) < _WINDOW
        x, here = white[inside, t], nearest[inside, t]
        for other in range(len(peaks)):
            group = here * len(peaks[other].means) + nearest[inside, other]
            if other != t and (_differs(x, here, group) or _differs(x * x, here, group)):
                return f"unresolved components of latent {t} move with latent {other}"
    return None


def _differs(x: Float, here: Array, group: Array) -> bool:
    """Whether the means of x differ between the groups of a peak, significantly and by a relevant amount."""
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
    return bool(chi2.sf(square, freedom) < _CHANCE and square - freedom > _SHIFT**2 * len(x))
