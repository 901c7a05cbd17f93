"""Section 4.2 and appendix A.7.2 of Nelson et al.: how near are two trainings of the same model, up to which maps?

The pairs of the paper are pretrained models of others; these are trained here, small but real, from transformers
configurations. Five graph networks that others trained are compared, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from congruence.checks import require
from congruence.experiments.processes import run_tasks
from congruence.experiments.recipes._snapshots import open_parts
from congruence.experiments.recipes.model_pairs import claims, figures, tables
from congruence.experiments.recipes.model_pairs.scores import (
    ADMET,
    has_graphs,
    is_scored,
    list_tasks,
    score_family,
    score_task,
)
from congruence.experiments.recipes.model_pairs.trainings import (
    OTHER_WIDTH,
    PairStudy,
    describe_data,
    load_snapshots,
)
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation
from congruence.parts import Parts
from congruence.rows.devices import load_torch

EDITION = 5
DATA = ("mnist", "rooms")  # of the classifier
SCORED = ("gpt", "mae", "resnet", ADMET)  # the first two with their other widths
ON_A_GPU = 4  # tasks at a time while there are trainings

# `rows` held-out rows that pairs are compared on, `images` to train on, `points` at which Jacobians are taken, `looks`
# snapshots of each training after the first; `graph_units`: of the 300 units of the graph networks (None: all). Text is
# the source of the standard library or, since the loss of larger language models on held-out files of it rises after
# 1000 steps, documentation of Debian. "wide" and "large" are other widths of "gpt" and "mae".
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "rooms", "text": "library", "vocabulary": 300, "length": 16, "text_bytes": 200_000, "rows": 120}
    | {"images": 160, "side": 16, "points": 2, "looks": 1, "folds": 2, "nulls": 1, "bootstrap": 20, "workers": 1}
    | {"graphs": 2, "graph_units": 12, "graph_nulls": 1, "graph_folds": 2}
    | {"gpt": {"seeds": 2, "width": 16, "depth": 2, "heads": 2, "steps": 20, "batch": 32}}
    | {"wide": {"seeds": 1, "width": 32, "depth": 2, "heads": 2, "steps": 20, "batch": 32}}
    | {"mae": {"seeds": 2, "width": 16, "depth": 2, "heads": 2, "patch": 4, "steps": 20, "batch": 32}}
    | {"large": {"seeds": 1, "width": 32, "depth": 2, "heads": 2, "patch": 4, "steps": 20, "batch": 32}}
    | {"resnet": {"seeds": 2, "width": 4, "steps": 12, "batch": 32}},
    "small": {"data": "mnist", "text": "library", "vocabulary": 512, "length": 64, "text_bytes": 3_000_000}
    | {"rows": 1500, "images": 10_000, "side": 32, "points": 8, "looks": 3, "folds": 4, "nulls": 5, "bootstrap": 200}
    | {"workers": 2, "graphs": 3, "graph_units": None, "graph_nulls": 3, "graph_folds": 3}
    | {"gpt": {"seeds": 3, "width": 64, "depth": 4, "heads": 4, "steps": 1000, "batch": 32}}
    | {"wide": {"seeds": 1, "width": 96, "depth": 4, "heads": 4, "steps": 1000, "batch": 32}}
    | {"mae": {"seeds": 3, "width": 64, "depth": 4, "heads": 4, "patch": 4, "steps": 1000, "batch": 64}}
    | {"large": {"seeds": 1, "width": 96, "depth": 4, "heads": 4, "patch": 4, "steps": 1000, "batch": 64}}
    | {"resnet": {"seeds": 3, "width": 16, "steps": 500, "batch": 64}},
    "paper": {"data": "mnist", "text": "documents", "vocabulary": 2048, "length": 128, "text_bytes": None}
    | {"rows": 3000, "images": 50_000, "side": 32, "points": 16, "looks": 4, "folds": 4, "nulls": 3, "bootstrap": 200}
    | {"workers": 14, "graphs": 5, "graph_units": None, "graph_nulls": 3, "graph_folds": 3}
    | {"gpt": {"seeds": 3, "width": 256, "depth": 6, "heads": 8, "steps": 10_000, "batch": 128}}
    | {"wide": {"seeds": 1, "width": 384, "depth": 6, "heads": 8, "steps": 10_000, "batch": 128}}
    | {"mae": {"seeds": 3, "width": 192, "depth": 6, "heads": 6, "patch": 4, "steps": 5000, "batch": 512}}
    | {"large": {"seeds": 1, "width": 288, "depth": 6, "heads": 6, "patch": 4, "steps": 5000, "batch": 512}}
    | {"resnet": {"seeds": 3, "width": 32, "steps": 2000, "batch": 256}},
    "full": {"data": "mnist", "text": "documents", "vocabulary": 4096, "length": 256, "text_bytes": None}
    | {"rows": 5000, "images": 60_000, "side": 32, "points": 16, "looks": 5, "folds": 5, "nulls": 20, "bootstrap": 200}
    | {"workers": 14, "graphs": 5, "graph_units": None, "graph_nulls": 20, "graph_folds": 5}
    | {"gpt": {"seeds": 5, "width": 768, "depth": 12, "heads": 12, "steps": 50_000, "batch": 128}}
    | {"wide": {"seeds": 2, "width": 512, "depth": 12, "heads": 8, "steps": 50_000, "batch": 128}}
    | {"mae": {"seeds": 5, "width": 384, "depth": 12, "heads": 6, "patch": 4, "steps": 50_000, "batch": 512}}
    | {"large": {"seeds": 2, "width": 768, "depth": 12, "heads": 12, "patch": 4, "steps": 50_000, "batch": 512}}
    | {"resnet": {"seeds": 5, "width": 64, "steps": 20_000, "batch": 256}},
}


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained, and what is finished already."""
    study = PairStudy(parameters, 0, device, parts)
    left = [one for one in study.trainings if not (parts.kept and _is_done(study, *one))]
    kept = len(study.trainings) - len(left)
    families = dict.fromkeys(family for family, _ in left)
    steps = ", ".join(f"{parameters[family]['steps']} steps of {family}" for family in families)
    return (
        f"plan: {len(left)} trainings on {device} ({steps or 'all are finished'}), then comparisons"
        + (f"; {kept} are finished already" if kept and left else "")
        + ". Finished parts are kept, and the same command resumes"
    )


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train all models and compare all pairs."""
    load_torch()  # a missing library is reported before anything is computed
    require("transformers", "this recipe", "extract")
    study = PairStudy(job.parameters, job.seed, job.device, open_parts(job.parts))
    _train_and_score(job, study)
    scores = {family: score_family(study, family) for family in SCORED if family != ADMET or has_graphs()}
    return scores | {"data": {family: describe_data(study.data(family)) for family in ("gpt", "mae", "resnet")}}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims."""
    scores = {family: own for family, own in ours.items() if family != "data"}
    return Presentation(
        headlines=claims.headline(scores),
        paper=claims.PAPER,
        findings=claims.judge(scores),
        tables=tables.make_tables(scores),
        figures=figures.draw_figures(scores),
        words={"about": ours["data"], "widths": claims.list_widths(scores)},
        notes=claims.note_scores(scores),
    )


