"""Search for replicates across batches, scored by mean average precision."""

from __future__ import annotations

import numpy as np

from congruence.arrays import Array, Float

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
