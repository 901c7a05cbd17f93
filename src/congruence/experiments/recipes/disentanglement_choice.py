"""Which weight decay and training step `disentanglement` takes for each row of its table, with labels and without."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.experiments.recipes.disentanglement_scores import BESIDE, SCORES, WAYS, ways_of
from congruence.experiments.recipes.disentanglement_trainings import Setting
from congruence.parts import Arrays

WORSE = 10 * math.log10(2)  # decibels below the best candidate of a model: twice its squared error
RULE = (
    "Of all evaluated weight decays and steps, those are kept whose PSNR, averaged over seeds, is at most 3 dB below "
    "the best of the model (twice the squared error); of these the one with the highest InfoM, averaged over seeds, is "
    "chosen. This is best-case performance, as in the paper: the same labels are used to choose and to score"
)
SURE = 0.975


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model with a weight decay at one step of its training, with all its seeds."""

    setting: Setting
    look: int
    step: int
    psnr: float  # mean over seeds
    scores: Float  # (seeds, ways, 3)
    counted: Float  # (ways,) active codes, mean over seeds
    agreement: Float  # (ways,) mean correlation of matched codes of two seeds; NaN for one seed
    nearness: Float  # (4,) permutation before and after ICA, rotation, and null, mean over pairs; NaN for one seed
    defects: Float  # (seeds,) isometry defects; NaN where there is no decoder of numbers
    active: float  # directions that the decoder uses, mean over seeds
    spectrum: Float  # (latents,) singular values, mean over seeds
    readouts: Float  # (seeds,) InfoM of least-squares readouts of the factors; NaN where they were not asked for

    @property
    def defect(self) -> float:
        """The isometry defect, mean over seeds."""
        return float(self.defects.mean())

    def values(self, way: str, score: str = "infom") -> Float:
        """A score of every seed in one way, (seeds,)."""
        found: Float = self.scores[:, ways_of(self.setting).index(way), SCORES.index(score)]
        return found

    def mean(self, way: str, score: str = "infom") -> float:
        """A score in one way, mean over seeds."""
        return float(self.values(way, score).mean())


@dataclass(frozen=True, eq=False)
class Row:
    """One row of the table: a model as it was chosen, with its scores."""

    name: str
    candidate: Candidate
    way: str
    judged: Mapping[str, Float]  # of each score (seeds, 3): value, and the ends of its interval over rows

    def values(self, score: str = "infom") -> Float:
        """A score of every seed, (seeds,)."""
        return self.judged[score][:, 0]

    def interval(self, score: str = "infom") -> tuple[float, float, float]:
        """Mean and 95 % interval over seeds or, of one seed, value and 90 % interval over rows."""
        found = self.judged[score]
        if len(found) == 1:
            mean, low, high = (float(value) for value in found[0])
            return mean, low, high
        return over_seeds(found[:, 0])

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        one = self.candidate
        told: dict[str, Any] = {"weight_decay": one.setting.decay, "step": one.step, "seeds": one.setting.seeds}
        told |= {"psnr": one.psnr, "interval_over": "seeds" if one.setting.seeds > 1 else "rows"}
        for score in (*SCORES, *BESIDE):
            mean, low, high = self.interval(score)
            told[score] = {"mean": mean, "low": low, "high": high, "of_seeds": self.values(score).tolist()}
        return told


def candidates_of(
    setting: Setting,
    steps: Sequence[int],
    scores: Sequence[Arrays],
    pairs: Arrays | None,
    read: Sequence[Arrays] | None = None,
) -> list[Candidate]:
    """Every look at a setting, from the scores of its seeds, the agreement of their pairs, and their readouts."""
    found = []
    for i, step in enumerate(steps):
        has_decoder = "defect" in scores[0]
        nan, ways = math.nan, ways_of(setting)
        near = np.full(4, nan)
        if pairs is not None and pairs["mcc"].shape[1]:
            near = np.append(pairs["nearness"][i].mean(0), pairs["null"][i].mean())
        found.append(
            Candidate(
                setting=setting,
                look=i,
                step=step,
                psnr=float(np.mean([one["psnr"][i] for one in scores])),
                scores=np.stack([one["scores"][i] for one in scores]),
                counted=np.mean([one["counted"][i] for one in scores], axis=0),
                agreement=np.full(len(ways), nan) if np.isnan(near[0]) or pairs is None else pairs["mcc"][i].mean(0),
                nearness=near,
                defects=np.array([one["defect"][i] if has_decoder else nan for one in scores]),
                active=float(np.mean([one["active"][i] if has_decoder else nan for one in scores])),
                spectrum=np.mean([one["spectrum"][i] for one in scores], axis=0) if has_decoder else np.zeros(0),
                readouts=np.array([nan] if read is None else [one["infom"][i] for one in read]),
            )
        )
    return found


