"""Which code encodes which factor, and whether it is more informative than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics._dci import DCI
from congruence.metrics._infomec import InfoMEC, distribution
from congruence.metrics._mcc import CorrelationScores
from congruence.metrics._own_codes import Conditional
from congruence.metrics._regression import RegressionScores
from congruence.metrics.evaluation import CodeRow, FactorRow
from congruence.metrics.factors import Factors, factor_columns
from congruence.stats.matching import match

MARGIN = 1.5  # how far above the largest share of a few re-pairings a share must be to count as above chance
NULL_SHARES = 200  # of re-pairings, at least, from which a threshold is computed
MOST_PAIRINGS = 40


def count_pairings(nulls: int, factors: int, codes: int) -> int:
    """How many re-pairings to measure the information of: `nulls`, or more if each gives few shares; 0 stays 0."""
    enough = min(MOST_PAIRINGS, math.ceil(NULL_SHARES / (factors * codes)))
    return max(nulls, enough) if nulls else 0


def chance_thresholds(null: Sequence[InfoMEC], factors: int) -> Float:
    """The share up to which a code is no more informative about each factor than chance, shape (K,).

    From the shares of all codes under the re-pairings that have the information: their median for the factor, and above
    it `MARGIN` times the largest deviation of all, in standard deviations of its own factor. Pooling the factors gives
    enough draws to judge K x L shares from a few pairings. 0 without re-pairings.
    """
    if not null:
        return np.zeros(factors)
    measured = [one.nmi for one in null if np.isfinite(one.nmi).any()]
    if not measured:
        return np.full(factors, np.inf)
    shares = np.concatenate(measured, axis=1)  # (K, pairings x L)
    usable = np.isfinite(shares).all(1)
    limits = np.full(factors, np.inf)
    middle, spread = np.median(shares[usable], axis=1), shares[usable].std(axis=1)
    live = spread > 0
    far = (shares[usable][live] - middle[live, None]) / spread[live, None]
    limits[usable] = middle + MARGIN * far.max(initial=0.0) * spread
    return limits


def are_explained(infomec: InfoMEC, null: Sequence[InfoMEC]) -> Array:
    """Whether a readout of all codes predicts a factor better than under any re-pairing, by twice their range; (K,)."""
    if len(null) < 3:  # too few for a range
        return np.zeros(len(infomec.nmi), dtype=bool)
    chance = np.array([one.explicitness_per_factor for one in null])
    high, low = chance.max(0), chance.min(0)
    better: Array = infomec.explicitness_per_factor > high + 2 * (high - low)
    return better


def correct_for_chance(infomec: InfoMEC, null: Sequence[InfoMEC]) -> dict[str, float]:
    """InfoM and InfoC without the information that unrelated codes appear to have; NaN without re-pairings.

    The mean share of re-paired rows is subtracted from the shares of each factor. Codes that are no more informative
    than chance have no distribution of information, and are left out: published InfoM counts their noise.
    """
    measured = [one.nmi for one in null if np.isfinite(one.nmi).any()]
    known = np.isfinite(infomec.nmi).all(1)
    if not measured or not known.any():
        return {}
    chance = np.concatenate(measured, axis=1)[known].mean(1, keepdims=True)  # (K, 1)
    above = infomec.nmi[known] > chance_thresholds(null, len(infomec.nmi))[known, None]
    shares, counted = np.maximum(infomec.nmi[known] - chance, 0), infomec.active & above.any(0)
    if not counted.any():
        return {}
    infom, infoc, *_ = distribution(shares, counted)
    return {"infom": infom, "infoc": infoc}


def factor_rows(
    s: Factors,
    codes: Sequence[str],
    infomec: InfoMEC,
    null: Sequence[InfoMEC],
    regression: Any,
    conditional: Conditional,
) -> tuple[FactorRow, ...]:
    """One row for each factor; `regression` is the result of that metric, or anything else without it."""
    limits, explained = chance_thresholds(null, len(s)), are_explained(infomec, null)
    # A code need not be active, which depends on its scale: one code with a few far values makes all others inactive.
    own = conditional.own_codes(infomec.nmi > limits[:, None])
    read = {}
    if isinstance(regression, RegressionScores):
        read = dict(zip(regression.factors, zip(regression.linear, regression.nonlinear, strict=True), strict=True))
    rows = []
    for k, factor in enumerate(s):
        share = infomec.nmi[k]
        order = np.argsort(-share, kind="stable")
        informative = bool(share[order[0]] > limits[k])
        judged = own[k] if own[k] >= 0 else order[0]
        linear, nonlinear = read.get(factor.name, (math.nan, math.nan))
        rows.append(
            FactorRow(
                factor=factor.name,
                kind=factor.kind,
                levels=factor.distinct,
                code=codes[order[0]] if informative else "",
                share=float(share[order[0]]),
                second=float(share[order[1]]) if len(order) > 1 else math.nan,
                linear=float(linear),
                nonlinear=float(nonlinear),
                explained=informative or bool(explained[k]),
                own_code=codes[own[k]] if own[k] >= 0 else "",
                conditional=float(conditional.share[k, judged]),
                leakage=float(conditional.leakage[k, judged]),
            )
        )
    return tuple(rows)


def code_rows(s: Factors, codes: Sequence[str], infomec: InfoMEC, null: Sequence[InfoMEC]) -> tuple[CodeRow, ...]:
    """One row for each code."""
    limits = chance_thresholds(null, len(s))
    known = np.array([np.isfinite(row).all() for row in infomec.nmi])
    shares = np.where(known[:, None], infomec.nmi, -np.inf)  # (K, L)
    rows = []
    for j, code in enumerate(codes):
        best = int(shares[:, j].argmax())
        idle = not (shares[:, j] > limits).any()
        rows.append(
            CodeRow(
                code=code,
                factor="" if idle else s[best].name,
                share=float(shares[best, j]) if known.any() else math.nan,
                modularity=float(infomec.modularity_per_code[j]),
                active=bool(infomec.active[j]),
                idle=idle,
            )
        )
    return tuple(rows)


def matched_order(share: Float) -> tuple[int, ...]:
    """An order of the codes, (L,): first those matched with the factors, in the order of factors, then the rest.

    They are matched one to one so that the sum of their shares (K, L) is largest.
    """
    matched = match(share)[1].tolist()
    return (*matched, *(j for j in range(share.shape[1]) if j not in set(matched)))


def factor_code_matrices(s: Factors, results: Mapping[str, Any]) -> dict[str, Float]:
    """The matrices (K, L) of the metrics' results, by name; NaN for factors that a metric leaves out."""
    matrices = {"nmi": np.asarray(results["infomec"].nmi)}
    dci, mcc = results.get("dci"), results.get("mcc")
    if isinstance(dci, DCI):
        importance = np.full_like(matrices["nmi"], np.nan)
        importance[[s.names.index(name) for name in dci.factors]] = dci.importance
        matrices["importance"] = importance
    if isinstance(mcc, CorrelationScores):
        correlation = np.full_like(matrices["nmi"], np.nan)
        live = [k for k, factor in enumerate(s) if not factor.left_out]
        owner = factor_columns([s[k] for k in live], unordered=False).owner
        for k in np.unique(owner):  # of the cosine and sine of a circular factor, each code shows the stronger
            rows = mcc.pearson[owner == k]
            correlation[live[k]] = np.take_along_axis(rows, np.abs(rows).argmax(0)[None], axis=0)[0]
        matrices["correlation"] = correlation
    return matrices
