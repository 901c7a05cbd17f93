"""Nearness (epsilon): the error after the best map of a group, over the diameter of the target.

Each error is computed in sample (as the paper prints it), held out (fitted on some rows, scored on others), and under
the permutation null (held out, after the pairing of the rows was destroyed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, is_tensor, row_chunks, to_numpy
from congruence.checks import check_choice, check_integer, check_integers, check_number, check_seed
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.rows.algebra import one_thread
from congruence.rows.blocks import Partition, compute
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, PairSums
from congruence.stats.intervals import bootstrap_means
from congruence.stats.nulls import repairing

Fit = Callable[[PairScatter, int | None], Map]  # the sums of the rows to fit on, and the fold left out
Tick = Callable[[], None]

BLOCK_BYTES = 2 * 2**20  # of float64 rows that are mapped and measured at a time
NULL_ROWS = 20_000  # rows scored in each re-pairing; maps are fitted on all


@dataclass(frozen=True)
class HeldOut:
    """The mean error on rows the map was not fitted on, with a 95 % bootstrap interval over rows (or clusters)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Nearness:
    """The distance of two runs up to one group of maps, as a share of the target's diameter; lower is closer.

    `mean`, `rms`, `q95` and `sup` are in sample (fitted and scored on the same rows, as in the paper's Table 1;
    Def. 1 is about `sup`). `held_out` is scored on rows left out of the fit; `null` is the same score averaged over
    random re-pairings of the rows, each on one fold. `errors` holds the held-out error of every row.
    """

    group: str
    mean: float
    rms: float
    q95: float
    sup: float
    held_out: HeldOut
    null: float
    errors: Float = field(repr=False, compare=False)  # (n,)

    def to_dict(self) -> dict[str, Any]:
        """The numbers without the rows, as in the JSON contract."""
        return {name: getattr(self, name) for name in ("mean", "rms", "q95", "sup")} | {
            "held_out": dict(vars(self.held_out)),
            "null": self.null,
        }


@dataclass(frozen=True, eq=False)
class Protocol:
    """Folds, clusters and re-pairings: how errors are held out, resampled and compared with the null."""

    folds: list[Array]  # row indices of each fold
    unit: Array  # (n,) the cluster of each row; rows of a cluster stay together
    clustered: bool
    repairings: list[Array]  # each (n,): the partner of every row in a destroyed pairing
    bootstrap: int
    seed: int

    @cached_property
    def fold_of(self) -> Array:
        """The number of the fold that holds each row, shape (n,)."""
        number = np.empty(len(self.unit), dtype=int)
        for k, fold in enumerate(self.folds):
            number[fold] = k
        return number


def check_method(normalize: str | None, *, folds: int, nulls: int, bootstrap: int, seed: int) -> None:
    """Check the options of a protocol before any work is done."""
    check_choice("normalize", normalize, (None, "cosine"))
    check_integer("folds", folds, 2)
    check_integers(0, nulls=nulls, bootstrap=bootstrap)
    check_seed(seed)


def protocol(
    n: int, *, folds: int = 5, nulls: int = 20, bootstrap: int = 200, cluster: Array | None = None, seed: int = 0
) -> Protocol:
    """Split n rows (or clusters of rows) into folds of similar size and draw the re-pairings of the null."""
    unit = np.arange(n) if cluster is None else np.unique(cluster, return_inverse=True)[1]
    units = int(unit.max()) + 1
    if cluster is not None and units < 2:
        raise InputError("all rows belong to one cluster, so none can be held out; use a finer cluster variable")
    count = min(folds, units, n // 2)
    if count < 2:
        raise InputError(f"held-out scores need at least 4 paired rows; got {n}")
    rng = np.random.default_rng(seed)
    dealt = _deal(np.bincount(unit), count, rng)
    parts = [np.flatnonzero(dealt[unit] == k) for k in range(count)]
    clusters = None if cluster is None else unit
    repairings = [repairing(n, rng, folds=parts, unit=clusters) for _ in range(nulls)]
    return Protocol(parts, unit, cluster is not None, repairings, bootstrap, seed)


def _deal(sizes: Array, folds: int, rng: np.random.Generator) -> Array:
    """Assign clusters to folds, the largest first and each to the fold with the fewest rows so far."""
    dealt = np.empty(len(sizes), dtype=int)
    shuffled = rng.permutation(len(sizes))
    if sizes.max() == 1:
        dealt[shuffled] = np.arange(len(sizes)) % folds
        return dealt
    rows = np.zeros(folds, dtype=int)
    for cluster in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        dealt[cluster] = rows.argmin()
        rows[dealt[cluster]] += sizes[cluster]
    return dealt


def measure(
    sums: PairSums, fits: Mapping[str, Fit], diameter: float, plan: Protocol, tick: Tick = lambda: None
) -> tuple[dict[str, Nearness], dict[str, Map]]:
    """Measure the nearness of a pair of runs for several ways of fitting a map.

    Returns the nearness and the map fitted to all rows, by name. `tick` reports progress after each of the 1 + nulls
    rounds.
    """
    maps = _fit_all(fits, sums.outside(None), None)
    in_sample = _errors(maps, sums, None)
    held_out = np.empty((len(fits), sums.source.rows.n))
    for fold, errors in zip(plan.folds, _held_out(sums, fits, plan.folds), strict=True):
        held_out[:, fold] = errors
    tick()
    null = _null(sums, fits, plan, tick)
    intervals = bootstrap_means(held_out / diameter, plan.unit, plan.bootstrap, plan.seed)
    return {
        name: _summary(name, in_sample[i], held_out[i], null[i], intervals[i], diameter) for i, name in enumerate(fits)
    }, maps


def _null(sums: PairSums, fits: Mapping[str, Fit], plan: Protocol, tick: Tick) -> Float:
    """The mean held-out error of each fit after the pairing was destroyed, shape (fits,).

    Each re-pairing is scored on one fold, and the folds take turns, so that every row counts (with fewer re-pairings
    than folds, on several). The expectation is that of scoring all folds of all re-pairings, the work a fraction.
    """
    if not plan.repairings:
        return np.full(len(fits), np.nan)
    few = _sampled(plan)
    errors: list[list[Float]] = [[] for _ in plan.folds]
    for turn in range(max(len(plan.repairings), len(plan.folds))):
        fold = turn % len(plan.folds)
        order = plan.repairings[turn % len(plan.repairings)]
        paired, target = sums.repaired(order, fold, inside_folds=not plan.clustered)
        scored = _stacked(_fit_all(fits, paired, fold), sums.source.rows, target, few[fold])
        errors[fold].append(scored.mean(1))
        if turn < len(plan.repairings):
            tick()
    sizes = np.array([len(fold) for fold in plan.folds]) / len(plan.unit)
    return np.array([np.mean(of_fold, axis=0) for of_fold in errors]).T @ sizes


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


def _summary(
    group: str, in_sample: Float, held_out: Float, null: float, interval: tuple[float, float], diameter: float
) -> Nearness:
    in_sample, held_out = in_sample / diameter, held_out / diameter
    return Nearness(
        group=group,
        mean=float(in_sample.mean()),
        rms=float(np.sqrt((in_sample**2).mean())),
        q95=float(np.quantile(in_sample, 0.95)),
        sup=float(in_sample.max()),
        held_out=HeldOut(float(held_out.mean()), *interval),
        null=float(null / diameter),
        errors=held_out,
    )


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
