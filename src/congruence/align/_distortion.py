"""Is the best map between two runs more than a rotation and a scale? Gains per direction, corrected for noise.

In a direction u of the source and its partner w in the target, the regression of the target on the source has the
slope p / a, and the inverse of the regression of the source on the target the slope b / p, where a and b are the
variances and p is the covariance. If both runs are a signal plus noise, the true gain lies between the two slopes:
noise in the source lowers the first, noise in the target raises the second (Frisch 1934). For a rotation and a scale
all true gains are equal. So

- distortion is certain where one slope alone exceeds the scale of all directions, whichever run has the noise;
- there is no distortion where all gains agree for the split of the noise between the two runs that fits best, one
  number for all directions.

Directions are found on some rows and measured on others, so that none is chosen by its own noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float, as_float64_like, row_chunks, to_numpy
from congruence.maps.nearness import Protocol
from congruence.result import Status
from congruence.rows.algebra import eigh, leading_pairs, multiply
from congruence.rows.engine import chunk_bytes
from congruence.rows.sums import PairScatter, PairSums
from congruence.stats.intervals import student_quantile

MOST_DIRECTIONS = 512  # those of the largest covariance; the others count as untested
MOST_ROWS = 50_000  # that are measured; more would not change the decision
GROUPS_OF_ROWS = 50  # of the jackknife
SIGNAL = 0.5  # a direction is tested if the runs share at least this part of its variance
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Distortion:
    """The gains of the best map in the directions whose signal is above the noise, relative to the common scale.

    `status` is "holds" if there is no distortion: all gains are within `margin`, an equivalence test at level 5 %. It
    is "fails" if a gain is beyond the margin for every split of the noise between the runs, "ambiguous" if the rows
    do not decide, and "unknown" if no direction could be tested.
    """

    status: Status
    margin: float
    largest: float  # |log gain| measured on held-out rows
    bound: float  # with 95 % confidence no |log gain| of any direction among the tested ones is above
    measured: float  # the same for the directions that were measured on held-out rows
    certain: float  # with 95 % confidence some |log gain| is above, whichever run has the noise
    tested: int
    directions: int
    share: float  # of the target's variance in tested directions
    source_noise: float  # the share of the noise that is in the source
    log_gains: Float = field(repr=False)  # (tested,) by decreasing covariance
    errors: Float = field(repr=False)  # (tested,) their standard errors

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON schema."""
        numbers = {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in vars(self).items()
            if not isinstance(value, np.ndarray)
        }
        return numbers | {"log_gains": self.log_gains.tolist(), "standard_errors": self.errors.tolist()}


def measure_distortion(sums: PairSums, plan: Protocol, margin: float) -> Distortion:
    """Measure the gains on held-out rows, and test them against the margin."""
    groups = _groups(plan)
    moments, totals = _held_out_moments(sums, plan, groups)
    a, b, p = moments.sum(0).T  # (directions + 2,)
    principal = len(p) - 2  # the last two are extremes among the others
    tested = np.flatnonzero(_correlations(a, b, p) > SIGNAL**0.5)
    inside = tested[tested < principal]
    share = float(b[inside].sum() / max(totals.sum(0)[1], np.finfo(float).tiny))
    directions = min(sums.source.rows.d, sums.target.rows.d)
    if not len(inside) or totals.sum(0)[2] <= 0:
        nan, none = float("nan"), np.zeros(0)
        return Distortion("unknown", margin, nan, nan, nan, nan, 0, directions, 0.0, nan, none, none)
    found = _gains(moments.sum(0)[tested], totals.sum(0))
    count = len(groups)
    others = np.array(
        [_gains(moments.sum(0)[tested] - moments[g][tested], totals.sum(0) - totals[g]) for g in range(count)]
    )
    errors = np.sqrt((count - 1) / count * np.square(others - others.mean(0)).sum(0))
    k = len(tested)
    gain, error = np.abs(found[:k]), errors[:k]
    single, all_ = _quantiles(count - 1, 2 * k)
    measured = float((gain + single * error).max())
    # A direction that is found on other rows is not quite the one of extreme gain, and its gain too small. One that is
    # found on the same rows has too large a gain: it bounds the extreme from above.
    bound = float(max(measured, _largest_gain(sums, found[-1]) + single * np.median(error)))
    certain = float(max((found[k : 3 * k] - all_ * errors[k : 3 * k]).max(), 0.0))
    status: Status = "fails" if certain > margin else "holds" if bound < margin else "ambiguous"
    return Distortion(
        status=status,
        margin=margin,
        largest=float(gain.max()),
        bound=bound,
        measured=measured,
        certain=certain,
        tested=len(inside),
        directions=directions,
        share=share,
        source_noise=float(found[-1]),
        log_gains=found[: len(inside)],
        errors=error[: len(inside)],
    )


