"""P1 and P2 on a sample: do the latents follow a mixture, and which departures would the test notice?

The theorems are about the distribution of the latents Z. Draws of it, one from the posterior of each observation or
the latents themselves, can be compared with a prior. Posterior means cannot: their distribution differs from the prior
even in an exact model. Null distributions and power are simulated; a mixture that was fitted to data is fitted again
to every simulated sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.formatting import count, percent
from congruence.mixture.conditions import HierarchyCondition, largest_correlation, make_condition, smallest_gap
from congruence.mixture.priors import FLAT, LOG_2PI, GaussianMixture
from congruence.result import Status

_SIMULATIONS = 99  # of the null, so that the test has a level of exactly 1 % for a prior that is known
LEVEL = 0.01
_ALTERNATIVES = 20  # simulated samples of each departure
_ENOUGH = 0.9  # power from which a test that does not refute counts as support
_REFERENCE = 10_000  # draws that estimate the distribution of the log density
_DEPARTURES = ("weights", "means", "covariances", "skewness", "log density", "tails")  # tails: heavy or light
_FITTED_MOMENTS = 3  # the first of these, which EM equalises
_STEPS, _SETTLED = 30, 1e-5  # of EM, and its relative gain that ends it
_LARGEST = 1e30  # standard deviations, so that powers do not overflow
_CORRELATION = 0.2  # within components, of which the power for P2 is simulated
_FITTED_ROWS = 4000  # of codes that mixtures are fitted to for the number of components; half are held out
_GAP_ERRORS = 4.0  # standard errors that a gap of log variance ratios must exceed
_ROWS_PER_PARAMETER = 3  # of a mixture with full covariances that is fitted again
_FITS = 10  # starts of such a fit, besides the mixture that is given
_NO_CODES = "There are no latents to compare with it."
_MEANS = (
    "The codes are posterior means, which vary less than the prior in an exact model; they are not compared with it."
)
_APPROXIMATE = (
    "Either these posteriors, which are approximate, are not those of the model, or the model does not fit the data; "
    "this does not decide which."
)
_UNKNOWN_KIND = "They may be posterior means, which vary less than the prior in an exact model: set codes_are."


ALTERNATIVES = {  # within components
    "t5": "t-distributed components (5 degrees of freedom)",
    "gamma": "gamma-distributed components (skewness 1)",
}


@dataclass(frozen=True, eq=False)
class LatentTest:
    """Whether a sample of latents follows a mixture."""

    sample: Float  # (n, m)
    mixture: GaussianMixture  # as tested: fitted again to the sample if it was a fit
    p: float
    departure: str  # the largest
    power: Mapping[str, float]  # share of simulated samples of each alternative that are refuted; empty if refuted

    @property
    def refuted(self) -> bool:
        """Whether the sample departs from the mixture, at a level of 1 %."""
        return self.p <= LEVEL

    @property
    def status(self) -> Status:
        """A test that does not refute is support only where it would notice the alternatives."""
        if self.refuted:
            return "fails"
        return "holds" if min(self.power.values()) >= _ENOUGH else "unknown"

    @property
    def words(self) -> str:
        """The outcome and its power, as sentences."""
        if self.refuted:
            return (
                f"do not follow it (p = {self.p:.2g} if rows are independent); the largest departure is in the "
                f"{self.departure}."
            )
        noticed = " and ".join(f"{ALTERNATIVES[name]} in {percent(share)}" for name, share in self.power.items())
        return (
            f"do not refute it (p = {self.p:.2g}). Power at this number of rows: with the same means and covariances, "
            f"{noticed} of {_ALTERNATIVES} simulations each are refuted."
        )


def judge_prior(
    prior: GaussianMixture, codes: Any = None, *, codes_are: str | None = None, seed: int = 0
) -> tuple[HierarchyCondition, LatentTest | None]:
    """P1, and the test of it if there is one.

    The prior of a model is a mixture by construction; a mixture that was fitted to data is an assumption about them.
    Draws of latents, (n, m), are tested. Codes of an unknown kind may be posterior means, and those of an "encoder" are
    draws from approximate posteriors: they can support P1 but not refute it, unless the prior was fitted to them.
    """
    kind = f"a mixture of {count(prior.components, 'Gaussian')} in {count(prior.dimension, 'dimension')}"
    if prior.degenerate:
        kind += f", {len(prior.degenerate)} of them degenerate, which P1 allows"
    kind = f"The prior was fitted to data as {kind}." if prior.fitted else f"By construction, the prior is {kind}."
    without: Status = "unknown" if prior.fitted else "holds"
    if codes is None or codes_are == "means":
        kind += f" {_NO_CODES if codes is None else _MEANS}"
        return make_condition("P1", without, kind, exact=not prior.fitted), None
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)
    if z.shape[1] != prior.dimension:
        raise InputError(f"codes must have {prior.dimension} columns, one for each latent; got {z.shape[1]}")
    if prior.degenerate:
        return make_condition("P1", "unknown", f"{kind} It has no density, so it was not compared with codes."), None
    far = _LARGEST * math.sqrt(float(np.trace(prior.covariance)))
    z = np.clip(z, prior.mean - far, prior.mean + far)
    test = follow_mixture(prior, z, seed=seed)
    if test is None:
        why = f"{len(z)} codes are too few to estimate it, so it was not tested."
        return make_condition("P1", "unknown", f"{kind} {why}"), None
    selected = select_components(z, prior.components, seed=seed)
    drawn = {"draws": "draws", "encoder": "draws from the posteriors of the encoder"}.get(codes_are or "", "codes")
    if prior.fitted:
        kind += f" One with full covariances was fitted again to the {drawn}, from {_FITS + 1} starts."
    evidence = f"{kind} {len(z)} {drawn} {test.words} Held-out likelihood selects {selected} components for them."
    status = test.status
    if test.refuted and codes_are != "draws" and not prior.fitted:
        status = "unknown"
        evidence += f" {_APPROXIMATE if codes_are == 'encoder' else _UNKNOWN_KIND}"
    elif test.refuted and prior.fitted:
        evidence += " Another fit, or one with more components, may follow them: P1 does not bound their number."
    numbers: dict[str, Any] = {"p": test.p, "departure": test.departure, "power": dict(test.power)}
    numbers["components_by_likelihood"] = selected
    return make_condition("P1", status, evidence, numbers=numbers), test


def follow_mixture(prior: GaussianMixture, z: Float, *, seed: int = 0) -> LatentTest | None:
    """Test whether the rows of z, (n, m), are draws from a mixture; None if there are too few to fit it again."""
    rng = np.random.default_rng(seed)
    n, mixture = len(z), prior
    if prior.fitted:
        if n < _ROWS_PER_PARAMETER * prior.components * (prior.dimension + 3) * prior.dimension / 2:
            return None
        mixture = best_fit(prior, z, seed=seed)
    reference = np.sort(mixture.log_density(mixture.sample(_REFERENCE, seed=seed)))

    def statistic(sample: Float) -> Float:
        if not prior.fitted:
            return _departures(mixture, sample, reference)
        values = _departures(refit(mixture, sample), sample, reference)
        values[:_FITTED_MOMENTS] = 0.0  # up to convergence, the fit makes them those of the mixture
        return values

    null = np.array([statistic(_draw(mixture, n, rng)) for _ in range(_SIMULATIONS)])
    p, worst = _p_value(null, statistic(z))
    power = {}
    if p > LEVEL:
        for kind in ALTERNATIVES:
            others = (statistic(_draw(mixture, n, rng, kind)) for _ in range(_ALTERNATIVES))
            power[kind] = float(np.mean([_p_value(null, other)[0] <= LEVEL for other in others]))
    return LatentTest(z, mixture, p, _DEPARTURES[worst], power)


def judge_estimated_axes(mixture: GaussianMixture, z: Float, *, seed: int = 0) -> HierarchyCondition:
    """P2 of a mixture that was fitted, with full covariances, to the rows of z, (n, m).

    A mixture without correlations is fitted to the rows and, from it, one with full covariances; the same is done with
    draws of the first, and the largest correlations within a component are compared. All fits have the same start and
    number of steps, so that slow convergence is the same in all. An estimate never shows that a correlation is 0: P2 is
    supported where correlations of 0.2 would be noticed.
    """
    rng = np.random.default_rng(seed)
    rows, m = z.shape
    if mixture.components == 1:
        return make_condition("P2", "fails", "The prior has one component; P2 needs the variances of at least two.")

    independent = refit(_correlated(mixture, 0.0), z, diagonal=True)

    def estimate(sample: Float) -> float:
        return largest_correlation(refit(refit(independent, sample, diagonal=True), sample).covariances)

    def simulate(value: float, count: int) -> Float:
        truth = _correlated(independent, value)
        return np.array([estimate(_draw(truth, rows, rng)) for _ in range(count)])

    correlation = estimate(z)
    numbers = {"correlation": correlation, "frame": "given"}
    limit, evidence = 0.0, f"In a fit with full covariances to {rows} rows"
    if m > 1:
        null = simulate(0.0, _SIMULATIONS)
        limit = float(null.max())
        evidence += (
            f", the largest correlation within a component is {correlation:.2g}; fits to draws without correlations "
            f"reach {limit:.2g} ({_SIMULATIONS} simulations)."
        )
        if correlation > limit:
            return make_condition("P2", "fails", evidence, numbers=numbers)
        power = float((simulate(_CORRELATION, _ALTERNATIVES) > limit).mean())
        evidence += f" Correlations of {_CORRELATION:g} are noticed with {percent(power)} probability."
        numbers["power"] = power
    else:
        power = 1.0
        evidence += ", there is one latent, and no correlation."
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2)
    pairs = {
        pair: smallest_gap(variances[pair[0]] / variances[pair[1]]) for pair in combinations(range(len(variances)), 2)
    }
    (a, b), gap = max(pairs.items(), key=lambda one: one[1])
    error = math.sqrt(2 / rows * (1 / mixture.weights[a] + 1 / mixture.weights[b]))
    distinct = gap > _GAP_ERRORS * error
    evidence += (
        f" The smallest gap between the logarithms of variance ratios is {gap:.2g}, with an error of {error:.2g}."
    )
    status: Status = "holds" if power >= _ENOUGH and distinct else "unknown"
    return make_condition("P2", status, evidence, numbers=numbers | {"pair": [a, b], "gap": gap})


def best_fit(start: GaussianMixture, z: Float, *, seed: int = 0) -> GaussianMixture:
    """Fit a mixture with full covariances and as many components to the rows of z, the likeliest from several starts.

    A fit from one start can end in a poor optimum, which rows of a mixture do not follow either. Fits with a component
    of fewer rows than a covariance needs are left out: the likelihood has no bound there.
    """
    best = refit(start, z)
    for i in range(_FITS):
        fitted = _fit_sklearn(z, start.components, init_params="k-means++", random_state=(seed + i) % 2**32)
        other = refit(GaussianMixture.from_sklearn(fitted), z)
        enough = other.weights.min() * len(z) >= 2 * (z.shape[1] + 1)
        if enough and other.log_density(z).mean() > best.log_density(z).mean():
            best = other
    return best


def _correlated(mixture: GaussianMixture, value: float) -> GaussianMixture:
    """The same mixture with one correlation between any two latents of a component."""
    spread = np.sqrt(np.diagonal(mixture.covariances, axis1=1, axis2=2))  # (J, m)
    matrix = np.eye(mixture.dimension) + value * (1 - np.eye(mixture.dimension))
    return replace(mixture, covariances=spread[:, :, None] * matrix * spread[:, None])


def refit(start: GaussianMixture, z: Float, *, diagonal: bool = False) -> GaussianMixture:
    """Fit a mixture with full or diagonal covariances to the rows of z, (n, m), by EM, from a given one."""
    weights, means, covariances = start.weights, start.means, start.covariances
    floor = FLAT**0.5 * np.diag(np.maximum(z.var(0), np.finfo(float).tiny))
    before = -math.inf
    for _ in range(_STEPS):
        _, density, shares = _whiten(weights, means, covariances, z)
        score = float(density.mean())
        if score - before < _SETTLED * (1 + abs(score)):
            break
        before = score
        sizes = shares.sum(1) + len(z) * 1e-9  # a component that lost all rows keeps a weight above 0
        few = (sizes < z.shape[1] + 1)[:, None]  # and its mean and covariance
        means = np.where(few, means, shares @ z / sizes[:, None])
        away = z - means[:, None]  # (J, n, m)
        moved = (away * shares[:, :, None]).transpose(0, 2, 1) @ away / sizes[:, None, None] + floor
        moved = moved * np.eye(z.shape[1]) if diagonal else moved
        covariances, weights = np.where(few[:, :, None], covariances, moved), sizes / sizes.sum()
    return GaussianMixture(weights, means, covariances, "full")


def select_components(z: Float, about: int, *, seed: int = 0) -> int:
    """The fewest components whose held-out log likelihood is within one standard error of the best.

    Candidates are small numbers and numbers near `about`. Covariances are full, or diagonal for more than 20 latents.
    Latents are standardised first; constant ones are left out.
    """
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
    chosen = {"covariance_type": "full" if z.shape[1] <= 20 else "diag", "random_state": seed, "n_init": 2}
    scores = {count: _fit_sklearn(train, count, **chosen).score_samples(held_out) for count in tried}
    best = max(tried, key=lambda count: scores[count].mean())
    losses = {count: scores[best] - scores[count] for count in tried}
    close = (count for count, lost in losses.items() if lost.mean() <= lost.std() / math.sqrt(len(held_out)))
    return next(close, best)


def _fit_sklearn(z: Float, components: int, **options: Any) -> Any:
    """A fitted scikit-learn mixture; one that does not converge is used as it is."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture as Fitted

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Fitted(components, **options).fit(z)


