"""MCC: the mean correlation of factors with codes, matched one to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.metrics.columns import columns_of
from congruence.metrics.factors import paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, constant_codes, standardised, varying
from congruence.rows.engine import Rows
from congruence.rows.sums import sums_of

ENOUGH = 10  # rows for each code and factor, below which canonical correlations of noise are far from 0


@dataclass(frozen=True, eq=False)
class MCC:
    """Mean correlation coefficients, in sample, from 0 to 1, higher is better."""

    columns: tuple[str, ...]  # the rows of the matrices: factors, or cosine and sine of a circular one
    pearson: Float  # (K, L) correlation of each factor with each code
    spearman: Float  # (K, L) the same of ranks
    matched: Array  # (K,) the code matched with each factor by `pearson`; -1 where none is left
    mcc: float  # mean |pearson| of matched codes (strong MCC)
    mcc_spearman: float  # mean |spearman|, with its own matching
    mcc_weak: float  # mean canonical correlation: the same up to a linear map
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline numbers."""
        return {"mcc": self.mcc, "mcc_spearman": self.mcc_spearman, "mcc_weak": self.mcc_weak}


def mcc(codes: Any, factors: Any, *, kinds: Any = "auto", seed: int = 0) -> MCC:
    """Match codes with factors one to one so that the sum of |correlations| is largest, and take the mean.

    `mcc` is invariant to order, sign, scale and shift of each code, `mcc_spearman` also to any increasing function of
    each, `mcc_weak` to any invertible linear map. The mean is over all factors: one that is left without a code, or
    whose code is constant, counts as 0 (`congruence.maps.matching.strong_mcc`, which compares runs, leaves it out).
    Neither of the strong and the weak one bounds the other.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. A circular one is matched as cosine and sine. Three classes or more without order are left out;
        numbers that were only guessed to be classes are taken as numbers.
    seed : int
        Not used: nothing is drawn.

    References
    ----------
    Khemakhem et al. 2020 (ICE-BeeM); Kivva et al. 2022.
    """
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    table = columns_of(s, unordered=False)
    notes = (*s.notes, *notes, *constant_codes(z)[1], *table.notes)
    if not table.names:
        reason = "All factors are unordered classes, which cannot be correlated." if len(s) else NO_FACTORS
        nan, none = float("nan"), np.zeros((0, z.shape[1]))
        reasons = dict.fromkeys(("mcc", "mcc_spearman", "mcc_weak"), reason)
        return MCC((), none, none, np.zeros(0, dtype=int), nan, nan, nan, reasons, notes)

    y = table.values
    pearson, spearman = _correlation(y, z), _correlation(_ranks(y), _ranks(z))
    matched, strong = _matched(pearson)
    weak, reason = _weak(z, y)
    few = len(z) < ENOUGH * (z.shape[1] + y.shape[1]) and not reason
    optimistic = (Note(f"mcc_weak is in sample and biased upwards: {len(z)} rows are few for {z.shape[1]} codes"),)
    lost = [name for name, code in zip(table.names, matched, strict=True) if code < 0]
    return MCC(
        columns=table.names,
        pearson=pearson,
        spearman=spearman,
        matched=matched,
        mcc=strong,
        mcc_spearman=_matched(spearman)[1],
        mcc_weak=weak,
        reasons={"mcc_weak": reason} if reason else {},
        notes=(
            *notes,
            *note_if(lost, "no code is left, which counts as 0"),
            *(optimistic if few else ()),
        ),
    )


def _correlation(y: Float, z: Float) -> Float:
    return np.clip(standardised(y).T @ standardised(z) / len(z), -1, 1)


def _ranks(x: Float) -> Float:
    from scipy.stats import rankdata

    ranks: Float = rankdata(x, axis=0)
    return ranks


def _matched(correlation: Float) -> tuple[Array, float]:
    """The column matched with each row, -1 for none, and the mean |correlation| over all rows."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-np.abs(correlation))
    matched = np.full(len(correlation), -1)
    matched[rows] = columns
    return matched, float(np.abs(correlation[rows, columns]).sum() / len(correlation))


def _weak(z: Float, y: Float) -> tuple[float, str]:
    """The mean canonical correlation over the directions of the factors, or why there is none."""
    sums = sums_of(Rows(z), Rows(y))
    width = [len(side.axes[1]) for side in (sums.source, sums.target)]
    if sum(width) >= len(z):
        return float("nan"), f"{len(z)} rows are too few: {sum(width)} directions fit them perfectly."
    if not width[0]:
        return 0.0, ""
    cca = fit_cca(sums, min(width))
    return matched_correlation(sums, cca) * cca.source.shape[1] / width[1], ""


DECLARED = Metric(
    name="mcc",
    function=mcc,
    scores=("mcc", "mcc_spearman", "mcc_weak"),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift", "factor order"}),
    cost="fast",
    reference="Khemakhem et al. 2020",
)
