"""Normalised information of each code about each factor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics.binning import as_classes, binned
from congruence.metrics.factors import Factor, Factors
from congruence.metrics.information import class_information, entropy
from congruence.metrics.neighbours import (
    grouping,
    information_of_numbers,
    information_with_classes,
    jittered,
    standardised,
)
from congruence.metrics.notes import Note


@dataclass(frozen=True, eq=False)
class Target:
    """A factor as it is measured: as classes, or as numbers."""

    factor: Factor
    bins: int | None = None  # cut a continuous factor into so many classes of equal width

    @property
    def name(self) -> str:
        """What the factor is called."""
        return self.factor.name

    @property
    def is_cut(self) -> bool:
        """Whether numbers were made into classes."""
        return self.bins is not None and not self.factor.is_discrete

    @property
    def is_classes(self) -> bool:
        """Whether it is measured as classes."""
        return self.factor.is_discrete or self.is_cut

    @cached_property
    def classes(self) -> Array:
        """The class of each row, shape (n,)."""
        return self.factor.labels() if self.bins is None else self.factor.labels(self.bins)


def usable(factors: Factors, bins: int | None, *, by_counts: bool) -> tuple[dict[int, Target], list[Note]]:
    """The factors that can be measured, by their place, and a note for each that cannot.

    `by_counts` says that codes are classes too, so that classes of one row do no harm.
    """
    used, notes = {}, []
    for i, target in enumerate(Target(factor, bins) for factor in factors):
        if target.factor.left_out:
            notes.append(Note(target.factor.left_out, [target.name]))
        elif target.is_classes and not by_counts and len(np.unique(target.classes)) == factors.n:
            notes.append(Note("left out, because each class has one row and so no neighbours", [target.name]))
        else:
            used[i] = target
    return used, notes


def shares_by_counts(classes: Array, targets: list[Target], k: int, seed: int) -> Float:
    """Shares (K, L) of codes that are classes (n, L): from counts, or for continuous factors from near neighbours."""
    random = np.random.RandomState(seed)
    share = np.empty((len(targets), classes.shape[1]))
    for i, target in enumerate(targets):
        if target.is_classes:
            labels = target.classes[:, None]
            share[i] = class_information(classes, labels)[0] / entropy(labels)
        else:  # here the factor is the number and the code is the class
            values = jittered(target.factor.values, random)
            found = [information_with_classes(values, grouping(code, k), k) for code in classes.T]
            share[i] = squared_correlation(np.nan_to_num(found))  # a code whose values are all distinct has none
    return share


def shares_by_bins(z: Float, targets: list[Target], bins: int | str, k: int, seed: int) -> Float:
    """Shares (K, L) of codes (n, L) cut into bins of equal width."""
    return shares_by_counts(as_classes(binned(z, bins)), targets, k, seed)


def shares_by_neighbours(z: Float, targets: list[Target], k: int, seed: int, *, codes_first: bool = False) -> Float:
    """Shares (K, L) of codes (n, L), from the k nearest neighbours of each row.

    Two reference implementations draw the noise that breaks ties in different orders: all codes of the first factor
    first, of codes that were standardised; or, with `codes_first`, all factors of the first code, after the entropy of
    each code was estimated, which uses up 2n numbers.
    """
    count, random = z.shape[1], np.random.RandomState(seed)
    pairs: Iterable[tuple[int, int]] = np.ndindex(len(targets), count)
    if codes_first:
        random.standard_normal(2 * z.size)
        pairs = ((i, j) for j, i in np.ndindex(count, len(targets)))
    else:
        z = standardised(z)
    groups = [grouping(target.classes, k) if target.is_classes else None for target in targets]
    share = np.empty((len(targets), count))
    for i, j in pairs:
        column, group = jittered(z[:, j], random), groups[i]
        if group is not None:
            share[i, j] = information_with_classes(column, group, k)
        else:
            share[i, j] = information_of_numbers(column, jittered(targets[i].factor.values, random), k)
    for i, target in enumerate(targets):
        share[i] = share[i] / entropy(target.classes[:, None]) if target.is_classes else squared_correlation(share[i])
    return share


def squared_correlation(information: Float) -> Float:
    """Information in nats as a share from 0 to 1: the R2 of Gaussian variables that share as much (Linfoot 1957).

    The entropy of a continuous variable may be 0 or negative, so it cannot serve to divide by. The square is taken
    since estimates of independent variables are small but not 0, and the root of a small number is not small.
    """
    return -np.expm1(-2 * information)
