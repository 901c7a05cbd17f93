"""How groups, verdicts and numbers are put into words, the same in every table, figure and page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

UNDEFINED = "–"


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


def number(value: float, digits: int = 3) -> str:
    """Write a value to `digits` significant digits, without exponent if it can be; NaN as a dash."""
    if not math.isfinite(value):
        return UNDEFINED if math.isnan(value) else f"{'−' if value < 0 else ''}∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = math.floor(math.log10(abs(rounded)))
    written = f"{value:.{digits - 1}e}" if not -4 <= exponent <= 6 else f"{value:.{max(digits - 1 - exponent, 0)}f}"
    return written.replace("-", "−")


def cell(value: str | float | int | None) -> str:
    """Write what a table holds: words as they are, numbers to three digits, nothing as a dash."""
    if value is None:
        return UNDEFINED
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else number(value)


def percent(share: float, unit: str = " %") -> str:
    """Write a share as a percentage to three significant digits: 0.0183 is "1.83 %"."""
    if 0 < share < 1e-5:
        return "< 0.001" + unit
    return number(100 * share) + unit if math.isfinite(share) else number(share)


def between(low: float, high: float) -> str:
    """Write an interval of shares, once where both ends read the same; a dash where it is undefined."""
    if not (math.isfinite(low) and math.isfinite(high)) or percent(low) == percent(high):
        return percent(low)
    return f"{percent(low, unit='')} to {percent(high)}"


def elided(names: Sequence[str], length: int) -> list[str]:
    """Leave out the middle of long names, but never so much that two of them become the same."""

    def short(name: str) -> str:
        tail = (length - 1) // 2
        return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"

    shortened = [short(name) for name in names]
    if len(set(shortened)) == len(set(names)):
        return shortened
    return elided(names, 2 * length)


def count(number: int, noun: str) -> str:
    """Write how many there are: "1 row", "12 rows"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def step(value: float) -> str:
    """Write the step of a training: whole where it is, never as 1e+05."""
    return f"{value:.0f}" if value == round(value) else f"{value:g}"


def sentences(text: str) -> list[str]:
    """Split prose after a full stop that a capital letter or a number follows."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", text.strip())


def sentence(text: str) -> str:
    """Write a remark as a sentence: a capital first, a full stop last."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def prose(sentence: str) -> str:
    """Keep the percent signs of a sentence on the line of their number."""
    return sentence.replace(" %", "\u00a0%")


def setting(value: Any) -> str:
    """Write a setting as a person would."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {setting(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
