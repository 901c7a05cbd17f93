"""The claims of section 4.4 and appendix A.7.4, and the predictions of Theorem 3, with the paper's tables and ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Float
from congruence.document import Cell, Table
from congruence.experiments.data.screen import GENES
from congruence.experiments.recipes.claims import Claim, read_claims, read_text
from congruence.experiments.recipes.deconfounding.screen import (
    CONDITIONS,
    Difference,
    ScreenScores,
    TreeScores,
    estimate_difference,
)
from congruence.experiments.recipes.result import RecipeFigure, draw_figure, estimate_cell, number_table
from congruence.formatting import number
from congruence.report.figures.svg import HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.experiments.recipes.deconfounding.run import DialExperiment


CLAIMS = read_claims("deconfounding")
STEPS = (("base", "whitened"), ("whitened", "ica"))
LABELS = {"base": "Base", "whitened": "PCA", "ica": "PCA + ICA", "rotated": "PCA + Rand"}
PAPER: Mapping[str, Any] = read_text("deconfounding")["paper"]
AUROC_CLAIMS = {  # a condition scores higher than another
    "whitening-improves-auroc": ("whitened", "base"),
    "ica-improves-auroc": ("ica", "whitened"),
    "axes-matter": ("ica", "rotated"),
}
MARKS = {"base": (MUTED, "s"), "whitened": (SOURCE, "D"), "ica": (HELD_OUT, "o"), "rotated": (NULL, "x")}
GAINS = {"base": (INK, "o", -0.08), "whitened": (LINEAR, "D", 0.0), "rotated": (ICA, "^", 0.08)}


def headline(experiment: DialExperiment) -> tuple[str, ...]:
    """The gain of ICA at the smallest and the largest dial."""
    first, last = experiment.curve[0], experiment.curve[-1]
    near, far = (estimate_difference(one.gain("ica", "base")) for one in (first, last))
    return (
        f"On a simulated screen, ICA gains {near} of AUROC over the base at dial {first.dial:g} and {far} at dial "
        f"{last.dial:g}.",
    )


def judge(experiment: DialExperiment) -> tuple[Finding, ...]:
    """Judge the paper's claims about its tables, then the predictions of the theory along the dial."""
    table, near = experiment.table, experiment.near
    concentration = [
        (_claim("concentration-increases-top-{share}", share=f"{100 * share:g}"), near.concentration(i))
        for i, share in enumerate(experiment.shares)
    ]
    return (
        *(judge_auroc(_claim(name), table, *pair, "genes") for name, pair in AUROC_CLAIMS.items()),
        _judge_steps(_claim("sparsity-increases"), table, table.sparsity),
        *(_judge_steps(claim, near, values, last_first=True) for claim, values in concentration),
        _judge_recovery(experiment),
        _judge_gain(experiment),
        _judge_plates(experiment),
    )


def _claim(name: str, **words: str) -> Claim:
    """A claim about the simulated screen."""
    return CLAIMS[name].about(units="plates", **words)


def judge_auroc(claim: Claim, one: TreeScores, condition: str, reference: str, what: str) -> Finding:
    """Judge the gain of a condition over another; `what` is the plural of what is classified."""
    gain = estimate_difference(one.gain(condition, reference))
    gains = one.auroc[condition] - one.auroc[reference]
    better = sum(np.nanmean(one.of_gene(gains, gene)) > 0 for gene in one.genes)
    theirs = np.mean([auroc[condition] - auroc[reference] for auroc in PAPER["auroc"].values()])
    return claim.judge(
        gain,
        null=0.0,
        evidence=f"{LABELS[condition]} − {LABELS[reference]}: {gain} on average over {what}, better in {better} of "
        f"{len(one.genes)} (the paper's table: {theirs:+.3f}).",
    )


def _judge_steps(claim: Claim, one: ScreenScores, values: Mapping[str, Float], *, last_first: bool = False) -> Finding:
    """Judge how much whitening and then ICA change values (E, F) by condition."""
    steps = [estimate_difference(one.by_fold(values[b] - values[a])) for a, b in STEPS]
    measured = reversed(steps) if last_first else steps
    return claim.judge(*measured, null=0.0, evidence=f"PCA − Base: {steps[0]}; PCA + ICA − PCA: {steps[1]}.")


def _judge_recovery(experiment: DialExperiment) -> Finding:
    first, last = (one.match["ica"] for one in (experiment.curve[0], experiment.curve[-1]))
    change = estimate_difference(first - last, folds=False)
    return CLAIMS["ica-recovers-biology"].judge(
        estimate_difference(first, folds=False),
        change,
        evidence=f"Mean match over biology factors: {_along_dial(experiment, 'match')}; decrease from dial "
        f"{experiment.curve[0].dial:g} to the last: {change}.",
    )


def _judge_gain(experiment: DialExperiment) -> Finding:
    first, last = experiment.curve[0], experiment.curve[-1]
    sentences: list[str] = []
    measured: list[Difference] = []
    for reference in ("base", "rotated"):
        at_first, at_last = first.gain("ica", reference), last.gain("ica", reference)
        near, far, loss = (estimate_difference(one) for one in (at_first, at_last, at_first - at_last))
        measured += [near, loss]
        sentences.append(
            f"over {LABELS[reference]}: {near} at dial {first.dial:g}, {far} at {last.dial:g}, a loss of {loss}"
        )
    return CLAIMS["gain-needs-isometry"].judge(
        *measured, null=0.0, evidence="AUROC of PCA + ICA, " + "; ".join(sentences) + "."
    )


