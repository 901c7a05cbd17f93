"""The names of the groups of maps and what they mean; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

GROUPS = ("identity", "permutation", "rigid", "similarity", "linear")
MEANINGS = {  # of the groups, and of the unsupervised route
    "identity": "nothing is undone; the raw difference",
    "permutation": "dimensions may change places and signs",
    "rigid": "rotation, reflection and shift",
    "similarity": "rigid, and one scale for all directions",
    "linear": "any linear map, so stretching and shearing too",
    "ica": "each run is unmixed on its own, without seeing the other; then components are matched",
}


def ordered_groups(names: Iterable[str]) -> list[str]:
    """Sort groups from small to large, the unsupervised route last and unknown names before it."""
    known = list(MEANINGS)
    return sorted(names, key=lambda name: known.index(name) if name in known else known.index("ica") - 0.5)
