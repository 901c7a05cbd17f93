"""`Translator`: a fitted map between the spaces of two models, to apply and to save."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import as_float64_like, as_matrix, like, on_sphere
from congruence.errors import InputError, NotInvertibleError
from congruence.maps.groups import Map, read_map, write_map

HALF = 65504  # the largest float16


@dataclass(frozen=True, eq=False, repr=False)
class Translator:
    """Maps rows of the new space, shape (n, d_new), into the old one, shape (n, d_old).

    With `normalize="cosine"` rows are put on the unit sphere before and after. numpy in, numpy out; tensors in,
    tensors out on the same device.
    """

    map: Map
    normalize: str | None
    d_new: int
    d_old: int

    def __call__(self, x: Any) -> Any:
        """Translate rows of the new space into the old one."""
        return self._apply(x, self.map, self.d_new, self.d_old)

    def inverse(self, y: Any) -> Any:
        """Translate rows of the old space into the new one; a map that loses information has no inverse."""
        if self.d_new > self.d_old:
            raise NotInvertibleError(
                f"this map takes {self.d_new} dimensions to {self.d_old}, so it has no inverse; "
                "fit the other direction with old and new exchanged"
            )
        return self._apply(y, self.map.inverse(), self.d_old, self.d_new)

    def _apply(self, x: Any, h: Map, width: int, out: int) -> Any:
        x = as_matrix(x, "x", finite=False)
        if x.shape[1] != width:
            raise InputError(f"x must have {width} columns, as the rows of the fit; got {x.shape[1]}")
        matrix, before = h.matrix[:width, :out], h.source_mean[:width]
        dtype = str(x.dtype).removeprefix("torch.")
        single = dtype == "float32" and 1e-30 < np.abs(matrix).max() < 1e30  # else the map is beyond float32
        # Rows minus the rounded mean are exact enough in float32; the rounding of the mean is added at the end.
        rounded = before.astype(np.float32).astype(np.float64) if single else before
        shift = h.target_mean[:out] - (before - rounded) @ matrix - h.source_mean[width:] @ h.matrix[width:, :out]
        rows = x if single else as_float64_like(x, x)
        parts = (like(part, x) if single else as_float64_like(part, x) for part in (rounded, matrix, shift))
        mean, matrix, shift = parts
        mapped = ((on_sphere(rows) if self.normalize else rows) - mean) @ matrix + shift
        mapped = on_sphere(mapped) if self.normalize else mapped
        if dtype == "float16" and abs(mapped).max() > HALF:
            raise InputError("translated values are too large for float16; convert x to float32")
        return like(mapped, x)

    def save(self, path: str | Path, **about: Any) -> None:
        """Write as safetensors with a JSON header; `congruence.load` reads it on any machine."""
        about = {"normalize": self.normalize, "d_new": self.d_new, "d_old": self.d_old, **about}
        write_map(path, "translator", self.map, about)

    def __repr__(self) -> str:
        sphere = ", on the unit sphere" if self.normalize else ""
        return f"<Translator {self.d_new} -> {self.d_old} dimensions, {self.map.group}{sphere}>"


def load_translator(path: str | Path) -> Translator:
    """Read what `Translator.save` (or ``congruence translate fit --map``) wrote."""
    h, about = read_map(path, "translator")
    if not {"normalize", "d_new", "d_old"} <= set(about):
        raise InputError(f"{path} holds a map that was not written by translate; open it with congruence.load")
    widths = [about["d_new"], about["d_old"]]
    if about["normalize"] not in (None, "cosine") or not all(type(d) is int and 0 < d <= h.width for d in widths):
        raise InputError(f"{path} does not hold a translator: its header is {about}")
    return Translator(h, about["normalize"], *widths)
