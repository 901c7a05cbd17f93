"""The cells of `calibration.py` on `examine_mixture`: error rates and power of the findings on P1, P2 and P3.

Latents are drawn from random mixtures of three components whose variance ratios differ, or from laws that depart from
them in one way; the prior is known, or fitted to the latents by scikit-learn. Nothing is decoded.
"""

from __future__ import annotations

import inspect
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Outcome, Quantity, mean, rate

from congruence.mixture import GaussianMixture, MixtureModel, examine_mixture

COMPONENTS = 3


@dataclass(frozen=True)
class Case:
    """What is given to `examine_mixture`."""

    prior: Any
    codes: Any = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MixtureCell(Cell):
    """A cell whose draws are cases."""

    def simulate(self, seed: int) -> list[Any]:
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        case: Any = self.draw(rng, self.n, self.d)
        known = {
            name: case.options[name] for name in case.options if name in inspect.signature(examine_mixture).parameters
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = examine_mixture(case.prior, codes=case.codes, seed=seed, **known)
            outcome = Outcome(self, case, result, rng)
            return [quantity.read(outcome) for quantity in self.quantities]


def random_prior(rng: np.random.Generator, d: int) -> GaussianMixture:
    """Three components a few standard deviations apart, with variances between 0.3 and 3."""
    variances = np.exp(rng.uniform(-1.1, 1.1, size=(COMPONENTS, d)))
    weights = rng.dirichlet(np.full(COMPONENTS, 10.0))
    return GaussianMixture.from_arrays(weights, 3.0 * rng.normal(size=(COMPONENTS, d)), variances)


def correlated(prior: GaussianMixture, correlation: float) -> GaussianMixture:
    """The same means and variances, with one correlation between all latents of a component."""
    d = prior.dimension
    spread = np.sqrt(np.diagonal(prior.covariances, axis1=1, axis2=2))
    matrix = np.eye(d) + correlation * (1 - np.eye(d))
    return GaussianMixture(prior.weights, prior.means, spread[:, :, None] * matrix * spread[:, None])


def draw_rows(prior: GaussianMixture, n: int, rng: np.random.Generator, noise: str = "gaussian") -> np.ndarray:
    """Draws with noise of variance 1 of some shape within components."""
    shape = (n, prior.dimension)
    units = {
        "gaussian": lambda: rng.normal(size=shape),
        "t5": lambda: rng.standard_t(5, size=shape) / np.sqrt(5 / 3),
        "gamma": lambda: (rng.gamma(4.0, size=shape) - 4.0) / 2.0,
        "uniform": lambda: rng.uniform(-np.sqrt(3), np.sqrt(3), size=shape),
    }[noise]()
    states = rng.choice(prior.components, size=n, p=prior.weights)
    roots = np.linalg.cholesky(prior.covariances)
    return prior.means[states] + np.einsum("nab,nb->na", roots[states], units)


# Truths: functions of (rng, n, d).


def known_prior(rng: Any, n: int, d: int, noise: str = "gaussian", correlation: float = 0.0, **options: Any) -> Case:
    """A known prior with independent latents, and rows that may depart from it."""
    prior = random_prior(rng, d)
    return Case(prior, draw_rows(correlated(prior, correlation), n, rng, noise), options)


def exact_model(rng: Any, n: int, d: int, **options: Any) -> Case:
    """Exact posterior means of x = z + noise under a Gaussian prior."""
    z = rng.normal(size=(n, d))
    return Case(GaussianMixture.from_arrays([1.0], [np.zeros(d)], [1.0]), (z + rng.normal(size=(n, d))) / 2, options)


def encoded(rng: Any, n: int, d: int, deviation: float) -> Case:
    """Draws of an encoder of x = z + noise with exact means; the exact standard deviation is the root of 1/2."""
    prior = GaussianMixture.from_arrays([1.0], [np.zeros(d)], [1.0])
    means = (rng.normal(size=(n, d)) + rng.normal(size=(n, d))) / 2
    draws = means + deviation * rng.normal(size=(n, d))
    return Case(MixtureModel(prior, codes=means, codes_are="means", draws=draws))


def fit_of_rows(
    rng: Any, n: int, d: int, kind: str, noise: str = "gaussian", correlation: float = 0.0, **how: Any
) -> Case:
    """A mixture of scikit-learn, fitted to the rows that are given as codes."""
    from sklearn.mixture import GaussianMixture as Fitted

    z = draw_rows(correlated(random_prior(rng, d), correlation), n, rng, noise)
    how = {"n_init": 3} | how
    return Case(Fitted(COMPONENTS, covariance_type=kind, random_state=0, **how).fit(z), z)


def turned_prior(rng: Any, n: int, d: int) -> Case:
    """Covariances A D_j A^T: P2 holds in other coordinates only."""
    return Case(random_prior(rng, d).pushed(rng.normal(size=(d, d)) + np.eye(d)))


def nested_prior(rng: Any, n: int, d: int) -> Case:
    """A variable of two states on latent 0 and 1, and one on latent 1 alone."""
    states = np.indices((2, 2)).reshape(2, -1).T
    steps = rng.uniform(5, 10, size=3)
    means = np.column_stack([states[:, 0] * steps[0], states @ [2.5 * steps[1], steps[1]]])
    variances = np.column_stack([np.exp(states[:, 0]), np.exp(-states[:, 0])])
    return Case(GaussianMixture.from_arrays(np.full(4, 0.25), means, variances))


# Readings


def has_status(name: str, status: str, outcome: Outcome) -> bool:
    return outcome.result[name].status == status


def reported_power(name: str, outcome: Outcome) -> float | None:
    """The power for t noise that the finding reports; None where the sample was refuted."""
    condition = outcome.result.checked["model"].conditions[name]
    power = condition.numbers.get("power")
    return power.get("t5") if isinstance(power, dict) else power


def says(name: str, status: str, **limit: float) -> Quantity:
    return rate(f"{name} {status}", partial(has_status, name, status), **limit)


def mixture() -> Iterator[Cell]:
    """P1: draws, means, departures; P2: constrained and full fits, frames; P3: nested neighbourhoods."""

    def cell(name: str, draw: Callable[..., Case], *quantities: Quantity, n: int = 1000, d: int = 2) -> Cell:
        return MixtureCell("mixture", name, n, d, draw, quantities)

    false, held = says("P1", "fails", most=0.03), says("P1", "holds", most=0.05)
    power = mean("reported power, t5", partial(reported_power, "P1"))
    draws = partial(known_prior, codes_are="draws")
    for n, d in ((1000, 2), (200, 2), (1000, 5)):
        yield cell("draws of a known prior", draws, false, says("P1", "holds"), power, n=n, d=d)
    for codes_are in (None, "means"):
        name = f"exact posterior means, {'declared as such' if codes_are else 'not declared'}"
        yield cell(name, partial(exact_model, codes_are=codes_are), says("P1", "fails", most=0.0))
    for name, deviation in (("exact", np.sqrt(0.5)), ("too narrow", 0.5)):
        limit = says("P1", "holds", **({"most": 0.05} if name == "too narrow" else {}))
        cell_name = f"draws of an encoder, {name} posteriors"
        yield cell(cell_name, partial(encoded, deviation=deviation), says("P1", "fails", most=0.0), limit)
    for noise in ("t5", "gamma", "uniform"):
        for n in (1000, 200):
            refuted = says("P1", "fails", **({"least": 0.9} if n == 1000 else {}))
            yield cell(f"draws with {noise} noise within components", partial(draws, noise=noise), refuted, held, n=n)
    yield cell("draws with correlation 0.3, diagonal prior", partial(draws, correlation=0.3),
               says("P1", "fails", least=0.9), held, says("P2", "holds", most=0.05))  # fmt: skip
    not_refuted, wrong = says("P2", "fails", most=0.03), says("P2", "holds", most=0.05)
    p2_power = mean("reported power, correlation 0.2", partial(reported_power, "P2"))
    for n, d in ((1000, 2), (200, 2), (1000, 5), (2000, 2)):
        yield cell("full fit, no correlation", partial(fit_of_rows, kind="full"), false, says("P1", "holds"),
                   not_refuted, says("P2", "holds"), p2_power, n=n, d=d)  # fmt: skip
    poor = partial(fit_of_rows, kind="full", n_init=1, init_params="random_from_data")
    yield cell("full fit from one random start, no correlation", poor, false, says("P1", "holds"))
    for noise in ("t5", "gamma"):
        yield cell(f"full fit, {noise} noise within components", partial(fit_of_rows, kind="full", noise=noise),
                   says("P1", "fails", least=0.9), held, n=2000)  # fmt: skip
    for kind in ("diag", "full"):
        for correlation in (0.6, 0.2):
            draw = partial(fit_of_rows, kind=kind, correlation=correlation)
            found = says("P2", "fails", **({"least": 0.9} if correlation == 0.6 else {}))
            yield cell(f"{kind} fit, correlation {correlation}", draw, wrong, found)
    yield cell("frame that was found", turned_prior, wrong, n=0, d=3)
    yield cell("nested neighbourhoods", nested_prior, says("P3", "fails", least=1.0), n=0)
