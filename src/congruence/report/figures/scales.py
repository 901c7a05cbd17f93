"""Axes with plain numbers instead of powers of ten, logarithmic only where needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

FAR_APART = 12.0  # ratio of values above which a linear axis hides the small ones


def far_apart(values: Iterable[float]) -> bool:
    """Whether positive values differ so much that a linear axis would hide the small ones; 0 counts as far apart."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and max(finite) > FAR_APART * min(finite)


def plain_decades(axis: Any, low: float, high: float) -> None:
    """Place ticks at 1, 2 and 5 of each decade, or only at some decades if there are many, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(high / low)
    subs = (1, 2, 5) if decades < 2.5 else (1,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=6 if decades > 6 else 12))
    axis.set_major_formatter(FuncFormatter(_plain_number))
    axis.set_minor_locator(NullLocator())


def _plain_number(value: float, _: Any = None) -> str:
    return f"{value:.0f}" if 1 <= abs(value) < 1e7 and value == round(value) else f"{value:g}"


def error_axis(axes: Any, shares: Iterable[float], what: str) -> None:
    """Set the y axis for errors, given as shares and shown in %: from 0, or logarithmic where they lie far apart."""
    percents = [100 * share for share in shares if math.isfinite(share)]
    top = max(percents, default=0.0)
    positive = [value for value in percents if value > 1e-9 * top]
    log = far_apart(positive)
    axes.set_ylabel(what + (" (log)" if log else ""))
    axes.grid(axis="y")
    if log:
        low, high = min(positive) / 1.25, 1.25 * top
        axes.set(yscale="log", ylim=(low, high))
        plain_decades(axes.yaxis, low, high)
    else:
        axes.set_ylim(0, 1.12 * top or 1.0)


def outline(axes: Any, heights: Any, edges: Any, **style: Any) -> None:
    """Draw the outline of a histogram, down to 0 at both ends."""
    axes.plot(np.repeat(edges, 2), np.repeat([0, *heights, 0], 2)[1:-1], **style)


def step_axis(axes: Any, steps: Sequence[float]) -> None:
    """Set the x axis for steps of a training: logarithmic where they span more than two decades, 0 set apart."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    positive = [step for step in steps if step > 0]
    log = min(steps) >= 0 and len(positive) > 1 and positive[-1] > 100 * positive[0]
    axes.set_xlabel("step (log)" if log else "step")
    if not log:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(_plain_number))
    elif len(positive) == len(steps):
        axes.set_xscale("log")
        plain_decades(axes.xaxis, steps[0], steps[-1])
    else:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.3)
        first, last = math.ceil(math.log10(positive[0])), math.floor(math.log10(positive[-1]))
        every = 1 + (last - first) // 5
        axes.set_xticks([0, *(10.0**decade for decade in range(first, last + 1, every))], minor=False)
        axes.xaxis.set_major_formatter(FuncFormatter(_plain_number))
