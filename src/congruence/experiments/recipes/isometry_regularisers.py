"""Appendix A.4 of Nelson et al.: which regularisers make a decoder nearly isometric, and two trainings agree.

The paper lists the regularisers and runs no experiment on them; this one is ours, on scikit-learn's digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.document import Table, share
from congruence.experiments.data.digits import digits
from congruence.experiments.recipes._isometry import PairError, measure_nearness
from congruence.experiments.recipes.claims import Estimate, difference, over_trainings, read_claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import (
    Presentation,
    RecipeFigure,
    draw_figure,
    from_numbers,
    number_table,
)
from congruence.experiments.training.small_autoencoders import KINDS, train_regularised
from congruence.formatting import number, percent
from congruence.report.figures.scales import error_axis, plain_decades
from congruence.report.figures.svg import HEAT, HELD_OUT, INK, LINEAR, SOURCE
from congruence.result import Finding
from congruence.stats.intervals import rank_correlation

EDITION = 1
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"runs": 3, "epochs": 40, "rows": 900, "test_rows": 300},
    "small": {"runs": 5, "epochs": 400, "rows": 900, "test_rows": 800},
    "paper": {"runs": 10, "epochs": 1500, "rows": 900, "test_rows": 800},
    "full": {"runs": 20, "epochs": 5000, "rows": 900, "test_rows": 800},
}
TRAINED = 0.5  # of the variance left unexplained at most: runs that leave more are not judged
STRENGTHS = {"weight decay": 0.3, "isometry penalty": 1.0}
WORDS = {"none": "no regulariser", "weight decay": "weight decay", "spectral norm": "spectral normalisation"}
WORDS |= {"residual": "residual layers (ReZero)", "isometry penalty": "an isometry penalty"}
MARKS = {"none": (INK, "o"), "weight decay": (SOURCE, "D"), "spectral norm": (HEAT, "s")}
MARKS |= {"residual": (LINEAR, "v"), "isometry penalty": (HELD_OUT, "^")}
CLAIMS = read_claims("isometry-regularisers")
PAPER = {
    "weight decay": "shown theoretically and empirically to optimise for dynamical isometry",
    "spectral norm": "optimises for it directly",
    "residual": "residual layers yield it",
    "isometry penalty": None,
    "numbers": None,
}


@dataclass(frozen=True)
class RegulariserRuns:
    """The runs with one regulariser, and their pairs."""

    condition: tuple[float, ...]  # of each run
    unexplained: tuple[float, ...]
    pairs: tuple[PairError, ...]  # up to a similarity

    @property
    def trained(self) -> bool:
        """Whether the runs reconstruct well enough to be judged."""
        return float(np.mean(self.unexplained)) <= TRAINED

    @property
    def errors(self) -> list[float]:
        """The held-out error of each pair."""
        return [pair.held_out.mean for pair in self.pairs]

    @property
    def pair_conditions(self) -> list[float]:
        """The condition number of the worse decoder of each pair."""
        return [max(pair) for pair in combinations(self.condition, 2)]


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train with every regulariser and measure."""
    x, _ = digits()
    order = np.random.default_rng([job.seed, 3]).permutation(len(x))
    rows = job.parameters["rows"]
    train, test = x[order[:rows]], x[order[rows : rows + job.parameters["test_rows"]]]
    return {"kinds": {kind: _train_kind(job, place, train, test) for place, kind in enumerate(KINDS)}}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge every regulariser."""
    kinds = from_numbers(Mapping[str, RegulariserRuns], ours["kinds"])
    findings = judge(kinds)
    return Presentation(headline(kinds), findings, (make_table(kinds),), (draw_errors(kinds),), PAPER)


def _train_kind(job: RecipeJob, place: int, train: Array, test: Array) -> RegulariserRuns:
    kind, runs = KINDS[place], job.parameters["runs"]
    trained = []
    for i in range(runs):
        job.progress(f"training with {WORDS[kind]}, run {i + 1}", place * runs + i, len(KINDS) * runs)
        seed = int(np.random.SeedSequence([job.seed, place, i]).generate_state(1)[0])
        compute = partial(_train, train, test, kind, seed, job.parameters["epochs"], job.device)
        trained.append(job.parts.get(f"{kind.replace(' ', '-')}-run{i}", compute))
    spread = float(((test - test.mean(0)) ** 2).mean())
    near = partial(measure_nearness, seed=job.seed)
    return RegulariserRuns(
        condition=tuple(float(np.median(one["singular"][:, 0] / one["singular"][:, -1])) for one in trained),
        unexplained=tuple(float(one["error"]) / spread for one in trained),
        pairs=tuple(near(a["codes"], b["codes"], "similarity")["similarity"] for a, b in combinations(trained, 2)),
    )


def _train(train: Array, test: Array, kind: str, seed: int, epochs: int, device: str) -> dict[str, Array]:
    strength = STRENGTHS.get(kind, 0.0)
    model = train_regularised(train, kind, epochs=epochs, strength=strength, seed=seed, device=device)
    codes = model.encode(test)
    error = ((model.decode(codes) - test) ** 2).mean(dtype=np.float64)
    return {"codes": codes, "singular": model.singular_values(codes), "error": np.asarray(error)}


def headline(kinds: Mapping[str, RegulariserRuns]) -> tuple[str, ...]:
    """The regulariser whose decoder is closest to an isometry, and the error between trainings with and without it."""
    trained = {kind: runs for kind, runs in kinds.items() if runs.trained} or kinds
    best = min(trained, key=lambda kind: _mean(trained[kind].condition))
    return (
        f"The decoder with {WORDS[best]} is closest to an isometry: two trainings differ by "
        f"{percent(_mean(kinds[best].errors))} of the diameter, and by {percent(_mean(kinds['none'].errors))} without "
        "a regulariser.",
    )


def judge(kinds: Mapping[str, RegulariserRuns]) -> tuple[Finding, ...]:
    """Judge each regulariser against none, and whether errors grow with condition numbers.

    Decoders that do not reconstruct well are not judged: they may be isometries of nothing.
    """
    plain, trained = kinds["none"], [runs for runs in kinds.values() if runs.trained]
    findings = [
        CLAIMS["{kind}-is-nearer-to-isometry"]
        .about(kind=kind.replace(" ", "-"), words=WORDS[kind])
        .judge(
            difference(plain.condition, runs.condition),
            null=0.0,
            unless="" if runs.trained and plain.trained else "Not judged: some runs do not reconstruct.",
            evidence=f"Median condition number of the Jacobian {_range(runs.condition)} over runs, and "
            f"{_range(plain.condition)} without a regulariser. Unexplained variance "
            f"{percent(_mean(runs.unexplained))}, and {percent(_mean(plain.unexplained))} without.",
        )
        for kind, runs in kinds.items()
        if kind != "none"
    ]
    relation = _relate_errors(trained)
    within = ", ".join(number(_relate_errors([runs]).value, 2) for runs in trained)
    errors = ", ".join(f"{kind} {percent(_mean(runs.errors))}" for kind, runs in kinds.items())
    finding = CLAIMS["error-grows-with-condition"].judge(
        relation,
        null=0.0,
        unless="" if len(trained) > 2 else "Not judged: fewer than three kinds reconstruct.",
        evidence=f"Rank correlation of condition number and error over the pairs of {len(trained)} of {len(kinds)} "
        f"kinds, those that reconstruct: {relation}. Within each kind: {within}. Errors: {errors} of "
        "the diameter.",
    )
    return (*findings, finding)


def _relate_errors(kinds: Sequence[RegulariserRuns]) -> Estimate:
    """The rank correlation over pairs of runs of one kind; its interval leaves out runs, which pairs share."""
    place = 0
    pairs: list[tuple[tuple[int, int], float, float]] = []  # runs, numbered over all kinds; condition number; error
    for runs in kinds:
        numbers = range(place, place + len(runs.condition))
        pairs += zip(combinations(numbers, 2), runs.pair_conditions, runs.errors, strict=True)
        place += len(numbers)

    def correlate(kept: Sequence[int]) -> float:
        here = [(condition, error) for ends, condition, error in pairs if set(kept).issuperset(ends)]
        return float(rank_correlation(*np.array(here).T)) if here else math.nan

    return Estimate(*np.clip(over_trainings(correlate, place), -1, 1).tolist())


def make_table(kinds: Mapping[str, RegulariserRuns]) -> Table:
    """Condition numbers, errors and unexplained variance of each regulariser."""
    head = ("regulariser", "the paper says", "condition number", "worst run", "error, mean", "worst pair", "null")
    rows = [
        (
            kind,
            "nearer to an isometry" if PAPER.get(kind) else None,
            _mean(runs.condition),
            max(runs.condition),
            share(_mean(runs.errors)),
            share(max(runs.errors)),
            share(_mean([pair.null for pair in runs.pairs])),
            share(_mean(runs.unexplained)),
        )
        for kind, runs in kinds.items()
    ]
    return number_table("Decoders with and without a regulariser", (*head, "unexplained"), rows, "Means over runs.")


def draw_errors(kinds: Mapping[str, RegulariserRuns]) -> RecipeFigure:
    """The error of each pair of trainings against the condition number of its decoders."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        errors = [0.0, *(value for runs in kinds.values() for value in runs.errors)]
        error_axis(axes, errors, "error, % of the diameter")
        for kind, runs in kinds.items():
            colour, marker = MARKS[kind]
            style = {"color": colour, "markersize": 7, "alpha": 0.85, "label": kind}
            axes.plot(runs.pair_conditions, 100 * np.array(runs.errors), marker, **style)
        axes.set(xscale="log", xlabel="condition number of the worse decoder, median over images (log)")
        conditions = [value for runs in kinds.values() for value in runs.pair_conditions]
        plain_decades(axes.xaxis, min(conditions), max(conditions))
        figure.legend(loc="outside upper left", ncols=5)

    means = "; ".join(f"{kind} {number(_mean(runs.condition), 2)}" for kind, runs in kinds.items())
    return draw_figure(
        "regularisers",
        paint,
        (760, 400),
        f"Error of pairs against condition numbers, means: {means}",
        "Each mark is a pair of trainings: the condition number of its decoders, and the error between its codes.",
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _range(values: Sequence[float]) -> str:
    return str(Estimate(_mean(values), min(values), max(values)))
