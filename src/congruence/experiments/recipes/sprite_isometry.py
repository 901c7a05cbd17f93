"""Section 3.3.1 and appendix A.6 of Nelson et al.: a square that moves and grows, as a nearly isometric generator.

Everything has a closed form, which is compared with numerical quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.document import Table
from congruence.experiments.data.sprite_decoders import (
    SpriteMetric,
    sprite_constant,
    sprite_metric,
    sprite_metric_by_quadrature,
)
from congruence.experiments.recipes.claims import read_claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import (
    Presentation,
    RecipeFigure,
    draw_figure,
    from_numbers,
    headline_if_all_hold,
    number_table,
)
from congruence.formatting import number
from congruence.report.figures.scales import plain_decades
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, SOURCE
from congruence.result import Finding

EDITION = 1
SIZES = [0.1, 0.15, 0.2, 0.3, 0.4]
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"sizes": SIZES, "sigmas": [0.02, 0.005, 0.001, 0.0002], "positions": 5},
    "small": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002], "positions": 41},
    "paper": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002], "positions": 201},
    "full": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001], "positions": 1001},
}
NEARLY = 0.01  # the limit of sharp edges counts as reached
RANGES = ((0.1, 0.2), (0.1, 0.4), (0.2, 0.25))  # half-sides

CLAIMS = read_claims("sprite-isometry")


@dataclass(frozen=True, eq=False)
class SquareMetrics:
    """Metrics of the images of squares of several sizes, smoothed more and less."""

    sizes: Float
    sigmas: Float  # from the most to the least smoothed
    metrics: tuple[tuple[SpriteMetric, ...], ...]  # by sigma, then by size
    drift: float  # largest relative change of g_pp over positions
    closed_gap: float  # largest relative distance of quadrature to the closed form
    mixed: float  # largest |g_pr| over sqrt(g_pp g_rr)

    @property
    def anisotropy(self) -> Float:
        """The largest relative difference over sizes of the two stretches in (p, √2 r), for each sigma."""
        pairs = [[metric.stretch for metric in row] for row in self.metrics]
        return np.array([max(high / low - 1 for low, high in row) for row in pairs])

    @property
    def exponent(self) -> float:
        """The power of r by which the speed of a moving square grows, for the sharpest edges."""
        speeds = [metric.speed for metric in self.metrics[-1]]
        return float(np.polyfit(np.log(self.sizes), np.log(speeds), 1)[0])

    @property
    def factor(self) -> float:
        """The speed over √r, mean over sizes, for the sharpest edges; 2 in the limit."""
        return float(np.mean([metric.speed / math.sqrt(metric.half_side) for metric in self.metrics[-1]]))


def compute(job: RecipeJob) -> SquareMetrics:
    """Measure squares."""
    sizes, sigmas, positions = (job.parameters[name] for name in ("sizes", "sigmas", "positions"))
    return measure_squares(sizes, sigmas, positions, job.progress)


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims of the paper."""
    squares = from_numbers(SquareMetrics, ours)
    findings = judge(squares)
    return Presentation(headline(squares, findings), findings, make_tables(squares), (draw_squares(squares),))


def measure_squares(sizes: Sequence[float], sigmas: Sequence[float], positions: int, progress: Any) -> SquareMetrics:
    """Integrate the metric of every size and smoothing, and of one square at several positions."""
    rows, gaps, mixed = [], [], []
    for i, s in enumerate(sigmas):
        progress(f"integrating with s = {s:g}", i, len(sigmas) + 1)
        summed = [sprite_metric_by_quadrature(r, s) for r in sizes]
        closed = [sprite_metric(r, s) for r in sizes]
        for one, two in zip(summed, closed, strict=True):
            gaps += [abs(one.position / two.position - 1), abs(one.size / two.size - 1)]
            mixed.append(abs(one.mixed) / math.sqrt(one.position * one.size))
        rows.append(tuple(summed))
    progress("moving a square", len(sigmas), len(sigmas) + 1)
    path = [sprite_metric_by_quadrature(0.2, 0.01, p).position for p in np.linspace(-0.8, 0.8, positions)]
    drift = float(np.ptp(path) / np.mean(path))
    return SquareMetrics(np.array(sizes), np.array(sigmas), tuple(rows), drift, max(gaps), max(mixed))


