"""How well a linear readout of codes gives a factor: softmax regression for classes, least squares for numbers."""

from __future__ import annotations

import math

import numpy as np

from congruence.arrays import Array, Float

ITERATIONS = 100  # a cap that matters: readouts of separable classes have not converged by then
BLOCK = 2048  # rows whose logits stay in the cache


def one_hot(classes: Array) -> Float:
    """Every class of every column (n, L) of class numbers as a column of 0 and 1; shape (n, sum of class counts)."""
    return np.column_stack([np.equal.outer(column, np.arange(column.max() + 1)) for column in classes.T]).astype(float)


def log_loss(x: Float, classes: Array, iterations: int = ITERATIONS) -> float:
    """Mean log loss in nats, on the same rows, of a softmax regression of `classes` (n,) on `x` (n, d).

    No penalty, an intercept, classes of equal weight, all from 0, by L-BFGS. Without x it is log(classes).
    """
    from scipy.optimize import minimize

    n, d = x.shape
    count = int(classes.max()) + 1
    with_intercept = np.vstack([x.T, np.ones(n)])  # (d + 1, n)
    weight = n / (count * np.bincount(classes))[classes]

    def objective(flat: Float) -> tuple[float, Float]:
        loss, gradient = _weighted_loss(flat.reshape(count, d + 1), with_intercept, classes, weight)
        return loss, gradient.ravel()

    # The settings, and the sum in place of a mean, are those of scikit-learn 1.3, which the published numbers rest on.
    options = {"maxiter": iterations, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(objective, np.zeros(count * (d + 1)), jac=True, method="L-BFGS-B", options=options)
    return _loss(found.x.reshape(count, d + 1), with_intercept, classes)


def linear_r2(x: Float, targets: Float) -> Float:
    """R2 of each target (n, m) by least squares on `x` (n, d) with an intercept, on the same rows; shape (m,).

    From 0 to 1, higher is better; NaN for a constant target. It is 1 for any target where d + 1 >= n.
    """
    centred, wanted = x - x.mean(0), targets - targets.mean(0)
    left = wanted - centred @ np.linalg.lstsq(centred, wanted, rcond=None)[0]
    total = np.square(wanted).sum(0)
    explained: Float = 1 - np.square(left).sum(0) / np.where(total > 0, total, math.nan)
    return explained


def _weighted_loss(weights: Float, x: Float, classes: Array, weight: Float) -> tuple[float, Float]:
    """Weighted sum of the log losses and its gradient, shape (classes, d + 1)."""
    loss, gradient = 0.0, np.zeros_like(weights)
    for start in range(0, len(classes), BLOCK):
        part = slice(start, start + BLOCK)
        here, rows = classes[part], np.arange(len(classes[part]))
        logits = weights @ x[:, part]  # (classes, rows)
        logits -= logits.max(0)
        true = logits[here, rows]
        share = np.exp(logits, out=logits)
        total = share.sum(0)
        loss += float(weight[part] @ (np.log(total) - true))
        share *= weight[part] / total
        share[here, rows] -= weight[part]
        gradient += share @ x[:, part].T
    return loss, gradient


def _loss(weights: Float, x: Float, classes: Array) -> float:
    """Mean log loss; a share below the rounding of 1 counts as that, so that no row costs more than 36 nats."""
    total, eps = 0.0, float(np.finfo(float).eps)
    for start in range(0, len(classes), BLOCK):
        part = slice(start, start + BLOCK)
        logits = weights @ x[:, part]
        logits -= logits.max(0)
        share = np.exp(logits)
        true = share[classes[part], np.arange(share.shape[1])] / share.sum(0)
        total -= float(np.log(np.clip(true, eps, 1 - eps)).sum())
    return total / len(classes)
