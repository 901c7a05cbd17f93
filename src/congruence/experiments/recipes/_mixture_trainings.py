"""Trainings of models with a mixture prior: the stored arrays of each, and summaries of them."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from congruence.document import Cell
from congruence.errors import CollapsedWarning
from congruence.experiments.models.catalogue import build_model
from congruence.experiments.models.reconstructions import apply_in_batches, mean_squared_error
from congruence.experiments.processes import stop_requested
from congruence.experiments.recipes._snapshots import CHECK_EVERY, RUNS
from congruence.experiments.recipes.claims import Estimate, over_pairs
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.training._train_model import train_model
from congruence.experiments.training.collapse import posterior_collapse
from congruence.experiments.training.settings import Training
from congruence.formatting import UNDEFINED
from congruence.mixture.agreement import PairSpread
from congruence.parts import Arrays
from congruence.rows.devices import full_precision, short_products

MOST = 1000  # components of a prior that is stored


def load_or_train(
    job: RecipeJob, name: str, config: Mapping[str, Any], data: Any, evaluated: tuple[Any, ...]
) -> Arrays:
    """Train a model, or load the arrays of an earlier training with the same settings.

    The arrays are "codes" (n, m) of the evaluated rows, their "mse", "active" latents, "states" separated by each
    mixture, and, unless it is too large, the prior: "weights", "means", "covariances". `evaluated` are the arguments of
    `encode`.
    """
    return job.parts.get(name, partial(_train, job, name, config, data, evaluated))


def _train(job: RecipeJob, name: str, config: Mapping[str, Any], data: Any, evaluated: tuple[Any, ...]) -> Arrays:
    """Train; on a CPU with one thread, so that the same seed gives the same bits.

    A GPU replays the step and compiles nothing: compiling each of many small models would take longer than training.
    """
    steps, on_cpu = job.parameters["steps"], job.device == "cpu"
    training = Training(
        steps=steps,
        batch=job.parameters["batch"],
        learning_rate=job.parameters["learning_rate"],
        cosine=job.parameters.get("cosine", False),
        log_every=steps,
        check_every=1 if on_cpu else CHECK_EVERY,
        checkpoint_every=max(1, steps // 4),
        precision="float32",
        engine="eager" if on_cpu else "graph",
        deterministic=on_cpu,
        seed=config["seed"],
    )
    model = build_model(config)
    folder = job.parts.folder / RUNS / name
    if not job.parts.kept:
        shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWarning)  # it is measured, and part of the result
        with short_products():
            model = train_model(model, data, training, out=folder, device=job.device, stop=stop_requested).model
    device = next(model.parameters()).device
    with full_precision():
        codes = apply_in_batches(model.encode, evaluated[0], device, *evaluated[1:]).numpy()
        alive = posterior_collapse(model, *evaluated)
        error = mean_squared_error(model, *evaluated)
    arrays: Arrays = {"codes": codes.astype(np.float32), "mse": np.asarray(error)}
    arrays["active"] = np.asarray(len(alive.shares) - len(alive.collapsed))
    arrays["states"] = np.asarray(alive.effective_states)
    if np.prod([float(count) for count in alive.components]) <= MOST:
        arrays |= dict(zip(("weights", "means", "covariances"), model.mixture_prior(), strict=True))
    return arrays


def active_numbers(runs: Sequence[Arrays]) -> dict[str, Any]:
    """The reconstruction error, the active latents and the separated components of each run."""
    return {name: [run[name].tolist() for run in runs] for name in ("mse", "active", "states")}


def pair_values(numbers: Mapping[str, Any], what: str) -> dict[tuple[str, str], float]:
    """A distance or an MCC of every ordered pair of kept numbers, without undefined ones."""
    values = {(p["source"], p["target"]): p["mcc"].get(what, p.get(what)) for p in numbers["pairs"]}
    return {ends: float(value) for ends, value in values.items() if value is not None}


def spread_of(numbers: Mapping[str, Any], what: str) -> PairSpread:
    """Mean and standard deviation over ordered pairs."""
    values = list(pair_values(numbers, what).values())
    if not values:
        return PairSpread(math.nan, math.nan, 0)
    return PairSpread(float(np.mean(values)), float(np.std(values)), len(values))


def spread_cell(numbers: Mapping[str, Any], what: str) -> Cell:
    """Mean and standard deviation over pairs as a cell; a dash where there are no pairs."""
    spread = spread_of(numbers, what)
    return Cell(str(spread), spread.mean) if spread.pairs else Cell(UNDEFINED, "")


def over_pair_gaps(first: Mapping[tuple[str, str], float], second: Mapping[tuple[str, str], float]) -> Estimate:
    """The mean over pairs of one value minus another, with its jackknife interval over trainings."""
    return over_pairs({ends: value - second[ends] for ends, value in first.items()})


def mean_number(numbers: Mapping[str, Any], name: str) -> float:
    """The mean of a number over runs."""
    return float(np.mean(numbers[name]))
