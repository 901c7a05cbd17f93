"""The overlap experiment of Matthes et al.: does the compositional contrast find slots that share rows?

Autoencoders with slots are trained on generators whose slots write to rows that overlap more and more (ours: how the
paper makes supports overlap is not known to us). All members with one number of slots are one ensemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from congruence.experiments.recipes.mechanistic_overlap import claims, figures
from congruence.experiments.recipes.mechanistic_overlap.slots import Progress
from congruence.experiments.recipes.mechanistic_overlap.trainings import (
    Densities,
    OverlapGrid,
    read_degrees,
    train_densities,
    train_grid,
)
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, from_numbers
from congruence.parts import Parts

EDITION = 2
TWO, RING = [0.0, 0.2, 0.4, 0.6, 0.8], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
_ALL = {"batch": 64, "rate": 0.004, "hidden": 80, "ramp": [0.1, 0.6], "turns": [0.1, 0.2, 0.3, 0.4]}
# By number of slots: overlaps and steps. `plain` numbers of slots are trained without rotations, too. `degrees` are
# those of the covariances of dependent latents (null: independent); without any, that experiment is left out.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"overlaps": {"2": [0.0, 0.8]}, "steps": {"2": 200}, "strengths": [0.01], "data_seeds": [0]}
    | {"restarts": 1, "rows": 2000, "test_rows": 400, "plain": [], "degrees": [None, 6], "density_restarts": 1}
    | _ALL,
    "small": {"overlaps": {"2": TWO, "3": [0.0, 0.3]}, "steps": {"2": 2500, "3": 2500}, "strengths": [0.01]}
    | {"data_seeds": [0, 1, 2], "restarts": 2, "rows": 20_000, "test_rows": 2000, "plain": [2]}
    | {"degrees": [None, 12, 6], "density_restarts": 1}
    | _ALL,
    "paper": {"overlaps": {"2": TWO, "3": RING, "5": RING}, "steps": {"2": 30_000, "3": 30_000, "5": 30_000}}
    | {"strengths": [0.01, 1.0], "data_seeds": [0, 1, 2, 3, 4], "restarts": 5, "rows": 20_000, "test_rows": 2000}
    | {"plain": [2, 3, 5], "degrees": [None, 24, 12, 8, 6], "density_restarts": 3}
    | _ALL,
    "full": {"overlaps": {"2": TWO, "3": RING, "5": RING}, "steps": {"2": 115_000, "3": 115_000, "5": 115_000}}
    | {"strengths": [0.01, 1.0], "data_seeds": [0, 1, 2, 3, 4], "restarts": 10, "rows": 80_000, "test_rows": 8000}
    | {"plain": [2, 3, 5], "degrees": [None, 24, 12, 8, 6], "density_restarts": 5}
    | _ALL,
}


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train and measure."""
    ours: dict[str, Any] = {_name(*one): _load_or_train_grid(job, *one) for one in _list_grids(job.parameters)}
    if job.parameters["degrees"]:
        train = partial(train_densities, job.parameters, job.seed, job.device, _progress(job, "densities"))
        ours["densities"] = {"degrees": job.parameters["degrees"], **job.parts.get("densities", train)}
    return ours


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims."""
    grids = [from_numbers(OverlapGrid, one) for name, one in ours.items() if name != "densities"]
    densities = None
    if "densities" in ours:
        densities = replace(from_numbers(Densities, ours["densities"]), degrees=tuple(read_degrees(settings)))
    return Presentation(
        headlines=claims.headlines(grids),
        findings=claims.judge(grids, densities),
        tables=claims.make_tables(grids, densities),
        figures=figures.draw_figures(grids, densities),
        words={"shares": ", ".join(f"{share:g}" for share in settings["turns"])},
    )


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained."""
    each = len(parameters["strengths"]) * len(parameters["data_seeds"]) * parameters["restarts"]
    left = [
        f"{each * len(parameters['overlaps'][str(slots)])} of {slots} slots{'' if turned else ' without rotations'}"
        for slots, turned in _list_grids(parameters)
        if parts.find(_name(slots, turned)) is None
    ]
    return f"autoencoders still to be trained on {device}, each group as one batch: {', '.join(left) or 'none'}"


def _list_grids(parameters: Mapping[str, Any]) -> list[tuple[int, bool]]:
    """Numbers of slots, and whether latents are rotated during training."""
    slots = [int(one) for one in parameters["overlaps"]]
    return [(one, True) for one in slots] + [(one, False) for one in slots if one in parameters["plain"]]


def _load_or_train_grid(job: RecipeJob, slots: int, turned: bool) -> OverlapGrid:
    name, p = _name(slots, turned), job.parameters
    train = partial(train_grid, slots, p, job.seed, job.device, turned=turned, progress=_progress(job, name))
    return OverlapGrid(
        slots, turned, tuple(p["overlaps"][str(slots)]), tuple(p["strengths"]), **job.parts.get(name, train)
    )


def _name(slots: int, turned: bool) -> str:
    return f"slots{slots}" if turned else f"slots{slots}-plain"


def _progress(job: RecipeJob, name: str) -> Progress:
    return lambda step, steps, loss: job.progress(f"training {name}, loss {loss:.4f}", step, steps)
