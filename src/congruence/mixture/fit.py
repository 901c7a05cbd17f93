"""Fit of a model: do the codes follow the prior (P1), and do draws of the model resemble the data?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.mixture.conditions import AMBIGUOUS, FAILS, HOLDS, UNKNOWN, Condition, judged
from congruence.mixture.gmm import FLAT, GaussianMixture

NEAR, FAR = 0.05, 0.15  # distance of two distributions, beyond chance: indistinguishable below, different above
FEWEST = 100  # codes: with fewer, chance alone exceeds FAR
ROWS = 4000  # of codes that mixtures are fitted to; half are held out
TABLE = 500  # rows on each side of the test on data
SHUFFLES = 99


def judge_prior(prior: GaussianMixture, codes: Any = None, *, seed: int = 0) -> Condition:
    """P1: the prior is a Gaussian mixture by construction; test whether the codes, (n, m), follow it.

    The log densities of the codes are compared with those of draws from the prior, and the mean responsibilities with
    the weights. The number of components selected by held-out likelihood is reported, too. Fewer than 100 codes can
    refute the prior but not support it. In a model that fits, draws from the posterior follow the prior; posterior
    means, which `encode` returns, vary less where posteriors are wide, and can then refute a correct prior.
    """
    kind = f"By construction, the prior is a mixture of {prior.components} Gaussians in {prior.dimension} dimensions"
    if prior.degenerate:
        kind += f", {len(prior.degenerate)} of them degenerate, which P1 allows"
    if codes is None:
        return judged("P1", HOLDS, f"{kind}. No codes were given to compare with it.", exact=True)
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)
    if z.shape[1] != prior.dimension:
        raise InputError(f"codes must have {prior.dimension} columns, as the prior has latents, not {z.shape[1]}")
    if prior.degenerate:
        return judged("P1", UNKNOWN, f"{kind}. It has no density, so the codes were not compared with it.")
    away, shift = _apart(prior, z, seed), _weight_shift(prior, z)
    chance = 1.63 / math.sqrt(len(z)) + 1.63 / math.sqrt(10_000)
    beyond = max(away - chance, shift - chance)
    status = HOLDS if beyond <= NEAR else FAILS if beyond >= FAR else AMBIGUOUS
    if status != FAILS and len(z) < FEWEST:
        status = UNKNOWN
    asked = components_by_likelihood(z, prior.components, seed=seed)
    said = (
        f"{kind}. The log densities of {len(z)} codes and of draws from the prior differ by {away:.2g} "
        f"(Kolmogorov-Smirnov), the mean responsibilities and the weights by {shift:.2g}. Held-out likelihood selects "
        f"{asked} components for the codes."
    )
    if status == UNKNOWN:
        said += f" A test needs at least {FEWEST} codes."
    numbers = {"log_density_distance": away, "weight_distance": shift, "components_by_likelihood": asked}
    return judged("P1", status, said, numbers=numbers)


def _apart(prior: GaussianMixture, z: Float, seed: int) -> float:
    from scipy.stats import ks_2samp

    return float(ks_2samp(prior.log_density(z), prior.log_density(prior.sample(10_000, seed=seed))).statistic)


def _weight_shift(prior: GaussianMixture, z: Float) -> float:
    return float(np.abs(prior.responsibilities(z).mean(0) - prior.weights).sum() / 2)


def components_by_likelihood(z: Float, about: int, *, seed: int = 0) -> int:
    """The fewest components whose held-out log likelihood is within one standard error of the best.

    Candidates are small numbers and numbers near `about`. Covariances are full, or diagonal above 20 latents. Latents
    are standardised first; constant ones are left out.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture as Fitted

    spread = z.std(0)
    varies = spread > FLAT * np.abs(z).max(0)
    if not varies.any():
        return 1
    z = (z[:, varies] - z[:, varies].mean(0)) / spread[varies]
    order = np.random.default_rng(seed).permutation(len(z))[:ROWS]
    half = len(order) // 2
    train, held = z[order[:half]], z[order[half:]]
    tried = sorted({1, 2, about // 2, about - 1, about, about + 1, about + 2, 2 * about} & set(range(1, half // 4)))
    if not tried:
        return 1
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for count in tried:
            kind = "full" if z.shape[1] <= 20 else "diag"
            fitted = Fitted(count, covariance_type=kind, reg_covar=1e-6, random_state=seed, n_init=2)
            scores[count] = fitted.fit(train).score_samples(held)
    best = max(tried, key=lambda count: scores[count].mean())
    for count in tried:
        lost = scores[best] - scores[count]
        if lost.mean() <= lost.std() / math.sqrt(len(held)):
            return count
    return best


def judge_data(outputs: Float, data: Any, *, seed: int = 0) -> Condition:
    """Test whether draws of the whole model, (n, p), differ from the data: energy distance with a permutation null.

    The test can only refute the model. The theorems are about the distribution of the data, so they say nothing about a
    model that does not fit it.
    """
    from scipy.spatial.distance import cdist

    x = to_numpy(as_matrix(data, "data")).astype(np.float64, copy=False)
    if x.shape[1] != outputs.shape[1]:
        raise InputError(f"data must have {outputs.shape[1]} columns, as the decoder has outputs, not {x.shape[1]}")
    rng = np.random.default_rng(seed)
    x, y = (rows[rng.permutation(len(rows))[:TABLE]] for rows in (x, outputs))
    gaps = cdist(np.vstack([x, y]), np.vstack([x, y]))
    side = np.repeat([1.0 / len(x), -1.0 / len(y)], [len(x), len(y)])

    def energy(signs: Float) -> float:
        return float(-signs @ gaps @ signs)

    seen = energy(side)
    chance = [energy(rng.permutation(side)) for _ in range(SHUFFLES)]
    p = (1 + sum(c >= seen for c in chance)) / (1 + SHUFFLES)
    typical = float(np.mean(chance))
    said = (
        f"The energy distance between draws of the model and the data is {seen:.3g}; its permutation null is "
        f"{typical:.3g} (p = {p:.2g})."
    )
    numbers = {"energy": seen, "chance": typical, "p": p}
    return judged("data", FAILS if p <= 0.01 else UNKNOWN, said, numbers=numbers)
