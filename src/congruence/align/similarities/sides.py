"""What the measures share: one run with what is worked out once for it, and two runs whose rows are paired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from congruence.arrays import Array, Float, resolve_device, row_chunks, to_numpy
from congruence.rows.engine import Rows
from congruence.rows.sums import Paired, RunSums, Spread, pair_sums, run_sums
from congruence.tables import as_paired

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Side:
    """One run of a pair: its sums, and what a measure has worked out from its rows, kept for the next pair."""

    sums: RunSums
    seed: int = 0
    _kept: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> Rows:
        """The rows of the run."""
        return self.sums.rows

    @property
    def spread(self) -> Spread:
        """The mean and the scatter of all rows."""
        return self.sums.outside(None)

    @property
    def size(self) -> float:
        """The Frobenius norm of the centred rows, the root of the trace of their scatter."""
        return float(np.sqrt(max(np.trace(self.spread.scatter), 0.0)))

    @property
    def varies(self) -> bool:
        """Whether any dimension varies by more than the rounding of its stored numbers."""
        return bool((np.diag(self.spread.scatter) > self.rows.n * self.rows.rounding**2).any())

    def once(self, work: Callable[[Side], T]) -> T:
        """Return `work(self)`, worked out when first asked for."""
        if work not in self._kept:
            self._kept[work] = work(self)
        kept: T = self._kept[work]
        return kept


@dataclass(frozen=True, eq=False)
class Both:
    """Two runs whose rows are paired: the sides and the centred cross product of all rows."""

    source: Side
    target: Side
    sums: Paired

    @property
    def vary(self) -> bool:
        """Whether both runs do."""
        return self.source.varies and self.target.varies


def paired_rows(x: Any, y: Any) -> tuple[Rows, Rows]:
    """Check that x, shape (n, d_x), and y, shape (n, d_y), are matrices with as many rows, and return them as rows."""
    x, y = as_paired(x, y)
    device = resolve_device("auto", x, y)
    return Rows(x, device), Rows(y, device)


def both_of(x: Any, y: Any) -> Both:
    """Sum two matrices with paired rows: one pass over the rows, d x d memory."""
    rows_x, rows_y = paired_rows(x, y)
    everything = [np.arange(rows_x.n)]
    source, target = run_sums(rows_x, everything), run_sums(rows_y, everything)
    return Both(Side(source), Side(target), pair_sums(source, target).outside(None))


def squared_norms(side: Side) -> Float:
    """The squared norm of every centred row, shape (n,): the diagonal of the centred linear kernel."""
    rows, norms = side.rows, np.empty(side.rows.n)
    for part in row_chunks(rows.n, rows.d):
        chunk = rows.take(part)
        norms[part] = to_numpy((chunk * chunk).sum(1))
    return norms


def sampled(n: int, most: int, seed: int) -> Array:
    """All of n rows, or a sample of `most` of them in their order: the same for every run with n rows."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
