"""Appendix A.4 of Nelson et al.: which regularisers make a decoder nearly isometric, and two trainings agree.

The paper lists the regularisers and runs no experiment on them; this one is ours, on scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.data.digits import digits
from congruence.experiments.models.regularised import KINDS, train_regularised
from congruence.experiments.recipes._isometry import measure_nearness
from congruence.experiments.recipes.isometry_regularisers import claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import RecipeResult, as_numbers
from congruence.maps.nearness import Nearness

EDITION = 1
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"runs": 3, "epochs": 40, "rows": 900, "test_rows": 300},
    "small": {"runs": 5, "epochs": 400, "rows": 900, "test_rows": 800},
    "paper": {"runs": 10, "epochs": 1500, "rows": 900, "test_rows": 800},
    "full": {"runs": 20, "epochs": 5000, "rows": 900, "test_rows": 800},
}


@dataclass(frozen=True)
class RegulariserRuns:
    """The runs with one regulariser, and their pairs."""

    condition: tuple[float, ...]  # of each run
    unexplained: tuple[float, ...]
    pairs: tuple[Nearness, ...]  # up to a similarity

    @property
    def trained(self) -> bool:
        """Whether the runs reconstruct well enough to be judged."""
        return float(np.mean(self.unexplained)) <= claims.TRAINED

    @property
    def errors(self) -> list[float]:
        """The held-out error of each pair."""
        return [pair.held_out.mean for pair in self.pairs]

    @property
    def pair_conditions(self) -> list[float]:
        """The condition number of the worse decoder of each pair."""
        return [max(pair) for pair in combinations(self.condition, 2)]


def run(job: RecipeJob) -> RecipeResult:
    """Train with every regulariser, measure and judge."""
    x, _ = digits()
    order = np.random.default_rng([job.seed, 3]).permutation(len(x))
    rows = job.parameters["rows"]
    train, test = x[order[:rows]], x[order[rows : rows + job.parameters["test_rows"]]]
    kinds = {kind: _train_kind(job, place, train, test) for place, kind in enumerate(KINDS)}
    findings, relation = claims.judge(kinds, job.seed)
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=claims.headline(kinds),
        paper=claims.PAPER,
        ours={"kinds": as_numbers(kinds), "relation": relation.to_dict()},
        findings=findings,
        tables=(claims.make_table(kinds),),
        figures=(claims.draw_errors(kinds),),
        notes=claims.NOTES,
        terms=claims.TERMS,
    )


def _train_kind(job: RecipeJob, place: int, train: Array, test: Array) -> RegulariserRuns:
    kind, runs = KINDS[place], job.parameters["runs"]
    trained = []
    for i in range(runs):
        job.progress(f"training with {claims.WORDS[kind]}, run {i + 1}", place * runs + i, len(KINDS) * runs)
        seed = int(np.random.SeedSequence([job.seed, place, i]).generate_state(1)[0])
        compute = partial(_train, train, test, kind, seed, job.parameters["epochs"], job.device)
        trained.append(job.parts.get(f"{kind.replace(' ', '-')}-run{i}", compute))
    spread = float(((test - test.mean(0)) ** 2).mean())
    near = partial(measure_nearness, seed=job.seed)
    return RegulariserRuns(
        condition=tuple(float(np.median(one["singular"][:, 0] / one["singular"][:, -1])) for one in trained),
        unexplained=tuple(float(one["error"]) / spread for one in trained),
        pairs=tuple(near(a["codes"], b["codes"], "similarity")["similarity"] for a, b in combinations(trained, 2)),
    )


def _train(train: Array, test: Array, kind: str, seed: int, epochs: int, device: str) -> dict[str, Array]:
    strength = claims.STRENGTHS.get(kind, 0.0)
    model = train_regularised(train, kind, epochs=epochs, strength=strength, seed=seed, device=device)
    codes = model.encode(test)
    error = ((model.decode(codes) - test) ** 2).mean(dtype=np.float64)
    return {"codes": codes, "singular": model.singular_values(codes), "error": np.asarray(error)}
