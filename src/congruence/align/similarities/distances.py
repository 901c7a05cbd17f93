"""Representational similarity analysis (RSA): do the same rows lie far apart in both runs?"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.align.similarities.kernels import ROUNDING
from congruence.align.similarities.sides import Both, Side, both_of, paired_rows, sampled, squared_norms
from congruence.arrays import Float, to_numpy
from congruence.errors import InputError
from congruence.rows.engine import Rows

RSA_ROWS = 2000  # there are n (n - 1) / 2 distances to rank: 2 million, 16 MB and a third of a second per run


def rsa(x: Any, y: Any, *, rows: int = RSA_ROWS, seed: int = 0) -> float:
    """Spearman correlation of the distances between rows in x with those in y.

    Ranks need all pairs of rows, so more than `rows` rows are sampled (by `seed`); `rsa_pearson` needs no sample.
    Invariant to permutation, rotation, one scale and translation of either side; symmetric.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows; distances are Euclidean (squaring them would not change their ranks).
    rows : int
        The most rows to use, at least 3.

    Returns
    -------
    float
        From -1 to 1, higher is closer: 1 if distances are ordered alike, about 0 for unrelated runs. NaN for fewer than
        3 rows, or if all rows of one side are equally far from each other (as in a constant one).

    References
    ----------
    Kriegeskorte et al. 2008, who take 1 - correlation for distance; Euclidean distance is what a rotation leaves alone.
    """
    if rows < 3:
        raise InputError(f"rows must be at least 3, not {rows}")
    source, target = (centred_ranks(r, rows, seed) for r in paired_rows(x, y))
    return _cosine(source, target)


def rsa_pearson(x: Any, y: Any) -> float:
    """Pearson correlation of the squared distances between rows in x with those in y, over all pairs of rows.

    Worked out from d x d sums and squared row norms: exact, and never an n x n matrix. Invariant to permutation,
    rotation, one scale and translation of either side; symmetric. Rows far from the others weigh more than in `rsa`.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows.

    Returns
    -------
    float
        From -1 to 1, higher is closer: 1 for equal runs up to the above, about 0 for unrelated ones. NaN for fewer
        than 3 rows, or if all rows of one side are equally far from each other (as in a constant one).

    References
    ----------
    Kriegeskorte et al. 2008; squared Euclidean distances as in rsatoolbox.
    """
    return pearson(both_of(x, y))


def spearman(both: Both) -> float:
    """RSA from what each run keeps of its own distances."""
    return _cosine(both.source.once(_ranks), both.target.once(_ranks))


def pearson(both: Both) -> float:
    """Pearson RSA from prepared sums and row norms."""
    x, y = both.source, both.target
    if x.rows.n < 3 or not both.vary:
        return float("nan")
    excess_x, excess_y = _excess(x), _excess(y)
    own_x = _covariance(excess_x, excess_x, x.spread.scatter / x.size**2)
    own_y = _covariance(excess_y, excess_y, y.spread.scatter / y.size**2)
    if min(own_x, own_y) <= ROUNDING / x.rows.n:
        return float("nan")
    shared = _covariance(excess_x, excess_y, both.sums.cross / (x.size * y.size))
    return float(np.clip(shared / np.sqrt(own_x * own_y), -1, 1))


def _excess(side: Side) -> Float:
    """How far each squared row norm is from their mean, in units of their sum, shape (n,)."""
    return side.once(squared_norms) / side.size**2 - 1 / side.rows.n


def _covariance(excess_x: Float, excess_y: Float, cross: Float) -> float:
    """Half the centred sum of products of squared distances, over all ordered pairs of different rows.

    With kernels K and L of centred rows and trace 1, D_ij = K_ii + K_jj - 2 K_ij and each row of K sums to 0, so
    sum D E - sum D sum E / (n (n - 1)) = 2 n <excess_x, excess_y> + 4 |cross|^2 - 4 / (n - 1). Rows that are
    all equally far from each other leave 0.
    """
    n = len(excess_x)
    return n * float(excess_x @ excess_y) + 2 * float((cross * cross).sum()) - 2 / (n - 1)


def _ranks(side: Side) -> Float:
    return centred_ranks(side.rows, RSA_ROWS, side.seed)


def centred_ranks(rows: Rows, most: int, seed: int) -> Float:
    """Ranks of the distances between rows (of a sample of many), centred, of unit norm; empty where all are equal."""
    from scipy.spatial.distance import pdist
    from scipy.stats import rankdata

    distances = pdist(to_numpy(rows.take(sampled(rows.n, most, seed))))  # (m (m - 1) / 2,)
    rounding = 4 * np.linalg.norm(rows.rounding)  # of the difference of two distances
    if distances.size == 0 or np.ptp(distances) <= rounding:
        return np.zeros(0)
    ranks: Float = rankdata(distances) - (distances.size + 1) / 2
    return ranks / np.linalg.norm(ranks)


def _cosine(a: Float, b: Float) -> float:
    if not (a.size and b.size):
        return float("nan")
    return float(np.clip(a @ b, -1, 1))
