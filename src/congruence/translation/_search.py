"""Exact nearest neighbours in an index that arrives in blocks, so that memory does not grow with its size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_float64_like, is_tensor, library, to_numpy, to_tensor

NEIGHBOURS = 10
DEPTH = 1000  # the longest list of translated results that is kept
SUBSETS = 4  # the index, and random halves, quarters and eighths of it
BLOCK_ROWS, QUERY_ROWS = 8192, 256
EQUAL = 1e-12  # relative rounding of a squared distance
SAME = 1e-6  # the same where an index was stored as float16: a row this close to a query is the query itself


@dataclass(frozen=True, eq=False)
class Queries:
    """Query vectors in the old space (true, translated, untranslated) and in the new one."""

    old: Float  # (m, d_old)
    translated: Float  # (m, d_old)
    raw: Float  # (m, d_old) new vectors, cut or zero-padded
    new: Float  # (m, d_new)
    other: Float  # (m, d_old) the translated vectors of other queries, for the null
    own: Array | None = None  # (m,) the position of each query in the index, which is left out of its results

    def part(self, rows: slice) -> Queries:
        """Some of the queries."""
        own = None if self.own is None else self.own[rows]
        return Queries(self.old[rows], self.translated[rows], self.raw[rows], self.new[rows], self.other[rows], own)


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of the index; `new` holds their new vectors where they are known."""

    first: int
    old: Float  # (b, d_old)
    level: Array  # (b,) the row is in the subsets up to this number
    new: Float | None = None  # (b, d_new)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What queries find in an index of `size` rows; vectors at equal distance are exchangeable.

    `hits` are the results of translated queries, nearest first: whether each is among the `k` true nearest. `one` and
    `before` are the recall@1 of translated and the recall@k of untranslated queries, `null` the recall@k of the
    translations of other queries. `full` and `full_old` are the shares of the new model's k nearest that translated
    and old queries find. `subsets` holds, for random subsets of the index, their sizes and recall@k. `results` are the
    positions of each ranking's first results.
    """

    size: int
    k: int
    hits: Array  # (m, depth) bool
    one: Float  # (m,)
    before: Float  # (m,)
    null: Float  # (m,)
    itself: Float  # (m,) how often no other row is nearer than the query's own; NaN for queries outside the index
    full: Float | None  # (m,)
    full_old: Float | None  # (m,)
    subsets: list[tuple[int, Float]]
    results: dict[str, Array]  # each (m, k)

    def contained(self, depth: int) -> Float:
        """The share of the true nearest among the first `depth` translated results, shape (m,)."""
        return np.asarray(np.minimum(self.hits[:, :depth].sum(1), self.k) / self.k)

    def reaches(self, share: float) -> int | None:
        """The smallest number of translated results that contain this share of the true nearest; None above `DEPTH`."""
        found = np.minimum(np.cumsum(self.hits, axis=1), self.k).mean(0) / self.k
        enough = np.flatnonzero(found >= share)
        return int(enough[0]) + 1 if len(enough) else None


def draw_levels(n: int, rng: np.random.Generator) -> Array:
    """The smallest subset that each of n rows belongs to: half of them only to the whole index, and so on."""
    return np.minimum(rng.geometric(0.5, size=n) - 1, SUBSETS - 1)


def search(queries: Queries, blocks: Iterable[Block], device: str = "cpu") -> Neighbours:
    """Search all blocks with every query; exact, in one pass over the index.

    Without positions of the queries in the index, rows equal to the old vector of a query, up to the rounding of
    float16, are left out of its results.
    """
    m = len(queries.old)
    parts = [_PartSearch(queries.part(slice(i, i + QUERY_ROWS)), device) for i in range(0, m, QUERY_ROWS)]
    sizes = np.zeros(SUBSETS, dtype=int)
    for block in blocks:
        sizes += [int((block.level >= j).sum()) for j in range(SUBSETS)]
        placed = _place(block, device)
        for part in parts:
            part.update(placed)
    return _join([part.finish() for part in parts], sizes)


def _place(block: Block, device: str) -> Block:
    if device == "cpu":
        return block
    new = None if block.new is None else to_tensor(block.new, device)
    return Block(block.first, to_tensor(block.old, device), block.level, new)


class _Nearest:
    """The k smallest distances of each query so far, with further values of the same rows."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.kept: list[Any] = []

    def update(self, distances: Any, *values: Any) -> None:
        found = self._smallest([distances, *values])
        if self.kept:
            join = library(distances).concatenate
            found = self._smallest([join([a, b], 1) for a, b in zip(self.kept, found, strict=True)])
        self.kept = found

    def _smallest(self, arrays: list[Any]) -> list[Any]:
        keys = arrays[0]
        if keys.shape[1] <= self.k:
            return arrays
        if is_tensor(keys):
            order = keys.topk(self.k, largest=False, sorted=False).indices
            return [one.gather(1, order) for one in arrays]
        order = np.argpartition(keys, self.k - 1, axis=1)[:, : self.k]
        return [np.take_along_axis(one, order, axis=1) for one in arrays]

    def finish(self) -> list[Float]:
        """Everything that was kept, nearest first."""
        arrays = [to_numpy(one) for one in self.kept]
        order = np.argsort(arrays[0], axis=1, kind="stable")
        return [np.take_along_axis(one, order, axis=1) for one in arrays]


