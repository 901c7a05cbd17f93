"""The claims of section 4.1 and appendix A.7.1, judged by our numbers, with their limits and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Cell, Table, share
from congruence.experiments.recipes._isometry import ErrorByConstant
from congruence.experiments.recipes.result import (
    headline_if_all_hold,
    interval_or_none,
    number_table,
    status_of,
    with_interval,
)
from congruence.formatting import count, number, percent
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.experiments.recipes.mnist_bilipschitz.run import LeakExperiment

ONE = 1e-3  # a constant that differs by less from 1 is that of an isometry
EXPLAINS = 0.5  # a curve with this R2 describes the errors
FEW = 0.02  # of the variance left unexplained: the reconstruction would count as perfect
PAPER = {
    "pairs": 60,
    "dropped": 11,
    "pairs per digit": 180,
    "dropped per digit": 5,
    "constant as leak goes to 1": "shrinks toward 1",
    "error as leak goes to 1": "falls significantly",
    "reconstruction": "not perfect",
    "curve": "a sqrt(2L + L^2) = a sqrt(constant^2 - 1), the term of Theorem 1",
}
TERMS = (
    ("leak", "the factor of LeakyReLU for negative values. 1 is a linear network, 0 would be ReLU."),
    ("pair", "two trainings with the same leak that differ in their seed only."),
    ("constant", "the largest factor by which a decoder stretches or shrinks short lengths; 1 is an isometry."),
    ("samplewise, max", "the mean and the largest constant over the codes of the images; of the worse decoder."),
    ("exact, sampled", "from all directions (singular values of the Jacobian), or from ten random ones."),
    (
        "error",
        "between the codes of a pair after the best rotation, reflection and shift, held out, as a share of the "
        "diameter.",
    ),
    ("null", "the same error after the pairing of rows was destroyed: what unrelated codes would give."),
    ("R²", "the share of the variance of errors that a curve explains; below 0 it is worse than their mean."),
)


def headline(experiment: LeakExperiment, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The sentence of the verdict."""
    last, first = percent(experiment.error(experiment.leaks[-1])), percent(experiment.error(experiment.leaks[0]))
    return headline_if_all_hold(
        f"Yes: two trainings differ by {last} of the diameter if decoders are isometries, and by {first} if they are "
        "far from one.",
        findings,
    )


def judge(experiment: LeakExperiment, layers: int) -> tuple[Finding, ...]:
    """Judge the experiment on all digits; `layers` is the number of layers of the decoder."""
    return (
        _judge_bound(experiment, layers),
        _judge_constant(experiment),
        _judge_error(experiment),
        _judge_correlation(
            experiment,
            "error-grows-with-constant",
            "The worse the constant of the decoders, the larger the difference between the codes of two trainings.",
        ),
        _judge_curve(experiment),
        _judge_reconstruction(experiment),
    )


def judge_digits(experiment: LeakExperiment) -> Finding:
    """Judge the experiment with a model per digit."""
    claim = "With a model per digit the results are consistent: the worse the constant, the larger the difference."
    return _judge_correlation(experiment, "error-grows-with-constant-per-digit", claim)


def _judge_bound(experiment: LeakExperiment, layers: int) -> Finding:
    worst = max(float(pair.exact.max()) * pair.leak ** (layers - 1) for pair in experiment.pairs)
    return Finding(
        "constant-is-bounded",
        "The local constant of the decoder is bounded by leak^−K for K layers.",
        status_of(worst <= 1 + ONE),
        number=worst,
        evidence=f"It is even below leak^−{layers - 1}, since {layers} layers have {layers - 1} activations between "
        f"them: the largest constant is {number(worst)} times that.",
    )


def _judge_constant(experiment: LeakExperiment) -> Finding:
    means = [_mean([pair.constant("mean") for pair in experiment.at(leak)]) for leak in experiment.leaks]
    last = _mean([pair.constant("max") for pair in experiment.at(experiment.leaks[-1])])
    falls = means[0] > means[-1] and experiment.leaks[-1] == 1
    return Finding(
        "constant-approaches-one",
        "As the leak approaches 1, the constant of the decoders approaches 1.",
        status_of(None if not np.isfinite(means).all() else falls and last <= 1 + ONE),
        number=last,
        evidence="Samplewise, "
        + ", ".join(f"{number(m)} at leak {leak:g}" for leak, m in zip(experiment.leaks, means, strict=True))
        + f"; the largest at leak {experiment.leaks[-1]:g} is {number(last, 4)}.",
    )


