"""Nearness (epsilon): the error after the best map of a group, over the diameter of the target.

Each error is computed in sample (as the paper prints it), held out (fitted on some rows, scored on others), and under
the permutation null (held out, after the pairing of the rows was destroyed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, is_tensor, row_chunks, to_numpy
from congruence.checks import check_number
from congruence.errors import InputError
from congruence.maps._protocol import Protocol as Protocol
from congruence.maps._protocol import check_method as check_method
from congruence.maps._protocol import protocol as protocol
from congruence.maps.groups import Map
from congruence.result import Record
from congruence.rows.algebra import one_thread
from congruence.rows.blocks import Partition, compute
from congruence.rows.engine import LIMIT, Rows, chunk_bytes
from congruence.rows.sums import PairScatter, PairSums
from congruence.stats.intervals import NO_INTERVAL, percentile_interval, ratio_interval, resampled_sums

Fit = Callable[[PairScatter, int | None], Map]  # the sums of the rows to fit on, and the fold left out
Tick = Callable[[], None]

RELATED = 0.95  # an error above this share of chance is no better than chance
TRIMMED = 0.05  # the share of the largest errors that the trimmed ratio leaves out
FEW_UNITS = 200  # clusters or blocks; with fewer, an interval alone does not tell whether runs are related
ROWS_FOR_AN_INTERVAL = 5  # per dimension; with fewer, no interval of a linear map covers its error
BLOCK_BYTES = 2 * 2**20  # of float64 rows that are mapped and measured at a time
NULL_ROWS = 20_000  # rows scored in each re-pairing; maps are fitted on all


@dataclass(frozen=True)
class HeldOut(Record):
    """A number on rows the map was not fitted on, with a 95 % bootstrap interval over rows (or clusters)."""

    mean: float
    low: float
    high: float


NOTHING = HeldOut(float("nan"), *NO_INTERVAL)


@dataclass(frozen=True)
class Nearness(Record):
    """The distance of two runs up to one group of maps; lower is closer.

    `of_chance` is the held-out error over the null error, and `r2` the share of the target's variance that the map
    explains on held-out rows. Neither depends on the units of the target. Their intervals are those of the map fitted
    to all rows. `trimmed` is `of_chance` without the 5 % largest errors above and below the line.

    All others are shares of the target's diameter. `mean`, `rms`, `q95` and `sup` are in sample (fitted and scored on
    the same rows, as in the paper's Table 1; Def. 1 is about `sup`). `held_out` is scored on rows left out of the fit;
    `null` is the same score averaged over random re-pairings of the rows, each on one fold. `errors` holds the
    held-out error of every row.
    """

    group: str
    mean: float
    rms: float
    q95: float
    sup: float
    held_out: HeldOut
    null: float
    errors: Float = field(repr=False, compare=False)  # (n,)
    of_chance: HeldOut = NOTHING
    r2: HeldOut = NOTHING
    trimmed: float = float("nan")
    p: float = float("nan")  # of no group being 5 % closer than chance, where each re-pairing was scored on all folds

    NAMES = ("of_chance", "r2", "trimmed", "p", "held_out", "null", "mean", "rms", "q95", "sup")

    def to_dict(self) -> dict[str, Any]:
        """The numbers without the rows, as in the JSON contract."""
        return {**super().to_dict(), "p": None if np.isnan(self.p) else self.p}


def measure(
    sums: PairSums, fits: Mapping[str, Fit], diameter: float, plan: Protocol, tick: Tick = lambda: None
) -> tuple[dict[str, Nearness], dict[str, Map]]:
    """Measure the nearness of a pair of runs for several ways of fitting a map.

    Returns the nearness and the map fitted to all rows, by name. `tick` reports progress after each of the 1 + nulls
    rounds.
    """
    norms = [float(np.sqrt(np.trace(run.outside(None).scatter))) for run in (sums.source, sums.target)]
    if max(norms) > LIMIT * min(norms) > 0:  # a map from one to the other could not be squared
        raise InputError(f"the runs differ in size by a factor of {max(norms) / min(norms):.0e}; rescale one of them")
    maps = _fit_all(fits, sums.outside(None), None)
    in_sample = _errors(maps, sums, None)
    held_out = np.empty((len(fits), sums.source.rows.n))
    for fold, errors in zip(plan.folds, _held_out(sums, fits, plan.folds), strict=True):
        held_out[:, fold] = errors
    tick()
    null = _null(sums, fits, plan, tick)
    return dict(zip(fits, _summaries(list(fits), sums, in_sample, held_out, null, diameter, plan), strict=True)), maps


@dataclass(frozen=True, eq=False)
class _Null:
    """The errors after the pairing was destroyed."""

    mean: Float  # (fits,)
    draws: Float  # (fits, re-pairings) the mean of each over all folds; empty where each was scored on one fold
    sums: Float  # (fits, n) over the re-pairings, by the row of the target
    counts: Float  # (n,) how often each row of the target was scored


def _null(sums: PairSums, fits: Mapping[str, Fit], plan: Protocol, tick: Tick) -> _Null:
    """The held-out errors of each fit after the pairing was destroyed.

    Each re-pairing is scored on one fold, and the folds take turns, so that every row counts (with fewer re-pairings
    than folds, on several). The expectation is that of scoring all folds of all re-pairings, the work a fraction.
    """
    n = len(plan.unit)
    total, counts = np.zeros((len(fits), n)), np.zeros(n)
    if not plan.repairings:
        return _Null(np.full(len(fits), np.nan), np.zeros((len(fits), 0)), total, counts)
    few, folds = _sampled(plan), len(plan.folds)
    errors: list[list[Float]] = [[] for _ in plan.folds]
    # Few clusters, and shifts of ordered rows, vary so much that each is compared with the true pairing as a whole.
    whole = plan.clustered and plan.units < FEW_UNITS
    for turn in range(len(plan.repairings) * folds if whole else max(len(plan.repairings), folds)):
        fold = turn % folds
        order = plan.repairings[turn // folds if whole else turn % len(plan.repairings)]
        paired, target = sums.repaired(order, fold, inside_folds=not plan.clustered)
        scored = _stacked(_fit_all(fits, paired, fold), sums.source.rows, target, few[fold])
        errors[fold].append(scored.mean(1))
        partners = order[few[fold]]
        counts += np.bincount(partners, minlength=n)
        for i, of_fit in enumerate(scored):
            total[i] += np.bincount(partners, weights=of_fit, minlength=n)
        if fold == folds - 1 if whole else turn < len(plan.repairings):
            tick()
    sizes = np.array([len(fold) for fold in plan.folds]) / len(plan.unit)
    mean = np.array([np.mean(of_fold, axis=0) for of_fold in errors]).T @ sizes
    draws = np.einsum("krf,k->fr", np.array(errors), sizes) if whole else np.zeros((len(fits), 0))
    return _Null(mean, draws, total, counts)


def _fit_all(fits: Mapping[str, Fit], paired: PairScatter, fold: int | None) -> dict[str, Map]:
    with one_thread(paired.width):
        return {name: fit(paired, fold) for name, fit in fits.items()}


def _errors(maps: Mapping[str, Map], sums: PairSums, index: Array | None) -> Float:
    """The errors of all rows, or of those in the increasing `index`, for every map, shape (maps, rows)."""
    x, y = sums.source.rows, sums.target.rows
    if x.blocks is None or y.blocks is None or not x.blocks.kept:  # computing rows again costs more
        return _stacked(maps, x, y, index)
    tasks = x.blocks.each(_block_errors, dict(maps), x.with_data(), y.with_data(), index=index, aligned=[y.blocks])
    return np.concatenate(compute(tasks), axis=1)


def _block_errors(block: Any, part: Partition, other: Any, maps: Mapping[str, Map], x: Rows, y: Rows) -> Float:
    return _stacked(maps, x.with_data(to_numpy(block)), y.with_data(to_numpy(other)), part.index)


def _stacked(maps: Mapping[str, Map], x: Rows, y: Rows, index: Array | None) -> Float:
    return np.array(list(row_errors(maps, x, y, np.arange(x.n) if index is None else index).values()))


def row_errors(maps: Mapping[str, Map], x: Rows, y: Rows, index: Array) -> dict[str, Float]:
    """The distance |h(x_i) - y_i| of every chosen row for every map h, each of shape (len(index),)."""
    width = max(x.d, y.d)
    errors = {name: np.empty(len(index)) for name in maps}
    products = {name: _multiplication(h, x.d) for name, h in maps.items()}
    factor = _common_factor(maps)
    # Chunks are centred; the difference of the means after the map is one small vector, added at the end.
    offsets = {name: h(x.mean[None])[0] - np.pad(y.mean, (0, width - y.d)) for name, h in maps.items()}
    # On a CPU, blocks stay in its cache while they are mapped, subtracted and squared.
    for part in row_chunks(len(index), width, BLOCK_BYTES if x.device == "cpu" else None):
        chunk = x.take(index[part])
        target = y.take(index[part], width=width)
        rotated: Any = None
        for name, apply in products.items():
            image = factor * rotated if name == "similarity" and rotated is not None else apply(chunk)
            if name == "rigid" and factor is not None:
                rotated = image
            residual = image - target
            residual += as_float64_like(offsets[name], chunk)
            errors[name][part] = to_numpy((residual * residual).sum(1) ** 0.5)
    return errors


def _common_factor(maps: Mapping[str, Map]) -> float | None:
    """The factor between the matrices of the rigid map and the similarity, which then share a product; or None."""
    if not ("rigid" in maps and "similarity" in maps):
        return None
    one, other = maps["rigid"].matrix, maps["similarity"].matrix
    at = np.abs(one).argmax()
    factor = float(other.flat[at] / one.flat[at])
    return factor if np.abs(other - factor * one).max() <= 1e-15 * abs(factor) else None


def _multiplication(h: Map, d: int) -> Callable[[Any], Any]:
    """The function chunk -> chunk @ matrix; a permutation of full width only picks columns, which is far cheaper."""
    if d < h.width or h.group not in ("identity", "permutation"):
        return lambda chunk: chunk @ as_float64_like(h.matrix[:d], chunk)
    source = np.abs(h.matrix).argmax(0)  # column j of the result is column source[j] of the chunk
    signs = h.matrix[source, np.arange(d)]
    # numpy takes columns several times faster than it indexes them
    return lambda chunk: (
        (chunk[:, source] if is_tensor(chunk) else chunk.take(source, axis=1)) * as_float64_like(signs, chunk)
    )


def _held_out(sums: PairSums, fits: Mapping[str, Fit], scored: list[Array]) -> list[Float]:
    """The errors of the scored rows of each fold under maps fitted without it: for each, (fits, rows)."""
    return [_errors(_fit_all(fits, sums.outside(k), k), sums, rows) for k, rows in enumerate(scored)]


def _sampled(plan: Protocol) -> list[Array]:
    """A sample of the rows of each fold: the null averages many re-pairings, so it needs fewer rows of each."""
    rng = np.random.default_rng(plan.seed)
    most = max(NULL_ROWS // len(plan.folds), 1)
    return [np.sort(rng.permutation(fold)[:most]) if len(fold) > most else fold for fold in plan.folds]


def _summaries(
    groups: list[str], sums: PairSums, in_sample: Float, held_out: Float, null: _Null, diameter: float, plan: Protocol
) -> list[Nearness]:
    """The numbers of every group; all intervals come from the same bootstrap samples."""
    m, norms = len(groups), squared_lengths(sums.target.rows)
    rows = np.vstack([held_out, held_out**2, null.sums, null.counts, norms, np.ones_like(norms)])
    drawn = resampled_sums(rows, plan.unit, plan.bootstrap, plan.seed)  # (3 m + 3, draws)
    scored, variance, size = drawn[-3:]
    units, found = plan.units, []
    p = _p_value(held_out.mean(1), null)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for i, group in enumerate(groups):
            inner, outer = float((in_sample[i] ** 2).mean()), float((held_out[i] ** 2).mean())
            shrink, inflation = _all_rows(inner, outer, len(plan.folds))
            few = group == "linear" and len(norms) < ROWS_FOR_AN_INTERVAL * max(sums.source.rows.d, sums.target.rows.d)
            error, mean = float(held_out[i].mean()), float(null.mean[i])
            errors, squares, nulls = drawn[i] / size, drawn[m + i] / variance, drawn[2 * m + i] / scored
            left = outer / max(float(norms.mean()), np.finfo(float).tiny)

            def around(
                value: float, factor: float, samples: Float, none: bool = few, wide: float = inflation
            ) -> HeldOut:
                if none or not len(samples):
                    return HeldOut(value, *NO_INTERVAL)
                low, high = ratio_interval(value * factor, samples, units, wide)
                return HeldOut(value, min(low, value), max(high, value))

            unexplained = around(left, shrink**2, squares)
            trimmed_null = _trimmed(null.sums[i] / null.counts)
            found.append(
                Nearness(
                    group=group,
                    mean=float(in_sample[i].mean()) / diameter,
                    rms=inner**0.5 / diameter,
                    q95=float(np.quantile(in_sample[i], 0.95)) / diameter,
                    sup=float(in_sample[i].max()) / diameter,
                    held_out=HeldOut(error / diameter, *percentile_interval(errors / diameter)),
                    null=mean / diameter,
                    errors=held_out[i] / diameter,
                    # with all rows, the null error of a linear map is lower by the same factor as its error
                    of_chance=around(
                        error / mean if mean else np.nan, 1.0 if group == "linear" else shrink, errors / nulls
                    ),
                    r2=HeldOut(1 - unexplained.mean, 1 - unexplained.high, 1 - unexplained.low),
                    trimmed=_trimmed(held_out[i]) / trimmed_null if trimmed_null else np.nan,
                    p=p,
                )
            )
    return found


def _all_rows(inner: float, outer: float, folds: int) -> tuple[float, float]:
    """By what factor the error of the map fitted to all rows is below the held-out one, and the variance above.

    A map with p parameters per output, fitted to m rows, has the squared error s (1 - p / m) in sample and
    s / (1 - p / m) on other rows. From the error in sample with n rows, `inner`, and the held-out one with
    n (folds - 1) / folds, `outer`, follow p / n and the error on other rows with n. Held-out errors depend on each
    other through the rows they were fitted on, so their variance is inflated, as Nadeau & Bengio (2003) do by the share
    of rows left out, and by outer / inner: the factors for which simulated intervals cover.
    """
    growth = folds / (folds - 1)
    if not outer > inner > 0:
        return 1.0, growth
    # (1 - growth q) (1 - q) = inner / outer
    b, c = 1 + growth, 1 - inner / outer
    q = (b - np.sqrt(max(b * b - 4 * growth * c, 0.0))) / (2 * growth)
    return float(np.sqrt(min(inner / (1 - q) ** 2 / outer, 1.0))), growth * outer / inner


def _p_value(errors: Float, null: _Null) -> float:
    """The add-one p value of being closer than every re-pairing by 5 %, for the least ratio of all groups to chance.

    NaN where no re-pairing was scored whole.
    """
    count = null.draws.shape[1]
    if count < 1 / (1 - RELATED) - 1 or not (null.mean > 0).all():  # too few to reach 0.05
        return float("nan")
    least = RELATED * (null.draws / null.mean[:, None]).min(0)
    return float((1 + (least <= (errors / null.mean).min()).sum()) / (1 + count))


def _trimmed(errors: Float) -> float:
    """The mean without the largest errors and without NaN."""
    rising = np.sort(errors[np.isfinite(errors)])
    return float(rising[: len(rising) - int(TRIMMED * len(rising))].mean()) if len(rising) else float("nan")


def squared_lengths(rows: Rows, centre: Float | None = None) -> Float:
    """The squared distance of every row from the mean, or from a centre (d,) relative to it, shape (n,)."""
    norms = np.empty(rows.n)
    for part in row_chunks(rows.n, rows.d, chunk_bytes(rows.device)):
        chunk = rows.take(part)
        chunk = chunk if centre is None else chunk - as_float64_like(centre, chunk)
        norms[part] = to_numpy((chunk * chunk).sum(1))
    return norms


def statistical_from_structural(epsilon: float, lipschitz_of_inverse: float = 1.0) -> float:
    """Bound the distance of two trainings that are both within `epsilon` of the factors: 2 C epsilon.

    If |h1 f - u| <= epsilon and |h2 f' - u| <= epsilon everywhere, then |f - h1^-1 h2 f'| <= 2 C epsilon, where C
    bounds how much h1^-1 stretches: structural near-identifiability implies the statistical one.

    Parameters
    ----------
    epsilon : float
        The supremum of the structural error (Definition 2), in any unit; the bound has the same unit.
    lipschitz_of_inverse : float
        C: 1 for permutations and rigid maps, 1 / scale for a similarity, 1 / its least singular value for a linear map.

    References
    ----------
    Nelson et al. 2026, appendix A.5.
    """
    check_number("epsilon", epsilon, 0)
    check_number("lipschitz_of_inverse", lipschitz_of_inverse, 0, open_low=True)
    return 2.0 * lipschitz_of_inverse * epsilon
