"""Cosines of two dictionaries, block by block: nearest features, matchings, combinations of a few, and chance.

Chance is measured with null dictionaries: how similar are the nearest features of dictionaries that have no feature in
common?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, library, on_sphere, to_numpy, to_tensor
from congruence.stats.matching import match

MOST_DENSE = 2**24  # entries of one connected part that is matched as a dense matrix
CANDIDATES, TERMS = 32, 3  # nearest features among which a combination is sought, and features in a combination
ROWS = 4096  # features of the first dictionary that are matched with a null dictionary
PROBED = 256  # features from which the median of the largest cosines is estimated
TUNED_ROWS, TUNED_STEPS = 2048, 8  # directions and iterations by which the Gaussian of "covariance" is found
KINDS = ("rotation", "covariance")
BLOCK_VALUES = 2**24  # cosines that are computed at a time
MOST_PAIRS = 64  # above the limit, for each feature on average; beyond, only the largest of each block row are kept


@dataclass(frozen=True, eq=False)
class Similar:
    """The nearest feature on the other side of every feature, and all pairs above a limit."""

    nearest: Array  # (m_a,) of b
    cosine: Array  # (m_a,) with it
    back: Array  # (m_b,) nearest row of a of every row of b, the first of several
    back_cosine: Array  # (m_b,) with it
    rows: Array  # (pairs,) of a
    columns: Array  # (pairs,) of b
    values: Array  # (pairs,) their cosines, all above the limit
    thinned: bool  # whether pairs were left out because there were too many


def place(directions: Array, device: str) -> Any:
    """The directions as the array that is multiplied: a tensor on a GPU, else numpy."""
    return directions if device == "cpu" else to_tensor(directions, device)


def blocks(a: Any, b: Any, unsigned: bool) -> Iterator[tuple[int, Any]]:
    """Yield the cosines of some rows of a with all rows of b, and the position of the first."""
    step = max(1, BLOCK_VALUES // len(b))
    for start in range(0, len(a), step):
        cosines = a[start : start + step] @ b.T
        yield start, abs(cosines) if unsigned else cosines


def row_maxima(a: Any, b: Any, unsigned: bool) -> Array:
    """The cosine of every row of a with its nearest row of b, shape (m_a,)."""
    return np.concatenate([to_numpy(library(block).amax(block, 1)) for _, block in blocks(a, b, unsigned)])


def find_similar(a: Any, b: Any, limit: float, unsigned: bool) -> Similar:
    """The nearest neighbours of two dictionaries in both directions, and all pairs with a cosine above `limit`."""
    nearest, cosine = np.empty(len(a), np.intp), np.empty(len(a), np.float32)
    back, back_cosine = np.zeros(len(b), np.intp), np.full(len(b), -2.0, np.float32)
    found, thinned, most = [], False, min(MOST_PAIRS, len(b))
    for start, block in blocks(a, b, unsigned):
        rows = slice(start, start + len(block))
        nearest[rows] = to_numpy(block.argmax(1))
        cosine[rows] = to_numpy(library(block).amax(block, 1))
        largest = to_numpy(library(block).amax(block, 0))
        nearer = largest > back_cosine
        back[nearer], back_cosine[nearer] = start + to_numpy(block.argmax(0))[nearer], largest[nearer]
        above = block > limit
        if int(above.sum()) > most * len(block):  # the largest of each row
            thinned = True
            kth = block.topk(most, 1).values if is_tensor(block) else np.partition(block, -most, 1)[:, [-most]]
            above &= block >= kth[:, -1:]
        places = np.nonzero(to_numpy(above))
        found.append((places[0] + start, places[1], to_numpy(block[above])))
    pairs = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return Similar(nearest, cosine, back, back_cosine, pairs[0], pairs[1], pairs[2], thinned)


def nearest_of_own(a: Any, rows: Array, unsigned: bool) -> Array:
    """The largest cosine of some rows of a, given by their positions, with the other rows of a."""
    parts = [np.empty(0, np.float32)]
    for start, block in blocks(a[rows], a, unsigned):
        here = rows[start : start + len(block)]
        block[np.arange(len(block)), here] = -2  # with itself
        parts.append(to_numpy(library(block).amax(block, 1)))
    return np.concatenate(parts)


def top_neighbours(a: Any, b: Any, k: int) -> Array:
    """The k rows of b with the largest |cosine| for every row of a, shape (m_a, k), in no order."""
    k = min(k, len(b))
    parts = []
    for _, block in blocks(a, b, True):
        top = block.topk(k, 1).indices if is_tensor(block) else np.argpartition(block, -k, axis=1)[:, -k:]
        parts.append(to_numpy(top))
    return np.concatenate(parts)


def match_mutual(similar: Similar, limit: float) -> tuple[Array, Array]:
    """The partner of each feature of a, shape (m_a,), -1 for none, and its cosine: each is the nearest of the other.

    Of several equally near features the first is the nearest, so that no feature has two partners.
    """
    mutual = (similar.back[similar.nearest] == np.arange(len(similar.nearest))) & (similar.cosine > limit)
    return np.where(mutual, similar.nearest, -1), np.where(mutual, similar.cosine, np.nan)


def match_one_to_one(similar: Similar, limit: float) -> tuple[Array, Array]:
    """The partner of each feature of a, shape (m_a,), -1 for none, and its cosine: the best one-to-one matching.

    Maximises the sum of (cosine - limit) over matched pairs. Only pairs above the limit can contribute, so each
    connected part of their graph is matched on its own, which is exact: a part is solved by the Hungarian method, a
    very large one as a sparse matrix. A feature may stay without a partner.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    m, k = len(similar.nearest), len(similar.back_cosine)
    partner, cosine = np.full(m, -1), np.full(m, np.nan)
    above = similar.values > limit
    rows, columns, values = similar.rows[above], similar.columns[above], similar.values[above].astype(np.float64)
    if not len(rows):
        return partner, cosine
    graph = coo_array((np.ones(len(rows)), (rows, m + columns)), shape=(m + k, m + k))
    part = connected_components(graph, directed=False)[1][rows]
    order = np.argsort(part, kind="stable")
    ends = np.flatnonzero(np.diff(part[order])) + 1
    for edges in np.split(order, ends):
        some = edges[_match_part(rows[edges], columns[edges], values[edges] - limit)]
        partner[rows[some]], cosine[rows[some]] = columns[some], values[some]
    return partner, cosine


