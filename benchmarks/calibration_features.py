"""The cells of `calibration.py` on `match_features`: unrelated dictionaries, and some that share a known part."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Outcome, mean, rate

from congruence import match_features

Array = np.ndarray
SHARED = 0.3  # probability that a feature of one dictionary is in the other
QUALITY = (30, 10)  # of the beta distribution of the share of true features that a training finds


@dataclass(frozen=True)
class FeatureCell(Cell):
    """A cell whose draws are two or more dictionaries of n features in d dimensions."""

    options: dict[str, Any] = field(default_factory=dict)

    def simulate(self, seed: int) -> list[Any]:
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        dictionaries: Any = self.draw(rng, self.n, self.d)
        result = match_features(*dictionaries, aligned=True, seed=seed, **self.options)
        return [quantity.read(Outcome(self, dictionaries, result, rng)) for quantity in self.quantities]


# Truths: functions of (rng, m, d) that return dictionaries. Unrelated ones are two draws of one kind.


def two(draw: Callable[..., Array]) -> Callable[..., Any]:
    """Unrelated dictionaries: what is random of their space is drawn once, their features twice."""

    def both(rng: Any, m: int, d: int) -> list[Array]:
        space = rng.normal(size=(d, d))
        return [draw(rng, m, space) for _ in range(2)]

    return both


def even(rng: Any, m: int, space: Array) -> Array:
    return rng.normal(size=(m, len(space)))


def low_rank(rng: Any, m: int, space: Array, rank: int = 6) -> Array:
    return rng.normal(size=(m, rank)) @ space[:rank]


def falling(rng: Any, m: int, space: Array) -> Array:
    """A covariance whose spectrum falls as 1/k."""
    return rng.normal(size=(m, len(space))) / np.sqrt(np.arange(1, len(space) + 1)) @ np.linalg.qr(space)[0]


def common_mean(rng: Any, m: int, space: Array) -> Array:
    return rng.normal(size=(m, len(space))) + 2 * space[0]


def copies(rng: Any, m: int, space: Array) -> Array:
    """Near-copies of few features, which are not those of the other dictionary."""
    few = rng.normal(size=(m // 20, len(space)))
    return np.repeat(few, 20, axis=0) + 0.1 * rng.normal(size=(20 * len(few), len(space)))


def heavy(rng: Any, m: int, space: Array) -> Array:
    """Heavy tails along the axes of the space: single coordinates dominate features of both dictionaries."""
    return rng.standard_t(2, size=(m, len(space)))


def cones(rng: Any, m: int, space: Array) -> Array:
    """Unrelated features in cones that both dictionaries have: cosines of about 0.8 inside each."""
    return space[rng.integers(len(space), size=m)] + 0.5 * rng.normal(size=(m, len(space)))


def unequal(rng: Any, m: int, d: int) -> list[Array]:
    return [rng.normal(size=(m, d)), rng.normal(size=(4 * m, d))]


def planted(rng: Any, m: int, d: int) -> list[Array]:
    """Each feature is in the other dictionary with probability `SHARED`, at a cosine of about 0.9."""
    a, b = rng.normal(size=(2, m, d))
    kept = rng.random(m) < SHARED
    b[kept] = a[kept] + 0.48 * rng.normal(size=(int(kept.sum()), d))
    return [a, b[rng.permutation(m)]]


def trainings(rng: Any, m: int, d: int, count: int = 4) -> list[Array]:
    """Each training finds a share of the true features that varies from training to training, and others."""
    truth, found = rng.normal(size=(m, d)), []
    for quality in rng.beta(*QUALITY, size=count):
        own = rng.normal(size=(m, d))
        kept = rng.random(m) < quality
        own[kept] = truth[kept]
        found.append(own)
    return found


# Readings


def is_above_chance(outcome: Outcome) -> bool:
    return bool(outcome.result.findings[0].status == "holds")


def share(outcome: Outcome) -> float:
    return float(outcome.result.share)


def exceeding(outcome: Outcome, kind: str) -> float:
    """The share of features whose nearest one exceeds the limit of one kind of null dictionary."""
    limit = np.quantile(outcome.pair.null.maxima[kind], 1 - outcome.result.settings["level"])
    return float(np.mean(outcome.pair.nearest_cosine > limit))


def distinct(outcome: Outcome) -> float | None:
    """Of the features that come back, the share that is nearer to the partner than to its own dictionary."""
    share = outcome.pair.distinct
    return None if np.isnan(share) else float(share)


def covers_share(outcome: Outcome) -> bool:
    low, high = outcome.result.interval
    return bool(low <= SHARED <= high)


def covers_seeds(outcome: Outcome) -> bool:
    a, b = QUALITY
    low, high = outcome.result.over_seeds
    return bool(low <= (a / (a + b)) ** 2 <= high)


def features() -> Iterator[Cell]:
    """Unrelated dictionaries, by what they have in common, and two truths with a known share."""
    by_kind = [mean(f"beyond limit of {kind}", partial(exceeding, kind=kind)) for kind in ("rotation", "covariance")]
    false = (
        rate("more than chance, falsely", is_above_chance, most=0.05),
        mean("share that comes back, falsely", share, most=0.02),
        *by_kind,
        mean("distinct, of those that come back", distinct),
    )
    cases = {
        "evenly spread": two(even),
        "common subspace of 6 dimensions": two(low_rank),
        "common covariance, spectrum 1/k": two(falling),
        "common mean": two(common_mean),
        "near-copies": two(copies),
        "one has four times as many": unequal,
        "heavy tails along common axes": two(heavy),
        "common cones": two(cones),
    }
    for name, draw in cases.items():
        yield FeatureCell("features", name, 400, 32, draw, false)
    for name in ("evenly spread", "common subspace of 6 dimensions"):
        yield FeatureCell("features", f"{name}, unsigned", 400, 32, cases[name], false, options={"signs": "unsigned"})
        yield FeatureCell("features", f"{name}, mutual", 400, 32, cases[name], false, options={"matching": "mutual"})
    yield FeatureCell("features", "fewer features than dimensions", 20, 32, two(even), false)
    known = (
        mean("share found of 30 %", share, least=0.28, most=0.32),
        rate("interval covers", covers_share, least=0.9),
    )
    yield FeatureCell("features", "a known part at a cosine of 0.9", 400, 32, planted, known)
    seeds = (rate("interval over seeds covers", covers_seeds, least=0.9),)
    yield FeatureCell("features", "four trainings of varying quality", 400, 32, trainings, seeds)
