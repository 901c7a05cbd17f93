"""Section 4.3 and appendix A.7.3 of Nelson et al.: a plain autoencoder and ICA against the disentanglers.

An autoencoder with weight decay is trained on images with known factors, several seeds for each weight decay; ICA is
applied to its latents; and InfoMEC is compared with that of models that were made to disentangle (Hsu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from congruence.experiments.data.registry import find_image_set
from congruence.experiments.processes import run_tasks
from congruence.experiments.recipes.disentanglement_choice import (
    Candidate,
    Row,
    candidates_of,
    choose,
    choose_by_agreement,
    choose_by_isometry,
)
from congruence.experiments.recipes.disentanglement_claims import (
    PUBLISHED,
    PUBLISHED_ON,
    TERMS,
    Experiment,
    findings_of,
    notes_of,
    with_interval,
)
from congruence.experiments.recipes.disentanglement_figures import figures_of
from congruence.experiments.recipes.disentanglement_scores import (
    BESIDE,
    SCORES,
    agreement,
    judged,
    matrix,
    readouts,
    scored,
)
from congruence.experiments.recipes.disentanglement_tables import tables_of
from congruence.experiments.recipes.disentanglement_trainings import Bench, Setting, clear, is_trained, looks
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.result import RecipeResult
from congruence.parts import Parts

EDITION = 1
DATA = ("rooms", "sprites", "shapes3d", "mpi3d", "falcor3d", "isaac3d")
SEVERAL = True  # data sets may be given together, as in "rooms,sprites"
LABELS = {"vae": "β-VAE", "tcvae": "β-TCVAE", "bioae": "BioAE", "vqvae": "VQ-VAE", "qlae": "QLAE"}
ON_A_GPU = 3  # trainings at a time: one compiles while others train; not timed against one at a time
BY_AGREEMENT, BY_ISOMETRY = "agreement of seeds after ICA", "smallest isometry defect"

# `rows` images (None: all) of `side` pixels where they are drawn here; `looks` at each training, evenly spaced;
# `points` codes at which Jacobians are taken; `dci` takes a minute and more; `workers` processes on a CPU.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "sprites", "rows": 300, "side": 16, "evaluated": 240, "net": "small", "batch": 32}
    | {"steps": 8, "looks": 2, "decays": [0.1, 3.0], "seeds": 2, "other_seeds": 1, "learning_rate": 0.004}
    | {"points": 10, "resamples": 2, "dci": False, "workers": 1},
    "small": {"data": "sprites", "rows": 50_000, "side": 32, "evaluated": 5000, "net": "small", "batch": 64}
    | {"steps": 2400, "looks": 3, "decays": [0.0, 0.1, 0.3, 1.0, 3.0], "seeds": 3, "other_seeds": 1}
    | {"learning_rate": 1e-3, "points": 100, "resamples": 20, "dci": True, "workers": 2},
    "paper": {"data": "rooms", "rows": None, "side": 64, "evaluated": 10_000, "net": "published", "batch": 128}
    | {"steps": 12_000, "looks": 3, "decays": [0.01, 0.1, 0.3], "seeds": 3, "other_seeds": 1}
    | {"learning_rate": 1e-3, "points": 100, "resamples": 20, "dci": True, "workers": 16},
    "full": {"data": "shapes3d,mpi3d,falcor3d,isaac3d", "rows": None, "side": 64, "evaluated": 10_000}
    | {"net": "published", "batch": 128, "steps": 200_000, "looks": 40, "seeds": 7, "other_seeds": 7}
    | {"decays": [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3], "learning_rate": 1e-3, "points": 100}
    | {"resamples": 20, "dci": True, "workers": 16},
}


def run(job: Job) -> RecipeResult:
    """Train all models on all data sets, choose, score and judge them."""
    if not job.parts.kept:
        clear(job.parts)
    parts = replace(job.parts, kept=True)  # what is written now is read again
    names = job.parameters["data"].split(",")
    found = [_experiment(job, Bench(name, job.parameters, job.seed, job.device, parts)) for name in names]
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=_answer(found),
        paper={
            name: dict(zip(PUBLISHED_ON, [dict(zip(SCORES, one, strict=True)) for one in of], strict=True))
            for name, of in PUBLISHED.items()
        },
        ours={one.data: one.to_dict() for one in found},
        findings=tuple(finding for one in found for finding in findings_of(one, job.seed)),
        tables=tables_of(found),
        figures=tuple(figure for one in found for figure in figures_of(one)),
        notes=notes_of(job.parameters, names, found),
        terms=TERMS,
    )


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained, what is finished already, and about how long the rest takes."""
    left = total = 0
    seconds = 0.0
    for name in parameters["data"].split(","):
        bench = Bench(name, parameters, 0, device, parts)
        open_ = [one for one in bench.trainings if not (parts.kept and is_trained(bench, *one))]
        total, left = total + len(bench.trainings), left + len(open_)
        seconds += sum(_seconds(parameters, device, setting) for setting, _ in open_)
    done = f", {total - left} of them finished" if left < total else ""
    minutes = max(1, round(seconds / 60))
    return (
        f"plan: {total} trainings of {parameters['steps']} steps{done}; about {minutes} min for the rest, and some for "
        "the scores. Finished parts are kept, and the same command resumes"
    )


