"""What is worked out once per run, however many pairs it takes part in."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from congruence.align.similarities.sides import Side
from congruence.arrays import Array, Rows, listing, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.ica.unmix import Unmixing, unmix
from congruence.maps._diameter import Diameter, rows_diameter
from congruence.maps.nearness import Protocol
from congruence.maps.sums import RunSums, run_sums
from congruence.tables.memory import room_for


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """One run with its sums per fold; the dearer parts are worked out when first asked for, and kept."""

    name: str
    rows: Rows
    sums: RunSums
    seed: int
    _unmixings: dict[int | None, Unmixing] = field(default_factory=dict, repr=False)

    @cached_property
    def diameter(self) -> Diameter:
        """The largest distance between two rows; a run whose rows are all equal is refused."""
        found = rows_diameter(self.rows)
        if found.value == 0 or self.dead == self.rows.d:
            raise InputError(f"all rows of {self.name} are equal, so distances to it cannot be put in proportion")
        return found

    @cached_property
    def side(self) -> Side:
        """What the similarities ask of the run, each thing worked out once."""
        return Side(self.sums, self.seed)

    def unmixing(self, fold: int | None) -> Unmixing:
        """The independent components of all rows but those of one fold."""
        if fold not in self._unmixings:
            self._unmixings[fold] = unmix(self.sums.outside(fold), seed=self.seed)
        return self._unmixings[fold]

    @property
    def unmixed_well(self) -> bool:
        """Whether every unmixing that was asked for converged."""
        return all(unmixing.converged for unmixing in self._unmixings.values())

    @property
    def is_noise(self) -> bool:
        """Whether no component of any unmixing that was asked for can be told from Gaussian noise."""
        found = self._unmixings.values()
        return bool(found) and all(unmixing.k > 1 and unmixing.noise.all() for unmixing in found)

    @cached_property
    def components(self) -> PreparedRun:
        """The run in the coordinates of its independent components."""
        ica = self.unmixing(None)
        name = f"components of {self.name}"
        found = room_for((self.rows.n, ica.k), np.float64, name)  # in a file where there are many rows
        for part in row_chunks(self.rows.n, self.rows.d):
            found[part] = to_numpy(self.rows.take(part)) @ ica.unmixing.T
        rows = Rows(found, self.rows.device)
        return PreparedRun(name, rows, run_sums(rows, self.sums.folds), self.seed)

    @cached_property
    def dead(self) -> int:
        """The number of dimensions that never change."""
        deviation = np.sqrt(np.maximum(np.diag(self.sums.outside(None).scatter), 0))
        return int((deviation <= np.sqrt(self.rows.n) * self.rows.rounding).sum())


def prepare(name: str, rows: Rows, plan: Protocol) -> PreparedRun:
    """Sum one run over the folds; with rows on the unit sphere, refuse rows that have no direction."""
    if rows.scale_rows:
        empty = np.flatnonzero(_is_empty(rows))
        if empty.size:
            raise InputError(f"{name} has rows that are all zero and so have no direction (row {listing(empty)})")
    try:
        _ = rows.mean
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return PreparedRun(name, rows, run_sums(rows, plan.folds), plan.seed)


def _is_empty(rows: Rows) -> Array:
    return np.concatenate([(to_numpy(rows.data[p]) == 0).all(1) for p in row_chunks(rows.n, rows.d)])
