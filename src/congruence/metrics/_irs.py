"""Interventional robustness (IRS): whether a code stays put while other factors change (Suter et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.metrics.binning import binned
from congruence.metrics.factors import Factor, paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note


@dataclass(frozen=True, eq=False)
class Robustness:
    """The robustness of each code; K factors, L codes."""

    irs: float  # mean over codes, weighted by how far each goes from its mean
    robustness: Float  # (K, L) of code l given factor k; NaN for constant codes and factors left out
    per_code: Float  # (L,) the largest over factors
    parents: Array  # (L,) the factor that has it; -1 for a constant code
    deviations: Float  # (L,) the largest distance of each code from its mean: the weights
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"irs": self.irs}


def irs(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int = 20, quantile: float = 0.99, seed: int = 0
) -> Robustness:
    """Interventional robustness: 1 - (how far a code moves while its own factor is fixed) / (how far it moves at all).

    From -1 to 1, higher is better: 1 if each code is a function of one factor; about 0 for uniform noise. Gaussian
    noise has about 0.3, since a quantile is set against a largest value: compare with noise of the same shape. For each
    value of a factor the `quantile` of |code - mean given the value| is taken; these are averaged over values. Constant
    codes are left out. Invariant to the order of codes, their signs, one scale for all and a shift of each.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame or mapping from name to column
        `kinds` as in `read_factors`. More than `bins` classes, and continuous values, fall into that many bins.
    seed : int
        Not used: nothing is random.

    References
    ----------
    Suter et al. 2019, eq. 8; as implemented for Locatello et al. 2019.
    """
    z, s = paired(codes, factors, kinds)
    deviations = np.abs(z - z.mean(0)).max(0)
    moves, varies = np.ptp(z, axis=0) > 0, np.array([not factor.left_out for factor in s])
    robustness = np.full((len(s), z.shape[1]), math.nan)
    for i in np.flatnonzero(varies):
        robustness[i, moves] = 1 - _drift(z[:, moves], _cut(s[i], bins), quantile) / deviations[moves]
    per_code, parents = np.full(z.shape[1], math.nan), np.full(z.shape[1], -1)
    score, reasons = math.nan, {}
    if moves.any() and varies.any():
        per_code[moves] = robustness[varies][:, moves].max(0)
        parents[moves] = np.flatnonzero(varies)[robustness[varies][:, moves].argmax(0)]
        score = float(np.average(per_code[moves], weights=deviations[moves]))
    else:
        reasons["irs"] = "No code varies." if varies.any() else "No factor varies."
    notes = [Note(factor.left_out, [factor.name]) for factor in s if factor.left_out]
    notes += [
        Note(f"cut into {bins} bins of equal width", [factor.name])
        for factor in s
        if not factor.left_out and (not factor.is_discrete or len(np.unique(factor.values)) > bins)
    ]
    if not moves.all():
        notes.append(Note(f"Constant and left out: code {listing(np.flatnonzero(~moves))}"))
    return Robustness(score, robustness, per_code, parents, deviations, reasons, (*s.notes, *notes))


def _cut(factor: Factor, bins: int) -> Array:
    """Classes (n,) of a factor: its bins of equal width; with no more classes than bins each has its own."""
    values = factor.labels().astype(np.float64) if factor.is_discrete else factor.values
    return np.unique(binned(values[:, None], bins), return_inverse=True)[1].reshape(-1)


def _drift(z: Float, classes: Array, quantile: float) -> Float:
    """How far codes (n, L) go from their mean in a class, averaged over classes; shape (L,)."""
    order = np.argsort(classes, kind="stable")
    parts = np.split(z[order], np.cumsum(np.bincount(classes))[:-1])
    drift: Float = np.mean([np.quantile(np.abs(part - part.mean(0)), quantile, axis=0) for part in parts], axis=0)
    return drift


DECLARED = Metric(
    name="irs",
    function=irs,
    scores=("irs",),
    range=(-1.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "shift", "factor order"}),
    cost="fast",
    reference="Suter et al. 2019",
)
