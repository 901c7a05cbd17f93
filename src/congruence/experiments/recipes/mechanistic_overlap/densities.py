"""Dependent latents: the rows that slots act on do not depend on the density of latents, but the result of ICA does.

Latents are Laplace variates, which suit ICA, mixed so that their covariance is drawn from a Wishart distribution. With
infinitely many degrees of freedom they are independent. Everything is fitted on such latents, and scored on independent
ones: if slots depend on each other, even the true ones predict each other, and no score could be high.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import NotConvergedWarning
from congruence.experiments.recipes.mechanistic_overlap.slots import Progress, SlotMember
from congruence.experiments.recipes.mechanistic_overlap.trainings import (
    data_seeds,
    disjoint_margin,
    draw_data,
    make_plan,
    score_codes,
    score_members,
    train_sets,
)
from congruence.experiments.recipes.result import as_numbers
from congruence.mechanism.overlap import dependent_covariance, overlap_generator
from congruence.parts import Arrays
from congruence.stats.matching import signed_permutation

SLOTS = 2
STRENGTH = 0.01


@dataclass(frozen=True, eq=False)
class Densities:
    """Results by the dependence of latents; axes are degrees of freedom and data seeds, then restarts."""

    degrees: tuple[float, ...]  # of the Wishart distribution; inf for independent latents
    dependence: Float  # (degrees, data seeds) largest canonical correlation between the slots
    margin: Float  # (degrees, data seeds) distance of the generator from Type D at these latents
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
        """Values divided by those of the true latents."""
        return np.asarray(values / self.ceiling)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        numbers = {one.name: getattr(self, one.name) for one in fields(self)}
        degrees = [value if np.isfinite(value) else None for value in self.degrees]
        plain: dict[str, Any] = as_numbers(numbers | {"degrees": degrees, "selected": self.selected})
        return plain


def train_densities(parameters: Mapping[str, Any], seed: int, device: str, progress: Progress) -> Arrays:
    """Train on independent and on dependent latents, without overlap, and apply ICA to the same data."""
    seeds, rows, tested = data_seeds(parameters, seed), parameters["rows"], parameters["test_rows"]
    degrees, restarts = read_degrees(parameters), parameters["density_restarts"]
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
    fresh = [new.x * (new.scale / old.scale) for new, old in zip(test, sets, strict=True)]  # in the units trained on
    training, held_out = [one.x[:rows] for one in sets], [one.x[rows:] for one in sets]
    plan = make_plan(parameters, SLOTS, turned=True)
    here, there = train_sets(training, [held_out, fresh], members, SLOTS, plan, device, seed, progress)
    shape, true = (len(degrees), len(seeds)), [one.latents for one in test]
    trained = {"error": here.error, "contrast": here.contrast, "sis": score_members(there, members, true, SLOTS)}
    arrays: Arrays = {name: values.reshape(*shape, restarts) for name, values in trained.items()}
    mixing = np.random.default_rng([seed, 5]).normal(size=(sets[0].latents.shape[1],) * 2)
    columns = {
        "dependence": dependence,
        "margin": [disjoint_margin(one, SLOTS) for one in sets],
        "ceiling": [score_codes(one, one, SLOTS) for one in true],
        "ica_mixture": [
            score_ica(old.latents @ mixing.T, old.latents, new.latents @ mixing.T, new.latents, seed)
            for old, new in zip(sets, test, strict=True)
        ],
        "ica_observed": [
            score_ica(old.x, old.latents, x, new.latents, seed) for old, new, x in zip(sets, test, fresh, strict=True)
        ],
    }
    return arrays | {name: np.array(values, dtype=float).reshape(shape) for name, values in columns.items()}


def read_degrees(parameters: Mapping[str, Any]) -> list[float]:
    """The degrees of freedom; null in JSON stands for infinity."""
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


def score_ica(x: Array, latents: Float, fresh: Array, true: Float, seed: int) -> float:
    """SIS of ICA fitted to x (n, m), on the rows `fresh` with their true latents.

    ICA does not know the slots, so each component is assigned to the slot of the latent of x that it is matched to.
    That can only improve its score.
    """
    from congruence.ica.estimator import ICA

    d = latents.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # a Gaussian direction has no solution to converge to
        ica = ICA(d, starts=1, random_state=seed).fit(x)
    cross = np.corrcoef(ica.transform(x), latents, rowvar=False)[:d, d:]
    return score_codes(ica.transform(fresh) @ np.abs(signed_permutation(cross)), true, SLOTS)
