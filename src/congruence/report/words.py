"""How groups, verdicts and numbers are put into words, the same in every table, figure and page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

GROUPS = {
    "identity": "nothing is undone; the raw difference",
    "permutation": "dimensions may change places and signs",
    "rigid": "rotation, reflection and shift",
    "similarity": "rigid, and one scale for all directions",
    "linear": "any linear map, so stretching and shearing too",
    "ica": "each run is unmixed on its own, without seeing the other; only then are components matched",
}

STATUSES = {  # from the one to look at first; the mark tells them apart without colour
    "fails": ("✕", "No: more than a rotation and a scale changed"),
    "ambiguous": ("≈", "Unclear: the numbers allow both readings"),
    "unknown": ("?", "Unknown: too little to judge by"),
    "holds": ("✓", "Yes: at most a rotation and a scale"),
}

UNDEFINED = "–"


def ordered(groups: Iterable[str]) -> list[str]:
    """Sort groups from small to large, the unsupervised route last and names we do not know before it."""
    known = list(GROUPS)
    return sorted(groups, key=lambda name: known.index(name) if name in known else known.index("ica") - 0.5)


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


def percent(share: float, unit: str = " %") -> str:
    """Write a share as a percentage to three significant digits: 0.0183 is "1.83 %"."""
    if 0 < share < 1e-5:
        return "< 0.001" + unit
    return number(100 * share) + unit if math.isfinite(share) else number(share)


def elided(names: Sequence[str], length: int) -> list[str]:
    """Leave out the middle of long names, but never so much that two of them become the same."""

    def short(name: str) -> str:
        tail = (length - 1) // 2
        return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"

    shortened = [short(name) for name in names]
    if len(set(shortened)) == len(set(names)):
        return shortened
    return elided(names, 2 * length)


def prose(sentence: str) -> str:
    """Keep the percent signs of a sentence on the line of their number."""
    return sentence.replace(" %", "\u00a0%")


def setting(value: Any) -> str:
    """Write a setting as a person would."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
