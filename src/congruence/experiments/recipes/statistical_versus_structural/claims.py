"""The claims of appendix A.1, judged by our numbers, with their limits and the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Float
from congruence.document import Table, share
from congruence.experiments.recipes._isometry import PairError
from congruence.experiments.recipes.claims import Claim, Estimate, over_pairs, over_seeds, read_claims
from congruence.experiments.recipes.result import RecipeFigure, draw_figure, headline_if_all_hold, number_table
from congruence.experiments.recipes.statistical_versus_structural import regression
from congruence.experiments.recipes.statistical_versus_structural.regression import LineFits
from congruence.formatting import number, percent
from congruence.maps.groups import fit_map
from congruence.report.figures.scales import error_axis, plain_decades
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, NULL, SOURCE
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.experiments.recipes.statistical_versus_structural.run import MaskingLevel


CLAIMS = read_claims("statistical-versus-structural")


POINTS = 250  # rows drawn of a scatter


def worst(errors: Sequence[PairError]) -> float:
    """The largest held-out error."""
    return float(np.max([one.held_out.mean for one in errors]))


def best(errors: Sequence[PairError]) -> float:
    """The smallest held-out error."""
    return float(np.min([one.held_out.mean for one in errors]))


def headline(levels: Sequence[MaskingLevel], findings: Sequence[Finding]) -> tuple[str, ...]:
    """The sentence of the verdict."""
    hidden = next(level for level in levels if level.visible == 2)
    return headline_if_all_hold(
        f"Stable does not mean true: masked autoencoders agree with each other to {percent(worst(hidden.codes))} of "
        f"the diameter, but differ from the factors by {percent(best(hidden.rigid))}.",
        findings,
    )


def judge_regression(fits: LineFits) -> tuple[Finding, ...]:
    """Judge the first example."""
    between, nearest, right = (Estimate(*fits.exponents[name]) for name in ("between", "to_nearest", "right"))
    few, many = f"{fits.sizes[0]:g} rows", f"{fits.sizes[-1]:g} rows"
    apart = float(fits.least_to_truth[-1] / fits.between[-1])
    return (
        CLAIMS["regression-is-statistically-identifiable"].judge(
            between,
            fits.starts,
            evidence=f"Coefficients from 10 starting points differ by {number(fits.starts, 2)}. Two fits differ by "
            f"{number(fits.between[0])} with {few} and {number(fits.between[-1])} with {many}, as {_power(between)}. "
            f"If a column is given twice, which violates the assumptions of least squares, coefficients differ by "
            f"{number(fits.doubled, 2)} between starting points, and predictions by {number(fits.doubled_fit, 2)}.",
        ),
        CLAIMS["regression-truth-is-not-identifiable"].judge(
            apart,
            evidence=f"With {many} the closest of all fits is {number(float(fits.least_to_truth[-1]))} from the "
            f"truth, {number(apart)} times the distance between two fits; the limit in closed form is "
            f"{number(fits.stays)}.",
        ),
        CLAIMS["nearest-line-is-identifiable"].judge(
            nearest,
            evidence=f"The distance of a fit to the nearest line, known in closed form, decreases from "
            f"{number(fits.to_nearest[0])} with {few} to {number(fits.to_nearest[-1])} with {many}, as "
            f"{_power(nearest)}.",
        ),
        CLAIMS["right-model-finds-the-truth"].judge(
            right,
            evidence=f"The distance of a + b exp(2x) to the truth decreases from {number(fits.right[0])} with {few} "
            f"to {number(fits.right[-1])} with {many}, as {_power(right)}.",
        ),
    )


def judge_masking(levels: Sequence[MaskingLevel]) -> tuple[Finding, ...]:
    """Judge the second example; some level must show 6 patches and some level 2."""
    by_visible = {level.visible: level for level in levels}
    hidden, lost = by_visible[2], over_seeds(by_visible[2].unexplained)
    names = [str(run) for run in range(len(hidden.unexplained))]
    codes, pictures = (
        over_pairs({pair: one.held_out.mean for pair, one in zip(combinations(names, 2), errors, strict=True)})
        for errors in (hidden.codes, hidden.pictures)
    )
    rigid, linear, expected = (_over_runs(errors) for errors in (hidden.rigid, hidden.linear, hidden.expected))
    assert hidden.least is not None
    null = min(one.null for one in hidden.codes)
    findings = [
        CLAIMS["masked-codes-are-statistically-identifiable"].judge(
            codes,
            pictures,
            lost,
            null=null,
            evidence=f"With 2 of 6 patches shown, at least {percent(min(hidden.unexplained))} of the variance is not "
            f"reconstructed. Between runs, codes differ by at most {percent(worst(hidden.codes))} of the diameter "
            f"after the best rotation (null {percent(null)}), and images, without any map, by "
            f"{percent(worst(hidden.pictures))}.",
        ),
        CLAIMS["masked-factors-are-not-identifiable"].judge(
            ratio(rigid, codes),
            ratio(linear, codes),
            evidence=f"With 2 of 6 patches shown, the best rotation leaves {percent(best(hidden.rigid))} of the "
            f"diameter between codes and factors and the best linear map {percent(best(hidden.linear))}, in the best "
            f"of {len(hidden.rigid)} runs, while runs differ by {percent(worst(hidden.codes))}. Even the mean of the "
            f"factors given the patches leaves {percent(hidden.least)}.",
        ),
        CLAIMS["masked-approximation-is-identifiable"].judge(
            ratio(expected, rigid),
            evidence=f"The distance of the codes to the mean of the factors given the shown patches is "
            f"{percent(worst(hidden.expected))} of the diameter in the worst run; to the factors themselves it is "
            f"{percent(best(hidden.rigid))} in the best run.",
        ),
        _judge_recovery(CLAIMS["factors-are-recovered-from-6-patches"], by_visible[6]),
    ]
    if 3 in by_visible:
        findings.append(_judge_recovery(CLAIMS["factors-are-recovered-from-3-patches"], by_visible[3]))
    return tuple(findings)


def _over_runs(errors: Sequence[PairError]) -> Estimate:
    """The mean of one error for each run."""
    return over_seeds([one.held_out.mean for one in errors])


def ratio(a: Estimate, b: Estimate) -> Estimate:
    """A ratio of estimates of the same runs: the widest that both intervals allow; NaN ends if either reaches 0."""
    ends = (a.low / b.high, a.high / b.low) if min(a.low, b.low) > 0 else (math.nan, math.nan)
    return Estimate(a.value / b.value, *ends)


def _judge_recovery(claim: Claim, level: MaskingLevel) -> Finding:
    lost, rigid = over_seeds(level.unexplained), _over_runs(level.rigid)
    null = min(one.null for one in level.rigid)
    return claim.judge(
        rigid,
        lost,
        null=null,
        evidence=f"With {level.visible} of 6 patches shown, at most {percent(max(level.unexplained))} of the variance "
        f"is not reconstructed, and codes are at most {percent(worst(level.rigid))} of the diameter from the factors "
        f"after the best rotation (null {percent(null)}).",
    )


def regression_table(fits: LineFits) -> Table:
    """The distances of the first example, by number of rows."""
    head = ("largest distance over inputs", "the paper says", *(f"n = {n:g}" for n in fits.sizes), "falls as")
    lines = (
        ("between", "between fits to two draws", "goes to 0"),
        ("to_truth", "from the truth", "does not go to 0"),
        ("to_nearest", "from the nearest line", "goes to 0"),
        ("right", "of the right model from the truth", None),
    )
    rows = [
        (what, says, *(float(value) for value in getattr(fits, name)), _power(Estimate(*fits.exponents[name])))
        for name, what, says in lines
    ]
    note = f"Means over draws. The nearest line is {number(fits.stays)} from the truth, in closed form."
    return number_table("Example 1: a line fitted to a curve", head, rows, note)


def masking_table(levels: Sequence[MaskingLevel]) -> Table:
    """The errors of the second example, by number of patches shown."""
    head = ("held out, % of the diameter", "the paper says", *(f"{level.visible} of 6 shown" for level in levels))
    lines: tuple[tuple[str, str | None, Callable[[MaskingLevel], float | None]], ...] = (
        ("variance not reconstructed, best run", "more than 0 if masked", lambda level: min(level.unexplained)),
        ("images of two runs, without a map", "0 in the limit", lambda level: worst(level.pictures)),
        ("codes of two runs, rigid", "near 0", lambda level: worst(level.codes)),
        ("the same, worst row (in sample)", "near 0", lambda level: max(one.sup for one in level.codes)),
        ("codes onto the factors, rigid", "not near 0 if imperfect", lambda level: best(level.rigid)),
        ("codes onto the factors, linear", None, lambda level: best(level.linear)),
        ("E[factors | shown] to the factors", None, lambda level: level.least),
        (
            "codes onto E[factors | shown], rigid",
            "near 0 for some approximation",
            lambda level: worst(level.expected) if level.least else None,
        ),
        ("null of codes onto the factors", None, lambda level: min(one.null for one in level.rigid)),
    )
    rows: list[tuple[Any, ...]] = []
    for what, says, measure in lines:
        values = [measure(level) for level in levels]
        rows.append((what, says, *(None if value is None else share(float(value)) for value in values)))
    rows.append(("stretch of the decoder (largest seen)", None, *(max(level.stretch) for level in levels)))
    note = "Between runs: the worst pair. Onto the factors: the best run. E[ ] is known in closed form for two patches."
    return number_table("Example 2: a masked autoencoder", head, rows, note)


def _power(exponent: Estimate) -> str:
    shown = [f"{value:.2f}".replace("-", "−").replace("−0.00", "0.00") for value in exponent]
    return f"n^{shown[0]} ({shown[1]} to {shown[2]})"


def draw_regression(fits: regression.LineFits, seed: int) -> RecipeFigure:
    """Draw the curve with lines fitted to it, and the distances of such lines against the number of rows."""
    x, y = regression.draw_rows(POINTS, np.random.default_rng(seed))

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        grid = regression.GRID[::20]
        left.plot(x, y, "o", color=MUTED, markersize=3, alpha=0.5, markeredgewidth=0)
        left.plot(grid, regression.truth(grid), color=INK, linewidth=2.5, label="the truth")
        for i, (a, b) in enumerate(fits.lines):
            name = f"{len(fits.lines)} fits, {fits.sizes[1]:g} rows each" if i == 0 else None
            left.plot([-1, 1], [a - b, a + b], color=HELD_OUT, linewidth=1.2, alpha=0.6, label=name)
        left.set(xlabel="x", ylabel="y")
        left.set_xticks([-1, 0, 1], ["−1", "0", "1"])
        left.legend(loc="upper left")
        for values, colour, marker, name in (
            (fits.to_truth, INK, "s", "from the truth"),
            (fits.between, HELD_OUT, "o", "between two fits"),
            (fits.to_nearest, LINEAR, "v", "from the nearest line"),
            (fits.right, SOURCE, "D", "right model, from the truth"),
        ):
            dashes = (3, 1.6) if marker == "D" else (None, None)
            right.plot(fits.sizes, values, color=colour, marker=marker, linewidth=2, dashes=dashes, label=name)
        right.set(xscale="log", yscale="log", xlabel="rows fitted on (log)", ylabel="largest distance (log)")
        low = float(min(values.min() for values in (fits.between, fits.to_nearest, fits.right)))
        right.set_ylim(low / 1.5, 40 * float(fits.to_truth.max()))  # room for the legend
        plain_decades(right.xaxis, float(fits.sizes[0]), float(fits.sizes[-1]))
        plain_decades(right.yaxis, low, float(fits.to_truth.max()))
        right.grid(axis="y")
        right.legend(loc="upper left", ncols=2)

    return draw_figure(
        "regression",
        paint,
        (900, 360),
        f"Lines fitted to a curve: two fits to {fits.sizes[-1]:g} rows differ by {number(fits.between[-1])} and miss "
        f"the truth by {number(fits.to_truth[-1])}",
        "Left: lines fitted to different data, and the curve that generated the data. Right: their distances.",
    )


def draw_masking(levels: Sequence[MaskingLevel]) -> RecipeFigure:
    """Draw how far codes are from other runs and from the factors, against how many patches are shown."""
    at = list(range(len(levels)))
    series = (
        ("codes onto the factors", INK, "s", [[one.held_out.mean for one in level.rigid] for level in levels]),
        ("codes of two runs", HELD_OUT, "o", [[one.held_out.mean for one in level.codes] for level in levels]),
    )
    nulls = [min(one.null for one in level.rigid) for level in levels]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        shown = [value for _, _, _, values in series for one in values for value in one]
        error_axis(axes, [*shown, *nulls], "error, % of the diameter")
        for name, colour, marker, values in series:
            axes.plot(at, [100 * np.mean(one) for one in values], color=colour, linewidth=2, label=name)
            for i, one in zip(at, values, strict=True):
                axes.plot([i] * len(one), 100 * np.array(one), marker, color=colour, markersize=6, clip_on=False)
        for i, level in zip(at, levels, strict=True):
            if level.expected and level.least is not None:
                onto = [100 * one.held_out.mean for one in level.expected]
                axes.plot([i] * len(onto), onto, "v", color=LINEAR, markersize=7, label="codes onto E[factors | shown]")
                style = {"color": SOURCE, "linewidth": 2.5, "label": "E[factors | shown] itself"}
                axes.plot([i - 0.2, i + 0.2], [100 * level.least] * 2, **style)
        axes.plot(at, [100 * null for null in nulls], color=NULL, linewidth=2, dashes=(1, 1.2), label="null (chance)")
        axes.set_xticks(at, [str(level.visible) for level in levels])
        axes.set(xlabel="patches shown, of 6", xlim=(-0.4, len(levels) - 0.6))
        figure.legend(loc="outside upper left", ncols=3)

    summary = [
        f"with {one.visible} shown, {percent(worst(one.codes))} between runs and {percent(best(one.rigid))} to the "
        "factors"
        for one in levels
    ]
    return draw_figure(
        "masking",
        paint,
        (700, 380),
        f"Error after the best rotation: {'; '.join(summary)}",
        "How far codes are from those of another run, and from the factors, when fewer patches are shown.",
    )


def first_coordinates(factors: Float, first: Float, second: Float) -> dict[str, Float]:
    """The first coordinate of the codes of two runs, rotated towards the factors, and the factor: some rows of each."""
    turned = fit_map(first, factors, "rigid")  # axes that could be those of the factors
    other = fit_map(second, first, "rigid").then(turned)(second)
    values = {"one": turned(first), "other": other, "true": factors}
    return {name: one[:POINTS, 0] for name, one in values.items()}


def draw_codes(one: Float, other: Float, true: Float) -> RecipeFigure:
    """Draw the first coordinate of codes, rotated, against another run and against the true factor."""

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, target, title, colour in (
            (panels[0], other, "another run", HELD_OUT),
            (panels[1], true, "the true factor", INK),
        ):
            axes.plot([-1, 1], [-1, 1], color=MUTED, linewidth=1.5, dashes=(5, 2))
            axes.plot(one, target, "o", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)
            axes.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xlabel="code of one run, rotated")
            axes.set_xticks([-1, 0, 1], ["−1", "0", "1"])
            axes.set_yticks([-1, 0, 1], ["−1", "0", "1"])
            axes.set_title(title, loc="left")
        panels[0].set_ylabel("the same pictures there")

    spread = [float(np.corrcoef(one, target)[0, 1]) for target in (other, true)]
    return draw_figure(
        "codes",
        paint,
        (700, 380),
        f"A code against another run (correlation {spread[0]:.3f}) and against the true factor ({spread[1]:.3f})",
        "With two of six patches shown, one coordinate of the code of one run against the same coordinate of another "
        f"run (correlation {spread[0]:.3f}) and against the true factor ({spread[1]:.3f}).",
    )
