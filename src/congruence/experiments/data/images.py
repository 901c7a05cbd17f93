"""Images whose true factors are known: what every model trains on and every metric needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, is_tensor, resolve_device
from congruence.errors import InputError, MissingDependencyError

KINDS = ("categorical", "ordinal", "continuous", "circular")  # as `congruence.metrics` calls them


@dataclass(frozen=True, eq=False)
class FactorImages:
    """n images and the true factors that each was made from; row i of `factors` belongs to image i."""

    name: str
    images: Any  # (n, channels, height, width) uint8, a torch tensor or a numpy array
    factors: Array  # (n, k): int64 levels counted from 0, or float64 values where any factor is continuous
    factor_names: tuple[str, ...]
    kinds: tuple[str, ...]  # one of `KINDS` each; a circular one may carry its period, as in "circular:10"
    sizes: tuple[int | None, ...]  # the number of levels; None for values that are not levels
    note: str = ""

    def __post_init__(self) -> None:
        shape = tuple(self.images.shape)
        if len(shape) != 4:
            raise InputError(f"images must have the shape (n, channels, height, width), not {shape}")
        if str(self.images.dtype).removeprefix("torch.") != "uint8":
            raise InputError(f"images must be uint8, from 0 to 255, but their dtype is {self.images.dtype}")
        if self.factors.shape != (shape[0], len(self.factor_names)):
            raise InputError(
                f"factors must have one row per image and one column per name, "
                f"{(shape[0], len(self.factor_names))}, but have the shape {self.factors.shape}"
            )
        for name, given in (("kinds", self.kinds), ("sizes", self.sizes)):
            if len(given) != len(self.factor_names):
                raise InputError(f"{name} must have one entry per factor, {len(self.factor_names)}, not {len(given)}")
        wrong = [kind for kind in self.kinds if kind.partition(":")[0] not in KINDS]
        if wrong:
            raise InputError(f"kinds must be some of {', '.join(KINDS)}; {wrong[0]!r} is not")
        for name, size, column in zip(self.factor_names, self.sizes, self.factors.T, strict=True):
            if size is not None and column.size and not (column.min() >= 0 and column.max() < size):
                raise InputError(f"levels of {name} go from 0 to {size - 1}, but {column.min()} to {column.max()} came")

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"FactorImages({self.name}: {len(self):,} images of {shape}, {', '.join(self.factor_names)})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image: channels, height, width."""
        channels, height, width = map(int, self.images.shape[1:])
        return channels, height, width

    @property
    def columns(self) -> dict[str, Array]:
        """The factors by name, each (n,); with `kinds` this is what `evaluate` takes."""
        return {name: self.factors[:, j] for j, name in enumerate(self.factor_names)}

    def images_at(self, rows: Any) -> Any:
        """Some images as a float32 tensor from 0 to 1, shape (m, channels, height, width), on the device they are on.

        Parameters
        ----------
        rows : slice, sequence of row numbers, or integer tensor on the same device
        """
        torch = import_torch("images_at")
        return torch.as_tensor(self.images[_index(rows)]).float() / 255

    def take(self, rows: slice | Sequence[int] | Array) -> FactorImages:
        """The same data with these rows only, in this order."""
        index = _index(rows)
        return replace(self, images=self.images[index], factors=self.factors[index])


def draw_rows(total: int, n: int | None, seed: int, name: str = "the data set") -> Array:
    """Row numbers of n of `total` images, drawn without replacement; all of them in their own order without n."""
    check_seed(seed)
    if n is None:
        return np.arange(total)
    check_count(n)
    if n > total:
        raise InputError(f"n must be at most {total}, the number of images in {name}, not {n}")
    return np.random.default_rng(seed).permutation(total)[:n]


def check_count(n: int, what: str = "images") -> None:
    """Refuse a number of images that is none."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n must be a number of {what}, 1 or more, not {n!r}")


def check_seed(seed: int) -> None:
    """Refuse a seed that numpy and torch do not both take."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number, 0 or above and below 2**63, not {seed!r}")


def import_torch(what: str) -> Any:
    """Return torch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(f"{what} needs torch: pip install 'congruence[torch]'") from error
    return torch


def drawing_device(device: str) -> str:
    """Turn "auto" into a GPU where torch sees one, and refuse what cannot be had."""
    if device == "auto":
        return "cuda" if import_torch("drawing images").cuda.is_available() else "cpu"
    return resolve_device(device)


def _index(rows: Any) -> Any:
    if isinstance(rows, slice) or is_tensor(rows):
        return rows
    return np.asarray(rows)
