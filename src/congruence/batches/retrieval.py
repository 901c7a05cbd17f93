"""Search for replicates across batches, scored by mean average precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._folds import Fold, Screen
from congruence.batches._inference import benjamini_hochberg
from congruence.result import Record

NULLS = 999  # permutations within batches
MOST_OF_TARGET = 500  # rows of a target, and controls that its replicates are searched for among
MOST_OF_FOLD = 50  # queries of a target in a fold
TINY = 1e-300
TIE, LAST_BITS = 1e-10, 2**20 - 1  # cosines within about 5e-10 of each other are equal
BLOCK_SIZE = 30_000  # cosines at a time
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
class Precision(Record):
    """Mean average precision of the replicates of a target among controls, and its p value.

    `adjusted` is corrected for the false discovery rate over the targets of one condition, as copairs does.
    """

    condition: str
    mean: float  # from 0 to 1, higher is better
    chance: float  # mean over permutations
    p: float
    adjusted: float
    queries: int  # rows with a replicate on another batch


def search_replicates(z: Array, screen: Screen, fold: Fold, targets: Sequence[str], seed: int) -> Float:
    """Search for replicates of each held-out row among controls, for each target; (targets, 2 + NULLS).

    Column 0 is the number of queries, column 1 the sum of their average precision, the others the same sum after target
    and controls are permuted within batches. Candidates are the rows of the target and the controls of all other
    batches with this target, ranked by cosine similarity around the mean training control. Batches of one cluster count
    as one batch. The permutations are the same in all folds.
    """
    known = fold.train & screen.fitted_on
    trained = known & screen.control
    origin = z[trained if trained.any() else known].mean(0)
    moves = np.isin(screen.batch, screen.batch[trained]) / max(int(trained.sum()), 1)  # origin, when labels change
    held, names = np.isin(screen.batch, screen.batch[fold.test]), screen.target.astype(str)
    found = np.zeros((len(targets), 2 + NULLS))
    for number, target in enumerate(targets):
        rng = np.random.default_rng([seed, 43, number])
        own = np.flatnonzero(screen.treated & screen.fitted_on & (names == target))
        controls = screen.control & screen.fitted_on & np.isin(screen.batch, screen.batch[own])
        several = (np.flatnonzero(controls), own)  # controls first: ties do not count for the target
        rows = np.concatenate([rng.permutation(some)[:MOST_OF_TARGET] for some in several])
        y = (z[rows] - origin).astype(np.float64)
        labels = _permuted(names[rows] == target, screen.batch[rows], rng)
        chosen = _queried(labels[0], fold.unit[rows]) & held[rows]
        found[number, 0] = min(int((labels[0] & chosen).sum()), MOST_OF_FOLD)
        if found[number, 0]:
            found[number, 1:] = _summed_precision(y @ y.T, labels, chosen, fold.unit[rows], moves[rows])
    return found


def _permuted(own: Array, batch: Array, rng: np.random.Generator) -> Array:
    """Whether rows (m,) are of the target, as observed and permuted within batches, (1 + NULLS, m) of bool."""
    labels = np.tile(own, (1 + NULLS, 1))
    for number in np.unique(batch):
        rows = np.flatnonzero(batch == number)
        labels[1:, rows] = rng.permuted(labels[1:, rows], axis=1)
    return labels


def _queried(own: Array, unit: Array) -> Array:
    """Rows with both replicates and controls in other units, (m,) of bool: no permutation within batches changes it."""
    size = unit.max() + 1
    elsewhere = [some.sum() - np.bincount(unit[some], minlength=size)[unit] for some in (own, ~own)]
    return np.asarray((elsewhere[0] > 0) & (elsewhere[1] > 0))


def _summed_precision(gram: Float, labels: Array, chosen: Array, unit: Array, weight: Float) -> Float:
    """The sum of the average precision of the queries under each labelling (k, m), (k,).

    `gram` (m, m) holds inner products around the mean control as observed. Permuted labels move that mean by
    the `weight` (m,) of each row that becomes or ceases to be a control.
    """
    many = min(int((labels[0] & chosen).sum()), MOST_OF_FOLD)
    sums, step = [], max(1, BLOCK_SIZE // (many * len(unit)))
    for start in range(0, len(labels), step):
        own = labels[start : start + step]
        change = (labels[0].astype(float) - own) * weight  # (b, m)
        inner = change @ gram
        length = (inner * change).sum(1, keepdims=True)
        norm = np.sqrt(np.maximum(np.diag(gram) - 2 * inner + length, 0.0))
        queries = np.argsort(~(own & chosen), axis=1, kind="stable")[:, :many]  # (b, q)
        at_queries = np.take_along_axis(inner, queries, 1)[..., None]
        cosine = gram[queries] - inner[:, None] - at_queries + length[..., None]  # (b, q, m)
        cosine /= np.where(norm > 0, norm, 1.0)[:, None] * np.take_along_axis(norm, queries, 1).clip(TINY)[..., None]
        other = unit != unit[queries][..., None]
        # positive numbers are ordered as their bits are; the last bit marks the target, after controls in ties, which
        # rounding must not decide: with one feature, all cosines are 1 or -1
        key = np.where(other, 3.0 + TIE - cosine, 9.0).view(np.int64) & ~LAST_BITS | (own[:, None] & other)
        relevant = np.sort(key, axis=2).reshape(-1, len(unit)) & 1
        sums.append(average_precision(relevant).reshape(len(own), many).sum(1))
    return np.concatenate(sums)


def judge_replicates(condition: str, found: Float) -> list[Precision]:
    """The mean average precision of each target, found (targets, 2 + NULLS) summed over folds, with p values.

    p is the share of permutations within batches with an equal or higher mean. copairs (Kalinin et al. 2025) compares
    with random rankings instead, which are too narrow where rows of a batch are alike or features outnumber controls.
    """
    one_each = []
    for queries, total, *null in found.tolist():
        if not queries:
            one_each.append(Precision(condition, np.nan, np.nan, np.nan, np.nan, 0))
            continue
        p = (1 + int((np.array(null) >= total - 1e-9).sum())) / (1 + NULLS)
        one_each.append(Precision(condition, total / queries, float(np.mean(null)) / queries, p, p, int(queries)))
    adjusted = benjamini_hochberg([one.p for one in one_each])
    return [replace(one, adjusted=float(p)) for one, p in zip(one_each, adjusted, strict=True)]


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