def _train_and_score(job: RecipeJob, study: PairStudy) -> None:
    """Compute what is missing: trainings together with the graph networks, then all other scores."""
    for family in ("gpt", "mae", "resnet"):
        study.data(family)  # a part from now on, so that processes need not compute it again
    workers = job.parameters["workers"]
    at_once = workers if job.device == "cpu" else min(workers, ON_A_GPU)

    def report(step: int, steps: int, loss: float) -> None:
        job.progress(f"training, loss {loss:.4f}", step, steps)

    trainings = [one for one in study.trainings if not _is_done(study, *one)]
    graphs = [(task, None) for task in list_tasks(ADMET) if has_graphs() and not is_scored(study, task)]
    progress = report if at_once < 2 else None
    tasks = [(study, progress, *one) for one in (*graphs, *trainings)]
    run_tasks(_train_or_score, tasks, at_once, partial(job.progress, "trainings"))
    missing = [task for family in SCORED[:-1] for task in list_tasks(family) if not is_scored(study, task)]
    tasks = [(study, None, task, None) for task in missing]
    run_tasks(_train_or_score, tasks, workers, partial(job.progress, "comparisons"))


def _train_or_score(study: PairStudy, progress: Any, which: str, number: int | None) -> None:
    """Train the numbered member of a family or, without a number, compute a part of the scores."""
    if number is None:
        score_task(study, which)
    else:
        load_snapshots(study, which, number, progress)


def _is_done(study: PairStudy, family: str, number: int) -> bool:
    """Whether a training is no longer needed: all its snapshots are stored, or all scores that use them."""
    tasks = list_tasks(next((first for first, other in OTHER_WIDTH.items() if other == family), family))
    return all(is_scored(study, task) for task in tasks) or study.is_trained(family, number)
