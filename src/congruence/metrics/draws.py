"""Subsamples of the rows for an interval, and re-pairings for the chance level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.maps.nearness import repairing

MOST_ROWS = 2500  # of a subsample; more add little to the estimate of the variance
FEWEST_ROWS = 20  # below which halves say nothing


@dataclass(frozen=True, eq=False)
class Draws:
    """Which rows to score again; n rows in clusters, or each by itself."""

    parts: tuple[Array, ...]  # row numbers of each part, in order
    repairings: tuple[Array, ...]  # each (n,): the row whose factors each row gets


def units_of(cluster: Any, n: int) -> Array | None:
    """The number of the cluster of each row, shape (n,); None where there are no clusters."""
    if cluster is None:
        return None
    labels = to_numpy(cluster)
    if labels.shape != (n,):
        raise InputError(f"cluster must name the cluster of each of {n} rows, but has shape {labels.shape}")
    unit = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)[1].reshape(-1)
    if not unit.any():
        raise InputError("all rows belong to one cluster, so no part of them can be drawn; cluster by something finer")
    return unit


def draw_rows(n: int, unit: Array | None, *, parts: int, repairings: int, seed: int) -> Draws:
    """Draw subsamples of half the rows or `MOST_ROWS`, without replacement; and re-pairings.

    Clusters are drawn whole. They are paired whole where all have the same size, otherwise rows get the factors of
    rows of other clusters.
    """
    ones, others = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    least = min(n // 2, MOST_ROWS)
    return Draws(
        tuple(_part(n, unit, least, ones) for _ in range(parts if n >= FEWEST_ROWS else 0)),
        tuple(_repairing(n, unit, others) for _ in range(repairings)),
    )


def _part(n: int, unit: Array | None, least: int, rng: np.random.Generator) -> Array:
    if unit is None:
        return np.sort(rng.permutation(n)[:least])
    sizes = np.bincount(unit)
    order = rng.permutation(len(sizes))
    count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), least))
    return np.flatnonzero(np.isin(unit, order[: min(count, len(sizes) - 1)]))


def _repairing(n: int, unit: Array | None, rng: np.random.Generator) -> Array:
    if unit is None:
        return rng.permutation(n)
    sizes = np.bincount(unit)
    if (sizes == sizes[0]).all():
        rows = np.argsort(unit, kind="stable").reshape(len(sizes), -1)
        partner = np.empty(n, dtype=int)
        ring = rng.permutation(len(sizes))
        partner[rows[ring]] = rows[np.roll(ring, 1)]  # one cycle: no cluster keeps its factors
        return partner
    return repairing([], unit, True, rng)


def held_rows(unit: Array, share: float, seed: int) -> Array:
    """Held-out rows of whole clusters: about this share, at least one cluster and never all."""
    sizes = np.bincount(unit)
    order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(sizes))
    count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), share * len(unit)))
    return np.flatnonzero(np.isin(unit, order[: max(1, min(count, len(order) - 1))]))
