"""Curves: rows by how far they moved, errors along a training, learning curves, residuals of unpaired maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import number, percent
from congruence.report.figures.scales import error_axis, plain_decades, step_axis
from congruence.report.figures.svg import ABOVE, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, Drawing

if TYPE_CHECKING:
    from congruence.translation.certificate import CurvePoint, SizePoint
    from congruence.translation.result import RowMatching

RANKS = 160  # drawn of a curve of rows
MARKS = 24  # drawn on a line along the training
GROUPS = {
    "identity": (MUTED, "s"),
    "permutation": (SOURCE, "D"),
    "rigid": (INK, "^"),
    "similarity": (HELD_OUT, "o"),
    "ridge": (LINEAR, "<"),
    "ridge_similarity": (LINEAR, ">"),
    "linear": (LINEAR, "v"),
    "ica": (ICA, "P"),
}
RECALL_LINE = {"color": HELD_OUT, "marker": "o", "markersize": 7, "linewidth": 2.5, "clip_on": False}
CHANCE: dict[str, Any] = {"color": NULL, "linewidth": 2, "dashes": (1, 1.2)}


def moved_curve(falling: Any, judged: bool, names: Sequence[str]) -> Drawing:
    """Draw how far rows moved, from the one that moved most, against their rank.

    `falling` holds the disagreement of all rows, largest first, as shares of chance or, if not `judged` by a null, of
    the diameter. The ranks are logarithmic, so that the few rows that
    moved most are visible among a million.
    """
    n = len(falling)
    ranks = np.unique(np.geomspace(1, n, RANKS).round().astype(int))
    median, unit = float(np.median(falling)), "chance" if judged else "the diameter"

    def paint(axes: Any) -> None:
        chance = [1.0] if judged else []
        error_axis(axes, [*falling[[0, n // 2, int(0.99 * (n - 1))]], *chance], f"disagreement, % of {unit}")
        axes.plot(ranks, 100 * falling[ranks - 1], color=HELD_OUT, linewidth=2.5, label="a row")
        axes.axhline(100 * median, color=MUTED, linewidth=1.5, dashes=(5, 2), label="the median row")
        if judged:
            axes.axhline(100, **CHANCE, label="chance")
        axes.set(xscale="log", xlim=(1 / 1.1, 1.1 * n), xlabel="rows, from the one that moved most (log)")
        plain_decades(axes.xaxis, 1, n)
        axes.legend(**ABOVE, ncols=3)

    summary = f"from {percent(float(falling[0]))} to {percent(float(falling[-1]))}, median {percent(median)}"
    return Drawing(
        paint,
        (535, 300),
        label=f"Disagreement of the runs about each of {n} rows, as a share of {unit}: {summary}",
    )


def training_curves(points: Sequence[Mapping[str, Any]], groups: Sequence[str], judged: bool = True) -> Drawing:
    """Draw the held-out error of each checkpoint, by group: onto the last (solid) and onto the next (dashed).

    `points` are those of `Comparison.series` but the last. Errors are in % of chance (dotted) or, if not `judged` by a
    null, in % of the diameter.
    """
    steps = [point["step"] for point in points]
    unit, key = ("chance", "") if judged else ("the target's diameter", "_diameter")
    directions = {
        "onto the last checkpoint": [point[f"to_last{key}"] for point in points],
        "onto the next checkpoint": [point[f"to_next{key}"] for point in points],
    }
    all_errors = [error for errors in directions.values() for onto in errors for error in onto.values()]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        error_axis(panels[0], [*all_errors, *([1.0] if judged else [])], f"error, % of {unit}")
        for axes, (title, errors), solid in zip(panels, directions.items(), (True, False), strict=True):
            axes.set_title(title, loc="left")
            axes.grid(visible=True, axis="y")
            for group in groups:
                _group_line(axes, steps, [100 * onto.get(group, math.nan) for onto in errors], group, solid)
            if judged:
                axes.axhline(100, **CHANCE, label="chance")
            step_axis(axes, steps)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper left", ncols=len(groups) + 1)

    return Drawing(
        paint,
        (900, 340),
        label=f"Held-out error of {len(points)} checkpoints along the training, onto the last and onto the next",
        panels=True,
    )


def _group_line(axes: Any, steps: Sequence[float], errors: Sequence[float], group: str, solid: bool) -> None:
    colour, marker = GROUPS.get(group, (INK, "x"))
    style = {"linewidth": 2, "markersize": 6, "markevery": max(1, len(steps) // MARKS)}
    dashes = (None, None) if solid else (3, 1.6)
    axes.plot(steps, errors, color=colour, marker=marker, dashes=dashes, label=group, **style)


def learning_curve(curve: Sequence[CurvePoint], n: int, require: float) -> Drawing:
    """Draw the held-out recall@10 of maps fitted on increasing numbers of paired rows, with its range over draws.

    The dashed vertical line is at n, the rows that the translator itself was fitted on; the dotted one is the required
    recall.
    """

    def paint(axes: Any) -> None:
        _recall_line(axes, curve, [point.mean for point in curve], **RECALL_LINE, label="held out, range of draws")
        axes.axvline(n, color=INK, linewidth=1.5, dashes=(5, 2), label=f"all {n} rows")
        _recall_axes(axes, require, (curve[0].rows, n), "paired rows the map is fitted on (log)")

    summary = "; ".join(f"{percent(point.mean)} with {point.rows} rows" for point in curve)
    return Drawing(paint, (535, 320), label=f"Recall@10 against paired rows: {summary}")


def recall_by_size(points: Sequence[SizePoint], require: float) -> Drawing:
    """Draw the recall@10 against the index size, with intervals; extrapolated points are hollow and dashed."""
    known = [point for point in points if not point.extrapolated]
    beyond = [known[-1], *(point for point in points if point.extrapolated)]

    def paint(axes: Any) -> None:
        for some, style, label in (
            (known, RECALL_LINE, "measured"),
            (beyond, RECALL_LINE | {"markerfacecolor": "white", "dashes": (3, 1.6), "zorder": 1}, "extrapolated"),
        ):
            if len(some) < 2 and label == "extrapolated":
                continue
            _recall_line(axes, some, [point.recall for point in some], **style, label=label)
        _recall_axes(axes, require, (points[0].rows, points[-1].rows), "vectors in the index (log)")

    summary = "; ".join(
        f"{percent(point.recall)} of {point.rows}{' (extrapolated)' if point.extrapolated else ''}" for point in points
    )
    return Drawing(paint, (535, 320), label=f"Recall@10 against the index size: {summary}")


def _recall_line(axes: Any, points: Sequence[Any], recall: Sequence[float], **style: Any) -> None:
    """Draw the recall against the rows of points, with the band between their low and high ends."""
    rows, ends = [point.rows for point in points], 100 * np.array([(point.low, point.high) for point in points])
    axes.fill_between(rows, *ends.T, color=HELD_OUT, alpha=0.18, linewidth=0)
    axes.plot(rows, 100 * np.array(recall), **style)


def _recall_axes(axes: Any, require: float, ends: tuple[int, int], what: str) -> None:
    if math.isfinite(require):
        axes.axhline(100 * require, **CHANCE, label=f"required, {100 * require:g} %")
    axes.set(xscale="log", xlim=(ends[0] / 1.2, 1.2 * ends[1]), ylim=(0, 103), xlabel=what, ylabel="recall@10, %")
    plain_decades(axes.xaxis, *ends)
    axes.grid(axis="y")
    axes.legend(**ABOVE, ncols=3)


def matching_residuals(matching: RowMatching) -> Drawing:
    """Draw the residual of an unpaired map between that of one model with itself and those of its nulls."""
    rival = [] if math.isnan(matching.rival) else [matching.rival]
    lines: dict[str, tuple[Sequence[float], dict[str, Any]]] = {
        "same model": ([matching.same_model], {"color": INK, "marker": "D"}),
        "this map": ([matching.residual], {"color": HELD_OUT, "marker": "o"}),
        "best different map": (rival, {"color": HELD_OUT, "marker": "o", "markerfacecolor": "none"}),
    }
    nulls = {f"{kind} (null)": (draws, {"color": NULL, "marker": "|"}) for kind, draws in matching.nulls.items()}
    drawn = {name: line for name, line in (lines | nulls).items() if line[0]}

    def paint(axes: Any) -> None:
        for place, (values, style) in enumerate(drawn.values()):
            size = 14 if style["marker"] == "|" else 9
            axes.plot(values, [place] * len(values), linewidth=0, markersize=size, markeredgewidth=2, **style)
        axes.axvline(matching.residual, color=HELD_OUT, linewidth=1, dashes=(5, 2))
        axes.set(yticks=range(len(drawn)), yticklabels=list(drawn), ylim=(len(drawn) - 0.5, -0.5))
        axes.set(xlabel="residual (distance to the nearest row; smaller is better)")
        axes.margins(x=0.06)
        axes.grid(axis="x")

    summary = "; ".join(f"{name} {number(sum(values) / len(values))}" for name, (values, _) in drawn.items())
    return Drawing(paint, (700, 260), label=f"Mean residuals: {summary}")
