"""Heat maps: the error between all pairs of runs, and between all layers of two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import UNDEFINED, elided, number, percent
from congruence.maps._names import has_null, leading_error
from congruence.report.figures.svg import GRID, HEAT, INK, MUTED, Drawing, add_hover

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison
    from congruence.align.layer_comparison import LayerComparison

PRINTED_RUNS, PRINTED_LAYERS = 12, 14  # with more, cells are too narrow for a number


def heat_map(comparison: Comparison, group: str = "similarity", most: int = 40) -> Drawing:
    """Draw the held-out error up to `group`, in % of chance, for all pairs, from source (row) to target (column).

    The strongest colour is chance. Without a null, errors are in % of the diameter. Cells that were not computed are
    left blank. With more than `most` runs, the first ones are shown.
    """
    runs = [run.name for run in comparison.runs[:most]]
    place = {name: i for i, name in enumerate(runs)}
    judged = has_null(pair.groups[group] for pair in comparison.pairs if group in pair.groups)
    cells = {
        (place[pair.source], place[pair.target]): leading_error(pair.groups[group], judged)
        for pair in comparison.pairs
        if group in pair.groups and pair.source in place and pair.target in place
    }
    top = max((value for value in cells.values() if math.isfinite(value)), default=0.0)
    unit, printed = "chance" if judged else "the diameter", len(runs) <= PRINTED_RUNS
    full = 1.0 if judged else top  # the strongest colour: chance
    side = len(runs) * (min(72.0, max(54.0, 420 / len(runs))) if printed else max(16.0, 640 / len(runs)))

    def paint(axes: Any) -> None:
        for (row, column), value in cells.items():
            tint(axes, (column - 0.5, row - 0.5), 1.0, min(value / full, 1.0) if full > 0 else 0.0)
            if printed:
                axes.text(column, row, percent(value, unit=""), ha="center", va="center", fontsize=12.5)
        texts = [f"{runs[i]} → {runs[j]}\n{percent(value)} of {unit} up to {group}" for (i, j), value in cells.items()]
        add_hover(axes, [(j, i) for i, j in cells], texts, cells=True)
        axes.set(xlim=(-0.5, len(runs) - 0.5), ylim=(len(runs) - 0.5, -0.5), aspect="equal")
        _label(axes, runs, runs, side / len(runs), ("to (target)", "from (source)"))
        if not printed:
            _heat_scale(axes, full)

    return Drawing(
        paint,
        (side + 170, side + (140 if printed else 190)),
        label=f"Held-out error up to {group} between {len(runs)} runs: at most {percent(top)} of {unit}",
    )


def tint(axes: Any, corner: tuple[float, float], width: float, strength: float) -> None:
    """Colour a cell of height 1 by a strength from 0 to 1; NaN stays blank."""
    from matplotlib.patches import Rectangle

    if math.isfinite(strength):
        alpha = 0.12 + 0.78 * strength
        axes.add_patch(Rectangle(corner, width, 1, facecolor=HEAT, alpha=alpha, edgecolor="none"))


def _label(axes: Any, rows: Sequence[str], columns: Sequence[str], width: float, labels: tuple[str, str]) -> None:
    """Name rows and columns of cells of this width, in CSS pixels, and draw the grid between them."""
    step = max(1, math.ceil(15 / width))  # names of narrow cells would overlap
    short = elided(columns, 18)
    fits = 8.5 * max(len(name) for name in short) < width
    turn = {"rotation": 0, "ha": "center"} if fits else {"rotation": 40, "ha": "left"}
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(0, len(columns), step), short[::step], parse_math=False, rotation_mode="anchor", **turn)
    axes.set_yticks(range(0, len(rows), step), elided(rows, 18)[::step], parse_math=False)
    axes.xaxis.set_label_text(labels[0], color=MUTED, parse_math=False)
    axes.yaxis.set_label_text(labels[1], color=MUTED, parse_math=False)
    axes.xaxis.labelpad, axes.yaxis.labelpad = 10, 8
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for edge in np.arange(len(rows) + 1) - 0.5:
        axes.axhline(edge, color=GRID, linewidth=1)
    for edge in np.arange(len(columns) + 1) - 0.5:
        axes.axvline(edge, color=GRID, linewidth=1)


def _heat_scale(axes: Any, top: float) -> None:
    scale = axes.inset_axes((0.25, -0.1, 0.5, 0.035))
    for step in range(20):
        tint(scale, (step / 20, 0), 1 / 20, step / 19)
    scale.set(xlim=(0, 1), ylim=(0, 1), yticks=[])
    scale.set_xticks([0, 0.5, 1], [percent(share * top) for share in (0, 0.5, 1)])
    scale.tick_params(length=0)
    scale.spines[:].set_visible(False)


def layer_picture(layers: LayerComparison, most: int = 60) -> Drawing:
    """Draw a row for each layer of the source and a column for each of the target, in order, at most `most`.

    The colour is the position of a pair between chance (faint) and a perfect match (strong); the number, if it fits, is
    the held-out error as a share of chance, or the similarity. A frame marks the nearest column of each row that is
    nearer than chance.
    Without a null, colours follow the numbers.
    """
    rows, columns = layers.source_layers[:most], layers.target_layers[:most]
    strength = _strength(layers)[:most, :most]
    longest = max(len(rows), len(columns))
    printed = longest <= PRINTED_LAYERS
    side = min(60.0, max(44.0, 640 / len(columns))) if printed else max(11.0, 640 / longest)

    def paint(axes: Any) -> None:
        for i, j in np.ndindex(strength.shape):
            tint(axes, (j - 0.5, i - 0.5), 1.0, float(strength[i, j]))
            if printed:
                axes.text(j, i, _short(layers, i, j), ha="center", va="center", fontsize=12)
        places = list(np.ndindex(strength.shape))
        texts = [_cell_text(layers, i, j) for i, j in places]
        add_hover(axes, [(j, i) for i, j in places], texts, cells=True)
        _frame_nearest(axes, layers, strength.shape)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
        target, source = elided([layers.target], 30)[0], elided([layers.source], 30)[0]
        _label(axes, rows, columns, side, (f"layers of {target}", f"layers of {source}"))

    return Drawing(
        paint,
        (side * len(columns) + 190, side * len(rows) + 150),
        key=f"layers {layers.measure} {rows!r} {columns!r}",
        label=f"Nearness of {len(rows)} layers of {layers.source} to {len(columns)} of {layers.target}: "
        f"{layers.verdict}",
    )


def _strength(layers: LayerComparison) -> Any:
    """The strength of the colour of each cell, from 0 to 1."""
    if layers.judged:
        return np.clip(layers.above_chance, 0.0, 1.0)
    closeness = abs(layers.nearness - layers.perfect)
    top = np.nanmax(closeness, initial=0.0)
    return 1 - closeness / top if top > 0 else np.ones_like(closeness)


def _short(layers: LayerComparison, i: int, j: int) -> str:
    """The number of a cell: an error as a share of chance, where there is a null; a similarity as it is."""
    if not layers.held_out:
        return number(float(layers.nearness[i, j]), 2)
    shown = layers.share_of_chance if layers.judged else layers.nearness
    return percent(float(shown[i, j]), unit="").replace("< ", "<")


def _cell_text(layers: LayerComparison, i: int, j: int) -> str:
    """All numbers of a pair of layers."""
    near, null = layers.nearness[i, j], layers.null[i, j]
    numbers = {layers.measure: number(near), "null": number(null), "above chance": percent(layers.above_chance[i, j])}
    if layers.held_out:
        numbers = {
            f"{layers.measure} error, of chance": percent(layers.share_of_chance[i, j]),
            "of the diameter": percent(near),
            "null, of the diameter": percent(null),
        }
    numbers["p"] = number(layers.p[i, j])
    lines = [f"{name}: {text}" for name, text in numbers.items() if text != UNDEFINED]
    return "\n".join([f"{layers.source_layers[i]} → {layers.target_layers[j]}", *lines])


def _frame_nearest(axes: Any, layers: LayerComparison, shape: tuple[int, ...]) -> None:
    from matplotlib.patches import Rectangle

    for i, j in enumerate(layers.nearest[: shape[0]]):
        if 0 <= j < shape[1] and layers.related[i]:
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, facecolor="none", edgecolor=INK, linewidth=1.6))
