"""Section 4.1 and appendix A.7.1 of Nelson et al.: trainings agree better if decoders are closer to isometries.

Pairs of orthogonal LeakyReLU autoencoders are trained on handwritten digits. The leak sets how far a decoder can be
from an isometry; whether the codes of two trainings then differ by more than a rigid motion is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.data.digits import digits, mnist, shrink_images
from congruence.experiments.recipes.bilipschitz_claims import (
    PAPER,
    TERMS,
    Experiment,
    finding_of_digits,
    findings_of,
    notes_of,
    table_of,
    table_of_laws,
)
from congruence.experiments.recipes.bilipschitz_figures import (
    draw_constants,
    draw_digits,
    draw_errors,
    draw_reconstruction,
)
from congruence.experiments.recipes.bilipschitz_laws import Relation, relate
from congruence.experiments.recipes.bilipschitz_pairs import (
    Arrays,
    Pair,
    Task,
    keep_converged,
    measure_pairs,
    train_and_measure,
)
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.result import RecipeResult, held
from congruence.formatting import percent
from congruence.result import Finding

EDITION = 2
DATA = ("mnist", "digits")
LEAKS = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
PATIENCE = 50  # epochs, of the paper
# `at_once` leaks are trained in one batch; `digit_seeds` of 0 leaves out the experiment with a model per digit.
_ALL = {"reference": 1.0, "threshold": 0.0, "cosine": True}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "digits", "side": 14, "rows": 900, "test_rows": 500, "leaks": [0.3, 0.7, 1.0], "seeds": 4}
    | {"hidden": [24, 12, 5], "epochs": 60, "batch": 300, "learning_rate": 0.03, "at_once": 3}
    | {"digit_seeds": 0, "digit_rows": 0, "digit_test_rows": 0, "digit_batch": 0}
    | _ALL,
    "small": {"data": "mnist", "side": 14, "rows": 2000, "test_rows": 1000, "leaks": LEAKS, "seeds": 5}
    | {"hidden": [64, 32, 8], "epochs": 200, "batch": 250, "learning_rate": 0.01, "at_once": 1}
    | {"digit_seeds": 2, "digit_rows": 400, "digit_test_rows": 500, "digit_batch": 200}
    | _ALL,
    "paper": {"data": "mnist", "side": 28, "rows": 20_000, "test_rows": 1000, "leaks": LEAKS, "seeds": 10}
    | {"hidden": [128, 64, 16], "epochs": 500, "batch": 1000, "learning_rate": 0.003, "at_once": 6}
    | {"digit_seeds": 3, "digit_rows": 4000, "digit_test_rows": 800, "digit_batch": 500}
    | _ALL,
    "full": {"data": "mnist", "side": 28, "rows": 60_000, "test_rows": 1000, "leaks": LEAKS, "seeds": 10}
    | {"hidden": [128, 64, 16], "epochs": 2000, "batch": 1000, "learning_rate": 0.001, "at_once": 6}
    | {"digit_seeds": 3, "digit_rows": 5000, "digit_test_rows": 800, "digit_batch": 500}
    | _ALL
    | {"cosine": False},
}


def run(job: Job) -> RecipeResult:
    """Train, measure and judge all pairs, and those of a model per digit where the scale has them."""
    images = load_images(job)
    task = all_digits(job, *images)
    found = _experiment(job, task, "all")
    experiments = {"all digits": found}
    if job.parameters["digit_seeds"]:
        experiments["a model per digit"] = _experiment(job, each_digit(job, *images), "digits")

    findings = findings_of(found, len(job.parameters["hidden"]))
    figures = [draw_errors(found), draw_constants(found), draw_reconstruction(found, _best_linear(job, task))]
    tables = [table_of(found, "All digits, by leak")]
    per_digit = experiments.get("a model per digit")
    if per_digit is not None:
        findings += (finding_of_digits(per_digit),)
        figures.append(draw_digits(per_digit, found))
        tables.append(table_of(per_digit, "A model per digit, by leak"))
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=_answer(found, findings),
        paper=PAPER,
        ours={name: one.to_dict() for name, one in experiments.items()},
        findings=findings,
        tables=(*tables, table_of_laws(experiments)),
        figures=tuple(figures),
        notes=notes_of(job.parameters, task.x.shape[1]),
        terms=TERMS,
    )


def load_images(job: Job) -> tuple[Array, Array, Array, Array]:
    """Images and labels to train on, and to measure on; the digits of scikit-learn are split in two."""
    if job.parameters["data"] == "mnist":
        (x, a), (y, b) = mnist("train"), mnist("test")
        return shrink_images(x, job.parameters["side"]), a, shrink_images(y, job.parameters["side"]), b
    x, labels = digits()
    order = np.random.default_rng([job.seed, 3]).permutation(len(x))
    train, test = order[: len(x) // 2 + 1], order[len(x) // 2 + 1 :]
    return x[train], labels[train], x[test], labels[test]


def all_digits(job: Job, x: Array, a: Array, y: Array, b: Array) -> Task:
    """The experiment on all digits."""
    rng = np.random.default_rng([job.seed, 5])
    rows = np.sort(rng.permutation(len(x))[: job.parameters["rows"]])
    test = np.sort(rng.permutation(len(y))[: job.parameters["test_rows"]])
    return Task(x, y, (None,), (rows,), (test,), job.parameters["seeds"])


def each_digit(job: Job, x: Array, a: Array, y: Array, b: Array) -> Task:
    """The experiment with a model per digit; each has as many rows as the rarest digit allows."""
    rng = np.random.default_rng([job.seed, 7])
    most = min(job.parameters["digit_rows"], int(np.bincount(a, minlength=10).min()))
    most_test = min(job.parameters["digit_test_rows"], int(np.bincount(b, minlength=10).min()))
    rows = tuple(np.sort(rng.permutation(np.flatnonzero(a == d))[:most]) for d in range(10))
    test = tuple(np.sort(rng.permutation(np.flatnonzero(b == d))[:most_test]) for d in range(10))
    return Task(x, y, tuple(range(10)), rows, test, job.parameters["digit_seeds"])


def _experiment(job: Job, task: Task, name: str) -> Experiment:
    leaks: list[float] = job.parameters["leaks"]
    found = _trained(job, task, name)
    total, done = len(leaks) * len(task.places) // 2, 0

    def tell() -> None:
        nonlocal done
        job.progress("comparing pairs", done, total)
        done += 1

    pairs = measure_pairs(task, leaks, found, job.seed, tell)
    kept, limit = keep_converged(pairs, job.parameters["reference"])
    relations = {how: _relation(kept, how, job.seed) for how in ("mean", "max")}
    bent = _relation([pair for pair in kept if pair.leak < 1], "mean", job.seed)
    images = task.y[np.concatenate(task.test_rows)]
    spread = float(((images - images.mean(0)) ** 2).mean())
    return Experiment(tuple(leaks), tuple(pairs), tuple(kept), limit, relations, bent, spread)


def _relation(pairs: Sequence[Pair], how: str, seed: int) -> Relation:
    return relate(np.array([pair.constant(how) for pair in pairs]), np.array([pair.error for pair in pairs]), seed)


def _trained(job: Job, task: Task, name: str) -> Arrays:
    """Train all members, some leaks at once, each batch of them a part of its own."""
    leaks, step = job.parameters["leaks"], job.parameters["at_once"]
    options = {key: job.parameters[key] for key in ("epochs", "batch", "learning_rate", "cosine", "threshold")}
    if task.digits != (None,):
        options["batch"] = job.parameters["digit_batch"]
    options |= {"widths": [task.x.shape[1], *job.parameters["hidden"]], "patience": PATIENCE, "device": job.device}
    found: Arrays = {}
    for start in range(0, len(leaks), step):
        numbers = list(range(len(leaks)))[start : start + step]
        some = [leaks[i] for i in numbers]
        train = partial(train_and_measure, task, some, numbers, job.seed, _progress(job, name, some), **options)
        found |= job.parts.get(f"{name}-leak{start}", train)
    return found


def _progress(job: Job, name: str, leaks: Sequence[float]) -> Callable[[int, int, float], None]:
    what = "a model per digit" if name == "digits" else "all digits"
    told = ", ".join(f"{leak:g}" for leak in leaks)
    return lambda epoch, epochs, loss: job.progress(f"training ({what}), leak {told}, loss {loss:.4f}", epoch, epochs)


def _best_linear(job: Job, task: Task) -> float:
    """The error that the principal directions of the training images, without a mean, leave on the others."""
    x, y = task.x[task.train_rows[0]].astype(np.float64), task.y[task.test_rows[0]].astype(np.float64)
    directions = np.linalg.eigh(x.T @ x)[1][:, -job.parameters["hidden"][-1] :]
    return float(((y - y @ directions @ directions.T) ** 2).mean())


def _answer(found: Experiment, findings: Sequence[Finding]) -> tuple[str, ...]:
    if all(finding.status == "holds" for finding in findings):
        return (
            f"Yes: two trainings differ by {percent(found.error(found.leaks[-1]))} of the diameter if decoders are "
            f"isometries, and by {percent(found.error(found.leaks[0]))} if they are far from one.",
        )
    return (held(findings),)
