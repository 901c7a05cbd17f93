"""Factors as columns of numbers, for what correlates, regresses or measures distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics.factors import Factor, Factors
from congruence.metrics.notes import Note, note_if

AS_NUMBERS = "few distinct values, used as numbers"


@dataclass(frozen=True, eq=False)
class Columns:
    """Factors as numbers: one column for most, cosine and sine of a circular one, one for each class but the first."""

    names: tuple[str, ...]  # (M,)
    owner: Array  # (M,) the number of the factor each column is of
    values: Float  # (n, M)
    notes: tuple[Note, ...]


def has_no_order(factor: Factor) -> bool:
    """Whether a factor is of three classes or more whose numbers mean nothing.

    Numbers that were only guessed to be classes keep their meaning as numbers, and two classes are 0 and 1.
    """
    return factor.kind == "categorical" and not factor.note and len(np.unique(factor.values)) > 2


def columns_of(s: Factors, *, unordered: bool) -> Columns:
    """Factors as columns of numbers; factors without order as columns of 0 and 1, or left out with a note."""
    names: list[str] = []
    owner: list[int] = []
    values: list[Float] = []
    left = []
    for k, factor in enumerate(s):
        if has_no_order(factor) and not unordered:
            left.append(factor.name)
            continue
        part, labels = _column(factor)
        values.append(part)
        names += labels
        owner += [k] * len(labels)
    guessed = [f.name for f in s if f.kind == "categorical" and f.note and len(np.unique(f.values)) > 2]
    notes = note_if(guessed, AS_NUMBERS) + note_if(left, "left out, because unordered classes cannot be correlated")
    matrix = np.hstack(values) if values else np.zeros((0, 0))
    return Columns(tuple(names), np.array(owner, dtype=int), matrix, notes)


def _column(factor: Factor) -> tuple[Float, list[str]]:
    if factor.kind == "circular":
        return factor.coordinates(), [f"{factor.name} (cos)", f"{factor.name} (sin)"]
    if has_no_order(factor):
        there = np.unique(factor.values)  # of some rows these may be fewer than all levels
        levels = [factor.levels[int(value)] if factor.levels else f"{value:g}" for value in there]
        return factor.coordinates(), [f"{factor.name}={level}" for level in levels[1:]]
    return factor.values[:, None], [factor.name]
