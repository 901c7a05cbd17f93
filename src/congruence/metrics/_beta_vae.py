"""The BetaVAE score: can a classifier predict which factor two rows share from the distance of their codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.metrics.factors import paired
from congruence.metrics.logistic import fit_logistic
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note
from congruence.metrics.sampling import Sampler, sampler
from congruence.metrics.varying import NO_FACTORS, constant_codes, varying


@dataclass(frozen=True, eq=False)
class BetaVAE:
    """The accuracy with which the shared factor is predicted, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # those that were classified
    beta_vae: float  # on fresh points
    beta_vae_train: float  # on the training points
    distances: Float  # (K, L) mean difference of each code between rows that share each factor
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"beta_vae": self.beta_vae}


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
    """Tell the factor that pairs of rows share from the mean absolute difference of their codes.

    A point: a random factor, a batch of pairs of rows that share its value, and the mean |difference| of every code. A
    logistic regression with scikit-learn's defaults learns the factor from `points` of them. Rotated codes can score
    1 too: a linear classifier may weigh all codes. Invariant to order, sign and shift of codes; scales matter a
    little, because the regression is penalised. See `congruence.metrics.sampling` for how rows are drawn.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    factor_bins : int
        Equal-width bins of a factor that is no class; rows in one bin count as sharing its value.
    points, judged, batch : int
        Training points, test points, and pairs in a point.
    seed : int
        Of all draws, which follow the order of the reference.

    References
    ----------
    Higgins et al. 2017; as in Locatello et al. 2019.
    """
    check_counts(points=points, judged=judged, batch=batch)
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    draw, s, more = sampler(s, factor_bins, seed)
    notes = (*s.notes, *notes, *constant_codes(z)[1], *more)
    nan, empty = float("nan"), np.zeros((len(s), z.shape[1]))
    if draw is None:
        return BetaVAE(s.names, nan, nan, empty, {"beta_vae": few_factors(len(s))}, notes)

    x, y = _points(draw, z, points, batch)
    if np.ptp(y) == 0:
        reason = f"All {points} training points share the same factor; draw more points."
        return BetaVAE(s.names, nan, nan, empty, {"beta_vae": reason}, notes)
    model, converged = fit_logistic(x, y)
    fresh_x, fresh_y = _points(draw, z, judged, batch)
    stopped = () if converged else (Note("The regression stopped after 100 iterations"),)
    return BetaVAE(
        factors=s.names,
        beta_vae=float((model.predict(fresh_x) == fresh_y).mean()),
        beta_vae_train=float((model.predict(x) == y).mean()),
        distances=np.array([x[y == k].mean(0) if (y == k).any() else empty[k] * nan for k in range(len(s))]),
        reasons={},
        notes=(*notes, *stopped),
    )


def few_factors(count: int) -> str:
    """Why there is no score for fewer than two factors."""
    return "There is only one factor that rows share values of; two are needed." if count else NO_FACTORS


def check_counts(**counts: int) -> None:
    """Refuse numbers of points that are none."""
    for name, value in counts.items():
        least = 2 if name == "batch" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _points(draw: Sampler, z: Float, count: int, batch: int) -> tuple[Float, Array]:
    """Mean differences (count, L) and the factor that was shared (count,)."""
    x, y = np.empty((count, z.shape[1])), np.empty(count, dtype=int)
    for i in range(count):
        y[i] = draw.factor()
        one, other = draw.pairs(y[i], batch)
        x[i] = np.abs(z[one] - z[other]).mean(0)
    return x, y


DECLARED = Metric(
    name="beta_vae",
    function=beta_vae,
    scores=("beta_vae",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "shift"}),
    cost="fast",
    reference="Higgins et al. 2017",
)
