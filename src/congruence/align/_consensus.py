"""`consensus`: the common configuration of several runs, by generalised Procrustes analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from congruence.align._run_statistics import sum_run
from congruence.arrays import Array, Float, resolve_device, row_chunks, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError, NotConvergedWarning, warn_caller
from congruence.maps._diameter import rows_diameter
from congruence.maps.groups import Map
from congruence.maps.nearness import HeldOut, Protocol, check_method, protocol
from congruence.rows.algebra import eigh, one_thread, svd
from congruence.rows.engine import Rows
from congruence.rows.sums import PairSums, RunSums, pair_sums
from congruence.stats.intervals import percentile_interval, ratio_interval, resampled_sums
from congruence.tables import gather

MAX_ITERATIONS = 100
TOLERANCE = 1e-7  # on the decrease of the loss in one iteration, as a share of the runs' total variance

Pairs = dict[tuple[int, int], PairSums]
Products = dict[tuple[int, int], Float]  # centred cross products of every ordered pair of runs


@dataclass(frozen=True, eq=False)
class Consensus:
    """The common configuration of several runs, and each run's map onto it.

    `values` are the coordinates of every row on the principal axes of the consensus. `errors[name]` is the distance of
    each row of a run, mapped by a map that was fitted without it, from the mean of all mapped runs, over the diameter
    of the consensus. `held_out` is their mean; `null` is that mean for randomly re-paired rows, over all runs.
    `of_chance` is `held_out` over `null`: 0 if a run coincides with the consensus, 1 if it is no closer than unrelated
    runs are.
    """

    group: str
    values: Float = field(repr=False)  # (n, d)
    maps: dict[str, Map] = field(repr=False)
    diameter: float
    diameter_exact: bool  # otherwise `diameter` is a lower bound
    of_chance: dict[str, HeldOut]
    held_out: dict[str, HeldOut]
    null: float
    errors: dict[str, Float] = field(repr=False)  # each (n,)
    iterations: int
    converged: bool

    def __repr__(self) -> str:
        n, d = self.values.shape
        runs = len(self.held_out)
        return f"<Consensus of {runs} runs up to {self.group}: {n} rows x {d} dimensions, null {self.null:.3g}>"

    def to_dict(self) -> dict[str, Any]:
        """The numbers without the rows."""
        runs = {
            name: {"of_chance": self.of_chance[name].to_dict(), "held_out": held.to_dict()}
            for name, held in self.held_out.items()
        }
        before = {name: getattr(self, name) for name in ("group", "diameter", "diameter_exact")}
        return before | {"runs": runs} | {name: getattr(self, name) for name in ("null", "iterations", "converged")}


def consensus(
    runs: Mapping[str, Any] | Sequence[Any],
    *,
    group: str = "similarity",
    normalize: str | None = None,
    cluster: Any = None,
    folds: int = 5,
    nulls: int = 1,
    bootstrap: int = 200,
    seed: int = 0,
    device: str = "auto",
    drop_missing: bool = False,
) -> Consensus:
    """Find the configuration that all runs share up to a rotation (and a scale each): generalised Procrustes analysis.

    Minimises sum_k sum_i |h_k(x_ki) - z_i|^2 over the consensus z and the maps h_k, from the d x d cross products of
    the runs alone. The size of the consensus is that of the runs on average; its axes are its principal axes.

    Parameters
    ----------
    runs : mapping of name to run, or sequence of runs
        As for `compare`; at least two.
    group : {"rigid", "similarity"}
        Rotations only, or a rotation and a scale for each run.
    normalize : {None, "cosine"}, as of `compare`
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds and bootstrap.
    folds : number of folds that are held out in turn
    nulls : number of random re-pairings for the null; with 0 it is NaN
    bootstrap : number of bootstrap draws for the interval; with 0 it is NaN
    seed : int
    device : str, as of `compare`
    drop_missing : bool
        Leave out rows with NaN or infinity instead of raising an error.

    References
    ----------
    Gower 1975; ten Berge 1977 (the scales).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import ortho_group
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(100, 3))
    >>> consensus([x, x @ ortho_group.rvs(3, random_state=0), x + 1])
    <Consensus of 3 runs up to similarity: 100 rows x 3 dimensions, null 0.223>
    """
    check_choice("group", group, ("rigid", "similarity"))
    check_method(normalize, folds=folds, nulls=nulls, bootstrap=bootstrap, seed=seed)
    inputs = gather(runs, cluster=cluster, drop_missing=drop_missing)
    engine = resolve_device(device, *inputs.values)
    rows = inputs.rows(engine, normalize)
    plan = protocol(rows[0].n, folds=folds, nulls=nulls, bootstrap=bootstrap, cluster=inputs.cluster, seed=seed)
    sums = [sum_run(name, r, plan).sums for name, r in zip(inputs.names, rows, strict=True)]
    return fit_consensus(inputs.names, sums, plan, group, nulls)


def fit_consensus(names: Sequence[str], sums: list[RunSums], plan: Protocol, group: str, nulls: int) -> Consensus:
    """Fit the consensus of runs from their sums."""
    pairs = _all_pairs(sums)
    fit = _rotate_onto_mean(_products(sums, pairs, None), group)
    if not fit.converged:
        text = f"the consensus did not converge in {MAX_ITERATIONS} iterations"
        warn_caller(text, NotConvergedWarning)
    maps = _maps(sums, None, fit, group)
    values = np.zeros((sums[0].rows.n, maps[0].width))
    for part in row_chunks(*values.shape):
        for h, s in zip(maps, sums, strict=True):
            values[part] += _mapped(h, s.rows, part) / len(maps)
    diameter = rows_diameter(Rows(values))
    if diameter.value == 0:
        raise InputError("all rows of the consensus are equal, so errors cannot be divided by its diameter")
    errors = _held_out_errors(sums, pairs, plan, group, fit.rotations) / diameter.value
    null = np.full(len(plan.unit), np.nan)  # of each row, over runs and re-pairings
    if nulls:
        shuffled = (_shuffle_runs(sums, plan, draw) for draw in range(nulls))
        drawn = [_held_out_errors(some, _all_pairs(some), plan, group).mean(0) for some in shuffled]
        null = np.mean(drawn, axis=0) / diameter.value
    of_chance, held = _summaries(errors, null, plan)
    return Consensus(
        group=group,
        values=values,
        maps=dict(zip(names, maps, strict=True)),
        diameter=diameter.value,
        diameter_exact=diameter.exact,
        of_chance=dict(zip(names, of_chance, strict=True)),
        held_out=dict(zip(names, held, strict=True)),
        null=float(null.mean()),
        errors=dict(zip(names, errors, strict=True)),
        iterations=fit.iterations,
        converged=fit.converged,
    )


def _summaries(errors: Float, null: Float, plan: Protocol) -> tuple[list[HeldOut], list[HeldOut]]:
    """The mean errors (runs, n) relative to the null (n,) and as they are; the intervals share bootstrap samples."""
    columns = np.vstack([errors, null, np.ones_like(null)])
    *drawn, nulls, size = resampled_sums(columns, plan.unit, plan.bootstrap, plan.seed)
    units, below = int(plan.unit.max()) + 1, float(null.mean())
    of_chance, held_out = [], []
    for mean, sums in zip(errors.mean(1).tolist(), drawn, strict=True):
        ratio = mean / below if below else math.nan
        of_chance.append(HeldOut(ratio, *ratio_interval(ratio, sums / nulls, units)))
        held_out.append(HeldOut(mean, *percentile_interval(sums / size)))
    return of_chance, held_out


@dataclass(frozen=True, eq=False)
class _ConsensusFit:
    rotations: list[Float]  # each (d_k, d), with orthonormal rows
    scales: Float  # (runs,)
    iterations: int
    converged: bool


def _all_pairs(sums: list[RunSums]) -> Pairs:
    """The sums of every pair of runs, one pass over the rows each."""
    return {(i, j): pair_sums(sums[i], sums[j]) for i, j in combinations(range(len(sums)), 2)}


def _shuffle_runs(sums: list[RunSums], plan: Protocol, seed: int) -> list[RunSums]:
    """Every run but the first, each in another random order, so that no two runs are paired."""
    rng = np.random.default_rng([plan.seed, seed])
    orders = [plan.repair(rng) for _ in sums[1:]]
    inside = not plan.clustered
    return [sums[0], *(s.shuffled(order, inside_folds=inside) for s, order in zip(sums[1:], orders, strict=True))]


def _products(sums: list[RunSums], pairs: Pairs, fold: int | None) -> Products:
    """Centred cross products of all pairs of runs over the rows outside a fold."""
    products = {(k, k): s.outside(fold).scatter for k, s in enumerate(sums)}
    for (i, j), pair in pairs.items():
        products[i, j] = pair.outside(fold).cross
        products[j, i] = products[i, j].T
    return products


def _rotate_onto_mean(products: Products, group: str, start: list[Float] | None = None) -> _ConsensusFit:
    """Rotate each run onto the mean of all, in turn, until the loss stops decreasing."""
    runs = 1 + max(j for _, j in products)
    width = max(products[k, k].shape[0] for k in range(runs))
    size = np.array([np.sqrt(max(np.trace(products[k, k]), 0)) for k in range(runs)])  # (runs,)
    safe = np.where(size > 0, size, 1)
    scales = np.ones(runs) if group == "rigid" else np.where(size > 0, size.mean() / safe, 1)
    loss, converged, iterations = np.inf, False, 0
    with one_thread(max(products[0, 0].shape)):
        first = np.eye(products[0, 0].shape[0], width)
        onto_first = (_nearest_rotation(products[k, 0] @ first) for k in range(1, runs))
        rotations = [first, *onto_first] if start is None else list(start)
        while iterations < MAX_ITERATIONS and not converged:
            iterations += 1
            for k in range(runs):
                others = sum(scales[j] * products[k, j] @ rotations[j] for j in range(runs) if j != k)
                rotations[k] = _nearest_rotation(others)
            agreement = np.array(
                [[np.sum(rotations[i] * (products[i, j] @ rotations[j])) for j in range(runs)] for i in range(runs)]
            )  # (runs, runs)
            if group == "similarity":  # the leading eigenvector of the correlations of the runs (ten Berge 1977)
                leading = np.abs(eigh(agreement / np.outer(safe, safe))[1][:, -1])
                scales = np.where(size > 0, leading * np.sqrt((size**2).sum()) / safe, 1.0)
            now = float((scales**2 * size**2).sum() - scales @ agreement @ scales / runs)
            converged = bool(loss - now <= TOLERANCE * (scales**2 * size**2).sum())
            loss = now
        axes = _principal_axes(products, rotations, scales)
    return _ConsensusFit([rotation @ axes for rotation in rotations], scales, iterations, converged)


def _nearest_rotation(cross: Float) -> Float:
    """The matrix with orthonormal rows nearest to a cross product, shape (d_k, d)."""
    u, _, vt = svd(cross, full_matrices=False)
    return u @ vt


def _principal_axes(products: Products, rotations: list[Float], scales: Float) -> Float:
    """Axes of the consensus by decreasing variance, shape (d, d), signed so that the first map has positive sums."""
    runs = range(len(rotations))
    scatter = sum(scales[i] * scales[j] * rotations[i].T @ products[i, j] @ rotations[j] for i in runs for j in runs)
    axes = eigh((scatter + scatter.T) / 2)[1][:, ::-1]
    return np.asarray(axes * np.where((rotations[0] @ axes).sum(0) < 0, -1.0, 1.0))


def _maps(sums: list[RunSums], fold: int | None, fit: _ConsensusFit, group: str) -> list[Map]:
    """The maps onto the consensus, whose mean is the origin; narrower runs are zero-padded."""
    maps = []
    for s, rotation, scale in zip(sums, fit.rotations, fit.scales, strict=True):
        d, width = rotation.shape
        matrix = np.zeros((width, width))
        matrix[:d] = scale * rotation
        mean = np.pad(s.rows.mean + s.outside(fold).mean, (0, width - d))
        maps.append(Map(group, matrix, mean, np.zeros(width)))
    return maps


def _mapped(h: Map, rows: Rows, index: slice | Array) -> Float:
    centred = to_numpy(rows.take(index))
    return centred @ h.matrix[: rows.d] + (rows.mean - h.source_mean[: rows.d]) @ h.matrix[: rows.d]


def _held_out_errors(
    sums: list[RunSums], pairs: Pairs, plan: Protocol, group: str, start: list[Float] | None = None
) -> Float:
    """The distance of every row of every run from the mean of all runs, under maps fitted without it: (runs, n)."""
    errors = np.empty((len(sums), len(plan.unit)))
    for k, fold in enumerate(plan.folds):
        maps = _maps(sums, k, _rotate_onto_mean(_products(sums, pairs, k), group, start), group)
        for part in row_chunks(len(fold), maps[0].width):
            mapped = [_mapped(h, s.rows, fold[part]) for h, s in zip(maps, sums, strict=True)]
            mean = np.mean(mapped, axis=0)
            errors[:, fold[part]] = [np.sqrt(np.square(run - mean).sum(1)) for run in mapped]
    return errors
