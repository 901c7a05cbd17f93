"""The cells of `calibration.py` on `check`: false alarms for embeddings that did not change, and misses of changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import calibration_truths as truths
import numpy as np
from calibration_readings import Cell, Outcome, Quantity, is_changed, rate

DIMENSIONS = 64
Generator = np.random.Generator


def embeddings(rng: Generator, n: int, d: int) -> np.ndarray:
    """Rows with a spectrum 1/k and a mean, as embeddings of texts have."""
    return rng.normal(size=(n, d)) * truths.spread("1/k", d) @ truths.rotation(rng, d) + rng.normal(size=d)


def again(
    rng: Generator, n: int, d: int, how: str, *, amount: float = 0.0, rotated: bool = False, **options: Any
) -> truths.Sample:
    """The new embeddings and those of the baseline; `amount` is a share of the variance, for noise of its root."""
    old = embeddings(rng, n, d)
    new = old.astype(np.float32).astype(float)
    if how == "float16":
        new = new.astype(np.float16).astype(float)
    elif how == "int8":
        new = truths.rounded_to_int8(new, None)
    elif how == "noise":
        new = new + amount * old.std() * rng.normal(size=old.shape)
    elif how == "replaced":
        new = old.mean(0) + np.sqrt(1 - amount) * (new - old.mean(0)) + np.sqrt(amount) * _independent(rng, old)
    elif how == "rows":
        chosen = rng.permutation(n)[: round(amount * n)]
        new[chosen] = embeddings(rng, n, d)[chosen]
    elif how == "directions":  # an update of rank 4, as small fine-tunings make
        left, right = (np.linalg.qr(rng.normal(size=(d, 4)))[0] for _ in range(2))
        update = (new - new.mean(0)) @ left @ right.T
        new = new + np.sqrt(amount * old.var(0).sum() / update.var(0).sum()) * update
    elif how == "unrelated":
        new = embeddings(rng, n, d)
    elif how in ("dominated", "dominated, float16"):
        large = 20 * np.sqrt(d) * rng.normal(size=n)
        new = new.astype(np.float16) if "float16" in how else embeddings(rng, n, d)
        old[:, 0] = new[:, 0] = large
    if rotated:
        new = new @ truths.rotation(rng, d)
    return truths.Sample(new, old, options)


def _independent(rng: Generator, old: np.ndarray) -> np.ndarray:
    """Rows of the same covariance that have nothing to do with the old ones."""
    centred = old - old.mean(0)
    return rng.normal(size=(len(old), len(old))) @ centred / np.sqrt(len(old))


def other_rows(rng: Generator, n: int, d: int, how: str, **more: Any) -> truths.Sample:
    """The same, as tables by id in another order: half of the rows of the baseline are missing, others are new."""
    from congruence import Table

    sample = again(rng, 2 * n, d, how, **more)
    order = rng.permutation(2 * n)
    names = np.array([f"row{i}" for i in range(2 * n)])
    first, second = order[:n], rng.permutation(order[n // 2 : n // 2 + n])
    tables = (Table(run[some], name, names[some]) for run, name, some in
              ((sample.x, "new", second), (sample.y, "baseline", first)))  # fmt: skip
    new, old = tables
    return replace(sample, x=new, y=old)


def is_accepted(outcome: Outcome) -> bool:
    return not is_changed(outcome)


def is_called_a_rotation(outcome: Outcome) -> bool:
    return "only a rotation" in outcome.pair.verdict.headline


def checks() -> Iterator[Cell]:
    """Embeddings that did not change must pass, and changed ones must not, for each of two things that are allowed."""
    alarm, miss = rate("false alarm", is_changed, most=0.05), rate("missed", is_accepted, most=0.05)
    rotation = rate("called a rotation", is_called_a_rotation, least=0.95)

    def cell(name: str, n: int, draw: Any, *quantities: Quantity) -> Cell:
        return Cell("check", name, n, DIMENSIONS, draw, quantities, "check")

    for n in (200, 1000):
        same = {"identical": {}, "float16": {}, "int8": {}, "noise": {"amount": 1e-3}}
        for how, more in same.items():
            name = "noise of 0.001 sd" if how == "noise" else how
            yield cell(name, n, partial(again, how=how, **more), alarm)
            yield cell(f"{name}, half of the rows missing", n, partial(other_rows, how=how, **more), alarm)
            if how in ("identical", "int8"):
                continue
            turned = partial(again, how=how, rotated=True, **more)
            yield cell(f"{name}, rotated", n, turned, miss, rotation)
            yield cell(f"{name}, rotated, allow similarity", n, partial(turned, allow="similarity"), alarm)
        yield cell(
            "one dimension with 99 % of the variance, float16", n, partial(again, how="dominated, float16"), alarm
        )
        yield cell(
            "one dimension with 99 % of the variance, others unrelated", n, partial(again, how="dominated"), miss
        )
        changes = {
            "2 % of the variance replaced": ("replaced", 0.02), "10 % of the variance replaced": ("replaced", 0.1),
            "2 % of the rows replaced": ("rows", 0.02), "5 % of the rows replaced": ("rows", 0.05),
            "update of rank 4, 10 % of the variance": ("directions", 0.1), "unrelated": ("unrelated", 0.0),
        }  # fmt: skip
        for name, (how, amount) in changes.items():
            draw = partial(again, how=how, amount=amount)
            yield cell(name, n, draw, miss)
            yield cell(f"{name}, rotated, allow similarity", n, partial(draw, rotated=True, allow="similarity"), miss)
