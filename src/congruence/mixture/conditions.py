"""Conditions of the hierarchy, P1 to P3 and F1 to F4, and the tests of P1, of P2 and of the fit to the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.checks import check_number
from congruence.errors import InputError
from congruence.formatting import number
from congruence.mixture._options import TOLERANCE
from congruence.mixture.priors import FLAT, GaussianMixture
from congruence.result import Finding, Status

_ABOUT = {
    "P1": "the latents follow a Gaussian mixture",
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
_NEAR, _FAR = 0.05, 0.15  # distance of two distributions, beyond chance: indistinguishable below, different above
_FEWEST_CODES = 100  # with fewer, chance alone exceeds _FAR
_DRAWS = 10_000  # from the prior, with which codes are compared
_FITTED_ROWS = 4000  # of codes that mixtures are fitted to; half are held out
_DATA_ROWS = 500  # of data and of draws in the test of the fit
_SHUFFLES = 99
_CORRELATED = 10.0  # times the tolerance: a larger correlation is not rounding or estimation error
_EQUAL, _DISTINCT = 1e-6, 0.05  # gaps of log variance ratios: equal below the first, distinct above the second
_MOST_PAIRS = 3000  # of components; beyond that, a sample of the pairs is used


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Two latents that a decoder maps to the same point."""

    first: Float  # (m,)
    second: Float  # (m,)
    gap: float  # distance between the two outputs
    apart: float  # distance between the two latents

    def to_dict(self) -> dict[str, Any]:
        """The pair as plain data."""
        return asdict(self) | {"first": self.first.tolist(), "second": self.second.tolist()}

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

    @property
    def name(self) -> str:
        """P1, P2, P3, F1, F2, F3, F4, or "data" for the fit of the whole model."""
        return self.finding.name

    @property
    def status(self) -> Status:
        """The status of the finding."""
        return self.finding.status

    def to_dict(self) -> ConditionNumbers:
        """The finding and its data, as in the JSON."""
        return {
            "name": self.name,
            "status": self.status,
            "basis": self.finding.basis,
            "exact": self.exact,
            "evidence": self.finding.evidence,
            "pair": None if self.pair is None else self.pair.to_dict(),
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


def judge_prior(prior: GaussianMixture, codes: Any = None, *, seed: int = 0) -> HierarchyCondition:
    """P1: the prior is a Gaussian mixture by construction; test whether the codes, (n, m), follow it.

    The log densities of the codes are compared with those of draws from the prior, and the mean responsibilities with
    the weights. The number of components selected by held-out likelihood is also reported. Fewer than 100 codes can
    refute the prior but not support it. In a model that fits, draws from the posterior follow the prior; posterior
    means, which `encode` returns, vary less where posteriors are wide, and can then refute a correct prior.
    """
    kind = f"By construction, the prior is a mixture of {prior.components} Gaussians in {prior.dimension} dimensions"
    if prior.degenerate:
        kind += f", {len(prior.degenerate)} of them degenerate, which P1 allows"
    if codes is None:
        return make_condition("P1", "holds", f"{kind}. There are no codes to compare with it.", exact=True)
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)
    if z.shape[1] != prior.dimension:
        raise InputError(f"codes must have {prior.dimension} columns, one for each latent; got {z.shape[1]}")
    if prior.degenerate:
        return make_condition("P1", "unknown", f"{kind}. It has no density, so the codes were not compared with it.")
    from scipy.stats import ks_2samp

    distance = float(ks_2samp(prior.log_density(z), prior.log_density(prior.sample(_DRAWS, seed=seed))).statistic)
    shift = float(np.abs(prior.responsibilities(z).mean(0) - prior.weights).sum() / 2)
    beyond = max(distance, shift) - (1.63 / math.sqrt(len(z)) + 1.63 / math.sqrt(_DRAWS))  # the 1 % critical value
    status: Status = "holds" if beyond <= _NEAR else "fails" if beyond >= _FAR else "ambiguous"
    if status != "fails" and len(z) < _FEWEST_CODES:
        status = "unknown"
    selected = select_components(z, prior.components, seed=seed)
    evidence = (
        f"{kind}. The log densities of {len(z)} codes and of draws from the prior differ by {distance:.2g} "
        f"(Kolmogorov-Smirnov), the mean responsibilities and the weights by {shift:.2g}. Held-out likelihood selects "
        f"{selected} components for the codes."
    )
    if status == "unknown":
        evidence += f" A test needs at least {_FEWEST_CODES} codes."
    numbers = {"log_density_distance": distance, "weight_distance": shift, "components_by_likelihood": selected}
    return make_condition("P1", status, evidence, numbers=numbers)