def _judge_plates(experiment: DialExperiment) -> Finding:
    first, last = experiment.curve[0], experiment.curve[-1]
    change = estimate_difference(last.taint["ica"] - first.taint["ica"], folds=False)
    gap = estimate_difference(first.taint["base"] - first.taint["ica"], folds=False)
    return CLAIMS["ica-separates-plates"].judge(
        gap,
        change,
        null=0.0,
        evidence=f"Technical share of the axes matched to biology: {_along_dial(experiment, 'taint')}; in the base, "
        f"{number(float(first.taint['base'].mean()))} at dial {first.dial:g}. "
        f"Base − ICA there: {gap}; increase of ICA's share: {change}.",
    )


def _along_dial(experiment: DialExperiment, name: str) -> str:
    """The mean of a score of ICA at each dial."""
    means = [(float(getattr(one, name)["ica"].mean()), one.dial) for one in experiment.curve]
    return ", ".join(f"{number(mean)} at {dial:g}" for mean, dial in means)


def make_tables(experiment: DialExperiment) -> tuple[Table, ...]:
    """The paper's Tables 3, 4 and 7 with our numbers, and the results along the dial."""
    table = experiment.table
    return (
        _gene_table(table, "auroc", "AUROC on unseen plates (Table 3)"),
        _gene_table(table, "sparsity", "Hoyer sparsity of the trees (Table 3)"),
        _concentration_table(experiment),
        _dial_table(experiment),
    )


def _gene_table(one: ScreenScores, score: str, title: str) -> Table:
    rows = []
    for gene, (guides, *_) in GENES.items():
        cells: list[Any] = [f"{gene} ({guides})"]
        for name in CONDITIONS:
            printed, values = PAPER[score][gene][name], getattr(one, score)[name]
            cells += [Cell(f"{printed:.3f}", printed), mean_cell(one.of_gene(values, gene))]
        rows.append(cells)
    head = ["gene (guides)", *(f"{LABELS[name]}, {whose}" for name in CONDITIONS for whose in ("paper", "ours"))]
    note = (
        "± is the standard error over folds of all guides. The data differ: the paper's are real, ours are simulated. "
        "Numbers side by side show the pattern only."
    )
    return number_table(title, head, rows, note)


def _concentration_table(experiment: DialExperiment) -> Table:
    near = experiment.near
    ours = [f"ours, top {100 * share:g} %" for share in experiment.shares]
    head = ("condition", "paper, Table 4", "paper, Table 7", "paper, Table 7", *ours)
    rows = []
    for name in CONDITIONS:
        means = [estimate_difference(near.by_fold(near.concentration(i)[name])) for i in range(len(ours))]
        rows.append((LABELS[name], *PAPER["concentration"][name], *map(estimate_cell, means)))
    note = (
        "AUROC of trees on the axes used most minus that of trees on the rest, with its 95 % interval; one guide of "
        "each gene. The paper's cut-offs and the exact form of its score were lost from our text, so its columns and "
        "ours need not be the same."
    )
    return number_table("Concentration (Tables 4 and 7)", head, rows, note)


def mean_cell(values: Float) -> Cell | None:
    """The mean of the finite values with its standard error."""
    known = values[np.isfinite(values)]
    error = f" ± {known.std(ddof=1) / np.sqrt(len(known)):.3f}" if len(known) > 1 else ""
    return Cell(f"{known.mean():.3f}{error}", float(known.mean())) if len(known) else None


def _dial_table(experiment: DialExperiment) -> Table:
    matches, scores = ([f"{what}, {LABELS[name]}" for name in CONDITIONS] for what in ("match", "AUROC"))
    head = ["dial", "constant, median", "constant, largest", *matches, "technical share, ICA", *scores]
    rows = []
    for one in experiment.curve:
        cells: list[Any] = [f"{one.dial:g}", one.constant["median"], one.constant["max"]]
        cells += [float(one.match[name].mean()) for name in CONDITIONS]
        cells.append(float(one.taint["ica"].mean()))
        means = [float(np.mean(one.by_fold(one.auroc[name]))) for name in CONDITIONS]
        cells += [Cell(f"{mean:.3f}", mean) for mean in means]
        rows.append(
            cells
            + [estimate_cell(estimate_difference(one.gain("ica", name))) for name in ("base", "whitened", "rotated")]
        )
    guides = ", ".join(experiment.curve[0].guides)
    note = f"The same wells, factors and folds at every dial; one guide of each gene ({guides})."
    return number_table("Away from an isometry", [*head, "ICA − Base", "ICA − PCA", "ICA − Rand"], rows, note)


def draw_dial(experiment: DialExperiment) -> RecipeFigure:
    """Draw the gain of ICA, and how well axes match the true biology, against the dial."""
    at = np.arange(len(experiment.curve))
    gains = {name: [estimate_difference(one.gain("ica", name)) for one in experiment.curve] for name in GAINS}
    medians = [one.constant["median"] for one in experiment.curve]
    shown = [f"{median:.0f}" if median >= 10 else number(median, 2) for median in medians]
    ticks = [f"{one.dial:g}\nΛ {median}" for one, median in zip(experiment.curve, shown, strict=True)]

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.axhline(0, color=MUTED, linewidth=1.2, dashes=(5, 2))
        for name, (colour, marker, shift) in GAINS.items():
            middle = [one.value for one in gains[name]]
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
        f"Gain of ICA over the base, {number(gains['base'][0].value)} at dial {first.dial:g} and "
        f"{number(gains['base'][-1].value)} at dial {last.dial:g}; match of its components with biology from "
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
        for name in CONDITIONS:
            colour, marker = MARKS[name]
            theirs = [PAPER["auroc"][gene][name] for gene in genes]
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
