"""Null dictionaries: how similar are the nearest features of dictionaries that have no feature in common?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, on_sphere
from congruence.features._matching import find_similar, match_mutual, match_one_to_one, place, row_maxima

ROWS = 4096  # features of the first dictionary that are matched with a null dictionary
PROBED = 256  # features from which the median of the largest cosines is estimated
TUNED_ROWS, TUNED_STEPS = 2048, 8  # directions and iterations by which the Gaussian of "covariance" is found
KINDS = ("rotation", "covariance")


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
