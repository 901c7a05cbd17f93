"""`FeatureMatch`: which features of dictionaries come back, compared with chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Array, Float
from congruence.features._matching import Null
from congruence.features.dictionary import CodeStatistics, Dictionary
from congruence.formatting import percent
from congruence.result import Finding, Result, Status
from congruence.stats.intervals import NO_INTERVAL, jackknife_interval

LEVELS = np.round(np.arange(0.05, 1.0, 0.05), 2)  # cosines of the curve of shares
ROUNDING = 1e-5  # of cosines in float32
EXPLAINED = 0.8  # squared cosine from which on a feature counts as a combination of others


@dataclass(frozen=True, eq=False)
class Split:
    """Features without a partner: how much of each lies in the span of three features of the other dictionary."""

    features: Array  # (l,) a sample of those without a partner
    explained: Float  # (l,) squared cosine with the span
    parts: Array  # (l, 3) the features that span it
    by_chance: Float  # (l,) the same with a null dictionary of the same covariance

    @property
    def share(self) -> float:
        """The share that lies in the span to at least `EXPLAINED`."""
        return float(np.mean(self.explained >= EXPLAINED))

    @property
    def chance(self) -> float:
        """The same share with a null dictionary."""
        return float(np.mean(self.by_chance >= EXPLAINED))


@dataclass(frozen=True, eq=False)
class PairMatch:
    """The matching of two dictionaries."""

    source: str
    target: str
    partner: Array  # (m_a,) matched feature of the target, -1 for none
    cosine: Array  # (m_a,) with it; NaN for none
    nearest: Array  # (m_a,) nearest feature of the target, matched or not
    nearest_cosine: Array  # (m_a,)
    back_cosine: Array  # (m_b,) of the nearest feature of the source
    null: Null
    least: float  # cosine from which on a matched feature comes back
    full: tuple[float, float]  # bounds of the mean cosine of the best matching of all features
    soft: tuple[float, float]  # bounds of the same for the best transport of uniform weights, also between sizes
    distinct: float  # share of those that come back whose partner is nearer than their own dictionary; NaN for none
    split: Split | None  # features of the source without a partner
    merged: Split | None  # features of the target without a partner
    thinned: bool

    @property
    def comes_back(self) -> Array:
        """Whether each feature of the source comes back, (m_a,)."""
        return np.nan_to_num(self.cosine, nan=-2.0) >= self.least

    @property
    def share(self) -> float:
        """The share of the features of the source that come back."""
        return float(self.comes_back.mean())

    @property
    def near(self) -> float:
        """The share whose nearest feature is as similar as required, whether or not it is the partner of another."""
        return float(np.mean(self.nearest_cosine >= self.least))

    @property
    def chance(self) -> float:
        """The share that comes back from a null dictionary."""
        return self.null.chance(self.least)

    @property
    def chance_limit(self) -> float:
        """The upper 95 % limit of `chance`."""
        null = max(self.null.matched.values(), key=lambda cosines: float(np.mean(cosines >= self.least)))
        return exact_interval(float((null >= self.least).sum()), len(null))[1]

    def curve(self) -> tuple[list[float], list[float]]:
        """The share of features, and the share by chance, that are matched with at least the cosines `LEVELS`."""
        known = np.nan_to_num(self.cosine, nan=-2.0)
        return [float((known >= t).mean()) for t in LEVELS], [self.null.chance(t) for t in LEVELS]


class FeatureNumbers(TypedDict):
    """The numbers of a match of features in JSON; lists by feature follow the order of `features`.

    `share` is that of the features of the first dictionary that come back in all others; `pairs` has one entry for
    each two dictionaries, with `partner` (null for none) and `cosine` of each feature of its source.
    """

    dictionaries: list[dict[str, Any]]
    share: float
    interval: list[float]
    interval_over: str
    chance: float
    mean_pair_share: float
    features: list[int]
    comes_back: list[bool]
    frequency: list[float] | None
    correlation: list[float] | None
    rotation_r2: dict[str, float]
    pairs: list[dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMatch(Result):
    """Which features of the first dictionary come back in the others.

    ``result["a", "b"]`` is the match of two dictionaries by name, a `PairMatch`.
    """

    dictionaries: tuple[Dictionary, ...]
    pairs: tuple[PairMatch, ...]  # of every two dictionaries
    codes: CodeStatistics | None  # of the first two
    labels: Array | None  # what is shown of the rows of the activations
    rotation: Mapping[str, float]  # held-out R² of the rotation into the space of the first
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def first_pairs(self) -> tuple[PairMatch, ...]:
        """The matches of the first dictionary with each other one."""
        return self.pairs[: len(self.dictionaries) - 1]

    @cached_property
    def comes_back(self) -> Array:
        """Whether each feature of the first dictionary comes back in all others, (m,)."""
        return np.asarray(np.all([pair.comes_back for pair in self.first_pairs], axis=0))

    @property
    def share(self) -> float:
        """The share of the features of the first dictionary that come back in all others."""
        return float(self.comes_back.mean())

    @property
    def chance(self) -> float:
        """The largest share that could come back in all others by chance: the smallest of single dictionaries."""
        return min(pair.chance for pair in self.first_pairs)

    @property
    def chance_limit(self) -> float:
        """The upper 95 % limit of `chance`, for as many features as were matched with null dictionaries."""
        return min(pair.chance_limit for pair in self.first_pairs)

    @property
    def _by_chance(self) -> str:
        return chance_text(self.chance, self.chance_limit)

    @property
    def mean_pair_share(self) -> float:
        """The share that comes back from one dictionary to another, averaged over all pairs."""
        return float(np.mean([pair.share for pair in self.pairs]))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `share` for other features (Clopper-Pearson); for other seeds see `over_seeds`."""
        return exact_interval(float(self.comes_back.sum()), len(self.comes_back))

    @cached_property
    def over_seeds(self) -> tuple[float, float]:
        """The 95 % interval of `mean_pair_share` for other seeds (jackknife); NaN for fewer than three dictionaries."""
        return jackknife_pairs([pair.share for pair in self.pairs], len(self.dictionaries))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Two findings: more features come back than by chance, and the required share does."""
        low, high = self.interval
        evidence = f"{percent(self.share)} come back ({percent(low)} to {percent(high)}), chance is {self._by_chance}"
        more: dict[str, Any] = {"number": self.share, "interval": (low, high), "null": self.chance}
        more["evidence"] = evidence
        not_above: Status = "fails" if self._one_space_known and self._testable else "unknown"
        above: Status = "holds" if low > self.chance_limit else not_above
        require = float(self.settings["require"])
        most: Status = above if above != "holds" else "holds" if low >= require else "ambiguous"
        return (
            Finding("above_chance", "More features come back than by chance.", above, **more),
            Finding("come_back", f"At least {100 * require:g} % of the features come back.", most, **more),
        )

    @property
    def _one_space_known(self) -> bool:
        """Whether features that do not match cannot be the same ones in another space."""
        return bool(self.settings["aligned"]) or bool(self.rotation) or self.codes is not None

    @property
    def _testable(self) -> bool:
        """Whether equal features would exceed chance; not in one dimension, for example."""
        return all(pair.least < 1 - ROUNDING for pair in self.first_pairs)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The answer, then details."""
        others = self.dictionaries[1:]
        where = {1: others[0].name, 2: "both other dictionaries"}.get(len(others), f"all {len(others)} others")
        m = len(self.comes_back)
        answer = f"{percent(self.share)} of {m:,} features come back in {where}; chance is {self._by_chance}."
        lines = [answer]
        if self.findings[0].status != "holds":
            testable = "" if self._testable else " Equal features could not exceed chance either."
            space = "" if self._one_space_known else ", unless the spaces differ"
            lines.append(f"That is no more than chance{space}.{testable}")
        elif self.findings[1].status == "ambiguous":
            require = float(self.settings["require"])
            few = "but fewer" if self.share < require else "but for other features it may be fewer"
            lines.append(f"That is more than chance, {few} than the required {100 * require:g} %.")
        if len(others) > 1:
            low, high = self.over_seeds
            over = f" ({percent(low)} to {percent(high)} for other seeds)" if math.isfinite(low) else ""
            lines.append(f"From one dictionary to another, {percent(self.mean_pair_share)} come back{over}.")
        # The choice of 0.7 is a convention: the share at other required cosines above the chance limit.
        least = max(pair.least for pair in self.first_pairs)
        limit = max(pair.null.limit for pair in self.first_pairs)
        nearby = [cosine for cosine in (least - 0.1, least + 0.1) if limit <= cosine < 1]
        shares = " and of ".join(f"{cosine:.2g} it would be {percent(self.share_at(cosine))}" for cosine in nearby)
        lines += [f"With a required cosine of {shares}."] if nearby else []
        pair = self.pairs[0]
        lonely = float((pair.partner < 0).mean())
        if lonely:
            lines.append(f"{percent(lonely)} of the features of {pair.source} have no partner beyond chance.")
        return tuple(lines)

    def share_at(self, similarity: float) -> float:
        """The share of features of the first dictionary that are matched in all others with at least this cosine.

        Features are matched above the chance limit only, so that a smaller cosine than that gives the share at it.
        """
        known = [np.nan_to_num(pair.cosine, nan=-2.0) >= similarity for pair in self.first_pairs]
        return float(np.all(known, axis=0).mean())

    @property
    def verdict(self) -> str:
        """How many features come back, and how many would by chance."""
        return " ".join(self.headlines[:2])

    def parts(self) -> dict[tuple[str, str], PairMatch]:
        """The matches by the names of both dictionaries."""
        return {(pair.source, pair.target): pair for pair in self.pairs}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per feature of the first dictionary: its partner and cosine in every other one."""
        first = self.dictionaries[0]
        for at in range(first.m):
            row: dict[str, Any] = {"feature": int(first.number[at]), "comes_back": bool(self.comes_back[at])}
            for pair, other in zip(self.first_pairs, self.dictionaries[1:], strict=True):
                partner = int(pair.partner[at])
                row[f"partner in {other.name}"] = int(other.number[partner]) if partner >= 0 else None
                row[f"cosine in {other.name}"] = float(pair.cosine[at])
                row[f"nearest cosine in {other.name}"] = float(pair.nearest_cosine[at])
            if self.codes is not None:
                row |= {"frequency": float(self.codes.frequency[at]), "correlation": float(self.codes.correlation[at])}
            yield row

    def numbers(self) -> FeatureNumbers:
        """Shares, intervals and chance, and the partner of every feature."""
        first, codes = self.dictionaries[0], self.codes
        return {
            "dictionaries": [
                {"name": one.name, "features": one.m, "zero": one.size - one.m, "d": one.d} for one in self.dictionaries
            ],
            "share": self.share,
            "interval": list(self.interval),
            "interval_over": "features",
            "chance": self.chance,
            "mean_pair_share": self.mean_pair_share,
            "features": first.number.tolist(),
            "comes_back": self.comes_back.tolist(),
            "frequency": None if codes is None else codes.frequency.tolist(),
            "correlation": None if codes is None else codes.correlation.tolist(),
            "rotation_r2": dict(self.rotation),
            "pairs": [self._pair_numbers(pair) for pair in self.pairs],
        }

    def _pair_numbers(self, pair: PairMatch) -> dict[str, Any]:
        numbers = {one.name: one.number for one in self.dictionaries}
        target = numbers[pair.target]
        split, merged = (
            None if s is None else {"share": s.share, "chance": s.chance} for s in (pair.split, pair.merged)
        )
        return {
            "source": pair.source,
            "target": pair.target,
            "share": pair.share,
            "chance": pair.null.share(pair.least),
            "chance_limit": pair.null.limit,
            "least_cosine": pair.least,
            "nearest_share": pair.near,
            "distinct_share": pair.distinct,
            "mean_largest_cosine": float(pair.nearest_cosine.mean()),
            "full_matching_mean": list(pair.full),
            "soft_matching_mean": list(pair.soft),
            "explained_by_three": split,
            "explaining_three": merged,
            "partner": [int(target[at]) if at >= 0 else None for at in pair.partner],
            "cosine": pair.cosine.tolist(),
        }


def chance_text(chance: float, limit: float) -> str:
    """A share by chance in words; if none was observed, its upper limit."""
    return percent(chance) if chance > 0 else f"below {percent(limit, digits=1)}"


def exact_interval(count: float, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Clopper & Pearson 1934)."""
    from scipy.stats import beta

    if of == 0:
        return NO_INTERVAL
    low = float(beta.ppf(0.025, count, of - count + 1)) if count > 0 else 0.0
    high = float(beta.ppf(0.975, count + 1, of - count)) if count < of else 1.0
    return low, high


def jackknife_pairs(values: list[float], units: int) -> tuple[float, float]:
    """The 95 % interval of a mean over all pairs of units, by leaving out one unit at a time, with Student's t."""
    if units < 3:
        return NO_INTERVAL
    at = [(i, j) for i in range(units) for j in range(i + 1, units)]
    left = [float(np.mean([v for v, pair in zip(values, at, strict=True) if k not in pair])) for k in range(units)]
    low, high = jackknife_interval(float(np.mean(values)), left)
    return max(0.0, low), min(1.0, high)
