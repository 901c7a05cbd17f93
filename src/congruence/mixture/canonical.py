"""P2 in any affine frame: axes along which latents are independent given the component."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.mixture._options import TOLERANCE
from congruence.mixture.conditions import AMBIGUOUS, FAILS, HOLDS, UNKNOWN, Condition, judged
from congruence.mixture.gmm import FLAT, GaussianMixture

DOUBT = 10.0  # tolerances: a correlation above this many is not rounding or estimation error
EQUAL, DISTINCT = 1e-6, 0.05  # gaps of log variance ratios: below the first equal, above the second distinct
MOST_PAIRS = 3000  # of components; of more, a sample is taken


@dataclass(frozen=True, eq=False)
class CanonicalAxes:
    """Axes z -> axes.T @ z along which every component of a mixture is nearly diagonal.

    Ratios of variances do not change under affine maps. Where all of one pair of components differ, the axes are fixed
    up to order, sign and scale.
    """

    axes: Float  # (m, m), columns
    pair: tuple[int, int] | None  # the components whose variance ratios differ most
    ratios: Float  # (m,), of their variances along the axes
    gap: float  # smallest difference between the logarithms of two ratios; infinite for one latent
    correlation: float  # largest within any component along the axes
    frame: str  # "given" (the latents themselves) or "found" (generalised eigenvectors)
    condition: Condition


def canonical_axes(prior: GaussianMixture, *, tolerance: float = TOLERANCE, seed: int = 0) -> CanonicalAxes:
    """Find axes along which P2 holds.

    P2 requires that latents are independent given the component, and that two components exist with distinct variance
    ratios. The generalised eigenvectors V of their covariances make both diagonal; P2 holds in some affine frame
    exactly where V^T S V is diagonal for all covariances S.

    Parameters
    ----------
    prior : GaussianMixture
    tolerance : float
        Largest correlation within a component that counts as none. For a prior estimated from n rows, use about
        4 / sqrt(n * smallest weight).
    seed : int
        Of the sample of pairs of components, where there are more than 3000.

    References
    ----------
    Kivva et al. 2022, condition P2 and Theorem 3.9 (b).
    """
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise InputError(f"tolerance must be a number above 0, not {tolerance!r}")
    m = prior.dimension
    here = largest_correlation(prior.covariances)
    if prior.components == 1:
        said = "The prior has one component; P2 needs the variances of at least two."
        return _nothing(prior, here, judged("P2", FAILS, said, exact=True))
    found = _most_distinct(prior, seed)
    if found is None:
        said = "Fewer than two components have a density, so variance ratios are undefined."
        return _nothing(prior, here, judged("P2", UNKNOWN, said))
    pair, ratios, axes, gap = found
    frame = "found"
    if here <= tolerance:  # keep the latents themselves as axes
        variances = prior.covariances[:, range(m), range(m)]
        frame, axes, ratios = "given", np.eye(m), variances[pair[0]] / variances[pair[1]]
        gap = float(np.diff(np.sort(np.log(ratios))).min()) if m > 1 else math.inf
    correlation = largest_correlation(axes.T @ prior.covariances @ axes)
    condition = _judge(pair, ratios, gap, correlation, frame, tolerance)
    return CanonicalAxes(axes, pair, ratios, gap, correlation, frame, condition)


def _nothing(prior: GaussianMixture, correlation: float, condition: Condition) -> CanonicalAxes:
    m = prior.dimension
    return CanonicalAxes(np.eye(m), None, np.full(m, math.nan), math.nan, correlation, "given", condition)


def _most_distinct(prior: GaussianMixture, seed: int) -> tuple[tuple[int, int], Float, Float, float] | None:
    """The pair of components with the largest gap of variance ratios: pair, ratios, axes and gap."""
    from scipy.linalg import eigh

    whole = [j for j in range(prior.components) if j not in prior.degenerate]
    pairs = list(combinations(whole, 2))
    if len(pairs) > MOST_PAIRS:
        chosen = np.random.default_rng(seed).permutation(len(pairs))[:MOST_PAIRS]
        pairs = [pairs[i] for i in chosen]
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
    tied = np.abs(covariances) / (spread[:, :, None] * spread[:, None])
    return float((tied * (1 - np.eye(covariances.shape[1]))).max())


def _judge(
    pair: tuple[int, int], ratios: Float, gap: float, correlation: float, frame: str, tolerance: float
) -> Condition:
    independent = HOLDS if correlation <= tolerance else AMBIGUOUS if correlation <= DOUBT * tolerance else FAILS
    distinct = HOLDS if gap >= DISTINCT else AMBIGUOUS if gap > EQUAL else FAILS
    status = next((s for s in (FAILS, AMBIGUOUS) if s in (independent, distinct)), HOLDS)
    if distinct != HOLDS and independent != HOLDS and frame == "found":
        status = AMBIGUOUS if distinct == AMBIGUOUS else FAILS  # axes of equal ratios are arbitrary
    which = "the latents" if frame == "given" else "the generalised eigenvectors"
    shown = ", ".join(f"{ratio:.3g}" for ratio in ratios[:8]) + (", ..." if len(ratios) > 8 else "")
    said = (
        f"Along {which}, the largest correlation within a component is {correlation:.2g}. The variances of components "
        f"{pair[0]} and {pair[1]} have ratios {shown}; the smallest gap between their logarithms is {gap:.2g}."
    )
    numbers = {"pair": list(pair), "ratios": ratios.tolist(), "gap": gap, "correlation": correlation, "frame": frame}
    return judged("P2", status, said, exact=status != AMBIGUOUS, numbers=numbers)
