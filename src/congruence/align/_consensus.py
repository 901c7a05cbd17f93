"""`consensus`: what several runs have in common, by generalised Procrustes analysis."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.align.prepared import prepare
from congruence.arrays import Array, Float, resolve_device, row_chunks, to_numpy
from congruence.errors import InputError, NotConvergedWarning
from congruence.maps._diameter import rows_diameter
from congruence.maps.algebra import eigh, one_thread, svd
from congruence.maps.groups import Map
from congruence.maps.nearness import HeldOut, Protocol, check_method, protocol, repairing
from congruence.rows.engine import Rows
from congruence.rows.sums import PairSums, RunSums, pair_sums
from congruence.stats.intervals import bootstrap_mean
from congruence.tables import gather

MAX_ITERATIONS = 100
TOLERANCE = 1e-7  # on the fall of the loss in one round, as a share of the runs' total variance

Pairs = dict[tuple[int, int], PairSums]
Products = dict[tuple[int, int], Float]  # cross products of runs i <= j over the rows a fit may see


@dataclass(frozen=True, eq=False)
class Consensus:
    """The common configuration of several runs, and each run's map onto it.

    `values` are the consensus coordinates of every row, on the principal axes of the consensus; `errors[name]` is
    the distance of each row of a run, mapped by a map that was fitted without it, from the mean of all mapped runs,
    over the consensus's diameter. `held_out` averages them; `null` is what runs with destroyed pairing would give.
    """

    group: str
    values: Float = field(repr=False)  # (n, d)
    maps: dict[str, Map] = field(repr=False)
    diameter: float
    diameter_exact: bool  # or only the longest distance that was found
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
        return {
            "group": self.group,
            "diameter": self.diameter,
            "diameter_exact": self.diameter_exact,
            "runs": {
                name: {"held_out": {"mean": held.mean, "low": held.low, "high": held.high}}
                for name, held in self.held_out.items()
            },
            "null": self.null,
            "iterations": self.iterations,
            "converged": self.converged,
        }


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
    """Find the configuration that all runs share up to a rotation (and a scale each).

    Minimises sum_k sum_i |h_k(x_ki) - z_i|^2 over the consensus z and the maps h_k, from the d x d cross products of
    the runs alone. The size of the consensus is that of the runs on average; its axes are its principal axes.

    Parameters
    ----------
    runs : mapping of name to run, or sequence of runs
        As for `compare`; at least two.
    group : {"rigid", "similarity"}
        Rotations only, or a rotation and a scale for each run.
    normalize, cluster, folds, nulls, bootstrap, seed, device, drop_missing
        As for `compare`.

    Returns
    -------
    Consensus
        Errors are shares of the consensus's diameter; lower is nearer.

    References
    ----------
    Gower 1975; ten Berge 1977 (the scales).
    """
    if group not in ("rigid", "similarity"):
        raise InputError(f"group must be 'rigid' or 'similarity', not {group!r}")
    check_method(normalize, folds=folds, nulls=nulls, bootstrap=bootstrap, seed=seed)
    inputs = gather(runs, cluster=cluster, drop_missing=drop_missing)
    engine = resolve_device(device, *inputs.values)
    rows = inputs.rows(engine, normalize)
    plan = protocol(rows[0].n, folds=folds, nulls=nulls, bootstrap=bootstrap, cluster=inputs.cluster, seed=seed)
    sums = [prepare(name, r, plan).sums for name, r in zip(inputs.names, rows, strict=True)]
    return consensus_of(inputs.names, sums, plan, group, nulls)


def consensus_of(names: Sequence[str], sums: list[RunSums], plan: Protocol, group: str, nulls: int) -> Consensus:
    """Find the consensus of runs whose sums are known."""
    rows = [s.rows for s in sums]
    pairs = _all_pairs(sums)
    fit = _fit_consensus(_outside(sums, pairs, None), group)
    if not fit.converged:
        warnings.warn(f"the consensus did not settle in {MAX_ITERATIONS} rounds", NotConvergedWarning, stacklevel=3)
    maps = [_map_of(s, None, matrix, group) for s, matrix in zip(sums, fit.matrices, strict=True)]
    values = _mean_of_mapped(maps, rows, np.arange(rows[0].n))
    found = rows_diameter(Rows(values))
    diameter = found.value
    if diameter == 0:
        raise InputError("all rows of the consensus are equal, so distances to it cannot be put in proportion")
    errors = _held_out_errors(sums, pairs, plan, group, fit.turns) / diameter
    null = []
    for draw in range(nulls):
        shuffled = _shuffled(sums, plan, draw)
        null.append(float(_held_out_errors(shuffled, _all_pairs(shuffled), plan, group).mean()) / diameter)
    held = [HeldOut(float(e.mean()), *bootstrap_mean(e, plan.unit, plan.bootstrap, plan.seed)) for e in errors]
    return Consensus(
        group=group,
        values=values,
        maps=dict(zip(names, maps, strict=True)),
        diameter=diameter,
        diameter_exact=found.exact,
        held_out=dict(zip(names, held, strict=True)),
        null=float(np.mean(null)) if null else float("nan"),
        errors=dict(zip(names, errors, strict=True)),
        iterations=fit.iterations,
        converged=fit.converged,
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    turns: list[Float]  # each (d_k, d), with orthonormal rows
    scale: Float  # (runs,)
    iterations: int
    converged: bool

    @property
    def matrices(self) -> list[Float]:
        return [s * turn for s, turn in zip(self.scale, self.turns, strict=True)]


def _all_pairs(sums: list[RunSums]) -> Pairs:
    """The sums of every pair of runs, one pass over the rows each."""
    return {(i, j): pair_sums(sums[i], sums[j]) for i in range(len(sums)) for j in range(i + 1, len(sums))}


def _shuffled(sums: list[RunSums], plan: Protocol, seed: int) -> list[RunSums]:
    """Every run but the first in an order of its own, so that no two are paired any more."""
    rng = np.random.default_rng([plan.seed, seed])
    orders = [repairing(plan.folds, plan.unit, plan.clustered, rng) for _ in sums[1:]]
    return [sums[0]] + [
        s.shuffled(order, inside_folds=not plan.clustered) for s, order in zip(sums[1:], orders, strict=True)
    ]


def _outside(sums: list[RunSums], pairs: Pairs, fold: int | None) -> Products:
    """Centred cross products of all pairs of runs over the rows outside a fold."""
    own = {(k, k): s.outside(fold).scatter for k, s in enumerate(sums)}
    return own | {names: pair.outside(fold).cross for names, pair in pairs.items()}


def _fit_consensus(products: Products, group: str, start: list[Float] | None = None) -> _Fit:
    """Turn each run onto the mean of all, in rounds, until the loss stops falling."""
    with one_thread(max(products[0, 0].shape)):
        return _settle(products, group, start)


def _settle(products: Products, group: str, start: list[Float] | None) -> _Fit:
    runs = 1 + max(j for _, j in products)
    width = max(products[k, k].shape[0] for k in range(runs))
    size = np.array([np.sqrt(max(np.trace(products[k, k]), 0)) for k in range(runs)])  # (runs,)
    scale = np.ones(runs) if group == "rigid" else np.where(size > 0, size.mean() / np.where(size > 0, size, 1), 1)
    turns = list(start) if start is not None else _first_turns(products, runs, width)
    loss, converged, rounds = np.inf, False, 0
    while rounds < MAX_ITERATIONS and not converged:
        rounds += 1
        for k in range(runs):
            others = sum(scale[j] * _product(products, k, j) @ turns[j] for j in range(runs) if j != k)
            turns[k] = _nearest_turn(others)
        agreement = np.array(
            [[np.sum(turns[i] * (_product(products, i, j) @ turns[j])) for j in range(runs)] for i in range(runs)]
        )  # (runs, runs)
        if group == "similarity":
            scale = _scales(agreement, size)
        now = float((scale**2 * size**2).sum() - scale @ agreement @ scale / runs)
        converged = bool(loss - now <= TOLERANCE * (scale**2 * size**2).sum())
        loss = now
    turns = [turn @ _principal_axes(products, turns, scale) for turn in turns]
    return _Fit(turns, scale, rounds, converged)


def _first_turns(products: Products, runs: int, width: int) -> list[Float]:
    """Start every run on the first one."""
    first = np.eye(products[0, 0].shape[0], width)
    return [first] + [_nearest_turn(_product(products, k, 0) @ first) for k in range(1, runs)]


def _product(products: Products, i: int, j: int) -> Float:
    return products[i, j] if i <= j else products[j, i].T


def _nearest_turn(cross: Float) -> Float:
    """The matrix with orthonormal rows nearest to a cross product, shape (d_k, d)."""
    u, _, vt = svd(cross, full_matrices=False)
    return u @ vt


def _scales(agreement: Float, size: Float) -> Float:
    """The best scales at given rotations: the leading eigenvector of the correlations of the runs (ten Berge 1977)."""
    safe = np.where(size > 0, size, 1)
    leading = np.abs(eigh(agreement / np.outer(safe, safe))[1][:, -1])
    return np.where(size > 0, leading * np.sqrt((size**2).sum()) / safe, 1.0)


def _principal_axes(products: Products, turns: list[Float], scale: Float) -> Float:
    """Axes of the consensus by falling variance, shape (d, d), signed so that the first run's map has positive sums."""
    runs = len(turns)
    scatter = sum(
        scale[i] * scale[j] * turns[i].T @ _product(products, i, j) @ turns[j] for i in range(runs) for j in range(runs)
    )
    axes = eigh((scatter + scatter.T) / 2)[1][:, ::-1]
    signs = np.where((turns[0] @ axes).sum(0) < 0, -1.0, 1.0)
    return np.asarray(axes * signs)


