"""The overlap experiment of Matthes et al.: does the compositional contrast find slots that share rows?

Autoencoders with slots are trained on generators whose slots write to rows that overlap more and more (ours: how the
paper makes supports overlap is not known to us). All members with one number of slots are one ensemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from congruence.experiments.recipes.overlap_claims import (
    IDENTIFIED,
    PAPER,
    TERMS,
    TRAINED,
    answer_of,
    findings_of,
    tables_of,
)
from congruence.experiments.recipes.overlap_densities import Densities, degrees_of, train_densities
from congruence.experiments.recipes.overlap_ensemble import Progress
from congruence.experiments.recipes.overlap_figures import figures_of
from congruence.experiments.recipes.overlap_runs import Grid, train_grid
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.result import RecipeResult
from congruence.parts import Parts

EDITION = 1
TWO, RING = [0.0, 0.2, 0.4, 0.6, 0.8], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
_ALL = {"batch": 64, "rate": 0.004, "hidden": 80, "ramp": [0.1, 0.6], "turns": [0.1, 0.2, 0.3, 0.4]}
# By number of slots: overlaps and steps. `plain` numbers of slots are trained without turns too. `degrees` are those
# of the covariances of dependent latents (null: independent); none of them leaves that experiment out.
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
    | {"plain": [2], "degrees": [None, 24, 12, 8, 6], "density_restarts": 3}
    | _ALL,
    "full": {"overlaps": {"2": TWO, "3": RING, "5": RING}, "steps": {"2": 115_000, "3": 115_000, "5": 115_000}}
    | {"strengths": [0.01, 1.0], "data_seeds": [0, 1, 2, 3, 4], "restarts": 10, "rows": 80_000, "test_rows": 8000}
    | {"plain": [2, 3, 5], "degrees": [None, 24, 12, 8, 6], "density_restarts": 5}
    | _ALL,
}


def run(job: Job) -> RecipeResult:
    """Train, measure and judge."""
    grids = [_grid(job, *one) for one in _wanted(job.parameters)]
    densities = _densities(job) if job.parameters["degrees"] else None
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=answer_of(grids),
        paper=PAPER,
        ours={_name(grid.slots, turned=grid.turned): grid.to_dict() for grid in grids}
        | ({"densities": densities.to_dict()} if densities is not None else {}),
        findings=findings_of(grids, densities),
        tables=tables_of(grids, densities),
        figures=figures_of(grids, densities),
        notes=_notes(job.parameters),
        terms=TERMS,
    )


def plan(parameters: Mapping[str, Any], device: str, parts: Parts) -> str:
    """Say what will be trained."""
    each = len(parameters["strengths"]) * len(parameters["data_seeds"]) * parameters["restarts"]
    left = [one for one in _wanted(parameters) if parts.find(_name(one[0], turned=one[1])) is None]
    parts_left = ", ".join(
        f"{each * len(parameters['overlaps'][str(slots)])} of {slots} slots{'' if turned else ' without rotations'}"
        for slots, turned in left
    )
    return f"autoencoders still to be trained on {device}, each group as one batch: {parts_left or 'none'}"


def _wanted(parameters: Mapping[str, Any]) -> list[tuple[int, bool]]:
    """Numbers of slots, and whether latents are turned."""
    slots = [int(one) for one in parameters["overlaps"]]
    return [(one, True) for one in slots] + [(one, False) for one in slots if one in parameters["plain"]]


def _grid(job: Job, slots: int, turned: bool) -> Grid:
    name = _name(slots, turned=turned)
    train = partial(train_grid, slots, job.parameters, job.seed, job.device, turned=turned, progress=_told(job, name))
    found = job.parts.get(name, train)
    overlaps, strengths = job.parameters["overlaps"][str(slots)], job.parameters["strengths"]
    return Grid(slots, turned, tuple(overlaps), tuple(strengths), **found)


def _densities(job: Job) -> Densities:
    train = partial(train_densities, job.parameters, job.seed, job.device, _told(job, "densities"))
    return Densities(tuple(degrees_of(job.parameters)), **job.parts.get("densities", train))


def _name(slots: int, *, turned: bool) -> str:
    return f"slots{slots}" if turned else f"slots{slots}-plain"


def _told(job: Job, name: str) -> Progress:
    return lambda step, steps, loss: job.progress(f"training {name}, loss {loss:.4f}", step, steps)


def _notes(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    shares = ", ".join(f"{share:g}" for share in parameters["turns"])
    return (
        "The values of the paper's figure are not known to us, nor how it makes supports overlap: only the trend can "
        "be compared. Here every slot has its own network (3 latents, 20 rows), neighbours share rows, and their "
        "outputs are added there; two slots share up to 80 % of their rows, three and more form a ring and share up to "
        "50 % with each neighbour, so that no row belongs to one slot alone.",
        "Sizes of the networks, batches and λ are those of Brady et al. 2023. Ours are: latents are standardised, as "
        "the contrast decreases trivially if latents grow; the contrast starts after "
        f"{parameters['ramp'][0]:.0%} of the steps with λ = 0.0001, and λ grows by the same factor with every step, to "
        f"1 after {parameters['ramp'][1]:.0%} unless it stops earlier; Adam's rate starts at "
        f"{parameters['rate']:g} and decreases along a cosine.",
        f"After {shares} of the steps the latents are rotated: of all rotations of whitened latents, that with the "
        "lowest contrast is searched for, two slots at a time from several starting points, and absorbed by the linear "
        "layers next to the latents. The reconstruction does not change, nor do the family of models and the loss; "
        "only the path of the optimisation does. Plain training, where it is shown, leaves this out.",
        "This training procedure was developed on data seeds 100 to 104 by the loss alone. The data seeds shown here "
        "were not used.",
        f"Restarts are selected by their held-out loss. The limit of {IDENTIFIED} was set before the runs; runs "
        f"that leave more than {TRAINED:.0%} of the variance of x unexplained are not judged.",
    )
