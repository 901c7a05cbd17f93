"""Appendix A.4 of Nelson et al.: which regularisers make a decoder nearly isometric, and two trainings agree.

The paper lists the regularisers and runs no experiment on them; this one is ours, on scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.document import Table, share
from congruence.experiments.data.digits import digits
from congruence.experiments.recipes.bilipschitz_laws import Relation, relate
from congruence.experiments.recipes.bilipschitz_pairs import nearness_up_to
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.result import Figure, RecipeResult, interval_or_none, number_table
from congruence.experiments.training.small_autoencoders import KINDS, train_regularised
from congruence.formatting import number, percent
from congruence.maps.nearness import Nearness
from congruence.report.figures.scales import error_axis, plain_decades
from congruence.report.figures.svg import HEAT, HELD_OUT, INK, LINEAR, SOURCE, Drawing
from congruence.result import Finding, Status

EDITION = 1
TRAINED = 0.5  # of the variance left unexplained at most: what leaves more is not judged
STRENGTHS = {"weight decay": 0.3, "isometry penalty": 1.0}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"runs": 3, "epochs": 40, "rows": 900, "test_rows": 300},
    "small": {"runs": 5, "epochs": 400, "rows": 900, "test_rows": 800},
    "paper": {"runs": 10, "epochs": 1500, "rows": 900, "test_rows": 800},
    "full": {"runs": 20, "epochs": 5000, "rows": 900, "test_rows": 800},
}
MARKS = {"none": (INK, "o"), "weight decay": (SOURCE, "D"), "spectral norm": (HEAT, "s")}
MARKS |= {"residual": (LINEAR, "v"), "isometry penalty": (HELD_OUT, "^")}
PAPER = {
    "weight decay": "shown theoretically and empirically to optimise for dynamical isometry",
    "spectral norm": "optimises for it directly",
    "residual": "residual layers yield it",
    "isometry penalty": None,
    "numbers": None,
}
NOTES = (
    "The paper lists regularisers with references and runs no experiment on them. The autoencoder (three layers each "
    "way, six codes, SiLU), the strengths (weight decay "
    f"{STRENGTHS['weight decay']:g} in AdamW, penalty {STRENGTHS['isometry penalty']:g}) and the sizes are ours, and "
    "strengths were not tuned: a claim that fails here may hold with others. The isometry penalty is not on the "
    "paper's list; it penalises the distance to an isometry directly.",
    "The distance of a decoder to an isometry is measured by the condition number of its Jacobian at a code, as the "
    "median over images not used for training: one scale for all lengths does not count. Codes are therefore compared "
    "up to a rigid motion and one scale.",
    "A decoder counts as closer to an isometry if the worst run is better than the mean without a regulariser, and as "
    "not closer if the best run is worse; otherwise the claim is ambiguous. "
    f"Runs that leave more than {percent(TRAINED)} of the variance unexplained are not judged. Both limits were set "
    "after first trials.",
)
TERMS = (
    (
        "condition number",
        "the largest stretch of short lengths by a decoder near a code, over the smallest; 1 is an isometry.",
    ),
    (
        "error",
        "between codes of two trainings after the best rotation and scale, held out, as a share of the diameter.",
    ),
    ("unexplained", "the squared error of the images divided by their variance."),
)


@dataclass(frozen=True)
class Kind:
    """What was found for one regulariser: by run, and by pair of runs."""

    name: str
    condition: tuple[float, ...]  # of each run
    unexplained: tuple[float, ...]
    pairs: tuple[Nearness, ...]  # up to a similarity

    @property
    def trained(self) -> bool:
        """Whether the runs reconstruct well enough to be judged."""
        return float(np.mean(self.unexplained)) <= TRAINED

    @property
    def errors(self) -> list[float]:
        """The held-out error of each pair."""
        return [pair.held_out.mean for pair in self.pairs]

    def pair_conditions(self) -> list[float]:
        """The condition number of the worse decoder of each pair."""
        return [max(pair) for pair in combinations(self.condition, 2)]

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        told = {"condition": list(self.condition), "unexplained": list(self.unexplained)}
        return told | {"pairs": [pair.to_dict() for pair in self.pairs]}


def run(job: Job) -> RecipeResult:
    """Train all kinds, measure and judge them."""
    x, _ = digits()
    order = np.random.default_rng([job.seed, 3]).permutation(len(x))
    rows = job.parameters["rows"]
    train, test = x[order[:rows]], x[order[rows : rows + job.parameters["test_rows"]]]
    kinds = [_measured(job, i, train, test) for i in range(len(KINDS))]
    findings, relation = findings_of(kinds, job.seed)
    best = min([kind for kind in kinds if kind.trained] or kinds, key=lambda kind: float(np.mean(kind.condition)))
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=(
            f"The decoder with {_with(best.name)} is closest to an isometry: two trainings differ by "
            f"{percent(float(np.mean(best.errors)))} of the diameter, and by "
            f"{percent(float(np.mean(kinds[0].errors)))} without a regulariser.",
        ),
        paper=PAPER,
        ours={"kinds": {kind.name: kind.to_dict() for kind in kinds}, "relation": relation.to_dict()},
        findings=findings,
        tables=(_table(kinds),),
        figures=(_figure(kinds),),
        notes=NOTES,
        terms=TERMS,
    )


def _measured(job: Job, place: int, train: Array, test: Array) -> Kind:
    name, runs = KINDS[place], job.parameters["runs"]
    found = []
    for i in range(runs):
        job.progress(f"training with {_with(name)}, run {i + 1}", place * runs + i, len(KINDS) * runs)
        seed = int(np.random.SeedSequence([job.seed, place, i]).generate_state(1)[0])
        compute = partial(_train, train, test, name, seed, job.parameters["epochs"], job.device)
        found.append(job.parts.get(f"{name.replace(' ', '-')}-run{i}", compute))
    spread = float(((test - test.mean(0)) ** 2).mean())
    return Kind(
        name,
        condition=tuple(float(np.median(one["singular"][:, 0] / one["singular"][:, -1])) for one in found),
        unexplained=tuple(float(one["error"]) / spread for one in found),
        pairs=tuple(nearness_up_to("similarity", a["codes"], b["codes"], job.seed) for a, b in combinations(found, 2)),
    )


def _train(train: Array, test: Array, kind: str, seed: int, epochs: int, device: str) -> dict[str, Array]:
    strength = STRENGTHS.get(kind, 0.0)
    model = train_regularised(train, kind, epochs=epochs, strength=strength, seed=seed, device=device)
    codes = model.encode(test)
    error = ((model.decode(codes) - test) ** 2).mean(dtype=np.float64)
    return {"codes": codes, "singular": model.singular_values(codes), "error": np.asarray(error)}


def findings_of(kinds: Sequence[Kind], seed: int) -> tuple[tuple[Finding, ...], Relation]:
    """Judge each regulariser against none, which comes first, and whether errors grow with condition numbers.

    Decoders that do not reconstruct well are not judged: they may be isometries of nothing.
    """
    plain, trained = kinds[0], [kind for kind in kinds if kind.trained]
    limit = float(np.mean(plain.condition))
    findings = [
        Finding(
            f"{kind.name.replace(' ', '-')}-is-nearer-to-isometry",
            f"With {_with(kind.name)}, the decoder is closer to an isometry.",
            _below(kind.condition, limit) if kind.trained and plain.trained else "unknown",
            number=float(np.mean(kind.condition)),
            interval=(min(kind.condition), max(kind.condition)),
            evidence=f"Median condition number of the Jacobian {_range(kind.condition)} over runs, and "
            f"{_range(plain.condition)} without a regulariser. Unexplained variance "
            f"{percent(float(np.mean(kind.unexplained)))}, and {percent(float(np.mean(plain.unexplained)))} without.",
        )
        for kind in kinds[1:]
    ]
    relation = relate(
        np.array([value for kind in trained for value in kind.pair_conditions()]),
        np.array([value for kind in trained for value in kind.errors]),
        seed,
    )
    low, high = number(relation.rank_low, 2), number(relation.rank_high, 2)
    findings.append(
        Finding(
            "error-grows-with-condition",
            "The closer decoders are to isometries, the more similar are two trainings (Theorem 1).",
            relation.status if len(trained) > 2 else "unknown",
            number=relation.rank,
            interval=interval_or_none(relation.rank_low, relation.rank_high),
            null=0.0,
            evidence=f"Rank correlation of condition number and error over the pairs of {len(trained)} of {len(kinds)} "
            f"kinds, those that reconstruct: {number(relation.rank, 2)} ({low} to {high}). Errors: "
            + ", ".join(f"{kind.name} {percent(float(np.mean(kind.errors)))}" for kind in kinds)
            + " of the diameter.",
        )
    )
    return tuple(findings), relation


def _table(kinds: Sequence[Kind]) -> Table:
    head = ("regulariser", "the paper says", "condition number", "worst run", "error, mean", "worst pair", "null")
    rows = tuple(
        (
            kind.name,
            "nearer to an isometry" if PAPER.get(kind.name) else None,
            float(np.mean(kind.condition)),
            max(kind.condition),
            share(float(np.mean(kind.errors))),
            share(max(kind.errors)),
            share(float(np.mean([pair.null for pair in kind.pairs]))),
            share(float(np.mean(kind.unexplained))),
        )
        for kind in kinds
    )
    return number_table("Decoders with and without a regulariser", (*head, "unexplained"), rows, "Means over runs.")


def _figure(kinds: Sequence[Kind]) -> Figure:
    def paint(figure: Any) -> None:
        axes = figure.subplots()
        error_axis(axes, [0.0, *(value for kind in kinds for value in kind.errors)], "error, % of the diameter")
        for kind in kinds:
            colour, marker = MARKS[kind.name]
            errors: Float = 100 * np.array(kind.errors)
            axes.plot(kind.pair_conditions(), errors, marker, color=colour, markersize=7, alpha=0.85, label=kind.name)
        axes.set(xscale="log", xlabel="condition number of the worse decoder, median over images (log)")
        found = [value for kind in kinds for value in kind.pair_conditions()]
        plain_decades(axes.xaxis, min(found), max(found))
        figure.legend(loc="outside upper left", ncols=5)

    said = "; ".join(f"{kind.name} {number(float(np.mean(kind.condition)), 2)}" for kind in kinds)
    drawing = Drawing(
        paint, (760, 400), key="regularisers", label=f"Error of pairs against condition numbers, means: {said}"
    )
    caption = "Each mark is a pair of trainings: the condition number of its decoders, and the error between its codes."
    return Figure("regularisers", caption, drawing)


def _with(kind: str) -> str:
    words = {"none": "no regulariser", "weight decay": "weight decay", "spectral norm": "spectral normalisation"}
    return words.get(kind) or {"residual": "residual layers (ReZero)", "isometry penalty": "an isometry penalty"}[kind]


def _below(values: Sequence[float], limit: float) -> Status:
    """Whether all values are below a limit; "ambiguous" where some are above it and others below."""
    return "holds" if max(values) < limit else "fails" if min(values) > limit else "ambiguous"


def _range(values: Sequence[float]) -> str:
    return f"{number(float(np.mean(values)), 2)} ({number(min(values), 2)} to {number(max(values), 2)})"