def _largest_gain(sums: PairSums, split: float) -> float:
    """The largest |log gain| over all directions that all rows test, in sample."""
    paired = sums.outside(None)
    sx, sy = paired.source.scatter, paired.target.scatter
    u, w = _singular_vectors(paired)
    good = np.flatnonzero(_correlations(*_moments(paired, u, w).T) > SIGNAL**0.5)
    if not len(good):
        return 0.0
    mixed = np.array(list(_ratios(multiply(w[:, good].T, sy, w[:, good]), multiply(u[:, good].T, sx, u[:, good])))).T
    moments = _moments(paired, u[:, good] @ mixed, w[:, good] @ mixed)
    moments = moments[_correlations(*moments.T) > SIGNAL**0.5]
    nuclear = float(np.einsum("ij,ij->", paired.cross @ w, u))
    totals = np.array([np.trace(sx), np.trace(sy), nuclear])
    return float(np.abs(_log_gains(moments, totals, split)).max(initial=0.0))


def _quantiles(df: int, tests: int) -> tuple[float, float]:
    """Of Student's t: for one test, and for the largest of several (Bonferroni)."""
    return student_quantile(df, 1 - LEVEL), student_quantile(df, 1 - LEVEL / tests)


def _groups(plan: Protocol) -> list[Array]:
    """Rows in groups of whole units, for the jackknife; of many rows a sample."""
    rng, units = np.random.default_rng(plan.seed), int(plan.unit.max()) + 1
    count = min(GROUPS_OF_ROWS, units)
    group = (rng.permutation(units) % count)[plan.unit]
    n = len(plan.unit)
    if n > MOST_ROWS:
        group = np.where(rng.random(n) < MOST_ROWS / n, group, -1)
    return [np.flatnonzero(group == g) for g in range(count)]


def _held_out_moments(sums: PairSums, plan: Protocol, groups: list[Array]) -> tuple[Float, Float]:
    """Sums of squares and products (groups, directions + 2, 3), and of all directions together (groups, 3)."""
    group_of = np.full(len(plan.unit), -1)
    for g, rows in enumerate(groups):
        group_of[rows] = g
    found = [_directions(sums.outside(fold)) for fold in range(len(plan.folds))]
    width = min(len(u[0]) for u, _ in found)
    moments, totals = np.zeros((len(groups), width, 3)), np.zeros((len(groups), 3))
    for (u, w), fold in zip(found, plan.folds, strict=True):
        u, w = (np.delete(side, np.s_[width - 2 : side.shape[1] - 2], axis=1) for side in (u, w))
        index, x, y = fold[group_of[fold] >= 0], sums.source.rows, sums.target.rows
        for part in row_chunks(len(index), max(x.d, y.d), chunk_bytes(x.device)):
            _add_moments(moments, totals, sums, index[part], group_of[index[part]], u, w)
    return moments, totals


def _add_moments(moments: Float, totals: Float, sums: PairSums, index: Array, group: Array, u: Float, w: Float) -> None:
    x, y = sums.source.rows.take(index), sums.target.rows.take(index)
    member = as_float64_like((group == np.arange(len(moments))[:, None]).astype(float), x)  # (groups, rows)
    zx, zy = x @ as_float64_like(u, x), y @ as_float64_like(w, y)
    for k, products in enumerate((zx * zx, zy * zy, zx * zy)):
        moments[:, :, k] += to_numpy(member @ products)
    both = (zx * zy)[:, :-2].sum(1)
    for k, total in enumerate(((x * x).sum(1), (y * y).sum(1), both)):
        totals[:, k] += to_numpy(member @ total)


