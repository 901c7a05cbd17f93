"""How groups, verdicts and numbers are put into words, the same in every table, figure and page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from congruence.formatting import UNDEFINED as UNDEFINED
from congruence.formatting import count as count
from congruence.formatting import elided as elided
from congruence.formatting import interval
from congruence.formatting import number as number
from congruence.formatting import percent as percent
from congruence.formatting import setting as setting
from congruence.formatting import step as step

GROUPS = {
    "identity": "nothing is undone; the raw difference",
    "permutation": "dimensions may change places and signs",
    "rigid": "rotation, reflection and shift",
    "similarity": "rigid, and one scale for all directions",
    "linear": "any linear map, so stretching and shearing too",
    "ica": "each run is unmixed on its own, without seeing the other; only then are components matched",
}

AFTER = {  # what was removed before runs are called different
    "identity": "as they are",
    "permutation": "after the best permutation",
    "rigid": "after the best rotation",
    "similarity": "after the best rotation and scale",
    "linear": "after the best linear map",
    "ica": "after unmixing",
}

STATUSES = {  # from the one to look at first; the mark tells them apart without colour
    "fails": ("✕", "No: more than a rotation and a scale changed"),
    "ambiguous": ("≈", "Unclear: the numbers allow both readings"),
    "unknown": ("?", "Unknown: too little to judge by"),
    "holds": ("✓", "Yes: at most a rotation and a scale"),
}

DECISIONS = {  # about a translation; the mark tells them apart without colour
    "go": ("✓", "New vectors can be translated into the old space."),
    "unsure": ("≈", "It is not yet certain that new vectors can be translated well enough."),
    "no-go": ("✕", "New vectors cannot be translated well enough."),
}

RESOLUTIONS = {  # about axes that come back; the mark tells them apart without colour
    "holds": ("✓", "All {k} axes come back."),
    "partly": ("≈", "{returning} of {k} axes come back."),
    "fails": ("✕", "None of {k} axes comes back."),
    "unknown": ("?", "The axes did not come to rest."),
}

SIMILARITIES = {  # those that only some reports have: what they are called, and what they mean; all in sample
    "plain_cka": (
        "CKA, plain",
        "agreement of the similarity structure, inflated where rows are few; higher is closer, 0 to 1",
    ),
    "svcca": (
        "SVCCA",
        "mean canonical correlation of the directions with 99 % of the variance; higher is closer, 0 to 1",
    ),
    "pwcca": ("PWCCA", "canonical correlations, weighted by what the source uses; higher is closer, 0 to 1"),
    "rsa": ("RSA", "rank correlation of the distances between rows; higher is closer, −1 to 1"),
    "rsa_pearson": ("RSA, Pearson", "correlation of the squared distances between rows; higher is closer, −1 to 1"),
    "procrustes": ("Procrustes distance", "between shapes of norm 1 after the best rotation; lower is closer, 0 to √2"),
    "angular_procrustes": ("Procrustes angle", "between shapes after the best rotation; lower is closer, 0 to π/2"),
    "size_and_shape": (
        "size-and-shape distance",
        "after the best rotation, without scaling, over all rows; lower is closer, from 0 up",
    ),
    "weak_mcc": ("MCC, weak, in sample", "correlation after the best linear map (CCA); higher is closer, 0 to 1"),
}


between = interval


def ordered(groups: Iterable[str]) -> list[str]:
    """Sort groups from small to large, the unsupervised route last and names we do not know before it."""
    known = list(GROUPS)
    return sorted(groups, key=lambda name: known.index(name) if name in known else known.index("ica") - 0.5)


def headline_group(comparison: Any) -> str:
    """Return the group that one number per pair is about: similarity, or else the largest that was compared."""
    there = ordered(comparison.pairs[0].groups)
    return "similarity" if "similarity" in there else next((g for g in reversed(there) if g != "ica"), there[-1])


def worst(statuses: Iterable[str]) -> str:
    """Return the status of a claim about several pairs: it holds only where it holds for each."""
    found = set(statuses)
    return next((status for status in STATUSES if status in found), "unknown")


def sentences(text: str) -> list[str]:
    """Split prose after a full stop that a capital letter or a number follows."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", text.strip())


def sentence(text: str) -> str:
    """Write a remark as a sentence: a capital first, a full stop last."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def prose(sentence: str) -> str:
    """Keep the percent signs of a sentence on the line of their number."""
    return sentence.replace(" %", "\u00a0%")
