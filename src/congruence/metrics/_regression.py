"""R2: how much of each factor a linear and a nonlinear regression on all codes explain, on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_choice, check_integer
from congruence.maps.nearness import protocol
from congruence.metrics._estimators import ignore_many_classes, mean_of_finite, pooled_r2, standardise
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS, Factor, note_guessed, read_usable

NONLINEAR = {"boosting": "gradient boosting of histograms", "kernel": "kernel ridge regression"}
KERNEL_ROWS = 4000  # rows a kernel ridge is fitted on at most: its cost grows with their cube
HELD_OUT = 2000  # rows that a nonlinear regression predicts, if there are as many; each fold costs a fit
Predict = Callable[[Float, Float, Float], Float]  # codes and columns to fit on, codes to predict for


@dataclass(frozen=True, eq=False)
class RegressionScores(MetricResult):
    """The share of the factors' variance that codes explain: 1 is all, 0 that of a constant; may be negative."""

    factors: tuple[str, ...]
    linear: Float  # (K,) R2 of each factor, on held-out rows
    nonlinear: Float  # (K,)
    linear_in_sample: Float  # (K,) fitted and scored on the same rows
    r2_linear: float  # means over factors
    r2_nonlinear: float
    r2_linear_in_sample: float

    headline = ("r2_linear", "r2_nonlinear")


def regression(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    nonlinear: str = "boosting",
    folds: int = 5,
    held_out: int = HELD_OUT,
    cluster: Any = None,
    seed: int = 0,
) -> RegressionScores:
    """Regress every factor on all codes, with cross-validation, and score the held-out folds.

    The R2 of a factor of several columns is that of all its columns together: cosine and sine of a circular one, and
    one column of 0 and 1 for each class of a categorical one, where it is the skill of predicted class probabilities
    (Brier) over the class frequencies. The linear one is invariant to any invertible linear map of the codes.

    Parameters
    ----------
    codes : (n, L)
        Learned codes; standardised by the rows that are fitted on.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. Numbers that were only guessed to be classes are used as numbers.
    kinds : str, list or dict as of `read_factors`, default "auto"
    nonlinear : {"boosting", "kernel"}, default "boosting"
        Gradient boosting of histograms with scikit-learn's defaults, or ridge regression with a Gaussian kernel
        (penalty 1, width 1/L, on at most 4000 rows).
    folds : int, default 5
        Folds of the cross-validation.
    held_out : int, default 2000
        Rows on which the nonlinear regression is scored, in whole folds: it is fitted for as many folds as it takes to
        hold out this many rows, or for all (always with clusters, of which a fold may hold few). Every fit has the same
        number of rows, so that the expected score does not depend on it. The linear regression is scored on all folds.
    cluster : (n,), optional
        The cluster of each row; clusters are held out whole.
    seed : int, default 0
        Of the folds and of the boosting.

    References
    ----------
    The in-sample linear R2 is the explicitness of the regression form in Hsu et al. 2023.
    """
    check_choice("nonlinear", nonlinear, tuple(NONLINEAR))
    check_integer("folds", folds, 2)
    check_integer("held_out", held_out, 1)
    z, s, notes = read_usable(codes, factors, kinds)
    r2, scored = np.empty((3, len(s))), len(z)  # linear, nonlinear, linear in sample
    if len(s):
        targets = [_target(factor) for factor in s]
        first = np.cumsum([0, *(target.shape[1] for target in targets)])
        columns = [slice(*ends) for ends in pairwise(first.tolist())]  # of each factor
        y, x = np.hstack(targets), standardise(z)
        parts = protocol(len(z), folds=folds, nulls=0, bootstrap=0, cluster=cluster, seed=seed).folds
        needed = 1 + int(np.searchsorted(np.cumsum([len(part) for part in parts]), held_out))
        if cluster is not None:  # a fold may hold few clusters, and these say little of the others
            needed = len(parts)
        boost = partial(_boost_factors, columns=columns, unordered=[factor.is_unordered for factor in s], seed=seed)
        flexible = partial(_kernel, seed=seed) if nonlinear == "kernel" else boost
        linear, bent = _predict_folds(_linear, z, y, parts), _predict_folds(flexible, z, y, parts[:needed])
        scored = len(bent[0])
        for k, own in enumerate(columns):
            r2[:2, k] = [pooled_r2(y[rows, own], predicted[:, own]) for rows, predicted in (linear, bent)]
        in_sample = _linear(x, y, x)
        r2[2] = [pooled_r2(y[:, own], in_sample[:, own]) for own in columns]
    means = [mean_of_finite(row) for row in r2]
    unordered = [factor.name for factor in s if factor.is_unordered]
    return RegressionScores(
        s.names,
        *r2,
        *means,
        reasons={} if len(s) else dict.fromkeys(RegressionScores.headline, NO_FACTORS),
        notes=(
            *notes,
            *note_guessed(s),
            *note_if(unordered, "R2 of class probabilities"),
            Note(f"The nonlinear regression is {NONLINEAR[nonlinear]}"),
            *([Note(f"The nonlinear regression is scored on {scored} of {len(z)} rows")] if scored < len(z) else []),
        ),
    )


