"""Images and rows whose true factors are known: what models train on and metrics need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, is_tensor
from congruence.checks import check_integer
from congruence.errors import InputError

KINDS = ("categorical", "ordinal", "continuous", "circular")  # the kinds that `congruence.metrics` knows
LARGEST_SEED = 2**63 - 1


class _FactorData:
    """What images and rows have in common: one row of factors for each of them."""

    name: str
    factors: Array
    factor_names: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[int | None, ...]

    def _check_factors(self, n: int) -> None:
        count = len(self.factor_names)
        if self.factors.shape != (n, count):
            raise InputError(f"factors must have shape {(n, count)} (inputs, names); got {self.factors.shape}")
        for name, given in (("kinds", self.kinds), ("sizes", self.sizes)):
            if len(given) != count:
                raise InputError(f"{name} must have one entry for each of the {count} factors; got {len(given)}")
        for kind in self.kinds:
            if kind.partition(":")[0] not in KINDS:
                raise InputError(f"kinds must be among {', '.join(KINDS)}; got {kind!r}")
        for name, size, column in zip(self.factor_names, self.sizes, self.factors.T, strict=True):
            if size is not None and column.size and not (column.min() >= 0 and column.max() < size):
                raise InputError(
                    f"levels of {name} must be from 0 to {size - 1}; got {column.min():g} to {column.max():g}"
                )

    def __len__(self) -> int:
        return len(self.factors)


@dataclass(frozen=True, eq=False)
class FactorImages(_FactorData):
    """n images and the true factors of each; row i of `factors` belongs to image i."""

    name: str
    images: Any  # (n, channels, height, width) uint8, a torch tensor or a numpy array
    factors: Array  # (n, k): int64 levels counted from 0, or float64 values where any factor is continuous
    factor_names: tuple[str, ...]
    kinds: tuple[str, ...]  # one of `KINDS` each; a circular one may carry its period, as in "circular:10"
    sizes: tuple[int | None, ...]  # the number of levels; None for continuous values
    note: str = ""
    ids: Array | None = None  # (n,), such as names of files; by default row numbers

    def __post_init__(self) -> None:
        shape = tuple(self.images.shape)
        if len(shape) != 4:
            raise InputError(f"images must have shape (n, channels, height, width); got {shape}")
        if str(self.images.dtype).removeprefix("torch.") != "uint8":
            raise InputError(f"images must be uint8; got {self.images.dtype}")
        self._check_factors(shape[0])

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"FactorImages({self.name}: {len(self):,} images of {shape}, {', '.join(self.factor_names)})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = map(int, self.images.shape[1:])
        return channels, height, width

    @property
    def columns(self) -> dict[str, Array]:
        """The factors by name, each (n,); `evaluate` takes them together with `kinds`."""
        return {name: self.factors[:, j] for j, name in enumerate(self.factor_names)}

    def take(self, rows: slice | Sequence[int] | Array) -> FactorImages:
        """The same data restricted to these rows, in this order."""
        index = _as_index(rows)
        ids = None if self.ids is None else self.ids[index]
        return replace(self, images=self.images[index], factors=self.factors[index], ids=ids)


@dataclass(frozen=True, eq=False)
class FactorRows(_FactorData):
    """n rows of p numbers and the true factors of each; row i of `factors` belongs to row i."""

    name: str
    rows: Array  # (n, p) float32
    factors: Array  # (n, k) float64; levels are counted from 0
    factor_names: tuple[str, ...]
    kinds: tuple[str, ...]  # as in `FactorImages`
    sizes: tuple[int | None, ...]  # the number of levels; None for continuous values
    note: str = ""
    truth: Any = None  # the model that the rows were drawn from, if there is one

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.dtype != np.float32:
            raise InputError(f"rows must be float32 of shape (n, p); got {self.rows.dtype} of {self.rows.shape}")
        self._check_factors(len(self.rows))

    def __repr__(self) -> str:
        return f"FactorRows({self.name}: {len(self):,} rows of {self.shape[0]}, {', '.join(self.factor_names)})"

    @property
    def shape(self) -> tuple[int]:
        """The shape of one row, (p,)."""
        return (int(self.rows.shape[1]),)

    @property
    def columns(self) -> dict[str, Array]:
        """The factors by name, each (n,); levels are int64."""
        named = zip(self.factor_names, self.sizes, self.factors.T, strict=True)
        return {name: column if size is None else column.astype(np.int64) for name, size, column in named}

    def take(self, rows: slice | Sequence[int] | Array) -> FactorRows:
        """The same data restricted to these rows, in this order."""
        index = _as_index(rows)
        return replace(self, rows=self.rows[index], factors=self.factors[index])


def draw_rows(total: int, n: int | None, seed: int, name: str = "the data set") -> Array:
    """Row numbers of n of `total` images, drawn without replacement; without n all of them, in order."""
    check_integer("seed", seed, 0, LARGEST_SEED)
    if n is None:
        return np.arange(total)
    if check_integer("n", n) > total:
        raise InputError(f"n must be at most {total}, the number of images in {name}; got {n}")
    return np.random.default_rng(seed).permutation(total)[:n]


def _as_index(rows: Any) -> Any:
    return rows if isinstance(rows, slice) or is_tensor(rows) else np.asarray(rows)
