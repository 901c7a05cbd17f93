"""Do rows depend on each other? Measured by the effect on the held-out error, not by the significance of a correlation.

Held-out errors assume that a row left out tells nothing about the rows the map is fitted on. Where neighbours in the
order of the rows, or rows close to each other in the source, are left out together, the error of independent rows
stays the same; that of a time series, of clusters or of near-duplicates rises, for unrelated runs to that of chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.maps._protocol import Protocol, consecutive, deal
from congruence.maps.groups import fit_group
from congruence.maps.nearness import row_errors, squared_lengths
from congruence.rows.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums
from congruence.stats.intervals import student_quantile

MOST_ROWS = 20_000  # neighbours in order of more rows are a stretch of them, neighbours in space a sample
GAP = 0.02  # the share of the rows left out on both sides of a stretch
CELLS = 20  # parts of the source; clusters larger than one part cannot be distinguished from the shape of the data
CELL_WIDTH = 64  # dimensions, by random projection, in which parts are formed
ORDER_EFFECT = 1.1  # a larger rise of the error than by this factor counts
CELL_EFFECT = 1.02  # the same for parts, if half of what was better than chance is lost as well
MANY_COPIES = 0.05  # a larger share of repeated rows counts
NEGLIGIBLE = 0.05  # an error below this share of chance cannot be due to dependence
COPIES = 30  # the most near-duplicates of a row that are distinguished from its other neighbours
CLOSE = 1 / 3  # of the distance of the last of so many neighbours: nearer rows are near-duplicates


@dataclass(frozen=True, eq=False)
class Dependence:
    """The error after the best similarity, as a share of chance, for three ways of leaving rows out.

    `scattered`: at random. `consecutive`: contiguous rows, with a gap. `neighbours`: rows close to each other in the
    source. `copies` are the rows that repeat an earlier row in both runs, among the `n` rows that were examined.
    """

    scattered: float
    consecutive: float
    neighbours: float
    ordered: bool  # whether consecutive rows depend on each other
    clustered: bool  # whether rows close to each other do
    copies: Array  # (copies,)
    n: int

    @property
    def repeated(self) -> bool:
        """Whether so many rows are copies that they count."""
        return len(self.copies) > MANY_COPIES * self.n

    @property
    def matters(self) -> bool:
        """Whether dependence could explain the result."""
        return (self.ordered or self.clustered or self.repeated) and self.scattered > NEGLIGIBLE

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON schema."""
        return {**vars(self), "copies": len(self.copies), "matters": self.matters}