class _PartSearch:
    """The search for some of the queries."""

    def __init__(self, queries: Queries, device: str) -> None:
        self.queries = queries
        spaces = {"truth": queries.old, "guess": queries.translated, "raw": queries.raw, "null": queries.other}
        spaces["full"] = queries.new
        self.vectors = {name: x if device == "cpu" else to_tensor(x, device) for name, x in spaces.items()}
        self.squares = np.square(queries.old).sum(1)
        self.nearest = {"guess": _Nearest(DEPTH)} | {
            name: _Nearest(NEIGHBOURS) for name in ("truth", "raw", "null", "full")
        }
        self.subsets = [(_Nearest(NEIGHBOURS), _Nearest(NEIGHBOURS)) for _ in range(SUBSETS - 1)]

    def update(self, block: Block) -> None:
        found = [_squared_distances(self.vectors[name], block.old) for name in ("truth", "guess", "raw", "null")]
        truth, guess, raw, null = found
        full = truth if block.new is None else _squared_distances(self.vectors["full"], block.new)
        left_out = self._left_out(block, truth)
        for distances in found if block.new is None else [*found, full]:
            distances[left_out] = np.inf
        positions = np.arange(block.first, block.first + len(block.old), dtype=np.float64)
        place = library(truth).zeros_like(truth) + as_float64_like(positions, truth)
        self.nearest["guess"].update(guess, truth, full, place)
        self.nearest["truth"].update(truth, full, place)
        self.nearest["raw"].update(raw, truth)
        self.nearest["null"].update(null, truth)
        if block.new is not None:
            self.nearest["full"].update(full, place)
        for number, (by_guess, by_truth) in enumerate(self.subsets, start=1):
            some = np.flatnonzero(block.level >= number)
            if len(some):
                by_guess.update(guess[:, some], truth[:, some])
                by_truth.update(truth[:, some])

    def _left_out(self, block: Block, truth: Any) -> Any:
        if self.queries.own is None:
            sizes = (block.old * block.old).sum(1)[None] + as_float64_like(self.squares, truth)[:, None]
            return truth <= SAME * sizes
        own = self.queries.own - block.first
        rows = np.flatnonzero((own >= 0) & (own < len(block.old)))
        return rows, own[rows]

    def finish(self) -> dict[str, Any]:
        """The arrays of `Neighbours` for these queries."""
        guess, truth_of_guess, full_of_guess, places = self.nearest["guess"].finish()
        truth, full_of_truth, true_places = self.nearest["truth"].finish()
        k = max(1, min(NEIGHBOURS, int(np.isfinite(truth).sum(1).min())))
        reach = self._reach(truth, k)
        hits = (truth_of_guess <= reach) & np.isfinite(truth_of_guess)
        own = np.square(self.queries.translated - self.queries.old).sum(1)
        one = truth_of_guess[:, 0] <= self._reach(truth, 1)[:, 0]
        found = {
            "k": k,
            "hits": hits,
            "one": one.astype(float),
            "before": (self.nearest["raw"].finish()[1][:, :k] <= reach).mean(1),
            "null": (self.nearest["null"].finish()[1][:, :k] <= reach).mean(1),
            "itself": (own <= self._reach(guess, 1)[:, 0]).astype(float),
            "results": {"old": true_places[:, :k].astype(int), "translated": places[:, :k].astype(int)},
            "subsets": [
                (guess_j.finish()[1][:, :k] <= self._reach(truth_j.finish()[0], k)).mean(1)
                for guess_j, truth_j in self.subsets
                if guess_j.kept and guess_j.kept[0].shape[1] >= k
            ],
        }
        if self.nearest["full"].kept:
            new, new_places = self.nearest["full"].finish()
            limit = self._reach(new, k)
            found["full"] = (full_of_guess[:, :k] <= limit).mean(1)
            found["full_old"] = (full_of_truth[:, :k] <= limit).mean(1)
            found["results"]["new"] = new_places[:, :k].astype(int)
        return found

    def _reach(self, distances: Float, k: int) -> Float:
        """The distance of the k-th nearest, with room for rounding, shape (m, 1)."""
        kth = distances[:, k - 1]
        return np.asarray(kth + 4 * EQUAL * (self.squares + kth))[:, None]


def _join(parts: list[dict[str, Any]], sizes: Array) -> Neighbours:
    def joined(name: str) -> Any:
        return np.concatenate([part[name] for part in parts])

    full = "full" in parts[0]
    count = min(len(part["subsets"]) for part in parts)
    subsets = [(int(sizes[j + 1]), np.concatenate([part["subsets"][j] for part in parts])) for j in range(count)]
    return Neighbours(
        size=int(sizes[0]),
        k=min(part["k"] for part in parts),
        full=joined("full") if full else None,
        full_old=joined("full_old") if full else None,
        subsets=subsets,
        results={name: np.concatenate([part["results"][name] for part in parts]) for name in parts[0]["results"]},
        **{name: joined(name) for name in ("hits", "one", "before", "null", "itself")},
    )


def _squared_distances(x: Any, y: Any) -> Any:
    """The squared distances of all pairs of rows, shape (m, b)."""
    distances = x @ y.T
    distances *= -2
    distances += (x * x).sum(1)[:, None]
    distances += (y * y).sum(1)[None]
    return distances
