"""A masked autoencoder trained several times: are its codes those of another run, and are they the true factors?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.align._compare import compare
from congruence.arrays import Array, Float
from congruence.experiments.data.patches import FACTORS, draw_factors, draw_shown, expected_given_two, patches
from congruence.experiments.training.small_autoencoders import train_masked_autoencoder
from congruence.maps.nearness import Nearness


@dataclass(frozen=True, eq=False)
class Rows:
    """The pictures that all runs are asked about, none of which they were trained on."""

    visible: int
    factors: Float  # (n, 3)
    shown: Float  # (n, 6)

    @property
    def pictures(self) -> Float:
        """The whole pictures, (n, 6, 2)."""
        return patches(self.factors)


@dataclass(frozen=True)
class Level:
    """What was found where `visible` of six patches are shown. Errors are held out, shares of the target's diameter."""

    visible: int
    unexplained: tuple[float, ...]  # of each run: the squared error of its pictures over their variance
    stretch: tuple[float, ...]  # of each run: the largest of its decoder (a lower estimate)
    pictures: tuple[Nearness, ...]  # of each pair of runs, as they are
    codes: tuple[Nearness, ...]  # of each pair of runs, up to a rigid motion
    rigid: tuple[Nearness, ...]  # of each run onto the factors
    linear: tuple[Nearness, ...]
    expected: tuple[Nearness, ...]  # of each run onto E[factors | shown], rigid; only where two are shown
    least: float | None  # the error that E[factors | shown] itself leaves; only where two are shown
    least_unexplained: float | None  # likewise for E[pictures | shown]

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        errors = ("pictures", "codes", "rigid", "linear", "expected")
        return {
            "visible": self.visible,
            "unexplained": list(self.unexplained),
            "stretch": list(self.stretch),
            **{name: [one.to_dict() for one in getattr(self, name)] for name in errors},
            "least": self.least,
            "least_unexplained": self.least_unexplained,
        }


def draw_rows(n: int, visible: int, seed: int) -> Rows:
    """Draw the rows that runs are compared on."""
    rng = np.random.default_rng([seed, visible, 1])
    return Rows(visible, draw_factors(n, rng), draw_shown(n, visible, rng))


def train(rows: Rows, seed: tuple[int, ...], device: str, **options: Any) -> dict[str, Array]:
    """Train one run and return the codes and pictures it gives for the rows, and the stretch of its decoder."""
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    model = train_masked_autoencoder(
        partial(_draw, visible=rows.visible), latent=FACTORS, seed=number, device=device, **options
    )
    codes = model.encode(rows.pictures, rows.shown)
    return {"codes": codes, "pictures": model.decode(codes), "stretch": model.stretch(codes)}


def _draw(n: int, rng: np.random.Generator, visible: int) -> tuple[Float, Float]:
    return patches(draw_factors(n, rng)), draw_shown(n, visible, rng)


def measure_level(rows: Rows, runs: list[dict[str, Array]], seed: int) -> Level:
    """Compare runs with each other and with the truth."""
    whole = rows.pictures.reshape(len(rows.factors), -1)
    spread = float(((whole - whole.mean(0)) ** 2).sum(1).mean())
    near = partial(_nearness, seed=seed)
    pairs = list(combinations(runs, 2))
    onto = [near(run["codes"], rows.factors, ("rigid", "linear")) for run in runs]
    expected: tuple[Nearness, ...] = ()
    least = least_unexplained = None
    if rows.visible == 2:
        guess, picture = expected_given_two(rows.factors, rows.shown)
        expected = tuple(near(run["codes"], guess, ("rigid",))["rigid"] for run in runs)
        least = near(guess, rows.factors, ("identity",))["identity"].mean
        least_unexplained = float(((picture.reshape(whole.shape) - whole) ** 2).sum(1).mean()) / spread
    return Level(
        visible=rows.visible,
        unexplained=tuple(float(((run["pictures"] - whole) ** 2).sum(1).mean()) / spread for run in runs),
        stretch=tuple(float(run["stretch"].max()) for run in runs),
        pictures=tuple(near(a["pictures"], b["pictures"], ("identity",))["identity"] for a, b in pairs),
        codes=tuple(near(a["codes"], b["codes"], ("rigid",))["rigid"] for a, b in pairs),
        rigid=tuple(found["rigid"] for found in onto),
        linear=tuple(found["linear"] for found in onto),
        expected=expected,
        least=least,
        least_unexplained=least_unexplained,
    )


def worst(errors: Sequence[Nearness]) -> float:
    """The largest held-out error."""
    return max(one.held_out.mean for one in errors)


def best(errors: Sequence[Nearness]) -> float:
    """The smallest held-out error."""
    return min(one.held_out.mean for one in errors)


def _nearness(source: Array, target: Array, groups: tuple[str, ...], seed: int) -> dict[str, Nearness]:
    runs = {"source": source, "target": target}
    result = compare(runs, groups=groups, nulls=5, bootstrap=100, seed=seed, device="cpu")
    return result.parts()["source", "target"].groups
