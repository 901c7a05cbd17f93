"""Where metrics of disentanglement err: codes that are, or are not, the factors, from generators of four kinds.

Every encoder is known to be right (its codes are the factors, up to order, scale, increasing functions, copies, noise
or additional codes) or wrong (factors are mixed or missing). A score errs if it takes the one for the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.document import Cell, Column, Table
from congruence.experiments.recipes.claims import read_claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import (
    Presentation,
    RecipeFigure,
    as_numbers,
    draw_figure,
    from_numbers,
    number_table,
)
from congruence.metrics import METRICS, evaluate
from congruence.metrics._registry import SCORES
from congruence.result import Finding

EDITION = 1
EVERY = tuple(name for name, metric in METRICS.items() if metric.supervised)
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"rows": 300, "factors": 2, "draws": 1, "metrics": ["infomec", "mig", "mcc"]},
    "small": {"rows": 1000, "factors": 4, "draws": 1, "metrics": [name for name in EVERY if name != "sis"]},
    "paper": {"rows": 2000, "factors": 4, "draws": 5, "metrics": list(EVERY)},
    "full": {"rows": 10_000, "factors": 6, "draws": 10, "metrics": list(EVERY)},
}
CORRELATION = 0.8  # of any two correlated factors
CLASSES = 5  # of a discrete factor
GENERATORS = tuple((law, kind) for law in ("independent", "correlated") for kind in ("continuous", "discrete"))
RIGHT = 0.8  # rescaled scores above this are taken as right
NOISE = 0.3  # standard deviation of the noise of noisy codes; that of the factors is 1

# scores that ask whether the factors are in the codes, for which a rotation is as good as the factors
OF_CONTENT = {"infoe", "explicitness", "dci_informativeness", "mcc_weak", "r2_linear", "r2_nonlinear"}
OF_CONTENT |= {"structural_rigid", "structural_similarity", "structural_linear"}
OURS = {"own_codes": "Own codes", "infom_corrected": "InfoM, corrected", "infoc_corrected": "InfoC, corrected"}

CLAIMS = read_claims("metric-validity")
Generator = np.random.Generator


def rotate_pairs(s: Float, degrees: float) -> Float:
    """Rotate the columns (n, K) in pairs; the last of an odd number with the one before it."""
    z, a = s.copy(), math.radians(degrees)
    for k in range(0, s.shape[1], 2):
        j = min(k, s.shape[1] - 2)
        x, y = z[:, j].copy(), z[:, j + 1].copy()
        z[:, j], z[:, j + 1] = math.cos(a) * x + math.sin(a) * y, math.cos(a) * y - math.sin(a) * x
    return z


ENCODERS: dict[str, Callable[[Float, Generator], Float]] = {
    "identity": lambda s, rng: s,
    "permuted, scaled": lambda s, rng: s[:, ::-1] * rng.choice([-2.0, -1.0, 0.5, 1.0, 2.0], s.shape[1]),
    "monotone": lambda s, rng: s**3 + 0.1 * s,
    "copies": lambda s, rng: np.hstack([s, s]),
    "noise codes": lambda s, rng: np.hstack([s, rng.normal(size=s.shape)]),
    "noisy": lambda s, rng: s + NOISE * rng.normal(size=s.shape),
    "rotated 20°": lambda s, rng: rotate_pairs(s, 20),
    "rotated 45°": lambda s, rng: rotate_pairs(s, 45),
    "half missing": lambda s, rng: np.where(np.arange(s.shape[1]) < s.shape[1] // 2, s, rng.normal(size=s.shape)),
    "unrelated": lambda s, rng: rng.normal(size=s.shape),
}
WRONG = ("rotated 20°", "rotated 45°", "half missing", "unrelated")


@dataclass(frozen=True, eq=False)
class Grid:
    """The mean of every score for every generator and encoder; NaN where it is undefined."""

    scores: tuple[str, ...]
    values: Float  # (generators, encoders, scores)

    @cached_property
    def rescaled(self) -> Float:
        """Scores with 1 for independent factors themselves, of the same kind, and 0 for 0, or for unrelated codes.

        The latter if lower is better. InfoM and InfoC of unrelated codes are far above 0, which is an error of theirs.
        """
        lower = np.array([score.startswith("structural") for score in self.scores])
        high, unrelated = (
            np.stack([self.values[int(kind == "discrete"), place] for _, kind in GENERATORS])[:, None]
            for place in (0, len(ENCODERS) - 1)
        )
        low = np.where(lower, unrelated, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.abs(high - low) > 1e-6, (self.values - low) / (high - low), math.nan)

    @cached_property
    def errors(self) -> Float:
        """-1 where a right encoder scores too low, 1 where a wrong one scores too high, else 0; shaped as `values`."""
        found = np.zeros_like(self.values)
        for e, encoder in enumerate(ENCODERS):
            for k, score in enumerate(self.scores):
                value = self.rescaled[:, e, k]
                rotated = encoder.startswith("rotated")
                is_right = encoder not in WRONG or (rotated and score in OF_CONTENT)
                found[:, e, k] = np.where(value < RIGHT, -1, 0) if is_right else np.where(value > RIGHT, 1, 0)
        return found


def draw_factors(rng: Generator, law: str, kind: str, n: int, count: int) -> tuple[Float, Float]:
    """Factors (n, K) and the same standardised; discrete ones are classes with an order."""
    from scipy.special import ndtr

    share = CORRELATION if law == "correlated" else 0.0
    s = math.sqrt(share) * rng.normal(size=(n, 1)) + math.sqrt(1 - share) * rng.normal(size=(n, count))
    if kind == "discrete":
        s = np.floor(CLASSES * ndtr(s))
    return s, (s - s.mean(0)) / s.std(0)


def score_codes(z: Float, s: Float, kind: str, metrics: Sequence[str], seed: int) -> dict[str, float]:
    """Every score of one encoder, the share of factors with a code of their own, and the corrected InfoM and InfoC."""
    kinds = "ordinal" if kind == "discrete" else "continuous"
    options: dict[str, Any] = {"kinds": kinds, "resamples": 0, "structural": False, "seed": seed}
    first = evaluate(z, s, metrics=["infomec"], nulls=3, **options)
    found = {score.score: score.value for score in first.scores if "infomec" in metrics}
    others = [name for name in metrics if name != "infomec"]
    if others:
        found |= {score.score: score.value for score in evaluate(z, s, metrics=others, nulls=0, **options).scores}
    corrected = {f"{name}_corrected": first[name].corrected for name in ("infom", "infoc")}
    return found | {"own_codes": len(first.own_codes) / s.shape[1]} | corrected


def measure_grid(job: RecipeJob) -> Grid:
    """Score every encoder of every generator, in several draws."""
    n, count, draws, metrics = (job.parameters[name] for name in ("rows", "factors", "draws", "metrics"))
    cells: dict[tuple[int, int], list[dict[str, float]]] = {}
    total = len(GENERATORS) * len(ENCODERS) * draws
    for g, (law, kind) in enumerate(GENERATORS):
        for draw in range(draws):
            rng = np.random.default_rng([job.seed, g, draw])
            raw, s = draw_factors(rng, law, kind, n, count)
            for e, (name, encode) in enumerate(ENCODERS.items()):
                job.progress(f"{law} {kind} factors, {name}", sum(map(len, cells.values())), total)
                cells.setdefault((g, e), []).append(score_codes(encode(s, rng), raw, kind, metrics, job.seed))
    scores = tuple(cells[0, 0][0])
    values = np.array(
        [
            [[np.mean([one[score] for one in cells[g, e]]) for score in scores] for e in range(len(ENCODERS))]
            for g in range(len(GENERATORS))
        ]
    )
    # without information above chance there is nothing to correct: the codes are not the factors
    missing = np.isnan(values) & np.array([score.endswith("_corrected") for score in scores])
    return Grid(scores, np.where(missing, 0.0, values))


def compute(job: RecipeJob) -> dict[str, Any]:
    """Score the grid."""
    grid = measure_grid(job)
    generators = [f"{law}, {kind}" for law, kind in GENERATORS]
    return {**as_numbers(grid), "generators": generators, "encoders": list(ENCODERS)}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Say where each metric errs."""
    grid = from_numbers(Grid, ours)
    return Presentation(headline(grid), judge(grid), make_tables(grid), (draw_grid(grid),))


