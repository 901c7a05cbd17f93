"""Trainings of models with a mixture prior, for recipes: the stored arrays of each, and its latent space."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.document import Cell
from congruence.errors import CollapsedWarning
from congruence.experiments.models.catalogue import build_model
from congruence.experiments.models.reconstructions import apply_in_batches, mean_squared_error
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.training._train_model import train_model
from congruence.experiments.training.collapse import posterior_collapse
from congruence.experiments.training.settings import Training
from congruence.formatting import UNDEFINED
from congruence.mixture.agreement import LatentSpace, Spread
from congruence.mixture.gmm import GaussianMixture
from congruence.parts import Arrays
from congruence.rows.devices import full_precision, short_products

RUNS = "runs"  # the folder of run folders, beside the parts
MOST = 1000  # components of a prior that is kept


def trained(job: Job, name: str, config: Mapping[str, Any], data: Any, looked_at: tuple[Any, ...]) -> Arrays:
    """Train a model, or load the arrays of an earlier training with the same settings.

    The arrays are "codes" (n, m) of the evaluated rows, their "mse", "active" latents, "states" separated by each
    mixture, and, unless it is too large, the prior: "weights", "means", "covariances". `looked_at` is what `encode`
    takes.
    """
    return job.parts.get(name, partial(_train, job, name, config, data, looked_at))


def space_of(name: str, arrays: Mapping[str, Array]) -> LatentSpace:
    """The latent space of a training."""
    prior = None
    if "weights" in arrays:
        prior = GaussianMixture(*(arrays[part] for part in ("weights", "means", "covariances")))
    return LatentSpace(name, arrays["codes"].astype(np.float64), prior)


def _train(job: Job, name: str, config: Mapping[str, Any], data: Any, looked_at: tuple[Any, ...]) -> Arrays:
    model = build_model(config)
    folder = job.parts.folder / RUNS / name
    if not job.parts.kept:
        shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWarning)  # it is measured, and told with the result
        with short_products():
            model = train_model(model, data, _how(job, config), out=folder, device=job.device).model
    device = next(model.parameters()).device
    with full_precision():
        codes = apply_in_batches(model.encode, looked_at[0], device, *looked_at[1:]).numpy()
        alive = posterior_collapse(model, *looked_at)
        error = mean_squared_error(model, *looked_at)
    found: Arrays = {"codes": codes.astype(np.float32), "mse": np.asarray(error)}
    found["active"] = np.asarray(len(alive.shares) - len(alive.collapsed))
    found["states"] = np.asarray(alive.told_apart)
    if np.prod([float(count) for count in alive.components]) <= MOST:
        found |= dict(zip(("weights", "means", "covariances"), model.mixture_prior(), strict=True))
    return found


def _how(job: Job, config: Mapping[str, Any]) -> Training:
    """The settings of a scale; on a CPU one thread, so that the same seed gives the same bits.

    A GPU replays the step and compiles nothing: compiling each of many small models would take longer than they do.
    """
    steps, on_cpu = job.parameters["steps"], job.device == "cpu"
    return Training(
        steps=steps,
        batch=job.parameters["batch"],
        learning_rate=job.parameters["learning_rate"],
        cosine=job.parameters.get("cosine", False),
        log_every=steps,
        check_every=1 if on_cpu else 50,
        checkpoint_every=max(1, steps // 4),
        precision="float32",
        engine="eager" if on_cpu else "graph",
        deterministic=on_cpu,
        seed=config["seed"],
    )


def spread_cell(spread: Spread) -> Cell:
    """Mean and standard deviation over pairs as a cell; a dash where there are no pairs."""
    return Cell(str(spread), spread.mean) if spread.pairs else Cell(UNDEFINED, "")
