"""The overlap experiment of Matthes et al.: does the compositional contrast find slots that share rows?

Autoencoders with slots are trained on generators whose slots write to rows that overlap more and more (ours: how the
paper makes supports overlap is not known to us). All members with one number of slots are one ensemble. With data
"published" the generators, the training and its length are those of Brady et al. 2023, which the paper follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from congruence.experiments.recipes.claims import read_text
from congruence.experiments.recipes.mechanistic_overlap import claims, figures
from congruence.experiments.recipes.mechanistic_overlap.slots import Progress
from congruence.experiments.recipes.mechanistic_overlap.trainings import (
    Densities,
    OverlapGrid,
    is_published,
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
# Brady et al. train once for each seed, with a constant strength, and know nothing of rotations or restarts.
_BRADY = {"strengths": [0.01, 1.0], "data_seeds": [0, 1, 2, 3, 4], "restarts": 1, "rows": 72_000, "test_rows": 2000}
_BRADY |= {"batch": 64, "rate": 0.001, "hidden": 80, "ramp": [0.0, 0.0], "turns": [], "plain": [], "degrees": []}
_LONG = {"overlaps": {"2": TWO, "3": RING, "5": RING}, "steps": {"2": 115_000, "3": 115_000, "5": 115_000}}
DATA: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "own": PARAMETERS,
    "published": {
        "smoke": _BRADY
        | {"overlaps": {"2": [0.0, 0.8]}, "steps": {"2": 200}, "data_seeds": [0], "rows": 2000, "test_rows": 400},
        "small": _BRADY | {"overlaps": {"2": TWO, "3": [0.0, 0.3, 0.5]}, "steps": {"2": 115_000, "3": 115_000}},
        "paper": _BRADY | _LONG,
        "full": _BRADY | _LONG | {"restarts": 10, "test_rows": 8000},
    },
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
    steps = ", ".join(f"{many:,} for {slots}" for slots, many in settings["steps"].items())
    words = {**settings, "shares": ", ".join(f"{share:g}" for share in settings["turns"]), "steps": steps}
    notes = read_text("mechanistic-overlap")["published" if is_published(settings) else "own"]["notes"]
    return Presentation(
        headlines=claims.headlines(grids),
        findings=claims.judge(grids, densities, settings["steps"]),
        tables=claims.make_tables(grids, densities),
        figures=figures.draw_figures(grids, densities),
        notes=tuple(note.format(**words) for note in notes),
    )


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained."""
    each = len(parameters["strengths"]) * len(parameters["data_seeds"]) * parameters["restarts"]
    how = "" if is_published(parameters) else " without rotations"
    left = [
        f"{each * len(parameters['overlaps'][str(slots)])} of {slots} slots{how if not turned else ''}"
        for slots, turned in _list_grids(parameters)
        if parts.find(_name(slots, turned)) is None
    ]
    return f"autoencoders still to be trained on {device}, each group as one batch: {', '.join(left) or 'none'}"


def _list_grids(parameters: Mapping[str, Any]) -> list[tuple[int, bool]]:
    """Numbers of slots, and whether latents are rotated during training."""
    slots = [int(one) for one in parameters["overlaps"]]
    if is_published(parameters):
        return [(one, False) for one in slots]
    return [(one, True) for one in slots] + [(one, False) for one in slots if one in parameters["plain"]]


def _load_or_train_grid(job: RecipeJob, slots: int, turned: bool) -> OverlapGrid:
    name, p = _name(slots, turned), job.parameters
    train = partial(train_grid, slots, p, job.seed, job.device, turned=turned, progress=_progress(job, name))
    overlaps, arrays = tuple(p["overlaps"][str(slots)]), job.parts.get(name, train)
    return OverlapGrid(slots, turned, overlaps, tuple(p["strengths"]), **arrays, published=is_published(p))


def _name(slots: int, turned: bool) -> str:
    return f"slots{slots}" if turned else f"slots{slots}-plain"


def _progress(job: RecipeJob, name: str) -> Progress:
    return lambda step, steps, loss: job.progress(f"training {name}, loss {loss:.4f}", step, steps)
