"""MCC: the mean correlation of factors with codes, matched one to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.metrics._estimators import mean_of_finite, standardise
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS, factor_columns, read_usable
from congruence.rows.engine import Rows
from congruence.rows.sums import sums_of
from congruence.stats.matching import match_columns, matched_correlations

ENOUGH = 10  # rows for each code and factor, below which canonical correlations of noise are far from 0


@dataclass(frozen=True, eq=False)
class CorrelationScores(MetricResult):
    """Mean correlation coefficients, in sample, from 0 to 1, higher is better."""

    columns: tuple[str, ...]  # the rows of the matrices: factors, or cosine and sine of a circular one
    pearson: Float  # (K, L) correlation of each factor with each code
    spearman: Float  # (K, L) the same of ranks
    matched: Array  # (K,) the code matched with each factor by `pearson`; -1 if none is left
    mcc: float  # mean |pearson| of matched codes (strong MCC)
    mcc_spearman: float  # mean |spearman|, with its own matching
    mcc_weak: float  # mean canonical correlation: the same up to a linear map

    headline = ("mcc", "mcc_spearman", "mcc_weak")


def mcc(codes: Any, factors: Any, *, kinds: Any = "auto", seed: int = 0) -> CorrelationScores:
    """Match codes with factors one to one so that the sum of |correlations| is largest, and take the mean.

    `mcc` is invariant to order, sign, scale and shift of each code, `mcc_spearman` also to any increasing function of
    each, `mcc_weak` to any invertible linear map. The mean is over all factors: one that is left without a code, or
    whose code is constant, counts as 0 (`congruence.maps.matching.strong_mcc`, which compares runs, leaves it out).
    Neither of `mcc` and `mcc_weak` bounds the other.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. A circular one is matched as cosine and sine. Three classes or more without order are left out;
        numbers that were only guessed to be classes are used as numbers.
    kinds : str, list or dict as of `read_factors`, default "auto"
    seed : not used, default 0

    References
    ----------
    Khemakhem et al. 2020 (ICE-BeeM); Kivva et al. 2022.
    """
    from scipy.stats import rankdata

    z, s, notes = read_usable(codes, factors, kinds)
    table = factor_columns(s, unordered=False)
    notes, reasons = (*notes, *table.notes), {}
    weak, pearson = float("nan"), np.zeros((0, z.shape[1]))
    spearman = pearson
    if table.names:
        pearson = _correlate(table.values, z)
        spearman = _correlate(rankdata(table.values, axis=0), rankdata(z, axis=0))
        weak, reason = _weak_mcc(z, table.values)
        reasons = {"mcc_weak": reason} if reason else {}
    else:
        reason = "All factors are unordered classes, which cannot be correlated." if len(s) else NO_FACTORS
        reasons = dict.fromkeys(CorrelationScores.headline, reason)
    matched = match_columns(np.abs(pearson))
    unmatched = [name for name, code in zip(table.names, matched, strict=True) if code < 0]
    notes += note_if(unmatched, "no code is left, which counts as 0")
    if not reasons and len(z) < ENOUGH * (z.shape[1] + len(table.names)):
        notes += (Note(f"mcc_weak is in sample and biased upwards: {len(z)} rows are few for {z.shape[1]} codes"),)
    return CorrelationScores(
        columns=table.names,
        pearson=pearson,
        spearman=spearman,
        matched=matched,
        mcc=mean_of_finite(matched_correlations(pearson)),
        mcc_spearman=mean_of_finite(matched_correlations(spearman)),
        mcc_weak=weak,
        reasons=reasons,
        notes=notes,
    )


def _correlate(y: Float, z: Float) -> Float:
    return np.clip(standardise(y).T @ standardise(z) / len(z), -1, 1)


def _weak_mcc(z: Float, y: Float) -> tuple[float, str]:
    """The mean canonical correlation over the directions of the factors, or why there is none."""
    sums = sums_of(Rows(z), Rows(y))
    codes, factors = (len(side.axes[1]) for side in (sums.source, sums.target))
    if codes + factors >= len(z):
        return float("nan"), f"{len(z)} rows are too few: {codes + factors} directions fit them perfectly."
    if not codes:
        return 0.0, ""
    cca = fit_cca(sums, min(codes, factors))
    return matched_correlation(sums, cca) * cca.source.shape[1] / factors, ""
