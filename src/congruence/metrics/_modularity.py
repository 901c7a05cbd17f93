"""Modularity: whether each code encodes one factor only, from binned information (Ridgeway & Mozer 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.metrics.binning import as_classes, binned, cut
from congruence.metrics.factors import paired
from congruence.metrics.information import class_information
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note


@dataclass(frozen=True, eq=False)
class Modularity:
    """The modularity of each code; K factors, L codes."""

    modularity: float  # mean over codes
    per_code: Float  # (L,) 0 for a code without information
    information: Float  # (K, L) nats
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"modularity": self.modularity}


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
    factors : (n, K) array, data frame or mapping from name to column
        Continuous ones are cut into `factor_bins` classes of equal width; `kinds` as in `read_factors`.
    bins : int, or a rule of numpy such as "auto"
        Bins of each code.
    seed : int
        Not used: nothing is random.

    References
    ----------
    Ridgeway & Mozer 2018, section 3; 20 bins as in Locatello et al. 2019.
    """
    z, s = paired(codes, factors, kinds)
    factors_cut = cut(s, factor_bins)
    information = class_information(as_classes(binned(z, bins)), factors_cut.classes)
    used = information[factors_cut.varies]
    score, per_code, reasons = math.nan, np.full(z.shape[1], math.nan), {}
    if len(used) > 1:
        squared = np.square(used)
        largest = squared.max(0)
        rest = (squared.sum(0) - largest) / np.where(largest > 0, largest, 1.0) / (len(used) - 1)
        per_code = np.where(largest > 0, 1 - rest, 0.0)
        score = float(per_code.mean())
    else:
        number = "Only one factor varies" if len(used) else "No factor varies"
        reasons["modularity"] = f"{number}; two are needed."
    return Modularity(score, per_code, information, reasons, factors_cut.notes)


DECLARED = Metric(
    name="modularity",
    function=modularity,
    scores=("modularity",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "scale", "scales", "shift", "factor order", "relabelling"}),
    cost="fast",
    reference="Ridgeway & Mozer 2018",
)
