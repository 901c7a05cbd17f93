"""The cells of `calibration.py` about `resolve`: which components are called identified, and whether they are.

A component is falsely identified where no axis exists (Gaussian, spherical and dependent rows), or where it is none of
the sources. Everything is at the default settings of `resolve`.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from calibration_readings import Cell, Outcome, mean, rate
from calibration_truths import Sample, autoregressive

from congruence import ICA
from congruence.ica import resolve as resolve_rows

FOUND = 0.9  # correlation from which a component is the source, or is found again
SEEDS = 6
SHIPPED = Path(os.environ.get("CONGRUENCE_DATA", "")) / "modelpairs" / "admet_cls_seed0.npy"


@dataclass(frozen=True)
class ResolveCell(Cell):
    """Rows to resolve; `y` of a sample holds the sources (n, m) that are not Gaussian, or None where there are none."""

    verb: str = "resolve"
    options: dict[str, Any] = field(default_factory=dict)

    def simulate(self, seed: int) -> list[Any]:
        """The value of every quantity for one sample."""
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        sample = self.draw(rng, self.n, self.d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows without components, on purpose
            result = resolve_rows(sample.x, **sample.options, **self.options, seed=seed)
            return [quantity.read(Outcome(self, sample, result, rng)) for quantity in self.quantities]


# Truths.


def gaussian(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)), None)


def spherical_t(df: float, rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(df, size=(n, 1)) / df), None)


def spherical_lognormal(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1))), None)


def spherical_pairs(rng: np.random.Generator, n: int, d: int) -> Sample:
    """Independent spherical planes of Student's t with 3 degrees of freedom: planes exist, axes in them do not."""
    return Sample(np.hstack([spherical_t(3, rng, n, 2).x for _ in range(d // 2)]), None)


def rare_scale(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)) * np.where(rng.random((n, 1)) < 0.02, 8.0, 1.0), None)


def repeated_often(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.permutation(np.repeat(rng.normal(size=(n // 100, d)), 100, axis=0)), None)


def scale_mixture(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)) * np.where(rng.random((n, 1)) < 0.2, 3.0, 1.0), None)


def repeated(rng: np.random.Generator, n: int, d: int, times: int = 5) -> Sample:
    row = rng.permutation(np.arange(n) % (n // times))
    return Sample(rng.normal(size=(n // times, d))[row], None)


def series(rng: np.random.Generator, n: int, d: int) -> Sample:
    return Sample(autoregressive(rng, n, d, 0.98), None)


def clustered(rng: np.random.Generator, n: int, d: int, count: int) -> Sample:
    label = rng.permutation(np.arange(n) % count)
    return Sample(rng.normal(size=(count, d))[label] + 0.3 * rng.normal(size=(n, d)), None, {"cluster": label})


def mixture(rng: np.random.Generator, n: int, d: int, gaussians: int = 0) -> Sample:
    """Laplace, uniform and exponential sources in turn, as in `ica.py`, some of them Gaussian, in a square mixture."""
    laws = (rng.laplace, partial(rng.uniform, -1, 1), rng.exponential)
    sources = np.column_stack([laws[i % 3](size=n) for i in range(d - gaussians)])
    sources = (sources - sources.mean(0)) / sources.std(0)
    every = np.column_stack([sources, rng.normal(size=(n, gaussians))])
    return Sample(every @ rng.normal(size=(d, d)), sources)


def standardized(load: Callable[[], np.ndarray], rng: np.random.Generator, n: int, d: int) -> Sample:
    x = load()
    x = x[:, x.std(0) > 0]
    return Sample((x - x.mean(0)) / x.std(0), None)


def half_of(load: Callable[[], np.ndarray], rng: np.random.Generator, n: int, d: int) -> Sample:
    """One half of real rows; `y` is the other."""
    x = standardized(load, rng, n, d).x
    order = rng.permutation(len(x))
    return Sample(*(x[np.sort(part)] for part in np.array_split(order, 2)))


def breast_cancer() -> np.ndarray:
    from sklearn.datasets import load_breast_cancer

    return np.asarray(load_breast_cancer().data)


def digits() -> np.ndarray:
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data)


def molecules() -> np.ndarray:
    return np.load(SHIPPED).astype(np.float64)


# Readings.


def correlations(outcome: Outcome, others: np.ndarray) -> np.ndarray:
    """Of every component with other columns over the same rows, absolute, (k, m)."""
    ours = outcome.result.ica.transform(outcome.sample.x)
    return np.abs(np.corrcoef(ours, others, rowvar=False)[: ours.shape[1], ours.shape[1] :])


def false_share(outcome: Outcome) -> float:
    """The share of all components that are called identified and are no source."""
    identified = outcome.result.ica.identified_
    if outcome.sample.y is None:
        return float(identified.mean())
    return float((identified & (correlations(outcome, outcome.sample.y).max(1) < FOUND)).mean())


def true_share(outcome: Outcome) -> float:
    """The share of the sources that are identified."""
    match = correlations(outcome, outcome.sample.y)[outcome.result.ica.identified_]
    return float((match > FOUND).sum() / outcome.sample.y.shape[1])


def is_limit_exceeded(outcome: Outcome) -> bool | None:
    """Whether nine in ten identified components differ from the sources by more than `error_left`."""
    ica = outcome.result.ica
    if not ica.identified_.any():
        return None
    match = correlations(outcome, outcome.sample.y)[ica.identified_].max(1)
    return bool(np.quantile(np.arccos(np.minimum(match, 1)), 0.9) > ica.error_left_)


def count_range(outcome: Outcome) -> int:
    """By how much the number of identified components differs over six seeds."""
    rows, options = outcome.sample.x, outcome.cell.options
    first = outcome.result.settings["seed"] * SEEDS
    counts = [resolve_rows(rows, **options, seed=first + i).identified for i in range(SEEDS)]
    return max(counts) - min(counts)


def found_again(outcome: Outcome) -> float | None:
    """The share of identified components that a fit to the other half of the rows finds."""
    ica, other = outcome.result.ica, outcome.sample.y
    if not ica.identified_.any():
        return None
    again = ICA(outcome.cell.options["components"], random_state=outcome.rng.integers(2**31)).fit(other)
    every = np.concatenate([outcome.sample.x, other])
    ours, theirs = ica.transform(every)[:, ica.identified_], again.transform(every)
    match = np.abs(np.corrcoef(ours, theirs, rowvar=False)[: ours.shape[1], ours.shape[1] :]).max(1)
    return float((match > FOUND).mean())


def resolve() -> Iterator[Cell]:
    """Rows without axes, mixtures, and real rows."""
    none = (mean("falsely identified, share of components", false_share, most=0.05),)
    both = (*none, mean("sources identified", true_share, least=0.9))
    cell = partial(ResolveCell, "resolve")
    for d, few in ((10, ""), (2, ", two components")):
        yield cell(f"Gaussian{few}", 2000, d, gaussian, none)
        for n in (2000, 10_000):
            yield cell(f"spherical t5{few}", n, d, partial(spherical_t, 5), none)
        yield cell(f"Gaussian scale mixture{few}", 2000, d, scale_mixture, none)
        yield cell(f"Gaussian, rows 5x{few}", 2000, d, repeated, none)
        yield cell(f"Gaussian, AR 0.98{few}", 2000, d, series, none)
        yield cell(f"Gaussian, 40 clusters, given{few}", 2000, d, partial(clustered, count=40), none)
    for d in (2, 3):
        for n in (500, 2000):
            yield cell("spherical t3", n, d, partial(spherical_t, 3), none)
            yield cell("spherical t2.5", n, d, partial(spherical_t, 2.5), none)
            yield cell("spherical, lognormal scales", n, d, spherical_lognormal, none)
            yield cell("Gaussian, 2 % of rows times 8", n, d, rare_scale, none)
    yield cell("spherical planes, t3", 2000, 4, spherical_pairs, none)
    yield cell("Gaussian, rows 100x", 20_000, 5, repeated_often, none)
    yield cell("10 non-Gaussian and 10 Gaussian sources", 5000, 20, partial(mixture, gaussians=10), both)
    for n, d in ((500, 3), (2000, 2), (2000, 6), (5000, 16), (20_000, 64)):
        yield cell("mixture", n, d, mixture, both)
    left = (rate("error_left exceeded", is_limit_exceeded, most=0.05),)
    for n, d in ((20_000, 4), (40_000, 10)):
        yield cell("mixture, rows auto", n, d, mixture, left, options={"rows": "auto"})
    moved = rate("count moves by more than 1 over six seeds", lambda outcome: count_range(outcome) > 1, most=0.05)
    yield cell("breast cancer", 569, 10, partial(standardized, breast_cancer), (moved,), options={"components": 10})
    spread = mean("range of the count over six seeds", count_range)
    yield cell("digits", 1797, 15, partial(standardized, digits), (spread,), options={"components": 15})
    again = mean("found on the other half", found_again, least=0.75)
    real: dict[str, Any] = {"options": {"components": 20}, "needs": SHIPPED}
    yield cell("molecules", 2784, 20, partial(standardized, molecules), (moved,), **real)
    yield cell("molecules, one half", 1392, 20, partial(half_of, molecules), (again,), **real)