def name_of(score: str) -> str:
    """The name of a score in tables."""
    return OURS.get(score) or SCORES[score][0]


def judge(grid: Grid) -> tuple[Finding, ...]:
    """Do own codes follow the truth, and which published scores err, for correlated factors and in all?"""
    own = grid.scores.index("own_codes")
    wrong_own = int(np.abs(grid.errors[:, :, own]).sum())
    published = [k for k, score in enumerate(grid.scores) if score not in OURS]
    errs = np.abs(grid.errors).sum((0, 1))
    axes = [k for k in published if grid.scores[k] not in OF_CONTENT]
    always = [name_of(grid.scores[k]) for k in axes if not errs[k]]
    correlated = [g for g, (law, _) in enumerate(GENERATORS) if law == "correlated"]
    halves = (grid.errors[correlated], np.delete(grid.errors, correlated, axis=0))
    more = [int(np.abs(halves[0][:, :, k]).sum() - np.abs(halves[1][:, :, k]).sum()) for k in published]
    moved = [name_of(grid.scores[k]) for k, change in zip(published, more, strict=True) if change > 0]
    fewer = sum(change < 0 for change in more)
    cells = len(GENERATORS) * len(ENCODERS)
    return (
        CLAIMS["own-codes-follow-the-truth"].judge(
            float(wrong_own), evidence=f"It errs in {wrong_own} of {cells} cells."
        ),
        CLAIMS["published-scores-err"].judge(
            float(len(always)) if axes else math.nan,
            evidence=f"{len(axes) - len(always)} of {len(axes)} such scores err in some cell."
            + (f" In no cell: {listing(always, 12)}." if always else ""),
        ),
        CLAIMS["correlated-factors-mislead"].judge(
            float(len(moved) - fewer) if published else math.nan,
            evidence=f"{len(moved)} of {len(published)} scores err more often for correlated factors, {fewer} for "
            "independent ones." + (f" The first are {listing(moved, 20)}." if moved else ""),
        ),
    )


