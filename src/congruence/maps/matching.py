"""The mean correlation coefficient (MCC) of dimensions, or canonical variates, matched one to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.rows.algebra import leading_pairs, multiply
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, RowScatter, sums_of
from congruence.stats.matching import match
from congruence.tables import as_paired

CCA_COMPONENTS = 20  # as in the reference implementation of the weak MCC


def strong_mcc(x: Any, y: Any) -> float:
    """Mean |correlation| of the dimensions of x and y matched one to one, in sample.

    Invariant to permutation, sign, scale and shift of each dimension. Constant dimensions are left out; with
    different widths the mean is over the matched ones. x, y : (n, d_x) and (n, d_y), paired rows.

    From 0 to 1, higher is closer; NaN if one side is constant. References: Khemakhem et al. 2020 (ICE-BeeM); Kivva et
    al. 2022.
    """
    return matched_correlation(_paired(x, y))


def weak_mcc(x: Any, y: Any, *, n_components: int = CCA_COMPONENTS) -> float:
    """Mean |correlation| of matched canonical variates of x and y, in sample: closeness up to a linear map.

    In sample it is 1 for any two matrices with n <= d: judge by the held-out value of `compare`. It does not bound
    the strong MCC from above. x, y : (n, d_x) and (n, d_y), paired rows; `n_components` is the number of canonical
    variates to keep (fewer where the data have lower rank).

    From 0 to 1, higher is closer; NaN if one side is constant. References as of `strong_mcc`: Khemakhem et al. 2020;
    Kivva et al. 2022.
    """
    paired = _paired(x, y)
    return matched_correlation(paired, fit_cca(paired, n_components))


@dataclass(frozen=True, eq=False)
class CCA:
    """Canonical directions of two runs: variates are rows @ source and rows @ target."""

    source: Float  # (d_x, k)
    target: Float  # (d_y, k)


def fit_cca(paired: PairScatter, n_components: int = CCA_COMPONENTS) -> CCA:
    """Canonical correlation analysis by whitening both runs on their numerical rank."""
    white_x, white_y = paired.source.whitening, paired.target.whitening
    u, v = leading_pairs(multiply(white_x.T, paired.cross, white_y), n_components)
    return CCA(white_x @ u, white_y @ v)


def matched_correlation(scored: PairScatter, cca: CCA | None = None, fitted: PairScatter | None = None) -> float:
    """Mean |correlation| over `scored`, of dimensions (or variates) matched on `fitted` (by default the same rows)."""
    correlation = np.abs(_correlation(scored, cca))
    guide = correlation if fitted is None else np.abs(_correlation(fitted, cca))
    live = (np.flatnonzero(guide.any(1)), np.flatnonzero(guide.any(0)))
    if not (live[0].size and live[1].size):
        return float("nan")
    rows, columns = match(guide[np.ix_(*live)])
    return float(correlation[live[0][rows], live[1][columns]].mean())


def _correlation(paired: PairScatter, cca: CCA | None) -> Float:
    cross, var_x, var_y = paired.cross, np.diag(paired.source.scatter), np.diag(paired.target.scatter)
    if cca is not None:
        cross = cca.source.T @ cross @ cca.target
        var_x = (cca.source * (paired.source.scatter @ cca.source)).sum(0)
        var_y = (cca.target * (paired.target.scatter @ cca.target)).sum(0)
        alive_x, alive_y = var_x > 0, var_y > 0
    else:
        alive_x, alive_y = _varies(paired.source, var_x), _varies(paired.target, var_y)
    scale = np.outer(*(np.sqrt(np.where(*one, 1.0)) for one in ((alive_x, var_x), (alive_y, var_y))))
    return np.where(np.outer(alive_x, alive_y), np.clip(cross / scale, -1, 1), 0.0)


def _varies(spread: RowScatter, variance: Float) -> Array:
    """Whether each dimension varies by more than the rounding of its stored numbers, shape (d,)."""
    varies: Array = np.sqrt(np.maximum(variance, 0)) > np.sqrt(spread.n) * spread.rows.rounding
    return varies


def _paired(x: Any, y: Any) -> PairScatter:
    x, y = as_paired(x, y)
    return sums_of(Rows(x), Rows(y))
