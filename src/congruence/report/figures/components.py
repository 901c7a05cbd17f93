"""Figures of independent components: the spectrum, the way of the solver, and how each component is spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import count, number, percent
from congruence.report.figures.scales import plain_decades
from congruence.report.figures.svg import GRID, HELD_OUT, INK, LINEAR, MUTED, NULL, Drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from congruence.ica.portraits import Portrait
    from congruence.ica.stabilities import CurvePoint
    from congruence.ica.unmix import Unmixing

MARKED = 40  # so many points are marked on a line; more would run together
SMALLEST = 1e-12  # what is drawn of turns and gradients that have vanished

__all__ = ["convergence", "portrait", "spectrum", "stability", "stability_curve"]


def spectrum(variances: Any, kept: int) -> Drawing:
    """Draw the share of the variance along each principal axis, falling, and how many axes are kept."""
    shares = 100 * np.asarray(variances, dtype=float) / np.sum(variances)
    axis = np.arange(1, len(shares) + 1)
    held = float(shares[:kept].sum()) / 100

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        mark = {"marker": "o", "markersize": 5} if len(shares) <= MARKED else {}
        style = {"linewidth": 2.5, "clip_on": False} | mark
        axes.plot(axis[kept - 1 :], shares[kept - 1 :], color=MUTED, **style, label="left out")
        axes.plot(axis[:kept], shares[:kept], color=HELD_OUT, **style, label=f"kept: {percent(held)} of the variance")
        axes.set(xlabel="principal axis", ylabel="% of the variance (log)", yscale="log")
        axes.set_xlim(0.5, len(shares) + 0.5)
        plain_decades(axes.yaxis, float(shares[-1]), float(shares[0]) * 1.001)
        axes.grid(axis="y")
        _whole_numbers(axes)
        if kept < len(shares):
            axes.axvline(kept + 0.5, color=INK, linewidth=1.5, dashes=(5, 2))
        handles, labels = axes.get_legend_handles_labels()
        shown = slice(None, None, -1) if kept < len(shares) else slice(1, None)
        figure.legend(handles[shown], labels[shown], loc="outside upper left", ncols=2)

    said = f"from {number(shares[0])} % to {number(shares[-1])} %; the first {kept} hold {percent(held)}"
    return Drawing(paint, (462, 300), key="spectrum", label=f"Share of the variance by principal axis: {said}")


def convergence(found: Unmixing, tolerance: float | None = None) -> Drawing:
    """Draw the largest turn and the largest gradient of every pass; dashed, the turn below which the solver rests."""
    passes = np.arange(1, found.iterations + 1)
    turns, gradients = (np.maximum(np.array(values), SMALLEST) for values in (found.changes, found.gradients))
    low, high = min(turns.min(), gradients.min()), max(turns.max(), gradients.max())

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        marked = len(passes) <= MARKED
        for values, colour, marker, name in (
            (turns, HELD_OUT, "o", "largest turn, radians"),
            (gradients, LINEAR, "s", "largest gradient"),
        ):
            dashes = (None, None) if marker == "o" else (4, 1.5)
            style = {"marker": marker, "markersize": 5} if marked else {}
            axes.plot(passes, values, color=colour, linewidth=2, dashes=dashes, label=name, **style)
        if found.switched:
            axes.axvline(found.switched + 0.5, color=MUTED, linewidth=1.5, dashes=(5, 2), label="L-BFGS takes over")
        if tolerance is not None:
            axes.axhline(tolerance, color=NULL, linewidth=2, dashes=(1, 1.2), label="turn to stop at")
        axes.set(xlabel="pass over the rows", yscale="log", ylabel="turn and gradient (log)")
        axes.set_xlim(0.5, max(len(passes), 2) + 0.5)
        plain_decades(axes.yaxis, low, high)
        axes.grid(axis="y")
        _whole_numbers(axes)
        figure.legend(loc="outside upper left", ncols=2)

    said = f"after {found.iterations} passes the components turned by {turns[-1]:.1e} radians"
    return Drawing(paint, (462, 320), key="convergence", label=f"The way of the solver: {said}")


def portrait(one: Portrait, name: str, edges: Any) -> Drawing:
    """Draw the histogram of a component, in standard deviations, beside the Gaussian of the same variance.

    The first and last bar also stand for the rows beyond.
    """
    width = edges[1] - edges[0]
    density = one.counts / (one.counts.sum() * width)
    x = np.linspace(edges[0], edges[-1], 81)
    gaussian = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        steps = np.repeat([0, *density, 0], 2)[1:-1]
        axes.fill_between(np.repeat(edges, 2), steps, color=HELD_OUT, alpha=0.35, linewidth=0)
        axes.plot(np.repeat(edges, 2), steps, color=HELD_OUT, linewidth=1.5)
        axes.plot(x, gaussian, color=NULL, linewidth=1.8, dashes=(3, 1.4))
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.08 * max(density.max(), gaussian.max())))
        axes.set_xticks([-4, -2, 0, 2, 4], ["−4", "−2", "0", "2", "4"])
        axes.set_yticks([])
        axes.spines["left"].set(visible=False)
        axes.spines["bottom"].set(color=GRID)

    return Drawing(paint, (205, 128), key=f"portrait {name}", label=f"Histogram of {name} beside a Gaussian")


def stability(rows: Sequence[Mapping[str, Any]], chance: float) -> Drawing:
    """Draw the correlation of each component with its partner on resampled rows: the median and its 90 % interval.

    Components that are not identified are hollow. The dotted line is what a random rotation reaches on average.
    """

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for sure, face, name in ((True, HELD_OUT, "identified, 90 % interval"), (False, "none", "not identified")):
            group = [(i, row) for i, row in enumerate(rows) if row["identified"] == sure]
            if group:
                at, middle = [i for i, _ in group], [row["median"] for _, row in group]
                axes.vlines(
                    at, [r["low"] for _, r in group], [r["high"] for _, r in group], color=HELD_OUT, linewidth=2
                )
                style = {"marker": "o", "linewidth": 0, "markersize": 6, "clip_on": False, "markeredgewidth": 1.6}
                axes.plot(at, middle, color=HELD_OUT, markerfacecolor=face, **style, label=name)
        if math.isfinite(chance):
            axes.axhline(chance, color=NULL, linewidth=2, dashes=(1, 1.2), label="chance")
        axes.set(ylim=(0, 1.02), xlim=(-0.7, len(rows) - 0.3), xlabel="component", ylabel="correlation with itself")
        axes.grid(axis="y")
        _whole_numbers(axes)
        figure.legend(loc="outside upper left", ncols=3)

    above = sum(row["identified"] and row["stable"] for row in rows)
    said = f"{above} of {count(len(rows), 'component')} come back; chance is {number(chance)}"
    return Drawing(paint, (900, 300), key="stability", label=f"Agreement of components on resampled rows: {said}")


def stability_curve(points: Sequence[CurvePoint]) -> Drawing:
    """Draw how many components can be told from noise, and how many come back, against how many are asked for."""
    asked = [point.n_components for point in points]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(asked, asked, color=MUTED, linewidth=1.5, dashes=(5, 2), label="asked for")
        style = {"linewidth": 2.5, "markersize": 7, "clip_on": False}
        told = [point.identified for point in points]
        axes.plot(asked, told, color=LINEAR, marker="s", dashes=(4, 1.5), label="told from noise", **style)
        axes.plot(asked, [point.stable for point in points], color=HELD_OUT, marker="o", label="come back", **style)
        axes.set(xlabel="components asked for", ylabel="components", ylim=(0, 1.05 * max(asked)))
        axes.grid(axis="y")
        axes.set_xticks(asked, [str(k) for k in asked])
        figure.legend(loc="outside upper left", ncols=3)

    said = "; ".join(
        f"of {p.n_components} components {p.identified} told from noise, {p.stable} come back" for p in points
    )
    return Drawing(paint, (535, 300), key="stability curve", label=f"Components that come back: {said}")


def _whole_numbers(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
