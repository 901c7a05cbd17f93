"""Section 4 of Kivva et al., real data: MFCVAEs on MNIST with ReLU and LeakyReLU, and the MCC of their codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.data.digits import digits
from congruence.experiments.data.mnist import SIDE, mnist
from congruence.experiments.recipes._mixture_trainings import active_numbers, load_or_train
from congruence.experiments.recipes.mixture_mnist import claims
from congruence.experiments.recipes.mixture_mnist.claims import ACTIVATIONS
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import RecipeResult
from congruence.mixture.agreement import LatentSpace, SpaceAgreement, compare_spaces
from congruence.parts import Arrays

EDITION = 1
DATA = ("mnist", "digits")
_FACETS = {"latents": 10, "facets": 2, "clusters": 25}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "digits", "rows": 900, "test_rows": 600, "runs": 2, "hidden": [32, 48], "steps": 150}
    | {"batch": 100, "learning_rate": 2e-3, "fade": 0, "pretraining": 50, "latents": 4, "facets": 2, "clusters": 5},
    "small": {"data": "mnist", "rows": 10_000, "test_rows": 2000, "runs": 3, "hidden": [100, 200], "steps": 3000}
    | {"batch": 256, "learning_rate": 1e-3, "fade": 0, "pretraining": 1000}
    | _FACETS,
    "paper": {"data": "mnist", "rows": 60_000, "test_rows": 10_000, "runs": 10, "hidden": [500, 2000]}
    | {"steps": 23_500, "batch": 512, "learning_rate": 5e-4, "fade": 2350, "pretraining": 2000}
    | _FACETS,
    "full": {"data": "mnist", "rows": 60_000, "test_rows": 10_000, "runs": 10, "hidden": [500, 2000]}
    | {"steps": 94_000, "batch": 512, "learning_rate": 5e-4, "fade": 2350, "pretraining": 0}
    | _FACETS,
}


def plan(parameters: Mapping[str, Any], device: str, parts: Any) -> str:
    """Say what will be trained."""
    count = len(ACTIVATIONS) * parameters["runs"]
    kept = sum(parts.find(f"{name}-{i}") is not None for name in ACTIVATIONS for i in range(parameters["runs"]))
    left = f"{count - kept} trainings of {parameters['steps']} steps on {parameters['data']}, on {device}"
    return f"{left}; {kept} are finished already" if kept else left


def run(job: RecipeJob) -> RecipeResult:
    """Train with both activations, compare all pairs and judge."""
    count = job.parameters["runs"]
    images, test = load_images(job)
    runs: dict[str, list[Arrays]] = {name: [] for name in ACTIVATIONS}
    for k, (name, words) in enumerate(ACTIVATIONS.items()):
        for i in range(count):
            job.progress(f"training with {words}", k * count + i, len(ACTIVATIONS) * count)
            settings = ("latents", "facets", "clusters", "hidden", "fade", "pretraining")
            config = {"model": "mfcvae", "activation": name, "shape": list(images.shape[1:])}
            config |= {key: job.parameters[key] for key in settings} | {"seed": 1000 * job.seed + i}
            runs[name].append(load_or_train(job, f"{name}-{i}", config, images, (test,)))
    codes = {name: [run["codes"] for run in some] for name, some in runs.items()}
    compared = {name: _compare(some, job.seed) for name, some in codes.items()}
    facets = {name: _compare_facets(some, job) for name, some in codes.items()}
    states = {name: np.stack([run["states"] for run in some]) for name, some in runs.items()}
    weak = {
        name: [{"in_sample": one.spread("weak").mean, "held_out": one.spread("weak_held_out").mean} for one in some]
        for name, some in facets.items()
    }
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=claims.headline(compared),
        paper=claims.PAPER,
        ours={
            name: one.to_dict() | active_numbers(runs[name]) | {"weak_by_facet": weak[name]}
            for name, one in compared.items()
        },
        findings=claims.judge(compared, facets, states),
        tables=claims.make_tables(compared, facets, runs),
        figures=(claims.draw_mcc(compared),),
        notes=claims.NOTES,
        terms=claims.TERMS,
    )


def load_images(job: RecipeJob) -> tuple[Array, Array]:
    """Images to train on and to compare on, uint8 (n, 1, side, side), drawn with the seed."""
    if job.parameters["data"] == "mnist":
        x, y, side = mnist("train")[0], mnist("test")[0], SIDE
    else:
        order = np.random.default_rng([job.seed, 3]).permutation(len(digits()[0]))
        half = len(order) // 2 + 1
        x, y, side = digits()[0][order[:half]], digits()[0][order[half:]], 8
    rng = np.random.default_rng([job.seed, 5])
    chosen = [
        some[np.sort(rng.permutation(len(some))[: job.parameters[name]])]
        for some, name in ((x, "rows"), (y, "test_rows"))
    ]
    train, test = (np.round(255 * some).astype(np.uint8).reshape(-1, 1, side, side) for some in chosen)
    return train, test


def _compare(codes: Sequence[Array], seed: int) -> SpaceAgreement:
    return compare_spaces([LatentSpace(f"run {i + 1}", some) for i, some in enumerate(codes)], seed=seed)


def _compare_facets(codes: Sequence[Array], job: RecipeJob) -> list[SpaceAgreement]:
    """Each facet of the runs compared alone, in the order of the model: the shallowest first."""
    split = [np.array_split(some, job.parameters["facets"], axis=1) for some in codes]
    return [_compare(facet, job.seed) for facet in zip(*split, strict=True)]
