"""The names of the groups of maps and their descriptions; imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from congruence.maps.nearness import Nearness

GROUPS = ("identity", "permutation", "rigid", "similarity", "ridge", "linear")  # of `compare`
FITTED = (*GROUPS[:-1], "ridge_similarity", "linear")  # of `fit_map` and `translate`
MEANINGS = {  # of the groups, and of the unsupervised route
    "identity": "no map; the raw difference",
    "permutation": "a permutation of the dimensions, with signs",
    "rigid": "rotation, reflection and translation",
    "similarity": "rigid, and one scale for all directions",
    "ridge": "a linear map, shrunk by a penalty that the fitted rows choose",
    "ridge_similarity": "a linear map, shrunk towards the best similarity by a penalty that the fitted rows choose",
    "linear": "any linear map, so stretching and shearing too",
    "ica": "each run is unmixed on its own, without using the other; then components are matched",
}
AFTER = {  # the map that was applied, in a sentence
    "identity": "without any map",
    "permutation": "after the best permutation",
    "rigid": "after the best rotation",
    "similarity": "after the best rotation and scale",
    "ridge": "after the best ridge regression",
    "ridge_similarity": "after ridge regression towards the best similarity",
    "linear": "after the best linear map",
    "ica": "after unmixing",
}


def ordered_groups(names: Iterable[str]) -> list[str]:
    """Sort groups from small to large, the unsupervised route last and unknown names before it."""
    known = list(MEANINGS)
    return sorted(names, key=lambda name: known.index(name) if name in known else known.index("ica") - 0.5)


def has_null(nears: Iterable[Nearness]) -> bool:
    """Whether errors are known as a share of chance; otherwise only as a share of the diameter."""
    return any(math.isfinite(near.of_chance.mean) for near in nears)


def leading_error(near: Nearness, judged: bool) -> float:
    """The held-out error as a share of chance, or of the diameter where there is no null."""
    return near.of_chance.mean if judged else near.held_out.mean
