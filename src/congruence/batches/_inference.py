"""Uncertainty of mean AUROCs: held-out batches are the sampling units; p values are corrected by Holm's method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from congruence.arrays import Float
from congruence.result import Record, Status
from congruence.stats.intervals import student_quantile

if TYPE_CHECKING:
    from congruence.batches.deconfounding import Target

LEVEL = 0.05  # of tests, after correction for all comparisons of a table
FEWEST_UNITS = 3  # for an interval
ON_ALL = ", fitted on all"  # suffix of a condition fitted on all rows, if it is also fitted on training batches


class PairedNumbers(TypedDict):
    """The difference of two conditions in JSON; `status` is about the claim that `condition` is better."""

    condition: str
    reference: str
    difference: float
    low: float
    high: float
    folds: int
    units: int
    p: float
    adjusted: float
    comparisons: int
    status: Status


@dataclass(frozen=True)
class Paired(Record):
    """The difference of two conditions on the same held-out rows, with a 95 % interval and p values."""

    condition: str
    reference: str
    difference: float  # of mean AUROC; positive if `condition` is better
    low: float
    high: float
    folds: int  # with a score
    units: int = 0  # held-out batches, or clusters of batches, with a score: the units of the interval
    p: float = math.nan  # two-sided, of no difference
    adjusted: float = math.nan  # the same, corrected by Holm's method for all comparisons of its table
    comparisons: int = 1  # how many these are

    NAMES = tuple(PairedNumbers.__annotations__)

    @property
    def status(self) -> Status:
        """Whether `condition` is better: "holds", "fails" (worse), "ambiguous", or "unknown" without an interval."""
        if math.isnan(self.low):
            return "unknown"
        if self.adjusted > LEVEL:
            return "ambiguous"
        return "holds" if self.difference > 0 else "fails"


@dataclass(frozen=True)
class MeanAUROC:
    """A mean AUROC over targets, or a difference of two, with its standard error; NaN below three units."""

    value: float
    error: float
    df: float
    folds: int
    units: int

    def interval(self) -> tuple[float, float]:
        """The 95 % t interval of a difference, from -1 to 1."""
        half = self._half_width()
        return max(self.value - half, -1.0), min(self.value + half, 1.0)

    def auroc_interval(self) -> tuple[float, float]:
        """The 95 % t interval of an AUROC, on the scale arcsin(sqrt(AUROC)), which stabilises its variance near 1.

        NaN if all units are equal, since few may be so by chance.
        """
        if not (self.error > 0 and 0 < self.value < 1):
            return math.nan, math.nan
        angle, half = (
            math.asin(math.sqrt(self.value)),
            self._half_width() / math.sqrt(4 * self.value * (1 - self.value)),
        )
        return math.sin(max(angle - half, 0.0)) ** 2, math.sin(min(angle + half, math.pi / 2)) ** 2

    def _half_width(self) -> float:
        return student_quantile(self.df, 0.975) * self.error


def compare_folds(targets: Sequence[Target], condition: str, reference: str, protocol: str) -> Paired:
    """Difference of two conditions, the mean over targets, with a 95 % t interval over held-out batches.

    Every target counts once, and within it every experiment (a guide in a fold), as in the means of the conditions.
    """
    mean = estimate_mean(targets, condition, reference, protocol)
    names = (condition, reference)
    if math.isnan(mean.error):
        return Paired(*names, mean.value, math.nan, math.nan, mean.folds, mean.units)
    p = _two_sided(mean)
    return Paired(*names, mean.value, *mean.interval(), mean.folds, mean.units, p, p)


def estimate_mean(targets: Sequence[Target], condition: str, reference: str | None, protocol: str) -> MeanAUROC:
    """Mean AUROC of a condition, or its difference from a reference, over targets with a score.

    The mean is a sum of contributions of held-out batches (`auroc_by_unit`), or of clusters of batches that are held
    out together. Its variance is that of a sum over independent units around the mean of each target. Folds share most
    of their training rows, so the variance is multiplied by 1 + k / (k - 1) (Nadeau & Bengio 2003). With one model per
    batch, what a model contributes counts for its training batch and for each batch that it is scored on.
    """
    residuals: dict[int, float] = {}
    weights: dict[int, float] = {}
    means: list[float] = []
    folds: set[int] = set()
    for one in targets:
        values, parts = _contributions(one, condition, reference)
        good = np.isfinite(values)
        if not good.any():
            continue
        mean = float(values[good].mean())
        means.append(mean)
        folds |= {fold for (_, fold), known in zip(one.experiments, good, strict=True) if known}
        shares = np.isfinite(parts[good]) / np.maximum(np.isfinite(parts[good]).sum(1, keepdims=True), 1)
        sums, share = np.nansum(parts[good], axis=0), shares.sum(0)  # (units,)
        if one.trained is not None:
            np.add.at(sums, one.trained[good], values[good])
            np.add.at(share, one.trained[good], 1.0)
        sums, share = sums / good.sum(), share / good.sum()
        part = share / share.sum()
        left = 1.0 - 2.0 * part + np.square(part).sum()  # what the mean of the target leaves of a unit's variance
        for unit in np.flatnonzero(share):
            residual = (sums[unit] - share[unit] * mean) / math.sqrt(left[unit]) if left[unit] > 0 else 0.0
            residuals[int(unit)] = residuals.get(int(unit), 0.0) + residual
            weights[int(unit)] = weights.get(int(unit), 0.0) + part[unit]
    if not means:
        return MeanAUROC(math.nan, math.nan, math.nan, 0, 0)
    weight = np.array(list(weights.values())) / len(means)
    k = 1 + max(fold for one in targets for _, fold in one.experiments)
    inflation = 1.0 + k / (k - 1) if protocol == "folds" and k > 1 else 1.0
    variance = inflation * float(np.square(list(residuals.values())).sum()) / len(means) ** 2
    error = math.sqrt(variance) if len(weight) >= FEWEST_UNITS else math.nan
    return MeanAUROC(float(np.mean(means)), error, 1 / float(np.square(weight).sum()) - 1, len(folds), len(weight))


def _contributions(one: Target, condition: str, reference: str | None) -> tuple[Float, Float]:
    """The values of the experiments (m,), and what each unit contributes (m, units); folds where that is unknown."""
    score = one.scores[condition]
    other = None if reference is None else one.scores[reference]
    values = score.auroc if other is None else score.auroc - other.auroc
    if score.units is None or (other is not None and other.units is None):
        fold = np.array([number for _, number in one.experiments])
        return values, np.where(fold[:, None] == np.arange(fold.max() + 1), values[:, None], np.nan)
    return values, score.units if other is None or other.units is None else score.units - other.units


def _two_sided(mean: MeanAUROC) -> float:
    """The p value of a mean of 0."""
    from scipy.special import stdtr

    if mean.error == 0:  # equal in all units: the sign test
        return 1.0 if mean.value == 0 else 2.0 ** (1 - mean.units)
    return float(2 * stdtr(mean.df, -abs(mean.value) / mean.error))


def compare_conditions(
    targets: Sequence[Target], conditions: Sequence[str], protocol: str
) -> tuple[dict[str, Paired], tuple[Paired, ...]]:
    """Each condition against base, and the main one against its controls; p values are corrected for all of these."""
    others = [name for name in conditions if name != "base"]
    pairs = [(name, "base") for name in others]
    main = main_condition(targets, others)
    pairs += [(main, other) for other in ("rotated", "whitened") if main == "ica" and other in others]
    pairs += [(main + ON_ALL, main)] if main + ON_ALL in others else []
    known = correct({pair: compare_folds(targets, *pair, protocol) for pair in pairs})
    overall = {one.condition: one for one in known.values() if one.reference == "base"}
    return overall, tuple(one for one in known.values() if one.reference != "base")


def main_condition(targets: Sequence[Target], conditions: Sequence[str]) -> str:
    """The condition that the verdict is about: ICA, or else the one with the highest mean AUROC."""
    if "ica" in conditions:
        return "ica"
    means = {name: estimate_mean(targets, name, None, "batch").value for name in conditions}
    known = {name: value for name, value in means.items() if not math.isnan(value)}
    return max(known, key=lambda name: known[name]) if known else next(iter(conditions), "base")


def correct_targets(targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets with p values corrected for all targets and conditions together."""
    pairs = {(one.name, name): paired for one in targets for name, paired in one.paired.items()}
    known = correct(pairs)
    return tuple(replace(one, paired={name: known[one.name, name] for name in one.paired}) for one in targets)


def correct(pairs: Mapping[Any, Paired]) -> dict[Any, Paired]:
    """The same comparisons with p values that hold for all of them together (Holm 1979)."""
    adjusted = holm([one.p for one in pairs.values()]).tolist()
    many = sum(map(math.isfinite, adjusted))
    return {
        key: replace(one, adjusted=p, comparisons=many) for (key, one), p in zip(pairs.items(), adjusted, strict=True)
    }


def holm(p: Iterable[float]) -> Float:
    """P values corrected for their number (Holm 1979); NaN stays and does not count."""
    values = np.array(list(p), dtype=float)
    order = np.argsort(values, kind="stable")[: np.isfinite(values).sum()]  # NaN is last
    steps = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1))
    values[order] = np.minimum(steps, 1.0)
    return values


def benjamini_hochberg(p: Iterable[float]) -> Float:
    """P values corrected for the false discovery rate (Benjamini & Hochberg 1995); NaN stays and does not count."""
    from scipy.stats import false_discovery_control

    values = np.array(list(p), dtype=float)
    known = np.isfinite(values)
    values[known] = false_discovery_control(values[known]) if known.any() else values[known]
    return values