def _match_part(rows: Array, columns: Array, gain: Array) -> Array:
    """Which edges of one connected part are in its best matching, as positions."""
    if len(rows) == 1:
        return np.array([0])
    left, i = np.unique(rows, return_inverse=True)
    right, j = np.unique(columns, return_inverse=True)
    if len(left) * len(right) > MOST_DENSE:
        return _match_sparse(i, j, gain, len(left), len(right))
    dense = np.zeros((len(left), len(right)))
    position = np.full(dense.shape, -1)
    dense[i, j], position[i, j] = gain, np.arange(len(rows))
    chosen = position[match(dense)]
    return chosen[chosen >= 0]


def _match_sparse(i: Array, j: Array, gain: Array, m: int, k: int) -> Array:
    """The same for a large part: every feature also has a partner of its own of gain 0, which means no partner."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    # Feature i of a may take column k + i, feature j of b row m + j; these fill each other's places with gain 0.
    rows = np.concatenate([i, np.arange(m), m + np.arange(k), m + j])
    columns = np.concatenate([j, k + np.arange(m), np.arange(k), k + i])
    cost = np.concatenate([-gain, np.zeros(m + k), np.zeros(len(i))]) + gain.max() + 1  # explicit zeros would vanish
    found = min_weight_full_bipartite_matching(coo_array((cost, (rows, columns)), shape=(m + k, m + k)).tocsr())
    real = (found[0] < m) & (found[1] < k)
    edge = {(row, column): at for at, (row, column) in enumerate(zip(i.tolist(), j.tolist(), strict=True))}
    return np.array([edge[pair] for pair in zip(found[0][real].tolist(), found[1][real].tolist(), strict=True)], int)


def explained_by_few(a: Array, b: Array, device: str = "cpu", terms: int = TERMS) -> tuple[Float, Array]:
    """The squared cosine of each row of a with the span of `terms` rows of b, (m,), and these rows, (m, terms).

    Orthogonal matching pursuit among the `CANDIDATES` nearest rows: each step adds the row that explains most of what
    remains. 1 means that a feature is a combination of these.
    """
    near = top_neighbours(place(a, device), place(b, device), CANDIDATES)
    terms = min(terms, near.shape[1])
    shares, chosen = np.empty(len(a)), np.empty((len(a), terms), np.intp)
    step = max(1, 2**22 // (near.shape[1] * a.shape[1]))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        rest, basis = a[rows].astype(np.float64), b[near[rows]].astype(np.float64)  # (n, d), (n, candidates, d)
        here = np.arange(len(rest))
        for term in range(terms):
            length = np.sqrt((basis**2).sum(2))  # what earlier terms leave of each candidate
            gain = np.abs(np.einsum("ncd,nd->nc", basis, rest)) / np.where(length > 1e-6, length, np.inf)
            best = gain.argmax(1)
            chosen[rows, term] = near[rows][here, best]
            unit = basis[here, best] / np.maximum(length[here, best], 1e-6)[:, None]  # (n, d)
            rest -= (rest * unit).sum(1, keepdims=True) * unit
            basis -= np.einsum("ncd,nd->nc", basis, unit)[:, :, None] * unit[:, None]
        shares[rows] = 1 - (rest**2).sum(1)
    return shares, chosen


@dataclass(frozen=True, eq=False)
class Null:
    """The largest cosines of features with null dictionaries, and how many come back by chance."""

    maxima: dict[str, Array]  # by kind, (draws * features,)
    matched: dict[str, Array]  # by kind, cosines of matched features, NaN for those without a partner
    limit: float  # exceeded by `level` of the features of the harder kind

    def share(self, similarity: float) -> dict[str, float]:
        """The share of features that are matched with at least this cosine, by kind."""
        return {kind: float(np.mean(values >= similarity)) for kind, values in self.matched.items()}

    def chance(self, similarity: float) -> float:
        """The share of the harder kind."""
        return max(self.share(similarity).values())


def draw_null(directions: Array, kind: str, rng: np.random.Generator) -> Array:
    """A dictionary (m, d) that has nothing in common with the given one but its shape.

    "rotation" rotates it at random, which keeps the angles between its features. "covariance" draws directions of a
    Gaussian that have the same mean and covariance, so that they share directions with it as unrelated features of the
    same space do; this is harder to exceed.
    """
    m, d = directions.shape
    if kind == "rotation":
        turn, upper = np.linalg.qr(rng.normal(size=(d, d)))
        turn *= np.sign(np.diag(upper))  # uniform over rotations and reflections (Mezzadri 2007)
        return directions @ turn.astype(np.float32)
    mean = directions.mean(0, dtype=np.float64)
    centred = directions - mean.astype(np.float32)
    values, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64) / m)
    middle, variance = _before_normalising(mean @ vectors, np.maximum(values, 0), rng)
    drawn = rng.standard_normal((m, d), dtype=np.float32) * np.sqrt(variance).astype(np.float32)
    return np.asarray(on_sphere((drawn + middle.astype(np.float32)) @ vectors.T.astype(np.float32)), np.float32)


def _before_normalising(mean: Float, variance: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """The mean and the variances (d,) of a Gaussian whose directions have the given ones, by fixed-point iteration.

    Scaling rows to length 1 makes large variances smaller, relative to the others: without this, null dictionaries
    would be spread more evenly than the dictionary.
    """
    z = rng.standard_normal((TUNED_ROWS, len(mean)), dtype=np.float32)
    middle, spread = mean.copy(), variance.copy()
    live = variance > 1e-9 * variance.max(initial=0)
    for _ in range(TUNED_STEPS):
        drawn = on_sphere(middle + np.sqrt(spread) * z)
        spread[live] *= variance[live] / np.maximum(drawn.var(0)[live], np.finfo(np.float32).tiny)
        middle += mean - drawn.mean(0)
    return middle, spread


def measure_null(
    a: Array, b: Array, *, draws: int, level: float, matching: str, unsigned: bool, device: str, seed: Any, step: Any
) -> Null:
    """Match some features of a with null dictionaries made from b, as the features of b themselves are matched.

    `step` is called after each draw.
    """
    rng = np.random.default_rng(seed)
    some = a if len(a) <= ROWS else a[np.sort(rng.choice(len(a), ROWS, replace=False))]
    here = place(some, device)
    similars: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for _ in range(draws):
            there = place(draw_null(b, kind, rng), device)
            # The limit will be a high quantile of the maxima, so pairs below their median cannot matter.
            loose = float(np.median(row_maxima(here[:PROBED], there, unsigned)))
            similars[kind].append(find_similar(here, there, loose, unsigned))
            step("matching null dictionaries")
    maxima = {kind: np.concatenate([one.cosine for one in found]) for kind, found in similars.items()}
    limit = max(float(np.quantile(values, 1 - level)) for values in maxima.values())
    pair = match_mutual if matching == "mutual" else match_one_to_one
    matched = {kind: np.concatenate([pair(one, limit)[1] for one in found]) for kind, found in similars.items()}
    return Null(maxima, matched, limit)
