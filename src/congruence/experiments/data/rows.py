"""Rows of numbers whose true factors are known, beside images: what models of vectors train on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.experiments.data.images import KINDS


@dataclass(frozen=True, eq=False)
class FactorRows:
    """n rows of p numbers and the true factors that each was made from; row i of `factors` belongs to row i."""

    name: str
    rows: Array  # (n, p) float32
    factors: Array  # (n, k): float64; levels, counted from 0, where a factor has a size
    factor_names: tuple[str, ...]
    kinds: tuple[str, ...]  # as those of `FactorImages`
    sizes: tuple[int | None, ...]  # the number of levels; None for values that are not levels
    note: str = ""
    truth: Any = None  # the model that the rows were drawn from, where there is one

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.dtype != np.float32:
            raise InputError(f"rows must be float32 (n, p), not {self.rows.dtype} of shape {self.rows.shape}")
        if self.factors.shape != (len(self.rows), len(self.factor_names)):
            raise InputError(
                f"factors must have one row per row and one column per name, "
                f"{(len(self.rows), len(self.factor_names))}, but have the shape {self.factors.shape}"
            )
        if not len(self.kinds) == len(self.sizes) == len(self.factor_names):
            raise InputError(
                f"kinds and sizes must have one entry per factor, {len(self.factor_names)}, not {len(self.kinds)} and "
                f"{len(self.sizes)}"
            )
        wrong = [kind for kind in self.kinds if kind.partition(":")[0] not in KINDS]
        if wrong:
            raise InputError(f"kinds must be some of {', '.join(KINDS)}; {wrong[0]!r} is not")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"FactorRows({self.name}: {len(self):,} rows of {self.shape[0]}, {', '.join(self.factor_names)})"

    @property
    def shape(self) -> tuple[int]:
        """The shape of one row: how many numbers it has."""
        return (int(self.rows.shape[1]),)

    @property
    def columns(self) -> dict[str, Array]:
        """The factors by name, each (n,); levels are int64."""
        named = zip(self.factor_names, self.sizes, self.factors.T, strict=True)
        return {name: column if size is None else column.astype(np.int64) for name, size, column in named}

    def take(self, rows: slice | Sequence[int] | Array) -> FactorRows:
        """The same data with these rows only, in this order."""
        index = rows if isinstance(rows, slice) else np.asarray(rows)
        return replace(self, rows=self.rows[index], factors=self.factors[index])
