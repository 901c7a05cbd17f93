"""Latents that depend on each other: what slots act on does not change with it, what statistics can see does.

Latents are Laplace variates, which ICA is good at, mixed so that their covariance is drawn from a Wishart distribution.
With infinitely many degrees of freedom they are independent. Everything is fitted on such latents, and scored on
independent ones: where slots depend on each other, even the true ones tell of each other, and no score could be high.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import NotConvergedWarning
from congruence.experiments.recipes.overlap_ensemble import Progress, SlotMember
from congruence.experiments.recipes.overlap_runs import (
    Arrays,
    data_seeds,
    disjoint_margin,
    draw_data,
    plan_of,
    score,
    scored,
    train_sets,
)
from congruence.mechanism.overlap import dependent_covariance, overlap_generator
from congruence.stats.matching import signed_permutation

SLOTS = 2
STRENGTH = 0.01


@dataclass(frozen=True, eq=False)
class Densities:
    """Results by how much latents depend on each other; axes are degrees of freedom and data seeds, then restarts."""

    degrees: tuple[float, ...]  # of the Wishart distribution; inf for independent latents
    dependence: Float  # (degrees, data seeds) largest canonical correlation between the slots
    margin: Float  # (degrees, data seeds) how far from Type D the generator is at these latents; 0 is Type D
    ceiling: Float  # (degrees, data seeds) SIS of the true latents themselves, on independent latents like the others
    ica_mixture: Float  # SIS of ICA on an invertible linear mixture of the latents: the best case for ICA
    ica_observed: Float  # SIS of ICA on the observations
    error: Float  # (degrees, data seeds, restarts)
    contrast: Float
    sis: Float

    @property
    def selected(self) -> Float:
        """The SIS of the restart with the lowest loss, (degrees, data seeds)."""
        best = (self.error + STRENGTH * self.contrast).argmin(-1)[..., None]
        return np.asarray(np.take_along_axis(self.sis, best, axis=-1)[..., 0])

    def share(self, values: Float) -> Float:
        """Values over what the true latents themselves reach."""
        return np.asarray(values / self.ceiling)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        names = ("dependence", "margin", "ceiling", "ica_mixture", "ica_observed", "error", "contrast", "sis")
        told: dict[str, Any] = {"degrees": [value if np.isfinite(value) else None for value in self.degrees]}
        return told | {name: getattr(self, name).tolist() for name in names} | {"selected": self.selected.tolist()}


def train_densities(parameters: Mapping[str, Any], seed: int, device: str, progress: Progress) -> Arrays:
    """Train on independent and on dependent latents, without overlap, and let ICA try the same."""
    seeds, rows, tested = data_seeds(parameters, seed), parameters["rows"], parameters["test_rows"]
    degrees, restarts = degrees_of(parameters), parameters["density_restarts"]
    sets, test, dependence = [], [], []
    for freedom in degrees:
        for one in seeds:
            generator = overlap_generator(SLOTS, 0.0, seed=one)
            covariance = dependent_covariance(generator.dimension, freedom, seed=one)
            sets.append(draw_data(generator, rows + tested, one, symmetric_root(covariance)))
            test.append(draw_data(generator, tested, one + 500, np.eye(generator.dimension)))
            dependence.append(between_slots(covariance))
    members = [
        SlotMember(data=i, strength=STRENGTH, seed=1000 * seeds[i % len(seeds)] + restart)
        for i in range(len(sets))
        for restart in range(restarts)
    ]
    plan = plan_of(parameters, parameters["steps"][str(SLOTS)], turned=True)
    fresh = [new.x * (new.scale / old.scale) for new, old in zip(test, sets, strict=True)]  # in the units trained on
    outcomes = train_sets(
        [one.x[:rows] for one in sets],
        [[one.x[rows:] for one in sets], fresh],
        members,
        SLOTS,
        plan,
        device,
        seed,
        progress,
    )
    shape, true = (len(degrees), len(seeds)), [one.latents for one in test]
    found = {"error": outcomes[0].error, "contrast": outcomes[0].contrast}
    found["sis"] = scored(outcomes[1], members, true, SLOTS)["sis"]
    told: Arrays = {name: values.reshape(*shape, restarts) for name, values in found.items()}
    mixing = np.random.default_rng([seed, 5]).normal(size=(sets[0].latents.shape[1],) * 2)
    columns = {
        "dependence": dependence,
        "margin": [disjoint_margin(one, SLOTS) for one in sets],
        "ceiling": [score(one, one, SLOTS) for one in true],
        "ica_mixture": [
            unmixed_score(old.latents @ mixing.T, old.latents, new.latents @ mixing.T, new.latents, seed)
            for old, new in zip(sets, test, strict=True)
        ],
        "ica_observed": [
            unmixed_score(old.x, old.latents, x, new.latents, seed)
            for old, new, x in zip(sets, test, fresh, strict=True)
        ],
    }
    return told | {name: np.array(values, dtype=float).reshape(shape) for name, values in columns.items()}


def degrees_of(parameters: Mapping[str, Any]) -> list[float]:
    """The degrees of freedom; JSON has no infinity, so null stands for it."""
    return [np.inf if value is None else float(value) for value in parameters["degrees"]]


def symmetric_root(covariance: Float) -> Float:
    """The symmetric matrix whose square is the covariance: the mixing that moves independent variates least."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


def between_slots(covariance: Float) -> float:
    """The largest canonical correlation between the first and the second half of the latents, from 0 to 1."""
    half = len(covariance) // 2
    inner = covariance[:half, :half], covariance[half:, half:]
    left, right = (np.linalg.inv(np.linalg.cholesky(part)) for part in inner)
    return float(np.linalg.svd(left @ covariance[:half, half:] @ right.T, compute_uv=False)[0])


def unmixed_score(x: Array, latents: Float, fresh: Array, true: Float, seed: int) -> float:
    """SIS of ICA fitted to x (n, m), on the rows `fresh` with their true latents.

    ICA knows nothing of slots, so its components are given to them with the help of the latents of x: each goes to
    the slot of the latent that it is matched to. That can only flatter it.
    """
    from congruence.ica.estimator import ICA

    d = latents.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # a Gaussian direction has no answer to converge to
        ica = ICA(d, starts=1, random_state=seed).fit(x)
    cross = np.corrcoef(ica.transform(x), latents, rowvar=False)[:d, d:]
    return score(ica.transform(fresh) @ np.abs(signed_permutation(cross)), true, SLOTS)
