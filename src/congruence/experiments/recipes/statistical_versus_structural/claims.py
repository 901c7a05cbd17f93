"""The claims of appendix A.1, judged by our numbers, with their limits and the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Float
from congruence.document import Table, share
from congruence.experiments.recipes._isometry import PairError
from congruence.experiments.recipes.claims import NELSON, Claim, Estimate, Rule, over_pairs
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

ROOT = (-0.6, -0.4)  # an exponent in here counts as 1 / sqrt(n), which is -0.5
ROUNDING = 1e-9  # fits that differ by less are the same
AGREE = 0.05  # of the diameter: runs that differ by less from each other, or from the factors, are the same
APART = 3.0  # an error so many times the distance between runs is not explained by it
FEW = 0.02  # of the variance left unexplained: the reconstruction counts as perfect
_ONE, _TWO = (f"{NELSON}, appendix A.1, example {place}" for place in (1, 2))
_TRIALS = "limits of ours, set after first trials"
_CODES = "error of codes onto the factors, rigid, range over runs"
_LOST = "unexplained variance, range over runs"


def _root(name: str, statement: str, what: str, *more: Rule) -> Claim:
    return Claim(
        name, statement, _ONE, (Rule(f"power of n by which {what} decreases", *ROOT), *more), _TRIALS, post_hoc=True
    )


STABLE_LINE = _root(
    "regression-is-statistically-identifiable",
    "Example 1: the fitted line is statistically identifiable: it does not depend on the optimiser's starting "
    "point, and fits to independent data sets converge as 1/√n.",
    "the distance of two fits",
    Rule("difference of coefficients between starting points", high=ROUNDING),
)
WRONG_LINE = Claim(
    "regression-truth-is-not-identifiable",
    "Example 1: the truth is not structurally identifiable: the distance to it does not vanish as n grows.",
    _ONE,
    (Rule("smallest distance to the truth over the distance of two fits, with the most rows", low=APART),),
    _TRIALS,
    post_hoc=True,
)
NEAREST_LINE = _root(
    "nearest-line-is-identifiable",
    "Example 1: the nearest linear function is structurally identifiable.",
    "the distance to the nearest line",
)
RIGHT_MODEL = _root(
    "right-model-finds-the-truth",
    "Example 1, control: with the right model the same estimator finds the truth.",
    "the distance to the truth",
)
STABLE_CODES = Claim(
    "masked-codes-are-statistically-identifiable",
    "Example 2: with imperfect reconstruction, the codes of a masked autoencoder are statistically identifiable.",
    _TWO,
    (
        Rule("rigid error between codes of two runs, range over pairs", high=AGREE),
        Rule("error between their images, without a map", high=AGREE),
        Rule(_LOST, low=FEW),
    ),
    _TRIALS,
    post_hoc=True,
)
HIDDEN_FACTORS = Claim(
    "masked-factors-are-not-identifiable",
    "Example 2: the true factors are not structurally identifiable, because reconstruction is imperfect.",
    _TWO,
    tuple(
        Rule(f"{how} error onto the factors over that between runs, ranges", low=APART) for how in ("rigid", "linear")
    ),
    _TRIALS,
    post_hoc=True,
)
APPROXIMATION = Claim(
    "masked-approximation-is-identifiable",
    "Example 2: some approximation of the data-generating process is structurally identifiable.",
    _TWO,
    (Rule("rigid error onto E[factors | shown] over that onto the factors, ranges over runs", high=0.5),),
    _TRIALS,
    post_hoc=True,
)
ALL_SHOWN, THREE_SHOWN = (
    Claim(
        f"factors-are-recovered-from-{shown}-patches",
        statement,
        _TWO,
        (Rule(_CODES, high=AGREE), Rule(_LOST, high=FEW)),
        _TRIALS,
        post_hoc=True,
    )
    for shown, statement in (
        (6, "Example 2, control: with nothing masked, reconstruction is perfect and the factors are recovered."),
        (
            3,
            "Example 2, control: any three patches determine the factors, and masked training that shows three "
            "recovers them: the cause is imperfect reconstruction, not the mask.",
        ),
    )
)
CLAIMS = (
    *(STABLE_LINE, WRONG_LINE, NEAREST_LINE, RIGHT_MODEL),
    *(STABLE_CODES, HIDDEN_FACTORS, APPROXIMATION, ALL_SHOWN, THREE_SHOWN),
)

PAPER = {
    "example 1": {
        "statistically identifiable": "yes, under the usual assumptions of least squares",
        "structurally identifiable": "no, not with epsilon = 0",
        "absolutely identifiable": "no, the data do not come from the model",
        "nearest linear function structurally identifiable": "yes, with epsilon = 0",
    },
    "example 2": {
        "statistically identifiable": "yes",
        "structurally identifiable": "no, because of imperfect reconstruction",
        "some approximation structurally identifiable": "yes; no analytical form is given",
        "absolutely identifiable": "not necessarily",
    },
    "numbers": None,
}
NOTES = (
    "The paper describes both examples in words and prints no numbers, and its formulas were not in the text we had. "
    "The curve, the images, the network, the sizes and the limits at which a claim holds are ours; the limits were set "
    "after first trials: "
    f"codes and images of two runs agree, and factors are recovered, if the error is at most {percent(AGREE)} of the "
    f"diameter; an error is not explained by the distance between runs if it is {APART:g} times as large; a "
    f"reconstruction is perfect if at most {percent(FEW)} of the variance is missing; and a power between "
    f"{number(ROOT[0], 1)} and {number(ROOT[1], 1)} is a square root.",
    "The second example is about what can be true of a masked autoencoder. We examine one, designed so that the best "
    "predictions are known in closed form; what holds for it need not hold for all.",
    "Absolute identifiability, which the paper says fails in the first example and may fail in the second, is a matter "
    "of definition and is not measured.",
    "A penalty keeps the decoder near an isometry, because Theorem 1 identifies a code up to a rigid motion only "
    "there. The code has as many dimensions as there are factors, which is less than E[image | shown patches] needs, "
    "so no run reaches that exactly.",
)

TERMS = (
    ("statistically identifiable", "every training gives the same result, up to a group of maps (Definition 1)."),
    ("structurally identifiable", "every training gives the truth, up to a group of maps (Definition 2)."),
    ("held out", "the map is fitted on some rows and scored on others."),
    ("rigid, linear", "the error left after the best rotation, reflection and shift, or the best linear map."),
    ("% of the diameter", "a distance divided by that of the two farthest rows of the target. 0 % is a perfect match."),
    ("null", "the same error after the pairing of rows was destroyed: what unrelated codes would give."),
    ("E[factors | shown]", "the mean of the factors given the shown patches; no prediction has a lower squared error."),
    ("stretch", "the largest factor by which the decoder stretches or shrinks short lengths; 1 is an isometry."),
)
POINTS = 250  # rows drawn of a scatter


def worst(errors: Sequence[PairError]) -> float:
    """The largest held-out error."""
    return max(one.held_out.mean for one in errors)


def best(errors: Sequence[PairError]) -> float:
    """The smallest held-out error."""
    return min(one.held_out.mean for one in errors)


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
        STABLE_LINE.judge(
            between,
            fits.starts,
            evidence=f"Coefficients from 10 starting points differ by {number(fits.starts, 2)}. Two fits differ by "
            f"{number(fits.between[0])} with {few} and {number(fits.between[-1])} with {many}, as {_power(between)}. "
            f"If a column is given twice, which violates the assumptions of least squares, coefficients differ by "
            f"{number(fits.doubled, 2)} between starting points, and predictions by {number(fits.doubled_fit, 2)}.",
        ),
        WRONG_LINE.judge(
            apart,
            evidence=f"With {many} the closest of all fits is {number(float(fits.least_to_truth[-1]))} from the "
            f"truth, {number(apart)} times the distance between two fits; the limit in closed form is "
            f"{number(fits.stays)}.",
        ),
        NEAREST_LINE.judge(
            nearest,
            evidence=f"The distance of a fit to the nearest line, known in closed form, decreases from "
            f"{number(fits.to_nearest[0])} with {few} to {number(fits.to_nearest[-1])} with {many}, as "
            f"{_power(nearest)}.",
        ),
        RIGHT_MODEL.judge(
            right,
            evidence=f"The distance of a + b exp(2x) to the truth decreases from {number(fits.right[0])} with {few} "
            f"to {number(fits.right[-1])} with {many}, as {_power(right)}.",
        ),
    )


def judge_masking(levels: Sequence[MaskingLevel]) -> tuple[Finding, ...]:
    """Judge the second example; some level must show 6 patches and some level 2."""
    by_visible = {level.visible: level for level in levels}
    hidden, lost = by_visible[2], over_pairs(by_visible[2].unexplained)
    codes, pictures, rigid, linear, expected = (
        over_pairs([one.held_out.mean for one in getattr(hidden, name)])
        for name in ("codes", "pictures", "rigid", "linear", "expected")
    )
    assert hidden.least is not None
    null = min(one.null for one in hidden.codes)
    findings = [
        STABLE_CODES.judge(
            codes,
            pictures,
            lost,
            null=null,
            evidence=f"With 2 of 6 patches shown, at least {percent(lost.low)} of the variance is not reconstructed. "
            f"Between runs, codes differ by at most {percent(codes.high)} of the diameter after the best rotation "
            f"(null {percent(null)}), and images, without any map, by {percent(pictures.high)}.",
        ),
        HIDDEN_FACTORS.judge(
            _ratio(rigid, codes),
            _ratio(linear, codes),
            evidence=f"With 2 of 6 patches shown, the best rotation leaves {percent(rigid.low)} of the diameter "
            f"between codes and factors and the best linear map {percent(linear.low)}, in the best of "
            f"{len(hidden.rigid)} runs, while runs differ by {percent(codes.high)}. Even the mean of the factors given "
            f"the patches leaves {percent(hidden.least)}.",
        ),
        APPROXIMATION.judge(
            _ratio(expected, rigid),
            evidence=f"The distance of the codes to the mean of the factors given the shown patches is "
            f"{percent(expected.high)} of the diameter in the worst run; to the factors themselves it is "
            f"{percent(rigid.low)} in the best run.",
        ),
        _judge_recovery(ALL_SHOWN, by_visible[6]),
    ]
    if 3 in by_visible:
        findings.append(_judge_recovery(THREE_SHOWN, by_visible[3]))
    return tuple(findings)


def _ratio(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.value / b.value, a.low / b.high, a.high / b.low)


def _judge_recovery(claim: Claim, level: MaskingLevel) -> Finding:
    lost, rigid = over_pairs(level.unexplained), over_pairs([one.held_out.mean for one in level.rigid])
    null = min(one.null for one in level.rigid)
    return claim.judge(
        rigid,
        lost,
        null=null,
        evidence=f"With {level.visible} of 6 patches shown, at most {percent(lost.high)} of the variance is not "
        f"reconstructed, and codes are at most {percent(rigid.high)} of the diameter from the factors after the best "
        f"rotation (null {percent(null)}).",
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