def _target(factor: Factor) -> Float:
    """The columns to be predicted, shape (n, m)."""
    if factor.is_unordered:
        labels = factor.labels()
        return np.equal(labels[:, None], np.arange(labels.max() + 1)).astype(np.float64)
    return factor.columns()[0]


def _predict_folds(predict: Predict, z: Float, y: Float, parts: list[Array]) -> tuple[Array, Float]:
    """The rows of some folds, (m,), and the columns (m, M) predicted for each fold by a fit to all other rows."""
    predicted = []
    for part in parts:
        fitted = np.setdiff1d(np.arange(len(z)), part)
        x = standardise(z, fitted)
        predicted.append(np.broadcast_to(predict(x[fitted], y[fitted], x[part]), (len(part), y.shape[1])))
    return np.concatenate(parts), np.concatenate(predicted)


def _linear(x: Float, y: Float, new: Float) -> Float:
    mean = y.mean(0)
    slopes = np.linalg.lstsq(x, y - mean, rcond=None)[0]  # codes are centred on these rows
    return np.asarray(new @ slopes + mean)


def _boost_factors(
    x: Float, y: Float, new: Float, columns: Sequence[slice], unordered: Sequence[bool], seed: int
) -> Float:
    """Predictions of the columns of each factor: probabilities of unordered classes, else numbers."""
    predicted = np.empty((len(new), y.shape[1]))
    for own, classes in zip(columns, unordered, strict=True):
        predicted[:, own] = (_boost_classes if classes else _boost)(x, y[:, own], new, seed)
    return predicted


def _boost(x: Float, y: Float, new: Float, seed: int) -> Float:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(early_stopping=False, random_state=seed)
    with _one_thread():
        return np.column_stack([model.fit(x, column).predict(new) for column in y.T])


def _boost_classes(x: Float, y: Float, new: Float, seed: int) -> Float:
    """Predicted probabilities of the classes, shape (rows, m)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    labels = y.argmax(1)
    probabilities = np.zeros((len(new), y.shape[1]))
    if not np.ptp(labels):
        probabilities[:, labels[0]] = 1.0
        return probabilities
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    with _one_thread(), ignore_many_classes():
        model.fit(x, labels)
        probabilities[:, model.classes_] = model.predict_proba(new)
    return probabilities


def _one_thread() -> Any:
    """Boost on one thread: on a busy machine two threads took twenty times as long, waiting for each other."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="openmp")


def _kernel(x: Float, y: Float, new: Float, seed: int) -> Float:
    from sklearn.kernel_ridge import KernelRidge

    if len(x) > KERNEL_ROWS:
        some = np.random.default_rng(seed).permutation(len(x))[:KERNEL_ROWS]
        x, y = x[some], y[some]
    mean, deviation = y.mean(0), np.maximum(y.std(0), np.finfo(float).tiny)
    model = KernelRidge(alpha=1.0, kernel="rbf").fit(x, (y - mean) / deviation)
    return np.asarray(model.predict(new) * deviation + mean)
