"""P1 on a fitted model: do codes follow the prior, how many components do they ask for, does the model fit data?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.mixture.gmm import FLAT, GaussianMixture
from congruence.mixture.verdicts import AMBIGUOUS, CERTIFIED, FAILS, HOLDS, NOTHING, SUPPORTED, UNKNOWN, Condition

NEAR, FAR = 0.05, 0.15  # distance of two distributions, beyond chance: as good as the same, or clearly not
FEWEST = 100  # codes: with fewer, chance alone is larger than what counts as far
ROWS = 4000  # of codes that mixtures are fitted to, half of them held out
TABLE = 500  # rows on each side of the test on data
SHUFFLES = 99


def judge_prior(prior: GaussianMixture, codes: Any = None, *, seed: int = 0) -> Condition:
    """P1: the prior is a Gaussian mixture by construction; codes, (n, m), show whether the model lives up to it.

    Compared are the log densities of codes with those of draws from the prior, and the mean responsibilities with the
    weights. Beside it stands the number of components that held-out likelihood asks for. Fewer than 100 codes can
    refute the prior and not support it. Of a model that fits, draws of the posterior follow the prior; its means, which
    `encode` gives, spread less where posteriors are wide, and can then refute a prior that is right.
    """
    kind = f"The prior is a mixture of {prior.components} Gaussians of {prior.dimension} latents by construction"
    if prior.degenerate:
        kind += f" ({len(prior.degenerate)} of them degenerate, which P1 allows)"
    if codes is None:
        return Condition("P1", HOLDS, f"{kind}; no codes were given to compare with it.", CERTIFIED)
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)
    if z.shape[1] != prior.dimension:
        raise InputError(f"codes must have {prior.dimension} columns, as the prior has latents, not {z.shape[1]}")
    if prior.degenerate:
        return Condition("P1", UNKNOWN, f"{kind}; without a density codes are not compared with it.", NOTHING)
    away, shift = _apart(prior, z, seed), _weight_shift(prior, z)
    chance = 1.63 / math.sqrt(len(z)) + 1.63 / math.sqrt(10_000)
    beyond = max(away - chance, shift - chance)
    status = HOLDS if beyond <= NEAR else FAILS if beyond >= FAR else AMBIGUOUS
    if status != FAILS and len(z) < FEWEST:
        status = UNKNOWN
    asked = components_by_likelihood(z, prior.components, seed=seed)
    said = (
        f"{kind}. Log densities of {len(z)} codes and of draws differ by {away:.2g} (Kolmogorov-Smirnov), mean "
        f"responsibilities and weights by {shift:.2g}; held-out likelihood asks codes for {asked} components."
    )
    if status == UNKNOWN:
        said += f" So few codes would hardly show a difference; it takes {FEWEST}."
    numbers = {"log_density_distance": away, "weight_distance": shift, "components_by_likelihood": asked}
    return Condition("P1", status, said, SUPPORTED if status in (HOLDS, FAILS) else NOTHING, numbers=numbers)


def _apart(prior: GaussianMixture, z: Float, seed: int) -> float:
    from scipy.stats import ks_2samp

    return float(ks_2samp(prior.log_density(z), prior.log_density(prior.sample(10_000, seed=seed))).statistic)


def _weight_shift(prior: GaussianMixture, z: Float) -> float:
    return float(np.abs(prior.responsibilities(z).mean(0) - prior.weights).sum() / 2)


def components_by_likelihood(z: Float, about: int, *, seed: int = 0) -> int:
    """The fewest components whose held-out log likelihood is within one standard error of the best.

    Tried are numbers about `about`, and few; mixtures have full covariances, or diagonal ones past 20 latents. Latents
    are scaled to a deviation of 1 before, and those that do not vary are left out.
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
    """Whether draws of the whole model, (n, p), look like the data: the energy distance beside shuffled labels.

    It can only speak against the model. The theorems are about the law of the data, so that they say nothing about a
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
    said = f"Draws of the model and data have an energy distance of {seen:.3g}, by chance {typical:.3g} (p = {p:.2g})."
    numbers = {"energy": seen, "chance": typical, "p": p}
    return Condition("X", FAILS if p <= 0.01 else UNKNOWN, said, SUPPORTED if p <= 0.01 else NOTHING, numbers=numbers)