def _map_of(sums: RunSums, fold: int | None, matrix: Float, group: str) -> Map:
    """The map onto the consensus, whose mean is the origin; narrower runs are zero-padded."""
    spread = sums.outside(fold)
    d, width = matrix.shape
    square = np.zeros((width, width))
    square[:d] = matrix
    return Map(group, square, np.pad(sums.rows.mean + spread.mean, (0, width - d)), np.zeros(width))


def _mapped(h: Map, rows: Rows, index: Array) -> Float:
    centred = to_numpy(rows.take(index))
    return centred @ h.matrix[: rows.d] + (rows.mean - h.source_mean[: rows.d]) @ h.matrix[: rows.d]


def _mean_of_mapped(maps: list[Map], rows: list[Rows], index: Array) -> Float:
    mean = np.zeros((len(index), maps[0].width))
    for part in row_chunks(len(index), maps[0].width):
        for h, r in zip(maps, rows, strict=True):
            mean[part] += _mapped(h, r, index[part]) / len(maps)
    return mean


def _held_out_errors(
    sums: list[RunSums], pairs: Pairs, plan: Protocol, group: str, start: list[Float] | None = None
) -> Float:
    """The distance of every row of every run from the mean of all, mapped without having seen it: (runs, n)."""
    errors = np.empty((len(sums), len(plan.unit)))
    for k, fold in enumerate(plan.folds):
        fit = _fit_consensus(_outside(sums, pairs, k), group, start)
        maps = [_map_of(s, k, matrix, group) for s, matrix in zip(sums, fit.matrices, strict=True)]
        for part in row_chunks(len(fold), maps[0].width):
            placed = [_mapped(h, s.rows, fold[part]) for h, s in zip(maps, sums, strict=True)]
            centre = np.mean(placed, axis=0)
            errors[:, fold[part]] = [np.sqrt(np.square(run - centre).sum(1)) for run in placed]
    return errors
