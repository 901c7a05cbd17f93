"""Interventional robustness (IRS): whether a code stays constant while other factors change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.metrics._information import bin_columns
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import read_pair


@dataclass(frozen=True, eq=False)
class Robustness(MetricResult):
    """The robustness of each code; K factors, L codes."""

    irs: float  # mean over codes, weighted by `deviations`
    robustness: Float  # (K, L) of code l given factor k; NaN for constant codes and factors left out
    per_code: Float  # (L,) the largest over factors
    parents: Array  # (L,) the factor that has it; -1 for a constant code
    deviations: Float  # (L,) the largest distance of each code from its mean

    headline = ("irs",)


def irs(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int = 20, quantile: float = 0.99, seed: int = 0
) -> Robustness:
    """Interventional robustness: 1 - (deviation of a code while its own factor is fixed) / (its largest deviation).

    From -1 to 1, higher is better: 1 if each code is a function of one factor; about 0 for uniform noise. Gaussian
    noise has about 0.3, since a quantile is compared with a maximum: compare with noise of the same shape. For each
    value of a factor the `quantile` of |code - mean given the value| is taken; these are averaged over values. Constant
    codes are left out. Invariant to the order of codes, their signs, one scale for all and a shift of each.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors.
    kinds : str, list or dict, default "auto"
        Kinds of the factors; see `read_factors`.
    bins : int, default 20
        Equal-width bins of a continuous factor, and of one with more classes than this.
    quantile : float, default 0.99
        Of the deviations of a code from its mean, given the value of a factor.
    seed : int, default 0
        Not used: nothing is random.

    References
    ----------
    Suter et al. 2019, eq. 8; as implemented for Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    deviations = np.abs(z - z.mean(0)).max(0)
    moves, varies = np.ptp(z, axis=0) > 0, s.varies
    robustness = np.full((len(s), z.shape[1]), np.nan)
    for i in np.flatnonzero(varies):
        values = s[i].labels().astype(np.float64) if s[i].is_discrete else s[i].values
        classes = bin_columns(values[:, None], bins)[:, 0]  # with no more classes than bins, each has its own
        robustness[i, moves] = 1 - _drift(z[:, moves], classes, quantile) / deviations[moves]
    per_code, parents = np.full(z.shape[1], np.nan), np.full(z.shape[1], -1)
    score, reasons = float("nan"), {}
    if moves.any() and varies.any():
        per_code[moves] = robustness[varies][:, moves].max(0)
        parents[moves] = np.flatnonzero(varies)[robustness[varies][:, moves].argmax(0)]
        score = float(np.average(per_code[moves], weights=deviations[moves]))
    else:
        reasons["irs"] = "No code varies." if varies.any() else "No factor varies."
    cut = [f.name for f in s if not f.left_out and (not f.is_discrete or f.distinct > bins)]
    notes = (*s.notes, *s.exclusions, *note_if(cut, f"cut into {bins} bins of equal width"))
    if not moves.all():
        notes += (Note(f"Constant and left out: code {listing(np.flatnonzero(~moves))}"),)
    return Robustness(score, robustness, per_code, parents, deviations, reasons=reasons, notes=notes)


def _drift(z: Float, classes: Array, quantile: float) -> Float:
    """The deviation of codes (n, L) from their mean in a class, averaged over classes; shape (L,)."""
    order = np.argsort(classes, kind="stable")
    parts = np.split(z[order], np.cumsum(np.bincount(classes))[:-1])
    drift: Float = np.mean([np.quantile(np.abs(part - part.mean(0)), quantile, axis=0) for part in parts], axis=0)
    return drift