def judge(squares: SquareMetrics) -> tuple[Finding, ...]:
    """Judge the claims, which the paper makes in words."""
    sharp = f"s = {squares.sigmas[-1]:g}"
    last = float(squares.anisotropy[-1])
    checks = [(sprite_constant(a, b), sprite_constant(a, b, float(squares.sigmas[-1]))) for a, b in RANGES]
    gap = max(abs(smooth.rescaled / exact.rescaled - 1) for exact, smooth in checks)
    middle, (isometry, orthogonal, conformal, lipschitz) = checks[1][0], CLAIMS.values()
    return (
        isometry.judge(
            squares.drift,
            evidence=f"Over positions from −0.8 to 0.8 the squared speed varies by {number(squares.drift, 2)} of its "
            f"mean. Closed form and quadrature differ by at most {number(squares.closed_gap, 2)}.",
        ),
        orthogonal.judge(squares.mixed, evidence=f"|g_pr| is at most {number(squares.mixed, 2)} of √(g_pp g_rr)."),
        conformal.judge(
            last,
            float(np.diff(squares.anisotropy).max()),
            evidence=f"The two stretches differ by {number(100 * squares.anisotropy[0])} % with s = "
            f"{squares.sigmas[0]:g} and by {number(100 * last)} % with {sharp}.",
        ),
        lipschitz.judge(
            gap,
            evidence=f"For r from {middle.smallest:g} to {middle.largest:g} it is {number(middle.raw, 5)} in units of "
            f"√C and {number(middle.rescaled, 5)} after the best rescaling, which is (b/a)^¼. Squares with {sharp} are "
            f"within {number(100 * gap)} % of that.",
        ),
    )


def headline(squares: SquareMetrics, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The sentence of the verdict."""
    power = "√r" if abs(squares.exponent - 0.5) < NEARLY else f"r^{squares.exponent:.2f}"
    return headline_if_all_hold(
        f"Moving is an isometry, moving and growing are conformal: the stretch is {squares.factor:.2f} {power} in "
        "every direction.",
        findings,
    )


def make_tables(squares: SquareMetrics) -> tuple[Table, ...]:
    """The speed of a moving square by its size, and the bi-Lipschitz constants of ranges of sizes."""
    sharp = float(squares.sigmas[-1])
    speeds = [
        (f"r = {metric.half_side:g}", 2 * metric.half_side, metric.speed, 2 * math.sqrt(metric.half_side))
        for metric in squares.metrics[-1]
    ]
    constants = []
    for a, b in RANGES:
        exact, smooth = sprite_constant(a, b), sprite_constant(a, b, sharp)
        constants.append((f"{a:g} to {b:g}", exact.raw, exact.rescaled, smooth.rescaled))
    return (
        number_table(
            "How fast a moving square changes the image",
            ("square", "2r, as reported of the paper", f"ours, s = {sharp:g}", "ours, limit 2√r"),
            speeds,
            "Norm of the derivative of the image by the position, in units of √C. See the notes on the root.",
        ),
        number_table(
            "Bi-Lipschitz constant of moving and growing",
            ("half-sides", "raw", "rescaled", f"rescaled, s = {sharp:g}"),
            constants,
            "Raw: max(2√b, 1/(2√a)). Rescaled by the best single factor: (b/a)^¼.",
        ),
    )


def draw_squares(squares: SquareMetrics) -> RecipeFigure:
    """The speed against the size, with both formulas, and the anisotropy against the smoothing."""

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        grid = np.linspace(squares.sizes[0], squares.sizes[-1], 50)
        left.plot(grid, 2 * np.sqrt(grid), color=INK, linewidth=2, label="2√r")
        left.plot(grid, 2 * grid, color=MUTED, linewidth=2, dashes=(5, 2), label="2r")
        for row, colour, marker in ((squares.metrics[0], SOURCE, "D"), (squares.metrics[-1], HELD_OUT, "o")):
            speeds = [metric.speed for metric in row]
            left.plot(squares.sizes, speeds, marker, color=colour, markersize=7, label=f"s = {row[0].sigma:g}")
        left.set(xlabel="half-side r", ylabel="speed of the image, in √C", ylim=(0, None))
        left.legend(loc="upper left", ncols=2)
        percents = 100 * squares.anisotropy
        right.plot(squares.sigmas, percents, color=LINEAR, marker="v", linewidth=2)
        right.set(xscale="log", yscale="log", xlabel="smoothing s (log)", ylabel="stretches differ by, % (log)")
        plain_decades(right.xaxis, float(squares.sigmas[-1]), float(squares.sigmas[0]))
        plain_decades(right.yaxis, float(percents.min()), float(percents.max()))
        right.grid(axis="y")

    return draw_figure(
        "squares",
        paint,
        (900, 340),
        f"A moving square: the speed is {squares.factor:.2f} times r to the power {squares.exponent:.2f}",
        "Left: how fast the image changes when the square moves, by its size. Right: how much the stretches by moving "
        "and by growing differ, in (p, √2 r), as edges become sharp.",
    )
