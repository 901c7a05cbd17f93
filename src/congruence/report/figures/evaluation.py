"""Figures of an evaluation: information of codes about factors, a factor against a code, a score on its range."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import elided, fixed, number
from congruence.report.figures.svg import GRID, HEAT, HELD_OUT, INK, Drawing, Inline, add_hover

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Score

PRINTED_CODES = 16  # with more, cells are too narrow for a number
CELLS = 3000  # of a heat map; the rest of the codes are left out
LETTERS = {"factor": 20, "code": 12}  # of a name
WIDEST = 780.0  # heat map, in pixels
STRONGEST = 0.9  # colour, on which text is still readable
SHADES = 20  # of a heat map: cells of one shade are drawn together
MOST_LEVELS = 12  # values of a factor; with more, they are drawn as a cloud
NAMED = 8  # of these lines that are labelled
WIDTH, HEIGHT, MARGIN = 150.0, 22.0, 8.0  # of a score on its range


def factor_code_map(matrix: Any, factors: Sequence[str], codes: Sequence[str], what: str) -> Drawing:
    """Draw a matrix (K, L) as a heat map, factors as rows and codes as columns; colours show the absolute value.

    Up to 16 codes have their numbers written. Of very many codes, the first ones are drawn (3000 cells).
    """
    matrix = np.asarray(matrix, dtype=float)[:, : max(PRINTED_CODES, CELLS // max(len(factors), 1))]
    codes = codes[: matrix.shape[1]]
    short, printed = elided(codes, LETTERS["code"]), len(codes) <= PRINTED_CODES
    name = 8.5 * max(map(len, short)) + 10  # the room that a name takes
    cell = min(max(name, 58.0), max(58.0, WIDEST / len(codes))) if printed else max(8.0, WIDEST / len(codes))
    side = cell * len(codes)

    def paint(axes: Any) -> None:
        _shade(axes, matrix)
        if printed:
            for (i, j), value in np.ndenumerate(matrix):
                axes.text(j, i, fixed(value, 2), ha="center", va="center", fontsize=12.5)
        texts = [f"{factors[i]}, {codes[j]}: {fixed(value, 2)}" for (i, j), value in np.ndenumerate(matrix)]
        add_hover(axes, [(j, i) for i, j in np.ndindex(matrix.shape)], texts, cells=True)
        axes.set(xlim=(-0.5, len(codes) - 0.5), ylim=(len(factors) - 0.5, -0.5))
        slanted = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if printed and name > cell else {}
        every = 1 if printed else max(1, math.ceil(name / cell))
        axes.xaxis.tick_top()
        axes.set_xticks(range(0, len(codes), every), short[::every], parse_math=False, **slanted)
        axes.set_yticks(range(len(factors)), elided(factors, LETTERS["factor"]), parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set(visible=True, color=GRID)

    tall = 30.0 if printed else 20.0
    return Drawing(
        paint,
        (side + 170, tall * len(factors) + (90 if printed and name > cell else 50)),
        label=f"{what} of {len(codes)} codes and {len(factors)} factors, as colours",
    )


def _shade(axes: Any, matrix: Any) -> None:
    """Colour all cells; those of one shade are one shape, because a page can hold thousands of cells but not shapes."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]) - 0.5
    cells = defaultdict(list)
    for (i, j), value in np.ndenumerate(matrix):
        shade = 0 if math.isnan(value) else round(SHADES * min(abs(value), 1.0))
        if shade:
            cells[shade].append(Path(np.add(corners, (j, i)), closed=True))
    for shade, paths in sorted(cells.items()):
        outline = Path.make_compound_path(*paths)
        axes.add_patch(PathPatch(outline, facecolor=HEAT, alpha=STRONGEST * shade / SHADES, edgecolor="none"))


