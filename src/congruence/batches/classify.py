"""Gradient-boosted trees that classify treated rows against controls, and the AUROC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._options import ROUNDS
from congruence.errors import InputError

PAPER = {  # Table 6 of Nelson et al. 2026
    "is_unbalance": True,
    "learning_rate": 0.05,
    "num_leaves": 31,
    "feature_fraction": 0.6,
    "reg_alpha": 5.0,
    "reg_lambda": 1.0,
    "min_gain_to_split": 0.8,
    "min_data_in_leaf": 30,
}


@dataclass(frozen=True, eq=False)
class Trees:
    """Fitted trees, with the split count and gain of each feature."""

    booster: Any
    splits: Array  # (d,) how many splits used each feature
    gain: Float  # (d,) total gain of these splits

    def score(self, x: Array) -> Float:
        """Log odds of being treated, (n,)."""
        return np.asarray(self.booster.predict(x, raw_score=True, num_threads=1), dtype=np.float64)


def fit_trees(x: Array, positive: Array, *, rounds: int = ROUNDS, seed: int = 0) -> Trees:
    """Train LightGBM with the paper's settings on rows x (n, d) and labels (n,) of bool; one thread, deterministic."""
    import lightgbm

    settings = PAPER | {
        "objective": "binary",
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(x, positive.astype(np.float64), params={"verbosity": -1, "num_threads": 1})
    booster = lightgbm.train(settings, data, num_boost_round=rounds)
    return Trees(booster, booster.feature_importance("split"), booster.feature_importance("gain"))


def auroc(positive: Array, score: Array) -> float:
    """Area under the receiver operating characteristic: the probability that a positive row scores above a negative.

    From 0 to 1. Ties count half, so a constant score has 0.5. Invariant to increasing functions of the
    score; a decreasing function returns 1 minus it. NaN if all rows are positive or none is.
    """
    positive = np.asarray(positive, dtype=bool)
    if positive.shape != np.shape(score):
        raise InputError(f"positive has shape {positive.shape}, but score has shape {np.shape(score)}")
    from scipy.stats import rankdata

    many, others = int(positive.sum()), int((~positive).sum())
    if not many or not others:
        return float("nan")
    ranks = rankdata(score)[positive].sum()
    return float((ranks - many * (many + 1) / 2) / (many * others))


def auroc_by_unit(positive: Array, score: Array, unit: Array, units: int) -> Float:
    """What each unit (batch) contributes to the AUROC, (units,): their sum is the AUROC; NaN for units without rows.

    Each unit has an equal share of the AUROC, plus the deviations of the placement values of its rows: a linear
    approximation, whose variance over units is that of the AUROC of clustered rows (Obuchowski 1997).
    """
    from scipy.stats import rankdata

    value, many, others = auroc(positive, score), int(positive.sum()), int((~positive).sum())
    here = np.bincount(unit, minlength=units) > 0
    if not many or not others:
        return np.full(units, np.nan)
    ranks = rankdata(score)
    above, below = ranks[positive] - rankdata(score[positive]), ranks[~positive] - rankdata(score[~positive])
    placement = np.empty(len(score))
    placement[positive], placement[~positive] = (above / others - value) / many, (1 - below / many - value) / others
    parts = np.bincount(unit, placement, minlength=units) + value / here.sum()
    return np.where(here, parts, np.nan)


def auroc_within(positive: Array, score: Array, batch: Array) -> float:
    """The mean AUROC within batches, weighted by their positives: differences between batches have no effect."""
    values, weights = [], []
    for number in np.unique(batch[np.asarray(positive, dtype=bool)]):
        rows = batch == number
        value = auroc(positive[rows], score[rows])
        if value == value:
            values.append(value)
            weights.append(int(positive[rows].sum()))
    return float(np.average(values, weights=weights)) if values else float("nan")
