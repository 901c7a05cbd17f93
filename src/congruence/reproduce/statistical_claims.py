"""What appendix A.1 claims, judged by our numbers: the claims, their limits, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from congruence.formatting import number, percent
from congruence.reproduce.masked_reconstruction import Level, best, worst
from congruence.reproduce.misspecified_regression import Regression
from congruence.reproduce.recipe import Cell, Claim, NumberTable

ROOT = (-0.6, -0.4)  # an exponent in here counts as 1 / sqrt(n), which is -0.5
ROUNDING = 1e-9  # fits nearer than this are the same
AGREE = 0.05  # of the diameter: runs this near to each other, or to the factors, are called the same
APART = 3.0  # what is so many times the distance between runs is not explained by it
FEW = 0.02  # of the variance left unexplained: the reconstruction counts as perfect

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
    "The curve, the pictures, the network, the sizes and the limits at which a claim is said to hold are ours; the "
    "limits were set after first trials: "
    f"codes and pictures of two runs agree, and factors are found, if the error is at most {percent(AGREE)} of the "
    f"diameter, an error is another thing than the distance between runs if it is {APART:g} times as large, a "
    f"reconstruction is perfect if at most {percent(FEW)} of the variance is missing, and a power between "
    f"{number(ROOT[0], 1)} and {number(ROOT[1], 1)} is a square root.",
    "The second example is about what could be true of a masked autoencoder. We look at one, made so that the best "
    "guesses are known in closed form; what holds for it need not hold for all.",
    "Absolute identifiability, which the paper says fails in the first example and may fail in the second, is a matter "
    "of definition and is not measured.",
    "The decoder is kept near an isometry by a penalty, because Theorem 1 promises a code up to a rigid motion only "
    "there. The code is as wide as there are factors, which is less than E[picture | shown patches] needs, so no run "
    "reaches that exactly.",
)

TERMS = (
    ("statistically identifiable", "every training gives the same, up to a group of maps (Definition 1)."),
    ("structurally identifiable", "every training gives the truth, up to a group of maps (Definition 2)."),
    ("held out", "the map is fitted on some rows and scored on others."),
    ("rigid, linear", "the error left after the best rotation, reflection and shift, or the best linear map."),
    ("% of the diameter", "a distance over that of the two farthest rows of the target. 0 % is a perfect match."),
    ("null", "the same error after the pairing of rows was destroyed: what unrelated codes would give."),
    ("E[factors | shown]", "the mean of the factors given the shown patches; no guess is better in mean square."),
    ("stretch", "how much the decoder stretches or shrinks short lengths, at most, where we looked; 1 is an isometry."),
)


def claims_of_regression(found: Regression) -> tuple[Claim, ...]:
    """Judge the first example."""
    between, nearest, right = (found.exponent(name) for name in ("between", "to_nearest", "right"))
    few, many = f"{found.sizes[0]} rows", f"{found.sizes[-1]} rows"
    apart = float(found.least_to_truth[-1] / found.between[-1])
    return (
        Claim(
            "Example 1: the fitted line is statistically identifiable: it does not depend on the optimiser's start, "
            "and fits to other data come together as 1/√n.",
            found.starts < ROUNDING and ROOT[0] <= between <= ROOT[1],
            f"From 10 starts coefficients differ by {number(found.starts, 2)}. Two fits differ by "
            f"{number(found.between[0])} with {few} and {number(found.between[-1])} with {many}, as {_power(between)}. "
            f"Against the assumptions of least squares, with a column given twice, coefficients differ by "
            f"{number(found.doubled, 2)} between starts, while what they predict differs by "
            f"{number(found.doubled_fit, 2)}.",
        ),
        Claim(
            "Example 1: the truth is not structurally identifiable: the distance to it stays, however many the rows.",
            apart > APART,
            f"With {many} the nearest of all fits is {number(float(found.least_to_truth[-1]))} from the truth, "
            f"{number(apart)} times as far as two fits are from each other; the closed form says that "
            f"{number(found.stays)} stays.",
        ),
        Claim(
            "Example 1: the nearest linear function is structurally identifiable.",
            ROOT[0] <= nearest <= ROOT[1],
            f"The distance of a fit to the nearest line, known in closed form, falls from "
            f"{number(found.to_nearest[0])} with {few} to {number(found.to_nearest[-1])} with {many}, as "
            f"{_power(nearest)}.",
        ),
        Claim(
            "Example 1, control: with the right model the same estimator finds the truth.",
            ROOT[0] <= right <= ROOT[1],
            f"The distance of a + b exp(2x) to the truth falls from {number(found.right[0])} with {few} to "
            f"{number(found.right[-1])} with {many}, as {_power(right)}.",
        ),
    )


def claims_of_masking(levels: Sequence[Level]) -> tuple[Claim, ...]:
    """Judge the second example; some level must show 6 patches and some level 2."""
    by_visible = {level.visible: level for level in levels}
    hidden, lost = by_visible[2], min(by_visible[2].unexplained)
    codes, pictures = worst(hidden.codes), worst(hidden.pictures)
    rigid, linear = best(hidden.rigid), best(hidden.linear)
    assert hidden.least is not None
    claims = [
        Claim(
            "Example 2: with imperfect reconstruction, the codes of a masked autoencoder are statistically "
            "identifiable.",
            lost > FEW and codes <= AGREE and pictures <= AGREE,
            f"With 2 of 6 patches shown, at least {percent(lost)} of the variance is not reconstructed. Between runs, "
            f"codes differ by at most {percent(codes)} of the diameter after the best rotation (null "
            f"{percent(min(one.null for one in hidden.codes))}), and pictures, as they are, by {percent(pictures)}.",
        ),
        Claim(
            "Example 2: the true factors are not structurally identifiable, because reconstruction is imperfect.",
            rigid > APART * codes and linear > APART * codes,
            f"With 2 of 6 patches shown, the best rotation leaves {percent(rigid)} of the diameter between codes and "
            f"factors and the best linear map {percent(linear)}, in the best of {len(hidden.rigid)} runs, while runs "
            f"differ by {percent(codes)}. Even the mean of the factors given the patches leaves "
            f"{percent(hidden.least)}.",
        ),
        Claim(
            "Example 2: some approximation of the data-generating process is structurally identifiable.",
            worst(hidden.expected) < rigid / 2,
            f"Codes are {percent(worst(hidden.expected))} of the diameter from the mean of the factors given the shown "
            f"patches, in the worst run, and {percent(rigid)} from the factors themselves, in the best.",
        ),
        _recovered(
            by_visible[6],
            "Example 2, control: with nothing masked, reconstruction is perfect and the factors are found.",
        ),
    ]
    if 3 in by_visible:
        statement = (
            "Example 2, control: any three patches tell the factors, and masked training that shows three finds them: "
            "what matters is imperfect reconstruction, not the mask."
        )
        claims.append(_recovered(by_visible[3], statement))
    return tuple(claims)


def _recovered(level: Level, statement: str) -> Claim:
    lost, rigid = max(level.unexplained), worst(level.rigid)
    return Claim(
        statement,
        lost <= FEW and rigid <= AGREE,
        f"With {level.visible} of 6 patches shown, at most {percent(lost)} of the variance is not reconstructed, and "
        f"codes are at most {percent(rigid)} of the diameter from the factors after the best rotation (null "
        f"{percent(min(one.null for one in level.rigid))}).",
    )


def table_of_regression(found: Regression) -> NumberTable:
    """The distances of the first example, by number of rows."""
    head = ("largest distance over inputs", "the paper says", *(f"n = {n}" for n in found.sizes), "falls as")
    lines = (
        ("between", "between fits to two draws", "goes to 0"),
        ("to_truth", "from the truth", "does not go to 0"),
        ("to_nearest", "from the nearest line", "goes to 0"),
        ("right", "of the right model from the truth", None),
    )
    rows: list[tuple[Cell, ...]] = [
        (what, says, *(float(value) for value in getattr(found, name)), _power(found.exponent(name)))
        for name, what, says in lines
    ]
    note = f"Means over draws. The nearest line is {number(found.stays)} from the truth, in closed form."
    return NumberTable("Example 1: a line fitted to a curve", head, tuple(rows), note)


def table_of_masking(levels: Sequence[Level]) -> NumberTable:
    """The errors of the second example, by number of patches shown."""
    head = ("held out, % of the diameter", "the paper says", *(f"{level.visible} of 6 shown" for level in levels))
    lines: tuple[tuple[str, str | None, Callable[[Level], float | None]], ...] = (
        ("variance not reconstructed, best run", "more than 0 if masked", lambda level: min(level.unexplained)),
        ("pictures of two runs, as they are", "0 in the limit", lambda level: worst(level.pictures)),
        ("codes of two runs, rigid", "near 0", lambda level: worst(level.codes)),
        ("likewise, the row farthest off (in sample)", "near 0", lambda level: max(one.sup for one in level.codes)),
        ("codes onto the factors, rigid", "not near 0 if imperfect", lambda level: best(level.rigid)),
        ("codes onto the factors, linear", None, lambda level: best(level.linear)),
        ("E[factors | shown] to the factors", None, lambda level: level.least),
        (
            "codes onto E[factors | shown], rigid",
            "near 0 for some approximation",
            lambda level: worst(level.expected) if level.expected else None,
        ),
        ("null of codes onto the factors", None, lambda level: min(one.null for one in level.rigid)),
    )
    rows: list[tuple[Cell, ...]] = [
        (what, says, *(_percent(value(level)) for level in levels)) for what, says, value in lines
    ]
    rows.append(("stretch of the decoder (largest seen)", None, *(max(level.stretch) for level in levels)))
    note = "Between runs: the worst pair. Onto the factors: the best run. E[ ] is known in closed form for two patches."
    return NumberTable("Example 2: a masked autoencoder", head, tuple(rows), note)


def _percent(value: float | None) -> str | None:
    return None if value is None else percent(float(value))


def _power(exponent: float) -> str:
    return f"n^{exponent:.2f}".replace("-", "−").replace("−0.00", "0.00")
