"""Figures of independent components: spectrum, convergence, histograms, negentropy and stability."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import count, elided, number, percent
from congruence.report.figures.scales import outline, plain_decades
from congruence.report.figures.svg import ABOVE, GRID, HELD_OUT, INK, LINEAR, MUTED, NULL, Drawing, add_hover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from congruence.ica.components import Unmixing
    from congruence.ica.results import StabilityPoint

LETTERS = 30  # of the name of a feature
MARKED = 40  # largest number of points on a line that are marked
SMALLEST = 1e-12  # lower limit of angles, gradients and negentropies on a log scale


def variance_spectrum(variances: Any, kept: int) -> Drawing:
    """Draw the share of the variance along each principal axis, in decreasing order, and the number of axes kept."""
    shares = 100 * np.asarray(variances, dtype=float) / np.sum(variances)
    axis = np.arange(1, len(shares) + 1)
    share = float(shares[:kept].sum()) / 100

    def paint(axes: Any) -> None:
        mark = {"marker": "o", "markersize": 5} if len(shares) <= MARKED else {}
        style = {"linewidth": 2.5, "clip_on": False} | mark
        axes.plot(axis[kept - 1 :], shares[kept - 1 :], color=MUTED, **style, label="left out")
        axes.plot(axis[:kept], shares[:kept], color=HELD_OUT, **style, label=f"kept: {percent(share)} of the variance")
        axes.set(xlabel="principal axis", ylabel="% of the variance (log)", yscale="log")
        axes.set_xlim(0.5, len(shares) + 0.5)
        plain_decades(axes.yaxis, float(shares[-1]), float(shares[0]) * 1.001)
        axes.grid(axis="y")
        _whole_numbers(axes)
        if kept < len(shares):
            axes.axvline(kept + 0.5, color=INK, linewidth=1.5, dashes=(5, 2))
        handles, labels = axes.get_legend_handles_labels()
        order = slice(None, None, -1) if kept < len(shares) else slice(1, None)
        axes.legend(handles[order], labels[order], **ABOVE, ncols=2)

    summary = f"from {number(shares[0])} % to {number(shares[-1])} %; the first {kept} hold {percent(share)}"
    label = f"Share of the variance by principal axis: {summary}"
    return Drawing(paint, (462, 300), label=label)


def solver_convergence(unmixing: Unmixing, tolerance: float | None = None) -> Drawing:
    """Draw the largest rotation and the largest gradient of every pass; dotted, the tolerance."""
    passes = np.arange(1, unmixing.iterations + 1)
    rotations, gradients = (np.maximum(np.array(values), SMALLEST) for values in (unmixing.changes, unmixing.gradients))
    low, high = min(rotations.min(), gradients.min()), max(rotations.max(), gradients.max())

    def paint(axes: Any) -> None:
        marked = len(passes) <= MARKED
        for values, colour, marker, name in (
            (rotations, HELD_OUT, "o", "largest rotation, radians"),
            (gradients, LINEAR, "s", "largest gradient"),
        ):
            dashes = (None, None) if marker == "o" else (4, 1.5)
            style = {"marker": marker, "markersize": 5} if marked else {}
            axes.plot(passes, values, color=colour, linewidth=2, dashes=dashes, label=name, **style)
        if unmixing.switched:
            axes.axvline(unmixing.switched + 0.5, color=MUTED, linewidth=1.5, dashes=(5, 2), label="switch to L-BFGS")
        if tolerance is not None:
            axes.axhline(tolerance, color=NULL, linewidth=2, dashes=(1, 1.2), label="tolerance of the rotation")
        axes.set(xlabel="pass over the rows", yscale="log", ylabel="rotation and gradient (log)")
        axes.set_xlim(0.5, max(len(passes), 2) + 0.5)
        plain_decades(axes.yaxis, low, high)
        axes.grid(axis="y")
        _whole_numbers(axes)
        axes.legend(**ABOVE, ncols=2)

    summary = f"after {unmixing.iterations} passes the largest rotation is {rotations[-1]:.1e} radians"
    return Drawing(paint, (462, 320), label=f"Convergence: {summary}")


def component_histogram(counts: Any, name: str, edges: Any) -> Drawing:
    """Draw the histogram of a component, in standard deviations, and a Gaussian of the same variance.

    The first and last bar include the rows beyond.
    """
    width = edges[1] - edges[0]
    density = counts / (counts.sum() * width)
    x = np.linspace(edges[0], edges[-1], 81)
    gaussian = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    def paint(axes: Any) -> None:
        axes.stairs(density, edges, color=HELD_OUT, alpha=0.35, fill=True)
        outline(axes, density, edges, color=HELD_OUT, linewidth=1.5)
        axes.plot(x, gaussian, color=NULL, linewidth=1.8, dashes=(3, 1.4))
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.08 * max(density.max(), gaussian.max())))
        axes.set_xticks([-4, -2, 0, 2, 4], ["−4", "−2", "0", "2", "4"])
        axes.set_yticks([])
        axes.spines["left"].set(visible=False)
        axes.spines["bottom"].set(color=GRID)

    label = f"Histogram of {name}, and a Gaussian"
    return Drawing(paint, (205, 128), label=label)


def component_loadings(loadings: Sequence[tuple[str, float]], name: str) -> Drawing:
    """Draw the correlations of features with a component as bars, the largest on top."""
    names = elided([feature for feature, _ in loadings], LETTERS)
    values = [value for _, value in loadings]
    at = range(len(values))

    def paint(axes: Any) -> None:
        for sign, colour in ((1, HELD_OUT), (-1, LINEAR)):
            some = [i for i in at if (values[i] < 0) == (sign < 0)]
            axes.barh(some, [values[i] for i in some], color=colour, alpha=0.75, height=0.62)
        for i, value in zip(at, values, strict=True):
            side, shift = ("left", 3) if value >= 0 else ("right", -3)
            text, style = f"{value:+.2f}".replace("-", "−"), {"va": "center", "ha": side, "color": INK, "fontsize": 11}
            axes.annotate(text, (value, i), (shift, 0), textcoords="offset points", **style)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(list(at), names)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set(visible=False)
        low, high = -1.25 * (min(values) < 0), 1.25 * (max(values) > 0)
        axes.set(xlim=(low, high or 0.01), ylim=(len(values) - 0.4, -0.6), xlabel="correlation with the component")
        axes.set_xticks([x for x in (-1, -0.5, 0, 0.5, 1) if low <= x <= high])
        axes.grid(axis="x")

    summary = ", ".join(f"{feature} {number(value)}" for feature, value in loadings)
    label = f"Features with the largest correlations with {name}: {summary}"
    return Drawing(paint, (462, 86 + 27 * len(values)), label=label)


def component_negentropy(negentropy: Sequence[float], identified: Sequence[bool]) -> Drawing:
    """Draw the negentropy of each component on a log scale; components that are not identified are hollow."""
    values = np.maximum(np.asarray(negentropy, dtype=float), SMALLEST)

    def paint(axes: Any) -> None:
        _dots(axes, values, identified, ("identified", "not identified"))
        axes.set(xlabel="component", ylabel="negentropy (log)", yscale="log", xlim=(-0.7, len(values) - 0.3))
        plain_decades(axes.yaxis, float(values.min()), float(values.max()) * 1.001)
        axes.grid(axis="y")
        _whole_numbers(axes)
        axes.legend(**ABOVE, ncols=2)

    summary = f"{sum(identified)} of {count(len(values), 'component')} identified"
    label = f"Negentropy of each component: {summary}"
    return Drawing(paint, (900, 260), label=label)


def component_agreement(
    middle: Sequence[float], low: Sequence[float], high: Sequence[float], identified: Sequence[bool], chance: float
) -> Drawing:
    """Draw the correlation of each component with its partner in other fits, with its interval.

    Components that are not identified are hollow. The dotted line is the mean for a random rotation.
    """

    def paint(axes: Any) -> None:
        axes.vlines(range(len(middle)), low, high, color=HELD_OUT, linewidth=2)
        _dots(axes, middle, identified, ("identified, with its interval", "not identified"))
        if math.isfinite(chance):
            axes.axhline(chance, color=NULL, linewidth=2, dashes=(1, 1.2), label="chance")
        axes.set(ylim=(0, 1.02), xlim=(-0.7, len(middle) - 0.3), xlabel="component", ylabel="|correlation|")
        axes.grid(axis="y")
        _whole_numbers(axes)
        axes.legend(**ABOVE, ncols=3)

    summary = f"{count(len(middle), 'component')}, lowest {number(min(middle, default=math.nan))}"
    label = f"Correlation of components with their partners in other fits: {summary}; chance is {number(chance)}"
    return Drawing(paint, (900, 300), label=label)


def component_curve(points: Sequence[StabilityPoint]) -> Drawing:
    """Draw how many components are distinguishable from noise, and how many are stable, against their number."""
    sizes = [point.n_components for point in points]

    def paint(axes: Any) -> None:
        axes.plot(sizes, sizes, color=MUTED, linewidth=1.5, dashes=(5, 2), label="all")
        style = {"linewidth": 2.5, "markersize": 7, "clip_on": False}
        known = [point.identified for point in points]
        axes.plot(sizes, known, color=LINEAR, marker="s", dashes=(4, 1.5), label="not noise", **style)
        axes.plot(sizes, [point.stable for point in points], color=HELD_OUT, marker="o", label="stable", **style)
        axes.set(xlabel="number of components", ylabel="components", ylim=(0, 1.05 * max(sizes)))
        axes.grid(axis="y")
        axes.set_xticks(sizes, [str(k) for k in sizes])
        axes.legend(**ABOVE, ncols=3)

    summary = "; ".join(f"of {p.n_components} components {p.identified} not noise, {p.stable} stable" for p in points)
    label = f"Stable components by their number: {summary}"
    return Drawing(paint, (535, 300), label=label)


def _dots(axes: Any, values: Sequence[float], filled: Sequence[bool], names: tuple[str, str]) -> None:
    """Draw a disc for each component, hollow where it is not identified."""
    style = {"marker": "o", "linewidth": 0, "markersize": 6, "clip_on": False, "markeredgewidth": 1.6}
    for sure, face, name in ((True, HELD_OUT, names[0]), (False, "none", names[1])):
        at = [i for i, known in enumerate(filled) if bool(known) == sure]
        if at:
            axes.plot(at, [values[i] for i in at], color=HELD_OUT, markerfacecolor=face, **style, label=name)
    texts = [f"ica{i}, {names[0 if filled[i] else 1].split(',')[0]}: {number(float(x))}" for i, x in enumerate(values)]
    add_hover(axes, list(enumerate(values)), texts)


def _whole_numbers(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
