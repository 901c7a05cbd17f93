"""The figures of `statistical_versus_structural`: lines on a curve, errors against what is shown, and codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.experiments.recipes.statistical_versus_structural import regression
from congruence.experiments.recipes.statistical_versus_structural.claims import best, worst
from congruence.formatting import number, percent
from congruence.maps.groups import fit_map
from congruence.report.figures.scales import error_axis, plain_decades
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, NULL, SOURCE

if TYPE_CHECKING:
    from congruence.experiments.recipes.statistical_versus_structural.run import MaskingLevel

POINTS = 250  # rows drawn of a scatter


def draw_regression(fits: regression.LineFits, seed: int) -> RecipeFigure:
    """Draw the curve with lines fitted to it, and the distances of such lines against the number of rows."""
    x, y = regression.draw_rows(POINTS, np.random.default_rng(seed))

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        grid = regression.GRID[::20]
        left.plot(x, y, "o", color=MUTED, markersize=3, alpha=0.5, markeredgewidth=0)
        left.plot(grid, regression.truth(grid), color=INK, linewidth=2.5, label="the truth")
        for i, (a, b) in enumerate(fits.lines):
            name = f"{len(fits.lines)} fits, {fits.sizes[1]} rows each" if i == 0 else None
            left.plot([-1, 1], [a - b, a + b], color=HELD_OUT, linewidth=1.2, alpha=0.6, label=name)
        left.set(xlabel="x", ylabel="y")
        left.set_xticks([-1, 0, 1], ["−1", "0", "1"])
        left.legend(loc="upper left")
        for values, colour, marker, name in (
            (fits.to_truth, INK, "s", "from the truth"),
            (fits.between, HELD_OUT, "o", "between two fits"),
            (fits.to_nearest, LINEAR, "v", "from the nearest line"),
            (fits.right, SOURCE, "D", "right model, from the truth"),
        ):
            dashes = (3, 1.6) if marker == "D" else (None, None)
            right.plot(fits.sizes, values, color=colour, marker=marker, linewidth=2, dashes=dashes, label=name)
        right.set(xscale="log", yscale="log", xlabel="rows fitted on (log)", ylabel="largest distance (log)")
        low = float(min(values.min() for values in (fits.between, fits.to_nearest, fits.right)))
        right.set_ylim(low / 1.5, 40 * float(fits.to_truth.max()))  # room for the legend
        plain_decades(right.xaxis, float(fits.sizes[0]), float(fits.sizes[-1]))
        plain_decades(right.yaxis, low, float(fits.to_truth.max()))
        right.grid(axis="y")
        right.legend(loc="upper left", ncols=2)

    return draw_figure(
        "regression",
        paint,
        (900, 360),
        f"Lines fitted to a curve: two fits to {fits.sizes[-1]} rows differ by {number(fits.between[-1])} and miss the "
        f"truth by {number(fits.to_truth[-1])}",
        "Left: lines fitted to different data, and the curve that generated the data. Right: their distances.",
    )


def draw_masking(levels: Sequence[MaskingLevel]) -> RecipeFigure:
    """Draw how far codes are from other runs and from the factors, against how many patches are shown."""
    at = list(range(len(levels)))
    series = (
        ("codes onto the factors", INK, "s", [[one.held_out.mean for one in level.rigid] for level in levels]),
        ("codes of two runs", HELD_OUT, "o", [[one.held_out.mean for one in level.codes] for level in levels]),
    )
    nulls = [min(one.null for one in level.rigid) for level in levels]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        shown = [value for _, _, _, values in series for one in values for value in one]
        error_axis(axes, [*shown, *nulls], "error, % of the diameter")
        for name, colour, marker, values in series:
            axes.plot(at, [100 * np.mean(one) for one in values], color=colour, linewidth=2, label=name)
            for i, one in zip(at, values, strict=True):
                axes.plot([i] * len(one), 100 * np.array(one), marker, color=colour, markersize=6, clip_on=False)
        for i, level in zip(at, levels, strict=True):
            if level.expected and level.least is not None:
                onto = [100 * one.held_out.mean for one in level.expected]
                axes.plot([i] * len(onto), onto, "v", color=LINEAR, markersize=7, label="codes onto E[factors | shown]")
                style = {"color": SOURCE, "linewidth": 2.5, "label": "E[factors | shown] itself"}
                axes.plot([i - 0.2, i + 0.2], [100 * level.least] * 2, **style)
        axes.plot(at, [100 * null for null in nulls], color=NULL, linewidth=2, dashes=(1, 1.2), label="null (chance)")
        axes.set_xticks(at, [str(level.visible) for level in levels])
        axes.set(xlabel="patches shown, of 6", xlim=(-0.4, len(levels) - 0.6))
        figure.legend(loc="outside upper left", ncols=3)

    summary = [
        f"with {one.visible} shown, {percent(worst(one.codes))} between runs and {percent(best(one.rigid))} to the "
        "factors"
        for one in levels
    ]
    return draw_figure(
        "masking",
        paint,
        (700, 380),
        f"Error after the best rotation: {'; '.join(summary)}",
        "How far codes are from those of another run, and from the factors, when fewer patches are shown.",
    )


def draw_codes(factors: Float, runs: Sequence[dict[str, Array]]) -> RecipeFigure:
    """Draw the first coordinate of codes, rotated, against another run and against the true factor."""
    first, second = runs[0]["codes"], runs[1]["codes"]
    turned = fit_map(first, factors, "rigid")  # axes that could be those of the factors
    other = fit_map(second, first, "rigid").then(turned)(second)[:, 0]
    one, true = turned(first)[:, 0], factors[:, 0]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, target, title, colour in (
            (panels[0], other, "another run", HELD_OUT),
            (panels[1], true, "the true factor", INK),
        ):
            axes.plot([-1, 1], [-1, 1], color=MUTED, linewidth=1.5, dashes=(5, 2))
            axes.plot(one[:POINTS], target[:POINTS], "o", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)
            axes.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xlabel="code of one run, rotated")
            axes.set_xticks([-1, 0, 1], ["−1", "0", "1"])
            axes.set_yticks([-1, 0, 1], ["−1", "0", "1"])
            axes.set_title(title, loc="left")
        panels[0].set_ylabel("the same pictures there")

    spread = [float(np.corrcoef(one, target)[0, 1]) for target in (other, true)]
    return draw_figure(
        "codes",
        paint,
        (700, 380),
        f"A code against another run (correlation {spread[0]:.3f}) and against the true factor ({spread[1]:.3f})",
        "With two of six patches shown, one coordinate of the code of one run against the same coordinate of another "
        f"run (correlation {spread[0]:.3f}) and against the true factor ({spread[1]:.3f}).",
    )
