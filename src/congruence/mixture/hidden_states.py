"""Recover the hidden discrete variables of a mixture: their number, states, P(U), and the latents they affect.

Components are labelled on each latent. On a set S of latents there are k(S) different rows of labels, which under P3 is
the product of the numbers of states of the hidden variables that affect S. Moebius inversion over subsets yields, for
each set T of latents, the number of states of the one hidden variable that affects exactly T, its neighbourhood.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.checks import check_integer, check_number
from congruence.errors import InputError
from congruence.mixture._cells import cell_counts, explain_dependence, find_peaks, weigh_cells
from congruence.mixture.conditions import largest_correlation
from congruence.mixture.priors import GaussianMixture
from congruence.result import Record, Status

MOST_LATENTS = 12  # components are counted over all subsets
_INTEGER = 1e-6  # relative error of a number of states that is an integer
_HALVES = 6  # random halves of the sample, on which the recovery is repeated
_AGREEMENT = 0.75  # share of halves that must agree
_SEPARATION = 4.0  # standard deviations: closer peaks may hide others
_MISFIT = 6.0  # largest misfit of the Gaussians, in standard deviations
_CORRELATION = 0.2  # largest correlation of two latents within a component
_FLOOR, _CEILING = 1e-6, 6.0  # range of tolerances, in standard deviations
_DECADES, _CLEAR = 0.5, 1.0  # of tolerances over which a structure must be stable: with one variable, with more
_NOISE = 0.5  # standard deviations: larger differences are not estimation error


@dataclass(frozen=True, eq=False)
class Structure(Record):
    """Hidden discrete variables U_1, ..., U_k behind the components of a mixture.

    Variables are ordered by their neighbourhoods; names of states are arbitrary.
    """

    neighbourhoods: tuple[tuple[int, ...], ...]  # latents that depend on each variable
    dims: tuple[int, ...]  # numbers of states d_1, ..., d_k
    states: Array  # (J, k): of each variable in each component
    probabilities: Float  # of shape `dims`: P(U)

    @property
    def key(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Each neighbourhood with its number of states, independent of the names of states."""
        return tuple(zip(self.neighbourhoods, self.dims, strict=True))

    def __str__(self) -> str:
        return "; ".join(f"{d} states on latents {list(n)}" for n, d in self.key) or "one state"


_MERGED = "two components have the same labels on all latents"
_NO_VARIABLES = Structure((), (), np.zeros((1, 0), dtype=int), np.ones(()))  # behind a single component


