"""Recover the hidden discrete variables of a mixture: their number, states, P(U), and the latents they affect."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.mixture.canonical import largest_correlation
from congruence.mixture.cells import dependence, keepable, weighed_cells
from congruence.mixture.conditions import HOLDS, UNKNOWN
from congruence.mixture.gmm import GaussianMixture
from congruence.mixture.peaks import find_peaks
from congruence.mixture.structure import MOST_LATENTS, Refusal, Structure, find_structure, no_variables
from congruence.result import Status

HALVES = 6  # random halves of the sample, on which the recovery is repeated
SURE = 0.75  # share of halves that must agree
NEAR = 4.0  # standard deviations: closer peaks may hide others
MISFIT = 6.0  # largest misfit of the Gaussians, in standard deviations
TIED = 0.2  # largest correlation of two latents within a component
FLOOR, CEILING = 1e-6, 6.0  # standard deviations: the range of tolerances
DECADES, CLEAR = 0.5, 1.0  # of tolerances over which a structure must be stable: with one variable, with more
NOISE = 0.5  # standard deviations: larger differences are not estimation error


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """What `recover_hidden_states` found."""

    status: Status  # "holds" (recovered) or "unknown"
    structure: Structure | None  # None where nothing consistent was found
    confidence: float  # from 0 to 1: share of halves of the sample, or of a decade of tolerances, that agree
    components: int  # J, the number of components that were distinguished
    separation: float  # smallest distance between distinct components on a latent, in standard deviations
    reason: str

    @property
    def k(self) -> int | None:
        """The number of hidden variables."""
        return None if self.structure is None else len(self.structure.dims)

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "status": self.status,
            "k": self.k,
            "structure": None if self.structure is None else self.structure.to_dict(),
            "confidence": self.confidence,
            "components": self.components,
            "separation": self.separation,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        if self.structure is None:
            return f"hidden states {self.status}: {self.reason}"
        return f"hidden states {self.status} ({self.structure}), confidence {self.confidence:.2f}: {self.reason}"


def recover_hidden_states(
    source: Any, *, tolerance: float | None = None, rows: int | None = None, seed: int = 0
) -> HiddenStates:
    """Recover (k, d_1, ..., d_k, P(U)) and the neighbourhoods from a mixture or from a sample of latents.

    Parameters
    ----------
    source : GaussianMixture, or (n, m)
        A fitted or known mixture; or rows of latents, which are split into components latent by latent. Latents must be
        independent within components (P2): rotate to the canonical axes first.
    tolerance : float, optional
        For a mixture: components that differ by less on a latent, in standard deviations, are merged there. By default,
        the structure with most variables that is stable over a decade of tolerances (P3 maximises their number), else
        the one that is stable over the widest range.
    rows : int, optional
        The number of rows a mixture was estimated from: smaller differences than its sampling error are ignored.
    seed : int
        Of the random halves of the sample.

    Returns
    -------
    HiddenStates
        With status "unknown", and the reason, where components are not clearly separated, counts fit no structure, or
        halves of the sample disagree. Counting is exponential in the number of latents, at most 12.

    References
    ----------
    Kivva et al. 2022, Theorem 3.10 (c) and condition P3; Kivva et al. 2021.
    """
    if isinstance(source, GaussianMixture):
        _check_width(source.dimension)
        return _from_mixture(source, tolerance, rows)
    if tolerance is not None or rows is not None:
        raise InputError("tolerance and rows are for a mixture; a sample is split at the valleys of its density")
    z = to_numpy(as_matrix(source, "source")).astype(np.float64, copy=False)
    _check_width(z.shape[1])
    return _from_sample(z, seed)


def _check_width(m: int) -> None:
    if m > MOST_LATENTS:
        raise InputError(f"source must have at most {MOST_LATENTS} latents, since all subsets are counted, not {m}")


def _from_sample(z: Float, seed: int) -> HiddenStates:
    found = _cut(z)
    if isinstance(found, _Unclear):
        return HiddenStates(UNKNOWN, None, 0.0, found.components, found.separation, found.reason)
    rng = np.random.default_rng(seed)
    keys: Counter[Any] = Counter()
    for _ in range(HALVES):
        half = _cut(z[rng.permutation(len(z))[: len(z) // 2]])
        keys[None if isinstance(half, _Unclear) else half.structure.key] += 1
    agree = keys[found.structure.key] / HALVES
    count = len(found.structure.states)
    said = f"{keys[found.structure.key]} of {HALVES} random halves of the sample give the same structure"
    return HiddenStates(HOLDS if agree >= SURE else UNKNOWN, found.structure, agree, count, found.separation, said)


@dataclass(frozen=True)
class _Unclear:
    reason: str
    components: int
    separation: float


@dataclass(frozen=True, eq=False)
class _Cut:
    structure: Structure
    separation: float


def _cut(z: Float) -> _Cut | _Unclear:
    """Components of each latent, cells that they make together, and the structure of those cells."""
    peaks = [find_peaks(column) for column in z.T]
    separation = min(peak.separation for peak in peaks)
    counts = math.prod(len(peak.means) for peak in peaks)
    worst = int(np.argmax([peak.misfit for peak in peaks]))
    if counts == 1:
        return _Unclear("no latent shows more than one component", 1, separation)
    if peaks[worst].misfit > MISFIT:
        return _Unclear(f"the peaks of latent {worst} are not Gaussian", counts, separation)
    if separation < NEAR:
        said = f"two components of a latent are {separation:.2g} standard deviations apart, so others may be hidden"
        return _Unclear(said, counts, separation)
    labels, weights = weighed_cells(z, peaks)
    reason = "the weights of the cells decrease evenly, so chance cells cannot be separated from others"
    for kept in keepable(weights):
        found = find_structure(labels[:kept], weights[:kept])
        if isinstance(found, Structure):
            tied = dependence(z, peaks)
            if tied is not None:
                return _Unclear(tied, kept, separation)
            return _Cut(found, separation)
        reason = found.reason
    return _Unclear(reason, len(weights), separation)


def _from_mixture(mixture: GaussianMixture, tolerance: float | None, rows: int | None) -> HiddenStates:
    count = mixture.components
    if count == 1:
        return HiddenStates(HOLDS, no_variables(), 1.0, 1, math.inf, "the mixture has a single component")
    tied = largest_correlation(mixture.covariances)
    if tied > TIED:
        said = f"latents correlate by {tied:.2g} within a component; rotate to the canonical axes of P2 first"
        return HiddenStates(UNKNOWN, None, 0.0, count, math.nan, said)
    unlike = _unlikeness(mixture)  # (m, J, J)
    if tolerance is not None:
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise InputError(f"tolerance must be a number of at least 0, not {tolerance!r}")
        found = find_structure(_labels(unlike, tolerance), mixture.weights)
        apart = unlike[unlike > tolerance]
        separation = float(apart.min()) if apart.size else 0.0
        if isinstance(found, Refusal):
            return HiddenStates(UNKNOWN, None, 0.0, count, separation, found.reason)
        return HiddenStates(HOLDS, found, 1.0, count, separation, f"at a tolerance of {tolerance:g}")
    floor = FLOOR
    if rows is not None:
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
            raise InputError(f"rows must be a whole number of at least 1, not {rows!r}")
        floor = max(FLOOR, 4 * math.sqrt(2 / (rows * float(mixture.weights.min()))))
    return _over_tolerances(mixture, unlike, min(floor, CEILING / 2))


def _over_tolerances(mixture: GaussianMixture, unlike: Float, floor: float) -> HiddenStates:
    """The structure with most variables that is stable over a decade of tolerances, else the most stable one.

    In an estimated mixture no two components are exactly equal, so the smallest tolerances always give one variable
    with J states; P3 requires the structure with most variables.
    """
    limits = np.unique(np.concatenate([[floor], np.clip(unlike[unlike > 0], floor, CEILING), [CEILING]]))
    widths = np.log10(limits[1:] / limits[:-1])
    reason = "components differ by all degrees, so no tolerance separates them"
    found: list[tuple[Structure, float, int]] = []
    for index in np.argsort(-widths, kind="stable")[:20]:
        if widths[index] < DECADES / 2 or limits[index] > max(NOISE, floor):
            continue
        one = find_structure(_labels(unlike, math.sqrt(limits[index] * limits[index + 1])), mixture.weights)
        if isinstance(one, Structure):
            found.append((one, float(widths[index]), int(index)))
        else:
            reason = one.reason
    if not found:
        return HiddenStates(UNKNOWN, None, 0.0, mixture.components, math.nan, reason)
    structure, width, index = max(found, key=lambda f: (f[1] >= CLEAR, len(f[0].dims), f[1]))
    richer = any(len(other.dims) > len(structure.dims) for other, _, _ in found)
    status = HOLDS if width >= DECADES and not richer else UNKNOWN
    apart = float(unlike[unlike >= limits[index + 1]].min(initial=math.inf))
    said = f"stable for tolerances from {limits[index]:.2g} to {limits[index + 1]:.2g} standard deviations"
    said += "; other tolerances give more variables, over a narrower range" if richer else ""
    return HiddenStates(status, structure, min(1.0, width), mixture.components, apart, said)


def _unlikeness(mixture: GaussianMixture) -> Float:
    """Difference of every two components on each latent, (m, J, J): of the means, or of log standard deviations."""
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2).T  # (m, J)
    whole = np.maximum(np.diag(mixture.covariance), np.finfo(float).tiny)[:, None]
    spread = np.sqrt(np.maximum(variances, 1e-12 * whole))
    larger = np.maximum(spread[:, :, None], spread[:, None])
    means = mixture.means.T
    away = np.abs(means[:, :, None] - means[:, None]) / larger
    return np.asarray(np.maximum(away, np.abs(np.log(spread[:, :, None] / spread[:, None]))))


def _labels(unlike: Float, tolerance: float) -> Array:
    """Labels of components merged on each latent, (J, m): those connected by steps within the tolerance."""
    from scipy.sparse.csgraph import connected_components

    return np.column_stack([connected_components(one <= tolerance, directed=False)[1] for one in unlike])
