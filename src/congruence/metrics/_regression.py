"""R2: how much of each factor a linear and a nonlinear regression on all codes explain, on rows held out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.maps.nearness import protocol
from congruence.metrics.columns import AS_NUMBERS, has_no_order
from congruence.metrics.factors import Factor, Factors, paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, constant_codes, many_classes, standardised, varying

NONLINEAR = ("boosting", "kernel")
KERNEL_ROWS = 4000  # rows a kernel ridge is fitted on at most: its cost grows with their cube
Predict = Callable[[Float, Float, Float], Float]  # codes and columns to fit on, codes to predict for


@dataclass(frozen=True, eq=False)
class Regression:
    """The share of the factors' variance that codes explain: 1 is all, 0 what a constant explains, may be negative."""

    factors: tuple[str, ...]
    linear: Float  # (K,) R2 of each factor, on rows held out
    nonlinear: Float  # (K,)
    linear_in_sample: Float  # (K,) fitted and scored on the same rows
    r2_linear: float  # means over factors
    r2_nonlinear: float
    r2_linear_in_sample: float
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline numbers."""
        return {"r2_linear": self.r2_linear, "r2_nonlinear": self.r2_nonlinear}


def regression(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    nonlinear: str = "boosting",
    folds: int = 5,
    cluster: Any = None,
    seed: int = 0,
) -> Regression:
    """Regress every factor on all codes, in turn without each fold, and score the folds.

    The R2 of a factor of several columns is that of all its columns together: cosine and sine of a circular one, and
    one column of 0 and 1 for each class of a categorical one, where it is the skill of predicted class probabilities
    (Brier) over the class frequencies. The linear one is invariant to any invertible linear map of the codes.

    Parameters
    ----------
    codes : (n, L)
        Learned codes; standardised by the rows that are fitted on.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. Numbers that were only guessed to be classes are taken as numbers.
    nonlinear : {"boosting", "kernel"}
        Gradient boosting of histograms with scikit-learn's defaults, or ridge regression with a Gaussian kernel
        (penalty 1, width 1/L, on at most 4000 rows).
    folds : int
        Parts that are held out in turn.
    cluster : (n,), optional
        Which rows belong together: they are held out together.
    seed : int
        Of the folds and of the boosting.

    References
    ----------
    The in-sample linear R2 is the explicitness of the regression form in Hsu et al. 2023.
    """
    if nonlinear not in NONLINEAR:
        raise InputError(f"nonlinear must be one of {', '.join(NONLINEAR)}, not {nonlinear!r}")
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise InputError(f"folds must be a whole number of at least 2, not {folds!r}")
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    notes = (*s.notes, *notes, *constant_codes(z)[1], *_notes(s, nonlinear))
    if not len(s):
        nan, none = float("nan"), np.zeros(0)
        reasons = dict.fromkeys(("r2_linear", "r2_nonlinear"), NO_FACTORS)
        return Regression((), none, none, none, nan, nan, nan, reasons, notes)

    parts = protocol(len(z), folds=folds, nulls=0, bootstrap=0, cluster=cluster, seed=seed).folds
    targets = [_target(factor) for factor in s]
    linear = np.array([_held_out(_linear, z, y, parts) for y in targets])
    inside = np.array([_r2(y, _linear(standardised(z), y, standardised(z))) for y in targets])
    ways = [_bent(nonlinear, has_no_order(factor), seed) for factor in s]
    bent = np.array([_held_out(way, z, y, parts) for way, y in zip(ways, targets, strict=True)])
    return Regression(
        factors=s.names,
        linear=linear,
        nonlinear=bent,
        linear_in_sample=inside,
        r2_linear=float(linear.mean()),
        r2_nonlinear=float(bent.mean()),
        r2_linear_in_sample=float(inside.mean()),
        reasons={},
        notes=notes,
    )


def _target(factor: Factor) -> Float:
    """The columns to be predicted, shape (n, m)."""
    if factor.kind == "circular":
        return factor.coordinates()
    if has_no_order(factor):
        labels = factor.labels()
        return np.equal(labels[:, None], np.arange(labels.max() + 1)).astype(np.float64)
    return factor.values[:, None]


def _held_out(predict: Predict, z: Float, y: Float, parts: list[Array]) -> float:
    predicted = np.empty_like(y)
    for part in parts:
        fitted = np.setdiff1d(np.arange(len(z)), part)
        x = standardised(z, fitted)
        predicted[part] = predict(x[fitted], y[fitted], x[part])
    return _r2(y, predicted)


def _r2(y: Float, predicted: Float) -> float:
    return float(1 - np.square(y - predicted).sum() / np.square(y - y.mean(0)).sum())


def _linear(x: Float, y: Float, new: Float) -> Float:
    mean = y.mean(0)
    slopes = np.linalg.lstsq(x, y - mean, rcond=None)[0]  # codes are centred on these rows
    return np.asarray(new @ slopes + mean)


def _bent(nonlinear: str, classes: bool, seed: int) -> Predict:
    if nonlinear == "kernel":
        return partial(_kernel, seed=seed)
    return partial(_class_probabilities if classes else _boosted, seed=seed)


def _boosted(x: Float, y: Float, new: Float, seed: int) -> Float:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(early_stopping=False, random_state=seed)
    with _one_thread():
        return np.column_stack([model.fit(x, column).predict(new) for column in y.T])


def _class_probabilities(x: Float, y: Float, new: Float, seed: int) -> Float:
    from sklearn.ensemble import HistGradientBoostingClassifier

    labels = y.argmax(1)
    found = np.zeros((len(new), y.shape[1]))
    if not np.ptp(labels):
        found[:, labels[0]] = 1.0
        return found
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    with _one_thread(), many_classes():
        model.fit(x, labels)
        found[:, model.classes_] = model.predict_proba(new)
    return found


def _one_thread() -> AbstractContextManager[Any]:
    """Boost on one thread: on a busy machine two were seen to take twenty times as long, waiting for each other."""
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(1, user_api="openmp")
    return limited


def _kernel(x: Float, y: Float, new: Float, seed: int) -> Float:
    from sklearn.kernel_ridge import KernelRidge

    if len(x) > KERNEL_ROWS:
        some = np.random.default_rng(seed).permutation(len(x))[:KERNEL_ROWS]
        x, y = x[some], y[some]
    mean, deviation = y.mean(0), np.maximum(y.std(0), np.finfo(float).tiny)
    model = KernelRidge(alpha=1.0, kernel="rbf").fit(x, (y - mean) / deviation)
    return np.asarray(model.predict(new) * deviation + mean)


def _notes(s: Factors, nonlinear: str) -> tuple[Note, ...]:
    guessed = [f.name for f in s if f.kind == "categorical" and f.note and len(np.unique(f.values)) > 2]
    classes = [f.name for f in s if has_no_order(f)]
    notes = note_if(guessed, AS_NUMBERS) + note_if(classes, "R2 of class probabilities")
    names = {"boosting": "gradient boosting of histograms", "kernel": "kernel ridge regression"}
    return (*notes, Note(f"The nonlinear regression is {names[nonlinear]}"))


DECLARED = Metric(
    name="regression",
    function=regression,
    scores=("r2_linear", "r2_nonlinear"),
    range=(-np.inf, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift", "factor order"}),
    cost="minutes",
    reference="Hsu et al. 2023",
)
