"""How far each condition is ahead of base on batches never seen: all targets together, and one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from congruence.report.figures.svg import HELD_OUT, INK, MUTED, Drawing

if TYPE_CHECKING:
    from congruence.batches.outcome import Outcome

MOST_DOTS = 120  # targets drawn for each condition


def differences_figure(result: Outcome, called: Callable[[str], str]) -> Drawing:
    """Draw, for each condition, its mean difference from base with the 95 % interval, and a dot for each target."""
    names = list(result.overall)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1.2)
        for row, name in enumerate(reversed(names)):
            one = result.overall[name]
            dots = [target.paired[name].difference for target in result.targets[:MOST_DOTS]]
            dots = [value for value in dots if math.isfinite(value)]
            style = {"color": MUTED, "markersize": 6, "markerfacecolor": "none", "markeredgewidth": 1.3, "linewidth": 0}
            axes.plot(dots, [row - 0.22] * len(dots), "o", **style)
            if math.isfinite(one.low):
                axes.plot([one.low, one.high], [row + 0.1] * 2, color=HELD_OUT, linewidth=4, solid_capstyle="butt")
            if math.isfinite(one.difference):
                axes.plot(one.difference, row + 0.1, "D", color=HELD_OUT, markersize=9)
        axes.set_yticks(range(len(names)), [called(name) for name in reversed(names)])
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlabel("AUROC on held-out batches, ahead of base")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        _legend(figure)

    said = "; ".join(f"{called(name)} {one.difference:+.3f}" for name, one in result.overall.items())
    height = 90 + 46 * len(names)
    return Drawing(paint, (760, height), key=f"differences {names!r}", label=f"AUROC ahead of base: {said}")


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=HELD_OUT, marker="D", linewidth=4, markersize=9, label="all targets, 95 % interval"),
        Line2D([], [], color=MUTED, marker="o", markerfacecolor="none", linewidth=0, markersize=6, label="one target"),
    ]
    figure.legend(handles=marks, loc="outside upper left", ncols=2)
