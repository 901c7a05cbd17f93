"""Agreement of the kernels of two runs: centred kernel alignment (CKA) with the linear kernel.

The n x n kernels are never made: what is summed over them is a sum over d x d products and squared row norms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align.similarities.sides import Both, Side, both_of, squared_norms
from congruence.arrays import Float

ROUNDING = 1e-12  # what is left of a difference of sums, as a share of them, when it should be 0


def cka(x: Any, y: Any) -> float:
    """Linear centred kernel alignment, without the bias that makes unrelated wide runs look alike.

    Invariant to permutation, rotation, one scale and translation of either side; symmetric.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From -1 to 1, higher is closer: 1 for equal runs up to the above, about 0 for unrelated ones. NaN for fewer
        than 4 rows, if one side is constant, or if all its rows are equally far from each other.

    References
    ----------
    Kornblith et al. 2019 (CKA); Song et al. 2012, eq. 5 (the unbiased estimator, of which CKA is here the ratio).
    """
    return unbiased(both_of(x, y))


def plain_cka(x: Any, y: Any) -> float:
    """Linear centred kernel alignment as first published: the norm of the cross product over those of the scatters.

    Invariant to permutation, rotation, one scale and translation of either side; symmetric. It is biased upwards where
    rows are few for their width: two unrelated Gaussian runs of 300 rows and 500 dimensions score 0.6 and more. `cka`
    does not have this bias.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From 0 to 1, higher is closer: 1 for equal runs up to the above. NaN if one side is constant.

    References
    ----------
    Kornblith et al. 2019, Table 1.
    """
    return plain(both_of(x, y))


def plain(both: Both) -> float:
    """Plain CKA from prepared sums."""
    if not both.vary:
        return float("nan")
    own = [np.linalg.norm(side.spread.scatter / side.size**2) for side in (both.source, both.target)]
    shared = np.linalg.norm(both.sums.cross / (both.source.size * both.target.size)) ** 2
    return min(float(shared / (own[0] * own[1])), 1.0)


def unbiased(both: Both) -> float:
    """Unbiased CKA from prepared sums and the row norms of each run."""
    if both.source.rows.n < 4 or not both.vary:
        return float("nan")
    diag_x, diag_y = _diagonal(both.source), _diagonal(both.target)
    own_x, own_y = _own(both.source, diag_x), _own(both.target, diag_y)
    if own_x <= 0 or own_y <= 0:
        return float("nan")
    cross = both.sums.cross / (both.source.size * both.target.size)
    return float(np.clip(_hsic((cross * cross).sum(), diag_x, diag_y) / np.sqrt(own_x * own_y), -1, 1))


def _diagonal(side: Side) -> Float:
    """The diagonal of the centred kernel of trace 1: sums of squares of squares then stay in the range of floats."""
    return side.once(squared_norms) / side.size**2


def _own(side: Side, diagonal: Float) -> float:
    """The unbiased HSIC of a run with itself; 0 where it is only rounding."""
    scatter = side.spread.scatter / side.size**2
    squares = float((scatter * scatter).sum())
    value = _hsic(squares, diagonal, diagonal)
    return value if value > ROUNDING * squares else 0.0


def _hsic(squares: float, diag_k: Float, diag_l: Float) -> float:
    """Unbiased HSIC of two linear kernels with zeroed diagonals, times n (n - 3).

    The rows are centred, so each row of a kernel sums to 0 with its diagonal and to -diagonal without it.
    """
    n, both = len(diag_k), float(diag_k @ diag_l)
    middle = float(diag_k.sum() * diag_l.sum()) / ((n - 1) * (n - 2))
    return squares - both + middle - 2 * both / (n - 2)
