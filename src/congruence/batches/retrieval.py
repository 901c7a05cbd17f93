"""Search for replicates across batches, scored by mean average precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._folds import Fold
from congruence.batches._inference import benjamini_hochberg
from congruence.batches._rows import Screen

NULLS = 1000  # random rankings
MOST_CONTROLS = 2000  # among which the replicates of a target are searched for
MOST_OF_TARGET = 200  # queries of a target in a fold
MOST_QUERIES = 1000
MOST_CANDIDATES = 20_000
BLOCK = 256  # queries at a time


def retrieve_replicates(x: Array, target: Array, batch: Array, seed: int = 0) -> tuple[float, float]:
    """Mean average precision of finding rows of the same target on other batches, and that of a random order.

    For each row, the rows of all other batches are ranked by cosine similarity; rows of its own batch are excluded,
    since they are similar for technical reasons. From 0 to 1, higher is better; invariant to rotations and to one
    scale, not to shifts. Rows without a replicate on another batch are not queries. At most 1,000 queries and 20,000
    rows, drawn at random. NaN if no row has a replicate, or all rows are replicates.
    """
    rng = np.random.default_rng([seed, 41])
    rows = np.sort(rng.permutation(len(x))[:MOST_CANDIDATES])
    label = np.unique(target[rows], return_inverse=True)[1].reshape(-1)
    batch_number = np.unique(batch[rows], return_inverse=True)[1].reshape(-1)
    points = x[rows].astype(np.float64)
    length = np.linalg.norm(points, axis=1, keepdims=True)
    points /= np.where(length > 0, length, 1.0)

    pairs = np.zeros((label.max(initial=0) + 1, batch_number.max(initial=0) + 1), dtype=int)
    np.add.at(pairs, (label, batch_number), 1)
    replicates = (pairs.sum(1, keepdims=True) - pairs)[label, batch_number]
    others = len(rows) - np.bincount(batch_number, minlength=pairs.shape[1])[batch_number]
    queried = np.flatnonzero(replicates > 0)
    if not len(queried) or len(pairs) < 2:  # with one target, every row is a replicate
        return float("nan"), float("nan")
    queried = np.sort(rng.permutation(queried)[:MOST_QUERIES])
    precisions = []
    for start in range(0, len(queried), BLOCK):
        queries = queried[start : start + BLOCK]
        similarity = points[queries] @ points.T
        similarity[batch_number[queries][:, None] == batch_number[None, :]] = -np.inf  # ranked last and not counted
        order = np.argsort(-similarity, axis=1, kind="stable")
        relevant = label[order] == label[queries][:, None]
        relevant &= np.arange(len(rows)) < others[queries][:, None]
        precisions += list(average_precision(relevant))
    chance = expected_precision(replicates[queried], others[queried])
    return float(np.mean(precisions)), float(np.mean(chance))


@dataclass(frozen=True)
class Precision:
    """Mean average precision of the replicates of a target among controls, and its p value under random rankings.

    `adjusted` is corrected for the false discovery rate over the targets of one condition, as copairs does.
    """

    condition: str
    mean: float  # from 0 to 1, higher is better
    chance: float  # of a random ranking
    p: float
    adjusted: float
    queries: int  # rows with a replicate on another batch


def search_replicates(z: Array, screen: Screen, fold: Fold, targets: Sequence[str], origin: Array, seed: int) -> Float:
    """Search for replicates of each held-out row of each target among controls; a row for each query, (q, 4).

    Columns: number of the target, average precision, number of replicates, number of candidates. Candidates are the
    rows of the target and the controls of all other batches with this target, ranked by cosine similarity around
    `origin`. Batches of one cluster count as one batch.
    """
    rng = np.random.default_rng([seed, 43])
    points = (z - origin).astype(np.float64)
    length = np.linalg.norm(points, axis=1, keepdims=True)
    points /= np.where(length > 0, length, 1.0)
    names = screen.target.astype(str)
    found = []
    for number, target in enumerate(targets):
        own = np.flatnonzero(screen.treated & screen.fitted_on & (names == target))
        shared = np.isin(screen.batch, screen.batch[own])
        controls = np.flatnonzero(screen.control & screen.fitted_on & shared)
        controls = np.sort(rng.permutation(controls)[:MOST_CONTROLS])
        queries = rng.permutation(own[fold.test[own]])[:MOST_OF_TARGET]
        rows = np.concatenate([controls, own])  # controls first: ties do not count for the target
        relevant = np.arange(len(rows)) >= len(controls)
        for query in queries:
            other = fold.unit[rows] != fold.unit[query]
            hits = relevant[other]
            if hits.any() and not hits.all():
                order = np.argsort(-(points[rows[other]] @ points[query]), kind="stable")
                found.append((number, average_precision(hits[order][None])[0], hits.sum(), len(hits)))
    return np.array(found, dtype=float).reshape(-1, 4)


def judge_replicates(condition: str, found: Float, targets: int, seed: int) -> list[Precision]:
    """The mean average precision of each target over its queries (q, 4), with p values (Kalinin et al. 2025).

    As in copairs, p is the share of random rankings with a higher mean, where queries with equally many replicates and
    candidates share their random rankings, which makes p too large rather than too small.
    """
    one_each = []
    for number in range(targets):
        own = found[found[:, 0] == number]
        if not len(own):
            one_each.append(Precision(condition, np.nan, np.nan, np.nan, np.nan, 0))
            continue
        mean = float(own[:, 1].mean())
        sizes, counts = np.unique(own[:, 2:].astype(int), axis=0, return_counts=True)
        null = sum(many * _random_precision(*size, seed) for size, many in zip(sizes.tolist(), counts, strict=True))
        p = float((1 + (null / len(own) > mean).sum()) / (1 + NULLS))
        chance = float(expected_precision(own[:, 2], own[:, 3]).mean())
        one_each.append(Precision(condition, mean, chance, p, p, len(own)))
    adjusted = benjamini_hochberg([one.p for one in one_each])
    return [replace(one, adjusted=float(p)) for one, p in zip(one_each, adjusted, strict=True)]


@cache
def _random_precision(relevant: int, n: int, seed: int) -> Float:
    """Average precision of random rankings of n rows, of which some are relevant, (NULLS,)."""
    rng = np.random.default_rng([seed, 44, relevant, n])
    places = np.sort(np.argsort(rng.random((NULLS, n)), axis=1)[:, :relevant], axis=1) + 1
    return np.asarray((np.arange(1, relevant + 1) / places).mean(1))


def average_precision(relevant: Array) -> Float:
    """Mean, over the relevant places of each ranked list (q, n), of the share of relevant rows up to there; (q,)."""
    hits = np.cumsum(relevant, axis=1)
    precision = hits / np.arange(1, relevant.shape[1] + 1)
    return np.asarray((precision * relevant).sum(1) / np.maximum(hits[:, -1], 1))


def expected_precision(relevant: Array, n: Array) -> Float:
    """Average precision that a random order of n rows, of which some are relevant, has in the mean; exact.

    At place k, a relevant row sees (1 + (k - 1) (r - 1) / (n - 1)) / k; the mean over places has a harmonic number.
    """
    from scipy.special import digamma

    r, size = np.asarray(relevant, dtype=float), np.asarray(n, dtype=float)
    harmonic = digamma(size + 1) + np.euler_gamma
    return np.asarray((harmonic + (r - 1) / np.maximum(size - 1, 1) * (size - harmonic)) / size)
