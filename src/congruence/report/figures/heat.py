"""The heat map of a comparison: how near every run is to every other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import elided, percent
from congruence.report.figures.svg import GRID, HEAT, MUTED, Drawing

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison

PRINTED_RUNS = 12  # up to here cells are wide enough for a number


def heat_map(comparison: Comparison, group: str = "similarity", most: int = 40) -> Drawing:
    """Draw the held-out error up to `group` for all pairs of runs, from source (row) to target (column).

    Cells that were not computed are left blank. With more than `most` runs, the first ones are shown.
    """
    runs = [run.name for run in comparison.runs[:most]]
    place = {name: i for i, name in enumerate(runs)}
    cells = {
        (place[pair.source], place[pair.target]): pair.groups[group].held_out.mean
        for pair in comparison.pairs
        if group in pair.groups and pair.source in place and pair.target in place
    }
    top = max((value for value in cells.values() if math.isfinite(value)), default=0.0)
    printed = len(runs) <= PRINTED_RUNS
    side = len(runs) * (min(72.0, max(54.0, 420 / len(runs))) if printed else max(16.0, 640 / len(runs)))

    def paint(axes: Any) -> None:
        for (row, column), value in cells.items():
            tint(axes, (column - 0.5, row - 0.5), 1.0, value / top if top > 0 else 0.0)
            if printed:
                axes.text(column, row, percent(value, unit=""), ha="center", va="center", fontsize=12.5)
        axes.set(xlim=(-0.5, len(runs) - 0.5), ylim=(len(runs) - 0.5, -0.5), aspect="equal")
        _name_runs(axes, runs, side / len(runs))
        if not printed:
            _heat_scale(axes, top)

    return Drawing(
        paint,
        (side + 170, side + (140 if printed else 190)),
        key=f"heat map {group} {runs!r}",
        label=f"Held-out error up to {group} between {len(runs)} runs: at most {percent(top)}",
        on_axes=True,
    )


def tint(axes: Any, corner: tuple[float, float], width: float, strength: float) -> None:
    """Colour a cell of height 1 by a strength from 0 to 1; what is undefined stays blank."""
    from matplotlib.patches import Rectangle

    if math.isfinite(strength):
        alpha = 0.12 + 0.78 * strength
        axes.add_patch(Rectangle(corner, width, 1, facecolor=HEAT, alpha=alpha, edgecolor="none"))


def _name_runs(axes: Any, runs: list[str], width: float) -> None:
    short = elided(runs, 18)
    slanted = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
    level = {"rotation": 0, "ha": "center", "rotation_mode": "anchor"}
    fits = 8.5 * max(len(name) for name in short) < width
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(len(runs)), short, parse_math=False, **(level if fits else slanted))
    axes.set_yticks(range(len(runs)), short, parse_math=False)
    axes.set_xlabel("to (target)", labelpad=10, color=MUTED)
    axes.set_ylabel("from (source)", labelpad=8, color=MUTED)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for edge in np.arange(len(runs) + 1) - 0.5:
        axes.axhline(edge, color=GRID, linewidth=1)
        axes.axvline(edge, color=GRID, linewidth=1)


def _heat_scale(axes: Any, top: float) -> None:
    scale = axes.inset_axes((0.25, -0.1, 0.5, 0.035))
    for step in range(20):
        tint(scale, (step / 20, 0), 1 / 20, step / 19)
    scale.set(xlim=(0, 1), ylim=(0, 1), yticks=[])
    scale.set_xticks([0, 0.5, 1], [percent(share * top) for share in (0, 0.5, 1)])
    scale.tick_params(length=0)
    scale.spines[:].set_visible(False)
