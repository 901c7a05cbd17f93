"""Appendix A.1 of Nelson et al.: two models that are stable across trainings, and are not the truth.

The paper gives both examples in words and without numbers; the experiments, their sizes and the limits are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.recipes import masked_reconstruction as masked
from congruence.experiments.recipes import misspecified_regression as regression
from congruence.experiments.recipes.masked_reconstruction import Level, best, worst
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.result import RecipeResult, held
from congruence.experiments.recipes.statistical_claims import (
    NOTES,
    PAPER,
    TERMS,
    findings_of_masking,
    findings_of_regression,
    table_of_masking,
    table_of_regression,
)
from congruence.experiments.recipes.statistical_figures import draw_codes, draw_masking, draw_regression
from congruence.formatting import percent
from congruence.result import Finding

EDITION = 1
PARAMETERS: Mapping[str, Mapping[str, Any]] = {  # 6 and 2 visible patches are needed: all of them, and too few
    "smoke": {"sizes": [100, 1000, 10_000], "draws": 100, "visible": [6, 2], "runs": 3, "rows": 500}
    | {"hidden": 64, "steps": 400, "batch": 128, "learning_rate": 0.02},
    "small": {"sizes": [100, 1000, 10_000, 100_000], "draws": 200, "visible": [6, 3, 2, 1], "runs": 4, "rows": 2000}
    | {"hidden": 128, "steps": 3000, "batch": 256, "learning_rate": 0.01},
    "paper": {"sizes": [100, 1000, 10_000, 100_000], "draws": 500, "visible": [6, 4, 3, 2, 1], "runs": 5, "rows": 4000}
    | {"hidden": 128, "steps": 8000, "batch": 1024, "learning_rate": 0.01},
    "full": {"sizes": [100, 1000, 10_000, 100_000, 1_000_000], "draws": 1000, "visible": [6, 5, 4, 3, 2, 1], "runs": 10}
    | {"rows": 10_000, "hidden": 256, "steps": 50_000, "batch": 4096, "learning_rate": 0.01},
}


def run(job: Job) -> RecipeResult:
    """Run both examples."""
    tell = _counted(job)
    first = _regression(job, tell)
    visible: list[int] = job.parameters["visible"]
    rows = {shown: masked.draw_rows(job.parameters["rows"], shown, job.seed) for shown in visible}
    runs = {shown: _trained(job, rows[shown], tell) for shown in visible}
    levels = []
    for shown in visible:
        tell("comparing runs")
        levels.append(masked.measure_level(rows[shown], runs[shown], job.seed))

    findings = (*findings_of_regression(first), *findings_of_masking(levels))
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=_answer(levels, findings),
        paper=PAPER,
        ours={"example 1": first.to_dict(), "example 2": [level.to_dict() for level in levels]},
        findings=findings,
        tables=(table_of_regression(first), table_of_masking(levels)),
        figures=(draw_regression(first, job.seed), draw_masking(levels), draw_codes(rows[2], runs[2])),
        notes=NOTES,
        terms=TERMS,
    )


def _counted(job: Job) -> Callable[[str], None]:
    """A function that reports the next step and counts it."""
    fits, levels = len(job.parameters["sizes"]), len(job.parameters["visible"])
    total, done = fits + levels * (job.parameters["runs"] + 1), -1

    def tell(what: str) -> None:
        nonlocal done
        done += 1
        job.progress(what, done, total)

    return tell


def _regression(job: Job, tell: Callable[[str], None]) -> regression.Regression:
    fits = []
    for n in job.parameters["sizes"]:
        tell(f"fitting lines to {n} rows")
        part = job.parts.get(f"lines-{n}", partial(_fit, n, job.parameters["draws"], job.seed))
        fits.append(regression.Fits(part["lines"], part["right"]))
    return regression.measure_regression(job.parameters["sizes"], fits, job.seed)


def _fit(n: int, draws: int, seed: int) -> dict[str, Array]:
    fits = regression.fit_draws(n, draws, np.random.default_rng([seed, n]))
    return {"lines": fits.lines, "right": fits.right}


def _trained(job: Job, rows: masked.Rows, tell: Callable[[str], None]) -> list[dict[str, Array]]:
    """Train all runs on pictures with so many visible patches, each a part of its own."""
    options = {name: job.parameters[name] for name in ("hidden", "steps", "batch", "learning_rate")}
    runs = []
    for i in range(job.parameters["runs"]):
        tell(f"training on {rows.visible} of 6 patches, run {i + 1} of {job.parameters['runs']}")
        train = partial(masked.train, rows, (job.seed, rows.visible, i), job.device, **options)
        runs.append(job.parts.get(f"shown{rows.visible}-run{i}", train))
    return runs


def _answer(levels: list[Level], findings: tuple[Finding, ...]) -> tuple[str, ...]:
    hidden = next(level for level in levels if level.visible == 2)
    if all(finding.status == "holds" for finding in findings):
        return (
            f"Stable does not mean true: masked autoencoders agree with each other to {percent(worst(hidden.codes))} "
            f"of the diameter, but differ from the factors by {percent(best(hidden.rigid))}.",
        )
    return (held(findings),)
