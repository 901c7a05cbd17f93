"""Are layers closer than chance? Re-pairings for the test, the null of the maximum, and intervals over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from scipy.special import stdtrit

from congruence.align._run_statistics import PairStatistics, RunStatistics
from congruence.align.similarities import MEASURES
from congruence.arrays import Array, Float, as_float64_like, row_chunks, to_numpy
from congruence.maps._protocol import Protocol, deal
from congruence.maps.groups import fit_group
from congruence.maps.nearness import row_errors
from congruence.rows.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import run_sums
from congruence.stats.nulls import p_values

TESTED_AXES = 64  # principal components of a layer in which rotations of the re-pairings are fitted
TESTED_ROWS = 5  # rows per component, so that no map of the re-pairings fits them by chance
CLUSTERS_TO_TEST = 5  # of four, one in seven re-pairings is the true one
FEWEST_SHIFTS = 19  # of ordered rows, as many as a p value of 0.05 takes
TENTHS = 10  # parts of the rows that are left out in turn for the interval over seeds and rows
LEAST_SPREAD = 1e-9  # of the null, as a share of its size; less is rounding


def source_to_test(measure: str, run: RunStatistics, plan: Protocol) -> RunStatistics:
    """The statistics of a source that is tested: of ordered rows, those that a shifted target can be laid over."""
    run = _leading(measure, run)
    return run if plan.block is None else _some_rows(run, _window(plan))


def _leading(measure: str, run: RunStatistics) -> RunStatistics:
    """The leading principal components of a wide layer, in which maps are fitted to re-paired rows.

    A test needs the same statistic for the true pairing and for each re-pairing, not the error in all dimensions.
    """
    most = max(1, run.rows.n // TESTED_ROWS)
    if measure in ("rigid", "similarity"):
        most = min(most, TESTED_AXES)
    if measure not in ("rigid", "similarity", "linear") or run.rows.d <= most:
        return run
    axes = run.spread.axes[0][:, :most]
    chunks = (run.rows.take(part) for part in row_chunks(run.rows.n, run.rows.d))
    values = np.concatenate([to_numpy(chunk @ as_float64_like(axes, chunk)) for chunk in chunks])
    return RunStatistics(run.name, run_sums(Rows(values), [np.arange(run.rows.n)]), run.seed)


def _window(plan: Protocol) -> Array:
    n = len(plan.unit)
    return np.arange(n // 4, n - n // 4)


def _some_rows(run: RunStatistics, index: Array) -> RunStatistics:
    rows = Rows(run.rows.data[index], run.rows.device, run.rows.scale_rows)
    return RunStatistics(run.name, run_sums(rows, [np.arange(rows.n)]), run.seed)


def repaired_values(
    measure: str, sources: Sequence[RunStatistics | None], target: RunStatistics, plan: Protocol
) -> Float:
    """The value of each source and one target, for the true pairing and each re-pairing: (1 + nulls, sources).

    Every source and target gets the same re-pairings, so that the largest of all values has a null, too.
    """
    of = MEASURES[measure].of if measure in MEASURES else partial(_in_sample_error, measure)
    values = np.full((1 + count_tested(plan), len(sources)), np.nan)
    for r, other in enumerate(_repaired(_leading(measure, target), plan)):
        values[r] = [np.nan if source is None else of(PairStatistics(source, other)) for source in sources]
    return values


def _repaired(target: RunStatistics, plan: Protocol) -> Iterator[RunStatistics]:
    """The target in the true pairing, and in each re-pairing.

    Of ordered rows, half are laid over shifted ones. Shifting all of them in a circle would put the two ends together,
    which slow changes are unlike: unrelated series then look related.
    """
    if plan.block is None:
        yield target
        unit = plan.unit if plan.clustered else None
        yield from (target.reordered(order, unit) for order in plan.shuffles())
        return
    window = _window(plan)
    yield from (_some_rows(target, window + shift) for shift in (0, *_shifts(plan)))


def _shifts(plan: Protocol) -> Array:
    """The shifts of ordered rows, by blocks: nearer ones would say the same, and p values would be too small."""
    block = plan.block or 1
    forward = block * np.arange(1, len(plan.unit) // 4 // block + 1)
    shifts = np.r_[-forward[::-1], forward]
    most = len(plan.repairings)
    chosen = np.linspace(0, len(shifts) - 1, most).round().astype(int)
    return shifts if len(shifts) <= most else np.asarray(shifts[chosen])


def count_tested(plan: Protocol) -> int:
    """The number of re-pairings that layers are tested with."""
    return len(plan.repairings) if plan.block is None else len(_shifts(plan))


def too_few_units(plan: Protocol) -> str:
    """Why clusters or blocks are too few to judge layers by; empty where they are not."""
    if plan.block is not None and count_tested(plan) < min(FEWEST_SHIFTS, len(plan.repairings)):
        return (
            f"Layers of ordered rows are judged from {2 * FEWEST_SHIFTS + 2} blocks on: with fewer, unrelated series "
            f"are alike too often. There are {plan.units}."
        )
    if plan.clustered and plan.units < CLUSTERS_TO_TEST:
        return f"Fewer than {CLUSTERS_TO_TEST} clusters can be exchanged in too few ways to judge by."
    return ""


def _in_sample_error(group: str, pair: PairStatistics) -> float:
    with one_thread(pair.sums.width):
        best = fit_group(pair.sums, group)
    everything = np.arange(pair.source.rows.n)
    return float(row_errors({group: best}, pair.source.rows, pair.target.rows, everything)[group].mean())


def max_null(closeness: Float) -> tuple[Float, Float]:
    """The p values of all pairs of layers, (a, b), and of all source layers, (a,), by the null of the maximum.

    `closeness`, shape (1 + nulls, a, b), is that of the true pairing and of each re-pairing. Nulls of pairs differ in
    mean and spread, so each pair is standardised over all its values, the true one included: under the hypothesis that
    the runs are unrelated all are exchangeable, and the p values are exact. A pair is compared with the maximum over
    all pairs (family-wise), a layer with the maximum over its own pairs. NaN below 19 re-pairings, which cannot give a
    p value of 0.05.
    """
    p, p_layer = np.full(closeness.shape[1:], np.nan), np.full(closeness.shape[1], np.nan)
    if len(closeness) < 20:
        return p, p_layer
    mean, spread = closeness.mean(0), closeness.std(0)
    known = spread > LEAST_SPREAD * np.abs(mean)  # not where it is NaN
    score = np.where(known, (closeness - mean) / np.where(known, spread, 1.0), -np.inf)
    p[known] = p_values(score[0], score[1:].max((1, 2)))[known]
    for i, any_known in enumerate(known.any(1)):
        if any_known:
            p_layer[i] = p_values(score[0, i].max(), score[1:, i].max(1))
    return p, p_layer


def tenths(plan: Protocol) -> Array:
    """The tenth of each row, shape (n,): clusters and blocks stay whole, and ordered rows together."""
    count = min(TENTHS, plan.units)
    if plan.block is not None:
        return np.asarray(plan.unit * count // plan.units)
    return deal(np.bincount(plan.unit), count, np.random.default_rng([plan.seed, 2]))[plan.unit]


def over_seeds(values: Float) -> Float:
    """The mean over pairs of seeds, the two axes before the last two, of those that are known."""
    known = np.isfinite(values)
    count = known.sum((-4, -3))
    total = np.where(known, values, 0.0).sum((-4, -3))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def seed_interval(by_seed: Float, without: Float) -> tuple[Float, Float]:
    """The 95 % interval of the mean over pairs of seeds, for new seeds and new rows: two arrays of shape (a, b).

    `by_seed`, shape (seeds of a, seeds of b, a, b); `without`, shape (tenths, a, b), is the mean without each tenth of
    the rows. The variance is the sum of those of the three samples (jackknife over tenths; means over seeds), which
    counts their interaction twice and so is rather too large; the quantile is that of Student's t with Satterthwaite's
    degrees of freedom. A run with one seed is taken as given.
    """
    value, parts = over_seeds(by_seed), []
    if len(without) > 1:
        parts.append(((len(without) - 1) * without.var(0), len(without) - 1))
    for axis, seeds in enumerate(by_seed.shape[:2]):
        if seeds > 1:
            means = by_seed.mean(1 - axis)
            parts.append((means.var(0, ddof=1) / seeds, seeds - 1))
    total = sum(variance for variance, _ in parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = total**2 / sum(variance**2 / df for variance, df in parts)
    half = stdtrit(np.where(np.isfinite(df), df, 1.0), 0.975) * np.sqrt(total)
    return value - half, value + half
