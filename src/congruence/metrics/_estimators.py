"""Standardised columns, R2, and the linear and logistic regressions that several metrics fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from congruence.arrays import Array, Float

GRADIENT = 1e-4  # of the sum over rows, at which the reference's logistic regression stopped
ITERATIONS = 100  # a cap that matters: readouts of separable classes have not converged by then
BLOCK = 2048  # rows whose logits stay in the cache


def standardise(z: Float, rows: Array | slice = slice(None)) -> Float:
    """Columns (n, L) of mean 0 and standard deviation 1 over some rows; a constant column becomes 0."""
    centred = z - z[rows].mean(0)
    deviation = centred[rows].std(0)
    live = deviation > 4 * np.finfo(np.float64).eps * np.abs(z).max(0)  # below this it is the rounding of a constant
    scaled: Float = np.where(live, centred / np.where(live, deviation, 1.0), 0.0)
    return scaled


def mean_of_finite(values: Float) -> float:
    """The mean of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def pooled_r2(y: Float, predicted: Float) -> float:
    """R2 of all columns (n, m) together; NaN where all are constant."""
    total = np.square(y - y.mean(0)).sum()
    return float(1 - np.square(y - predicted).sum() / total) if total > 0 else float("nan")


def column_r2(y: Float, predicted: Float) -> Float:
    """R2 of each column (n, m), shape (m,); NaN for a constant column."""
    total = np.square(y - y.mean(0)).sum(0)
    explained: Float = 1 - np.square(y - predicted).sum(0) / np.where(total > 0, total, np.nan)
    return explained


def linear_r2(x: Float, targets: Float) -> Float:
    """R2 of each target (n, m) by least squares on `x` (n, d) with an intercept, on the same rows; shape (m,).

    From 0 to 1, higher is better; NaN for a constant target. It is 1 for any target where d + 1 >= n.
    """
    centred, wanted = x - x.mean(0), targets - targets.mean(0)
    return column_r2(wanted, centred @ np.linalg.lstsq(centred, wanted, rcond=None)[0])


@contextmanager
def ignore_many_classes() -> Iterator[None]:
    """Silence scikit-learn's warning that so many classes may be numbers: that was decided before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes")
        yield


def fit_logistic(x: Float, y: Array) -> tuple[Any, bool]:
    """Fit scikit-learn's `LogisticRegression` (L2 penalty, C = 1, 100 iterations); also return whether it converged.

    Since version 1.4 scikit-learn compares the mean of the gradient over rows with the tolerance, and no longer its
    sum. The tolerance here is that of the sum, so that any version gives the numbers of the older ones.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with ignore_many_classes(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(tol=GRADIENT / len(x)).fit(x, y)
    return model, not caught


def one_hot(classes: Array) -> Any:
    """Every class of every column (n, L) of class numbers as a column of 0 and 1; (n, sum of class counts), sparse."""
    from scipy.sparse import csr_array

    n, width = classes.shape
    counts = classes.max(0) + 1
    columns = classes + np.concatenate([[0], np.cumsum(counts)[:-1]])
    return csr_array((np.ones(n * width), columns.ravel(), np.arange(0, n * width + 1, width)), (n, int(counts.sum())))


def log_loss(x: Any, classes: Array, iterations: int = ITERATIONS) -> float:
    """Mean log loss in nats, on the same rows, of a softmax regression of `classes` (n,) on `x` (n, d), or sparse.

    No penalty, an intercept, classes of equal weight, all from 0, by L-BFGS. With constant x it is log(classes).
    """
    from scipy.optimize import minimize

    n, counts = len(classes), np.bincount(classes)
    inputs = _with_intercept(x)
    weight = n / (len(counts) * counts)[classes]
    # The constant part of the gradient, (C, d + 1): weighted sums of the inputs of each class.
    own = np.array([inputs[:, classes == c] @ weight[classes == c] for c in range(len(counts))])
    blocks = [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
    parts = [inputs[:, block] for block in blocks]
    # Where the logit of a row's own class is, in the flat logits (C, rows) of its block.
    places = [classes[block] * (block.stop - block.start) + np.arange(block.stop - block.start) for block in blocks]

    def objective(flat: Float) -> tuple[float, Float]:
        loss, gradient = 0.0, -own
        for block, part, place in zip(blocks, parts, places, strict=True):
            share, true, total = _exponentials(flat.reshape(own.shape), part, place)
            loss += float(weight[block] @ (np.log(total) - true))
            share *= weight[block] / total
            gradient += share @ part.T
        return loss, gradient.ravel()

    # The settings, and the sum instead of a mean, are those of scikit-learn 1.3, which the published numbers rest on.
    options = {"maxiter": iterations, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    fitted = minimize(objective, np.zeros(own.size), jac=True, method="L-BFGS-B", options=options)
    loss, eps = 0.0, float(np.finfo(float).eps)  # a share below eps counts as eps: no row costs more than 36 nats
    for part, place in zip(parts, places, strict=True):
        _, true, total = _exponentials(fitted.x.reshape(own.shape), part, place)
        loss -= float(np.log(np.clip(np.exp(true) / total, eps, 1 - eps)).sum())
    return loss / n


def _with_intercept(x: Any) -> Any:
    """Inputs as columns, (d + 1, n), with a last row of ones; sparse where x is."""
    if not hasattr(x, "tocsc"):
        return np.vstack([x.T, np.ones(len(x))])
    from scipy.sparse import csc_array, vstack

    return csc_array(vstack([x.T, np.ones((1, x.shape[0]))]))


def _exponentials(weights: Float, x: Any, place: Array) -> tuple[Float, Float, Float]:
    """Exponentials of the logits (C, rows) less the largest in each column; the logits of the own class; the sums."""
    logits = np.ascontiguousarray(weights @ x)
    logits -= logits.max(0)
    true = logits.ravel().take(place)
    share = np.exp(logits, out=logits)
    return share, true, share.sum(0)
