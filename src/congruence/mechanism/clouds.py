"""Heuristics on a sample of latents: is the set it came from in one piece, without holes, with connected slices?"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.mechanism.blocks import Blocks

ROWS = 1000  # that are examined
FEWEST = 30  # rows of a cloud or a slice
FAR = 3.0  # times the longest of the other steps between neighbours: a gap
SHARE = 0.05  # of the rows: what is beyond a gap is a piece, not some outliers
PAIRS = 2000  # of rows whose midpoint is examined
SLICES = 12  # values at which each factor is fixed
BAND = 0.1  # of the rows: those nearest to the value stand for the slice


def cloud_connected(rows: Float) -> tuple[bool | None, str]:
    """Whether the rows (n, d) are in one piece: no step of the shortest tree through them is far longer than others."""
    z = _scaled(_some(rows))
    if len(z) < FEWEST:
        return None, f"{len(z)} rows are too few to judge by."
    gap = _gap(z)
    if gap is None:
        return True, f"The {len(z)} rows examined are in one piece."
    return (
        False,
        f"The rows form two pieces of {gap[0]} and {gap[1]} rows, {gap[2]:.1f} times as far apart as neighbours.",
    )


def cloud_filled(rows: Float) -> tuple[bool | None, str]:
    """Whether midpoints of two rows lie where rows are; a set for which that holds is convex, and so without loops."""
    from scipy.spatial import cKDTree

    z = _scaled(_some(rows))
    tree = cKDTree(z)
    gaps = tree.query(z, k=2)[0][:, 1]
    pairs = np.random.default_rng(0).integers(0, len(z), size=(PAIRS, 2))
    away = tree.query(z[pairs].mean(1))[0]
    holes = float((away > 2 * np.quantile(gaps, 0.99)).mean())
    text = f"{100 * holes:.1f} % of the midpoints of two rows lie in holes"
    if holes > SHARE:
        return None, f"{text}; rows do not decide whether a loop surrounds a hole."
    return True, f"{text}, so the rows look convex."


def cloud_slices(rows: Float, partition: Blocks) -> tuple[bool | None, str]:
    """Whether rows that nearly share the value of one factor are in one piece, for several values of each factor."""
    z = _scaled(rows)
    examined = 0
    for block in partition:
        inside, outside = list(block), [a for a in range(z.shape[1]) if a not in block]
        for at in _values(z[:, inside]):
            near = np.argsort(np.linalg.norm(z[:, inside] - at, axis=1), kind="stable")[: int(BAND * len(z))]
            if len(near) < FEWEST:
                return None, f"{len(rows)} rows leave {len(near)} for a slice, which are too few to judge by."
            examined += 1
            gap = _gap(_scaled(_some(z[near][:, outside])))
            if gap is not None:
                names = ", ".join(f"z{a}" for a in block)
                place = ", ".join(f"{value:.3g}" for value in _unscaled(at, rows[:, inside]))
                return False, f"Rows with {names} near {place} form two pieces of {gap[0]} and {gap[1]} rows."
    return True, f"None of the {examined} slices examined is in several pieces."


def _values(z: Float) -> Float:
    """Rows spread over the values that a factor takes, each the farthest from those before."""
    chosen = [z[np.argmin(np.linalg.norm(z - np.median(z, axis=0), axis=1))]]
    away = np.linalg.norm(z - chosen[0], axis=1)
    ceiling = np.quantile(away, 1 - SHARE)  # outliers are no slices
    while len(chosen) < SLICES:
        chosen.append(z[np.argmax(np.where(np.linalg.norm(z - chosen[0], axis=1) <= ceiling, away, -1.0))])
        away = np.minimum(away, np.linalg.norm(z - chosen[-1], axis=1))
    return np.array(chosen)


def _gap(z: Float) -> tuple[int, int, float] | None:
    """The rows on either side of a step far longer than the others of the shortest tree, and how much longer."""
    from scipy.cluster.hierarchy import fcluster, linkage

    tree: Any = linkage(z, method="single")
    steps = tree[:, 2]
    typical = float(np.quantile(steps, 0.95))
    for step in np.flatnonzero(steps > FAR * typical)[::-1]:
        label = fcluster(tree, t=(steps[step] + steps[step - 1]) / 2, criterion="distance")
        sizes = np.sort(np.bincount(label)[1:])[::-1]
        if len(sizes) > 1 and sizes[1] >= SHARE * len(z):
            return int(sizes[0]), int(sizes[1]), float(steps[step] / max(typical, np.finfo(float).tiny))
    return None


def _some(rows: Float) -> Float:
    """At most `ROWS` different rows, always the same ones: of a grid of values, copies would count as neighbours."""
    different = np.unique(rows, axis=0)
    return different[np.random.default_rng(0).permutation(len(different))[:ROWS]]


def _scaled(rows: Float) -> Float:
    spread = rows.std(0)
    scaled: Float = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _unscaled(value: Float, rows: Float) -> Float:
    spread = rows.std(0)
    back: Float = value * np.where(spread > 0, spread, 1.0) + rows.mean(0)
    return back