def link_near_duplicates(rows: Rows, index: Array, seed: int) -> Array:
    """The number of the set of near-duplicates of each chosen row, shape (len(index),).

    Rows are linked that are much closer to each other than to most of their 30 nearest neighbours. Where links form
    chains through the data, they are its shape, not copies: each row then is a set of its own.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    points = _projected(rows, index, seed)
    n, k = len(points), min(COPIES, len(points) - 1)
    squares, pairs = np.square(points).sum(1), []
    for part in row_chunks(n, n):
        some = np.arange(n)[part]
        distances = np.maximum(squares[some, None] + squares - 2 * points[some] @ points.T, 0)
        distances[np.arange(len(some)), some] = np.inf
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        close = np.take_along_axis(distances, nearest, axis=1)
        row, column = np.nonzero(close <= CLOSE**2 * close.max(1, keepdims=True))
        pairs.append(np.stack([some[row], nearest[row, column]]))
    i, j = np.concatenate(pairs, axis=1)
    link = np.asarray(connected_components(coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)[1])
    return link if np.bincount(link).max() <= n / CELLS else np.arange(n)


def measure_dependence(
    source: Rows, target: Rows, plan: Protocol, errors: Float, null: float, group: str = "similarity"
) -> Dependence:
    """Compare held-out errors over three kinds of folds.

    `errors` (n,) are those after the best map of the group with rows left out at random, `null` that of unrelated runs.
    """
    n, folds = source.n, len(plan.folds)
    stretch = np.arange(min(n, MOST_ROWS))
    sample = stretch
    if n > MOST_ROWS:
        sample = np.sort(np.random.default_rng(plan.seed).choice(n, MOST_ROWS, replace=False))
    copies = sample[_repeats(source, target, sample)]
    cell = _cells(_projected(source, sample, plan.seed), min(CELLS, len(sample) // 10), plan.seed)
    in_turn, gaps = zip(*consecutive(len(stretch), folds, max(1, int(GAP * len(stretch)))), strict=True)
    parts = fold_parts(cell, folds, plan.seed)
    before = near = errors
    if n > MOST_ROWS:
        number = np.random.default_rng(plan.seed).permutation(len(stretch)) % folds
        scattered_folds = [np.flatnonzero(number == k) for k in range(folds)]
        before, near = (_errors(source, target, rows, scattered_folds, None, group) for rows in (stretch, sample))
    in_order = _errors(source, target, stretch, list(in_turn), list(gaps), group)
    in_space = _errors(source, target, sample, parts, None, group)
    block = np.arange(len(stretch)) * CELLS // len(stretch)
    scattered, consecutive_, neighbours = (float(found.mean()) / null for found in (near, in_order, in_space))
    # where one part holds most rows, the map of the others is fitted to too few of them
    lost = neighbours > 1 - (1 - scattered) / 2 and max(map(len, parts)) <= len(sample) / 2
    ordered, clustered = _rises(before, in_order, block, ORDER_EFFECT), _rises(near, in_space, cell, CELL_EFFECT)
    return Dependence(scattered, consecutive_, neighbours, ordered, lost and clustered, copies, len(sample))


def check_rows(source: Rows, target: Rows, plan: Protocol, group: str = "similarity") -> Dependence:
    """Measure the dependence for a pair whose held-out errors are not known yet."""
    null = float(np.sqrt(squared_lengths(target)).mean())  # the map of unrelated runs has a scale near 0
    index = np.arange(source.n)
    known = _errors(source, target, index, plan.folds, None, group) if source.n <= MOST_ROWS else np.zeros(source.n)
    return measure_dependence(source, target, plan, known, null, group)


def _rises(before: Float, after: Float, part: Array, factor: float) -> bool:
    """Whether errors rise by the factor, as geometric means, beyond chance over parts of the rows (level 1 %)."""
    least = 1e-9 * before.mean() + np.finfo(float).tiny
    rise = np.bincount(part, weights=np.log(np.maximum(after, least)) - np.log(np.maximum(before, least)))
    sizes = np.bincount(part)
    mean = rise.sum() / sizes.sum()
    error = np.sqrt(np.square(rise - mean * sizes).sum()) / sizes.sum()
    return bool(len(sizes) > 1 and mean > np.log(factor) and mean > student_quantile(len(sizes) - 1, 0.99) * error)


def _errors(
    source: Rows, target: Rows, rows: Array, folds: list[Array], gaps: list[Array] | None, group: str = "similarity"
) -> Float:
    """The held-out error of each of these rows after the best map, shape (len(rows),)."""
    some = rows if len(rows) < source.n else slice(None)
    x, y = (Rows(run.data[some], run.device, run.scale_rows) for run in (source, target))
    sums = pair_sums(*(run_sums(one, folds, gaps) for one in (x, y)))
    errors = np.empty(x.n)
    for k, fold in enumerate(folds):
        with one_thread(max(x.d, y.d)):
            h = fit_group(replace(sums.outside(k), rough=True), group)
        errors[fold] = row_errors({group: h}, x, y, fold)[group]
    return errors


def _projected(rows: Rows, index: Array, seed: int) -> Float:
    """The rows in at most `CELL_WIDTH` dimensions, shape (len(index), dimensions)."""
    matrix = np.eye(rows.d)
    if rows.d > CELL_WIDTH:
        matrix = np.random.default_rng(seed).normal(size=(rows.d, CELL_WIDTH))
    chunks = (to_numpy(rows.take(index[part])) for part in row_chunks(len(index), rows.d))
    points = np.concatenate([chunk @ matrix for chunk in chunks])
    lengths = np.sqrt(np.square(points).sum(1, keepdims=True))
    # far rows are drawn in, or they would have most of the parts
    return np.asarray(points / (np.median(lengths) + lengths + np.finfo(float).tiny))


def _cells(points: Float, count: int, seed: int, rounds: int = 8) -> Array:
    """The part of each point, shape (n,), by k-means."""
    rng, count = np.random.default_rng(seed), max(count, 2)
    squares = np.square(points).sum(1)
    centres = points[rng.integers(len(points))][None]
    nearest = np.full(len(points), np.inf)
    while len(centres) < count:  # k-means++: each new centre far from the others
        nearest = np.minimum(nearest, np.maximum(squares - 2 * points @ centres[-1] + centres[-1] @ centres[-1], 0))
        total = nearest.sum()
        if not total > 0:
            break
        centres = np.vstack([centres, points[rng.choice(len(points), p=nearest / total)]])
    cell = np.zeros(len(points), dtype=int)
    for _ in range(rounds):
        cell = (np.square(centres).sum(1) - 2 * points @ centres.T).argmin(1)
        sizes = np.bincount(cell, minlength=len(centres))
        member = (cell == np.arange(len(centres))[:, None]).astype(float)
        centres = np.where(sizes[:, None] > 0, member @ points / np.maximum(sizes, 1)[:, None], centres)
    return np.unique(cell, return_inverse=True)[1]


def fold_parts(cell: Array, folds: int, seed: int) -> list[Array]:
    """Folds of whole parts; where there are fewer parts than folds, fewer folds."""
    sizes = np.bincount(cell)
    number = deal(sizes, max(2, min(folds, len(sizes))), np.random.default_rng(seed))[cell] if len(sizes) > 1 else None
    if number is None:
        number = np.arange(len(cell)) % folds
    return [np.flatnonzero(number == k) for k in range(number.max() + 1)]


def _repeats(source: Rows, target: Rows, index: Array) -> Array:
    """The rows that repeat an earlier one in both runs, by a hash of their numbers."""
    rng, code = np.random.default_rng(0), np.zeros(len(index), dtype=np.uint64)
    for rows in (source, target):
        weights = rng.integers(1, 2**63, size=rows.d, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        for part in row_chunks(len(index), rows.d):
            bits = np.ascontiguousarray(to_numpy(rows.take(index[part]))).view(np.uint64)
            code[part] += ((bits ^ (bits >> np.uint64(29))) * weights).sum(1, dtype=np.uint64)
    return np.setdiff1d(np.arange(len(code)), np.unique(code, return_index=True)[1])
