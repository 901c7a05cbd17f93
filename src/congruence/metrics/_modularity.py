"""Modularity: whether each code encodes one factor only, from binned information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.metrics._mig import binned_information
from congruence.metrics._results import MetricResult
from congruence.metrics.factors import read_pair


@dataclass(frozen=True, eq=False)
class Modularity(MetricResult):
    """The modularity of each code; K factors, L codes."""

    modularity: float  # mean over codes
    per_code: Float  # (L,) 0 for a code without information
    information: Float  # (K, L) nats; 0 for a factor that is left out

    headline = ("modularity",)


def modularity(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int | str = 20, factor_bins: int = 10, seed: int = 0
) -> Modularity:
    """Mean over codes of 1 - (squared information about other factors) / (squared largest information (K - 1)).

    From 0 to 1, higher is better: 1 if each code encodes one factor only. Codes without information count 0, so
    constant codes lower it; noise in a code counts as information, since binned estimates are never 0. Invariant to the
    order of codes, and to a scale and a shift of each.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
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
    Ridgeway & Mozer 2018, section 3; 20 bins as in Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    information, _, notes = binned_information(z, s, bins, factor_bins)
    squared = np.square(information[s.varies])
    if len(squared) < 2:
        reason = f"{'Only one' if len(squared) else 'No'} factor varies; two are needed."
        undefined = np.full(z.shape[1], np.nan)
        return Modularity(float("nan"), undefined, information, reasons={"modularity": reason}, notes=notes)
    largest = squared.max(0)
    rest = (squared.sum(0) - largest) / np.where(largest > 0, largest, 1.0) / (len(squared) - 1)
    per_code = np.where(largest > 0, 1 - rest, 0.0)
    return Modularity(float(per_code.mean()), per_code, information, reasons={}, notes=notes)