@dataclass(frozen=True, eq=False)
class HiddenStates(Record):
    """The result of `recover_hidden_states`."""

    status: Status  # "holds" (recovered), "fails" (the counts exclude P3) or "unknown"
    structure: Structure | None  # None if no structure is consistent
    confidence: float  # from 0 to 1: share of halves of the sample, or of a decade of tolerances, that agree
    components: int  # J, the number of components that were distinguished
    separation: float  # smallest distance between distinct components on a latent, in standard deviations
    reason: str

    NAMES = ("status", "k", "structure", "confidence", "components", "separation", "reason")

    @property
    def k(self) -> int | None:
        """The number of hidden variables."""
        return None if self.structure is None else len(self.structure.dims)

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
        Number of rows a mixture was estimated from: differences below its sampling error are ignored.
    seed : int
        Seed of the random halves of the sample.

    Returns
    -------
    HiddenStates
        With status "fails" where the counts of a mixture, stable over a decade of tolerances, exclude every structure
        that P3 allows; with status "unknown", and the reason, where components are not clearly separated, counts of a
        sample fit no structure, or halves of the sample disagree. Counting is exponential in the number of latents, at
        most 12.

    References
    ----------
    Kivva et al. 2022, Theorem 3.10 (c) and condition P3; Kivva et al. 2021.
    """
    known = isinstance(source, GaussianMixture)
    if not known and (tolerance is not None or rows is not None):
        raise InputError("tolerance and rows apply to a mixture; a sample is split at the valleys of its density")
    z = None if known else to_numpy(as_matrix(source, "source")).astype(np.float64, copy=False)
    m = source.dimension if z is None else z.shape[1]
    if m > MOST_LATENTS:
        raise InputError(f"source must have at most {MOST_LATENTS} latents, since all subsets are counted; got {m}")
    return _from_mixture(source, tolerance, rows) if z is None else _from_sample(z, seed)


def _from_sample(z: Float, seed: int) -> HiddenStates:
    whole = _split_sample(z)
    if whole.structure is None:
        return whole
    rng = np.random.default_rng(seed)
    halves = [_split_sample(z[rng.permutation(len(z))[: len(z) // 2]]).structure for _ in range(_HALVES)]
    agreeing = Counter(None if half is None else half.key for half in halves)[whole.structure.key]
    return replace(
        whole,
        status="holds" if agreeing / _HALVES >= _AGREEMENT else "unknown",
        confidence=agreeing / _HALVES,
        reason=f"{agreeing} of {_HALVES} random halves of the sample have the same structure",
    )


def _split_sample(z: Float) -> HiddenStates:
    """The components of each latent, the cells that they form together, and the structure of those cells."""
    peaks = [find_peaks(column) for column in z.T]
    separation = min(peak.separation for peak in peaks)
    counts = math.prod(len(peak.means) for peak in peaks)
    worst = int(np.argmax([peak.misfit for peak in peaks]))

    def unknown(reason: str, components: int) -> HiddenStates:
        return HiddenStates("unknown", None, 0.0, components, separation, reason)

    if counts == 1:
        return unknown("no latent shows more than one component", 1)
    if peaks[worst].misfit > _MISFIT:
        return unknown(f"the peaks of latent {worst} are not Gaussian", counts)
    if separation < _SEPARATION:
        reason = f"two components of a latent are {separation:.2g} standard deviations apart, so others may be hidden"
        return unknown(reason, counts)
    labels, weights = weigh_cells(z, peaks)
    reason = "the weights of the cells decrease evenly, so chance cells cannot be separated from others"
    for count in cell_counts(weights):
        structure = find_structure(labels[:count], weights[:count])
        if isinstance(structure, Structure):
            dependence = explain_dependence(z, peaks)
            if dependence is not None:
                return unknown(dependence, count)
            return HiddenStates("unknown", structure, 0.0, count, separation, "")
        reason = structure
    return unknown(reason, len(weights))


def _from_mixture(mixture: GaussianMixture, tolerance: float | None, rows: int | None) -> HiddenStates:
    count = mixture.components
    if count == 1:
        return HiddenStates("holds", _NO_VARIABLES, 1.0, 1, math.inf, "the mixture has a single component")
    correlation = largest_correlation(mixture.covariances)
    if correlation > _CORRELATION:
        reason = f"latents correlate by {correlation:.2g} within a component; rotate to the canonical axes of P2 first"
        return HiddenStates("unknown", None, 0.0, count, math.nan, reason)
    differences = _differences(mixture)  # (m, J, J)
    if tolerance is not None:
        check_number("tolerance", tolerance, 0)
        structure = find_structure(_labels(differences, tolerance), mixture.weights)
        apart = differences[differences > tolerance]
        separation = float(apart.min()) if apart.size else 0.0
        if isinstance(structure, str):
            excluded: Status = "unknown" if structure == _MERGED else "fails"
            return HiddenStates(excluded, None, 0.0, count, separation, structure)
        return HiddenStates("holds", structure, 1.0, count, separation, f"at a tolerance of {tolerance:g}")
    floor = _FLOOR
    if rows is not None:
        floor = max(_FLOOR, 4 * math.sqrt(2 / (check_integer("rows", rows) * float(mixture.weights.min()))))
    return _over_tolerances(mixture, differences, min(floor, _CEILING / 2))


def _over_tolerances(mixture: GaussianMixture, differences: Float, floor: float) -> HiddenStates:
    """The structure with most variables that is stable over a decade of tolerances, else the most stable one.

    In an estimated mixture no two components are exactly equal, so the smallest tolerances always yield one variable
    with J states; P3 requires the structure with most variables.
    """
    limits = np.unique(np.concatenate([[floor], np.clip(differences[differences > 0], floor, _CEILING), [_CEILING]]))
    widths = np.log10(limits[1:] / limits[:-1])
    reason = "the differences of components vary continuously, so no tolerance separates them"
    candidates: list[tuple[Structure, float, int]] = []
    excluded = None
    for index in np.argsort(-widths, kind="stable")[:20]:
        if widths[index] < _DECADES / 2 or limits[index] > max(_NOISE, floor):
            continue
        outcome = find_structure(_labels(differences, math.sqrt(limits[index] * limits[index + 1])), mixture.weights)
        if isinstance(outcome, Structure):
            candidates.append((outcome, float(widths[index]), int(index)))
        else:
            reason = outcome
            # Under P3 counts are products of numbers of states, so counts that fit no structure exclude it.
            if excluded is None and widths[index] >= _CLEAR and outcome != _MERGED:
                excluded = outcome
    if not candidates:
        why: Status = "unknown" if excluded is None else "fails"
        return HiddenStates(why, None, 0.0, mixture.components, math.nan, excluded or reason)
    structure, width, index = max(candidates, key=lambda c: (c[1] >= _CLEAR, len(c[0].dims), c[1]))
    richer = any(len(other.dims) > len(structure.dims) for other, _, _ in candidates)
    status: Status = "holds" if width >= _DECADES and not richer else "unknown"
    separation = float(differences[differences >= limits[index + 1]].min(initial=math.inf))
    reason = f"stable for tolerances from {limits[index]:.2g} to {limits[index + 1]:.2g} standard deviations"
    reason += "; other tolerances yield more variables, over a narrower range" if richer else ""
    return HiddenStates(status, structure, min(1.0, width), mixture.components, separation, reason)


def _differences(mixture: GaussianMixture) -> Float:
    """Difference of every two components on each latent, (m, J, J): of the means, or of log standard deviations."""
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2).T  # (m, J)
    whole = np.maximum(np.diag(mixture.covariance), np.finfo(float).tiny)[:, None]
    spread = np.sqrt(np.maximum(variances, 1e-12 * whole))
    means = mixture.means.T
    away = np.abs(means[:, :, None] - means[:, None]) / np.maximum(spread[:, :, None], spread[:, None])
    return np.asarray(np.maximum(away, np.abs(np.log(spread[:, :, None] / spread[:, None]))))


def _labels(differences: Float, tolerance: float) -> Array:
    """Labels of components merged on each latent, (J, m): those connected by steps within the tolerance."""
    from scipy.sparse.csgraph import connected_components

    return np.column_stack([connected_components(one <= tolerance, directed=False)[1] for one in differences])


def find_structure(labels: Array, weights: Float) -> Structure | str:
    """The hidden variables behind components with these labels, (J, m), and weights, (J,); or why there are none.

    References
    ----------
    Kivva et al. 2021 and 2022 (P3, Theorem 3.10 c). The inversion over subsets was derived in this package:
    w(T) = sum over S <= T of (-1)^(|T| - |S|) (log k(all) - log k(all but S)) = log d of the variable with
    neighbourhood T.
    """
    count = len(labels)
    if count == 1:
        return _NO_VARIABLES
    if len(np.unique(labels, axis=0)) < count:
        return _MERGED
    sizes = _count_states(labels)
    if isinstance(sizes, str):
        return sizes
    neighbourhoods = sorted(sizes)
    nested = [(a, b) for a in neighbourhoods for b in neighbourhoods if a != b and {*a} <= {*b}]
    if nested:
        return f"the neighbourhood {nested[0][0]} lies within {nested[0][1]}, which P3 (c) excludes"
    dims = tuple(sizes[n] for n in neighbourhoods)
    if math.prod(dims) != count:
        return f"there are {count} components, but {len(dims)} variables have {math.prod(dims)} joint states"
    return _assign_states(labels, weights, neighbourhoods, dims)


def _count_states(labels: Array) -> dict[tuple[int, ...], int] | str:
    """The number of states of the variable of each neighbourhood that has one."""
    m = labels.shape[1]
    subsets = [chosen for size in range(1, m + 1) for chosen in combinations(range(m), size)]
    counted = {chosen: len(np.unique(labels[:, chosen], axis=0)) for chosen in subsets}
    places = {chosen: tuple(int(t in chosen) for t in range(m)) for chosen in subsets}
    logs = np.zeros((2,) * m)  # of k(S), an axis of 0 and 1 for each latent
    for chosen, count in counted.items():
        logs[places[chosen]] = math.log(count)
    gains = logs[(1,) * m] - np.flip(logs)  # log k(all) - log k(all but S)
    for t in range(m):  # Moebius inversion, one latent at a time
        low, high = np.take(gains, 0, t), np.take(gains, 1, t)
        gains = np.stack([low, high - low], axis=t)
    sizes = {}
    for chosen in subsets:
        states = math.exp(gains[places[chosen]])
        if abs(states - round(states)) > _INTEGER * states or round(states) < 1:
            return f"counting yields {states:.3g} states for the variable on latents {chosen}"
        if round(states) > 1:
            sizes[chosen] = round(states)
    for chosen, count in counted.items():
        expected = math.prod(d for n, d in sizes.items() if {*n} & {*chosen})
        if expected != count:
            return f"latents {chosen} show {count} components, not {expected}"
    return sizes


def _assign_states(
    labels: Array, weights: Float, neighbourhoods: Sequence[tuple[int, ...]], dims: tuple[int, ...]
) -> Structure | str:
    """The state of each variable in each component: it is constant where only the other variables change.

    Components with equal labels outside one neighbourhood form a line; a variable is constant along the lines of all
    other neighbourhoods.
    """
    from scipy.sparse.csgraph import connected_components

    lines = []
    for n in neighbourhoods:
        rest = np.delete(labels, n, axis=1)
        lines.append((rest[:, None] == rest).all(-1))  # (J, J)
    states = np.zeros((len(labels), len(dims)), dtype=int)
    for i, d in enumerate(dims):
        linked = np.any([line for j, line in enumerate(lines) if j != i], axis=0)
        number, states[:, i] = connected_components(linked & np.ones_like(lines[0]), directed=False)
        if number != d:
            return f"variable {i} has {number} states, but counting yields {d}"
    if len(np.unique(states, axis=0)) < len(labels):
        return "two components have the same states of all variables"
    probabilities = np.zeros(dims)
    probabilities[tuple(states.T)] = weights / weights.sum()
    return Structure(tuple(neighbourhoods), dims, states, probabilities)
