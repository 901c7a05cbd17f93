"""How well a linear readout of codes gives a factor: softmax regression for classes, least squares for numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float

ITERATIONS = 100  # a cap that matters: readouts of separable classes have not converged by then
BLOCK = 2048  # rows whose logits stay in the cache


def one_hot(classes: Array) -> Any:
    """Every class of every column (n, L) of class numbers as a column of 0 and 1; (n, sum of class counts), sparse.

    The latents of a VQ-VAE have 512 classes each: of a row's thousands of numbers, as few as it has latents are 1.
    """
    from scipy.sparse import csr_array

    n, width = classes.shape
    counts = classes.max(0) + 1
    columns = classes + np.concatenate([[0], np.cumsum(counts)[:-1]])
    return csr_array((np.ones(n * width), columns.ravel(), np.arange(0, n * width + 1, width)), (n, int(counts.sum())))


def log_loss(x: Any, classes: Array, iterations: int = ITERATIONS) -> float:
    """Mean log loss in nats, on the same rows, of a softmax regression of `classes` (n,) on `x` (n, d), or sparse.

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

    parts: tuple[Any, ...]  # (d + 1, rows) each: inputs, and 1 for the intercept, of a block of rows
    weight: Float  # (n,) so that every class weighs the same
    place: Array  # (n,) where the logit of a row's own class is, in the flat logits (C, rows) of its block
    own: Float  # (C, d + 1) weighted sums of the inputs of each class: the constant part of the gradient

    @property
    def blocks(self) -> list[slice]:
        return [slice(start, start + BLOCK) for start in range(0, len(self.weight), BLOCK)]


def _rows(x: Any, classes: Array) -> _Rows:
    n, counts = len(classes), np.bincount(classes)
    with_intercept = _with_intercept(x)
    weight = n / (len(counts) * counts)[classes]
    row = np.arange(n)
    width = np.minimum(BLOCK, n - row // BLOCK * BLOCK)  # the last block may be narrower
    own = [with_intercept[:, classes == c] @ weight[classes == c] for c in range(len(counts))]
    parts = tuple(with_intercept[:, start : start + BLOCK] for start in range(0, n, BLOCK))
    return _Rows(parts, weight, classes * width + row % BLOCK, np.array(own))


def _with_intercept(x: Any) -> Any:
    """Inputs as columns, (d + 1, n), with a last row of ones; sparse where x is."""
    if not hasattr(x, "tocsc"):
        return np.vstack([x.T, np.ones(len(x))])
    from scipy.sparse import csc_array, vstack

    return csc_array(vstack([x.T, np.ones((1, x.shape[0]))]))


def _weighted_loss(weights: Float, rows: _Rows) -> tuple[float, Float]:
    """Weighted sum of the log losses and its gradient, shape (C, d + 1)."""
    loss, gradient = 0.0, -rows.own
    for part, x in zip(rows.blocks, rows.parts, strict=True):
        share, true, total = _exponentials(weights, x, rows.place[part])
        loss += float(rows.weight[part] @ (np.log(total) - true))
        share *= rows.weight[part] / total
        gradient += share @ x.T
    return loss, gradient


def _exponentials(weights: Float, x: Any, place: Array) -> tuple[Float, Float, Float]:
    """Exponentials of the logits (C, rows) less the largest in each column; the logits of the own class; the sums."""
    logits = np.ascontiguousarray(weights @ x)
    logits -= logits.max(0)
    true = logits.ravel().take(place)
    share = np.exp(logits, out=logits)
    return share, true, share.sum(0)


def _mean_loss(weights: Float, rows: _Rows) -> float:
    """Mean log loss; a share below the rounding of 1 counts as that, so that no row costs more than 36 nats."""
    total, eps = 0.0, float(np.finfo(float).eps)
    for part, x in zip(rows.blocks, rows.parts, strict=True):
        _, true, sums = _exponentials(weights, x, rows.place[part])
        total -= float(np.log(np.clip(np.exp(true) / sums, eps, 1 - eps)).sum())
    return total / len(rows.weight)
