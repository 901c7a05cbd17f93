"""Section 4.3 and appendix A.7.3 of Nelson et al.: a plain autoencoder and ICA against specialised models.

An autoencoder with weight decay is trained on images with known factors, several seeds for each weight decay; ICA is
applied to its latents; and InfoMEC is compared with that of models that were made to disentangle (Hsu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.experiments.data.registry import find_image_set
from congruence.experiments.processes import run_tasks
from congruence.experiments.recipes._snapshots import open_parts
from congruence.experiments.recipes.disentanglement import claims, figures
from congruence.experiments.recipes.disentanglement.scores import (
    OTHER_SCORES,
    SCORES,
    Candidate,
    ScoreRow,
    choose,
    choose_by_agreement,
    choose_by_isometry,
    information_matrix,
    make_candidates,
    read_candidate,
    read_row,
    score_agreement,
    score_chosen,
    score_readouts,
    score_training,
)
from congruence.experiments.recipes.disentanglement.trainings import ImageStudy, load_snapshots
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, as_numbers, from_numbers
from congruence.parts import Parts

EDITION = 4
DATA = ("rooms", "sprites", "shapes3d", "mpi3d", "falcor3d", "isaac3d")
SEVERAL = True  # data sets may be given together, as in "rooms,sprites"
LABELS = {"vae": "β-VAE", "tcvae": "β-TCVAE", "bioae": "BioAE", "vqvae": "VQ-VAE", "qlae": "QLAE"}
ON_A_GPU = 3  # trainings at a time: one compiles while others train
ICA_ROWS = {"AE": "raw", "AE + ICA": "ica", "AE + ICA, not centred": "asis", "AE + ICA, whitened": "white"}
ROUNDED = "AE + ICA, ten values"  # the codes of AE + ICA, rounded as coarsely as those of QLAE
UNROUNDED = "QLAE, not rounded"  # the codes of the same trainings before they are rounded
MODELS = {"VQ-VAE": "vqvae", "VQ-VAE with weight decay": "vqvae", "QLAE": "qlae", UNROUNDED: "qlae"}
BY_AGREEMENT, BY_ISOMETRY = "agreement of seeds after ICA", "smallest isometry defect"

# `rows` images (None: all) of `side` pixels if they are drawn here; `looks` snapshots of each training, evenly spaced;
# `points` codes at which Jacobians are taken; `dci` takes more than a minute; `workers` processes on a CPU.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "sprites", "rows": 300, "side": 16, "evaluated": 240, "net": "small", "batch": 32}
    | {"steps": 8, "looks": 2, "decays": [0.1, 3.0], "seeds": 2, "other_seeds": 1, "learning_rate": 0.004}
    | {"points": 10, "dci": False, "workers": 1},
    "small": {"data": "sprites", "rows": 50_000, "side": 32, "evaluated": 5000, "net": "small", "batch": 64}
    | {"steps": 2400, "looks": 3, "decays": [0.0, 0.1, 0.3, 1.0, 3.0], "seeds": 3, "other_seeds": 1}
    | {"learning_rate": 1e-3, "points": 100, "dci": True, "workers": 2},
    "paper": {"data": "rooms,sprites", "rows": None, "side": 64, "evaluated": 10_000, "net": "published"}
    | {"batch": 128, "steps": 12_000, "looks": 3, "decays": [0.01, 0.1, 0.3], "seeds": 3, "other_seeds": 2}
    | {"learning_rate": 1e-3, "points": 100, "dci": True, "workers": 16},
    "full": {"data": "shapes3d,mpi3d,falcor3d,isaac3d", "rows": None, "side": 64, "evaluated": 10_000}
    | {"net": "published", "batch": 128, "steps": 200_000, "looks": 40, "seeds": 7, "other_seeds": 7}
    | {"decays": [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3], "learning_rate": 1e-3, "points": 100}
    | {"dci": True, "workers": 16},
}


@dataclass(frozen=True, eq=False)
class DisentanglementScores:
    """The results on one data set."""

    data: str
    note: str  # what the data are
    factors: tuple[str, ...]
    rows: Mapping[str, ScoreRow]  # of the table, by name
    grid: tuple[Candidate, ...]  # the autoencoder at every weight decay and step
    without_labels: Mapping[str, Candidate]  # by the name of the rule
    nmi: Mapping[str, Float] | None  # of the first seed of "AE + ICA": information (K, codes) "before" and "after"

    @property
    def last(self) -> list[Candidate]:
        """The autoencoder at the last step, by weight decay."""
        end = max(one.snapshot for one in self.grid)
        return [one for one in self.grid if one.snapshot == end]

    @property
    def best_other(self) -> ScoreRow:
        """The row of the best other continuous model, as in table 2 of the paper."""
        return max((self.rows[name] for name in ("β-VAE", "β-TCVAE", "BioAE")), key=lambda row: row.interval()[0])

    @property
    def best_quantised(self) -> ScoreRow:
        """The row of the best discrete model."""
        others = [row for name, row in self.rows.items() if row.candidate.variant.is_discrete and name != UNROUNDED]
        return max(others, key=lambda row: row.interval()[0])

    def to_dict(self) -> dict[str, Any]:
        """The numbers that are kept."""
        return {
            "data": self.note,
            "factors": list(self.factors),
            "rows": {name: row.to_dict() for name, row in self.rows.items()},
            "grid": [one.to_dict() for one in self.grid],
            "without labels": {
                rule: {"weight_decay": one.variant.decay, "step": one.step} for rule, one in self.without_labels.items()
            },
            "nmi": as_numbers(self.nmi),
        }


def read_study(data: str, numbers: Mapping[str, Any]) -> DisentanglementScores:
    """The results on a data set that `to_dict` wrote."""
    steps = sorted({one["step"] for one in numbers["grid"]})
    grid = tuple(read_candidate(one, steps.index(one["step"])) for one in numbers["grid"])
    by_choice = {(one.variant.decay, one.step): one for one in grid}
    rows = {}
    for name, one in numbers["rows"].items():
        chosen = by_choice.get((one["weight_decay"], one["step"])) if name in ICA_ROWS else None
        rows[name] = read_row(name, one, chosen, ICA_ROWS.get(name, "raw"), MODELS.get(name, "ae"))
    chosen_without = numbers["without labels"].items()
    return DisentanglementScores(
        data=data,
        note=numbers["data"],
        factors=tuple(numbers["factors"]),
        rows=rows,
        grid=grid,
        without_labels={rule: by_choice[one["weight_decay"], one["step"]] for rule, one in chosen_without},
        nmi=from_numbers(Mapping[str, Float] | None, numbers.get("nmi")),
    )


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train all models on all data sets, choose and score them."""
    parts, names = open_parts(job.parts), job.parameters["data"].split(",")
    studies = (ImageStudy(name, job.parameters, job.seed, job.device, parts) for name in names)
    return {study.data: _run_study(job, study).to_dict() for study in studies}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims."""
    results = [read_study(name, numbers) for name, numbers in ours.items()]
    return Presentation(
        headlines=claims.headlines(results),
        paper={
            name: dict(zip(claims.PUBLISHED_ON, [dict(zip(SCORES, one, strict=True)) for one in of], strict=True))
            for name, of in claims.PUBLISHED.items()
        },
        findings=tuple(finding for one in results for finding in claims.judge(one, settings["seed"])),
        tables=claims.make_tables(results),
        figures=tuple(figure for one in results for figure in figures.draw_figures(one)),
        words={"shown_decays": ", ".join(f"{decay:g}" for decay in settings["decays"])},
        notes=claims.note_data(results),
    )


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained, what is finished already, and about how long the rest takes."""
    studies = [ImageStudy(name, parameters, 0, device, parts) for name in parameters["data"].split(",")]
    total = sum(len(study.trainings) for study in studies)
    left = sum(not (parts.kept and study.is_trained(*one)) for study in studies for one in study.trainings)
    done = f", {total - left} of them finished" if left < total else ""
    images = float(parameters["steps"] * parameters["batch"])
    seconds = 30.0 + 3e-5 * images  # on an H200: 76 s for 12,000 steps, three at a time next to other work
    if device == "cpu":  # on one of two cores for each worker
        per_pixel = 4e-7 if parameters["net"] == "small" else 6e-6
        seconds = per_pixel * images * float(parameters["side"] ** 2) / min(2, int(parameters["workers"]))
    return (
        f"plan: {total} trainings of {parameters['steps']} steps{done}; about {max(1, round(left * seconds / 60))} min "
        "for the rest, and some for the scores. Finished parts are kept, and the same command resumes"
    )


