"""Conditions of the hierarchy, P1 to P3 and F1 to F4, the axes of P2, and the test of the fit to the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from operator import attrgetter
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.checks import check_number
from congruence.errors import InputError
from congruence.formatting import number
from congruence.mixture._options import TOLERANCE
from congruence.mixture.priors import FLAT, GaussianMixture
from congruence.result import Finding, Record, Status, as_data, combine

_ABOUT = {
    "P1": "the latents follow a Gaussian mixture, which is the prior",
    "P2": "latents are independent within components, and two components have distinct variance ratios",
    "P3": "the discrete variables behind the components can be recovered by counting",
    "F1": "the decoder is piecewise affine",
    "F2": "the decoder is weakly injective",
    "F3": "the decoder is injective except for outputs of measure 0",
    "F4": "the decoder is injective",
    "data": "the model fits the data",
}
NAMES = ("P1", "P2", "P3", "F1", "F2", "F3", "F4")
_SHOWN = 8  # coordinates of a latent, or variance ratios, in a sentence
_DATA_ROWS = 500  # of data and of draws in the test of the fit
_SHUFFLES = 99
_CORRELATED = 10.0  # times the tolerance: a larger correlation is not rounding or estimation error
_EQUAL, _DISTINCT = 1e-6, 0.05  # gaps of log variance ratios: equal below the first, distinct above the second
_MOST_PAIRS = 3000  # of components; beyond that, a sample of the pairs is used


@dataclass(frozen=True, eq=False)
class Counterexample(Record):
    """Two latents that a decoder maps to the same point."""

    first: Float  # (m,)
    second: Float  # (m,)
    gap: float  # distance between the two outputs
    apart: float  # distance between the two latents

    def __str__(self) -> str:
        first, second = (
            ", ".join(number(float(value)) for value in one[:_SHOWN]) + (", …" if len(one) > _SHOWN else "")
            for one in (self.first, self.second)
        )
        return f"The outputs of the latents ({first}) and ({second}) differ by {number(self.gap, 2)}."


class ConditionNumbers(TypedDict):
    """A condition in JSON."""

    name: str
    status: str
    basis: str | None
    exact: bool
    evidence: str
    pair: dict[str, Any] | None
    numbers: dict[str, Any]


@dataclass(frozen=True, eq=False)
class HierarchyCondition:
    """The finding on one condition, with the data behind its evidence.

    `exact`: it was decided for all inputs, up to rounding, and not on a sample.
    """

    finding: Finding
    exact: bool = False
    pair: Counterexample | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    name = property(attrgetter("finding.name"))  # P1, P2, P3, F1, F2, F3, F4, or "data" for the fit of the whole model
    status = property(attrgetter("finding.status"))

    def to_dict(self) -> ConditionNumbers:
        """The finding and its data, as in the JSON."""
        return {
            "name": self.name,
            "status": self.status,
            "basis": self.finding.basis,
            "exact": self.exact,
            "evidence": self.finding.evidence,
            "pair": as_data(self.pair),
            "numbers": dict(self.numbers),
        }


def make_condition(
    name: str,
    status: Status,
    evidence: str,
    *,
    exact: bool = False,
    pair: Counterexample | None = None,
    numbers: Mapping[str, Any] | None = None,
) -> HierarchyCondition:
    """Return the condition of this name; one that holds exactly is certified."""
    evidence = evidence if pair is None else f"{evidence} {pair}"
    basis: Any = "certified" if exact and status == "holds" else None
    finding = Finding(name, f"{name}: {_ABOUT[name]}.", status, basis, evidence)
    return HierarchyCondition(finding, exact, pair, numbers or {})


def judge_data(outputs: Float, data: Any, *, seed: int = 0) -> HierarchyCondition:
    """Test whether draws of the whole model, (n, p), differ from the data: energy distance with a permutation null.

    The test can only refute the model. The theorems are about the distribution of the data, so they do not apply to a
    model that does not fit it.
    """
    from scipy.spatial.distance import cdist

    x = to_numpy(as_matrix(data, "data")).astype(np.float64, copy=False)
    if x.shape[1] != outputs.shape[1]:
        raise InputError(f"data must have {outputs.shape[1]} columns, one for each output; got {x.shape[1]}")
    rng = np.random.default_rng(seed)
    x, y = (rows[rng.permutation(len(rows))[:_DATA_ROWS]] for rows in (x, outputs))
    distances = cdist(np.vstack([x, y]), np.vstack([x, y]))
    signs = np.repeat([1.0 / len(x), -1.0 / len(y)], [len(x), len(y)])
    energy, *null = (
        float(-side @ distances @ side) for side in (signs, *(rng.permutation(signs) for _ in range(_SHUFFLES)))
    )
    p = (1 + sum(value >= energy for value in null)) / (1 + _SHUFFLES)
    typical = float(np.mean(null))
    evidence = (
        f"The energy distance between draws of the model and the data is {energy:.3g}; its permutation null is "
        f"{typical:.3g} (p = {p:.2g})."
    )
    numbers = {"energy": energy, "chance": typical, "p": p}
    return make_condition("data", "fails" if p <= 0.01 else "unknown", evidence, numbers=numbers)


@dataclass(frozen=True, eq=False)
class CanonicalAxes:
    """Axes z -> axes.T @ z along which every component of a mixture is nearly diagonal.

    Variance ratios are invariant under affine maps. Where all ratios of one pair of components differ, the axes are
    unique up to order, sign and scale.
    """

    axes: Float  # (m, m), columns
    pair: tuple[int, int] | None  # the components whose variance ratios differ most
    ratios: Float  # (m,), of their variances along the axes
    gap: float  # smallest difference between the logarithms of two ratios; infinite for one latent
    correlation: float  # largest within any component along the axes
    frame: str  # "given" (the latents themselves) or "found" (generalised eigenvectors)
    status: Status  # whether independence and distinct ratios hold along these axes
    condition: HierarchyCondition  # P2, which is about the latents themselves


def canonical_axes(prior: GaussianMixture, *, tolerance: float = TOLERANCE, seed: int = 0) -> CanonicalAxes:
    """Find axes along which latents are independent within components, and judge P2.

    P2 requires that the latents themselves are independent given the component, and that two components exist with
    distinct variance ratios. The generalised eigenvectors V of two covariances make both diagonal. Where V^T S V is
    diagonal for all covariances S, P2 holds for the latents V^T z of the same model in other coordinates; P2 of the
    given latents fails, and of the theorems only those up to an affine map apply to them.

    A mixture that was fitted with constrained covariances ("diag", "spherical", "tied") does not decide P2, since the
    fit assumed what P2 asserts. `tolerance` is the largest correlation within a component that counts as none; for a
    prior estimated from n rows, use about 4 / sqrt(n * smallest weight). If there are more than 3000 pairs of
    components, a sample of them is drawn with `seed`.

    References
    ----------
    Kivva et al. 2022, condition P2 and Theorem 3.9 (b).
    """
    check_number("tolerance", tolerance, 0, open_low=True)
    m = prior.dimension
    in_latents = largest_correlation(prior.covariances)
    best = _most_distinct_pair(prior, seed)
    if best is None:
        status: Status = "fails" if prior.components == 1 else "unknown"
        evidence = "Fewer than two components have a density, so variance ratios are undefined."
        if status == "fails":
            evidence = "The prior has one component; P2 needs the variances of at least two."
        condition = make_condition("P2", status, evidence, exact=status == "fails" and not prior.fitted)
        return CanonicalAxes(np.eye(m), None, np.full(m, math.nan), math.nan, in_latents, "given", status, condition)
    pair, ratios, axes, gap = best
    frame = "found"
    if in_latents <= tolerance:  # the latents themselves are the axes
        variances = prior.covariances[:, range(m), range(m)]
        frame, axes, ratios = "given", np.eye(m), variances[pair[0]] / variances[pair[1]]
        gap = smallest_gap(ratios)
    correlation = largest_correlation(axes.T @ prior.covariances @ axes)
    doubtful = _CORRELATED * tolerance
    independent: Status = "holds" if correlation <= tolerance else "ambiguous" if correlation <= doubtful else "fails"
    distinct: Status = "holds" if gap >= _DISTINCT else "ambiguous" if gap > _EQUAL else "fails"
    # The axes of nearly equal ratios are arbitrary, so a correlation along them refutes nothing.
    arbitrary = frame == "found" and distinct == "ambiguous"
    status = "ambiguous" if arbitrary else combine([independent, distinct])
    listed = ", ".join(f"{ratio:.3g}" for ratio in ratios[:_SHOWN]) + (", ..." if m > _SHOWN else "")
    ratio_words = (
        f"The variances of components {pair[0]} and {pair[1]} have ratios {listed}; the smallest gap between "
        f"their logarithms is {gap:.2g}."
    )
    found: Status = status
    if frame == "given":
        evidence = f"Latents correlate by at most {correlation:.2g} within a component. {ratio_words}"
    else:
        found = "fails" if in_latents > _CORRELATED * tolerance else "ambiguous"
        evidence = (
            f"Latents correlate by up to {in_latents:.2g} within a component, and by at most {correlation:.2g} along "
            f"the generalised eigenvectors. {ratio_words}"
        )
        if status == "holds":
            evidence += (
                " The covariances are A D_j A^T with one matrix A, so P2 holds for the model in the coordinates of "
                "these axes, and not for the latents as given: for them only the affine statements follow."
            )
    if prior.fitted not in ("", "full"):
        found = "unknown"
        evidence = (
            f"The mixture was fitted with {prior.fitted} covariances, which do not show what P2 asserts. {evidence}"
        )
    elif prior.fitted:
        found = "unknown" if found != "fails" else found
        evidence = f"The mixture was fitted to rows that are not given, so its errors are unknown. {evidence}"
    numbers = {"pair": list(pair), "ratios": ratios.tolist(), "gap": gap, "correlation": correlation, "frame": frame}
    exact = found in ("holds", "fails") and not prior.fitted
    condition = make_condition("P2", found, evidence, exact=exact, numbers=numbers | {"in_latents": in_latents})
    return CanonicalAxes(axes, pair, ratios, gap, correlation, frame, status, condition)


def smallest_gap(ratios: Float) -> float:
    """The smallest difference between the logarithms of two variance ratios; infinite for a single one."""
    return float(np.diff(np.sort(np.log(ratios))).min()) if len(ratios) > 1 else math.inf


def _most_distinct_pair(prior: GaussianMixture, seed: int) -> tuple[tuple[int, int], Float, Float, float] | None:
    """The pair of components with the largest gap of variance ratios: pair, ratios, axes and gap."""
    from scipy.linalg import eigh

    pairs = list(combinations([j for j in range(prior.components) if j not in prior.degenerate], 2))
    if len(pairs) > _MOST_PAIRS:
        pairs = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))[:_MOST_PAIRS]]
    best = None
    for i, j in pairs:
        ratios, axes = eigh(prior.covariances[i], prior.covariances[j])
        logs = np.log(np.maximum(ratios, np.finfo(float).tiny))
        gap = float(np.diff(logs).min()) if len(logs) > 1 else math.inf
        if best is None or gap > best[3]:
            best = ((i, j), ratios, axes / np.linalg.norm(axes, axis=0), gap)
    return best


def largest_correlation(covariances: Float) -> float:
    """The largest correlation of two latents within a component, (J, m, m) -> from 0 to 1.

    Directions in which a component has no variance, up to rounding, count as uncorrelated.
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)  # (J, m)
    least = np.maximum(FLAT * variances.max(0), np.finfo(float).tiny)
    spread = np.where(variances > least, np.sqrt(np.maximum(variances, least)), np.inf)
    correlations = np.abs(covariances) / (spread[:, :, None] * spread[:, None])
    return float((correlations * (1 - np.eye(covariances.shape[1]))).max())
