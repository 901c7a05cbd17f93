"""The FactorVAE score: which factor was held still, by a vote of the code that varies least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics._beta_vae import check_counts, few_factors
from congruence.metrics.factors import paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note
from congruence.metrics.sampling import Sampler, sampler
from congruence.metrics.varying import constant_codes, varying


@dataclass(frozen=True, eq=False)
class FactorVAE:
    """The accuracy of the vote, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # the rows of `votes`
    factor_vae: float  # on fresh votes
    factor_vae_train: float  # on the votes that decided the majorities
    votes: Array  # (K, L) how often each code varied least while each factor was held still
    active: Array  # (L,) codes that take part
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"factor_vae": self.factor_vae}


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
    """Hold a factor still, look which code varies least in proportion, and let every code stand for one factor.

    Invariant to order (up to ties), sign, scale and shift of each code, for `threshold` 0. See
    `congruence.metrics.sampling` for how rows are drawn.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    factor_bins : int
        Equal-width bins of a factor that is no class; rows in one bin count as sharing its value.
    threshold : float
        The least standard deviation of a code that takes part. Constant codes never do. The study of Locatello et al.
        took 0.05, which makes sense for codes of a unit prior.
    points, judged, batch : int
        Training votes, test votes, and rows in a vote.
    seed : int
        Of all draws, which follow the order of the reference.

    Returns
    -------
    FactorVAE
        0, with a note, where no code takes part.

    References
    ----------
    Kim & Mnih 2018; as in Locatello et al. 2019.
    """
    check_counts(points=points, judged=judged, batch=batch)
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    draw, s, more = sampler(s, factor_bins, seed)
    notes = (*s.notes, *notes, *constant_codes(z)[1], *more)
    none = np.zeros((len(s), z.shape[1]), dtype=int)
    if draw is None:
        nan, reason = float("nan"), few_factors(len(s))
        return FactorVAE(s.names, nan, nan, none, np.zeros(z.shape[1], bool), {"factor_vae": reason}, notes)

    variance = z[draw.rows(points)].var(0, ddof=1) if points > 1 else z.var(0)
    active = (np.sqrt(variance) >= threshold) & (variance > 0)
    if not active.any():
        return FactorVAE(s.names, 0.0, 0.0, none, active, {}, (*notes, Note("No code varies enough to be used")))
    votes = _votes(draw, z, variance, active, points, batch, none.shape)
    fresh = _votes(draw, z, variance, active, judged, batch, none.shape)
    majority = votes.argmax(0)  # (L,) the factor each code stands for; the first on ties
    columns = np.arange(z.shape[1])
    return FactorVAE(
        factors=s.names,
        factor_vae=float(fresh[majority, columns].sum() / judged),
        factor_vae_train=float(votes[majority, columns].sum() / points),
        votes=votes,
        active=active,
        reasons={},
        notes=notes,
    )


def _votes(
    draw: Sampler, z: Float, variance: Float, active: Array, count: int, batch: int, shape: tuple[int, ...]
) -> Array:
    """How often each code varied least, by the factor that was held still, shape (K, L)."""
    votes = np.zeros(shape, dtype=int)
    places, x, unit = np.flatnonzero(active), z[:, active], variance[active]
    for _ in range(count):
        factor = draw.factor()
        still = x[draw.sharing(factor, batch)].var(0, ddof=1)
        votes[factor, places[(still / unit).argmin()]] += 1
    return votes


DECLARED = Metric(
    name="factor_vae",
    function=factor_vae,
    scores=("factor_vae",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift"}),
    cost="fast",
    reference="Kim & Mnih 2018",
)
