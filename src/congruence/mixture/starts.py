"""Affine maps that match the components of two whitened mixtures: where the search for the best map begins.

Random rotations do not do: between far components the distance is flat, and the search stays where it is. Where two
mixtures are one up to an affine map, their whitened forms are one up to a rotation that carries components onto each
other, so every matching of components suggests a map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from congruence.arrays import Array, Float
from congruence.mixture.gmm import GaussianMixture

MOST_MATCHINGS = 720  # all permutations of six components
DRAWN = 60  # matchings drawn where all would be too many
ROUNDS = 5  # of matching again what a map has brought near
SIGNS = 4  # axes whose sign the means do not tell, of which all signs are tried
MILD = 1e-3  # ridge of the least squares fit of means, so that few means leave the rest as it is


@dataclass(frozen=True, eq=False)
class Start:
    """The map z -> matrix @ z + shift."""

    matrix: Float  # (m, m)
    shift: Float  # (m,)


def component_starts(p: GaussianMixture, q: GaussianMixture, *, seed: int = 0) -> list[Start]:
    """Maps from the whitened mixture p to the whitened mixture q, several for each matching of their components."""
    starts = [Start(np.eye(p.dimension), np.zeros(p.dimension))]
    for rows, columns in _matchings(p, q, seed):
        weights = np.sqrt(p.weights[rows] * q.weights[columns])
        source, target = p.means[rows], q.means[columns]
        rotation = _rotation(source, target, weights)
        starts.append(_least_squares(source, target, weights, rotation))
        starts += [Start(turn, np.zeros(p.dimension)) for turn in (rotation, *_turned_axes(p, q, rows, columns))]
    return [start for start in starts if abs(np.linalg.det(start.matrix)) > 1e-6]


def _matchings(p: GaussianMixture, q: GaussianMixture, seed: int) -> Iterator[tuple[Array, Array]]:
    """Each component of the mixture with fewer is given one of the other: in all ways, or in likely ones."""
    few, many = sorted((p.components, q.components))
    if math.perm(many, few) <= MOST_MATCHINGS:
        for chosen in permutations(range(many), few):
            one, other = np.arange(few), np.array(chosen)
            yield (one, other) if p.components == few else (other, one)
        return
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(seed)
    cost = _unlikeness(p, q)
    typical = float(np.median(cost))
    seen = set()
    for draw in range(DRAWN):
        blurred = cost + (0 if draw == 0 else typical * rng.exponential(0.1 + draw / DRAWN, cost.shape))
        rows, columns = linear_sum_assignment(blurred)
        for _ in range(ROUNDS):
            if tuple(columns) in seen:
                break
            seen.add(tuple(columns))
            yield rows, columns
            weights = np.sqrt(p.weights[rows] * q.weights[columns])
            turn = _rotation(p.means[rows], q.means[columns], weights)
            map_ = _least_squares(p.means[rows], q.means[columns], weights, turn)
            away = (p.means @ map_.matrix.T + map_.shift)[:, None] - q.means
            rows, columns = linear_sum_assignment((away**2).sum(-1) + 0.1 * cost)


def _unlikeness(p: GaussianMixture, q: GaussianMixture) -> Float:
    """How much two components differ in what no rotation changes: weight, distance from the mean, variances."""

    def invariant(g: GaussianMixture) -> Float:
        values = np.sqrt(np.maximum(np.linalg.eigvalsh(g.covariances), 0))  # (J, m)
        reach = np.linalg.norm(g.means, axis=1)
        along = np.sqrt(np.maximum(np.einsum("ja,jab,jb->j", g.means, g.covariances, g.means), 0))
        return np.column_stack([np.log(g.weights), reach, along, values])

    return np.asarray(((invariant(p)[:, None] - invariant(q)) ** 2).sum(-1))


def _rotation(source: Float, target: Float, weights: Float) -> Float:
    """The orthogonal matrix that carries means nearest to the means they are matched with."""
    u, _, vt = np.linalg.svd((target * weights[:, None]).T @ source)
    return np.asarray(u @ vt)


def _least_squares(source: Float, target: Float, weights: Float, rotation: Float) -> Start:
    """The affine map nearest in squares, drawn slightly to the rotation where means do not tell."""
    m = source.shape[1]
    x = np.column_stack([source, np.ones(len(source))])
    gram = x.T @ (weights[:, None] * x) + MILD * np.eye(m + 1)
    prior = np.vstack([rotation.T, np.zeros(m)])
    solved = np.linalg.solve(gram, x.T @ (weights[:, None] * target) + MILD * prior)
    return Start(np.asarray(solved[:m].T, float), np.asarray(solved[m], float))


def _turned_axes(p: GaussianMixture, q: GaussianMixture, rows: Array, columns: Array) -> Iterator[Float]:
    """Rotations that carry the axes of the matched covariances onto each other, with the signs that means tell."""
    # Unequal factors, so that covariances that sum to the identity keep axes; the same for both mixtures.
    factors = 1.0 / (2.0 + np.arange(len(rows)))
    here, there = p.covariances[rows], q.covariances[columns]
    source = np.linalg.eigh(np.tensordot(factors, here, 1))[1]
    target = np.linalg.eigh(np.tensordot(factors, there, 1))[1]
    a, b = p.means[rows] @ source, q.means[columns] @ target
    told = (a * b).sum(0)
    size = np.sqrt((a * a).sum(0) * (b * b).sum(0))
    silent = np.flatnonzero(np.abs(told) < 0.1 * np.maximum(size, 1e-3))[:SIGNS]
    signs = np.where(told < 0, -1.0, 1.0)
    for flipped in product((1.0, -1.0), repeat=len(silent)):
        signs[silent] = flipped
        yield np.asarray((target * signs) @ source.T)
