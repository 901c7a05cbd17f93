"""Logistic regression as the reference implementations ran it."""

from __future__ import annotations

import warnings
from typing import Any

from congruence.arrays import Array, Float
from congruence.metrics.varying import many_classes

GRADIENT = 1e-4  # of the sum over rows, at which the reference stopped


def fit_logistic(x: Float, y: Array) -> tuple[Any, bool]:
    """Fit scikit-learn's `LogisticRegression` (L2 penalty, C = 1, 100 iterations), and say whether it converged.

    Since version 1.4 scikit-learn stops by the mean of the gradient over rows and not by its sum, which is earlier; the
    tolerance here is that of the sum, so that any version gives the numbers of the older ones.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with many_classes(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(tol=GRADIENT / len(x)).fit(x, y)
    return model, not caught
