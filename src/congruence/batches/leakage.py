"""How well the batch can be predicted from embeddings: all features together, and feature by feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.batches._folds import Experiment, Screen
from congruence.ica.whitener import Whitener
from congruence.result import Record
from congruence.tables.table import as_labels

MOST_ROWS = 20_000  # used to predict the batch; more would change little
LEVEL = 1.96  # standard errors, for a 95 % level
DRAWS = 20_000  # for the 95 % level of a maximum
ORDERS = 99  # random assignments of batches to groups
LEAST_SHARE = 0.05  # of the variance between batches; groups that explain less are not worth a warning


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
class FeatureProfile(Record):
    """How much each feature of one condition depends on the batch, and on each target.

    The condition is fitted on all rows: this describes features and enters no score.
    """

    condition: str
    technical: Float  # (k,) share of the variance among controls that lies between batches, from 0 to 1
    biological: Float  # (targets, k) |2 A - 1| of the AUROC within batches, from 0 (none) to 1
    noise: Float  # (targets,) the 95 % level of a feature unrelated to the target
    level: float = float("nan")  # the 95 % level of `strongest` for a feature unrelated to all targets
    variance: float = float("nan")  # mean of `technical` before negative estimates are set to 0

    NAMES = ("technical", "biological", "noise", "entangled", "level")

    @property
    def strongest(self) -> Float:
        """How biological each feature is for the target it separates best, (k,)."""
        known = self.biological[np.isfinite(self.noise)]
        return np.asarray(known.max(0), dtype=float) if len(known) else np.full(self.biological.shape[1], np.nan)

    @property
    def entangled(self) -> Float:
        """Technical share of the features, weighted by how biological they are, (targets,); lower is cleaner."""
        weight = np.square(self.biological) * np.isfinite(self.technical)
        total = weight.sum(1)
        return np.asarray((weight * np.nan_to_num(self.technical)).sum(1) / np.where(total > 0, total, np.nan))


def profile_features(name: str, z: Array, screen: Screen, experiments: Sequence[Experiment]) -> FeatureProfile:
    """Profile every feature of z (n, k) on its own; the guides of a target count together."""
    use = screen.fitted_on
    positives = [
        np.any([one.positive for one in experiments if one.target == target], axis=0) & use
        for target in dict.fromkeys(one.target for one in experiments)
    ]
    control = screen.control & use
    covariance = _null_covariance(positives, control, screen.batch)
    biological = [_within(z, positive, control, screen.batch) for positive in positives]
    noise, level = LEVEL * np.sqrt(np.diag(covariance)), _highest_of(covariance)
    own = (z[control], screen.batch[control])
    return FeatureProfile(name, between_batches(*own), np.stack(biological), noise, level, mean_between_batches(*own))


def between_batches(x: Array, batch: Array) -> Float:
    """Share of the variance of each column of x (n, d) that lies between batches, (d,), from 0 to 1.

    Omega squared, whose expectation is about 0 if batches do not differ. NaN for a constant column.
    """
    return np.asarray(np.clip(_omega_squared(x, batch), 0.0, 1.0))


def mean_between_batches(x: Array, batch: Array) -> float:
    """Mean omega squared over the columns of x (n, d): the share of their variance between batches, from 0 to 1.

    Negative estimates of single columns count as such, so that the mean is about 0 if batches do not differ.
    """
    shares = _omega_squared(x, batch)
    known = shares[np.isfinite(shares)]
    return float(np.clip(known.mean(), 0.0, 1.0)) if len(known) else float("nan")


@dataclass(frozen=True)
class Nesting(Record):
    """Batches that belong to groups (plates to weeks) which differ, and are not held out whole."""

    column: str
    groups: int
    share: float  # of the variance between the batches' mean controls that lies between groups


def find_nesting(screen: Screen, metadata: Mapping[str, Array]) -> Nesting | None:
    """The column of the metadata that groups batches and explains most of their differences; None if none does.

    A column groups batches if it has one value in each batch, and the same value in several. Its share of the variance
    between the mean controls of batches must exceed `LEAST_SHARE` and 95 % of those of `ORDERS` random assignments.
    """
    batches, where = np.unique(screen.batch[screen.control], return_inverse=True)
    sums = np.zeros((len(batches), screen.x.shape[1]))
    np.add.at(sums, where.reshape(-1), screen.x[screen.control])
    means = sums / np.bincount(where.reshape(-1))[:, None]
    found = []
    for name, column in metadata.items():
        group = np.unique(as_labels(column), return_inverse=True)[1].reshape(-1)
        pairs = np.unique(np.column_stack([screen.batch, group]), axis=0)
        groups = len(np.unique(group))
        if len(pairs) != len(screen.batches) or not 2 <= groups < len(screen.batches):
            continue
        of_batch = pairs[batches, 1]  # pairs are sorted by batch, one for each
        rng = np.random.default_rng(51)
        share = mean_between_batches(means, of_batch)
        by_chance = [mean_between_batches(means, rng.permutation(of_batch)) for _ in range(ORDERS)]
        if share > LEAST_SHARE and 1 + np.sum(np.array(by_chance) >= share) <= 0.05 * (1 + ORDERS):
            found.append(Nesting(name, groups, share))
    return max(found, key=lambda one: one.share, default=None)


def _omega_squared(x: Array, batch: Array) -> Float:
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
    return np.where(varies, share, np.nan)


def _within(z: Array, positive: Array, control: Array, batch: Array) -> Float:
    """|2 A - 1| of the mean AUROC A within batches of each column, (k,)."""
    from scipy.stats import rankdata

    total, sums = 0, np.zeros(z.shape[1])
    for number in np.unique(batch[positive]):
        here = batch == number
        ones, others = np.flatnonzero(positive & here), np.flatnonzero(control & here)
        if not len(others):
            continue
        m, n = len(ones), len(others)
        ranks = rankdata(z[np.concatenate([ones, others])], axis=0)[:m].sum(0)
        sums += ranks / n - m * (m + 1) / (2 * n)  # m times the AUROC
        total += m
    return np.abs(2 * sums / total - 1) if total else np.full(z.shape[1], np.nan)


def _null_covariance(positives: Sequence[Array], control: Array, batch: Array) -> Float:
    """Covariance of 2 A - 1 between targets for a feature unrelated to all, (targets, targets); NaN without controls.

    Targets are compared with the same controls. Within a batch of n controls, the AUROC of m rows has the variance
    (m + n + 1) / (12 m n), and those of two targets have the covariance 1 / (12 n).
    """
    controls = np.bincount(batch[control], minlength=batch.max() + 1)
    with_controls = controls > 0
    m = np.stack([np.bincount(batch[one], minlength=len(controls)) for one in positives])[:, with_controls]
    covariance = (m / (12 * controls[with_controls])) @ m.T  # of sums over batches of m times the AUROC
    covariance += np.diag((m * (controls[with_controls] + 1) / (12 * controls[with_controls])).sum(1))
    total = np.where(m.sum(1) > 0, m.sum(1), np.nan)
    return np.asarray(4 * covariance / np.outer(total, total))


def _highest_of(covariance: Float) -> float:
    """The 95 % level of the largest absolute value of normal variables with this covariance; NaN ones do not count."""
    known = np.isfinite(np.diag(covariance))
    if not known.any():
        return float("nan")
    root = np.linalg.cholesky(covariance[np.ix_(known, known)])
    draws = np.random.default_rng(52).normal(size=(DRAWS, len(root))) @ root.T
    return float(np.quantile(np.abs(draws).max(1), 0.95))
