"""`Translator`: a fitted map between the spaces of two models, to apply and to save."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_float64_like, as_matrix, is_dask, is_tensor, like, on_sphere, to_numpy
from congruence.errors import InputError, NotInvertibleError
from congruence.maps.groups import Map, read_map, write_map
from congruence.rows.blocks import whole_rows
from congruence.tables.names import match_columns
from congruence.tables.table import is_frame
from congruence.translation._far import FitRegion

HALF = 65504  # the largest float16
_REGION = ("centre", "mean", "factor", "limits")
_HEADER = ("normalize", "d_new", "d_old", "columns_new", "columns_old")


@dataclass(frozen=True, eq=False, repr=False)
class Translator:
    """Maps rows of the new space, shape (n, d_new), into the old one, shape (n, d_old).

    With `normalize="cosine"` rows are put on the unit sphere before and after. numpy in, numpy out; tensors in,
    tensors out on the same device; of a dask array, a lazy one. The columns of a data frame are matched by name with
    those of the fit.
    """

    map: Map
    normalize: str | None
    d_new: int
    d_old: int
    region: FitRegion | None = None  # where the rows of the fit are; None in files of version 0.1.0
    columns_new: tuple[str, ...] | None = None  # the names of the columns of the fit, where they had names
    columns_old: tuple[str, ...] | None = None
    _prepared: dict[Any, tuple[bool, Any, Any, Any]] = field(default_factory=dict, init=False)

    def __call__(self, x: Any) -> Any:
        """Translate rows of the new space into the old one."""
        return self._apply(x, False)

    def inverse(self, y: Any) -> Any:
        """Translate rows of the old space into the new one; a map that loses information has no inverse."""
        if self.d_new > self.d_old:
            raise NotInvertibleError(
                f"this map takes {self.d_new} dimensions to {self.d_old}, so it has no inverse; "
                "fit the other direction with old and new exchanged"
            )
        return self._apply(y, True)

    def far(self, x: Any) -> Any:
        """Which rows of the new space are far from those of the fit, boolean, shape (n,).

        The translation of such rows was not tested. A row is far if its direction (from the centre of the rows of the
        fit) or its size is beyond a limit that was set on held-out rows: at most about 0.1 % of the rows of the same
        population are flagged. Rows with NaN or infinity are far.
        """
        if self.region is None:
            raise InputError(
                "this translator does not know the rows of its fit (it was saved by version 0.1.0, or fitted without "
                "pairs or on fewer than 50 rows), so far rows cannot be flagged; fit it again"
            )
        x = self._check(x, False)
        if is_dask(x):
            return whole_rows(x, "x").map_blocks(self.far, dtype=bool, drop_axis=1, meta=np.empty(0, bool))
        rows = as_float64_like(x, x)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are far
            return ~(self.region.exceedance(on_sphere(rows) if self.normalize else rows) <= 1)

    def linear(self, *, inverse: bool = False, single: bool = False) -> tuple[Array, Array, Array]:
        """The arrays (mean, matrix, shift) of x -> (x - mean) @ matrix + shift, between both normalisations.

        With `single`, the mean is rounded to float32 and its rounding error is in the shift, so that the difference
        is accurate in float32.
        """
        h = self.map.inverse() if inverse else self.map
        width, out = (self.d_old, self.d_new) if inverse else (self.d_new, self.d_old)
        matrix, before = h.matrix[:width, :out], h.source_mean[:width]
        mean = before.astype(np.float32).astype(np.float64) if single else before
        shift = h.target_mean[:out] - (before - mean) @ matrix - h.source_mean[width:] @ h.matrix[width:, :out]
        return mean, matrix, shift

    def columns(self, *, inverse: bool = False) -> tuple[str, ...] | None:
        """The names of the columns that are translated, in their order; None where the fit had arrays."""
        return self.columns_old if inverse else self.columns_new

    def _check(self, x: Any, inverse: bool) -> Any:
        width, names = self.d_old if inverse else self.d_new, tuple(map(str, x.columns)) if is_frame(x) else None
        x = as_matrix(x, "x", finite=False)
        if x.shape[1] != width:
            raise InputError(f"x must have {width} columns, as the rows of the fit; got {x.shape[1]}")
        order = match_columns(names, self.columns(inverse=inverse), "x")
        return x if order is None else x[:, order]

    def _apply(self, x: Any, inverse: bool) -> Any:
        out, x = self.d_new if inverse else self.d_old, self._check(x, inverse)
        if is_dask(x):
            rows, dtype = whole_rows(x, "x"), x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.float64)
            work = self.inverse if inverse else self
            return rows.map_blocks(work, dtype=dtype, chunks=(rows.chunks[0], (out,)), meta=np.empty((0, 0), dtype))
        dtype = str(x.dtype).removeprefix("torch.")
        single, mean, matrix, shift = self._arrays(x, inverse, dtype == "float32")
        rows = x if single else as_float64_like(x, x)
        mapped = ((on_sphere(rows) if self.normalize else rows) - mean) @ matrix + shift
        mapped = on_sphere(mapped) if self.normalize else mapped
        if dtype == "float16" and abs(mapped).max() > HALF:
            raise InputError("translated values are too large for float16; convert x to float32")
        return like(mapped, x)

    def _arrays(self, x: Any, inverse: bool, single: bool) -> tuple[bool, Any, Any, Any]:
        """Whether to compute in float32, and the arrays of `linear` in the library and on the device of x.

        They are made once: a conversion takes longer than a query.
        """
        key = (inverse, single, str(x.device) if is_tensor(x) else None)
        if key not in self._prepared:
            parts = self.linear(inverse=inverse, single=single)
            if single and not fits_float32(parts[1]):
                single, parts = False, self.linear(inverse=inverse)
            mean, matrix, shift = (like(part, x) if single else as_float64_like(part, x) for part in parts)
            self._prepared[key] = (single, mean, matrix, shift)
        return self._prepared[key]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": {}}  # workers make their own

    def save(self, path: str | Path, **about: Any) -> None:
        """Write as safetensors with a JSON header; `congruence.load` reads it on any machine."""
        about = {name: getattr(self, name) for name in _HEADER} | about
        region = {} if self.region is None else {f"region.{name}": getattr(self.region, name) for name in _REGION}
        write_map(path, "translator", self.map, about, region)

    def __repr__(self) -> str:
        sphere = ", on the unit sphere" if self.normalize else ""
        return f"<Translator {self.d_new} -> {self.d_old} dimensions, {self.map.group}{sphere}>"


def fits_float32(matrix: Array) -> bool:
    """Whether float32 can hold a map with this matrix."""
    return bool(1e-30 < np.abs(matrix).max() < 1e30)


def load_translator(path: str | Path) -> Translator:
    """Read what `Translator.save` (or ``congruence translate fit --map``) wrote."""
    h, about, further = read_map(path, "translator", tuple(f"region.{name}" for name in _REGION))
    if not {"normalize", "d_new", "d_old"} <= set(about):
        raise InputError(f"{path} holds a map that was not written by translate; open it with congruence.load")
    d_new, d_old = widths = about["d_new"], about["d_old"]
    if about["normalize"] not in (None, "cosine") or not all(type(d) is int and 0 < d <= h.width for d in widths):
        raise InputError(f"{path} does not hold a translator: its header is {about}")
    names = [_names(path, about.get(key), d) for key, d in (("columns_new", d_new), ("columns_old", d_old))]
    return Translator(h, about["normalize"], d_new, d_old, _region(path, further, d_new), *names)


def _names(path: str | Path, names: Any, d: int) -> tuple[str, ...] | None:
    """The names of d columns as a file of `Translator.save` holds them; those of version 0.1.0 hold none."""
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != d or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path} does not hold a translator: it must name {d} columns, or none")
    return tuple(names)


def _region(path: str | Path, arrays: dict[str, Array], d: int) -> FitRegion | None:
    if not arrays:
        return None
    region = FitRegion(**{name.removeprefix("region."): to_numpy(array) for name, array in arrays.items()})
    shapes = [getattr(region, name).shape for name in _REGION]
    finite = all(np.isfinite(array).all() for array in arrays.values())
    if shapes != [(d,), (d,), (d, d), (2,)] or not finite or not (region.limits > 0).all():
        raise InputError(f"{path} does not hold a translator: its region of far rows has shapes {shapes}")
    return region
