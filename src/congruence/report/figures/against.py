"""Small figures of a factor against the code that tells most of it, from some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import elided, number
from congruence.report.figures.svg import GRID, HELD_OUT, INK, Drawing

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation

DRAWN_FACTORS = 24
POINTS = 4000  # of all figures together, about 45 bytes each
MOST_POINTS = 250  # of one figure
MOST_LEVELS = 12  # values of a factor up to which each has a line of its own
NAMED = 8  # of these, so many have their name written


@dataclass(frozen=True)
class Against:
    """One figure: a factor, a code, and whether the code tells anything of the factor."""

    factor: str
    code: str
    tells: bool
    figure: str


def against_best(result: Evaluation) -> list[Against]:
    """A figure for each of the first factors, against the code that tells most of it."""
    codes, factors = (np.asarray(part, dtype=float) for part in result.sample)
    if not len(codes):
        return []
    nmi = np.asarray(result.matrices["nmi"], dtype=float)
    chosen = [i for i in range(len(result.factors)) if np.isfinite(nmi[i]).any()][:DRAWN_FACTORS]
    points = min(MOST_POINTS, POINTS // max(len(chosen), 1))
    found = []
    for i in chosen:
        row, name = result.per_factor[i], result.factors[i]
        j = result.codes.index(row.code) if row.code in result.codes else int(np.nanargmax(nmi[i]))
        levels = result.levels.get(name, ())
        figure = _figure(codes[:points, j], factors[:points, i], row.kind, levels, name, result.codes[j])
        found.append(Against(name, result.codes[j], bool(row.code) and row.explained, figure))
    return found


def _figure(code: Any, factor: Any, kind: str, levels: Sequence[str], name: str, against: str) -> Drawing:
    values = np.unique(factor)
    stripped = kind == "categorical" or len(values) <= MOST_LEVELS

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        if stripped:
            _strips(axes, code, factor, values, levels)
        else:
            style = {"markersize": 4, "alpha": 0.55, "markeredgewidth": 0}
            axes.plot(code, factor, "o", color=HELD_OUT, **style)
        _quiet(axes, stripped)
        axes.set_xlabel(elided([against], 22)[0], parse_math=False)

    how = f"{len(values)} values" if stripped else f"from {number(float(values[0]))} to {number(float(values[-1]))}"
    label = f"{name} ({how}) against {against}, {len(code)} rows"
    return Drawing(paint, (205, 190), key=f"against {name!r} {against!r}", label=label)


def _strips(axes: Any, code: Any, factor: Any, values: Any, levels: Sequence[str]) -> None:
    """Rows of each value on a line, spread a little, with the median and the middle half."""
    place = np.searchsorted(values, factor)
    nudge = 0.28 * np.sin(2.399963 * np.arange(len(code)))  # the golden angle: even, and the same every time
    axes.plot(code, place + nudge, "o", color=HELD_OUT, markersize=3.6, alpha=0.45, markeredgewidth=0)
    for i in range(len(values)):
        low, middle, high = np.quantile(code[place == i], [0.25, 0.5, 0.75])
        axes.plot([low, high], [i, i], color=INK, linewidth=2)
        axes.plot([middle, middle], [i - 0.33, i + 0.33], color=INK, linewidth=2)
    every = -(-len(values) // NAMED)
    named = range(0, len(values), every)
    written = [_level(values[i], levels) for i in named]
    axes.set_yticks(list(named), elided(written, 11), parse_math=False)
    axes.set_ylim(-0.6, len(values) - 0.4)


def _level(value: float, levels: Sequence[str]) -> str:
    place = int(value)
    return levels[place] if levels and value == place and 0 <= place < len(levels) else f"{value:g}".replace("-", "−")


def _quiet(axes: Any, stripped: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis,) if stripped else (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(3))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    axes.tick_params(length=0)
    axes.grid(visible=True, axis="x")
    axes.spines[:].set(color=GRID)
