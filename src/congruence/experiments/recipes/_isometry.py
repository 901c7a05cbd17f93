"""Nearness of the codes of two trainings, and how it depends on how far their decoders are from an isometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes.claims import Estimate
from congruence.maps._diameter import rows_diameter
from congruence.maps.groups import fit_group
from congruence.maps.nearness import HeldOut, measure, protocol
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums
from congruence.stats.intervals import percentile_interval, rank_correlation

DRAWS = 50_000  # of the bootstrap over pairs; with 1000 the seed moved ends by 0.05
FEWEST = 4  # pairs


@dataclass(frozen=True)
class PairError:
    """The distance of paired codes up to a group of maps, as `compare` gives it; shares of the target's diameter."""

    mean: float  # in sample
    sup: float  # in sample
    held_out: HeldOut
    null: float


def measure_nearness(x: Array, y: Array, *groups: str, seed: int) -> dict[str, PairError]:
    """The nearness of paired codes up to some groups, as `compare` gives it, without its other measures."""
    plan = protocol(len(x), nulls=5, bootstrap=100, seed=seed)
    target = Rows(y)
    sums = pair_sums(run_sums(Rows(x), plan.folds), run_sums(target, plan.folds))
    fits = {group: lambda paired, fold, group=group: fit_group(paired, group) for group in groups}
    near = measure(sums, fits, rows_diameter(target).value, plan)[0]
    return {name: PairError(one.mean, one.sup, one.held_out, one.null) for name, one in near.items()}


@dataclass(frozen=True)
class ErrorByConstant:
    """How the errors of pairs depend on the constants of their decoders; intervals are 95 % bootstrap intervals.

    Two curves through error 0 at constant 1 are fitted: the term of Theorem 1, factor * sqrt(constant^2 - 1), and the
    line factor * (constant - 1), which is expected for smooth maps of thick sets. Each is a pair (factor, R2).
    """

    root: tuple[float, float]
    line: tuple[float, float]
    root_better: float  # share of bootstrap draws in which the first has the smaller residual
    gain: Estimate  # R2 of the first minus R2 of the second
    rank: Estimate  # rank correlation (Spearman)


def root_term(constants: Float) -> Float:
    """The term of Theorem 1, sqrt(constant^2 - 1)."""
    return np.sqrt(np.maximum(constants**2 - 1, 0))


def line_term(constants: Float) -> Float:
    """The term of the line, constant - 1."""
    return np.maximum(constants - 1, 0)


def fit_factor(terms: Float, errors: Float) -> tuple[Float, Float]:
    """Fit errors = factor * terms (draws, pairs) by least squares: factors and R2 (draws,).

    R2 is relative to the mean error, so a bad curve can have less than 0; NaN if errors do not differ.
    """
    weight = (terms**2).sum(1)
    factor = np.divide((terms * errors).sum(1), weight, out=np.zeros(len(terms)), where=weight > 0)
    spread = ((errors - errors.mean(1, keepdims=True)) ** 2).sum(1)
    residual = ((errors - factor[:, None] * terms) ** 2).sum(1)
    return factor, 1 - np.divide(residual, spread, out=np.full(len(terms), np.nan), where=spread > 0)


def relate_errors(constants: Float, errors: Float, seed: int) -> ErrorByConstant:
    """Fit both curves and correlate ranks, (pairs,) each, with bootstrap draws of pairs.

    All numbers are NaN with fewer than `FEWEST` pairs.
    """
    if len(errors) < FEWEST:
        nothing = Estimate(*[math.nan] * 3)
        return ErrorByConstant((math.nan,) * 2, (math.nan,) * 2, math.nan, nothing, nothing)
    drawn = np.random.default_rng([seed, 29]).integers(len(errors), size=(DRAWS, len(errors)))
    c, e = constants[drawn], errors[drawn]  # (draws, pairs)
    (root, root_r2), (line, line_r2) = (
        fit_factor(term(constants)[None], errors[None]) for term in (root_term, line_term)
    )
    gains = fit_factor(root_term(c), e)[1] - fit_factor(line_term(c), e)[1]
    return ErrorByConstant(
        (float(root[0]), float(root_r2[0])),
        (float(line[0]), float(line_r2[0])),
        float((gains > 0).mean()),
        Estimate(float(root_r2[0] - line_r2[0]), *percentile_interval(gains)),
        Estimate(float(rank_correlation(constants, errors)), *percentile_interval(rank_correlation(c, e))),
    )
