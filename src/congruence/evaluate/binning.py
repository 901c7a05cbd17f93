"""Codes and factors as classes, by bins of equal width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.evaluate.factors import Factors


def binned(codes: Float, bins: int | str = 20) -> Array:
    """The equal-width bin of every code, counted from 1, shape (n, L), as the reference implementations bin.

    `bins` is a number, or a rule of `numpy.histogram_bin_edges` such as "auto". The largest value falls into the last
    bin; a constant code falls into one.
    """
    if not isinstance(bins, str) and bins < 1:
        raise InputError(f"bins must be at least 1, not {bins}")
    try:
        edges = [np.histogram_bin_edges(column, bins)[:-1] for column in codes.T]
    except ValueError as error:
        raise InputError(f"bins must be a number or a rule of numpy such as 'auto', not {bins!r}: {error}") from error
    return np.column_stack([np.digitize(column, edge) for column, edge in zip(codes.T, edges, strict=True)])


def as_classes(columns: Array) -> Array:
    """Number the distinct values of each column from 0, in sorted order; shape (n, L)."""
    return np.column_stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns.T])


@dataclass(frozen=True, eq=False)
class CutFactors:
    """Factors as classes."""

    classes: Array  # (n, K)
    varies: Array  # (K,) the others are constant and cannot be measured
    notes: tuple[str, ...]  # how kinds were chosen, what was cut and what was left out


def cut(factors: Factors, bins: int) -> CutFactors:
    """Factors as classes; continuous ones fall into so many bins of equal width."""
    varies = np.array([not factor.is_constant for factor in factors])
    notes = [*factors.notes]
    for factor in factors:
        if factor.is_constant:
            notes.append(f"{factor.name} is constant and was left out.")
        elif not factor.is_discrete:
            notes.append(f"{factor.name} was cut into {bins} bins of equal width.")
    return CutFactors(factors.labels(bins), varies, tuple(notes))
