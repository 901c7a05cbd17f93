"""Tables 3, 4 and 7 on real wells: raw features of MCF7 cells (BBBC021) with the batch effect of their plates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.batches._deconfound import deconfound
from congruence.document import Table
from congruence.experiments.data._readers import VARIABLE, find_files
from congruence.experiments.processes import available_cores
from congruence.experiments.recipes.claims import Claim, read_text
from congruence.experiments.recipes.deconfounding import claims
from congruence.experiments.recipes.deconfounding.claims import CLAIMS, LABELS, PAPER, STEPS
from congruence.experiments.recipes.deconfounding.screen import (
    CONDITIONS,
    Difference,
    TreeScores,
    estimate_difference,
    tree_scores,
)
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, RecipeFigure, draw_figure, estimate_cell, number_table
from congruence.formatting import number
from congruence.report.figures.svg import HELD_OUT, MUTED, NULL, SOURCE
from congruence.result import Finding
from congruence.tables import read_table

TEXT: Mapping[str, Any] = read_text("deconfounding")["bbbc021"]
FILE = "mcf7_well_means.parquet"
HOW = (
    f"Put {FILE}, the means of wells of its CellProfiler features with the columns plate, week, moa and is_control, "
    f"into the folder bbbc021 of the one that {VARIABLE} names; data 'simulated' needs no files"
)
FEATURES = ("Cells_*", "Cytoplasm_*", "Nuclei_*")
BY_MECHANISM = {"target": "moa", "control": "DMSO"}
TASKS: Mapping[str, Mapping[str, Any]] = {  # options of `deconfound`; the words are in the recipe's texts
    "plates": BY_MECHANISM,
    "weeks": BY_MECHANISM | {"cluster": "week"},
    "active": {"control": "is_control=True", "cluster": "week"},
}
GAINS = (("whitened", "base", SOURCE), ("ica", "whitened", HELD_OUT), ("ica", "rotated", NULL))


@dataclass(frozen=True, eq=False)
class TaskScores(TreeScores):
    """The scores of one task, and the batch effect on its held-out controls."""

    wells: tuple[int, ...]  # (E,) of each target
    variance: float  # share of the variance of controls that lies between plates
    accuracy: Mapping[str, Float]  # (F,) of the plate of held-out controls, by condition
    chance: Float  # (F,)


@dataclass(frozen=True, eq=False)
class PlateExperiment:
    """The scores of all tasks."""

    tasks: Mapping[str, TaskScores]
    shares: tuple[float, ...]


def compute(job: RecipeJob) -> PlateExperiment:
    """Score all tasks."""
    (path,) = find_files("bbbc021", [(FILE,)], HOW)
    wells = read_table(path, features=list(FEATURES))
    return PlateExperiment({task: _score(job, task, wells) for task in TASKS}, tuple(job.parameters["shares"]))


def _score(job: RecipeJob, task: str, wells: Any) -> TaskScores:
    settings = {name: job.parameters[name] for name in ("components", "rounds", "rotations")}
    result = deconfound(
        wells,
        batch="plate",
        conditions=CONDITIONS,
        folds=job.parameters["weeks" if "cluster" in TASKS[task] else "folds"],
        concentration=job.parameters["shares"],
        retrieval=False,
        profiles=False,
        seed=job.seed,
        jobs=available_cores(),
        device=job.device,
        progress=lambda what, done, total: job.progress(f"{task}, {what}", done, total),
        parts=replace(job.parts, prefix=f"{task}-"),
        **TASKS[task],
        **settings,
    )
    return TaskScores(
        **tree_scores(result, len(job.parameters["shares"])),
        wells=tuple(one.positives for one in result.scored),
        variance=result.variance["base"],
        accuracy={name: one.value for name, one in result.leakage.items()},
        chance=result.leakage["base"].chance,
    )


def present(experiment: PlateExperiment) -> Presentation:
    """Judge the claims of the paper's tables that need no true factors."""
    return Presentation(
        headlines=_headline(experiment),
        findings=tuple(_judge(experiment)),
        tables=(_gain_table(experiment), _condition_table(experiment), _target_table(experiment)),
        figures=(_draw_gains(experiment),),
        notes=tuple(TEXT["notes"]),
        terms=tuple(TEXT["terms"].items()),
    )


def _headline(experiment: PlateExperiment) -> tuple[str, ...]:
    base, white = (estimate_difference(experiment.tasks["weeks"].gain("ica", name)) for name in ("base", "whitened"))
    return (
        f"On real plates (BBBC021) of weeks that were held out, ICA changes AUROC by {base} from the base, and by "
        f"{white} from whitening.",
    )


def _judge(experiment: PlateExperiment) -> Iterator[Finding]:
    plates = experiment.tasks["plates"]
    gap = estimate_difference(plates.accuracy["base"] - plates.chance, folds=False)
    yield CLAIMS["plates-have-a-batch-effect"].judge(
        gap,
        null=0.0,
        evidence=f"The plate of a held-out control is predicted with an accuracy of "
        f"{number(float(np.nanmean(plates.accuracy['base'])))}, {number(float(np.nanmean(plates.chance)))} by chance: "
        f"a difference of {gap}. Plates explain {100 * plates.variance:.0f} % of the variance of controls.",
    )
    for task, one in experiment.tasks.items():
        for name, pair in claims.AUROC_CLAIMS.items():
            yield claims.judge_auroc(_claim(task, name), one, *pair, "targets")
        yield _judge_step(_claim(task, "ica-increases-sparsity"), one, one.sparsity)
        for i, share in enumerate(experiment.shares):
            claim = _claim(task, "ica-increases-concentration-top-{share}", share=f"{100 * share:g}")
            yield _judge_step(claim, one, one.concentration(i))


