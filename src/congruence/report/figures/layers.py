"""The picture of a comparison of layers: how near every layer of one run is to every layer of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import elided, number, percent
from congruence.report.figures.heat import tint
from congruence.report.figures.svg import GRID, INK, MUTED, Drawing

if TYPE_CHECKING:
    from congruence.align.layer_comparison import LayerComparison

PRINTED = 14  # up to here cells are wide enough for a number


def layer_picture(layers: LayerComparison, most: int = 60) -> Drawing:
    """Draw a row for each layer of the source and a column for each of the target, in order, at most so many.

    The colour is the position of a pair between chance (faint) and a perfect match (strong); the number is the nearness
    itself, where there is room for it. A frame marks the nearest column of each row that is nearer than chance.
    Without a null, colours follow the numbers.
    """
    rows, columns = layers.source_layers[:most], layers.target_layers[:most]
    strength = _strength(layers)[:most, :most]
    longest = max(len(rows), len(columns))
    printed = longest <= PRINTED
    side = min(60.0, max(44.0, 640 / len(columns))) if printed else max(11.0, 640 / longest)

    def paint(axes: Any) -> None:
        for i, j in np.ndindex(strength.shape):
            tint(axes, (j - 0.5, i - 0.5), 1.0, float(strength[i, j]))
            if printed:
                axes.text(j, i, _short(layers, i, j), ha="center", va="center", fontsize=12)
        _frame_nearest(axes, layers, strength.shape)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
        _name_layers(axes, layers, rows, columns, side)

    return Drawing(
        paint,
        (side * len(columns) + 190, side * len(rows) + 150),
        key=f"layers {layers.measure} {rows!r} {columns!r}",
        label=f"Nearness of {len(rows)} layers of {layers.source} to {len(columns)} of {layers.target}: "
        f"{layers.verdict}",
        on_axes=True,
    )


def _strength(layers: LayerComparison) -> Any:
    """The strength of the colour of each cell, from 0 to 1."""
    if layers.judged:
        return np.clip(layers.above_chance, 0.0, 1.0)
    closeness = abs(layers.nearness - layers.perfect)
    top = np.nanmax(closeness, initial=0.0)
    return 1 - closeness / top if top > 0 else np.ones_like(closeness)


def _short(layers: LayerComparison, i: int, j: int) -> str:
    value = float(layers.nearness[i, j])
    return percent(value, unit="").replace("< ", "<") if layers.held_out else number(value, 2)


def _frame_nearest(axes: Any, layers: LayerComparison, shape: tuple[int, ...]) -> None:
    from matplotlib.patches import Rectangle

    for i, j in enumerate(layers.nearest[: shape[0]]):
        if 0 <= j < shape[1] and layers.related[i]:
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, facecolor="none", edgecolor=INK, linewidth=1.6))


def _name_layers(axes: Any, layers: LayerComparison, rows: Sequence[str], columns: Sequence[str], side: float) -> None:
    step = max(1, math.ceil(15 / side))  # names of narrow cells would overlap
    slanted = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(0, len(columns), step), elided(columns, 18)[::step], parse_math=False, **slanted)
    axes.set_yticks(range(0, len(rows), step), elided(rows, 18)[::step], parse_math=False)
    for axis, name in ((axes.xaxis, layers.target), (axes.yaxis, layers.source)):
        axis.set_label_text(f"layers of {elided([name], 30)[0]}", color=MUTED, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for edge in np.arange(len(rows) + 1) - 0.5:
        axes.axhline(edge, color=GRID, linewidth=1)
    for edge in np.arange(len(columns) + 1) - 0.5:
        axes.axvline(edge, color=GRID, linewidth=1)
