"""Cached statistics of one run, and of two runs with paired rows, for comparisons and similarity measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, listing, resolve_device, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps._diameter import Diameter, rows_diameter
from congruence.maps.nearness import Protocol, check_method, protocol, squared_lengths
from congruence.memory import room_for
from congruence.options import reading
from congruence.rows.engine import Rows, chunk_bytes
from congruence.rows.sums import PairScatter, RowScatter, RunSums, pair_sums, run_sums
from congruence.tables import as_paired, gather
from congruence.tables.inputs import PairedRuns

if TYPE_CHECKING:
    from congruence.ica._unmixing import Unmixing

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RunStatistics:
    """One run with its sums per fold; further statistics are computed when first used and kept for all pairs."""

    name: str
    sums: RunSums
    seed: int = 0
    unmixings: dict[int | None, Unmixing] = field(default_factory=dict, repr=False)  # by the fold left out
    original: RunStatistics | None = field(default=None, repr=False)  # the same rows in their own order
    order: Array | None = field(default=None, repr=False)  # (n,) row i is row order[i] of the original
    unit: Array | None = field(default=None, repr=False)  # (n,) the clusters that were exchanged
    _cache: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> Rows:
        """The rows of the run."""
        return self.sums.rows

    @property
    def spread(self) -> RowScatter:
        """The mean and the scatter of all rows."""
        return self.sums.outside(None)

    @property
    def norm(self) -> float:
        """The Frobenius norm of the centred rows, the root of the trace of their scatter."""
        return float(np.sqrt(max(np.trace(self.spread.scatter), 0.0)))

    @cached_property
    def dead(self) -> int:
        """The number of dimensions that do not vary by more than the rounding of their stored numbers."""
        deviation = np.sqrt(np.maximum(np.diag(self.spread.scatter), 0))
        return int((deviation <= np.sqrt(self.rows.n) * self.rows.rounding).sum())

    @cached_property
    def diameter(self) -> Diameter:
        """The largest distance between two rows; a run whose rows are all equal is refused."""
        diameter = rows_diameter(self.rows)
        if diameter.value == 0 or self.dead == self.rows.d:
            raise InputError(f"all rows of {self.name} are equal, so errors cannot be divided by its diameter")
        return diameter

    def cached(
        self, compute: Callable[[RunStatistics], T], reorder: Callable[[T, RunStatistics], T] | None = None
    ) -> T:
        """Return `compute(self)`, computed once.

        Where this run is another one in another order, it is `reorder(value of the original, self)`.
        """
        if compute not in self._cache:
            if reorder is None or self.original is None:
                self._cache[compute] = compute(self)
            else:
                self._cache[compute] = reorder(self.original.cached(compute), self)
        value: T = self._cache[compute]
        return value

    def reordered(self, order: Array, unit: Array | None = None) -> RunStatistics:
        """The run with row order[i] in place i, for a null; `unit` numbers the clusters that were exchanged.

        Statistics of a permutation are those of this run, in another order; where rows repeat, they are computed again.
        """
        if np.bincount(order, minlength=self.rows.n).max() > 1:
            return RunStatistics(self.name, self.sums.shuffled(order, inside_folds=False), self.seed)
        sums = self.sums.shuffled(order, inside_folds=True)  # also across folds: only sums of all rows are used
        return RunStatistics(self.name, sums, self.seed, original=self, order=order, unit=unit)

    @cached_property
    def whole(self) -> RunSums:
        """The sums of all rows as those of one fold."""
        totals, products = self.sums.totals.sum(0), self.sums.products.sum(0)
        return RunSums(self.rows, [np.arange(self.rows.n)], totals[None], products[None])

    def unmixing(self, fold: int | None) -> Unmixing:
        """The independent components of all rows but those of one fold.

        Without a fold, they start from the components of all rows as they were when only noise still moved: what
        held-out rows then test is how components depend on the rows, not how they depend on the start. Components that
        are noise go on until they converge on all rows only, as in the paper: they may be the same noise in two runs.
        """
        from congruence.ica._unmixing import MAX_ITER_FREE, unmix

        if fold not in self.unmixings:
            start = self._first_unmixing
            if fold is not None:
                found = unmix(self.sums.outside(fold), seed=self.seed, near=start)
            elif start.reason == "noise":
                left = max(1, MAX_ITER_FREE - start.iterations)
                found = unmix(self.spread, seed=self.seed, near=start, noise="free", max_iter=left)
            else:
                found = start
            self.unmixings[fold] = found
        return self.unmixings[fold]

    @cached_property
    def _first_unmixing(self) -> Unmixing:
        """The components of all rows, until only those that are indistinguishable from noise still move."""
        from congruence.ica._unmixing import unmix

        return unmix(self.spread, seed=self.seed)

    @cached_property
    def components(self) -> RunStatistics:
        """The run in the coordinates of its independent components."""
        ica = self.unmixing(None)
        name = f"components of {self.name}"
        shape, device = (self.rows.n, ica.k), self.rows.device
        if device == "cpu":
            values = room_for(shape, np.float64, name)  # in a file where there are many rows
        else:
            import torch

            values = torch.empty(shape, dtype=torch.float64, device=device)
        for part in row_chunks(self.rows.n, self.rows.d, chunk_bytes(device)):
            chunk = self.rows.take(part)
            values[part] = chunk @ as_float64_like(ica.unmixing.T, chunk)
        return RunStatistics(name, run_sums(Rows(values, self.rows.device), self.sums.folds), self.seed)


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """Two runs with paired rows, and the centred cross product of all rows, computed when first used."""

    source: RunStatistics
    target: RunStatistics
    known: PairScatter | None = None  # the sums, where they were computed before

    @cached_property
    def sums(self) -> PairScatter:
        """The scatters of both runs and their centred cross product."""
        if self.known is not None:
            return self.known
        x, y = self.source.spread, self.target.spread
        product = pair_sums(self.source.whole, self.target.whole).products[0]
        return PairScatter(x, y, product - x.n * np.outer(x.mean, y.mean))

    @property
    def vary(self) -> bool:
        """Whether each run has a dimension that varies by more than rounding."""
        return self.source.dead < self.source.rows.d and self.target.dead < self.target.rows.d


def read_paired(runs: Any, options: Any, labels: Any = None) -> tuple[PairedRuns, list[Rows], Protocol, dict[str, Any]]:
    """Read and pair runs by the options: inputs, rows, the protocol of held-out scores, and settings to record."""
    bootstrap = getattr(options, "bootstrap", 0)
    counts = {"folds": options.folds, "nulls": options.nulls, "bootstrap": bootstrap, "seed": options.seed}
    check_method(options.normalize, **counts)
    common = {"cluster": options.cluster, "labels": labels, "drop_missing": options.drop_missing}
    sample = {"rows": options.rows, "seed": options.seed} if hasattr(options, "rows") else {}
    inputs = gather(runs, **reading(options), **common, **sample)
    device = resolve_device(options.device, *inputs.values)
    blocks = getattr(options, "order_blocks", None)
    if blocks is not None and options.rows is not None:
        raise InputError("rows and order_blocks exclude each other: rows of a sample are not in turn")
    plan = protocol(len(inputs.values[0]), cluster=inputs.cluster, order_blocks=blocks, **counts)
    settings = {
        "normalize": options.normalize,
        "clusters": None if inputs.cluster is None else plan.units,
        **({} if blocks is None else {"order_blocks": blocks}),
        "paired": "by id" if inputs.by_id else "by position",
        **({"rows": options.rows} if sample else {}),
        "folds": len(plan.folds),
        "nulls": options.nulls,
        **({"bootstrap": bootstrap} if hasattr(options, "bootstrap") else {}),
        "seed": options.seed,
        "device": device,
    }
    return inputs, [rows.placed() for rows in inputs.rows(device, options.normalize)], plan, settings


def sum_run(name: str, rows: Rows, plan: Protocol) -> RunStatistics:
    """Sum one run over the folds; with rows on the unit sphere, refuse rows that are all zero."""
    if rows.scale_rows:
        zero = [to_numpy((rows.data[part] == 0).all(1)) for part in row_chunks(rows.n, rows.d)]
        empty = np.flatnonzero(np.concatenate(zero))
        if empty.size:
            raise InputError(f"{name} has rows that are all zero and so have no direction (row {listing(empty)})")
    try:
        _ = rows.mean
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return RunStatistics(name, run_sums(rows, plan.folds, plan.gaps), plan.seed)


def paired_rows(x: Any, y: Any) -> tuple[Rows, Rows]:
    """Check that x, shape (n, d_x), and y, shape (n, d_y), are matrices with paired rows, and return their rows."""
    x, y = as_paired(x, y)
    device = resolve_device("auto", x, y)
    return Rows(x, device).placed(), Rows(y, device).placed()


def sum_pair(x: Any, y: Any) -> PairStatistics:
    """Sum two matrices with paired rows: one pass over the rows, d x d memory."""
    rows = paired_rows(x, y)
    source, target = (run_sums(one, [np.arange(one.n)]) for one in rows)
    return PairStatistics(
        RunStatistics("x", source), RunStatistics("y", target), pair_sums(source, target).outside(None)
    )


def squared_norms(run: RunStatistics) -> Float:
    """The squared norm of every centred row, shape (n,): the diagonal of the centred linear kernel."""
    return squared_lengths(run.rows, run.spread.mean)  # which is not 0 where rows repeat


def sample_rows(n: int, most: int, seed: int) -> Array:
    """All of n rows, or an ordered sample of `most` of them: the same for every run with n rows."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
