"""Two laws for the error of a pair as a function of the constant of its decoders, and their rank correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.experiments.recipes.result import status_above
from congruence.result import Status

DRAWS = 1000  # of the bootstrap over pairs
FEWEST = 4  # pairs
SURE = 0.95  # share of draws in which a law must be the better one to be called so


@dataclass(frozen=True)
class Law:
    """The curve factor * term(constant) through error 0 at constant 1, and the share of the variance it explains."""

    factor: float
    r2: float

    def to_dict(self) -> dict[str, float]:
        """The numbers as in result.json."""
        return {"factor": self.factor, "r2": self.r2}


@dataclass(frozen=True)
class Relation:
    """How errors go with constants over pairs. Intervals are 95 % bootstrap intervals over pairs."""

    root: Law  # factor * sqrt(constant^2 - 1), the shape of Theorem 1
    line: Law  # factor * (constant - 1)
    root_better: float  # the share of draws in which the first leaves less
    rank: float  # rank correlation (Spearman)
    rank_low: float
    rank_high: float

    @property
    def preferred(self) -> str:
        """Which law the pairs prefer: "root", "line", or "neither" where it depends on the bootstrap draw."""
        if self.root_better >= SURE:
            return "root"
        return "line" if self.root_better <= 1 - SURE else "neither"

    @property
    def status(self) -> Status:
        """Whether errors grow with constants, by the interval of the rank correlation."""
        return status_above(self.rank_low, self.rank_high)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        told: dict[str, Any] = {"root": self.root.to_dict(), "line": self.line.to_dict(), "preferred": self.preferred}
        return told | {name: getattr(self, name) for name in ("root_better", "rank", "rank_low", "rank_high")}


def root_term(constants: Float) -> Float:
    """The term of Theorem 1, sqrt(constant^2 - 1)."""
    return np.sqrt(np.maximum(constants**2 - 1, 0))


def line_term(constants: Float) -> Float:
    """What smooth maps of thick sets are expected to follow, constant - 1."""
    return np.maximum(constants - 1, 0)


def fit_law(term: Float, errors: Float) -> Law:
    """Fit errors = factor * term by least squares. R2 is against the mean, so a bad law can have less than 0."""
    factor, r2 = _fit(term[None], errors[None])
    return Law(float(factor[0]), float(r2[0]))


def _fit(terms: Float, errors: Float) -> tuple[Float, Float]:
    """The factors and R2 of many draws (draws, pairs); NaN where errors do not differ."""
    weight = (terms**2).sum(1)
    factor = np.divide((terms * errors).sum(1), weight, out=np.zeros(len(terms)), where=weight > 0)
    spread = ((errors - errors.mean(1, keepdims=True)) ** 2).sum(1)
    left = ((errors - factor[:, None] * terms) ** 2).sum(1)
    share = np.divide(left, spread, out=np.full(len(terms), np.nan), where=spread > 0)
    return factor, 1 - share


def rank_correlation(a: Float, b: Float) -> Float:
    """Spearman's correlation along the last axis; NaN where one of both is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=-1) for values in (a, b)]
    ranks = [one - one.mean(-1, keepdims=True) for one in ranks]
    size = np.sqrt((ranks[0] ** 2).sum(-1) * (ranks[1] ** 2).sum(-1))
    found: Float = np.divide((ranks[0] * ranks[1]).sum(-1), size, out=np.full(size.shape, np.nan), where=size > 0)
    return found


def relate(constants: Float, errors: Float, seed: int) -> Relation:
    """Fit both laws and correlate ranks, (pairs,) each; intervals are bootstrapped over pairs.

    With fewer than `FEWEST` pairs all numbers are NaN.
    """
    if len(errors) < FEWEST:
        nothing = Law(float("nan"), float("nan"))
        return Relation(nothing, nothing, *[float("nan")] * 4)
    drawn = np.random.default_rng([seed, 29]).integers(len(errors), size=(DRAWS, len(errors)))
    c, e = constants[drawn], errors[drawn]  # (draws, pairs)
    ranks = rank_correlation(c, e)
    known = ranks[np.isfinite(ranks)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return Relation(
        root=fit_law(root_term(constants), errors),
        line=fit_law(line_term(constants), errors),
        root_better=float((_fit(root_term(c), e)[1] > _fit(line_term(c), e)[1]).mean()),
        rank=float(rank_correlation(constants, errors)),
        rank_low=float(low),
        rank_high=float(high),
    )
