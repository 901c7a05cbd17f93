"""Section 4 of Kivva et al., simulated data: five VaDEs on a pinwheel, and how near their latent spaces are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from congruence.experiments.data.pinwheels import pinwheel
from congruence.experiments.models.reconstruction import evaluated_rows
from congruence.experiments.recipes._mixture_trainings import active_numbers, load_or_train
from congruence.experiments.recipes.mixture_pinwheel import claims, figures
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import RecipeResult
from congruence.mixture.agreement import LatentSpace, compare_spaces
from congruence.mixture.priors import GaussianMixture
from congruence.parts import Arrays

EDITION = 1
_ALL = {"arms": 3, "hidden": [50, 50], "noise": 0.1, "batch": 128, "learning_rate": 1e-3, "cosine": True}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"rows": 1000, "runs": 3, "steps": 300, "pretraining": 300, "shown": 500, "beside": []} | _ALL,
    "small": {"rows": 10_000, "runs": 5, "steps": 6000, "pretraining": 2000, "shown": 2000}
    | {"beside": ["mixvae", "ivae"]}
    | _ALL,
    "paper": {"rows": 30_000, "runs": 5, "steps": 40_000, "pretraining": 5000, "shown": 5000}
    | {"beside": ["mixvae", "ivae"]}
    | _ALL,
    "full": {"rows": 30_000, "runs": 20, "steps": 200_000, "pretraining": 20_000, "shown": 10_000}
    | {"beside": ["mixvae", "ivae"]}
    | _ALL,
}


def run(job: RecipeJob) -> RecipeResult:
    """Train, compare all ordered pairs and judge."""
    p = job.parameters
    data = pinwheel(p["rows"], arms=p["arms"], seed=0)
    rows = evaluated_rows(len(data), p["shown"])
    arms = data.columns["arm"][rows]
    kinds = ["vade", *p["beside"]]
    runs: dict[str, list[Arrays]] = {kind: [] for kind in kinds}
    for k, kind in enumerate(kinds):
        for i in range(p["runs"]):
            job.progress(f"training {kind}", k * p["runs"] + i, len(kinds) * p["runs"])
            evaluated = (data.rows[rows], *([arms] if kind == "ivae" else []))
            runs[kind].append(load_or_train(job, f"{kind}-{i}", _config(job, kind, i), data, evaluated))
    compared = {
        kind: compare_spaces([_latent_space(f"run {i + 1}", run) for i, run in enumerate(some)], seed=job.seed)
        for kind, some in runs.items()
    }
    vade = compared["vade"]
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=claims.headline(vade),
        paper=claims.PAPER,
        ours={kind: one.to_dict() | active_numbers(runs[kind]) for kind, one in compared.items()},
        findings=claims.judge(vade),
        tables=claims.make_tables(compared, runs),
        figures=(figures.draw_spaces(vade, arms), figures.draw_distances(vade)),
        notes=claims.NOTES,
        terms=claims.TERMS,
    )


def _config(job: RecipeJob, kind: str, i: int) -> dict[str, Any]:
    p = job.parameters
    config = {"model": kind, "latents": 2, "hidden": p["hidden"], "noise": p["noise"], "shape": [2]}
    config["seed"] = 1000 * job.seed + i
    own = {"vade": {"clusters": p["arms"], "pretraining": p["pretraining"]}}
    own["ivae"] = {"classes": p["arms"], "auxiliary": "arm"}
    return config | own.get(kind, {})


def _latent_space(name: str, run: Arrays) -> LatentSpace:
    prior = GaussianMixture(*(run[part] for part in ("weights", "means", "covariances"))) if "weights" in run else None
    return LatentSpace(name, run["codes"].astype(np.float64), prior)
