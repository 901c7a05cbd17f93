"""Explicitness: can a linear classifier on all codes separate the classes of each factor?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics._estimators import fit_logistic, mean_of_finite, standardise
from congruence.metrics._resampling import split_rows
from congruence.metrics._results import MetricResult, note_if
from congruence.metrics.factors import NO_FACTORS, read_usable


@dataclass(frozen=True, eq=False)
class Explicitness(MetricResult):
    """The area under the ROC curve of every factor: 1 is perfect, 0.5 is chance."""

    factors: tuple[str, ...]
    explicitness: float  # mean over factors, on held-out rows
    explicitness_train: float  # the same on the training rows
    train: Float  # (K,) mean over the classes of each factor
    test: Float  # (K,)

    headline = ("explicitness",)


def explicitness(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    factor_bins: int = 10,
    train: Any = None,
    test: Any = 0.3,
    seed: int = 0,
) -> Explicitness:
    """Fit a logistic regression of each factor's classes on all codes, and score each class against the rest.

    Codes are standardised by the training rows, so order, sign, scale and shift of each do not matter. The
    regression has scikit-learn's defaults (L2 penalty, C = 1, 100 iterations). Classes that occur only in the training
    rows or only in the held-out rows are left out of the mean.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
    kinds : str, list or dict as of `read_factors`, default "auto"
    factor_bins : int, default 10
        Equal-width bins of a continuous factor.
    train : row numbers or mask; all that are not held out if None, optional
    test : row numbers, mask or share, default 0.3
        Held-out rows; a share is drawn at random.
    seed : int, default 0
        Of the split.

    References
    ----------
    Ridgeway & Mozer 2018, without their rescaling of 0.5 to 0; as in Locatello et al. 2019.
    """
    z, s, notes = read_usable(codes, factors, kinds)
    fitted, held = split_rows(len(z), train, test, seed)
    x = standardise(z, fitted)
    areas, stopped = np.full((len(s), 2), np.nan), []
    for i, factor in enumerate(s):
        labels = factor.labels(factor_bins)
        if np.ptp(labels[fitted]):
            model, converged = fit_logistic(x[fitted], labels[fitted])
            scores, member = model.predict_proba(x), labels[:, None] == model.classes_  # (n, classes)
            areas[i] = [_mean_area(scores[rows], member[rows]) for rows in (fitted, held)]
            stopped += [] if converged else [factor.name]

    score = mean_of_finite(areas[:, 1])
    reason = "No factor has two classes in both the training and the held-out rows." if len(s) else NO_FACTORS
    unscored = [name for name, area in zip(s.names, areas[:, 1], strict=True) if np.isnan(area)]
    return Explicitness(
        factors=s.names,
        explicitness=score,
        explicitness_train=mean_of_finite(areas[:, 0]),
        train=areas[:, 0],
        test=areas[:, 1],
        reasons={"explicitness": reason} if np.isnan(score) else {},
        notes=(
            *notes,
            *note_if(s.numbers, f"cut into {factor_bins} bins of equal width"),
            *note_if(stopped, "the regression stopped after 100 iterations"),
            *note_if(unscored, "not scored, because the training or the held-out rows have one class only"),
        ),
    )


def _mean_area(scores: Float, member: Array) -> float:
    """The mean over classes of the area under the ROC curve, from the ranks of the scores (Mann & Whitney)."""
    from scipy.stats import rankdata

    inside = member.sum(0)
    outside = len(member) - inside
    both = (inside > 0) & (outside > 0)
    if not both.any():
        return float("nan")
    ranks = (rankdata(scores, axis=0) * member).sum(0)
    area = (ranks - inside * (inside + 1) / 2)[both] / (inside * outside)[both]
    return float(area.mean())
