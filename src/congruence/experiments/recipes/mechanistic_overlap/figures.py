"""The figures of `mechanistic-overlap`: SIS and loss against overlap, and dependent latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.experiments.recipes.claims import over_seeds
from congruence.experiments.recipes.mechanistic_overlap.trainings import Densities, OverlapGrid
from congruence.experiments.recipes.result import RecipeFigure, draw_figure, paint_panels
from congruence.formatting import number
from congruence.report.figures.scales import plain_decades
from congruence.report.figures.svg import HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE

MARKS = ((HELD_OUT, "o"), (SOURCE, "D"), (LINEAR, "v"))  # by strength
SHIFT = 0.012  # of the width of the axis, between strengths


def draw_figures(grids: Sequence[OverlapGrid], densities: Densities | None) -> tuple[RecipeFigure, ...]:
    """All figures."""
    figures = [draw_scores(grids)]
    if not grids[0].published:  # else the loss of the truth depends on the scale of its latents
        figures.append(draw_losses(grids))
    return (*figures, draw_densities(densities)) if densities is not None else tuple(figures)


def draw_scores(grids: Sequence[OverlapGrid]) -> RecipeFigure:
    """SIS against overlap: selected with intervals, the mean over restarts, every restart, and the true latents."""
    summary = "; ".join(
        f"{grid.title} {', '.join(number(value, 2) for value in grid.selected(grid.sis)[:, 0].mean(1))}"
        for grid in grids
    )
    return draw_figure(
        "sis-by-overlap",
        lambda figure: paint_panels(figure, grids, _scores, "SIS", 3, sharey=True),
        (320 * len(grids) + 40, 400),
        f"SIS of selected restarts from no overlap to the largest, weaker strength: {summary}",
        "Selected by loss, mean over data seeds with 95 % intervals (solid); mean over all restarts (dashed); every "
        "restart (dots); the score of the true latents (dotted).",
    )


def _scores(axes: Any, grid: OverlapGrid) -> None:
    at, chosen = np.array(grid.overlaps), grid.selected(grid.sis)
    width = SHIFT * max(float(at.max()), 0.1)
    for j, strength in enumerate(grid.strengths):
        colour, marker = MARKS[j % len(MARKS)]
        x = at + (2 * j - len(grid.strengths) + 1) * width
        means = chosen[:, j].mean(1)
        ends = np.array([over_seeds(row)[1:] for row in chosen[:, j]])  # (overlaps, 2)
        every = grid.sis[:, j].reshape(len(at), -1)
        axes.plot(np.repeat(x, every.shape[1]), every.ravel(), ".", color=colour, markersize=3, alpha=0.35)
        axes.vlines(x, ends[:, 0], ends[:, 1], color=colour, linewidth=1.5)
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6}
        axes.plot(x, means, linewidth=2, label=f"λ = {strength:g}, selected", **style)
        hollow = style | {"markerfacecolor": "none", "dashes": (3, 1.6)}
        axes.plot(x, grid.sis[:, j].mean((1, 2)), linewidth=1.3, label=f"λ = {strength:g}, all restarts", **hollow)
    axes.plot(at, grid.ceiling.mean(1), color=MUTED, linewidth=1.5, dashes=(1, 1.2), label="the true latents")
    axes.set(xlabel="overlap with a neighbour", ylim=(min(-0.05, float(grid.sis.min())), 1.05))
    axes.set_title(grid.title, loc="left")


def draw_losses(grids: Sequence[OverlapGrid]) -> RecipeFigure:
    """The loss of each restart over that of the true generator, against its SIS over that of the true latents."""

    def paint(figure: Any) -> None:
        first, *_ = paint_panels(figure, grids, _losses, "SIS over the truth's", 2, sharex=True, sharey=True)
        plain_decades(first.xaxis, *first.get_xlim())

    return draw_figure(
        "loss-and-sis",
        paint,
        (320 * len(grids) + 40, 380),
        "Loss and SIS of every restart",
        "Every restart with overlap. Right of the line a solution with a lower loss is known: the true generator. Left "
        "of it nothing is known, since a nonlinear map inside a slot can lower the contrast of the truth, too.",
    )


def _losses(axes: Any, grid: OverlapGrid) -> None:
    for j, strength in enumerate(grid.strengths):
        colour, marker = MARKS[j % len(MARKS)]
        truth = strength * grid.truth[1:, :, None]  # without overlap it is 0
        ratio = (grid.loss[1:, j] / truth).ravel()
        share = (grid.sis[1:, j] / grid.ceiling[1:, :, None]).ravel()
        axes.plot(ratio, share, marker, color=colour, markersize=4, alpha=0.5, label=f"λ = {strength:g}")
    axes.axvline(1.0, color=INK, linewidth=1.2, dashes=(3, 1.6))
    axes.set(xlabel="loss over the truth's (log)", xscale="log")
    axes.set_title(grid.title, loc="left")


def draw_densities(densities: Densities) -> RecipeFigure:
    """SIS against how much latents depend on each other: that of the contrast stays, that of ICA does not."""
    at = densities.dependence.mean(1)
    series = (
        ("trained with the contrast, selected", densities.selected, HELD_OUT, "o"),
        ("ICA of a linear mixture of the latents", densities.ica_mixture, ICA, "P"),
        ("ICA of the observations", densities.ica_observed, NULL, "X"),
    )

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        for name, values, colour, marker in series:
            share = densities.share(values)
            left.plot(densities.dependence.ravel(), share.ravel(), marker, color=colour, markersize=4, alpha=0.5)
            left.plot(at, share.mean(1), color=colour, marker=marker, markersize=7, linewidth=2, label=name)
        left.set(xlabel="largest correlation between the slots", ylabel="SIS over the truth's", ylim=(-0.05, 1.1))
        left.grid(axis="y")
        right.plot(densities.dependence.ravel(), densities.margin.ravel(), "o", color=INK, markersize=5)
        right.set(xlabel="largest correlation", ylabel="margin of Type D", ylim=(-0.05, 0.5))
        right.set_title("0: disjoint, at any density", loc="left")
        right.grid(axis="y")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=3)

    summary = ", ".join(number(value, 2) for value in densities.share(densities.selected).mean(1))
    return draw_figure(
        "densities",
        paint,
        (860, 380),
        f"SIS over the truth's, more and more dependent: {summary}",
        "Trained on increasingly dependent latents (covariances from Wishart distributions), scored on independent "
        "ones. The supports of the slots (right) do not change with the density. ICA searches for independent "
        "variates, which are no longer the slots.",
    )