def _judge_error(experiment: LeakExperiment) -> Finding:
    medians = [experiment.error(leak) for leak in experiment.leaks]
    first, last = ([pair.error for pair in experiment.at(leak)] for leak in (experiment.leaks[0], experiment.leaks[-1]))
    null = _mean([pair.nearness.null for pair in experiment.kept])
    return Finding(
        "error-falls-with-leak",
        "As the leak approaches 1, the codes of two trainings become more similar.",
        status_of(bool(max(last) < min(first)) if first and last else None),
        number=medians[-1],
        null=null,
        evidence="Median error, % of the diameter: "
        + ", ".join(f"{percent(m)} at leak {leak:g}" for leak, m in zip(experiment.leaks, medians, strict=True))
        + f". The claim holds if every pair at leak {experiment.leaks[-1]:g} has a smaller error than every pair at "
        f"{experiment.leaks[0]:g}. The null is {percent(null)}.",
    )


def _judge_correlation(experiment: LeakExperiment, name: str, claim: str) -> Finding:
    mean, largest = experiment.relations["mean"], experiment.relations["max"]
    dropped = len(experiment.pairs) - len(experiment.kept)
    return Finding(
        name,
        claim,
        mean.status,
        number=mean.rank,
        interval=interval_or_none(mean.rank_low, mean.rank_high),
        null=0.0,
        evidence=f"Rank correlation of the samplewise constant and the error over "
        f"{count(len(experiment.kept), 'pair')}: {_rank_text(mean)}; of the largest constant {_rank_text(largest)}; "
        f"samplewise without the linear pairs, whose constant is 1, {_rank_text(experiment.nonlinear)}. {dropped} of "
        f"{count(len(experiment.pairs), 'pair')} were dropped because of a poor reconstruction.",
    )


def _judge_curve(experiment: LeakExperiment) -> Finding:
    mean = experiment.relations["mean"]
    prefer = {
        "root": "The pairs prefer the root.",
        "line": "The pairs prefer the line, expected for smooth maps of thick sets.",
        "neither": "Which of them fits better depends on the seeds.",
    }
    return Finding(
        "error-follows-theorem-1",
        "The error follows the term of Theorem 1, a·√(Λ² − 1).",
        status_of(mean.root[1] >= EXPLAINS),
        number=mean.root[1],
        evidence=f"Samplewise, a·√(Λ² − 1) with a = {number(mean.root[0])} has R² = {number(mean.root[1], 2)} and "
        f"a·(Λ − 1) with a = {number(mean.line[0])} has R² = {number(mean.line[1], 2)}; the root has the smaller "
        f"residual in {percent(mean.root_better)} of bootstrap draws. {prefer[mean.preferred]} The claim holds if R² "
        f"is at least {EXPLAINS:g}.",
    )


def _judge_reconstruction(experiment: LeakExperiment) -> Finding:
    left = [min(pair.reconstruction) / experiment.spread for pair in experiment.kept]
    rank = experiment.relations["mean"]
    return Finding(
        "reconstruction-may-be-imperfect",
        "All this holds although the reconstruction is not perfect.",
        "unknown" if not left else rank.status if min(left) > FEW else "fails",
        number=min(left, default=None),
        evidence=f"The best autoencoder leaves {percent(min(left))} of the variance of the images unexplained, the "
        f"worst that was kept {percent(max(max(pair.reconstruction) for pair in experiment.kept) / experiment.spread)}."
        if left
        else "No pair was kept.",
    )


