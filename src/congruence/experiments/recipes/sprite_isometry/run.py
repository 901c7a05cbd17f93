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
from congruence.experiments.data.sprite_decoders import (
    SpriteMetric,
    sprite_constant,
    sprite_metric,
    sprite_metric_by_quadrature,
)
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import RecipeResult
from congruence.experiments.recipes.sprite_isometry import claims

EDITION = 1
SIZES = [0.1, 0.15, 0.2, 0.3, 0.4]
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"sizes": SIZES, "sigmas": [0.02, 0.005, 0.001, 0.0002], "positions": 5},
    "small": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002], "positions": 41},
    "paper": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002], "positions": 201},
    "full": {"sizes": SIZES, "sigmas": [0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001], "positions": 1001},
}


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


def run(job: RecipeJob) -> RecipeResult:
    """Measure squares and judge the claims of the paper."""
    sizes, sigmas, positions = (job.parameters[name] for name in ("sizes", "sigmas", "positions"))
    squares = measure_squares(sizes, sigmas, positions, job.progress)
    findings = claims.judge(squares)
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=claims.headline(squares, findings),
        paper=claims.PAPER,
        ours={
            "metrics": [[metric.to_dict() for metric in row] for row in squares.metrics],
            "drift": squares.drift,
            "closed_gap": squares.closed_gap,
            "mixed": squares.mixed,
            "anisotropy": squares.anisotropy.tolist(),
            "speed_exponent": squares.exponent,
            "speed_factor": squares.factor,
            "constants": [sprite_constant(a, b).to_dict() for a, b in claims.RANGES],
        },
        findings=findings,
        tables=claims.make_tables(squares),
        figures=(claims.draw_squares(squares),),
        notes=claims.NOTES,
        terms=claims.TERMS,
    )


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
