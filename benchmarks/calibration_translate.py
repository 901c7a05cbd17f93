"""The section `translate` of `calibration.py`: populations of documents whose true recall is known, and limits.

The old model places documents on a curved surface of few dimensions; the new model is a rotation of it with noise. The
truth is the recall@10 of the delivered map for fresh queries in a fresh index of the stated size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Quantity, mean, rate

from congruence.translation import translate

FRESH_QUERIES = 400
FRESH_INDEXES = 40
LARGE = 50_000
REQUIRE = 0.9
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Documents:
    """Old and new vectors of some documents and their cluster, how to draw more, and options of `translate`."""

    old: np.ndarray
    new: np.ndarray
    draw: Draw
    options: dict[str, Any]


@dataclass(frozen=True)
class TranslationOutcome:
    """One simulated set of documents and its `Translation`."""

    sample: Documents
    result: Any
    rng: np.random.Generator

    @property
    def recall(self) -> Any:
        return self.result.certificate.retrieval.recall_10

    @cached_property
    def fresh(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Many documents of the same population."""
        return self.sample.draw(self.rng, LARGE)

    def truth(self, size: int) -> float:
        """The recall@10 of the delivered map in a fresh index of this size, whose rows are the queries."""
        old, new, _ = self.fresh if size > 10 * len(self.sample.old) else self.sample.draw(self.rng, size)
        return recall_of(self.result.translator, old[:size], new[:size], self.rng)

    @cached_property
    def here(self) -> float:
        """The truth for an index as large as the certificate's, over many indexes with their own clusters."""
        draws = (self.sample.draw(self.rng, len(self.sample.old)) for _ in range(FRESH_INDEXES))
        few = FRESH_QUERIES // 4
        return float(np.mean([recall_of(self.result.translator, old, new, self.rng, few) for old, new, _ in draws]))


def recall_of(
    translator: Any, old: np.ndarray, new: np.ndarray, rng: np.random.Generator, most: int = FRESH_QUERIES
) -> float:
    """The recall@10 of rows of the index as queries, each left out of its own results."""
    queries = rng.permutation(len(old))[:most]
    squares, rows = np.square(old).sum(1), np.arange(len(queries))
    truth, guess = (squares - 2 * z @ old.T for z in (old[queries], translator(new[queries])))
    truth[rows, queries] = guess[rows, queries] = np.inf
    near, true = (np.argpartition(one, 9, axis=1)[:, :10] for one in (guess, truth))
    return float((near[:, :, None] == true[:, None, :]).any(2).mean())


@dataclass(frozen=True)
class TranslationCell(Cell):
    """A cell whose sample are `n` documents in `d` dimensions."""

    def simulate(self, seed: int) -> list[Any]:
        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        sample = self.draw(rng, self.n, self.d)
        outcome = TranslationOutcome(sample, translate(sample.old, sample.new, **sample.options), rng)
        return [quantity.read(outcome) for quantity in self.quantities]


# Truths.


