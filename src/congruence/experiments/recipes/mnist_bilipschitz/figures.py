"""The figures of `mnist_bilipschitz`: errors against constants, and constants and reconstructions by leak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.experiments.recipes._isometry import line_term, root_term
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.formatting import number, percent
from congruence.report.figures.svg import HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE

if TYPE_CHECKING:
    from congruence.experiments.recipes.mnist_bilipschitz.run import LeakExperiment

MARKS = ((SOURCE, "D"), (NULL, "s"), (HEAT, "P"), (ICA, "^"), (LINEAR, "v"), (HELD_OUT, "o"))  # by leak
SHOWN = {"mean": "constant, mean over samples", "max": "constant, largest over samples"}


def draw_errors(experiment: LeakExperiment) -> RecipeFigure:
    """Draw the error of each pair against its constant, samplewise and max, with both fitted curves."""

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        _from_zero(panels[0], experiment)
        for axes, how in zip(panels, ("mean", "max"), strict=True):
            _scatter(axes, experiment, how)
            axes.grid(axis="y")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)

    summary = "; ".join(f"{how}: rank correlation {number(experiment.relations[how].rank.value, 2)}" for how in SHOWN)
    return draw_figure(
        "error-by-constant",
        paint,
        (900, 400),
        f"Error of pairs against the constant of their decoders ({summary})",
        "Each mark is a pair of trainings. Left: the mean constant over samples, as in figure 2 of the paper; right: "
        "the largest, as in figure A.4. The curves go through 0 at constant 1, where decoders are isometries.",
    )


def _from_zero(axes: Any, experiment: LeakExperiment) -> None:
    """Errors on a linear axis, however far apart: the curves start at 0."""
    top = 100 * max((pair.error for pair in experiment.chosen), default=0.0)
    axes.set(ylabel="error, % of the diameter", ylim=(0, 1.12 * top or 1.0))


def _scatter(axes: Any, experiment: LeakExperiment, how: str) -> None:
    n = len(experiment.leaks)
    for i, leak in enumerate(experiment.leaks):
        colour, marker = MARKS[(i - n) % len(MARKS)]  # the last one is always that of linear networks
        here = experiment.at(leak)
        at, errors = [pair.constant[how] for pair in here], [100 * pair.error for pair in here]
        style = {"color": colour, "markersize": 6, "alpha": 0.85, "clip_on": not here}  # no marks, no place for them
        axes.plot(at, errors, marker, label=f"leak {leak:g}", **style)
    end = max([1.1, *(pair.constant[how] for pair in experiment.chosen)])
    axes.set_xlim(1 - 0.03 * (end - 1), 1 + 1.03 * (end - 1))
    grid = np.linspace(1, end, 200)
    relation = experiment.relations[how]
    root, line = relation.root[0] * root_term(grid), relation.line[0] * line_term(grid)
    axes.plot(grid, 100 * root, color=INK, linewidth=2, label="a·√(Λ² − 1)")
    axes.plot(grid, 100 * line, color=MUTED, linewidth=2, dashes=(3, 1.6), label="a·(Λ − 1)")
    axes.set_xlabel(SHOWN[how])
    axes.set_title(f"R² = {number(relation.root[1], 2)} and {number(relation.line[1], 2)}", loc="left")


def draw_constants(experiment: LeakExperiment) -> RecipeFigure:
    """Draw how constants are distributed over samples, by leak: exact and from ten directions."""
    constants = experiment.constants
    assert constants is not None
    series = (("exact", INK, "o", -0.12), ("sampled", HELD_OUT, "s", 0.12))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, colour, marker, shift in series:
            for i, (low, high, mean, top) in enumerate(constants[name]):
                axes.plot([i + shift] * 2, [low, high], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
                label = {"exact": "all directions", "sampled": "ten random directions"}[name] if i == 0 else None
                axes.plot([i + shift], [mean], marker, color=colour, markersize=7, label=label)
                axes.plot([i + shift], [top], "x", color=colour, markersize=7)
        axes.axhline(1, color=MUTED, linewidth=1.2, dashes=(5, 2), label="an isometry")
        axes.set_xticks(range(len(experiment.leaks)), [f"{leak:g}" for leak in experiment.leaks])
        axes.set(xlabel="leak", ylabel="constant of the decoder")
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=3)

    means = zip(experiment.leaks, constants["exact"][:, 2], strict=True)
    summary = ", ".join(f"{number(float(mean))} at leak {leak:g}" for leak, mean in means)
    return draw_figure(
        "constant-by-leak",
        paint,
        (700, 380),
        f"Constants of decoders by leak, means: {summary}",
        "Constants of all decoders at all samples (figure A.3 of the paper): mean, the middle 90 % as a bar, and the "
        "largest as a cross. Ten random directions give lower values than all.",
    )


def draw_reconstruction(experiment: LeakExperiment) -> RecipeFigure:
    """Draw the reconstruction errors of all trainings by leak, the limit of the filter and the best linear one."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        kept = {id(pair) for pair in experiment.chosen}
        for i, leak in enumerate(experiment.leaks):
            there = [pair for pair in experiment.pairs if pair.leak == leak]
            for chosen, marker, colour, name in ((True, "o", HELD_OUT, "kept"), (False, "x", NULL, "dropped")):
                values = [v for pair in there if (id(pair) in kept) is chosen for v in pair.reconstruction]
                shift = np.linspace(-0.15, 0.15, len(values)) if len(values) > 1 else [0.0] * len(values)
                style = {"color": colour, "markersize": 6, "label": name if i == 0 else None}
                axes.plot([i + s for s in shift], values, marker, **style)
        axes.axhline(experiment.limit, color=INK, linewidth=1.5, dashes=(3, 1.6), label="limit of the filter")
        axes.axhline(experiment.best, color=MUTED, linewidth=1.5, dashes=(1, 1.2), label="principal components")
        axes.set_xticks(range(len(experiment.leaks)), [f"{leak:g}" for leak in experiment.leaks])
        axes.set(xlabel="leak", ylabel="mean squared error per pixel")
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=4)

    errors = [value for pair in experiment.pairs for value in pair.reconstruction]
    return draw_figure(
        "reconstruction-by-leak",
        paint,
        (700, 360),
        f"Reconstruction error by leak, from {number(min(errors))} to {number(max(errors))}",
        "Reconstruction errors of all trainings (figure A.5 of the paper). None is perfect.",
    )