def reconstructing(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those whose pictures are at most twice as wrong as the best: the reconstruction filter."""
    best = max(one.psnr for one in candidates)
    return [one for one in candidates if one.psnr >= best - WORSE]


def choose(candidates: Sequence[Candidate], way: str) -> Candidate:
    """The candidate of one model with the highest InfoM among those that reconstruct; see `RULE`."""
    return max(reconstructing(candidates), key=lambda one: _or_least(one.mean(way)))


def choose_by_agreement(candidates: Sequence[Candidate]) -> Candidate | None:
    """Without labels: the one whose codes of different seeds agree best after ICA; None where there is one seed."""
    known = [one for one in reconstructing(candidates) if math.isfinite(one.agreement[WAYS.index("ica")])]
    return max(known, key=lambda one: float(one.agreement[WAYS.index("ica")]), default=None)


def choose_by_isometry(candidates: Sequence[Candidate]) -> Candidate:
    """Without labels, and with one seed: the one whose decoder is nearest to an isometry on its active directions."""
    return min(reconstructing(candidates), key=lambda one: one.defect)


def over_seeds(values: Float) -> tuple[float, float, float]:
    """Mean and 95 % interval by Student's t, as the paper has it; NaN ends for one value."""
    from scipy.stats import t

    n, mean = len(values), float(values.mean())
    if n < 2:
        return mean, math.nan, math.nan
    half = float(t.ppf(SURE, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return mean, mean - half, mean + half


def over_data(values: Sequence[Float]) -> tuple[float, float, float]:
    """Mean over data sets of the means of their seeds, and a 95 % interval from how seeds differ on each.

    NaN ends where no data set has several seeds; one with a single seed is taken to vary as the others do.
    """
    from scipy.stats import t

    mean = float(np.mean([one.mean() for one in values]))
    freedom = sum(len(one) - 1 for one in values)
    if freedom == 0:
        return mean, math.nan, math.nan
    variance = sum(float(((one - one.mean()) ** 2).sum()) for one in values) / freedom
    error = math.sqrt(sum(variance / len(one) for one in values)) / len(values)
    half = float(t.ppf(SURE, freedom)) * error
    return mean, mean - half, mean + half


def difference(first: Row, second: Row) -> tuple[float, float, float]:
    """How much higher the InfoM of one row is than that of another, with a 95 % interval over seeds.

    Paired where both rows are of the same trainings; else by Welch's t. A row of one seed is taken to vary as much as
    the other. NaN ends where both have one.
    """
    from scipy.stats import t

    a, b = first.values(), second.values()
    same = first.candidate.setting == second.candidate.setting and first.candidate.look == second.candidate.look
    if same:
        return over_seeds(a - b)
    gap = float(a.mean() - b.mean())
    if max(len(a), len(b)) < 2:
        return gap, math.nan, math.nan
    spread = [float(one.var(ddof=1)) if len(one) > 1 else math.nan for one in (a, b)]
    known = [value for value in spread if math.isfinite(value)]
    errors = [
        (value if math.isfinite(value) else known[0]) / len(one) for value, one in zip(spread, (a, b), strict=True)
    ]
    total = sum(errors)
    freedoms = [error**2 / (len(one) - 1) for error, one in zip(errors, (a, b), strict=True) if len(one) > 1]
    if total == 0:
        return gap, gap, gap
    freedom = total**2 / sum(freedoms) if len(freedoms) == 2 else max(len(a), len(b)) - 1
    half = float(t.ppf(SURE, freedom)) * math.sqrt(total)
    return gap, gap - half, gap + half


def _or_least(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
