"""Codes and factors as classes, by bins of equal width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.metrics.factors import Factors
from congruence.metrics.notes import Note

RULES = ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")  # of numpy


def binned(codes: Float, bins: int | str = 20) -> Array:
    """The equal-width bin of every code, counted from 1, shape (n, L), as the reference implementations bin.

    `bins` is a number, or a rule of `numpy.histogram_bin_edges` such as "auto". The largest value falls into the last
    bin; all of a constant code fall into the first.
    """
    if bins not in RULES and not (isinstance(bins, int | np.integer) and bins > 0):
        raise InputError(f"bins must be a number above 0 or one of {', '.join(RULES)}, not {bins!r}")
    return np.column_stack([_binned(column, bins) for column in codes.T])


def _binned(column: Float, bins: int | str) -> Array:
    if (column == column[0]).all():
        return np.ones(len(column), dtype=np.intp)
    try:
        return np.digitize(column, np.histogram_bin_edges(column, bins)[:-1])
    except ValueError:  # so far from 0 for their spread that there are fewer floats between them than bins
        return np.unique(column, return_inverse=True)[1].reshape(-1) + 1


def as_classes(columns: Array) -> Array:
    """Number the distinct values of each column from 0, in sorted order; shape (n, L)."""
    return np.column_stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns.T])


@dataclass(frozen=True, eq=False)
class CutFactors:
    """Factors as classes."""

    classes: Array  # (n, K)
    varies: Array  # (K,) the others are constant, or classes of one row each, and cannot be measured
    notes: tuple[Note, ...]  # how kinds were chosen, what was cut and what was left out


def cut(factors: Factors, bins: int) -> CutFactors:
    """Factors as classes; continuous ones fall into so many bins of equal width."""
    varies = np.array([not factor.left_out for factor in factors])
    notes = [*factors.notes]
    for factor in factors:
        if factor.left_out:
            notes.append(Note(factor.left_out, [factor.name]))
        elif not factor.is_discrete:
            notes.append(Note(f"cut into {bins} bins of equal width", [factor.name]))
    classes = [
        factor.labels(bins) if moves else np.zeros(factors.n, np.intp)
        for factor, moves in zip(factors, varies, strict=True)
    ]
    return CutFactors(np.column_stack(classes), varies, tuple(notes))
