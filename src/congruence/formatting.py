"""Numbers, shares, intervals and names as text, for sentences, tables, figures and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

UNDEFINED = "–"


def number(value: float, digits: int = 3) -> str:
    """Write a value to `digits` significant digits, without exponent if possible; NaN as a dash."""
    if not math.isfinite(value):
        return UNDEFINED if math.isnan(value) else f"{'−' if value < 0 else ''}∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = math.floor(math.log10(abs(rounded)))
    written = f"{value:.{digits - 1}e}" if not -4 <= exponent <= 6 else f"{value:.{max(digits - 1 - exponent, 0)}f}"
    return written.replace("-", "−")


def fixed(value: float, digits: int) -> str:
    """Write a value with a fixed number of decimals, without the sign of a zero; NaN as a dash, 1e7 with exponent."""
    if not abs(value) < 1e6:
        return number(value)
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def signed(value: float) -> str:
    """Write a difference with its sign and three decimals; a dash if it is not finite."""
    return UNDEFINED if not math.isfinite(value) else f"{value:+.3f}".replace("-", "−")


def percent(share: float, unit: str = " %", digits: int = 3) -> str:
    """Write a share as a percentage to three significant digits: 0.0183 is "1.83 %"."""
    if 0 < share < 1e-5:
        return "< 0.001" + unit
    return number(100 * share, digits) + unit if math.isfinite(share) else number(share)


def interval(low: float, high: float) -> str:
    """Write an interval of shares, as one number if both ends read the same; a dash if it is undefined."""
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
    """Write a number with its noun: "1 row", "12 rows"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def step(value: float) -> str:
    """Write the step of a training, never as 1e+05."""
    return f"{value:.0f}" if value == round(value) else f"{value:g}"


def setting(value: Any) -> str:
    """Write the value of a setting for readers."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {setting(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(item, Mapping) for item in value) else ", "
        return between.join(setting(item) for item in value)
    return str(value)