def _run_study(job: RecipeJob, study: ImageStudy) -> DisentanglementScores:
    """Train, score, choose and judge on one data set."""
    workers = job.parameters["workers"]
    at_once = workers if job.device == "cpu" else min(workers, ON_A_GPU)

    def report(step: int, steps: int, loss: float) -> None:
        job.progress(f"{study.data}: training, loss {loss:.4f}", step, steps)

    def compute(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], what: str, at_once: int = workers) -> None:
        run_tasks(work, [(study, *task) for task in tasks], at_once, partial(job.progress, f"{study.data}: {what}"))

    missing: list[tuple[Any, ...]] = [one for one in study.trainings if not study.is_trained(*one)]
    compute(load_snapshots, [(*one, report) for one in missing] if at_once < 2 else missing, "trainings", at_once)
    study.factors()  # a part from now on, so that no process that scores has to load images
    compute(score_training, study.trainings, "scores")
    compute(score_readouts, [one for one in study.trainings if one[0].model == "ae"], "readouts")
    plain = [variant for variant in study.variants if variant.model == "ae"]
    compute(score_agreement, [(variant,) for variant in plain], "pairs of seeds")

    grid = [one for variant in plain for one in make_candidates(study, variant)]
    chosen = {name: (choose(grid, way), way) for name, way in ICA_ROWS.items()}
    chosen[ROUNDED] = (chosen["AE + ICA"][0], "ica-ten")
    for variant in study.variants:
        if variant.model != "ae":
            name = LABELS[variant.model] + (" with weight decay" if variant.model == "vqvae" and variant.decay else "")
            chosen[name] = (choose(make_candidates(study, variant), "raw"), "raw")
    chosen[UNROUNDED] = (chosen["QLAE"][0], "continuous")
    tasks = {
        name: [(one.variant, number, one.snapshot, way) for number in range(one.variant.seeds)]
        for name, (one, way) in chosen.items()
    }
    compute(score_chosen, [task for some in tasks.values() for task in some], "scores of chosen models")
    rows = {}
    for name, (one, way) in chosen.items():
        scores = [score_chosen(study, *task) for task in tasks[name]]
        stacked = {score: np.stack([each[score] for each in scores]) for score in (*SCORES, *OTHER_SCORES)}
        rows[name] = ScoreRow(name, one, way, stacked)
    best = rows["AE + ICA"].candidate
    first = score_training(study, best.variant, 0)
    pictures = load_snapshots(study, best.variant, 0)[best.snapshot]
    nmi = {when: information_matrix(first, best.snapshot, way) for when, way in (("before", "raw"), ("after", "ica"))}
    agreed = choose_by_agreement(grid)
    data = find_image_set(study.data)
    job.drawn.append(figures.draw_traversals(study.data, data.grid.names, nmi, pictures))
    return DisentanglementScores(
        data=study.data,
        note=data.note,
        factors=data.grid.names,
        rows=rows,
        grid=tuple(grid),
        without_labels=({} if agreed is None else {BY_AGREEMENT: agreed}) | {BY_ISOMETRY: choose_by_isometry(grid)},
        nmi=nmi,
    )