def select_components(z: Float, about: int, *, seed: int = 0) -> int:
    """The fewest components whose held-out log likelihood is within one standard error of the best.

    Candidates are small numbers and numbers near `about`. Covariances are full, or diagonal for more than 20 latents.
    Latents are standardised first; constant ones are left out.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture as Fitted

    spread = z.std(0)
    varies = spread > FLAT * np.abs(z).max(0)
    if not varies.any():
        return 1
    z = (z[:, varies] - z[:, varies].mean(0)) / spread[varies]
    order = np.random.default_rng(seed).permutation(len(z))[:_FITTED_ROWS]
    half = len(order) // 2
    train, held_out = z[order[:half]], z[order[half:]]
    tried = sorted({1, 2, about // 2, about - 1, about, about + 1, about + 2, 2 * about} & set(range(1, half // 4)))
    if not tried:
        return 1
    kind = "full" if z.shape[1] <= 20 else "diag"
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for count in tried:
            fitted = Fitted(count, covariance_type=kind, reg_covar=1e-6, random_state=seed, n_init=2)
            scores[count] = fitted.fit(train).score_samples(held_out)
    best = max(tried, key=lambda count: scores[count].mean())
    losses = {count: scores[best] - scores[count] for count in tried}
    close = (count for count, lost in losses.items() if lost.mean() <= lost.std() / math.sqrt(len(held_out)))
    return next(close, best)


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
    condition: HierarchyCondition


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
        Seed of the sample of pairs of components, where there are more than 3000.

    References
    ----------
    Kivva et al. 2022, condition P2 and Theorem 3.9 (b).
    """
    check_number("tolerance", tolerance, 0, open_low=True)
    m = prior.dimension
    in_latents = largest_correlation(prior.covariances)
    best = _most_distinct_pair(prior, seed)
    if best is None:
        if prior.components == 1:
            evidence = "The prior has one component; P2 needs the variances of at least two."
            condition = make_condition("P2", "fails", evidence, exact=True)
        else:
            evidence = "Fewer than two components have a density, so variance ratios are undefined."
            condition = make_condition("P2", "unknown", evidence)
        return CanonicalAxes(np.eye(m), None, np.full(m, math.nan), math.nan, in_latents, "given", condition)
    pair, ratios, axes, gap = best
    frame = "found"
    if in_latents <= tolerance:  # the latents themselves are the axes
        variances = prior.covariances[:, range(m), range(m)]
        frame, axes, ratios = "given", np.eye(m), variances[pair[0]] / variances[pair[1]]
        gap = float(np.diff(np.sort(np.log(ratios))).min()) if m > 1 else math.inf
    correlation = largest_correlation(axes.T @ prior.covariances @ axes)
    status = _judge_axes(gap, correlation, frame, tolerance)
    where = "the latents" if frame == "given" else "the generalised eigenvectors"
    listed = ", ".join(f"{ratio:.3g}" for ratio in ratios[:_SHOWN]) + (", ..." if m > _SHOWN else "")
    evidence = (
        f"Along {where}, the largest correlation within a component is {correlation:.2g}. The variances of components "
        f"{pair[0]} and {pair[1]} have ratios {listed}; the smallest gap between their logarithms is {gap:.2g}."
    )
    numbers = {"pair": list(pair), "ratios": ratios.tolist(), "gap": gap, "correlation": correlation, "frame": frame}
    condition = make_condition("P2", status, evidence, exact=status != "ambiguous", numbers=numbers)
    return CanonicalAxes(axes, pair, ratios, gap, correlation, frame, condition)


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


def _judge_axes(gap: float, correlation: float, frame: str, tolerance: float) -> Status:
    doubtful = _CORRELATED * tolerance
    independent = "holds" if correlation <= tolerance else "ambiguous" if correlation <= doubtful else "fails"
    distinct = "holds" if gap >= _DISTINCT else "ambiguous" if gap > _EQUAL else "fails"
    if "fails" in (independent, distinct):
        # The axes of nearly equal ratios are arbitrary, so a correlation along them refutes nothing.
        arbitrary = frame == "found" and distinct == "ambiguous"
        return "ambiguous" if arbitrary else "fails"
    return "ambiguous" if "ambiguous" in (independent, distinct) else "holds"


def largest_correlation(covariances: Float) -> float:
    """The largest correlation of two latents within a component, (J, m, m) -> from 0 to 1.

    Directions in which a component has no variance, up to rounding, count as uncorrelated.
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)  # (J, m)
    least = np.maximum(FLAT * variances.max(0), np.finfo(float).tiny)
    spread = np.where(variances > least, np.sqrt(np.maximum(variances, least)), np.inf)
    correlations = np.abs(covariances) / (spread[:, :, None] * spread[:, None])
    return float((correlations * (1 - np.eye(covariances.shape[1]))).max())
