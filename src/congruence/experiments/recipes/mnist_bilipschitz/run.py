"""Section 4.1 and appendix A.7.1 of Nelson et al.: trainings agree better if decoders are closer to isometries.

Pairs of orthogonal LeakyReLU autoencoders are trained on handwritten digits. The leak sets how far a decoder can be
from an isometry; whether the codes of two trainings then differ by more than a rigid motion is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.data.digits import digits
from congruence.experiments.data.mnist import mnist, shrink_images
from congruence.experiments.recipes._isometry import ErrorByConstant, relate_errors
from congruence.experiments.recipes.mnist_bilipschitz import claims, figures
from congruence.experiments.recipes.mnist_bilipschitz.pairs import (
    AutoencoderPair,
    PairTrainings,
    keep_converged,
    measure_pairs,
    train_and_measure,
)
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import RecipeResult
from congruence.parts import Arrays

EDITION = 2
DATA = ("mnist", "digits")
LEAKS = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
PATIENCE = 50  # epochs, as in the paper
# `at_once` leaks are trained in one batch; with `digit_seeds` of 0 there is no model per digit.
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


@dataclass(frozen=True, eq=False)
class LeakExperiment:
    """Pairs of one experiment, those kept by the filter, and how their errors depend on constants."""

    leaks: tuple[float, ...]
    pairs: tuple[AutoencoderPair, ...]
    kept: tuple[AutoencoderPair, ...]
    limit: float  # of the reconstruction error, the largest over digits
    relations: Mapping[str, ErrorByConstant]  # by "mean" and "max" constant
    nonlinear: ErrorByConstant  # samplewise, over the pairs with a leak below 1
    spread: float = field(repr=False)  # the variance per pixel of the images that were measured on

    def at(self, leak: float) -> list[AutoencoderPair]:
        """The kept pairs of a leak."""
        return [pair for pair in self.kept if pair.leak == leak]

    def error(self, leak: float) -> float:
        """The median error of a leak; NaN if all its pairs were dropped."""
        errors = [pair.error for pair in self.at(leak)]
        return float(np.median(errors)) if errors else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        return {
            "pairs": [pair.to_dict() for pair in self.pairs],
            "kept": [pair in self.kept for pair in self.pairs],
            "limit": self.limit,
            "relations": {how: relation.to_dict() for how, relation in self.relations.items()},
            "not linear": self.nonlinear.to_dict(),
        }


def run(job: RecipeJob) -> RecipeResult:
    """Train, measure and judge all pairs, and those of a model per digit if the scale has them."""
    images = load_images(job)
    trainings = all_digits(job, *images)
    whole = _experiment(job, trainings, "all")
    experiments = {"all digits": whole}
    findings = claims.judge(whole, len(job.parameters["hidden"]))
    best = _best_linear_error(job, trainings)
    drawn = [figures.draw_errors(whole), figures.draw_constants(whole), figures.draw_reconstruction(whole, best)]
    tables = [claims.leak_table(whole, "All digits, by leak")]
    if job.parameters["digit_seeds"]:
        per_digit = _experiment(job, each_digit(job, *images), "digits")
        experiments["a model per digit"] = per_digit
        findings += (claims.judge_digits(per_digit),)
        drawn.append(figures.draw_digits(per_digit, whole))
        tables.append(claims.leak_table(per_digit, "A model per digit, by leak"))
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=claims.headline(whole, findings),
        paper=claims.PAPER,
        ours={name: one.to_dict() for name, one in experiments.items()},
        findings=findings,
        tables=(*tables, claims.curve_table(experiments)),
        figures=tuple(drawn),
        notes=claims.make_notes(job.parameters, trainings.x.shape[1]),
        terms=claims.TERMS,
    )


def load_images(job: RecipeJob) -> tuple[Array, Array, Array, Array]:
    """Images and labels to train on, and to measure on; the digits of scikit-learn are split in two."""
    if job.parameters["data"] == "mnist":
        (x, a), (y, b) = mnist("train"), mnist("test")
        return shrink_images(x, job.parameters["side"]), a, shrink_images(y, job.parameters["side"]), b
    x, labels = digits()
    order = np.random.default_rng([job.seed, 3]).permutation(len(x))
    train, test = order[: len(x) // 2 + 1], order[len(x) // 2 + 1 :]
    return x[train], labels[train], x[test], labels[test]


def all_digits(job: RecipeJob, x: Array, a: Array, y: Array, b: Array) -> PairTrainings:
    """The experiment on all digits."""
    rng = np.random.default_rng([job.seed, 5])
    rows = np.sort(rng.permutation(len(x))[: job.parameters["rows"]])
    test = np.sort(rng.permutation(len(y))[: job.parameters["test_rows"]])
    return PairTrainings(x, y, (None,), (rows,), (test,), job.parameters["seeds"])


def each_digit(job: RecipeJob, x: Array, a: Array, y: Array, b: Array) -> PairTrainings:
    """The experiment with a model per digit; each has as many rows as the rarest digit allows."""
    rng = np.random.default_rng([job.seed, 7])
    rows, test = (
        tuple(
            np.sort(rng.permutation(np.flatnonzero(labels == d))[: min(most, np.bincount(labels, minlength=10).min())])
            for d in range(10)
        )
        for labels, most in ((a, job.parameters["digit_rows"]), (b, job.parameters["digit_test_rows"]))
    )
    return PairTrainings(x, y, tuple(range(10)), rows, test, job.parameters["digit_seeds"])


def _experiment(job: RecipeJob, trainings: PairTrainings, name: str) -> LeakExperiment:
    leaks: list[float] = job.parameters["leaks"]
    measured = _train(job, trainings, name)
    pairs = measure_pairs(trainings, leaks, measured, job.seed, partial(job.progress, "comparing pairs"))
    kept, limit = keep_converged(pairs, job.parameters["reference"])

    def relate(some: Sequence[AutoencoderPair], how: str) -> ErrorByConstant:
        constants, errors = np.array([pair.constant(how) for pair in some]), np.array([pair.error for pair in some])
        return relate_errors(constants, errors, job.seed)

    relations = {how: relate(kept, how) for how in ("mean", "max")}
    nonlinear = relate([pair for pair in kept if pair.leak < 1], "mean")
    images = trainings.y[np.concatenate(trainings.test_rows)]
    spread = float(((images - images.mean(0)) ** 2).mean())
    return LeakExperiment(tuple(leaks), tuple(pairs), tuple(kept), limit, relations, nonlinear, spread)


def _train(job: RecipeJob, trainings: PairTrainings, name: str) -> Arrays:
    """Train all members, some leaks at once; each such batch is one part."""
    leaks, step = job.parameters["leaks"], job.parameters["at_once"]
    options = {key: job.parameters[key] for key in ("epochs", "batch", "learning_rate", "cosine", "threshold")}
    if name == "digits":
        options["batch"] = job.parameters["digit_batch"]
    options |= {"widths": [trainings.x.shape[1], *job.parameters["hidden"]], "patience": PATIENCE, "device": job.device}
    what = "a model per digit" if name == "digits" else "all digits"
    measured: Arrays = {}
    for start in range(0, len(leaks), step):
        some = leaks[start : start + step]
        shown = f"training ({what}), leak {', '.join(f'{leak:g}' for leak in some)}, loss"

        def report(epoch: int, epochs: int, loss: float, shown: str = shown) -> None:
            job.progress(f"{shown} {loss:.4f}", epoch, epochs)

        numbers = range(start, start + len(some))
        train = partial(train_and_measure, trainings, some, numbers, job.seed, report, **options)
        measured |= job.parts.get(f"{name}-leak{start}", train)
    return measured


def _best_linear_error(job: RecipeJob, trainings: PairTrainings) -> float:
    """The error that the principal directions of the training images, without a mean, leave on the others."""
    x, y = trainings.x[trainings.train_rows[0]], trainings.y[trainings.test_rows[0]].astype(np.float64)
    x = x.astype(np.float64)
    directions = np.linalg.eigh(x.T @ x)[1][:, -job.parameters["hidden"][-1] :]
    return float(((y - y @ directions @ directions.T) ** 2).mean())