def draw_digits(experiment: LeakExperiment, together: LeakExperiment) -> RecipeFigure:
    """Draw errors against constants for models of one digit, and errors by leak next to those of all digits."""

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        _from_zero(left, experiment)
        _scatter(left, experiment, "mean")
        at = range(len(experiment.leaks))
        for one, colour, marker, name in (
            (experiment, HELD_OUT, "o", "a model per digit"),
            (together, INK, "s", "a model of all"),
        ):
            middle = [100 * one.error(leak) for leak in experiment.leaks]
            right.plot(at, middle, color=colour, marker=marker, linewidth=2, label=name)
        right.set_xticks(at, [f"{leak:g}" for leak in experiment.leaks])
        right.set(xlabel="leak", ylabel="median error, % of the diameter", ylim=(0, None))
        right.grid(axis="y")
        right.legend(loc="upper right")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)

    digits = sorted({pair.digit for pair in experiment.chosen if pair.digit is not None})
    medians = {d: np.median([pair.error for pair in experiment.chosen if pair.digit == d]) for d in digits}
    worst = max(digits, key=medians.__getitem__, default=None)
    first = experiment.leaks[0]
    return draw_figure(
        "per-digit",
        paint,
        (900, 420),
        f"Errors of models per digit against their constants; the largest median is that of digit {worst}",
        f"A model per digit (figure A.6 of the paper), {len(experiment.chosen)} of {len(experiment.pairs)} pairs kept. "
        f"Left: error against constant. Right: medians by leak, {percent(experiment.error(first))} per digit and "
        f"{percent(together.error(first))} for all digits at leak {first:g}.",
    )
