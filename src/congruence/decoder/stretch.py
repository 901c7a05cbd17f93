"""The local bi-Lipschitz constant of a decoder at points.

At a latent z the constant is max(s_max, 1 / s_min) of the singular values of the Jacobian: short lengths are
multiplied by a factor between 1 / Lambda and Lambda. 1 is an isometry. Theorem 1 needs the supremum over the whole
support, of which the largest value at sampled points is a lower estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.checks import check_choice, check_integer, check_seed
from congruence.decoder._spectra import exact_spectra, extreme_values, sampled_stretch
from congruence.decoder.prepared_decoder import import_torch, prepare_decoder
from congruence.progress import Progress

_EXACT_ENTRIES = 2**21  # of one Jacobian; beyond that only its extreme singular values are computed
_LOST = 10.0  # times the effect of rounding a Jacobian on its singular values: smaller ones are 0
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class BiLipschitz:
    """Local bi-Lipschitz constants of a decoder at n points; at least 1, lower is closer to an isometry.

    Only these points are examined, so `constant` is a lower estimate of the supremum that Theorem 1 needs, and
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
        return np.maximum(self.s_max, _ratio(1.0, self.s_min))

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
        """The mean constant over all points, as in Figure 2 of the paper; not a bound."""
        return float(self.constants.mean())

    def quantile(self, q: float) -> float:
        """The q-quantile of the constants over points: an observed value, so infinity is never averaged."""
        return float(np.quantile(self.constants, q, method="inverted_cdf"))

    @property
    def isometry_defect(self) -> float:
        """The largest deviation of a stretch from 1 at any point; 0 is an isometry."""
        return float(max(self.s_max.max() - 1, 1 - self.s_min.min(), 0.0))

    @cached_property
    def conditions(self) -> Float:
        """Condition number s_max / s_min at each point, (n,); 1 is a similarity there."""
        return _ratio(self.s_max, self.s_min)

    @property
    def scale(self) -> float:
        """The factor by which outputs must be divided to minimise `constant`."""
        return float(math.sqrt(self.s_max.max() * self.s_min.min()))

    @property
    def scale_free(self) -> float:
        """The constant after the best rescaling of all latents by one factor: sqrt(max s_max / min s_min)."""
        least = float(self.s_min.min())
        return math.sqrt(float(self.s_max.max()) / least) if least > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """The summary, as in the JSON; per-point values are in `table`."""
        return {
            "n": self.n,
            "dimension": self.dimension,
            "outputs": self.outputs,
            "method": self.method,
            "certified": self.certified,
            "constant": self.constant,
            "mean": self.mean,
            "quantiles": {f"{q:g}": self.quantile(q) for q in _QUANTILES},
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
        ]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def unseen_share(points: int) -> float:
    """The share of the latents that a region must have for a sample of points to hit it with probability 95 %: 3 / n.

    Smaller regions, in which a property may fail, are not excluded by points at which it holds (rule of three).
    """
    return min(1.0, 3 / points)


def bilipschitz(
    decoder: Any,
    z: Any,
    *,
    method: str = "auto",
    directions: int = 10,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
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
        "exact" computes all singular values of whole Jacobians; "lanczos" only the extreme ones, by products with the
        Jacobian, for Jacobians that do not fit into memory; "directions" is the estimator of the paper, the largest and
        smallest stretch of a few random directions. "auto" is exact up to two million entries of a Jacobian, then
        lanczos.
    directions : int
        Number of random directions, for that method.
    chunk : int, optional
        Number of points per batch; by default as many as fit into memory. The result does not depend on it, up to
        rounding.
    device : str
        "auto" keeps the device of the weights (for a function, that of z).
    seed : int
        Seed of the directions, and of the start of lanczos.
    progress : callable, optional
        Called as progress(what, done, total) after every batch of points.

    Returns
    -------
    BiLipschitz
        Constants of at least 1 (an isometry), infinite where the Jacobian loses a direction. They are invariant under
        rotations and shifts of latents or outputs. Not certified: only the points z are examined.

    References
    ----------
    Nelson et al. 2026, Definition A.5 and appendix A.7.1 (the estimator by directions).
    """
    check_choice("method", method, ("auto", "exact", "lanczos", "directions"))
    check_integer("directions", directions)
    check_seed(seed)
    prepared = replace(prepare_decoder(decoder, z, device), progress=progress)
    d, p = prepared.dimension, prepared.outputs
    if method == "auto":
        method = "exact" if d * p <= _EXACT_ENTRIES else "lanczos"
    spectra, notes = None, []
    if method == "exact":
        spectra = exact_spectra(prepared, chunk)
        low, high = spectra[:, -1], spectra[:, 0]
    elif method == "lanczos":
        low, high, converged = extreme_values(prepared, chunk, seed)
        if converged < len(low):
            missed = len(low) - converged
            notes.append(f"Lanczos did not converge at {missed} of {len(low)} points, whose constants may be larger.")
    else:
        low, high = sampled_stretch(prepared, directions, chunk, seed)
        notes.append(f"Only {directions} random directions were sampled; others may be stretched more or less.")
    rounding = _LOST * math.sqrt(d) * import_torch().finfo(prepared.z.dtype).eps * high
    lost = low <= (rounding if p >= d else math.inf)
    if p < d:
        notes.insert(0, f"The decoder has fewer outputs ({p}) than latents ({d}), so it loses directions everywhere.")
    elif lost.any():
        where = f"at {int(lost.sum())} of {len(low)} points"
        notes.insert(0, f"The Jacobian loses a direction {where}, where the constant is infinite.")
    low = np.where(lost, 0.0, low)
    if spectra is not None:
        spectra = np.pad(spectra, ((0, 0), (0, d - spectra.shape[1])))  # directions beyond the outputs are lost
    notes = [*notes, f"Only {len(low)} points were examined, so the largest constant is a lower estimate."]
    return BiLipschitz(low, high, spectra, method, d, p, tuple(notes))


def _ratio(high: Float | float, low: Float) -> Float:
    """High / low, infinite where low is 0."""
    ratio: Float = np.divide(high, low, out=np.full_like(low, np.inf), where=low > 0)
    return ratio