def factor_scatter(factor: Any, code: Any, kind: str, levels: Sequence[str], names: tuple[str, str]) -> Drawing:
    """Draw a factor (m,) against a code (m,): a cloud or, of a factor with few values, a line for each value.

    `levels` are the words for the numbers of a factor, `names` those of the factor and the code.
    """
    values = np.unique(factor)
    in_lines = kind == "categorical" or len(values) <= MOST_LEVELS

    def paint(axes: Any) -> None:
        if in_lines:
            _lines(axes, code, factor, values, levels)
        else:
            axes.plot(code, factor, "o", color=HELD_OUT, markersize=4, alpha=0.55, markeredgewidth=0)
        _axes_without_ticks(axes, in_lines)
        axes.set_xlabel(elided([names[1]], 22)[0], parse_math=False)

    how = f"{len(values)} values" if in_lines else f"from {number(float(values[0]))} to {number(float(values[-1]))}"
    label = f"{names[0]} ({how}) against {names[1]}, {len(code)} rows"
    return Drawing(paint, (205, 190), label=label)


def _lines(axes: Any, code: Any, factor: Any, values: Any, levels: Sequence[str]) -> None:
    """The rows of each value on a line, jittered, with the median and the middle half."""
    place = np.searchsorted(values, factor)
    jitter = 0.28 * np.sin(2.399963 * np.arange(len(code)))  # the golden angle: even, and the same every time
    axes.plot(code, place + jitter, "o", color=HELD_OUT, markersize=3.6, alpha=0.45, markeredgewidth=0)
    for i in range(len(values)):
        low, middle, high = np.quantile(code[place == i], [0.25, 0.5, 0.75])
        axes.plot([low, high], [i, i], color=INK, linewidth=2)
        axes.plot([middle, middle], [i - 0.33, i + 0.33], color=INK, linewidth=2)
    named = range(0, len(values), -(-len(values) // NAMED))
    axes.set_yticks(list(named), elided([_level(values[i], levels) for i in named], 11), parse_math=False)
    axes.set_ylim(-0.6, len(values) - 0.4)


def _level(value: float, levels: Sequence[str]) -> str:
    place = int(value)
    return levels[place] if levels and value == place and 0 <= place < len(levels) else f"{value:g}".replace("-", "−")


def _axes_without_ticks(axes: Any, in_lines: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis,) if in_lines else (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(3))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    axes.tick_params(length=0)
    axes.grid(visible=True, axis="x")
    axes.spines[:].set(color=GRID)


def score_range(score: Score) -> Inline:
    """Draw a finite score on its range: the value, its interval and the mark of chance.

    An unbounded range is cut at 0 (below) or at the largest value (above); values beyond it are drawn at its end.
    """
    low, high = _ends(score)

    def at(value: float) -> float:
        share = (value - low) / (high - low)
        return MARGIN + (WIDTH - 2 * MARGIN) * min(max(share, 0.0), 1.0)

    middle = HEIGHT / 2
    parts = [_line(MARGIN, middle, WIDTH - MARGIN, middle, "line", 2.0)]
    if low < 0:
        parts.append(_line(at(0), middle - 4, at(0), middle + 4, "line", 2.0))
    if math.isfinite(score.chance):
        parts.append(_line(at(score.chance), 2, at(score.chance), HEIGHT - 2, "c-null", 2.0, "2.4 1.6"))
    if math.isfinite(score.low) and math.isfinite(score.high):
        parts.append(_line(at(score.low), middle, at(score.high), middle, "c-heldout", 5.0))
    parts.append(f'<circle cx="{at(score.value):.1f}" cy="{middle:g}" r="4.5" style="fill: var(--c-heldout)"/>')
    label = f"{number(score.value)} between {number(low)} and {number(high)}"
    label = html.escape(f"{label}; chance {number(score.chance)}" if math.isfinite(score.chance) else label)
    return Inline(
        f'<svg class="gauge" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
        f' aria-label="{label}"><title>{label}</title>{"".join(parts)}</svg>'
    )


def _ends(score: Score) -> tuple[float, float]:
    low, high = score.range
    values = [x for x in (score.value, score.high, score.chance) if math.isfinite(x)]
    low = low if math.isfinite(low) else 0.0
    high = high if math.isfinite(high) else low + 1.1 * max(0.0, *values, 0.0) - 1.1 * min(low, 0.0)
    return low, high if high > low else low + 1.0


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dashes: str = "") -> str:
    dashed = f"; stroke-dasharray: {dashes}" if dashes else ""
    style = f"stroke: var(--{colour}); stroke-width: {width:g}{dashed}"
    return f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" style="{style}"/>'
