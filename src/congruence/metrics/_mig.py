"""Mutual information gap (MIG): how far the best code for a factor is ahead of the next one (Chen et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.metrics.binning import as_classes, binned, cut
from congruence.metrics.factors import paired
from congruence.metrics.information import class_information, entropy
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note


@dataclass(frozen=True, eq=False)
class InformationGap:
    """The gap of each factor; K factors, L codes."""

    mig: float  # mean over factors
    gaps: Float  # (K,) NaN for a factor that is left out
    information: Float  # (K, L) nats
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"mig": self.mig}


def mig(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int | str = 20, factor_bins: int = 10, seed: int = 0
) -> InformationGap:
    """Mutual information gap: mean over factors of (largest - second largest information of a code) / entropy.

    From 0 to 1, higher is better: 1 if one code, and no other, determines each factor. It does not see
    whether a code also encodes other factors. Codes are cut into bins of equal width, so the number depends on
    `bins`: see `sensitivity`. Invariant to the order of codes, and to a scale and a shift of each.

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
    Chen et al. 2018, eq. 6; 20 bins as in Locatello et al. 2019.
    """
    z, s = paired(codes, factors, kinds)
    classes = cut(s, factor_bins)
    information = class_information(as_classes(binned(z, bins)), classes.classes)
    gaps = np.full(len(s), math.nan)
    if z.shape[1] > 1 and classes.varies.any():
        ordered = np.sort(information[classes.varies], axis=1)
        gaps[classes.varies] = (ordered[:, -1] - ordered[:, -2]) / entropy(classes.classes[:, classes.varies])
    score = float(gaps[classes.varies].mean()) if classes.varies.any() else math.nan
    reason = "There is only one code; two are needed." if classes.varies.any() else "No factor varies."
    return InformationGap(score, gaps, information, {"mig": reason} if math.isnan(score) else {}, classes.notes)


DECLARED = Metric(
    name="mig",
    function=mig,
    scores=("mig",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "scale", "scales", "shift", "factor order", "relabelling"}),
    cost="fast",
    reference="Chen et al. 2018",
)
