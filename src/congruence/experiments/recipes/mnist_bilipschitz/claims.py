"""The claims of section 4.1 and appendix A.7.1, judged by our numbers, with their limits and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Cell, Table, share
from congruence.experiments.recipes.claims import ANY_CHANGE, NELSON, Claim, Estimate, Rule, difference
from congruence.experiments.recipes.result import number_table
from congruence.formatting import count, number, percent
from congruence.result import Finding
from congruence.stats.intervals import rank_correlation_interval

if TYPE_CHECKING:
    from congruence.experiments.recipes.mnist_bilipschitz.run import LeakExperiment

DRAWS = 1000  # of the bootstrap over pairs
FEW = 0.02  # of the variance left unexplained: the reconstruction would count as perfect
_PAPER, _FIGURES = f"{NELSON}, section 4.1", f"{NELSON}, appendix A.7.1"
_RANK = Rule("rank correlation of constant and error over pairs", low=0.0)
BOUNDED = Claim(
    "constant-is-bounded",
    "The local constant of the decoder is bounded by leak^−K for K layers.",
    _PAPER,
    (Rule("largest constant times leak^(K − 1)", high=1.001),),
    "rounding",
)
SHRINKS = Claim(
    "constant-approaches-one",
    "As the leak approaches 1, the constant of the decoders shrinks towards 1.",
    f"{_PAPER}, figure A.3",
    (Rule("rank correlation of leak and constant over pairs with a leak below 1", high=0.0),),
    ANY_CHANGE,
    post_hoc=True,
)
FALLS = Claim(
    "error-falls-with-leak",
    "As the leak approaches 1, the codes of two trainings become more similar.",
    _PAPER,
    (
        Rule("mean error at the smallest leak minus that at leak 1", low=0.0),
        Rule("mean error at the largest leak below 1 minus that at leak 1", low=0.0),
    ),
    ANY_CHANGE,
    post_hoc=True,
)
GROWS = Claim(
    "error-grows-with-constant",
    "The worse the constant of the decoders, the larger the difference between the codes of two trainings.",
    f"{_PAPER}, figure 2",
    (_RANK,),
    ANY_CHANGE,
)
GROWS_PER_DIGIT = Claim(
    "error-grows-with-constant-per-digit",
    "With a model per digit the results are consistent: the worse the constant, the larger the difference.",
    f"{_FIGURES}, figure A.6",
    (_RANK,),
    ANY_CHANGE,
)
FOLLOWS = Claim(
    "error-follows-theorem-1{where}",
    "The error follows the term of Theorem 1, a·√(Λ² − 1), better than the line a·(Λ − 1){there}.",
    f"{_PAPER}, figure 2",
    (
        Rule("R² of the root minus R² of the line, bootstrap interval over pairs", low=0.0),
        Rule("R² of the root", low=0.0),
    ),
    "no margin: the laws are compared with each other, and with the mean error",
    post_hoc=True,
)
IMPERFECT = Claim(
    "reconstruction-may-be-imperfect",
    "All this holds although the reconstruction is not perfect.",
    f"{_FIGURES}, figure A.5",
    (Rule("unexplained variance of the best autoencoder", low=FEW), _RANK),
    "2 % of the variance would count as perfect",
)
CLAIMS = (BOUNDED, SHRINKS, FALLS, GROWS, GROWS_PER_DIGIT, FOLLOWS, IMPERFECT)
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
    law = next(finding for finding in findings if finding.name == FOLLOWS.about(where="", there="").name)
    fits = experiment.relations["mean"]
    words = {"holds": "describes the errors better than", "fails": "describes the errors less well than"}
    return (
        f"Two trainings differ by {last} of the diameter if decoders are isometries, and by {first} if they are far "
        f"from one. The term √(Λ² − 1) {words.get(law.status, 'describes the errors as well as')} the line Λ − 1 (R² "
        f"{number(fits.root[1], 2)} and {number(fits.line[1], 2)}).",
    )


def judge(experiment: LeakExperiment, layers: int) -> tuple[Finding, ...]:
    """Judge the experiment on all digits; `layers` is the number of layers of the decoder."""
    return (
        _judge_bound(experiment, layers),
        _judge_constant(experiment),
        _judge_error(experiment),
        _judge_correlation(GROWS, experiment),
        _judge_reconstruction(experiment),
    )


def judge_digits(experiment: LeakExperiment) -> Finding:
    """Judge the experiment with a model per digit."""
    return _judge_correlation(GROWS_PER_DIGIT, experiment)


def judge_curves(experiments: Mapping[str, LeakExperiment]) -> Iterator[Finding]:
    """Compare the laws √(Λ² − 1) and Λ − 1: for all digits with both estimates of Λ, and for a model per digit."""
    whole, *others = experiments.values()
    yield _judge_curve(whole, "mean", "", "")
    yield _judge_curve(whole, "sampled_mean", "-by-ten-directions", ", with the constant from ten random directions")
    for one in others:
        yield _judge_curve(one, "mean", "-per-digit", ", with a model per digit")


def _judge_bound(experiment: LeakExperiment, layers: int) -> Finding:
    worst = max(pair.constant["max"] * pair.leak ** (layers - 1) for pair in experiment.pairs)
    return BOUNDED.judge(
        worst,
        evidence=f"It is even below leak^−{layers - 1}, since {layers} layers have {layers - 1} activations between "
        f"them: the largest constant is {number(worst)} times that.",
    )


def _judge_constant(experiment: LeakExperiment) -> Finding:
    means = [_mean([pair.constant["mean"] for pair in experiment.at(leak)]) for leak in experiment.leaks]
    some = [pair for pair in experiment.chosen if pair.leak < 1]
    pairs = np.array([(pair.leak, pair.constant["mean"]) for pair in some] or [(np.nan, np.nan)])
    return SHRINKS.judge(
        Estimate(*rank_correlation_interval(pairs[:, 0], pairs[:, 1], DRAWS, [experiment.seed, 31])),
        evidence="Samplewise, "
        + ", ".join(f"{number(m)} at leak {leak:g}" for leak, m in zip(experiment.leaks, means, strict=True))
        + ". At leak 1 networks are linear with orthonormal weights, so that the constant is 1 by construction.",
    )


def _judge_error(experiment: LeakExperiment) -> Finding:
    medians = [experiment.error(leak) for leak in experiment.leaks]
    first, before, last = ([pair.error for pair in experiment.at(experiment.leaks[k])] for k in (0, -2, -1))
    null = _mean([pair.nearness.null for pair in experiment.chosen])
    return FALLS.judge(
        difference(first, last),
        difference(before, last),
        null=0.0,
        evidence="Median error, % of the diameter: "
        + ", ".join(f"{percent(m)} at leak {leak:g}" for leak, m in zip(experiment.leaks, medians, strict=True))
        + f". From leak {experiment.leaks[0]:g} to {experiment.leaks[-1]:g} the mean decreases by "
        f"{percent(difference(first, last).value)}, in the last step by {percent(difference(before, last).value)}. The "
        f"error of unrelated codes is {percent(null)}.",
    )


def _judge_correlation(claim: Claim, experiment: LeakExperiment) -> Finding:
    mean, largest = experiment.relations["mean"], experiment.relations["max"]
    chosen = experiment.chosen
    nonlinear = experiment.relate([pair for pair in chosen if pair.leak < 1], "mean")
    return claim.judge(
        mean.rank,
        null=0.0,
        evidence=f"Rank correlation of the samplewise constant and the error over "
        f"{count(len(chosen), 'pair')}: {mean.rank}; of the largest constant {largest.rank}; samplewise without the "
        f"linear pairs, whose constant is 1, {nonlinear.rank}. {len(experiment.pairs) - len(chosen)} of "
        f"{count(len(experiment.pairs), 'pair')} were dropped because of a poor reconstruction.",
    )


def _judge_curve(experiment: LeakExperiment, how: str, where: str, there: str) -> Finding:
    one = experiment.relations[how]
    return FOLLOWS.about(where=where, there=there).judge(
        one.gain,
        one.root[1],
        null=0.0,
        evidence=f"a·√(Λ² − 1) with a = {number(one.root[0])} has R² = {number(one.root[1], 2)} and a·(Λ − 1) with a = "
        f"{number(one.line[0])} has R² = {number(one.line[1], 2)}: a difference of {one.gain}. The root has the "
        f"smaller residual in {percent(one.root_better)} of bootstrap draws over {len(experiment.chosen)} pairs.",
    )


def _judge_reconstruction(experiment: LeakExperiment) -> Finding:
    left = [min(pair.reconstruction) / experiment.spread for pair in experiment.chosen]
    worst = max((max(pair.reconstruction) for pair in experiment.chosen), default=float("nan"))
    return IMPERFECT.judge(
        min(left, default=float("nan")),
        experiment.relations["mean"].rank,
        evidence=f"The best autoencoder leaves {percent(min(left, default=float('nan')))} of the variance of the "
        f"images unexplained, the worst that was kept {percent(worst / experiment.spread)}.",
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
                _mean([pair.constant["mean"] for pair in here]),
                max((pair.constant["max"] for pair in here), default=float("nan")),
                _mean([pair.constant["sampled_mean"] for pair in here]),
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
            {"mean": "samplewise", "max": "max", "sampled_mean": "samplewise, ten directions"}[how],
            *one.root,
            *one.line,
            *(Cell(str(value), value.value if value.value == value.value else "") for value in (one.gain, one.rank)),
        )
        for name, experiment in experiments.items()
        for how, one in experiment.relations.items()
    ]
    note = "Least squares over the kept pairs, through error 0 at constant 1. The paper does not print a."
    return number_table("Error against constant", (*head, "difference of R²", "rank correlation"), rows, note)


def make_notes(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """What the paper does not state, or its text had lost, and we chose."""
    p = parameters["side"] ** 2 if parameters["data"] == "mnist" else 64
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
        "The learning rate was set after first trials, by the reconstruction error.",
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
