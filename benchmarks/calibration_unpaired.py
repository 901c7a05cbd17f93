"""The cells of `calibration.py` on `translate(..., unpaired=True)`: false claims, and how often a true map is found."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Outcome, Quantity, mean, rate

from congruence import translate

OPTIONS: dict[str, Any] = {"unpaired": True, "starts": 64, "nulls": 3, "splits": 1}
Array = np.ndarray


@dataclass(frozen=True)
class Tables:
    """Rows of both models, and, where the truth is a map, the old vectors of the new rows."""

    old: Array
    new: Array
    truth: Array | None = None


@dataclass(frozen=True)
class UnpairedCell(Cell):
    """A cell whose draws are two tables without a row in common."""

    def simulate(self, seed: int) -> list[Any]:
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        tables: Any = self.draw(rng, self.n, self.d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = translate(tables.old, tables.new, seed=seed, **OPTIONS)
        return [quantity.read(Outcome(self, tables, result, rng)) for quantity in self.quantities]


def rotation(d: int, rng: np.random.Generator) -> Array:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def clusters(n: int, d: int, rng: np.random.Generator, count: int = 12) -> Array:
    """Rows of clusters with random places, weights and skewed shapes."""
    centres = rng.normal(size=(count, d)) * np.linspace(1.5, 0.5, d)
    shapes = 0.35 * rng.normal(size=(count, d, d)) / np.sqrt(d)
    member = rng.choice(count, size=n, p=rng.dirichlet(np.full(count, 3.0)))
    return centres[member] + np.einsum("ni,nij->nj", rng.gamma(1.0, size=(n, d)) - 1, shapes[member])


# Truths: functions of (rng, n, d), with n rows of each model.


def halves(x: Array, rng: np.random.Generator) -> Tables:
    n, d = len(x) // 2, x.shape[1]
    return Tables(x[:n], x[n:] @ rotation(d, rng))


def gaussian(rng: Any, n: int, d: int) -> Tables:
    return halves(rng.normal(size=(2 * n, d)) * np.linspace(2, 0.5, d), rng)


def sphere(rng: Any, n: int, d: int) -> Tables:
    x = rng.normal(size=(2 * n, d))
    return halves(x / np.linalg.norm(x, axis=1, keepdims=True), rng)


def simplex(rng: Any, n: int, d: int) -> Tables:
    """Clusters at the corners of a regular simplex: every permutation of them is a symmetry."""
    return halves(3 * np.eye(d)[rng.integers(d, size=2 * n)] + 0.3 * rng.normal(size=(2 * n, d)), rng)


def mirrored(rng: Any, n: int, d: int) -> Tables:
    """Clusters that are symmetric along the leading direction: two maps fit equally well."""
    x = clusters(2 * n, d, rng)
    x[:, 0] = 2 * np.abs(x[:, 0]) * rng.choice([-1.0, 1.0], size=2 * n)
    return halves(x, rng)


def destroyed(rng: Any, n: int, d: int) -> Tables:
    """Principal scores of the new rows permuted column by column."""
    x = clusters(2 * n, d, rng)
    scores = (x[n:] - x.mean(0)) @ np.linalg.svd(x - x.mean(0), full_matrices=False)[2].T
    return Tables(x[:n], rng.permuted(scores, axis=0))


def other_population(rng: Any, n: int, d: int) -> Tables:
    return Tables(clusters(n, d, rng), clusters(n, d, rng))


def same_places(rng: Any, n: int, d: int, skewed: bool) -> Tables:
    """Clusters with the same centres, and unrelated rows around them."""
    centres = 4 * np.pad(rng.normal(size=(5, 3)), ((0, 0), (0, d - 3)))
    member = rng.integers(5, size=2 * n)
    noise = [rng.gamma(1.0, size=(n, d)) - 1 if skewed else rng.normal(size=(n, d)) for _ in range(2)]
    shapes = [rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(2)]
    x, y = (centres[part] + one @ shape for part, one, shape in zip(np.split(member, 2), noise, shapes, strict=True))
    return Tables(x, y @ rotation(d, rng))


def rotated(rng: Any, n: int, d: int) -> Tables:
    """A rotation of the same population, on other rows, with noise of 2 % of the variance."""
    x = clusters(2 * n, d, rng)
    noisy = x + 0.14 * x.std() * rng.normal(size=x.shape)
    return Tables(x[:n], noisy[n:] @ rotation(d, rng), x[n:])


# Readings


def is_claimed(outcome: Outcome) -> bool:
    return bool(outcome.result.status == "holds")


def explained(outcome: Outcome) -> float | None:
    """R² of the map where it was claimed."""
    tables: Any = outcome.sample
    if not is_claimed(outcome):
        return None
    error = np.square(outcome.result.translator(tables.new) - tables.truth).sum()
    return float(1 - error / np.square(tables.truth - tables.truth.mean(0)).sum())


def unpaired() -> Iterator[Cell]:
    """Rows that do not determine a map, and two truths that do."""
    false_claim: Quantity = rate("map claimed, falsely", is_claimed, most=0.05)
    cases: dict[str, Callable[..., Tables]] = {
        "Gaussian": gaussian,
        "sphere": sphere,
        "corners of a simplex": simplex,
        "mirror symmetry": mirrored,
        "structure destroyed": destroyed,
        "other population": other_population,
        "same centres, Gaussian inside": partial(same_places, skewed=False),
        "same centres, skewed inside": partial(same_places, skewed=True),
    }
    for name, draw in cases.items():
        yield UnpairedCell("unpaired", name, 300, 8, draw, (false_claim,))
    found = (rate("map claimed, truly", is_claimed), mean("R2 of claimed maps", explained, least=0.8))
    for n in (300, 1000):
        yield UnpairedCell("unpaired", "rotation and noise", n, 8, rotated, found)