def _seconds(parameters: Mapping[str, Any], device: str, setting: Setting) -> float:
    """About how long a training takes: as on an H200, or on one of two cores for each worker."""
    images = float(parameters["steps"] * parameters["batch"])
    if device != "cpu":
        return 30.0 + 3e-5 * images  # 76 s of 12,000 steps were seen, three at a time beside other work
    each = 4e-7 if parameters["net"] == "small" else 6e-6  # of a pixel
    return each * images * float(parameters["side"] ** 2) / min(2, int(parameters["workers"]))


def _experiment(job: Job, bench: Bench) -> Experiment:
    """Train, score, choose and judge on one data set."""
    workers = job.parameters["workers"]
    at_once = workers if job.device == "cpu" else min(workers, ON_A_GPU)
    open_ = [(bench, *one) for one in bench.trainings if not is_trained(bench, *one)]
    told_of = partial(_inner, job, bench) if at_once < 2 else None
    tasks = [(*task, told_of) for task in open_] if told_of else open_
    run_tasks(looks, tasks, at_once, _progress(job, f"{bench.data}: trainings"))
    bench.factors()  # a part from now on, so that no process that scores has to load images
    everything = [(bench, *one) for one in bench.trainings]
    run_tasks(scored, everything, workers, _progress(job, f"{bench.data}: scores"))
    plain = [setting for setting in bench.settings if setting.model == "ae"]
    run_tasks(
        readouts, [one for one in everything if one[1] in plain], workers, _progress(job, f"{bench.data}: readouts")
    )
    run_tasks(
        agreement, [(bench, setting) for setting in plain], workers, _progress(job, f"{bench.data}: pairs of seeds")
    )

    grids = {setting: _candidates(bench, setting) for setting in bench.settings}
    grid = [one for setting in plain for one in grids[setting]]
    picked = _picked(bench, grids, grid)
    judging = [
        (bench, one.setting, number, one.look, way)
        for one, way in picked.values()
        for number in range(one.setting.seeds)
    ]
    run_tasks(judged, judging, workers, _progress(job, f"{bench.data}: scores of what was chosen"))
    rows = {name: _row(bench, name, *pick) for name, pick in picked.items()}
    best = picked["AE + ICA"][0]
    first = scored(bench, best.setting, 0)
    pictures = looks(bench, best.setting, 0)[best.look]
    agreed = choose_by_agreement(grid)
    data = find_image_set(bench.data)
    return Experiment(
        data=bench.data,
        note=data.note,
        factors=data.grid.names,
        rows=rows,
        grid=tuple(grid),
        without_labels=({} if agreed is None else {BY_AGREEMENT: agreed}) | {BY_ISOMETRY: choose_by_isometry(grid)},
        nmi={"before": matrix(first, best.look, "raw"), "after": matrix(first, best.look, "ica")},
        pictures={when: pictures[when] for when in ("before", "after")},
    )


def _inner(job: Job, bench: Bench, step: int, steps: int, loss: float) -> None:
    job.progress(f"{bench.data}: training, loss {loss:.4f}", step, steps)


def _progress(job: Job, what: str) -> Any:
    return lambda done, total: job.progress(what, done, total)


def _candidates(bench: Bench, setting: Setting) -> list[Candidate]:
    scores = [scored(bench, setting, number) for number in range(setting.seeds)]
    if setting.model != "ae":
        return candidates_of(setting, bench.steps, scores, None)
    read = [readouts(bench, setting, number) for number in range(setting.seeds)]
    return candidates_of(setting, bench.steps, scores, agreement(bench, setting), read)


def _picked(
    bench: Bench, grids: Mapping[Setting, Sequence[Candidate]], grid: Sequence[Candidate]
) -> dict[str, tuple[Candidate, str]]:
    """For each row of the table, by name: what was chosen, and in which way it is scored."""
    picked = {"AE": (choose(grid, "raw"), "raw"), "AE + ICA": (choose(grid, "ica"), "ica")}
    picked |= {"AE + ICA, not centred": (choose(grid, "asis"), "asis")}
    picked |= {"AE + ICA, whitened": (choose(grid, "white"), "white")}
    for setting, candidates in grids.items():
        if setting.model == "ae":
            continue
        name = LABELS[setting.model]
        name += " with weight decay" if setting.model == "vqvae" and setting.decay else ""
        picked[name] = (choose(candidates, "raw"), "raw")
    return picked


def _row(bench: Bench, name: str, one: Candidate, way: str) -> Row:
    found = [judged(bench, one.setting, number, one.look, way) for number in range(one.setting.seeds)]
    return Row(name, one, way, {score: np.stack([each[score] for each in found]) for score in (*SCORES, *BESIDE)})


def _answer(found: Sequence[Experiment]) -> tuple[str, ...]:
    """Which model is best on each data set, and the score of a plain autoencoder."""
    sentences = []
    for one in found:
        contest = (one.rows["AE + ICA"], one.best_other, one.best_quantised)
        first, *rest = sorted(contest, key=lambda row: -row.interval()[0])
        after = " and ".join(f"{row.name} with {with_interval(row)}" for row in rest)
        sentences.append(
            f"On {one.data} {first.name} has the highest InfoM, {with_interval(first)}, followed by {after}; a plain "
            f"autoencoder has {with_interval(one.rows['AE'])}."
        )
    return tuple(sentences)
