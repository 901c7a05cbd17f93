"""Section 4.1 and appendix A.7.1 of Nelson et al.: trainings agree better if decoders are closer to isometries.

Pairs of orthogonal LeakyReLU autoencoders are trained on handwritten digits. The leak sets how far a decoder can be
from an isometry; whether the codes of two trainings then differ by more than a rigid motion is measured.

A pair is two trainings that differ in their seed alone. The local constant of a decoder at a code is max(s, 1 / s) over
the singular values s of its Jacobian J, which is known exactly for a stack of LeakyReLU layers. The paper takes |J v|
for ten random directions v, which is a lower estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.data.digits import shrink_images, split_digits
from congruence.experiments.recipes._isometry import ErrorByConstant, PairError, measure_nearness, relate_errors
from congruence.experiments.recipes.mnist_bilipschitz import claims, figures
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, from_numbers
from congruence.experiments.training.ensemble import Member, train_ensemble
from congruence.parts import Arrays
from congruence.rows.devices import one_thread

EDITION = 3
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
CONTROLS = "linear pairs"
DIRECTIONS = 10  # random ones, in the estimate of the paper


@dataclass(frozen=True, eq=False)
class AutoencoderPair:
    """Two trainings with the same leak, measured on images that neither was trained on.

    Constants are those of the worse decoder, "mean" and "max" over samples, and "sampled_mean" and "sampled_max" from
    random directions, which are lower estimates.
    """

    leak: float
    seed: int
    digit: int | None  # None if all digits were trained on
    reconstruction: tuple[float, float]  # mean squared error of each, per pixel
    nearness: PairError  # of the codes, up to a rigid motion
    constant: Mapping[str, float]

    @property
    def error(self) -> float:
        """The held-out error after the best rigid motion, a share of the diameter."""
        return self.nearness.held_out.mean


@dataclass(frozen=True, eq=False)
class LeakExperiment:
    """Pairs of one experiment, which of them the filter kept, and what their images are like."""

    pairs: tuple[AutoencoderPair, ...]
    kept: tuple[bool, ...]
    limit: float  # of the reconstruction error, the largest over digits
    spread: float  # the variance per pixel of the images that were measured on
    seed: int = 0  # of the bootstrap over pairs
    best: float = math.nan  # the reconstruction error of principal components
    constants: Mapping[str, Float] | None = None  # "exact" and "sampled": 5 % and 95 % quantile, mean, max, by leak

    @property
    def leaks(self) -> list[float]:
        """All leaks, increasing."""
        return sorted({pair.leak for pair in self.pairs})

    @property
    def chosen(self) -> list[AutoencoderPair]:
        """The pairs that the filter kept."""
        return [pair for pair, kept in zip(self.pairs, self.kept, strict=True) if kept]

    def at(self, leak: float) -> list[AutoencoderPair]:
        """The kept pairs of a leak."""
        return [pair for pair in self.chosen if pair.leak == leak]

    def error(self, leak: float) -> float:
        """The median error of a leak; NaN if all its pairs were dropped."""
        errors = [pair.error for pair in self.at(leak)]
        return float(np.median(errors)) if errors else float("nan")

    @cached_property
    def relations(self) -> dict[str, ErrorByConstant]:
        """How errors depend on constants, by the kind of constant."""
        return {how: self.relate(self.chosen, how) for how in ("mean", "max", "sampled_mean")}

    def relate(self, some: Sequence[AutoencoderPair], how: str) -> ErrorByConstant:
        """How the errors of some pairs depend on their constants."""
        constants = np.array([pair.constant[how] for pair in some])
        return relate_errors(constants, np.array([pair.error for pair in some]), self.seed)


@dataclass(frozen=True, eq=False)
class LinearPairs:
    """Pairs of linear networks, all of them, and the share of their trainings that stopped early."""

    pairs: tuple[AutoencoderPair, ...]
    stopped: float

    @property
    def errors(self) -> list[float]:
        """The held-out errors of the pairs, shares of the diameter."""
        return [pair.error for pair in self.pairs]


@dataclass(frozen=True, eq=False)
class PairTrainings:
    """The trainings of an experiment: their images, their digits (None: all of them), and the number of seeds."""

    x: Array  # (n, p) images to train on
    y: Array  # (m, p) images to measure on
    digits: tuple[int | None, ...]
    train_rows: tuple[Array, ...]  # for each digit
    test_rows: tuple[Array, ...]
    seeds: int

    @property
    def members(self) -> list[tuple[int, int, int]]:
        """For each training, in order: the index of its digit, its seed, and its place in the pair."""
        return [(d, s, place) for d in range(len(self.digits)) for s in range(self.seeds) for place in (0, 1)]


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train and measure all pairs, those of a model per digit if the scale has them, and linear pairs as controls."""
    images = load_images(job)
    trainings = all_digits(job, *images)
    directions = principal_directions(job.parameters, trainings)
    whole = replace(_experiment(job, trainings, "all"), best=linear_error(trainings, directions))
    ours: dict[str, Any] = {"all digits": whole}
    if job.parameters["digit_seeds"]:
        ours["a model per digit"] = _experiment(job, each_digit(job, *images), "digits")
    starts = {"as trained": None, "without early stopping": None, "from principal components": directions}
    return ours | {CONTROLS: {name: _linear_pairs(job, trainings, name, onto) for name, onto in starts.items()}}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the experiment on all digits and, if there is one, that with a model per digit."""
    experiments = {
        name: replace(from_numbers(LeakExperiment, one), seed=settings["seed"])
        for name, one in ours.items()
        if name != CONTROLS
    }
    linear = {name: from_numbers(LinearPairs, one) for name, one in ours.get(CONTROLS, {}).items()}
    whole, *others = experiments.values()
    findings = (
        *claims.judge(whole, len(settings["hidden"])),
        *map(claims.judge_digits, others),
        *claims.judge_curves(experiments),
        *claims.judge_linear_pairs(linear, whole.best),
    )
    drawn = [figures.draw_errors(whole), figures.draw_reconstruction(whole)]
    drawn += [] if whole.constants is None else [figures.draw_constants(whole)]
    drawn += [figures.draw_digits(one, whole) for one in others]
    tables = [claims.leak_table(one, f"{name[0].upper()}{name[1:]}, by leak") for name, one in experiments.items()]
    return Presentation(
        headlines=claims.headline(whole, findings),
        findings=findings,
        tables=(*tables, claims.curve_table(experiments), *claims.linear_tables(linear)),
        figures=tuple(drawn),
        words=claims.describe_settings(settings),
    )


def train_and_measure(
    trainings: PairTrainings,
    leaks: Sequence[float],
    numbers: Sequence[int],
    seed: int,
    progress: Any,
    *,
    onto: Array | None = None,
    **options: Any,
) -> Arrays:
    """Train all members of some leaks in one batch; `numbers` are those of the leaks, from which seeds are made.

    Members start at random or, with directions `onto`, at the encoders that project onto these.

    Returns for each leak, numbered as in `numbers`, codes (members, m, latent), the constants (members, m) and the
    reconstruction errors, the epochs and the losses (members,).
    """
    members = [
        Member(leak, member_seed(seed, number, trainings.digits[d], s, place), trainings.train_rows[d], onto)
        for number, leak in zip(numbers, leaks, strict=True)
        for d, s, place in trainings.members
    ]
    images = np.stack([trainings.y[trainings.test_rows[d]] for _ in leaks for d, _, _ in trainings.members])
    with one_thread():
        ensemble = train_ensemble(trainings.x, members, progress=progress, **options)
        codes = ensemble.encode(images)
        measured = {"codes": codes, "error": ensemble.reconstruction_error(images), "epochs": ensemble.epochs}
        rng = np.random.default_rng([seed, 17])
        constants = [local_constants(ensemble.metric(i, codes[i]), rng) for i in range(len(ensemble))]
    exact, sampled = zip(*constants, strict=True)
    measured |= {"loss": ensemble.losses, "exact": np.array(exact), "sampled": np.array(sampled)}
    each = len(trainings.members)
    return {
        f"{name}-{number}": values[i * each : (i + 1) * each]
        for i, number in enumerate(numbers)
        for name, values in measured.items()
    }


def member_seed(seed: int, leak: int, digit: int | None, number: int, place: int) -> int:
    """A separate seed for every member."""
    key = [seed, leak, 10 if digit is None else digit, number, place]
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def local_constants(metric: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """From J^T J (n, k, k): max(s, 1 / s) over singular values of J, and over |J v| for random unit v, (n,) each."""
    directions = rng.normal(size=(len(metric), metric.shape[1], DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    speeds = (directions * (metric @ directions)).sum(1)  # |J v|^2, (n, directions)

    def largest(squares: Array) -> Float:
        with np.errstate(divide="ignore"):  # a decoder that loses a direction has an infinite constant
            constant: Float = np.sqrt(np.maximum(squares.max(1), 1 / np.maximum(squares.min(1), 0)))
        return constant

    return largest(np.linalg.eigvalsh(metric)), largest(speeds)


def measure_pairs(
    trainings: PairTrainings, leaks: Sequence[float], measured: Arrays, seed: int, progress: Callable[[int, int], None]
) -> list[AutoencoderPair]:
    """Compare the two codes of each pair."""
    members = trainings.members
    pairs: list[AutoencoderPair] = []
    for number, leak in enumerate(leaks):
        names = ("codes", "error", "exact", "sampled")
        codes, errors, exact, sampled = (measured[f"{name}-{number}"] for name in names)
        for i in range(0, len(members), 2):
            progress(len(pairs), len(leaks) * len(members) // 2)
            d, s, _ = members[i]
            pairs.append(
                AutoencoderPair(
                    leak=leak,
                    seed=s,
                    digit=trainings.digits[d],
                    reconstruction=(float(errors[i]), float(errors[i + 1])),
                    nearness=measure_nearness(codes[i], codes[i + 1], "rigid", seed=seed)["rigid"],
                    constant={
                        "mean": float(exact[i : i + 2].mean(1).max()),
                        "max": float(exact[i : i + 2].max()),
                        "sampled_mean": float(sampled[i : i + 2].mean(1).max()),
                        "sampled_max": float(sampled[i : i + 2].max()),
                    },
                )
            )
    return pairs


def keep_converged(
    pairs: Sequence[AutoencoderPair], reference: float, quantile: float = 0.95
) -> tuple[list[bool], float]:
    """Drop pairs with a reconstruction error above a quantile of those at the reference leak, for each digit.

    Returns whether each pair is kept, and the largest limit over digits.
    """
    limits = {}
    for digit in {pair.digit for pair in pairs}:
        errors = [pair.reconstruction for pair in pairs if pair.digit == digit and pair.leak == reference]
        limits[digit] = float(np.quantile(errors, quantile))
    return [max(pair.reconstruction) <= limits[pair.digit] for pair in pairs], max(limits.values())


def load_images(job: RecipeJob) -> tuple[Array, Array, Array, Array]:
    """Images and labels to train on, and to measure on."""
    (x, a), (y, b) = split_digits(job.parameters["data"], job.seed)
    if job.parameters["data"] == "mnist":
        x, y = (shrink_images(images, job.parameters["side"]) for images in (x, y))
    return x, a, y, b


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
    constants = {}
    for kind in ("exact", "sampled"):
        some = [measured[f"{kind}-{number}"] for number in range(len(leaks))]
        constants[kind] = np.array([[*np.quantile(one, [0.05, 0.95]), one.mean(), one.max()] for one in some])
    return LeakExperiment(tuple(pairs), tuple(kept), limit, spread_of(trainings), job.seed, constants=constants)


def spread_of(trainings: PairTrainings) -> float:
    """The variance per pixel of the images that trainings are measured on."""
    images = trainings.y[np.concatenate(trainings.test_rows)]
    return float(((images - images.mean(0)) ** 2).mean())


def _train(job: RecipeJob, trainings: PairTrainings, name: str) -> Arrays:
    """Train all members, some leaks at once; each such batch is one part."""
    leaks, step = job.parameters["leaks"], job.parameters["at_once"]
    options = _training_options(job, trainings)
    if name == "digits":
        options["batch"] = job.parameters["digit_batch"]
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


def _training_options(job: RecipeJob, trainings: PairTrainings) -> dict[str, Any]:
    options = {key: job.parameters[key] for key in ("epochs", "batch", "learning_rate", "cosine", "threshold")}
    widths = [trainings.x.shape[1], *job.parameters["hidden"]]
    return options | {"widths": widths, "patience": PATIENCE, "device": job.device}


def _linear_pairs(job: RecipeJob, trainings: PairTrainings, name: str, onto: Array | None) -> LinearPairs:
    """The pairs with a leak of 1, with the seeds of the experiment; controls are trained for all epochs."""
    number = job.parameters["leaks"].index(1.0)
    if name == "as trained":
        measured = _train(job, trainings, "all")  # parts that are finished already
    else:
        report = partial(job.progress, f"training (linear, {name})")
        options = _training_options(job, trainings) | {"patience": None, "onto": onto}
        train = partial(
            train_and_measure, trainings, [1.0], [number], job.seed, lambda i, n, loss: report(i, n), **options
        )
        measured = job.parts.get(f"linear-{name.replace(' ', '-')}", train)
    here = {key.replace(f"-{number}", "-0"): value for key, value in measured.items() if key.endswith(f"-{number}")}
    pairs = measure_pairs(trainings, [1.0], here, job.seed, partial(job.progress, "comparing pairs"))
    return LinearPairs(tuple(pairs), float((here["epochs-0"] < job.parameters["epochs"]).mean()))


def principal_directions(parameters: Mapping[str, Any], trainings: PairTrainings) -> Float:
    """The principal directions of the training images, without a mean, (latent, p)."""
    x = trainings.x[trainings.train_rows[0]].astype(np.float64)
    return np.ascontiguousarray(np.linalg.eigh(x.T @ x)[1][:, -parameters["hidden"][-1] :].T)


def linear_error(trainings: PairTrainings, directions: Float) -> float:
    """The error that a projection onto directions (latent, p) leaves on the images to measure on."""
    y = trainings.y[trainings.test_rows[0]].astype(np.float64)
    return float(((y - y @ directions.T @ directions) ** 2).mean())
