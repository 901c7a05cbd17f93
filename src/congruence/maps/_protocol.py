"""Folds, units and re-pairings: how errors are held out, resampled and compared with the null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice, check_integer, check_integers, check_seed
from congruence.errors import InputError
from congruence.stats.nulls import repairing


@dataclass(frozen=True, eq=False)
class Protocol:
    """How errors are held out, resampled and compared with the null."""

    folds: list[Array]  # row indices of each fold
    unit: Array  # (n,) the cluster, or the block of ordered rows, of each row; they are resampled whole
    clustered: bool  # whether units hold several rows, which re-pairings then move together
    repairings: list[Array]  # each (n,): the partner of every row in a destroyed pairing
    bootstrap: int
    seed: int
    block: int | None = None  # length of the blocks of ordered rows
    gaps: list[Array] | None = None  # of ordered rows: those next to each fold, left out of the fit with it

    @cached_property
    def fold_of(self) -> Array:
        """The number of the fold that holds each row, shape (n,)."""
        number = np.empty(len(self.unit), dtype=int)
        for k, fold in enumerate(self.folds):
            number[fold] = k
        return number

    @property
    def units(self) -> int:
        """The number of clusters, blocks or independent rows."""
        return int(self.unit.max()) + 1

    def repair(self, rng: np.random.Generator) -> Array:
        """Draw a re-pairing that keeps the dependence within each run, shape (n,)."""
        if self.block is not None:
            return repairing(len(self.unit), rng, block=self.block)
        return repairing(len(self.unit), rng, folds=self.folds, unit=self.unit if self.clustered else None)

    def shuffles(self) -> list[Array]:
        """As many re-pairings for a test in sample, where rows may move between folds and keep their partner.

        Only if any permutation may come are the true pairing and the re-pairings exchangeable, and p values exact.
        """
        if self.clustered:
            return self.repairings
        rng = np.random.default_rng([self.seed, 1])
        return [rng.permutation(len(self.unit)) for _ in self.repairings]

    def without(self, rows: Array) -> Protocol:
        """The same folds and units without some rows, which the others are numbered without."""
        keep = np.ones(len(self.unit), dtype=bool)
        keep[rows] = False
        number = np.cumsum(keep) - 1
        folds, gaps = ([number[part[keep[part]]] for part in some] for some in (self.folds, self.gaps or self.folds))
        some = [k for k, fold in enumerate(folds) if len(fold)]
        plan = replace(
            self,
            folds=[folds[k] for k in some],
            unit=np.unique(self.unit[keep], return_inverse=True)[1],
            repairings=[],
            gaps=None if self.gaps is None else [gaps[k] for k in some],
        )
        rng = np.random.default_rng(self.seed)
        return replace(plan, repairings=[plan.repair(rng) for _ in self.repairings])


def check_method(normalize: str | None, *, folds: int, nulls: int, bootstrap: int, seed: int) -> None:
    """Check the options of a protocol before any work is done."""
    check_choice("normalize", normalize, (None, "cosine"))
    check_integer("folds", folds, 2)
    check_integers(0, nulls=nulls, bootstrap=bootstrap)
    check_seed(seed)


def protocol(
    n: int,
    *,
    folds: int = 5,
    nulls: int = 20,
    bootstrap: int = 200,
    cluster: Array | None = None,
    order_blocks: int | None = None,
    seed: int = 0,
) -> Protocol:
    """Split n rows (or clusters, or blocks of ordered rows) into folds of similar size and draw the re-pairings."""
    rng = np.random.default_rng(seed)
    if order_blocks is not None:
        if cluster is not None:
            raise InputError("cluster and order_blocks exclude each other: rows are held out by one of them")
        return _ordered(n, order_blocks, folds, nulls, bootstrap, seed)
    unit = np.arange(n) if cluster is None else np.unique(cluster, return_inverse=True)[1]
    units = int(unit.max()) + 1
    if cluster is not None and units < 2:
        raise InputError("all rows belong to one cluster, so none can be held out; use a finer cluster variable")
    count = min(folds, units, n // 2)
    if count < 2:
        raise InputError(f"held-out scores need at least 4 paired rows; got {n}")
    dealt = deal(np.bincount(unit), count, rng)
    parts = [np.flatnonzero(dealt[unit] == k) for k in range(count)]
    plan = Protocol(parts, unit, cluster is not None, [], bootstrap, seed)
    return replace(plan, repairings=[plan.repair(rng) for _ in range(nulls)])


def _ordered(n: int, block: int, folds: int, nulls: int, bootstrap: int, seed: int) -> Protocol:
    """Contiguous folds of ordered rows, with a gap of one block on both sides, and circular shifts as re-pairings."""
    check_integer("order_blocks", block, 1)
    if n < 4 * block:
        raise InputError(f"order_blocks must be at most a quarter of the {n} rows, or too few are left; got {block}")
    count = min(folds, n // (2 * block))
    parts, gaps = zip(*consecutive(n, count, block), strict=True)
    plan = Protocol(list(parts), np.arange(n) // block, True, [], bootstrap, seed, block, list(gaps))
    rng = np.random.default_rng(seed)
    return replace(plan, repairings=[plan.repair(rng) for _ in range(nulls)])


def consecutive(n: int, folds: int, gap: int) -> Iterator[tuple[Array, Array]]:
    """Contiguous folds of n rows, each with the rows up to `gap` places before and after it."""
    for fold in np.array_split(np.arange(n), folds):
        around = np.r_[fold[0] - gap : fold[0], fold[-1] + 1 : fold[-1] + 1 + gap]
        yield fold, around[(around >= 0) & (around < n)]


def deal(sizes: Array, folds: int, rng: np.random.Generator) -> Array:
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
