"""The claims of section 4.1 and appendix A.7.1, judged by our numbers, with their limits and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Cell, Table, share
from congruence.experiments.recipes.claims import Claim, Estimate, difference, over_seeds, read_claims
from congruence.experiments.recipes.result import number_table
from congruence.formatting import count, number, percent
from congruence.result import Finding
from congruence.stats.intervals import rank_correlation_interval

if TYPE_CHECKING:
    from congruence.experiments.recipes.mnist_bilipschitz.run import LeakExperiment, LinearPairs

DRAWS = 1000  # of the bootstrap over pairs
CLAIMS = read_claims("mnist-bilipschitz")


def headline(experiment: LeakExperiment, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The sentences of the verdict."""
    errors = {leak: percent(experiment.error(leak)) for leak in (experiment.leaks[0], *experiment.leaks[-2:])}
    law = next(finding for finding in findings if finding.name == "error-follows-theorem-1")
    fits = experiment.relations["mean"]
    words = {"holds": "better than", "fails": "less well than"}
    return (
        f"With leaks of {', '.join(f'{leak:g}' for leak in errors)} two trainings differ by "
        f"{', '.join(errors.values())} of the diameter; with a leak of 1 decoders are isometries.",
        "With the mean constant over samples the term √(Λ² − 1) describes the errors "
        f"{words.get(law.status, 'as well as')} the line Λ − 1 (R² {number(fits.root[1], 2)} and "
        f"{number(fits.line[1], 2)}).",
    )


def judge(experiment: LeakExperiment, layers: int) -> tuple[Finding, ...]:
    """Judge the experiment on all digits; `layers` is the number of layers of the decoder."""
    return (
        _judge_bound(experiment, layers),
        _judge_constant(experiment),
        _judge_error(experiment),
        _judge_correlation(CLAIMS["error-grows-with-constant"], experiment),
        _judge_reconstruction(experiment),
    )


def judge_digits(experiment: LeakExperiment) -> Finding:
    """Judge the experiment with a model per digit."""
    return _judge_correlation(CLAIMS["error-grows-with-constant-per-digit"], experiment)


def judge_curves(experiments: Mapping[str, LeakExperiment]) -> Iterator[Finding]:
    """Compare the laws √(Λ² − 1) and Λ − 1: for all digits with both estimates of Λ, and for a model per digit."""
    whole, *others = experiments.values()
    yield _judge_curve(whole, "mean", "", "")
    yield _judge_curve(whole, "sampled_mean", "-by-ten-directions", ", with the constant from ten random directions")
    for one in others:
        yield _judge_curve(one, "mean", "-per-digit", ", with a model per digit")


def _judge_bound(experiment: LeakExperiment, layers: int) -> Finding:
    worst = float(np.max([pair.constant["max"] * pair.leak ** (layers - 1) for pair in experiment.pairs]))
    return CLAIMS["constant-is-bounded"].judge(
        worst,
        evidence=f"It is even below leak^−{layers - 1}, since {layers} layers have {layers - 1} activations between "
        f"them: the largest constant is {number(worst)} times that.",
    )


def _judge_constant(experiment: LeakExperiment) -> Finding:
    means = [_mean([pair.constant["mean"] for pair in experiment.at(leak)]) for leak in experiment.leaks]
    some = [pair for pair in experiment.chosen if pair.leak < 1]
    pairs = np.array([(pair.leak, pair.constant["mean"]) for pair in some] or [(np.nan, np.nan)])
    return CLAIMS["constant-approaches-one"].judge(
        Estimate(*rank_correlation_interval(pairs[:, 0], pairs[:, 1], DRAWS, [experiment.seed, 31])),
        evidence="Samplewise, "
        + ", ".join(f"{number(m)} at leak {leak:g}" for leak, m in zip(experiment.leaks, means, strict=True))
        + ". At leak 1 networks are linear with orthonormal weights, so that the constant is 1 by construction.",
    )


def _judge_error(experiment: LeakExperiment) -> Finding:
    medians = [experiment.error(leak) for leak in experiment.leaks]
    first, before, last = ([pair.error for pair in experiment.at(experiment.leaks[k])] for k in (0, -2, -1))
    null = _mean([pair.nearness.null for pair in experiment.chosen])
    return CLAIMS["error-falls-with-leak"].judge(
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
    claim = CLAIMS["error-follows-theorem-1{where}"].about(where=where, there=there)
    return claim.judge(
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
    return CLAIMS["reconstruction-may-be-imperfect"].judge(
        min(left, default=float("nan")),
        experiment.relations["mean"].rank,
        evidence=f"The best autoencoder leaves {percent(min(left, default=float('nan')))} of the variance of the "
        f"images unexplained, the worst that was kept {percent(worst / experiment.spread)}.",
    )


def judge_linear_pairs(linear: Mapping[str, LinearPairs], best: float) -> Iterator[Finding]:
    """Whether linear pairs differ because of how they were trained; `best` is the error of principal components."""
    trained = linear.get("as trained")
    for name, where in (("without early stopping", "early-stopping"), ("from principal components", "start")):
        claim, control = CLAIMS[f"linear-pairs-differ-by-{where}"], linear.get(name)
        if trained is None or control is None:
            yield claim.judge(np.nan, np.nan, evidence="These trainings are not part of this result.")
            continue
        shown = ", ".join(
            f"{over_seeds(one.errors)} {words} ({percent(one.stopped)} of trainings stopped early, the worst leaves "
            f"{percent(max(max(pair.reconstruction) for pair in one.pairs) / best - 1)} more than principal components)"
            for one, words in ((trained, "as trained"), (control, name))
        )
        gap = difference(trained.errors, control.errors)
        evidence = f"Mean error of {count(len(control.pairs), 'pair')}, as a share of the diameter: {shown}."
        yield claim.judge(gap, over_seeds(control.errors), null=0.0, evidence=evidence)


def linear_tables(linear: Mapping[str, LinearPairs]) -> Iterator[Table]:
    """The linear pairs and their controls, if there are any."""
    rows = [
        (
            name,
            share(float(np.median(one.errors))),
            share(max(one.errors)),
            share(one.stopped),
            float(np.median([pair.reconstruction for pair in one.pairs])),
        )
        for name, one in linear.items()
    ]
    head = ("linear pairs", "error, median", "error, worst pair", "stopped early", "reconstruction error, median")
    note = "All pairs, also those that the filter drops. Controls have the same seeds and are trained for all epochs."
    if rows:
        yield number_table("Linear pairs, by training", head, rows, note)


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


def describe_settings(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Settings in the words of the notes."""
    side, mnist = parameters["side"], parameters["data"] == "mnist"
    widths = (side**2 if mnist else 64, *parameters["hidden"])
    return {
        "widths": " – ".join(map(str, widths)),
        "shown_leaks": ", ".join(f"{leak:g}" for leak in parameters["leaks"]),
        "falls": ", falling to 0 along a cosine" if parameters["cosine"] else "",
        "images": f"{parameters['rows']} images "
        + (f"of {side} × {side} pixels" if mnist else "of scikit-learn's digits"),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
