"""The FactorVAE score: which factor was fixed, predicted from the code that varies least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer, check_integers
from congruence.metrics._resampling import FactorSampler, make_sampler
from congruence.metrics._results import MetricResult, Note
from congruence.metrics.factors import read_usable


@dataclass(frozen=True, eq=False)
class FactorVAE(MetricResult):
    """The accuracy of the majority vote, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # the rows of `votes`
    factor_vae: float  # on fresh votes
    factor_vae_train: float  # on the votes that decided the majorities
    votes: Array  # (K, L) how often each code varied least while each factor was fixed
    active: Array  # (L,) codes that take part

    headline = ("factor_vae",)


def factor_vae(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    factor_bins: int = 10,
    threshold: float = 0.0,
    points: int = 10_000,
    judged: int = 5_000,
    batch: int = 64,
    seed: int = 0,
) -> FactorVAE:
    """Fix a factor, find the code with the least relative variance, and predict the factor by majority vote per code.

    Invariant to order (up to ties), sign, scale and shift of each code, for `threshold` 0.

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
    threshold : float, default 0.0
        The least standard deviation of a code that takes part. Constant codes never do. Locatello et al. used 0.05,
        for codes with a unit prior.
    points : int, default 10000
        Training votes.
    judged : int, default 5000
        Test votes.
    batch : int, default 64
        Rows in a vote.
    seed : int, default 0
        Of all draws, which follow the order of the reference.

    Returns
    -------
    FactorVAE
        0, with a note, if no code takes part.

    References
    ----------
    Kim & Mnih 2018; as in Locatello et al. 2019.
    """
    check_integers(1, points=points, judged=judged)
    check_integer("batch", batch, 2)
    z, s, notes = read_usable(codes, factors, kinds)
    sampler, s, more, reason = make_sampler(s, factor_bins, seed)
    notes, reasons = (*notes, *more), {"factor_vae": reason} if reason else {}
    score, train = float("nan"), float("nan")
    votes, active = np.zeros((len(s), z.shape[1]), dtype=int), np.zeros(z.shape[1], dtype=bool)
    if sampler is not None:
        variance = z[sampler.draw_rows(points)].var(0, ddof=1) if points > 1 else z.var(0)
        active = (np.sqrt(variance) >= threshold) & (variance > 0)
        if active.any():
            votes, fresh = (_count_votes(sampler, z, variance, active, count, batch) for count in (points, judged))
            majority = votes.argmax(0), np.arange(z.shape[1])  # the factor of each code; the first on ties
            score, train = float(fresh[majority].sum() / judged), float(votes[majority].sum() / points)
        else:
            score, train, notes = 0.0, 0.0, (*notes, Note("No code varies enough to be used"))
    return FactorVAE(s.names, score, train, votes, active, reasons=reasons, notes=notes)


def _count_votes(sampler: FactorSampler, z: Float, variance: Float, active: Array, count: int, batch: int) -> Array:
    """How often each code varied least, by the factor that was fixed, shape (K, L)."""
    votes = np.zeros((len(sampler.sizes), z.shape[1]), dtype=int)
    places, x, unit = np.flatnonzero(active), z[:, active], variance[active]
    for _ in range(count):
        factor = sampler.draw_factor()
        fixed = x[sampler.draw_sharing(factor, batch)].var(0, ddof=1)
        votes[factor, places[(fixed / unit).argmin()]] += 1
    return votes
