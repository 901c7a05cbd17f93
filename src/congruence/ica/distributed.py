"""The passes of ICA over rows that are a dask array: each block where it is, and only averages travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from congruence.arrays import Array, Float, to_numpy
from congruence.ica.contrasts import Contrast
from congruence.ica.passes import Averages, Passes, Shape, few_of, precision_for
from congruence.tables.blocks import DaskRows, Partition, merged, persist


class DaskPasses:
    """The same passes as `passes.Passes`, each block on the worker that holds it."""

    rounds = False

    def __init__(
        self,
        rows: DaskRows,
        mean: Float,
        whitening: Float,
        contrast: Contrast,
        *,
        index: Array | None = None,
        precision: str = "auto",
    ):
        self.mean, self.whitening, self.contrast = mean, whitening, contrast
        self.n = len(rows) if index is None else len(index)
        self.k, self.d = whitening.shape
        self.count = 0
        precision = precision if precision != "auto" else precision_for(self.n, self.k)
        self._passes = rows.each(_open, mean, whitening, contrast, precision, index=index)
        if rows.kept:
            self._passes = persist(self._passes)

    @property
    def few(self) -> int | None:
        """How many rows to begin with, where a rough answer on a few rows saves passes over many."""
        return few_of(self.n, self.k)

    def lift(self, matrix: Float) -> Float:
        """A matrix as the kind of array in which averages come: as it is."""
        return matrix

    def averages(self, rotation: Float, *, rough: bool = False) -> Averages:
        """The averages at the components s = z @ rotation.T of the whitened rows z; never rough."""
        self.count += 1
        found: Averages = self._pooled(_averages, rotation)
        return found

    def shape(self, rotation: Float) -> Shape:
        """How the components at this rotation are distributed."""
        found: Shape = self._pooled(_shape, rotation)
        return found

    def _pooled(self, work: Callable[..., _Share], rotation: Float) -> Any:
        import dask

        sent = dask.delayed(rotation, traverse=False)
        return merged([dask.delayed(work)(passes, sent) for passes in self._passes], _pool).of


@dataclass(frozen=True, eq=False)
class _Share:
    """Averages over some of the rows, and over how many."""

    n: int
    of: Averages | Shape


def _open(rows: Any, part: Partition, mean: Float, whitening: Float, contrast: Contrast, precision: str) -> Passes:
    return Passes(to_numpy(rows), mean, whitening, contrast, index=part.index, precision=precision)


def _averages(passes: Passes, rotation: Float) -> _Share:
    return _Share(passes.n, passes.averages(rotation))


def _shape(passes: Passes, rotation: Float) -> _Share:
    return _Share(passes.n, passes.shape(rotation))


def _pool(shares: list[_Share]) -> _Share:
    n, kind = sum(share.n for share in shares), type(shares[0].of)
    names = [field.name for field in fields(kind)]
    return _Share(n, kind(*(sum(share.n / n * getattr(share.of, name) for share in shares) for name in names)))