def headline(grid: Grid) -> tuple[str, ...]:
    """How many published scores err, and how often."""
    published = [k for k, score in enumerate(grid.scores) if score not in OURS]
    errors = np.abs(grid.errors[:, :, published])
    return (
        f"{int((errors.sum((0, 1)) > 0).sum())} of {len(published)} published scores misjudge an encoder in this grid, "
        f"in {100 * errors.mean():.0f} % of all cells.",
    )


def make_tables(grid: Grid) -> tuple[Table, ...]:
    """Every score by encoder, one table for each generator; where each score errs."""
    words = {-1: "too low", 1: "too high", 0: ""}
    tables = []
    for g, (law, kind) in enumerate(GENERATORS):
        rows = []
        for k, score in enumerate(grid.scores):
            cells = []
            for e in range(len(ENCODERS)):
                value, error = grid.values[g, e, k], words[int(grid.errors[g, e, k])]
                known = not math.isnan(value)
                cells.append(Cell(f"{value:.2f}" if known else "–", float(value) if known else "", below=error))
            rows.append((name_of(score), *cells))
        tables.append(number_table(f"Scores, {law} {kind} factors", ("score", *ENCODERS), rows))
    lines = []
    for k, score in enumerate(grid.scores):
        found = grid.errors[:, :, k]
        low, high = ("; ".join(name_cells(found == sign)) for sign in (-1, 1))
        lines.append((name_of(score), int(np.abs(found).sum()), low, high))
    columns = (Column("score", "text"), Column("cells"), Column("too low", "text"), Column("too high", "text"))
    summary = Table("Where each score errs", columns, lines)
    return (summary, *tables)


def name_cells(chosen: Array) -> Iterator[str]:
    """The encoders of chosen cells (generators, encoders), each with the factors for which it is chosen."""
    for e, encoder in enumerate(ENCODERS):
        places = [place for place, one in zip(GENERATORS, chosen[:, e], strict=True) if one]
        whole = [
            word for word in dict.fromkeys(sum(GENERATORS, ())) if set(places) == {p for p in GENERATORS if word in p}
        ]
        if len(places) == len(GENERATORS):
            yield encoder
        elif places:
            yield f"{encoder} ({whole[0] if whole else ', '.join(map(' '.join, places))})"


def draw_grid(grid: Grid) -> RecipeFigure:
    """Rescaled scores by encoder, one panel for each generator; crosses where a score errs."""

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(GENERATORS), sharey=True)
        for g, axes in enumerate(panels):
            axes.imshow(np.clip(grid.rescaled[g].T, 0, 1), cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
            for e, k in np.argwhere(grid.errors[g] != 0):
                axes.text(e, k, "▼" if grid.errors[g, e, k] < 0 else "▲", ha="center", va="center", fontsize=9)
            axes.set_xticks(range(len(ENCODERS)), list(ENCODERS), rotation=60, ha="right", fontsize=9)
            axes.set_yticks(range(len(grid.scores)), [name_of(score) for score in grid.scores], fontsize=9)
            axes.set_title(", ".join(GENERATORS[g]), fontsize=10)

    return draw_figure(
        "grid",
        paint,
        (1100, 140 + 22 * len(grid.scores)),
        "Every score for every encoder and generator, and where it errs",
        "Darker is nearer to the score of the factors themselves. ▼: a right encoder scores too low; ▲: a wrong one "
        "scores too high.",
    )