def _claim(task: str, name: str, **words: str) -> Claim:
    """A claim about one task."""
    about = TEXT["tasks"][task]
    claim = CLAIMS[name].about(units=about["units"], **words)
    statement = f"BBBC021, {about['about']}: {claim.statement}"
    return replace(claim, name=f"{task}: {claim.name}", statement=statement, post_hoc=about["post_hoc"])


def _judge_step(claim: Claim, one: TaskScores, values: Mapping[str, Float]) -> Finding:
    """Judge the step from PCA to ICA, whose axes are as many; that from the base is shown only."""
    first, second = (estimate_difference(one.by_fold(values[b] - values[a])) for a, b in STEPS)
    return claim.judge(
        second, null=0.0, evidence=f"PCA + ICA − PCA: {second}; PCA − Base, with other numbers of axes: {first}."
    )


def _gain_table(experiment: PlateExperiment) -> Table:
    pairs = (*((b, a) for a, b in STEPS), ("ica", "base"), ("ica", "rotated"))
    head = ["task", "targets", "folds", "plate variance", "plate accuracy, Base", "PCA + ICA", "by chance"]
    rows = []
    for task, one in experiment.tasks.items():
        accuracies = (one.accuracy["base"], one.accuracy["ica"], one.chance)
        cells: list[Any] = [task, len(one.guides), len(one.chance), one.variance]
        cells += [float(np.nanmean(values)) for values in accuracies]
        rows.append(cells + [estimate_cell(estimate_difference(one.gain(*pair))) for pair in pairs])
    note = (
        "Gains in AUROC with their 95 % interval over folds; in the tasks weeks and active a fold is a week. Plate "
        "variance: the share of the variance of controls between plates. Plate accuracy: how often a linear classifier "
        "names the plate of a held-out control, among the plates of a fold."
    )
    gains = [f"{LABELS[b]} − {LABELS[a]}" for b, a in pairs]
    return number_table("Gains on unseen plates", [*head, *gains], rows, note)


def _condition_table(experiment: PlateExperiment) -> Table:
    head = ["task and condition", "AUROC", "sparsity", *(f"top {100 * share:g} %" for share in experiment.shares)]
    rows = []
    for task, one in experiment.tasks.items():
        for name in CONDITIONS:
            values = [one.auroc, one.sparsity, *(one.concentration(i) for i in range(len(experiment.shares)))]
            means = [estimate_difference(one.by_fold(some[name])).value for some in values]
            paper = PAPER["concentration"][name]
            rows.append((f"{task}: {LABELS[name]}", *means, *(paper if len(paper) == len(experiment.shares) else ())))
    printed = ["paper, Table 4", "paper, Table 7", "paper, Table 7"] if len(rows[0]) > len(head) else []
    note = (
        "Means over folds. The last columns are concentration: AUROC of trees on the axes used most minus that of "
        "trees on the rest. Sparsity and concentration depend on the number of axes, which is that of the features "
        "for Base and of the components for the others: do not compare Base with them. The paper's cut-offs were "
        "lost from our text."
    )
    return number_table("AUROC, sparsity and concentration (Tables 3, 4 and 7)", [*head, *printed], rows, note)


def _target_table(experiment: PlateExperiment) -> Table:
    rows = []
    for task, one in experiment.tasks.items():
        for place, (target, wells) in enumerate(zip(one.guides, one.wells, strict=True)):
            folds = [one.auroc[name][place] for name in CONDITIONS]
            scored = int(np.isfinite(folds[0]).sum())
            rows.append((f"{task}: {target}", wells, scored, *map(claims.mean_cell, folds)))
    head = ("task and target", "wells", "folds", *LABELS.values())
    return number_table("AUROC by target (Table 3)", head, rows, "± is the standard error over folds.")


def _draw_gains(experiment: PlateExperiment) -> RecipeFigure:
    """Draw the gains of all tasks with their intervals."""
    gains: dict[str, list[Difference]] = {
        task: [estimate_difference(one.gain(b, a)) for b, a, _ in GAINS] for task, one in experiment.tasks.items()
    }
    names = [TEXT["tasks"][task]["about"] for task in gains]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(0, color=MUTED, linewidth=1.2, dashes=(5, 2))
        for place, some in enumerate(gains.values()):
            for shift, (one, (b, a, colour)) in enumerate(zip(some, GAINS, strict=True)):
                at, label = place + 0.2 * (shift - 1), f"{LABELS[b]} − {LABELS[a]}" if place == 0 else None
                axes.plot([one.low, one.high], [at] * 2, color=colour, linewidth=4, alpha=0.35)
                axes.plot([one.value], [at], "o", color=colour, label=label)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("gain in AUROC on unseen plates")
        axes.grid(axis="x")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)

    said = "; ".join(f"{task} {number(some[1].value)}" for task, some in gains.items())
    return draw_figure(
        "real-plates",
        paint,
        (860, 330),
        f"Gain of ICA over whitening by task: {said}",
        "Gains in AUROC on unseen plates of real wells (BBBC021), with 95 % intervals over folds.",
    )
