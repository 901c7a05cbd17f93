"""Recall of translated queries: held-out scores with intervals, and their extrapolation to larger indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, finite_rows, listing, on_sphere, to_numpy
from congruence.errors import InputError
from congruence.maps.nearness import HeldOut
from congruence.options import reading
from congruence.stats.intervals import student_quantile, unit_interval
from congruence.tables import Table, as_table, is_table, slices, stream_parts
from congruence.tables.inputs import supports
from congruence.tables.names import match_columns
from congruence.tables.parts import part_files
from congruence.translation._search import BLOCK_ROWS, Block, Neighbours, draw_levels
from congruence.translation.certificate import Containment, Retrieval, SizePoint
from congruence.translation.translator import Translator

DEPTHS = (50, 100, 200)
RECOVERED = 0.99  # the share of the true neighbours that the rerank depth recovers
FACTORS = (10, 100)  # index sizes to which recall is extrapolated, relative to the measured one
FEWEST_UNITS = 10  # independent queries or clusters, or the slope is unknown
FEWEST = 100  # rows of the smallest index that the extrapolation uses
# The logit of the recall is nearly linear in the logarithm of the index size. Up to 100 times the size, its slope is
# most often this multiple of the measured one in simulations, and stays between the other two.
USUAL = 0.8
FLATTER, STEEPER = 0.4, 1.5


def summarise(
    found: Neighbours, paired: Neighbours, unit: Array, inflation: float, *, inside: bool, extrapolate: bool
) -> Retrieval:
    """The scores of the queries over the index (`found`), and of full re-embedding over the paired rows (`paired`).

    `unit` (m,) says which queries depend on each other, and `inflation` how much more the mean varies than that of
    queries of one map. `inside`: the queries are rows of the index.
    """

    def held_out(values: Float) -> HeldOut:
        return HeldOut(float(values.mean()), *unit_interval(values, unit, inflation))

    depths = [depth for depth in DEPTHS if depth < found.size]
    return Retrieval(
        index_size=found.size,
        queries=len(unit),
        recall_1=held_out(found.one),
        recall_10=held_out(found.contained(found.k)),
        itself=float(found.itself.mean()) if inside else None,
        before=float(found.before.mean()),
        chance=float(found.null.mean()),
        containment=tuple(Containment(depth, held_out(found.contained(depth))) for depth in depths),
        rerank_depth=found.reaches(RECOVERED),
        sizes=tuple(size_points(found, unit, inflation, extrapolate=extrapolate)),
        full=None if paired.full is None else held_out(paired.full),
        full_old=None if paired.full_old is None else float(paired.full_old.mean()),
    )


def size_points(found: Neighbours, unit: Array, inflation: float, *, extrapolate: bool) -> Iterator[SizePoint]:
    """The recall@10 in random subsets of the index, in the whole, and extrapolated to larger ones."""
    measured = [(found.size, found.contained(found.k)), *found.subsets]
    measured = [(size, values) for size, values in measured if size >= FEWEST or size == found.size]
    for size, values in reversed(measured):
        yield SizePoint(size, float(values.mean()), *unit_interval(values, unit, inflation), extrapolated=False)
    if extrapolate and len(measured) > 2 and len(np.unique(unit)) >= FEWEST_UNITS:
        yield from _extrapolated(measured, unit, inflation)


def _extrapolated(measured: list[tuple[int, Float]], unit: Array, inflation: float) -> Iterator[SizePoint]:
    """Continue the logit of the recall linearly in the logarithm of the index size, from the largest index on."""
    logs = np.log([size for size, _ in measured])
    means = np.array([values.mean() for _, values in measured])
    n = len(unit)
    inner = np.clip(means, 0.5 / n, 1 - 0.5 / n)
    weights = (logs - logs.mean()) / np.square(logs - logs.mean()).sum()
    last = np.array([1.0, -1.0]) / (logs[0] - logs[1])
    # d logit(p) = dp / (p (1 - p)): how much each query moves the slope
    moves = np.stack(
        [(values - mean) / (p * (1 - p)) for (_, values), mean, p in zip(measured, means, inner, strict=True)]
    )
    logits = np.log(inner / (1 - inner))
    slope, local = float(weights @ logits), float(last @ logits[:2])
    error = max(_standard_error(weights @ moves, unit, inflation), _standard_error(last @ moves[:2], unit, inflation))
    steep = min(STEEPER * min(slope, local, 0.0) - 2 * error, -1e-3)
    flat = min(FLATTER * slope + 2 * error, 0.0)
    low, high = unit_interval(measured[0][1], unit, inflation)
    ends = np.clip([low, high], 0.5 / n, 1 - 0.5 / n)
    low_logit, high_logit = np.log(ends / (1 - ends))
    for factor in FACTORS:
        grow = np.log(factor)
        values = logits[0] + USUAL * min(slope, 0.0) * grow, low_logit + steep * grow, high_logit + flat * grow
        recall, low, high = (float(1 / (1 + np.exp(-value))) for value in values)
        yield SizePoint(factor * measured[0][0], recall, low, high, extrapolated=True)


def _standard_error(moves: Float, unit: Array, inflation: float) -> float:
    unit = np.unique(unit, return_inverse=True)[1]
    units = int(unit.max()) + 1
    totals = np.bincount(unit, weights=moves)
    error = np.sqrt(inflation * np.square(totals).sum() * units / max(units - 1, 1)) / len(moves)
    return float(error * student_quantile(max(units - 1, 1), 0.975) / 1.96)


def paired_blocks(
    old: Callable[[Array], Float], new: Callable[[Array], Float], index: Array, centre: tuple[Float, Float], seed: int
) -> Iterator[Block]:
    """The paired rows as an index, minus the centre of each space, which keeps differences of squares precise."""
    rng = np.random.default_rng([seed, 1])
    for first in range(0, len(index), BLOCK_ROWS):
        rows = index[first : first + BLOCK_ROWS]
        yield Block(first, old(rows) - centre[0], draw_levels(len(rows), rng), new(rows) - centre[1])


class IndexReader:
    """The real index, read block by block from anything that `as_table` takes; `ids` are known after a pass."""

    def __init__(self, index: Any, options: Any, translator: Translator, *, keep_ids: bool) -> None:
        self.index, self.keep_ids = index, keep_ids
        self.width, self.columns = translator.d_old, translator.columns_old
        self.normalize, self.drop, self.seed = options.normalize, options.drop_missing, options.seed
        named = {name: value for name, value in reading(options).items() if value is not None}
        self.options = {name: value for name, value in named.items() if is_table(index) and supports(index, name)}
        self.ids: list[Array] = []
        self.left_out = 0

    def blocks(self, centre: Float) -> Iterator[Block]:
        """The rows minus the centre."""
        rng, first = np.random.default_rng([self.seed, 1]), 0
        for table in self._tables():
            for start in range(0, table.n, BLOCK_ROWS):
                values = np.asarray(to_numpy(table.values[start : start + BLOCK_ROWS]), dtype=np.float64)
                ids = None if table.ids is None else table.ids[start : start + BLOCK_ROWS]
                values, ids = self._checked(values, ids, first)
                order = match_columns(table.features, self.columns, "index")
                values = values if order is None else values[:, order]
                if self.keep_ids:
                    if ids is None:
                        raise InputError("qrels needs the ids of the rows of index; name their column by id (--id)")
                    self.ids.append(np.asarray(ids).astype(str))
                if len(values):
                    yield Block(first, values - centre, draw_levels(len(values), rng))
                first += len(values)
        if first <= 1:
            raise InputError(f"index must have at least 2 rows; got {first}")

    def _tables(self) -> Iterator[Table]:
        if isinstance(self.index, str | os.PathLike):
            yield from stream_parts(part_files(self.index), **self.options).chunks
        else:
            yield from slices(as_table(self.index, name="index", **self.options))

    def _checked(self, values: Float, ids: Any, first: int) -> tuple[Float, Any]:
        if values.shape[1] != self.width:
            raise InputError(f"index must hold old vectors, with {self.width} columns; got {values.shape[1]} columns")
        good = finite_rows(values)
        if not good.all():
            if not self.drop:
                raise InputError(f"index has NaN or infinite values (row {listing(np.flatnonzero(~good) + first)})")
            self.left_out += int((~good).sum())
            values, ids = values[good], None if ids is None else np.asarray(ids)[good]
        return (on_sphere(values) if self.normalize else values), ids
