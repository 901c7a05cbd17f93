"""Mutual information gap (MIG): how far the best code for a factor is ahead of the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.metrics._information import bin_columns, class_information, entropy, lead
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import Factors, read_pair


@dataclass(frozen=True, eq=False)
class InformationGap(MetricResult):
    """The gap of each factor; K factors, L codes."""

    mig: float  # mean over factors
    gaps: Float  # (K,) NaN for a factor that is left out
    information: Float  # (K, L) nats; 0 for a factor that is left out

    headline = ("mig",)


def mig(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int | str = 20, factor_bins: int = 10, seed: int = 0
) -> InformationGap:
    """Mutual information gap: mean over factors of (largest - second largest information of a code) / entropy.

    From 0 to 1, higher is better: 1 if one code, and no other, determines each factor. It does not measure whether a
    code also encodes other factors. Codes are cut into bins of equal width, so the number depends on `bins`: see
    `sensitivity`. Invariant to the order of codes, and to a scale and a shift of each.

    Parameters
    ----------
    codes : (n, L)
        Learned codes, L at least 2.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors.
    kinds : str, list or dict, default "auto"
        Kinds of the factors; see `read_factors`.
    bins : int or str, default 20
        Bins of each code: a number, or a rule of `numpy.histogram_bin_edges` such as "auto".
    factor_bins : int, default 10
        Equal-width bins of a continuous factor.
    seed : int, default 0
        Not used: nothing is random.

    References
    ----------
    Chen et al. 2018, eq. 6; 20 bins as in Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    information, entropies, notes = binned_information(z, s, bins, factor_bins)
    gaps = lead(information) / entropies
    score = float(gaps[s.varies].mean()) if s.varies.any() else float("nan")
    reason = "There is only one code; two are needed." if s.varies.any() else "No factor varies."
    return InformationGap(score, gaps, information, reasons={"mig": reason} if np.isnan(score) else {}, notes=notes)


def binned_information(
    z: Float, s: Factors, bins: int | str, factor_bins: int
) -> tuple[Float, Float, tuple[Note, ...]]:
    """Information of binned codes about factors as classes, (K, L) in nats, the factors' entropies (K,), and notes.

    A factor that is left out has the information 0 and the entropy NaN.
    """
    live = Factors(tuple(factor for factor in s if not factor.left_out))
    information, entropies = np.zeros((len(s), z.shape[1])), np.full(len(s), np.nan)
    codes = bin_columns(z, bins)
    if live:
        classes = live.labels(factor_bins)
        information[s.varies], entropies[s.varies] = class_information(codes, classes), entropy(classes)
    cut = note_if(live.numbers, f"cut into {factor_bins} bins of equal width")
    return information, entropies, (*s.notes, *s.exclusions, *cut)
