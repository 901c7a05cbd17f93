"""Nearness (epsilon): the error left after the best map of a group, over the diameter of the target.

Every number comes three times: in sample (what the paper prints), held out (fitted on some rows, scored on
others), and as a null (held out again, after the pairing of the rows was destroyed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, Rows, float64_beside, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.maps.sums import Paired, PairSums, pair_sums

Fit = Callable[[Paired, int | None], Map]  # the sums of the rows to fit on, and which fold they leave out
Tick = Callable[[], None]


@dataclass(frozen=True)
class HeldOut:
    """The mean error on rows the map was not fitted on, with a 95 % bootstrap interval over rows (or clusters)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Nearness:
    """How near two runs are up to one group. Every field is a share of the target's diameter; lower is nearer.

    `mean`, `rms`, `q95` and `sup` are in sample (fitted and scored on the same rows, as in the paper's Table 1;
    Def. 1 is about `sup`). `held_out` is scored on rows left out of the fit; `null` is the same score after the
    pairing of rows was destroyed, averaged over re-pairings. `errors` holds the held-out error of every row.
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
        return {
            "mean": self.mean,
            "rms": self.rms,
            "q95": self.q95,
            "sup": self.sup,
            "held_out": {"mean": self.held_out.mean, "low": self.held_out.low, "high": self.held_out.high},
            "null": self.null,
        }


@dataclass(frozen=True, eq=False)
class Protocol:
    """How scores are held out, resampled and compared with chance; one for all pairs of a comparison."""

    folds: list[Array]  # row indices of each fold
    unit: Array  # (n,) the cluster of each row; rows of a cluster stay together
    repairings: list[Array]  # each (n,): the partner of every row in a destroyed pairing
    bootstrap: int
    seed: int


def protocol(
    n: int,
    *,
    folds: int = 5,
    nulls: int = 20,
    bootstrap: int = 200,
    cluster: Array | None = None,
    seed: int = 0,
) -> Protocol:
    """Deal n rows (or clusters of rows) into folds and draw the re-pairings of the null.

    Re-pairings shuffle rows inside each fold and leave none in place, so that what is fitted for a fold has seen
    the same rows as the true pairing and only the pairing differs.
    """
    unit = np.arange(n) if cluster is None else np.unique(cluster, return_inverse=True)[1]
    units = int(unit.max()) + 1
    if cluster is not None and units < 2:
        raise InputError("all rows belong to one cluster, so no rows can be held out; cluster by something finer")
    count = min(folds, units, n // 2)
    if count < 2:
        raise InputError(f"holding rows out takes at least 4 paired rows, but there are only {n}")
    rng = np.random.default_rng(seed)
    dealt = np.empty(units, dtype=int)
    dealt[rng.permutation(units)] = np.arange(units) % count
    parts = [np.flatnonzero(dealt[unit] == k) for k in range(count)]
    repairings = [_shuffled_inside(parts, n, rng) for _ in range(nulls)]
    return Protocol(parts, unit, repairings, bootstrap, seed)


def _shuffled_inside(folds: list[Array], n: int, rng: np.random.Generator) -> Array:
    partner = np.arange(n)
    for fold in folds:
        ring = rng.permutation(fold)
        partner[ring] = np.roll(ring, 1)  # one cycle: no row keeps its partner
    return partner


def measure(
    sums: PairSums, fits: Mapping[str, Fit], diameter: float, plan: Protocol, tick: Tick = lambda: None
) -> tuple[dict[str, Nearness], dict[str, Map]]:
    """Measure the nearness of a pair of runs for several ways of fitting a map.

    Returns the nearness and the map fitted to all rows, by name. `tick` is called after each of the
    1 + nulls rounds, for a progress bar.
    """
    maps = {name: fit(sums.outside(None), None) for name, fit in fits.items()}
    in_sample = row_errors(maps, sums.source.rows, sums.target.rows, np.arange(sums.source.rows.n))
    held_out = _held_out(sums, fits, plan.folds, None)
    tick()
    null = dict.fromkeys(fits, 0.0)
    for partner in plan.repairings:
        shuffled = _held_out(pair_sums(sums.source, sums.target, partner), fits, plan.folds, partner)
        for name in fits:
            null[name] += float(shuffled[name].mean()) / len(plan.repairings)
        tick()
    return {
        name: _summary(name, in_sample[name], held_out[name], null[name] if plan.repairings else np.nan, diameter, plan)
        for name in fits
    }, maps


def row_errors(
    maps: Mapping[str, Map], x: Rows, y: Rows, index: Array, partner: Array | None = None
) -> dict[str, Float]:
    """The distance |h(x_i) - y_i| of every chosen row for every map h, each of shape (len(index),)."""
    errors = {name: np.empty(len(index)) for name in maps}
    for part in row_chunks(len(index), max(x.d, y.d)):
        chunk = x.take(index[part])
        target = y.take((index if partner is None else partner[index])[part], width=max(x.d, y.d))
        for name, h in maps.items():
            errors[name][part] = _distances(h, chunk, target, x, y)
    return errors


def _distances(h: Map, chunk: Any, target: Any, x: Rows, y: Rows) -> Float:
    # Chunks are centred; what is left of the means after the map is one small vector, added at the end.
    offset = h(x.mean[None])[0] - np.pad(y.mean, (0, h.width - y.d))
    miss = chunk @ float64_beside(h.matrix[: x.d], chunk) - target + float64_beside(offset, chunk)
    return to_numpy((miss * miss).sum(1) ** 0.5)


def _held_out(sums: PairSums, fits: Mapping[str, Fit], folds: list[Array], partner: Array | None) -> dict[str, Float]:
    x, y = sums.source.rows, sums.target.rows
    errors = {name: np.empty(x.n) for name in fits}
    for k, fold in enumerate(folds):
        paired = sums.outside(k)
        maps = {name: fit(paired, k) for name, fit in fits.items()}
        for name, values in row_errors(maps, x, y, fold, partner).items():
            errors[name][fold] = values
    return errors


def _summary(group: str, in_sample: Float, held_out: Float, null: float, diameter: float, plan: Protocol) -> Nearness:
    in_sample, held_out = in_sample / diameter, held_out / diameter
    low, high = bootstrap_interval(held_out, plan.unit, plan.bootstrap, plan.seed)
    return Nearness(
        group=group,
        mean=float(in_sample.mean()),
        rms=float(np.sqrt((in_sample**2).mean())),
        q95=float(np.quantile(in_sample, 0.95)),
        sup=float(in_sample.max()),
        held_out=HeldOut(float(held_out.mean()), low, high),
        null=null / diameter,
        errors=held_out,
    )


def bootstrap_interval(values: Float, unit: Array, draws: int, seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of the mean when units (rows, or clusters of rows) are drawn anew.

    The maps are not fitted again: the interval covers the choice of scored rows, not that of fitted ones.
    """
    if draws < 1:
        return float("nan"), float("nan")
    total = np.bincount(unit, weights=values)
    count = np.bincount(unit).astype(float)
    rng = np.random.default_rng(seed)
    means = np.empty(draws)
    for b in range(draws):
        drawn = rng.integers(len(total), size=len(total))
        means[b] = total[drawn].sum() / count[drawn].sum()
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
