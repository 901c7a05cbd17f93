"""The cells of `evaluate`: codes whose relation to the factors is known, what is read off, and the limits to reach."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import calibration_truths as truths
import numpy as np
from calibration_readings import Cell, Outcome, Quantity, mean, rate
from scipy.special import ndtr

import congruence

Generator = np.random.Generator
OWN = {"metrics": ["infomec"], "resamples": 0, "structural": False}
LEFT_OUT = ("copies", "first factor split", "product of others added", "rotated by 20 degrees")  # of dependent rows
COVERED = ("mcc", "mcc_spearman", "mcc_weak")
MANY = 10_000  # rows whose scores stand for those of the population
BIAS = 0.06  # of corrected InfoM and InfoC; the published InfoM of one population moves by 0.13


# Truths: codes (n, L), and factors (n, K).


def factors(rng: Generator, n: int, count: int, r: float = 0.0, kind: str = "numbers") -> np.ndarray:
    """Standardised factors, any two with the same correlation (before classes are made of them)."""
    s = np.sqrt(r) * rng.normal(size=(n, 1)) + np.sqrt(1 - r) * rng.normal(size=(n, count))
    if kind == "classes":
        s = np.floor(rng.integers(3, 9, size=count) * ndtr(s))
    elif kind == "mixed":
        s[:, ::2] = np.floor(5 * ndtr(s[:, ::2]))
    return (s - s.mean(0)) / s.std(0)


def rotate(s: np.ndarray, degrees: float) -> np.ndarray:
    """Rotate the columns in pairs; the last of an odd number once more with the one before it."""
    z, a = s.copy(), np.deg2rad(degrees)
    for k in range(0, s.shape[1], 2):
        j = min(k, s.shape[1] - 2)
        z[:, j : j + 2] = z[:, j : j + 2] @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    return z


def split(rng: Generator, s: np.ndarray) -> np.ndarray:
    """The first factor in two noisy codes, of information 0.37 and 0.28; the others in codes of their own."""
    noise = rng.normal(size=(len(s), 2)) * [1.3, 1.6]
    return np.column_stack([s[:, :1] + noise, s[:, 1:]])


def add_product(s: np.ndarray) -> np.ndarray:
    """The product of the second and the third factor is added to the first code, with half its standard deviation."""
    product = s[:, 1] * s[:, 2]
    return np.column_stack([s[:, 0] + 0.5 * (product - product.mean()) / product.std(), s[:, 1:]])


ENCODERS: dict[str, Callable[[Generator, np.ndarray], np.ndarray]] = {
    "codes equal": lambda rng, s: s,
    "increasing functions": lambda rng, s: np.exp(s),
    "copies": lambda rng, s: np.hstack([s, -2 * s]),
    "noise of variance 0.25": lambda rng, s: s + 0.5 * rng.normal(size=s.shape),
    "rotated by 20 degrees": lambda rng, s: rotate(s, 20),
    "rotated by 45 degrees": lambda rng, s: rotate(s, 45),
    "unrelated": lambda rng, s: rng.normal(size=s.shape),
    "first factor split": split,
    "product of others added": lambda rng, s: add_product(s),
}


def encoded(rng: Generator, n: int, d: int, *, encoder: str, r: float, kind: str) -> truths.Sample:
    s = factors(rng, n, d, r, kind)
    return truths.Sample(ENCODERS[encoder](rng, s), s, OWN)


def unrelated_rows(rng: Generator, n: int, d: int, *, how: str, given: bool) -> truths.Sample:
    """Unrelated codes and factors whose rows depend on each other, with or without saying so."""
    known: dict[str, Any] = {}
    if how.startswith("AR"):
        z, s = (truths.autoregressive(rng, n, width, float(how.split()[1])) for width in (d + 1, d))
        known = {"order_blocks": n // 5}
    elif how.startswith("clusters"):
        unit = truths.clusters(rng, n, int(how.split()[1]))
        z, s = (rng.normal(size=(n, width))[unit] + 0.3 * rng.normal(size=(n, width)) for width in (d + 1, d))
        known = {"cluster": unit}
    else:
        times = int(how.split()[1])
        unit = rng.permutation(n) // times
        z, s = (rng.normal(size=(n, width))[unit] for width in (d + 1, d))
        known = {"cluster": unit}
    return truths.Sample(z, s, OWN | (known if given else {}))


def mixed(rng: Generator, n: int, d: int, *, kind: str, metrics: tuple[str, ...]) -> truths.Sample:
    """Codes with 0.3 of the next factor and noise, and one code of noise alone."""
    s = rng.integers(0, 4, size=(n, d)).astype(float) if kind == "classes" else rng.normal(size=(n, d))
    scaled = (s - 1.5) / np.sqrt(1.25) if kind == "classes" else s
    z = scaled + 0.3 * np.roll(scaled, -1, axis=1) + 0.3 * rng.normal(size=s.shape)
    z = np.column_stack([z, rng.normal(size=n)])
    slow = {"slow_resamples": 10, "nulls": 0} if "regression" in metrics else {}
    return truths.Sample(z, s, {"metrics": list(metrics), "structural": False, **slow})


# Readings.


def has_all(outcome: Outcome) -> bool:
    return len(outcome.result.own_codes) == len(outcome.result.factors)


def has_any(outcome: Outcome) -> bool:
    return outcome.result.status != "unknown" and bool(outcome.result.own_codes)


def has_first(outcome: Outcome) -> bool:
    return outcome.result.factors[0] in outcome.result.own_codes


def is_encoded(outcome: Outcome) -> bool:
    """Whether any factor is said to be encoded."""
    result = outcome.result
    return result.status != "unknown" and len(result.unexplained) < len(result.factors)


def is_flagged(outcome: Outcome) -> bool:
    depends = re.search(r"[Rr]ows depend|copies of others", outcome.words) is not None
    return outcome.result.status == "unknown" and depends


@lru_cache
def population(cell: Cell, draws: int = 4) -> dict[str, tuple[float, float]]:
    """The mean value, and the mean corrected value, of every score of many rows."""
    rng = np.random.default_rng(zlib.crc32(cell.name.encode()))
    found = []
    for _ in range(draws):
        sample = cell.draw(rng, MANY, cell.d)
        result = congruence.evaluate(
            sample.x, sample.y, **sample.options | {"resamples": 0, "slow_resamples": 0, "nulls": 3}
        )
        found.append({one.score: (one.value, getattr(one, "corrected", np.nan)) for one in result.scores})
    return {name: tuple(np.mean([one[name] for one in found], axis=0)) for name in found[0]}


def covers(score: str, outcome: Outcome) -> bool | None:
    """Whether the interval of a score contains that of many rows; None if it has no interval."""
    found = outcome.result[score]
    return bool(found.low <= population(outcome.cell)[score][0] <= found.high) if np.isfinite(found.low) else None


def published_bias(score: str, outcome: Outcome) -> float | None:
    value = outcome.result[score].value - population(outcome.cell)[score][0]
    return float(value) if np.isfinite(value) else None


def corrected_bias(score: str, outcome: Outcome) -> float | None:
    value = getattr(outcome.result[score], "corrected", np.nan) - population(outcome.cell)[score][1]
    return float(value) if np.isfinite(value) else None


# Cells.


def own_codes() -> Iterator[Cell]:
    """Codes equal to correlated factors are their own; rotated, split and unrelated ones are not."""
    every = (rate("every factor has an own code", has_all, least=0.95),)
    none = (rate("a factor has an own code", has_any, most=0.05),)

    def cell(encoder: str, r: float, kind: str, n: int, d: int, quantities: tuple[Quantity, ...]) -> Cell:
        draw = partial(encoded, encoder=encoder, r=r, kind=kind)
        return Cell("own_codes", f"{encoder}, {kind}, correlation {r:g}", n, d, draw, quantities, "evaluate")

    for n, d in ((500, 3), (500, 6), (2000, 3), (2000, 6)):
        for kind in ("numbers", "classes", "mixed"):
            for r in (0.0, 0.5, 0.7, 0.9):
                yield cell("codes equal", r, kind, n, d, every)
                yield cell("rotated by 20 degrees", r, kind, n, d, none)
            yield cell("increasing functions", 0.9, kind, n, d, every)
            yield cell("copies", 0.7, kind, n, d, every)
            yield cell("noise of variance 0.25", 0.7, kind, n, d, every)
            yield cell("rotated by 45 degrees", 0.7, kind, n, d, none)
            first = (rate("the split factor has an own code", has_first, most=0.05),)
            yield cell("first factor split", 0.0, kind, n, d, first)
            product = (rate("the factor of the code with a product has an own code", has_first, most=0.05),)
            yield cell("product of others added", 0.0, kind, n, d, product)
            for r in (0.0, 0.7):
                yield cell("unrelated", r, kind, n, d, none)


def rows() -> Iterator[Cell]:
    """Rows that depend on each other are detected; if declared, they give no codes; independent rows pass."""
    own = rate("a factor has an own code", has_any, most=0.05)
    hidden = (own, rate("flagged as dependent", is_flagged, least=0.95))
    given = (own, rate("a factor called encoded", is_encoded, most=0.05))
    kept = (rate("flagged as dependent", is_flagged, most=0.05),)
    for how in ("AR 0.98", "AR 0.995", "clusters 20", "clusters 50", "copies 2", "copies 5"):
        draw, name = partial(unrelated_rows, how=how), f"unrelated, {how}"
        yield Cell("evaluate_rows", name, 1000, 3, partial(draw, given=False), hidden, "evaluate")
        if how != "AR 0.995":  # such rows are dependent over 1000 places, which no block of 200 holds
            yield Cell("evaluate_rows", f"{name}, given", 1000, 3, partial(draw, given=True), given, "evaluate")
    for encoder in [name for name in ENCODERS if name not in LEFT_OUT]:
        for kind in ("numbers", "classes"):
            draw = partial(encoded, encoder=encoder, r=0.5, kind=kind)
            yield Cell("evaluate_rows", f"independent, {encoder}, {kind}", 500, 3, draw, kept, "evaluate")


def coverage() -> Iterator[Cell]:
    """Intervals contain the score of many rows where there are any; corrected InfoM hardly depends on the rows."""
    metrics = ("mcc", "infomec")
    intervals = tuple(rate(f"{score} covered", partial(covers, score), least=0.9) for score in COVERED)
    bias = []
    for score in ("infom", "infoc"):
        bias.append(mean(f"{score}, bias", partial(published_bias, score)))
        bias.append(mean(f"{score} corrected, bias", partial(corrected_bias, score), least=-BIAS, most=BIAS))
    for kind in ("numbers", "classes"):
        for n in (200, 1000):
            draw = partial(mixed, kind=kind, metrics=metrics)
            yield Cell("evaluate_coverage", f"mixed codes, {kind}", n, 3, draw, (*intervals, *bias), "evaluate")
    linear = (rate("r2_linear covered", partial(covers, "r2_linear"), least=0.9),)
    draw = partial(mixed, kind="numbers", metrics=("regression",))
    yield Cell("evaluate_coverage", "mixed codes, numbers, regression", 200, 3, draw, linear, "evaluate")


SECTIONS = {"own_codes": own_codes, "evaluate_rows": rows, "evaluate_coverage": coverage}
