"""What is worked out once per run, however many pairs it takes part in."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from congruence.align.similarity import nearest
from congruence.arrays import Array, Float, Rows, listing, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps.diameter import Diameter, rows_diameter
from congruence.maps.nearness import Protocol
from congruence.maps.sums import RunSums, run_sums
from congruence.resolve.ica import Unmixing, unmix


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
        if found.value <= self.rows.resolution / np.sqrt(self.rows.n):
            raise InputError(f"all rows of {self.name} are equal, so distances to it cannot be put in proportion")
        return found

    @cached_property
    def neighbours(self) -> Array:
        """The nearest neighbours of each row (of a sample of many)."""
        return nearest(self.rows, seed=self.seed)

    def unmixing(self, fold: int | None) -> Unmixing:
        """The independent components of all rows but those of one fold."""
        if fold not in self._unmixings:
            start = None if fold is None else self.unmixing(None)
            self._unmixings[fold] = unmix(self.sums.outside(fold), seed=self.seed, start=start)
        return self._unmixings[fold]

    @cached_property
    def components(self) -> PreparedRun:
        """The run in the coordinates of its independent components."""
        ica = self.unmixing(None)
        parts = [to_numpy(self.rows.take(p)) @ ica.unmixing.T for p in row_chunks(self.rows.n, self.rows.d)]
        rows = Rows(np.concatenate(parts), self.rows.device)
        return PreparedRun(f"components of {self.name}", rows, run_sums(rows, self.sums.folds), self.seed)

    @cached_property
    def dead(self) -> int:
        """The number of dimensions that never change."""
        deviation = np.sqrt(np.maximum(np.diag(self.sums.outside(None).scatter), 0))
        return int((deviation <= self.rows.resolution / np.sqrt(self.rows.d)).sum())


def prepare(name: str, rows: Rows, plan: Protocol) -> PreparedRun:
    """Sum one run over the folds; with rows on the unit sphere, refuse rows that have no direction."""
    if rows.scale_rows:
        empty = np.flatnonzero(_squared_norms(rows) == 0)
        if empty.size:
            raise InputError(f"{name} has rows that are all zero and so have no direction (row {listing(empty)})")
    try:
        _ = rows.resolution
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return PreparedRun(name, rows, run_sums(rows, plan.folds), plan.seed)


def _squared_norms(rows: Rows) -> Float:
    plain = [to_numpy(rows.data[p]).astype(np.float64) for p in row_chunks(rows.n, rows.d)]
    return np.concatenate([(chunk**2).sum(1) for chunk in plain])
