"""The report of a map of layers: which layers of two runs belong together, as a picture and a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.formatting import elided, number, percent
from congruence.report import words
from congruence.report.figures.heat import tint
from congruence.report.figures.svg import GRID, INK, MUTED, draw
from congruence.report.page import fill

if TYPE_CHECKING:
    from congruence.align.layer_nearness import LayerMap

SHOWN = 60  # layers of each run in the picture; the table has all
PRINTED = 14  # up to here cells are wide enough for a number
LISTED = 500  # lines of the table


@dataclass(frozen=True)
class _Line:
    """One layer and the one nearest to it, as the table shows them."""

    layer: str
    nearest: str
    value: str
    null: str
    above: float  # chance, as a share of the way to a perfect match
    related: bool


def write_layers_report(layers: LayerMap, path: str | Path) -> None:
    """Write the report of a map of layers to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_layers(layers))


def render_layers(layers: LayerMap) -> str:
    """Return the report of a map of layers as one HTML page that needs no other file."""
    written = _written(layers)
    first, *rest = words.sentences(layers.verdict)
    return fill(
        "layers.html.j2",
        layers=layers,
        lead=first,
        rest=" ".join(rest),
        what=_what(layers),
        judged=bool(np.isfinite(layers.above_chance).any()),
        figure=layer_picture(layers),
        cut=max(len(layers.rows), len(layers.columns)) > SHOWN,
        shown=SHOWN,
        lines=[_line(layers, i, written) for i in range(min(len(layers.rows), LISTED))],
        made={
            "runs": f"{layers.source}, {layers.target}",
            "layers": f"{len(layers.rows)} and {len(layers.columns)}",
            "paired rows": layers.n,
        }
        | layers.settings,
    )


def _what(layers: LayerMap) -> str:
    """What the numbers are, in words."""
    if layers.held_out:
        return (
            f"the held-out error {words.AFTER[layers.measure]} from a layer of {layers.source} to one of "
            f"{layers.target}, in % of the diameter of the latter; lower is closer"
        )
    called = words.SIMILARITIES.get(layers.measure, (layers.measure, ""))[0]
    return f"{called}, in sample; {layers.direction}"


def _written(layers: LayerMap) -> Callable[[float], str]:
    return percent if layers.held_out else number


def _line(layers: LayerMap, i: int, written: Callable[[float], str]) -> _Line:
    j = int(layers.nearest[i])
    if j < 0:
        return _Line(layers.rows[i], "", words.UNDEFINED, words.UNDEFINED, math.nan, False)
    return _Line(
        layers.rows[i],
        layers.columns[j],
        written(float(layers.nearness[i, j])),
        written(float(layers.null[i, j])),
        float(layers.above_chance[i, j]),
        bool(layers.related[i]),
    )


def layer_picture(layers: LayerMap) -> str:
    """Draw the map: a row for each layer of the source, a column for each of the target, both in their order.

    The colour says how far a pair is on the way from chance (faint) to a perfect match (strong); the number is the
    nearness itself, where there is room for it. A frame marks the nearest column of each row that is nearer than
    chance. Without a null, colours go by the numbers.
    """
    rows, columns = layers.rows[:SHOWN], layers.columns[:SHOWN]
    strength = _strength(layers)[:SHOWN, :SHOWN]
    most = max(len(rows), len(columns))
    printed = most <= PRINTED
    side = min(60.0, max(44.0, 640 / len(columns))) if printed else max(11.0, 640 / most)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for i, j in np.ndindex(strength.shape):
            tint(axes, (j - 0.5, i - 0.5), 1.0, float(strength[i, j]))
            if printed:
                axes.text(j, i, _short(layers, i, j), ha="center", va="center", fontsize=11.5)
        _frame_nearest(axes, layers, strength.shape)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
        _name_layers(axes, layers, rows, columns, side)

    size = (side * len(columns) + 190, side * len(rows) + 150)
    said = f"Nearness of {len(rows)} layers of {layers.source} to {len(columns)} of {layers.target}: {layers.verdict}"
    return draw(paint, size, key=f"layers {layers.measure} {rows!r} {columns!r}", label=said)


def _strength(layers: LayerMap) -> Any:
    """How strongly each cell is coloured, from 0 to 1."""
    above = layers.above_chance
    if np.isfinite(above).any():
        return np.clip(above, 0.0, 1.0)
    closeness = abs(layers.nearness - layers.perfect)
    top = np.nanmax(closeness, initial=0.0)
    return 1 - closeness / top if top > 0 else np.ones_like(closeness)


def _short(layers: LayerMap, i: int, j: int) -> str:
    value = float(layers.nearness[i, j])
    return percent(value, unit="").replace("< ", "<") if layers.held_out else number(value, 2)


def _frame_nearest(axes: Any, layers: LayerMap, shape: tuple[int, ...]) -> None:
    from matplotlib.patches import Rectangle

    for i, j in enumerate(layers.nearest[: shape[0]]):
        if 0 <= j < shape[1] and layers.related[i]:
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, facecolor="none", edgecolor=INK, linewidth=1.6))


def _name_layers(axes: Any, layers: LayerMap, rows: Sequence[str], columns: Sequence[str], side: float) -> None:
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