def leak_table(experiment: LeakExperiment, title: str) -> Table:
    """The numbers by leak: constants, errors, reconstruction."""
    head = ("leak", "the paper says", "pairs kept", "constant, samplewise", "constant, max", "sampled, samplewise")
    errors = ("bound leak^−K", "error, median", "error, worst pair", "null", "reconstruction error, median")
    rows = []
    for leak in experiment.leaks:
        here, there = experiment.at(leak), [pair for pair in experiment.pairs if pair.leak == leak]
        rows.append(
            (
                f"{leak:g}",
                "constant and error decrease as the leak grows" if leak == experiment.leaks[0] else None,
                f"{len(here)} of {len(there)}",
                _mean([pair.constant("mean") for pair in here]),
                max((pair.constant("max") for pair in here), default=float("nan")),
                _mean([float(pair.sampled.mean(1).max()) for pair in here]),
                leak**-3,
                share(experiment.error(leak)),
                share(max((pair.error for pair in here), default=float("nan"))),
                share(_mean([pair.nearness.null for pair in here])),
                float(np.median([pair.reconstruction for pair in there])),
            )
        )
    note = "Means over pairs, of the worse decoder of each; errors are held out, % of the diameter."
    return number_table(title, head + errors, rows, note)


def curve_table(experiments: Mapping[str, LeakExperiment]) -> Table:
    """Both curves and the rank correlation, for each experiment and each constant."""
    head = ("experiment", "the paper says", "constant", "a of a·√(Λ² − 1)", "R²", "a of a·(Λ − 1)", "R² of it")
    rows = [
        (
            name,
            "a·√(Λ² − 1)",
            "samplewise" if how == "mean" else "max",
            *one.root,
            *one.line,
            one.preferred,
            Cell(_rank_text(one), one.rank if one.rank == one.rank else ""),
        )
        for name, experiment in experiments.items()
        for how, one in experiment.relations.items()
    ]
    note = "Least squares over the kept pairs, through error 0 at constant 1. The paper does not print a."
    return number_table("Error against constant", (*head, "preferred", "rank correlation"), rows, note)


def make_notes(parameters: Mapping[str, Any], p: int) -> tuple[str, ...]:
    """What the paper does not state, or its text had lost, and we chose."""
    widths = " – ".join(str(width) for width in (p, *parameters["hidden"]))
    falls = ", falling to 0 along a cosine" if parameters["cosine"] else ""
    images = f"{parameters['rows']} images"
    side = parameters["side"]
    images += f" of {side} × {side} pixels" if parameters["data"] == "mnist" else " of scikit-learn's digits"
    return (
        "The numbers of appendix A.7.1 were missing from the text we had, so these are ours: widths "
        f"{widths} (and back), leaks {', '.join(f'{leak:g}' for leak in parameters['leaks'])}, learning rate "
        f"{parameters['learning_rate']:g}{falls}, batch {parameters['batch']}, improvement threshold "
        f"{parameters['threshold']:g}, {images}, grey values from 0 to 1, at most {parameters['epochs']} epochs. Three "
        "layers each way, no bias, LeakyReLU between layers, Adam, gradients clipped to norm 1, patience of 50 epochs "
        "and the mean squared error are the paper's.",
        "Weights are kept orthonormal by the polar retraction (the nearest such matrix) after each step of Adam along "
        "the tangent part of the gradient; the paper's parametrisation is not known to us.",
        f"The reference leak of the filter is not known to us; ours is {parameters['reference']:g}, the linear "
        "network, whose best reconstruction is known (principal components). The paper dropped 11 of 60.",
        "Constants and errors are measured on images that were not used for training; the paper does not say which it "
        "used. The constant is exact at each code; the paper's estimate from ten directions is in the table, too. Over "
        "all possible codes, both are lower estimates.",
        "How the paper scaled its errors is not known to us; ours are held out and divided by the diameter.",
        f"A claim about a curve holds if R² is at least {EXPLAINS:g}, one about a rank correlation if its 95 % "
        "interval over pairs is above 0 (it fails if the interval is below 0). These limits are ours; they and the "
        "learning rate were set after first trials, the latter by the reconstruction error.",
    )


def _rank_text(relation: ErrorByConstant) -> str:
    return with_interval(relation.rank, relation.rank_low, relation.rank_high)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
