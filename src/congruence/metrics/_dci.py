"""DCI: does each code serve one factor, is each factor in one code, and can the factors be predicted at all?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_choice, require
from congruence.metrics._estimators import ignore_many_classes, mean_of_finite, pooled_r2, standardise
from congruence.metrics._resampling import split_rows
from congruence.metrics._results import MetricResult, note_if
from congruence.metrics.factors import NO_FACTORS, Factor, read_usable

MODELS = ("boosting", "forest", "lightgbm")
FOREST_TEST, FOREST_SPLIT = 0.1, 42  # share held out and seed of the split, as in the reference of the forest
FLOOR = 1e-11  # added to importances before their entropy, as in the reference
ONE_THREAD = 10**6  # numbers up to which LightGBM is fastest on one thread


@dataclass(frozen=True, eq=False)
class DCI(MetricResult):
    """Disentanglement, completeness and informativeness, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the rows of `importance`
    importance: Float  # (K, L) how much each code was used for each factor; rows sum to 1, or to 0
    disentanglement: float  # codes that serve one factor only, weighted by how much they are used
    completeness: float  # factors that one code alone serves
    informativeness_train: float  # mean over factors of accuracy (classes) or R2 (numbers)
    informativeness_test: float  # the same on held-out rows
    per_code: Float  # (L,) disentanglement of each code
    per_factor: Float  # (K,) completeness of each factor
    train: Float  # (K,) accuracy or R2 of each factor
    test: Float  # (K,) the same on held-out rows

    @property
    def scores(self) -> dict[str, float]:
        """The headline scores."""
        return {
            "dci_disentanglement": self.disentanglement,
            "dci_completeness": self.completeness,
            "dci_informativeness": self.informativeness_test,
        }


def dci(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    model: str = "boosting",
    train: Any = None,
    test: Any = None,
    seed: int = 0,
) -> DCI:
    """Predict each factor from all codes with trees, and measure how the use of codes is distributed.

    Invariant to order, sign, scale and shift of the codes and to the names of classes, as far as ties between splits
    allow. It depends on the model: compare only values of the same one. A forest tries a random part of the codes at
    each split, so that even codes that are the factors stay well below 1.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. Classes are predicted by classifiers and scored by accuracy. Numbers are predicted by regressors
        and scored by R2, 0 if it is negative (a circular one through its cosine and sine): an extension, the
        reference has none.
    kinds : str, list or dict as of `read_factors`, default "auto"
    model : {"boosting", "forest", "lightgbm"}, default "boosting"
        Gradient boosting with scikit-learn's defaults (the reference; slow), a random forest of 100 trees of depth 10
        by entropy (10 % held out by split seed 42), or the boosting of LightGBM (`congruence[lightgbm]`; fast).
    train : row numbers or mask; all that are not held out if None, optional
    test : row numbers, mask or share, optional
        Held-out rows; by default 30 % are drawn at random (10 % for the forest).
    seed : int, default 0
        Of the split and of the trees.

    Returns
    -------
    DCI
        Disentanglement is NaN for one factor, completeness for one code.

    References
    ----------
    Eastwood & Williams 2018; boosting as in Locatello et al. 2019, the forest as in Hsu et al. 2024.
    """
    check_model(model)
    z, s, notes = read_usable(codes, factors, kinds)
    importance, scores = np.zeros((len(s), z.shape[1])), np.full((2, len(s)), np.nan)
    if len(s):
        default, split_seed = (FOREST_TEST, FOREST_SPLIT) if model == "forest" else (0.3, seed)
        fitted, held = split_rows(len(z), train, default if test is None else test, split_seed)
        x = standardise(z)  # trees do not need it, but scikit-learn's keep only seven digits
        for k, factor in enumerate(s):
            importance[k], scores[:, k] = _predict(model, x, factor, fitted, held, seed)
    per_code, per_factor = _one_minus_entropy(importance.T), _one_minus_entropy(importance)
    use = importance if importance.any() else np.ones_like(importance)
    informativeness = mean_of_finite(scores[1])
    unscored = [name for name, score in zip(s.names, scores[1], strict=True) if np.isnan(score)]
    return DCI(
        factors=s.names,
        importance=importance,
        disentanglement=float(per_code @ use.sum(0) / use.sum()) if len(s) else math.nan,
        completeness=float(per_factor @ use.sum(1) / use.sum()) if len(s) else math.nan,
        informativeness_train=mean_of_finite(scores[0]),
        informativeness_test=informativeness,
        per_code=per_code,
        per_factor=per_factor,
        train=scores[0],
        test=scores[1],
        reasons=_reasons(importance, informativeness),
        notes=(
            *notes,
            *note_if(s.numbers, "predicted by regression and scored by R2"),
            *note_if(unscored, "not scored, because it is constant in the training or the held-out rows"),
        ),
    )


