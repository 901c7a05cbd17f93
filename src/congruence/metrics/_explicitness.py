"""Explicitness: can a linear classifier on all codes separate the classes of each factor?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics.factors import paired
from congruence.metrics.logistic import fit_logistic
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, constant_codes, split_rows, standardised, varying


@dataclass(frozen=True, eq=False)
class Explicitness:
    """The area under the ROC curve of every factor: 1 is perfect, 0.5 is chance."""

    factors: tuple[str, ...]
    explicitness: float  # mean over factors, on rows held out
    explicitness_train: float  # the same on the training rows
    train: Float  # (K,) mean over the classes of each factor
    test: Float  # (K,)
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"explicitness": self.explicitness}


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
    """Fit a logistic regression of each factor's classes on all codes, and measure each class against the rest.

    Codes are standardised by the training rows, so order, sign, scale and shift of each do not matter. The
    regression has scikit-learn's defaults (L2 penalty, C = 1, 100 iterations). Classes that occur on one side of the
    split only are left out of the mean.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, paired with the codes row by row.
    factor_bins : int
        Equal-width bins of a factor that is no class.
    train, test : row numbers, or a share as `test`
        Training rows and held-out rows; see `split_rows`.
    seed : int
        Of the split.

    References
    ----------
    Ridgeway & Mozer 2018, without their rescaling of 0.5 to 0; as in Locatello et al. 2019.
    """
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    learned_from, held = split_rows(len(z), train, test, seed)
    x = standardised(z, learned_from)
    areas, stopped = np.full((len(s), 2), np.nan), []
    for i, factor in enumerate(s):
        labels = factor.labels(factor_bins)
        if np.ptp(labels[learned_from]):
            areas[i], converged = _areas(x, labels, learned_from, held)
            stopped += [] if converged else [factor.name]

    means = [float(np.nanmean(side)) if np.isfinite(side).any() else float("nan") for side in areas.T]
    reasons = {"explicitness": _reason(len(s))} if np.isnan(means[1]) else {}
    binned = [factor.name for factor in s if not factor.is_discrete]
    lost = [name for name, area in zip(s.names, areas[:, 1], strict=True) if np.isnan(area)]
    more = note_if(binned, f"cut into {factor_bins} bins of equal width")
    more += note_if(stopped, "the regression stopped after 100 iterations")
    more += note_if(lost, "not scored, because the training or the held-out rows have one class only")
    return Explicitness(
        factors=s.names,
        explicitness=means[1],
        explicitness_train=means[0],
        train=areas[:, 0],
        test=areas[:, 1],
        reasons=reasons,
        notes=(*s.notes, *notes, *constant_codes(z)[1], *more),
    )


def _reason(factors: int) -> str:
    return "No factor has two classes in both the training and the held-out rows." if factors else NO_FACTORS


def _areas(x: Float, labels: Array, train: Array, test: Array) -> tuple[tuple[float, float], bool]:
    """The mean area on the training rows and on the test rows, and whether the regression converged."""
    model, converged = fit_logistic(x[train], labels[train])
    scores = model.predict_proba(x)  # (n, classes)
    member = labels[:, None] == model.classes_
    return (_area(scores[train], member[train]), _area(scores[test], member[test])), converged


def _area(scores: Float, member: Array) -> float:
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


DECLARED = Metric(
    name="explicitness",
    function=explicitness,
    scores=("explicitness",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift", "factor order", "relabelling"}),
    cost="fast",
    reference="Ridgeway & Mozer 2018",
)
