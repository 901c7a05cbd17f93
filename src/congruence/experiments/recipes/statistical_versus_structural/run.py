"""Appendix A.1 of Nelson et al.: two models that are stable across trainings, and are not the truth.

The paper gives both examples in words and without numbers; the experiments, their sizes and the limits are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.data.patches import FACTORS, draw_factors, draw_shown, expected_given_two, patches
from congruence.experiments.recipes._isometry import PairError, measure_nearness
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, from_numbers
from congruence.experiments.recipes.statistical_versus_structural import claims
from congruence.experiments.recipes.statistical_versus_structural.regression import (
    LineFits,
    fit_draws,
    measure_regression,
)
from congruence.experiments.training.small_autoencoders import mask_images, train_masked_autoencoder

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


@dataclass(frozen=True, eq=False)
class MaskedImages:
    """The images that all runs are compared on; none of them was trained on."""

    visible: int
    factors: Float  # (n, 3)
    shown: Float  # (n, 6)

    @property
    def pictures(self) -> Float:
        """The whole images, (n, 6, 2)."""
        return patches(self.factors)


@dataclass(frozen=True)
class MaskingLevel:
    """Results with `visible` of six patches shown. Errors are held out and shares of the target's diameter."""

    visible: int
    unexplained: tuple[float, ...]  # of each run: the squared error of its images over their variance
    stretch: tuple[float, ...]  # of each run: the largest of its decoder (a lower estimate)
    pictures: tuple[PairError, ...]  # of each pair of runs, without a map
    codes: tuple[PairError, ...]  # of each pair of runs, up to a rigid motion
    rigid: tuple[PairError, ...]  # of each run onto the factors
    linear: tuple[PairError, ...]
    expected: tuple[PairError, ...]  # of each run onto E[factors | shown], rigid; only if two are shown
    least: float | None  # the error that E[factors | shown] itself leaves; only if two are shown
    least_unexplained: float | None  # likewise for E[images | shown]


def compute(job: RecipeJob) -> dict[str, Any]:
    """Run both examples."""
    p = job.parameters
    total, steps = len(p["sizes"]) + len(p["visible"]) * (p["runs"] + 1), iter(range(2**31))
    fits = []
    for n in p["sizes"]:
        job.progress(f"fitting lines to {n} rows", next(steps), total)
        draw = partial(fit_draws, n, p["draws"], np.random.default_rng([job.seed, n]))
        fits.append(job.parts.get(f"lines-{n}", draw))
    lines = measure_regression(p["sizes"], fits, job.seed)

    options = {name: p[name] for name in ("hidden", "steps", "batch", "learning_rate")}
    images = {visible: draw_images(p["rows"], visible, job.seed) for visible in p["visible"]}
    runs: dict[int, list[dict[str, Array]]] = {visible: [] for visible in images}
    for visible, some in images.items():
        for i in range(p["runs"]):
            what = f"training on {visible} of 6 patches, run {i + 1} of {p['runs']}"
            job.progress(what, next(steps), total)
            training = partial(train, some, (job.seed, visible, i), job.device, **options)
            runs[visible].append(job.parts.get(f"shown{visible}-run{i}", training))
    levels = []
    for visible, some in images.items():
        job.progress("comparing runs", next(steps), total)
        levels.append(measure_level(some, runs[visible], job.seed))

    codes = claims.first_coordinates(images[2].factors, *(run["codes"] for run in runs[2][:2]))
    return {"example 1": lines, "example 2": levels, "codes": codes}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge both examples."""
    lines = from_numbers(LineFits, ours["example 1"])
    levels = from_numbers(tuple[MaskingLevel, ...], ours["example 2"])
    findings = (*claims.judge_regression(lines), *claims.judge_masking(levels))
    return Presentation(
        headlines=claims.headline(levels, findings),
        findings=findings,
        tables=(claims.regression_table(lines), claims.masking_table(levels)),
        figures=(
            claims.draw_regression(lines, settings["seed"]),
            claims.draw_masking(levels),
            claims.draw_codes(*(np.array(ours["codes"][name]) for name in ("one", "other", "true"))),
        ),
    )


def draw_images(n: int, visible: int, seed: int) -> MaskedImages:
    """Draw the images that runs are compared on."""
    rng = np.random.default_rng([seed, visible, 1])
    return MaskedImages(visible, draw_factors(n, rng), draw_shown(n, visible, rng))


def train(images: MaskedImages, seed: tuple[int, ...], device: str, **options: Any) -> dict[str, Array]:
    """Train one masked autoencoder: its codes and reconstructions of the images, and the stretch of its decoder."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Float, Float]:
        return patches(draw_factors(n, rng)), draw_shown(n, images.visible, rng)

    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    model = train_masked_autoencoder(draw, latent=FACTORS, seed=number, device=device, **options)
    codes = model.encode(mask_images(images.pictures, images.shown))
    return {"codes": codes, "pictures": model.decode(codes), "stretch": model.stretch(codes)}


def measure_level(images: MaskedImages, runs: list[dict[str, Array]], seed: int) -> MaskingLevel:
    """Compare runs with each other and with the truth."""
    whole = images.pictures.reshape(len(images.factors), -1)
    spread = float(((whole - whole.mean(0)) ** 2).sum(1).mean())
    near = partial(measure_nearness, seed=seed)
    pairs = list(combinations(runs, 2))
    onto = [near(run["codes"], images.factors, "rigid", "linear") for run in runs]
    expected: tuple[PairError, ...] = ()
    least = least_unexplained = None
    if images.visible == 2:
        guess, picture = expected_given_two(images.factors, images.shown)
        expected = tuple(near(run["codes"], guess, "rigid")["rigid"] for run in runs)
        least = near(guess, images.factors, "identity")["identity"].mean
        least_unexplained = float(((picture.reshape(whole.shape) - whole) ** 2).sum(1).mean()) / spread
    return MaskingLevel(
        visible=images.visible,
        unexplained=tuple(float(((run["pictures"] - whole) ** 2).sum(1).mean()) / spread for run in runs),
        stretch=tuple(float(run["stretch"].max()) for run in runs),
        pictures=tuple(near(a["pictures"], b["pictures"], "identity")["identity"] for a, b in pairs),
        codes=tuple(near(a["codes"], b["codes"], "rigid")["rigid"] for a, b in pairs),
        rigid=tuple(one["rigid"] for one in onto),
        linear=tuple(one["linear"] for one in onto),
        expected=expected,
        least=least,
        least_unexplained=least_unexplained,
    )
