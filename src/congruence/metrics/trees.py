"""Trees that predict one factor from all codes, and say how much they used each code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError, MissingDependencyError
from congruence.metrics.varying import many_classes

MODELS = ("boosting", "forest", "lightgbm")
ONE_THREAD = 10**6  # numbers up to which LightGBM is quickest on one thread


@dataclass(frozen=True, eq=False)
class Learned:
    """How much trees used each code, and how well they predicted."""

    importance: Float  # (L,) sums to 1, or to 0 where the trees found no split
    train: float  # accuracy of classes, R2 of numbers
    test: float


def check_model(model: str) -> None:
    """Refuse, before any work, a model that is not known or not installed."""
    if model not in MODELS:
        raise InputError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if model == "lightgbm":
        _lightgbm()


def learn_classes(model: str, z: Float, labels: Array, train: Array, test: Array, seed: int) -> Learned:
    """Predict classes (n,); scored by accuracy. A class that is not among the training rows is predicted wrongly."""
    classes, y = np.unique(labels[train], return_inverse=True)
    fitted = _fit(model, z[train], y.reshape(-1), len(classes), seed)
    predicted = classes[fitted.predict(z)]
    right = predicted == labels
    return Learned(fitted.importance, float(right[train].mean()), float(right[test].mean()))


def learn_numbers(model: str, z: Float, columns: Float, train: Array, test: Array, seed: int) -> Learned:
    """Predict columns of numbers (n, m), one model each; scored by R2 over all columns, 0 where it is negative."""
    fitted = [_fit(model, z[train], column[train], 0, seed) for column in columns.T]
    predicted = np.column_stack([one.predict(z) for one in fitted])
    importance = np.mean([one.importance for one in fitted], axis=0)
    scores = [_r2(columns[rows], predicted[rows]) for rows in (train, test)]
    return Learned(importance, *scores)


def _r2(true: Float, predicted: Float) -> float:
    total = np.square(true - true.mean(0)).sum()
    return max(0.0, float(1 - np.square(true - predicted).sum() / total)) if total > 0 else float("nan")


@dataclass(frozen=True, eq=False)
class _Fitted:
    predict: Any  # (n, L) -> (n,): numbers of classes, or values
    importance: Float


def _fit(model: str, x: Float, y: Array, classes: int, seed: int) -> _Fitted:
    """Fit one model; `classes` is their number, 0 for numbers."""
    if model == "lightgbm":
        return _fit_lightgbm(x, y, classes, seed)
    estimator = _estimator(model, classes > 0, seed)
    with many_classes():
        estimator.fit(x, y)
    return _Fitted(estimator.predict, estimator.feature_importances_)


def _estimator(model: str, classes: bool, seed: int) -> Any:
    from sklearn import ensemble

    if model == "boosting":
        kind = ensemble.GradientBoostingClassifier if classes else ensemble.GradientBoostingRegressor
        return kind(random_state=seed)
    if classes:
        return ensemble.RandomForestClassifier(100, criterion="entropy", max_depth=10, random_state=seed)
    return ensemble.RandomForestRegressor(100, max_depth=10, random_state=seed)


def _fit_lightgbm(x: Float, y: Array, classes: int, seed: int) -> _Fitted:
    """Boosting as in scikit-learn's defaults (100 rounds, rate 0.1, depth 3), on histograms of the codes."""
    lightgbm = _lightgbm()
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

    return _Fitted(predict, gain / max(gain.sum(), np.finfo(float).tiny))


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingDependencyError("model 'lightgbm' needs LightGBM: pip install 'congruence[lightgbm]'") from error
    return lightgbm