def _directions(paired: PairScatter) -> tuple[Float, Float]:
    """Directions of the largest covariance, (d_x, r + 2) and (d_y, r + 2), the last two those of extreme gain.

    A distortion along directions between the principal ones shows in the variances of the two runs: the extremes of
    their ratio are among all directions that are tested.
    """
    u, w = _singular_vectors(paired)
    if not u.size:  # a run does not vary
        return np.zeros((len(u), 2)), np.zeros((len(w), 2))
    sx, sy = paired.source.scatter, paired.target.scatter
    good = np.flatnonzero(_correlations(*_moments(paired, u, w).T) > SIGNAL**0.5)
    if not len(good):
        return np.hstack([u, u[:, [0, 0]]]), np.hstack([w, w[:, [0, 0]]])
    u_good, w_good = u[:, good], w[:, good]
    inner, outer = multiply(u_good.T, sx, u_good), multiply(w_good.T, sy, w_good)
    ratios = list(_ratios(outer, inner))
    extremes = (ratios[0], ratios[-1])
    return (
        np.hstack([u, *(u_good @ v[:, None] for v in extremes)]),
        np.hstack([w, *(w_good @ v[:, None] for v in extremes)]),
    )


def _correlations(a: Float, b: Float, p: Float) -> Float:
    """The correlation in every direction; 0 where a run does not vary. Products could overflow, so roots are taken."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(p / np.sqrt(a) / np.sqrt(b), posinf=0.0, neginf=0.0)


def _moments(paired: PairScatter, u: Float, w: Float) -> Float:
    """Variances along u and w and their covariances, in sample, shape (directions, 3)."""
    a, b = (np.einsum("ij,ij->j", s @ v, v) for s, v in ((paired.source.scatter, u), (paired.target.scatter, w)))
    return np.column_stack([a, b, np.einsum("ij,ij->j", paired.cross @ w, u)])


def _ratios(above: Float, below: Float) -> Iterator[Float]:
    """The unit vectors v of stationary ratio v' above v / v' below v, the least ratio first."""
    root = linalg.cholesky(below + 1e-12 * np.trace(below) / len(below) * np.eye(len(below)), lower=True)
    ratio = linalg.solve_triangular(root, linalg.solve_triangular(root, above, lower=True).T, lower=True)
    vectors = eigh((ratio + ratio.T) / 2)[1]
    for v in linalg.solve_triangular(root.T, vectors).T:
        yield v / linalg.norm(v)


def _singular_vectors(paired: PairScatter) -> tuple[Float, Float]:
    """The singular vectors of the cross product with the largest singular values, (d_x, r) and (d_y, r)."""
    cross = paired.cross
    if min(cross.shape) > MOST_DIRECTIONS:
        return leading_pairs(cross, MOST_DIRECTIONS)
    if cross.shape[0] == cross.shape[1] and paired._polar is not None:
        # cross = (U S U') R with the rotation R, which is known: a symmetric decomposition is faster than a general one
        symmetric = multiply(cross, paired.rotation.T)
        u = eigh((symmetric + symmetric.T) / 2)[1][:, ::-1]
        return u, paired.rotation.T @ u
    u, _, vt = paired.svd
    return u[: cross.shape[0]], vt.T[: cross.shape[1]]


def _gains(moments: Float, totals: Float) -> Float:
    """Of directions (k, 3) and all together (3,): corrected log gains (k,), certain excesses (2 k,), and the split.

    The gain at a share t of the noise in the source is the first slope times the t-th power of the ratio of the two.
    """
    low, high, scale_low, scale_high = _slopes(moments, totals)
    first, step = low - scale_low, (high - scale_high) - (low - scale_low)
    weight = 1 / (0.01 + high - low) ** 2  # directions with less noise are known more precisely
    split = -(weight * first * step).sum() / max((weight * step * step).sum(), np.finfo(float).tiny)
    split = float(np.clip(split, 0, 1))
    return np.concatenate([first + split * step, low - scale_high, scale_low - high, [split]])


def _log_gains(moments: Float, totals: Float, split: float) -> Float:
    """The log gains at one split of the noise, relative to the common scale, shape (k,)."""
    low, high, scale_low, scale_high = _slopes(moments, totals)
    return (1 - split) * (low - scale_low) + split * (high - scale_high)


def _slopes(moments: Float, totals: Float) -> tuple[Float, Float, float, float]:
    """The logarithms of the slopes of both regressions, of every direction (k,) and of all together."""
    a, b, p = moments.T
    p = np.maximum(p, np.finfo(float).eps * np.sqrt(a) * np.sqrt(b))
    return np.log(p / a), np.log(b / p), float(np.log(totals[2] / totals[0])), float(np.log(totals[1] / totals[2]))
