"""How well a linear readout of codes gives a factor: softmax regression for classes, least squares for numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

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

    rows = _rows(x, classes)

    def objective(flat: Float) -> tuple[float, Float]:
        loss, gradient = _weighted_loss(flat.reshape(rows.own.shape), rows)
        return loss, gradient.ravel()

    # The settings, and the sum in place of a mean, are those of scikit-learn 1.3, which the published numbers rest on.
    options = {"maxiter": iterations, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(objective, np.zeros(rows.own.size), jac=True, method="L-BFGS-B", options=options)
    return _mean_loss(found.x.reshape(rows.own.shape), rows)


def linear_r2(x: Float, targets: Float) -> Float:
    """R2 of each target (n, m) by least squares on `x` (n, d) with an intercept, on the same rows; shape (m,).

    From 0 to 1, higher is better; NaN for a constant target. It is 1 for any target where d + 1 >= n.
    """
    centred, wanted = x - x.mean(0), targets - targets.mean(0)
    left = wanted - centred @ np.linalg.lstsq(centred, wanted, rcond=None)[0]
    total = np.square(wanted).sum(0)
    explained: Float = 1 - np.square(left).sum(0) / np.where(total > 0, total, math.nan)
    return explained


@dataclass(frozen=True, eq=False)
class _Rows:
    """What a softmax regression needs of its rows; d inputs, C classes."""

    x: Float  # (d + 1, n) inputs, and 1 for the intercept
    weight: Float  # (n,) so that every class weighs the same
    place: Array  # (n,) where the logit of a row's own class is, in the flat logits (C, rows) of its block
    own: Float  # (C, d + 1) weighted sums of the inputs of each class: the constant part of the gradient

    @property
    def blocks(self) -> list[slice]:
        return [slice(start, start + BLOCK) for start in range(0, len(self.weight), BLOCK)]


def _rows(x: Float, classes: Array) -> _Rows:
    n, counts = len(x), np.bincount(classes)
    with_intercept = np.vstack([x.T, np.ones(n)])
    weight = n / (len(counts) * counts)[classes]
    row = np.arange(n)
    width = np.minimum(BLOCK, n - row // BLOCK * BLOCK)  # the last block may be narrower
    own = [(with_intercept[:, classes == c] * weight[classes == c]).sum(1) for c in range(len(counts))]
    return _Rows(with_intercept, weight, classes * width + row % BLOCK, np.array(own))


def _weighted_loss(weights: Float, rows: _Rows) -> tuple[float, Float]:
    """Weighted sum of the log losses and its gradient, shape (C, d + 1)."""
    loss, gradient = 0.0, -rows.own
    for part in rows.blocks:
        share, true, total = _exponentials(weights, rows, part)
        loss += float(rows.weight[part] @ (np.log(total) - true))
        share *= rows.weight[part] / total
        gradient += share @ rows.x[:, part].T
    return loss, gradient


def _exponentials(weights: Float, rows: _Rows, part: slice) -> tuple[Float, Float, Float]:
    """Exponentials of the logits (C, rows) less the largest in each column; the logits of the own class; the sums."""
    logits = weights @ rows.x[:, part]
    logits -= logits.max(0)
    true = logits.ravel().take(rows.place[part])
    share = np.exp(logits, out=logits)
    return share, true, share.sum(0)


def _mean_loss(weights: Float, rows: _Rows) -> float:
    """Mean log loss; a share below the rounding of 1 counts as that, so that no row costs more than 36 nats."""
    total, eps = 0.0, float(np.finfo(float).eps)
    for part in rows.blocks:
        _, true, sums = _exponentials(weights, rows, part)
        total -= float(np.log(np.clip(np.exp(true) / sums, eps, 1 - eps)).sum())
    return total / len(rows.weight)
