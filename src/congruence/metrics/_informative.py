"""Which code is informative about which factor, and whether more so than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics._infomec import InfoMEC
from congruence.metrics._regression import Regression
from congruence.metrics.evaluation import CodeRow, FactorRow
from congruence.metrics.factors import Factors

MARGIN = 1.5  # how far above the largest share of a few re-pairings a share must be to count as above chance


NULL_SHARES = 200  # of re-pairings, at least, from which a threshold is computed
MOST_PAIRINGS = 40


def pairings_needed(asked: int, factors: int, codes: int) -> int:
    """How many re-pairings to draw: those asked for, or more where each gives few shares; 0 stays 0."""
    enough = min(MOST_PAIRINGS, math.ceil(NULL_SHARES / (factors * codes)))
    return max(asked, enough) if asked else 0


def thresholds(false: Sequence[InfoMEC], factors: int) -> Float:
    """The share up to which a code is no more informative about each factor than chance, shape (K,).

    From the shares of all codes under re-pairings: their median for the factor, and above it `MARGIN` times as far
    as the largest of all goes, in standard deviations of its own factor. Pooling the factors this way gives enough
    draws to judge K x L shares from a few pairings. 0 where there are none.
    """
    if not false:
        return np.zeros(factors)
    shares = np.concatenate([one.nmi for one in false], axis=1)  # (K, pairings x L)
    usable = np.isfinite(shares).all(1)
    limits = np.full(factors, np.inf)
    middle, spread = np.median(shares[usable], axis=1), shares[usable].std(axis=1)
    live = spread > 0
    far = (shares[usable][live] - middle[live, None]) / spread[live, None]
    limits[usable] = middle + MARGIN * far.max(initial=0.0) * spread
    return limits


def explained_together(found: InfoMEC, false: Sequence[InfoMEC]) -> Array:
    """Whether a readout of all codes predicts a factor better than under any re-pairing, by twice their range; (K,)."""
    if len(false) < 3:  # too few for a range
        return np.zeros(len(found.nmi), dtype=bool)
    chance = np.array([one.explicitness_per_factor for one in false])
    high, low = chance.max(0), chance.min(0)
    better: Array = found.explicitness_per_factor > high + 2 * (high - low)
    return better


def factor_rows(
    s: Factors, codes: Sequence[str], found: InfoMEC, limits: Float, together: Array, read: Regression | None
) -> tuple[FactorRow, ...]:
    """One row for each factor; `read` are regressions of factors on all codes, where there are any."""
    rows = []
    for k, factor in enumerate(s):
        share = found.nmi[k]
        order = np.argsort(-share, kind="stable")
        informative = bool(share[order[0]] > limits[k])
        place = read.factors.index(factor.name) if read is not None and factor.name in read.factors else None
        rows.append(
            FactorRow(
                factor=factor.name,
                kind=factor.kind,
                levels=len(np.unique(factor.values)),
                code=codes[order[0]] if informative else "",
                share=float(share[order[0]]),
                second=float(share[order[1]]) if len(order) > 1 else math.nan,
                linear=math.nan if read is None or place is None else float(read.linear[place]),
                nonlinear=math.nan if read is None or place is None else float(read.nonlinear[place]),
                explained=informative or bool(together[k]),
            )
        )
    return tuple(rows)


def code_rows(s: Factors, codes: Sequence[str], found: InfoMEC, limits: Float) -> tuple[CodeRow, ...]:
    """One row for each code."""
    known = np.array([np.isfinite(row).all() for row in found.nmi])
    shares = np.where(known[:, None], found.nmi, -np.inf)  # (K, L)
    rows = []
    for j, code in enumerate(codes):
        best = int(shares[:, j].argmax())
        idle = not (shares[:, j] > limits).any()
        rows.append(
            CodeRow(
                code=code,
                factor="" if idle else s[best].name,
                share=float(shares[best, j]) if known.any() else math.nan,
                modularity=float(found.modularity_per_code[j]),
                active=bool(found.active[j]),
                idle=idle,
            )
        )
    return tuple(rows)


def matched_order(share: Float) -> tuple[int, ...]:
    """An order of the codes, (L,): first those matched with the factors, in the order of factors, then the rest.

    They are matched one to one so that the sum of their shares (K, L) is largest.
    """
    from scipy.optimize import linear_sum_assignment

    matched = linear_sum_assignment(-np.nan_to_num(share))[1].tolist()
    return (*matched, *(j for j in range(share.shape[1]) if j not in set(matched)))