def _draw(mixture: GaussianMixture, n: int, rng: np.random.Generator, kind: str = "") -> Float:
    """Draw n rows, with Gaussian noise within components or with that of an alternative, of mean 0 and variance 1."""
    size, noise = (n, mixture.dimension), None
    if kind == "t5":
        noise = rng.standard_t(5, size=size) / math.sqrt(5 / 3)
    elif kind == "gamma":
        noise = (rng.gamma(4.0, size=size) - 4.0) / 2.0
    return mixture.draw(n, seed=int(rng.integers(2**63)), noise=noise).latents


def _whiten(weights: Float, means: Float, covariances: Float, z: Float) -> tuple[Float, Float, Float]:
    """Rows of z whitened by each component, (J, m, n), their log densities, (n,), and shares of components, (J, n)."""
    roots = np.linalg.inv(np.linalg.cholesky(covariances))
    white = roots @ (z - means[:, None]).transpose(0, 2, 1)
    logs = np.log(weights) + np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1) - 0.5 * z.shape[1] * LOG_2PI
    joint = logs[:, None] - 0.5 * np.square(white).sum(1)
    top = joint.max(0)
    shares = np.exp(joint - top)
    total = shares.sum(0)
    return white, top + np.log(total), shares / total


def _departures(mixture: GaussianMixture, z: Float, reference: Float) -> Float:
    """How far weighted moments of rows within components, and their log densities, are from those of the mixture."""
    white, density, shares = _whiten(mixture.weights, mixture.means, mixture.covariances, z)
    sizes = shares.sum(1)
    size, share = np.maximum(sizes, 1.0), shares[:, :, None]
    white = np.clip(white, -_LARGEST, _LARGEST)
    second = (white * shares[:, None]) @ white.transpose(0, 2, 1) - np.eye(mixture.dimension) * sizes[:, None, None]
    moved = float((np.square(white @ share).sum((1, 2)) / size).sum())
    shape = float((np.square(second).sum((1, 2)) / size).sum())
    skewed = float((np.square((white * white * white) @ share).sum((1, 2)) / size).sum())
    tails = float((np.square(np.square(white).sum(1)) * shares).sum()) / len(z)
    place = np.searchsorted(reference, np.sort(density)) / len(reference)
    distance = float(np.abs(place - (np.arange(len(z)) + 0.5) / len(z)).max())
    weights = float(np.abs(sizes / len(z) - mixture.weights).sum())
    return np.array([weights, moved, shape, skewed, distance, tails])


def _p_value(null: Float, observed: Float) -> tuple[float, int]:
    """Monte Carlo p value of the largest standardised departure, and which one it is.

    All samples, the observed one as well, are standardised together, so that they are exchangeable under the null.
    """
    both = np.minimum(np.vstack([observed, null]), 1e100)
    spread = both.std(0)
    scores = (both - both.mean(0)) / np.where(spread > 1e-12 * np.abs(both).max(0), spread, np.inf)
    scores[:, -1] = np.abs(scores[:, -1])  # light tails are departures as well
    largest = scores.max(1)
    return float((largest >= largest[0]).mean()), int(scores[0].argmax())
