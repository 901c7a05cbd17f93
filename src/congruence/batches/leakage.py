"""How well the batch can be predicted from embeddings: all features together, and feature by feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._rows import Experiment, Screen
from congruence.ica.whitener import Whitener

MOST_ROWS = 20_000  # used to predict the batch; more would change little
LEVEL = 1.96  # standard errors, for a 95 % level


def predict_batch(x: Array, batch: Array, seed: int = 0) -> tuple[float, float]:
    """Balanced accuracy of a linear prediction of the batch, and its chance level, on rows held out within batches.

    Half of each batch trains a linear discriminant (class means, one covariance, shrunk as Chen et al. 2010), the other
    half scores it. 1 means that the batch is always predicted; chance is 1 / batches. Invariant to shifts and
    rotations; an invertible linear map only changes the effect of the shrinkage. Batches with fewer than four rows are
    left out; NaN if fewer than two remain.
    """
    rng = np.random.default_rng([seed, 31])
    rows = rng.permutation(len(x))[:MOST_ROWS]
    sizes = np.bincount(batch[rows])
    rows = rows[sizes[batch[rows]] >= 4]
    names, label = np.unique(batch[rows], return_inverse=True)
    if len(names) < 2:
        return float("nan"), float("nan")
    label = label.reshape(-1)
    within = np.empty(len(rows), dtype=int)  # the place of a row in its batch
    for number in range(len(names)):
        here = np.flatnonzero(label == number)
        within[here] = np.arange(len(here))
    learn = within % 2 == 0
    values = x[rows].astype(np.float64)
    means = np.stack([values[learn & (label == number)].mean(0) for number in range(len(names))])
    residuals = (values - means[label])[learn]
    if not np.ptp(residuals, axis=0).any():
        return float("nan"), float("nan")
    white = Whitener(shrinkage="auto").fit(residuals)
    centres, points = white.transform(means), white.transform(values[~learn])
    nearest = (np.square(centres).sum(1) - 2 * points @ centres.T).argmin(1)
    right = [float((nearest[label[~learn] == number] == number).mean()) for number in range(len(names))]
    return float(np.mean(right)), 1.0 / len(names)


@dataclass(frozen=True, eq=False)
class FeatureProfile:
    """How much each feature of one condition depends on the batch, and on each target.

    The condition is fitted on all rows: this describes features and enters no score.
    """

    condition: str
    technical: Float  # (k,) share of the variance among controls that lies between batches, from 0 to 1
    biological: Float  # (targets, k) |2 A - 1| of the AUROC within batches, from 0 (none) to 1
    noise: Float  # (targets,) the 95 % level of a feature unrelated to the target

    @property
    def strongest(self) -> Float:
        """How biological each feature is for the target it separates best, (k,)."""
        return np.asarray(self.biological.max(0), dtype=float)

    @property
    def entangled(self) -> Float:
        """Technical share of the features, weighted by how biological they are, (targets,); lower is cleaner."""
        weight = np.square(self.biological)
        total = weight.sum(1)
        return np.asarray((weight * self.technical).sum(1) / np.where(total > 0, total, np.nan))


def profile_features(name: str, z: Array, screen: Screen, experiments: Sequence[Experiment]) -> FeatureProfile:
    """Profile every feature of z (n, k) on its own; the guides of a target count together."""
    use = screen.fitted_on
    separations = []
    for target in dict.fromkeys(one.target for one in experiments):
        positive = np.any([one.positive for one in experiments if one.target == target], axis=0)
        separations.append(_within(z, positive & use, screen.control & use, screen.batch))
    technical = between_batches(z[screen.control & use], screen.batch[screen.control & use])
    biological, noise = zip(*separations, strict=True)
    return FeatureProfile(name, technical, np.stack(biological), np.array(noise))


def between_batches(x: Array, batch: Array) -> Float:
    """Share of the variance of each column of x (n, d) that lies between batches, (d,), from 0 to 1.

    Omega squared, whose expectation is 0 if batches do not differ. NaN for a constant column.
    """
    number = np.unique(batch, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(number)
    if len(sizes) < 2 or len(x) <= len(sizes):
        return np.full(x.shape[1], np.nan)
    centred = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    sums = np.zeros((len(sizes), x.shape[1]))
    np.add.at(sums, number, centred)
    between = (np.square(sums) / sizes[:, None]).sum(0)
    total = np.square(centred).sum(0)
    inner = (total - between) / (len(x) - len(sizes))
    varies = total > 1e-12 * np.square(x.astype(np.float64)).sum(0)
    share = (between - (len(sizes) - 1) * inner) / np.where(varies, total + inner, 1.0)
    return np.where(varies, np.clip(share, 0.0, 1.0), np.nan)


def _within(z: Array, positive: Array, control: Array, batch: Array) -> tuple[Float, float]:
    """|2 A - 1| of the mean AUROC A within batches of each column, (k,), and its 95 % level under chance."""
    from scipy.stats import rankdata

    total, sums, variance = 0, np.zeros(z.shape[1]), 0.0
    for number in np.unique(batch[positive]):
        here = batch == number
        ones, others = np.flatnonzero(positive & here), np.flatnonzero(control & here)
        if not len(others):
            continue
        m, n = len(ones), len(others)
        ranks = rankdata(z[np.concatenate([ones, others])], axis=0)[:m].sum(0)
        sums += ranks / n - m * (m + 1) / (2 * n)  # m times the AUROC
        variance += m * m * (m + n + 1) / (12 * m * n)
        total += m
    if not total:
        return np.full(z.shape[1], np.nan), float("nan")
    return np.abs(2 * sums / total - 1), float(LEVEL * 2 * np.sqrt(variance) / total)