def check_model(model: str, name: str = "model") -> None:
    """Refuse, before any work, a model that is unknown or not installed."""
    if check_choice(name, model, MODELS) == "lightgbm":
        require("lightgbm", "model 'lightgbm'", "lightgbm")


def _predict(model: str, z: Float, factor: Factor, train: Array, test: Array, seed: int) -> tuple[Float, list[float]]:
    """How much each code was used to predict a factor, (L,), and the score on training rows and on held-out rows.

    The importance sums to 1, or to 0 where the trees found no split. A class that is not among the training rows is
    predicted wrongly.
    """
    if factor.is_discrete:
        labels = factor.labels()
        if not np.ptp(labels[train]):
            return np.zeros(z.shape[1]), [math.nan, math.nan]
        classes, y = np.unique(labels[train], return_inverse=True)
        predict, importance = _fit(model, z[train], y.reshape(-1), len(classes), seed)
        right = classes[predict(z)] == labels
        return importance, [float(right[rows].mean()) for rows in (train, test)]
    columns = factor.coordinates()
    if not np.ptp(columns[train], 0).any():
        return np.zeros(z.shape[1]), [math.nan, math.nan]
    fits = [_fit(model, z[train], column[train], 0, seed) for column in columns.T]
    predicted = np.column_stack([predict(z) for predict, _ in fits])
    scores = [pooled_r2(columns[rows], predicted[rows]) for rows in (train, test)]
    return np.mean([importance for _, importance in fits], axis=0), [max(score, 0.0) for score in scores]


def _one_minus_entropy(importance: Float) -> Float:
    """1 - the entropy of each row (m, k), in units of log k: 1 for all in one place, 0 for evenly spread."""
    k = importance.shape[1]
    if k < 2:
        return np.full(len(importance), np.nan)
    share = importance + FLOOR
    share = share / share.sum(1, keepdims=True)
    even: Float = 1 + (share * np.log(share)).sum(1) / np.log(k)
    return np.maximum(even, 0.0)


def _reasons(importance: Float, informativeness: float) -> dict[str, str]:
    if not len(importance):
        return dict.fromkeys(("dci_disentanglement", "dci_completeness", "dci_informativeness"), NO_FACTORS)
    reasons = {}
    if importance.shape[0] == 1:
        reasons["dci_disentanglement"] = "There is only one factor."
    if importance.shape[1] == 1:
        reasons["dci_completeness"] = "There is only one code."
    if np.isnan(informativeness):
        reasons["dci_informativeness"] = "No factor varies in both the training rows and the held-out rows."
    return reasons


def _fit(model: str, x: Float, y: Array, classes: int, seed: int) -> tuple[Callable[[Float], Array], Float]:
    """Fit classes (n,), or numbers for `classes` 0; a function (n, L) -> (n,) that predicts, and the importances."""
    if model == "lightgbm":
        return _fit_lightgbm(x, y, classes, seed)
    from sklearn import ensemble

    if model == "boosting":
        boosting = ensemble.GradientBoostingClassifier if classes else ensemble.GradientBoostingRegressor
        estimator: Any = boosting(random_state=seed)
    elif classes:
        estimator = ensemble.RandomForestClassifier(100, criterion="entropy", max_depth=10, random_state=seed)
    else:
        estimator = ensemble.RandomForestRegressor(100, max_depth=10, random_state=seed)
    with ignore_many_classes():
        estimator.fit(x, y)
    return estimator.predict, estimator.feature_importances_


def _fit_lightgbm(x: Float, y: Array, classes: int, seed: int) -> tuple[Callable[[Float], Array], Float]:
    """Boosting as in scikit-learn's defaults (100 rounds, rate 0.1, depth 3), on histograms of the codes."""
    lightgbm = require("lightgbm", "model 'lightgbm'", "lightgbm")
    objective = {0: "regression", 2: "binary"}.get(classes, "multiclass")
    settings = {
        "objective": objective,
        "learning_rate": 0.1,
        "max_depth": 3,
        "num_leaves": 8,
        "min_data_in_leaf": 1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1 if x.size <= ONE_THREAD else 0,
        "seed": seed,
        "verbosity": -1,
    } | ({"num_class": classes} if objective == "multiclass" else {})
    booster = lightgbm.train(settings, lightgbm.Dataset(x, y), num_boost_round=100)
    gain = booster.feature_importance("gain")

    def predict(rows: Float) -> Array:
        score = booster.predict(rows)
        if objective == "multiclass":
            return np.asarray(score.argmax(1))
        return (score > 0.5).astype(int) if objective == "binary" else np.asarray(score)

    return predict, gain / max(gain.sum(), np.finfo(float).tiny)
