"""How many parts with disjoint outputs a decoder has, at each tolerance, compared with random directions.

A trained decoder has no exact zeros, so no criterion holds; but its parts are clear if one number of them lasts over a
wide interval of tolerances at which rows in random directions are still one part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.formatting import number
from congruence.mechanism._blocks import Blocks, merge_groups
from congruence.mechanism._matroid import scale_to_unit
from congruence.mechanism.derivatives import jacobian_chunks, open_decoder
from congruence.mechanism.parts import HatTree, hat_tree

TOLERANCES = 10.0 ** np.arange(-8.0, -0.125, 0.125)
_POINTS, _NULLS = 16, 4  # at most
_LINKS = 5e8  # squared numbers of outputs, of all points together
_WIDE = 0.5  # decades of tolerance that a number of parts must last


@dataclass(frozen=True, eq=False)
class PartCurve:
    """The number of parts of Type D at each tolerance: median, least and most over points, and of random directions."""

    tolerances: Float  # (t,)
    parts: Array  # (t,) median over points
    low: Array  # (t,)
    high: Array  # (t,)
    null: Array  # (t,) median for rows of the same lengths in random directions
    points: int
    blocks: Blocks = ()  # of the coordinates, in the middle of `longest`: sums of parts at every point

    @property
    def null_from(self) -> float:
        """The tolerance from which on rows in random directions split; infinite if they never do."""
        split = np.flatnonzero(self.null != 1)
        return float(self.tolerances[split[0]]) if split.size else float("inf")

    @property
    def longest(self) -> tuple[int, float, float] | None:
        """The number of parts above 1 that lasts longest below `null_from`, and its interval of tolerances, if any."""
        below = np.flatnonzero(self.tolerances < self.null_from)
        runs = np.split(below, np.flatnonzero(np.diff(self.parts[below]) != 0) + 1)
        found = [
            (int(self.parts[run[0]]), float(self.tolerances[run[0]]), float(self.tolerances[run[-1]]))
            for run in runs
            if run.size and self.parts[run[0]] >= 2
        ]
        best = max(found, key=lambda one: float(np.log10(one[2] / one[1])), default=None)
        return best if best is not None and float(np.log10(best[2] / best[1])) >= _WIDE else None

    @property
    def middle(self) -> float:
        """The tolerance in the middle of `longest`; NaN if there is none."""
        return float("nan") if self.longest is None else float(np.sqrt(self.longest[1] * self.longest[2]))

    @property
    def sentence(self) -> str:
        """The parts and their tolerances, in words."""
        random = "never split" if np.isinf(self.null_from) else f"split from {number(self.null_from, 2)} on"
        if self.longest is None:
            return f"At no interval of tolerances are there parts with disjoint outputs (random directions {random})."
        parts, low, high = self.longest
        return (
            f"{parts} parts with disjoint outputs at tolerances from {number(low, 1)} to {number(high, 2)} (random "
            f"directions {random})."
        )

    def to_dict(self) -> dict[str, Any]:
        """The curves, as in the JSON contract."""
        curves = {name: getattr(self, name).tolist() for name in ("tolerances", "parts", "low", "high", "null")}
        longest = None if self.longest is None else dict(zip(("parts", "from", "to"), self.longest, strict=True))
        blocks = [list(block) for block in self.blocks]
        return {**curves, "points": self.points, "longest": longest, "blocks": blocks, "summary": self.sentence}


def measure_part_curve(decoder: Any, z: Any, *, device: str = "auto", seed: int = 0) -> PartCurve:
    """Count the finest parts with disjoint outputs, in any basis, at each tolerance.

    Exact zeros give the same number at every tolerance. The null has rows of the same lengths as the Jacobian's, in
    random directions.

    Parameters
    ----------
    decoder : torch module or function
    z : (r, d)
        Points, of which at most 16 are used, fewer if there are many outputs.
    device : str
        "auto" uses the device of the weights.
    seed : int
        Seed of the random directions.
    """
    prepared = open_decoder(decoder, z, device)
    most = int(np.clip(_LINKS / prepared.outputs**2, 2, _POINTS))
    jacobians = list(islice(chain.from_iterable(jacobian_chunks(prepared, chunk=1)), most))
    rng = np.random.default_rng(seed)
    null = []
    for jacobian in jacobians[:_NULLS]:
        lengths = np.linalg.norm(scale_to_unit(jacobian, 0), axis=1, keepdims=True)
        null.append(hat_tree(scale_to_unit(rng.standard_normal(jacobian.shape), 1) * lengths))
    trees = list(map(hat_tree, jacobians))
    counts = _count(trees)
    median, random = (np.quantile(one, 0.5, axis=0, method="inverted_cdf") for one in (counts, _count(null)))
    curve = PartCurve(
        tolerances=TOLERANCES,
        parts=median,
        low=counts.min(axis=0),
        high=counts.max(axis=0),
        null=random,
        points=len(jacobians),
    )
    if curve.longest is None:
        return curve
    splittings = [tree.splitting(curve.middle) for tree in trees]
    blocks = merge_groups(prepared.dimension, (block for one in splittings for block in one.partition(curve.middle)))
    return replace(curve, blocks=blocks)


def _count(trees: list[HatTree]) -> Array:
    """The number of parts of each Jacobian at each tolerance, (points, t)."""
    counts = np.empty((len(trees), len(TOLERANCES)), dtype=int)
    for i, tree in enumerate(trees):
        kept = (tree.weights > TOLERANCES[:, None]).sum(axis=1)  # the parts change with the links that are kept only
        _, first, which = np.unique(kept, return_index=True, return_inverse=True)
        counts[i] = np.array([len(tree.dims(at)) for at in TOLERANCES[first]])[which]
    return counts
