"""The figures of `deconfounding`: predictions along the dial, and the six genes with the paper's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.experiments.data.screen import GENES
from congruence.experiments.recipes.deconfounding.claims import LABELS, TABLE_3
from congruence.experiments.recipes.deconfounding.screen import CONDITIONS, estimate_difference
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.formatting import number
from congruence.report.figures.svg import HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE

if TYPE_CHECKING:
    from congruence.experiments.recipes.deconfounding.run import DialExperiment

MARKS = {"base": (MUTED, "s"), "whitened": (SOURCE, "D"), "ica": (HELD_OUT, "o"), "rotated": (NULL, "x")}
GAINS = {"base": (INK, "o", -0.08), "whitened": (LINEAR, "D", 0.0), "rotated": (ICA, "^", 0.08)}


def draw_dial(experiment: DialExperiment) -> RecipeFigure:
    """Draw the gain of ICA, and how well axes match the true biology, against the dial."""
    at = np.arange(len(experiment.curve))
    gains = {name: [estimate_difference(one.gain("ica", name)) for one in experiment.curve] for name in GAINS}
    medians = [float(np.median(one.constants)) for one in experiment.curve]
    shown = [f"{median:.0f}" if median >= 10 else number(median, 2) for median in medians]
    ticks = [f"{one.dial:g}\nΛ {median}" for one, median in zip(experiment.curve, shown, strict=True)]

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.axhline(0, color=MUTED, linewidth=1.2, dashes=(5, 2))
        for name, (colour, marker, shift) in GAINS.items():
            middle = [one.mean for one in gains[name]]
            for i, one in enumerate(gains[name]):
                left.plot([i + shift] * 2, [one.low, one.high], color=colour, linewidth=4, alpha=0.35)
            left.plot(at + shift, middle, color=colour, marker=marker, linewidth=2, label=f"ICA − {LABELS[name]}")
        left.set_ylabel("gain in AUROC, unseen plates")
        for name, (colour, marker) in MARKS.items():
            means = [float(one.match[name].mean()) for one in experiment.curve]
            right.plot(at, means, color=colour, marker=marker, linewidth=2, label=LABELS[name])
        right.set(ylabel="match with the true biology", ylim=(0, 1.02))
        for axes in (left, right):
            axes.set_xticks(at, ticks)
            axes.set_xlabel("dial, and median constant of the mixing")
            axes.grid(axis="y")
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=2)  # above: bars may be anywhere inside

    first, last = experiment.curve[0], experiment.curve[-1]
    return draw_figure(
        "gain-by-dial",
        paint,
        (940, 430),
        f"Gain of ICA over the base, {number(gains['base'][0].mean)} at dial {first.dial:g} and "
        f"{number(gains['base'][-1].mean)} at dial {last.dial:g}; match of its components with biology from "
        f"{number(float(first.match['ica'].mean()))} to {number(float(last.match['ica'].mean()))}",
        "The theory's prediction on a screen whose truth is known. Left: gain of ICA over the base, over whitening "
        "and over a random rotation as the mixing moves away from an isometry; bars are 95 % intervals over folds. "
        "Right: mean |correlation| of each true biology factor with the axis matched to it. Below each dial is the "
        "median bi-Lipschitz constant of the mixing, which is 1 for an isometry.",
    )


def draw_genes(experiment: DialExperiment) -> RecipeFigure:
    """Draw AUROC of the six genes by condition, the paper's and ours."""
    genes = list(GENES)

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for i, name in enumerate(CONDITIONS):
            colour, marker = MARKS[name]
            theirs = [TABLE_3[gene][0][i] for gene in genes]
            ours = [float(np.nanmean(experiment.table.of_gene(experiment.table.auroc[name], gene))) for gene in genes]
            for axes, values in zip(panels, (theirs, ours), strict=True):
                axes.plot(range(len(genes)), values, marker, color=colour, markersize=8, label=LABELS[name])
        for axes, title in zip(panels, ("the paper: RxRx3-core", "ours: a simulated screen"), strict=True):
            axes.set_title(title, loc="left")
            axes.set_xticks(range(len(genes)), genes, rotation=30, ha="right")
            axes.grid(axis="y")
        panels[0].set_ylabel("AUROC on unseen plates")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)

    table = experiment.table
    means = [f"{LABELS[name]} {number(float(np.mean(table.by_fold(table.auroc[name]))))}" for name in CONDITIONS]
    return draw_figure(
        "six-genes",
        paint,
        (900, 380),
        f"AUROC of six genes, ours on average: {', '.join(means)}",
        "Six genes in four conditions: the paper's Table 3, on real images, and ours, on a simulated screen.",
    )
