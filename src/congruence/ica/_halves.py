"""Does a component return on other rows? Fits of disjoint halves, and errors that assume no independence.

Rows that belong together stay in one half: those of a cluster, exact copies of a row, and neighbours. Both halves and
the errors use blocks of successive rows, so that rows of a series count as no more than they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2, t

from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.ica._passes import few_of
from congruence.ica._point import NOISE_ERROR, NOISE_PAIR_ERROR, SAME_AXIS, polar
from congruence.ica._spectral import NARROW, rows_needed
from congruence.rows.algebra import eigh
from congruence.rows.blocks import DaskRows, Partition, compute

if TYPE_CHECKING:
    from congruence.ica._unmixing import PreparedRows, Sample, Unmixing

NEAR_LIMIT = 0.05  # distance from that limit within which another seed may decide otherwise
BLOCKS = 16  # of successive rows: long ones for the sake of series, as many as an estimate of a variance needs
FEWEST_BLOCKS = 4
TWO_COMPONENTS_ERROR = 0.1  # radians: in a single plane, axes that do not exist are more often below `NOISE_PAIR_ERROR`
COMPARED = 500  # distinct rows by which discrete sources are distinguished from copies of rows
FEWEST_VALUES = 16  # distinct rows, up to which they are values of discrete sources
CHUNK = 2**20  # bytes of rows that are projected at a time
ENOUGH, ROWS_PER_SQUARE = 30_000, 30  # rows of a half, in all or per squared number of components, that are enough
ROUGH_TURN = 0.01  # radians that the components of a half may still turn: they are compared with `SAME_AXIS` alone


def check_components(
    prepared: PreparedRows,
    unmixing: Unmixing,
    rows: Array | None,
    labels: Array | None,
    rng: np.random.Generator,
    *,
    starts: int,
    tol: float,
    max_iter: int,
) -> Unmixing:
    """Return the components with errors that assume no independence, identified only if they return on other rows.

    `rows` (m,) are those they were fitted to, if not all; `labels` (n,) the cluster of every row. Each half has as many
    starts as the fit to all rows, or one where rows are so many that starts hardly matter.
    """
    block = blocks_of(units(prepared, labels), len(prepared.data), rows)
    if block.max(initial=-1) + 1 < FEWEST_BLOCKS or not unmixing.k:
        unknown = np.full(unmixing.k, np.nan)
        return replace(unmixing, returned=unknown, identified=np.zeros(unmixing.k, dtype=bool))
    most = max(ENOUGH, ROWS_PER_SQUARE * unmixing.k**2)
    halves = [half if rows is None else rows[half] for half in halves_of(block, most)]
    options = {"tol": max(tol, ROUGH_TURN), "max_iter": max_iter}
    options["starts"] = starts if few_of(unmixing.n, unmixing.k) is None else 1
    returned = _returned(prepared, unmixing, halves, rng, options)
    sure, error = returned >= SAME_AXIS, unmixing.sampling_error
    if not np.isnan(error).any():
        pairs, without_axes = pair_errors(prepared.subset(rows), unmixing.unmixing, block)
        error = np.sqrt(np.square(pairs).sum(1))
        limit = NOISE_PAIR_ERROR if unmixing.k > 2 else TWO_COMPONENTS_ERROR
        sure &= (error < NOISE_ERROR) & (without_axes.max(1, initial=0) < limit)
    return replace(unmixing, returned=returned, sampling_error=error, identified=unmixing.identified & sure)


def _returned(
    prepared: PreparedRows, unmixing: Unmixing, halves: list[Array], rng: np.random.Generator, options: dict[str, Any]
) -> Float:
    """The smallest |correlation| between a component and its partners on both halves, all three pairs, (k,)."""
    space = whitened_space(prepared)
    ours = directions(unmixing.unmixing, space)
    partners, found = [], []
    for half in halves:
        sample = prepared.resample(half, gather=False)
        if too_few_for_own_start(len(half), unmixing.k) and sample.whitening.retained == unmixing.k:
            start = polar(unmixing.unmixing @ sample.whitening.inverse)
            options = options | {"start": start, "near": True, "starts": 1}
        fit = sample.unmix(seed=rng, **options)
        theirs = directions(fit.unmixing, space)
        match = np.abs(ours @ theirs.T)
        partners.append(theirs[match.argmax(1)])
        found.append(match.max(1))
    between = np.abs((partners[0] * partners[1]).sum(1))
    return np.asarray(np.minimum(np.min([*found, between], axis=0), 1.0))


def too_few_for_own_start(n: int, k: int) -> bool:
    """Whether n rows are too few to find k components from a start of their own, even where all rows suffice."""
    return k >= NARROW and n < rows_needed(k)


def units(prepared: PreparedRows, labels: Array | None = None) -> Array | None:
    """The unit of every row, in order of first occurrence, (n,): its cluster, or all copies of the row.

    None where every row is a unit of its own.
    """
    if labels is None:
        labels = _projection(prepared)
        distinct = np.unique(labels)
        if len(distinct) == len(labels) or _are_discrete(distinct):
            return None
    _, first, unit = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[unit]


def _are_discrete(distinct: Float) -> bool:
    """Whether rows with these projections, rising, are values of discrete sources, which repeat without being copies.

    Differences between values of few levels repeat, also if sources are mixed; those of other rows do not.
    """
    some = np.sort(np.random.default_rng(0).permutation(distinct)[:COMPARED])
    differences = (some[:, None] - some)[np.tril_indices(len(some), -1)]
    close = 1e-9 * (some[-1] - some[0])
    return len(some) <= FEWEST_VALUES or 1 + (np.diff(np.sort(differences)) > close).sum() < len(differences) / 2


def _projection(prepared: PreparedRows) -> Float:
    """Every row on one random direction, (n,): only equal rows have equal values."""
    white, data = prepared.whitening, prepared.data
    direction = np.random.default_rng(0).normal(size=white.retained) @ white.matrix
    if isinstance(data, DaskRows):
        return np.concatenate(compute(data.each(_project, white.mean, direction)))
    return _project(data, Partition(0), white.mean, direction)


def _project(rows: Any, part: Partition, mean: Float, direction: Float) -> Float:
    n, d = rows.shape
    chunks = (to_numpy(rows[some]).astype(np.float64, order="C") for some in row_chunks(n, d, CHUNK))
    # a sum along each row rounds equal rows equally, which a matrix product need not
    return np.concatenate([((chunk - mean) * direction).sum(1) for chunk in chunks])


def blocks_of(unit: Array | None, n: int, rows: Array | None = None) -> Array:
    """The block of each of the chosen rows, (m,): successive units, at most `BLOCKS` blocks of about equal size."""
    if unit is None:
        m = n if rows is None else len(rows)
        edges = np.arange((blocks := min(BLOCKS, m)) + 1) * m // blocks
        return np.repeat(np.arange(blocks, dtype=np.int8), np.diff(edges))
    unit = unit if rows is None else np.unique(unit[rows], return_inverse=True)[1]
    size = np.bincount(unit)
    middle = np.cumsum(size) - size / 2
    return np.unique((middle * BLOCKS / len(unit)).astype(np.int64)[unit], return_inverse=True)[1].astype(np.int8)


def halves_of(block: Array, most: int) -> tuple[Array, Array]:
    """The rows of both halves, rising: blocks in turn to the smaller half; of each the first rows, so many in all."""
    size = np.bincount(block)
    halves: tuple[list[Array], list[Array]] = ([], [])
    taken, share = [0, 0], min(1.0, 2 * most / len(block))
    for i, rows in enumerate(size.tolist()):
        smaller = int(taken[1] < taken[0])
        taken[smaller] += rows
        halves[smaller].append(np.flatnonzero(block == i)[: int(np.ceil(share * rows))])
    one, other = (np.sort(np.concatenate(half)) for half in halves)
    return one, other


def pair_errors(sample: Sample, unmixing: Float, block: Array) -> tuple[Float, Float]:
    """Standard error of component i in the direction of component j, in radians, (k, k), by a sandwich estimate.

    The variance of the score of a rotation in a plane is that of its sums over blocks, and its derivative is that of
    these rows: components need not be independent, nor rows. For independent ones it is eq. 11 of Tichavský, Koldovský
    & Oja 2006, which `_solver.Point.pair_errors` uses. At most a right angle, as where the contrast has no maximum.

    The second matrix are errors for rows without axes. There the contrast in a plane is a sum of waves, one per row,
    cos 4(angle - phase) with random phases. A far row draws the maximum to itself, and then has no score: what it
    contributes is seen in the curvature, which has 16 times the variance of the score over all phases. So the variance
    is the mean of that of the score and a 16th of that of the curvature, where this is larger than the first alone. All
    components of such rows are on the same side of the Gaussian, so other planes keep the first.
    """
    white, source = sample.whitening, sample.source
    rotation = polar(unmixing @ white.inverse)
    averages = source.averages(source.lift(rotation))
    cross, slope = to_numpy(averages.cross), to_numpy(averages.slope)
    own = np.diag(cross)
    size, sign = np.abs(slope - own), np.where(slope >= own, 1.0, -1.0)[:, None]
    variance, curvature, square, weighted = (np.zeros_like(cross) for _ in range(4))
    shares = np.bincount(block) / len(block)
    for part, share in enumerate(shares):
        index = np.flatnonzero(block == part)
        at = index if sample.index is None else sample.index[index]
        scores = sample.prepared.passes(white, at).scores(rotation)
        pushed = sign * (scores.cross - own[:, None] * scores.second)
        variance += np.square(share * (pushed - pushed.T + size[:, None] * scores.second))
        bent = share * sign * (scores.curvature - np.diag(scores.cross)[:, None])
        bent = bent + bent.T
        curvature, square, weighted = curvature + bent, square + bent**2, weighted + share * bent
    spread = np.maximum(square - 2 * curvature * weighted + curvature**2 * np.square(shares).sum(), 0)
    few = t.ppf(0.975, len(shares) - 1) / 1.96  # a variance of few blocks is often too small
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = few * np.sqrt(len(shares) / (len(shares) - 1)) / np.maximum(curvature, 0)
        joint = np.where(sign == sign.T, (variance + spread / 16) / 2, 0.0)
        errors = (np.minimum(scale * np.sqrt(one), np.pi / 2) for one in (variance, np.maximum(variance, joint)))
        error, without_axes = (np.where(np.eye(len(cross), dtype=bool), 0.0, one) for one in errors)
    return error, without_axes


def error_limit(pairs: Float) -> Float:
    """The angle that each of k axes errs by with a probability below 5 % over all of them, from `pair_errors`, (k,).

    A squared angle is a sum over planes, with the distribution of Satterthwaite 1946.
    """
    square = np.square(pairs)
    total, fourth = square.sum(1), np.square(square).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(fourth > 0, total**2 / fourth, 1.0)
    return np.asarray(np.sqrt(total * chi2.ppf(1 - 0.05 / max(len(pairs), 1), freedom) / freedom))


def whitened_space(prepared: PreparedRows) -> Float:
    """Return a matrix B, shape (d, r), with B @ B.T the covariance of all rows (second moments, if not whitened).

    From the whitening and not from the covariance itself, in which rounding may hide the smallest directions.
    """
    if prepared.whiten:
        white = prepared.whitening
        return white.inverse if white.retained == white.rank else prepared.retain(None).whitening.inverse
    mean = prepared.moments.mean
    values, vectors = eigh(prepared.moments.finish() + np.outer(mean, mean))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


def directions(unmixing: Float, space: Float) -> Float:
    """Return unit vectors (k, r), one per row of `unmixing` (k, d): their products are correlations over all rows."""
    components = unmixing @ space
    length = np.linalg.norm(components, axis=1, keepdims=True)
    return np.asarray(components / np.where(length > 0, length, 1.0))
