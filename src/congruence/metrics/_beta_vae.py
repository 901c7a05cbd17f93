"""The BetaVAE score: can a classifier predict which factor two rows share from the distance of their codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer, check_integers
from congruence.metrics._estimators import fit_logistic
from congruence.metrics._resampling import FactorSampler, make_sampler
from congruence.metrics._results import MetricResult, Note
from congruence.metrics.factors import read_usable


@dataclass(frozen=True, eq=False)
class BetaVAE(MetricResult):
    """The accuracy with which the shared factor is predicted, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # those that were classified
    beta_vae: float  # on fresh points
    beta_vae_train: float  # on the training points
    distances: Float  # (K, L) mean difference of each code between rows that share each factor

    headline = ("beta_vae",)


def beta_vae(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    factor_bins: int = 10,
    points: int = 10_000,
    judged: int = 5_000,
    batch: int = 64,
    seed: int = 0,
) -> BetaVAE:
    """Predict which factor pairs of rows share from the mean absolute difference of their codes.

    A point is a random factor, a batch of pairs of rows that share its value, and the mean |difference| of every code.
    A logistic regression with scikit-learn's defaults learns the factor from the points. Rotated codes can score 1
    too, because a linear classifier may weigh all codes. Invariant to order, sign and shift of codes; their scales
    matter a little, because the regression is penalised.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    kinds : str, list or dict, default "auto"
        Kinds of the factors; see `read_factors`.
    factor_bins : int, default 10
        Equal-width bins of a continuous factor; rows in one bin count as sharing its value.
    points : int, default 10000
        Training points.
    judged : int, default 5000
        Test points.
    batch : int, default 64
        Pairs of rows in a point.
    seed : int, default 0
        Of all draws, which follow the order of the reference.

    References
    ----------
    Higgins et al. 2017; as in Locatello et al. 2019.
    """
    check_integers(1, points=points, judged=judged)
    check_integer("batch", batch, 2)
    z, s, notes = read_usable(codes, factors, kinds)
    sampler, s, more, reason = make_sampler(s, factor_bins, seed)
    notes = (*notes, *more)
    score, train, distances = float("nan"), float("nan"), np.zeros((len(s), z.shape[1]))
    if sampler is not None:
        x, y = _draw_points(sampler, z, points, batch)
        if np.ptp(y) == 0:
            reason = f"All {points} training points share the same factor; draw more points."
        else:
            model, converged = fit_logistic(x, y)
            fresh_x, fresh_y = _draw_points(sampler, z, judged, batch)
            score = float((model.predict(fresh_x) == fresh_y).mean())
            train = float((model.predict(x) == y).mean())
            distances = np.array(
                [x[y == k].mean(0) if (y == k).any() else distances[k] * np.nan for k in range(len(s))]
            )
            notes += () if converged else (Note("The regression stopped after 100 iterations"),)
    return BetaVAE(s.names, score, train, distances, reasons={"beta_vae": reason} if reason else {}, notes=notes)


def _draw_points(sampler: FactorSampler, z: Float, count: int, batch: int) -> tuple[Float, Array]:
    """Mean differences (count, L) and the factor that was shared (count,)."""
    x, y = np.empty((count, z.shape[1])), np.empty(count, dtype=int)
    for i in range(count):
        y[i] = sampler.draw_factor()
        one, other = sampler.draw_pairs(y[i], batch)
        x[i] = np.abs(z[one] - z[other]).mean(0)
    return x, y
