"""How much a decoder stretches and shrinks lengths: its local bi-Lipschitz constant at given points.

At a latent z the constant is max(s_max, 1 / s_min) of the singular values of the Jacobian: short lengths are
multiplied by something between 1 / Lambda and Lambda. 1 is an isometry. Theorem 1 needs the supremum over the whole
support, of which the largest value at sampled points is a lower estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.decoder.probed import probe
from congruence.decoder.spectra import exact_spectra, extreme_values, seen_stretch
from congruence.errors import InputError

METHODS = ("auto", "exact", "lanczos", "directions")
EXACT_ENTRIES = 2**21  # of one Jacobian; past it only its extreme singular values are sought
LOST = 10.0  # times what rounding the entries of a Jacobian can do to its singular values; below it nothing is left
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class BiLipschitz:
    """Local bi-Lipschitz constants of a decoder at n points; at least 1, lower is nearer to an isometry.

    Only the given points were examined, so `constant` is a lower estimate of the supremum that Theorem 1 needs, and
    never `certified`.
    """

    s_min: Float  # (n,) least stretch at each point; 0 where a direction is lost
    s_max: Float  # (n,) largest stretch
    spectra: Float | None = field(repr=False)  # (n, d) all singular values, from the largest down, where exact
    method: str  # "exact", "lanczos" or "directions"
    dimension: int  # latents
    outputs: int
    notes: tuple[str, ...] = ()
    certified: bool = False

    def __repr__(self) -> str:
        return f"<BiLipschitz {self.constant:.4g} at {self.n} points ({self.method}), {self.dimension} latents>"

    @cached_property
    def constants(self) -> Float:
        """max(s_max, 1 / s_min) at each point, (n,); infinite where a direction is lost."""
        return _constants(self.s_min, self.s_max)

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.s_min)

    @property
    def constant(self) -> float:
        """The largest constant over all points: a lower estimate of Lambda."""
        return float(self.constants.max())

    @property
    def mean(self) -> float:
        """The mean constant over all points, which the paper's Figure 2 plots; it bounds nothing."""
        return float(self.constants.mean())

    def quantile(self, q: float) -> float:
        """The q-quantile of the constants over points: an observed value, so that infinity is never averaged."""
        return float(np.quantile(self.constants, q, method="inverted_cdf"))

    @property
    def isometry_defect(self) -> float:
        """How far any stretch is from 1, at any point; 0 is an isometry."""
        return float(max(self.s_max.max() - 1, 1 - self.s_min.min(), 0.0))

    @cached_property
    def conditions(self) -> Float:
        """Condition number s_max / s_min at each point, (n,); 1 is a similarity there."""
        return _ratio(self.s_max, self.s_min)

    @property
    def scale(self) -> float:
        """The factor of the latents' lengths that would make `constant` least: outputs are to be divided by it."""
        return float(math.sqrt(self.s_max.max() * self.s_min.min()))

    @property
    def scale_free(self) -> float:
        """The constant after the best rescaling of all latents by one factor: sqrt(max s_max / min s_min)."""
        least = float(self.s_min.min())
        return math.sqrt(float(self.s_max.max()) / least) if least > 0 else math.inf

    @cached_property
    def scale_free_constants(self) -> Float:
        """The constants after that rescaling, (n,)."""
        if self.scale == 0:
            return np.full(self.n, np.inf)
        return _constants(self.s_min / self.scale, self.s_max / self.scale)

    def to_dict(self) -> dict[str, Any]:
        """The summary, as in the JSON contract; per-point values are in `table`."""
        return {
            "n": self.n,
            "dimension": self.dimension,
            "outputs": self.outputs,
            "method": self.method,
            "certified": self.certified,
            "constant": self.constant,
            "mean": self.mean,
            "quantiles": {f"{q:g}": self.quantile(q) for q in QUANTILES},
            "s_min": float(self.s_min.min()),
            "s_max": float(self.s_max.max()),
            "isometry_defect": self.isometry_defect,
            "condition": float(self.conditions.max()),
            "scale": self.scale,
            "scale_free": self.scale_free,
        }

    def table(self) -> list[dict[str, Any]]:
        """One row for each point, in the order of the latents."""
        columns = {"constant": self.constants, "s_min": self.s_min, "s_max": self.s_max, "condition": self.conditions}
        return [{"row": i} | {name: float(values[i]) for name, values in columns.items()} for i in range(self.n)]

    def __str__(self) -> str:
        lines = [
            f"bi-Lipschitz constant at {self.n} points, {self.dimension} latents -> {self.outputs} outputs "
            f"({self.method})",
            f"  largest {self.constant:.6g} (a lower estimate), mean {self.mean:.6g}, median {self.quantile(0.5):.6g}, "
            f"95 % below {self.quantile(0.95):.6g}",
            f"  stretch from {self.s_min.min():.6g} to {self.s_max.max():.6g}; after the best global scale "
            f"{self.scale_free:.6g}",
            *(f"  {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def bilipschitz(
    decoder: Any,
    z: Any,
    *,
    method: str = "auto",
    directions: int = 10,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> BiLipschitz:
    """Measure the local bi-Lipschitz constant of a decoder at latents z.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...) of any shape: images, tokens, tables. A module must be in
        evaluation mode. It is not changed.
    z : (n, d) or (n, ...)
        Latents, numpy or torch; cast to the dtype of the decoder's weights.
    method : {"auto", "exact", "lanczos", "directions"}
        "exact" takes the singular values of whole Jacobians; "lanczos" only the extreme ones, by products with the
        Jacobian, for Jacobians too large to hold; "directions" is the paper's estimator, the most and the least that
        a few random directions are stretched. "auto" is exact up to two million entries of a Jacobian, then lanczos.
    directions : int
        How many random directions, for that method.
    chunk : int, optional
        Points at a time; chosen by memory unless given. It does not change the result beyond rounding.
    device : str
        "auto" stays where the weights are (for a function, where z is).
    seed : int
        Of the directions, and of the start of lanczos.

    Returns
    -------
    BiLipschitz
        Constants from 1 (an isometry) up, infinite where the Jacobian loses a direction. They do not change when
        latents or outputs are rotated or shifted. Not certified: only the given points were examined.

    References
    ----------
    Nelson et al. 2026, Definition A.5 and appendix A.7.1 (the estimator by directions).
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    for name, value, least in (("directions", directions, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    probed = probe(decoder, z, device)
    d, p = probed.dimension, probed.outputs
    if method == "auto":
        method = "exact" if d * p <= EXACT_ENTRIES else "lanczos"
    spectra, notes = None, []
    if method == "exact":
        spectra = exact_spectra(probed, chunk)
        low, high = spectra[:, -1], spectra[:, 0]
    elif method == "lanczos":
        low, high, rested = extreme_values(probed, chunk, seed)
        if rested < len(low):
            notes.append(
                f"Lanczos did not converge at {len(low) - rested} of {len(low)} points, whose constants may be larger."
            )
    else:
        low, high = seen_stretch(probed, directions, chunk, seed)
        notes.append(f"Only {directions} random directions were sampled; others may be stretched more or less.")
    low, lost = _lost_directions(low, high, probed)
    if spectra is not None:
        spectra = np.pad(spectra, ((0, 0), (0, d - spectra.shape[1])))  # directions beyond the outputs are lost
    notes = [*lost, *notes, f"Only {len(low)} points were examined, so the largest constant is a lower estimate."]
    return BiLipschitz(low, high, spectra, method, d, p, tuple(notes))


def _lost_directions(low: Float, high: Float, probed: Any) -> tuple[Float, list[str]]:
    """Set the least stretch to 0 where it is only rounding, with a note."""
    import torch

    d, p = probed.dimension, probed.outputs
    if p < d:
        reason = f"The decoder has fewer outputs ({p}) than latents ({d}), so it loses directions everywhere."
        return np.zeros_like(low), [reason]
    lost = low <= LOST * math.sqrt(d) * torch.finfo(probed.z.dtype).eps * high
    if not lost.any():
        return low, []
    reason = (
        f"The Jacobian loses a direction at {int(lost.sum())} of {len(low)} points, where the constant is infinite."
    )
    return np.where(lost, 0.0, low), [reason]


def _constants(low: Float, high: Float) -> Float:
    inverse: Float = np.divide(1.0, low, out=np.full_like(low, np.inf), where=low > 0)
    return np.maximum(high, inverse)


def _ratio(high: Float, low: Float) -> Float:
    ratio: Float = np.divide(high, low, out=np.full_like(low, np.inf), where=low > 0)
    return ratio