def surface(
    rng: np.random.Generator, n: int, d: int, *, inner: int, noise: float, copies: int = 1, apart: float = 0.0,
    clusters: int = 0, given: bool = False, index: bool = False,
) -> Documents:  # fmt: skip
    """Documents on a curved surface with `inner` dimensions; noise is relative to the spread of a dimension.

    With `copies`, so many near-duplicates of every document share the difference of the models. `clusters` are shifted
    by `apart`, in both models alike, and the difference of the models is shared by half within a cluster.
    """
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    embed, bend = rng.normal(size=(inner, d)) / np.sqrt(d), rng.normal(size=(inner, d))

    def place(z: np.ndarray) -> np.ndarray:
        return np.asarray(z @ embed + 0.05 * np.sin(z @ bend))

    spread = float(place(rng.normal(size=(2000, inner))).std(0).mean())

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = clusters or -(-n // copies)
        cluster = np.arange(n) % count
        shared = rng.normal(size=(count, inner)), rng.normal(size=(count, d))
        if clusters:
            z = apart * shared[0][cluster] + rng.normal(size=(n, inner))
            error = np.sqrt(0.5) * (shared[1][cluster] + rng.normal(size=(n, d)))
        elif copies > 1:
            z = shared[0][cluster] + 0.05 * rng.normal(size=(n, inner))
            error = shared[1][cluster] + 0.05 * rng.normal(size=(n, d))
        else:
            z, error = rng.normal(size=(n, inner)), rng.normal(size=(n, d))
        old = place(z)
        return old, (old + noise * spread * error) @ turn, cluster

    old, new, cluster = draw(rng, n)
    options: dict[str, Any] = {"cluster": cluster} if given else {}
    if index:
        options["index"] = draw(rng, LARGE)[0]
    return Documents(old, new, draw, options)


# What the answer says.


def covers(outcome: TranslationOutcome) -> bool:
    return bool(outcome.recall.low <= outcome.here <= outcome.recall.high)


def measured(outcome: TranslationOutcome) -> float:
    return float(outcome.recall.mean)


def here(outcome: TranslationOutcome) -> float:
    return outcome.here


def true_at(factor: int, outcome: TranslationOutcome) -> float:
    return outcome.truth(factor * len(outcome.sample.old))


def beyond(factor: int, outcome: TranslationOutcome) -> Any:
    size = factor * len(outcome.sample.old)
    return next(p for p in outcome.result.certificate.retrieval.sizes if p.extrapolated and abs(p.rows - size) <= 1)


def covers_at(factor: int, outcome: TranslationOutcome) -> bool:
    point = beyond(factor, outcome)
    return bool(point.low <= true_at(factor, outcome) <= point.high)


def extrapolated(factor: int, outcome: TranslationOutcome) -> float:
    return float(beyond(factor, outcome).recall)


def covers_large(outcome: TranslationOutcome) -> bool:
    return bool(outcome.recall.low <= outcome.truth(LARGE) <= outcome.recall.high)


def is_status(status: str, outcome: TranslationOutcome) -> bool:
    return bool(outcome.result.status == status)


def wrong_go(outcome: TranslationOutcome) -> bool:
    return bool(outcome.result.status == "holds" and outcome.here < REQUIRE)


def wrong_no_go(outcome: TranslationOutcome) -> bool:
    return bool(outcome.result.status == "fails" and outcome.here >= REQUIRE)


def translating() -> Iterator[Cell]:
    """Certificates against the truth at index sizes 500 to 50,000, near-duplicates, clusters, and wrong decisions."""

    def cell(name: str, n: int, d: int, *quantities: Quantity, **truth: Any) -> Cell:
        return TranslationCell("translate", name, n, d, partial(surface, **truth), quantities)

    covered = rate("interval covers the true recall", covers, least=0.9)
    values = (mean("certified recall", measured), mean("true recall", here))
    wrong = (rate("go, though below 0.9", wrong_go, most=0.05), rate("no-go, though above 0.9", wrong_no_go, most=0.05))
    sizes = [
        quantity
        for factor in (10, 100)
        for quantity in (
            mean(f"extrapolated, {factor}x", partial(extrapolated, factor)),
            mean(f"true, {factor}x", partial(true_at, factor)),
            rate(f"interval covers, {factor}x", partial(covers_at, factor), least=0.9),
        )
    ]
    for inner, noise in ((4, 0.08), (8, 0.15)):
        truth = {"inner": inner, "noise": noise}
        yield cell(f"intrinsic dimension {inner}", 500, 32, *values, covered, *wrong, *sizes, **truth)
        large = (mean("certified recall", measured), mean("true recall", partial(TranslationOutcome.truth, size=LARGE)))
        known = rate("interval covers the true recall", covers_large, least=0.9)
        name = f"intrinsic dimension {inner}, index of 50,000 given"
        yield cell(name, 500, 32, *large, known, **truth, index=True)
    for n, noise in ((200, 0.2), (500, 0.19), (500, 0.25), (1000, 0.19)):
        name = f"intrinsic dimension 8, noise {noise:g}"
        yield cell(name, n, 32, *values, covered, *wrong, inner=8, noise=noise)
    twice = {"inner": 8, "noise": 0.3, "copies": 5}
    unsure = rate("unknown", partial(is_status, "unknown"))
    go = rate("go", partial(is_status, "holds"), most=0.05)
    yield cell("5 near-duplicates each, not said", 500, 64, *values, unsure, go, **twice)
    yield cell("5 near-duplicates each, clusters given", 500, 64, *values, covered, *wrong, **twice, given=True)
    for clusters in (20, 50):
        truth = {"inner": 8, "noise": 0.25, "clusters": clusters, "apart": 1.0}
        yield cell(f"{clusters} clusters, given", 500, 32, *values, covered, *wrong, **truth, given=True)
