"""`Claim`: a statement, its source, and the rule that decides it, declared before the numbers are known.

The claims of a recipe are data: `texts/NAME.toml` has them, and what else the recipe says that no number decides.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from congruence.arrays import Float
from congruence.formatting import number
from congruence.result import Finding, Status, combine
from congruence.stats.intervals import jackknife_interval, t_interval

TEXTS = Path(__file__).with_name("texts")
SMOKE = "Not judged: the smoke scale only checks that the code runs."
NO_INTERVAL = "Not judged: too few trainings, or too few kept numbers of them, for an interval."


class Estimate(NamedTuple):
    """A measured value and its 95 % interval, usually over seeds; NaN ends where there are too few."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        value, low, high = (number(one, 2) for one in self)
        return value if self.low == self.high or math.isnan(self.low) else f"{value} ({low} to {high})"


def over_seeds(values: Float | Sequence[float]) -> Estimate:
    """The mean over seeds with its interval by Student's t; NaN ends below two seeds."""
    some = np.asarray(values, dtype=float)
    return Estimate(float(some.mean()) if len(some) else math.nan, *t_interval(some, fewest=2))


def difference(first: Sequence[float] | Float, second: Sequence[float] | Float) -> Estimate:
    """The mean of one sample minus that of another, with its interval by Welch's t; NaN ends below two values each."""
    from scipy.stats import ttest_ind

    a, b = (np.asarray(one, dtype=float) for one in (first, second))
    if min(len(a), len(b)) == 0:
        return Estimate(*[math.nan] * 3)
    gap = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(gap, math.nan, math.nan)
    if np.ptp(a) == np.ptp(b) == 0:
        return Estimate(gap, gap, gap)
    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return Estimate(gap, float(low), float(high))


def subtract(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two independent estimates: the squares of the halves of their intervals add."""
    gap = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(gap, gap - below, gap + above)


def over_trainings(statistic: Callable[[Sequence[int]], float], count: int) -> Estimate:
    """A statistic of `count` trainings, with its interval from leaving out each of them (jackknife, Tukey 1958).

    The interval is also valid for means over pairs, which share trainings. NaN ends below three trainings, or where the
    statistic is undefined without one of them.
    """
    every = range(count)
    value = statistic(every)
    left = [statistic([i for i in every if i != k]) for k in every] if count > 2 else []
    return Estimate(value, *jackknife_interval(value, left))


def over_pairs(values: Mapping[tuple[str, str], float]) -> Estimate:
    """The mean over pairs of trainings, which are named, with its jackknife interval over trainings."""
    names = sorted({name for ends in values for name in ends})

    def mean(kept: Sequence[int]) -> float:
        here = {names[i] for i in kept}
        some = [value for ends, value in values.items() if here.issuperset(ends)]
        return float(np.mean(some)) if some else math.nan

    return over_trainings(mean, len(names))


def share_of(statuses: Sequence[Status | None]) -> Estimate:
    """The share of cases for which something holds; the upper end counts those that cannot be decided, too.

    NaN if none was judged.
    """
    known = [one for one in statuses if one is not None]
    if set(known) <= {"unknown"}:
        return Estimate(*[math.nan] * 3)
    least = known.count("holds") / len(known)
    return Estimate(least, least, 1 - known.count("fails") / len(known))


@dataclass(frozen=True)
class Rule:
    """A range for a quantity. It holds if the whole interval lies in the range, and fails if all of it lies outside.

    An interval that is partly outside is ambiguous; a number that is undefined, or has no interval, is unknown. A lower
    limit of 0 must be exceeded: no difference is not a gain.
    """

    quantity: str
    low: float = -math.inf
    high: float = math.inf

    def status(self, measured: Estimate | float) -> Status:
        """Compare an estimate, or a number that is known exactly, with the range."""
        value, low, high = measured if isinstance(measured, Estimate) else (measured,) * 3
        if any(map(math.isnan, (value, low, high))):
            return "unknown"
        if self.low <= low and high <= self.high and not self.low == low == 0:
            return "holds"
        return "fails" if high < self.low or low > self.high or self.low == high == 0 else "ambiguous"

    def __str__(self) -> str:
        low, high = (number(one, 3) for one in (self.low, self.high))
        if math.isinf(self.low):
            return f"{self.quantity} is at most {high}"
        if self.low == 0:
            return f"{self.quantity} is above 0"
        return f"{self.quantity} is at least {low}" if math.isinf(self.high) else f"{self.quantity}: {low} to {high}"


@dataclass(frozen=True)
class Judgement(Finding):
    """A finding about a claim: with the claim's source and rule."""

    source: str = ""
    rule: str = ""
    margin: str = ""
    post_hoc: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, or of ours, and the rules that decide it. All rules must hold."""

    name: str
    statement: str
    source: str  # the paper and the section
    rules: tuple[Rule, ...]
    margin: str = "no margin: the sign decides"  # where the limits come from
    post_hoc: bool = False  # whether the rule was written, or changed, after numbers were seen

    def about(self, **words: object) -> Claim:
        """The claim about one data set, model or number of slots: fill in the placeholders of its texts."""
        rules = tuple(replace(rule, quantity=rule.quantity.format(**words)) for rule in self.rules)
        return replace(self, name=self.name.format(**words), statement=self.statement.format(**words), rules=rules)

    def each(self, count: int) -> Claim:
        """The claim about `count` cases, in each of which its rules must hold."""
        return replace(self, rules=self.rules * count)

    def judge(
        self, *measured: Estimate | float, evidence: str = "", null: float | None = None, unless: str = ""
    ) -> Judgement:
        """Judge the claim by one measurement for each rule; `unless` is a reason why it cannot be judged.

        The number of the judgement is that of the rule that decides: the first with the worst status.
        """
        statuses = [rule.status(one) for rule, one in zip(self.rules, measured, strict=True)]
        decides = measured[statuses.index(combine(statuses))]
        value, *interval = decides if isinstance(decides, Estimate) else (decides,)
        known = interval and not any(map(math.isnan, interval))
        estimates = [one for one in measured if isinstance(one, Estimate) and not math.isnan(one.value)]
        missing = any(math.isnan(end) for one in estimates for end in (one.low, one.high))
        if not unless and missing and combine(statuses) != "fails":
            unless = NO_INTERVAL
        return Judgement(
            self.name,
            self.statement,
            "unknown" if unless else combine(statuses),
            evidence=f"{unless} {evidence}".strip(),
            number=float(value),
            interval=(float(interval[0]), float(interval[1])) if known else None,
            null=null,
            source=self.source,
            rule="; ".join(dict.fromkeys(map(str, self.rules))) + ".",
            margin=self.margin,
            post_hoc=self.post_hoc,
        )


@cache
def read_text(name: str) -> dict[str, Any]:
    """The question, sentence and source of a recipe, its notes, terms and claims, and what the paper says in words."""
    return tomllib.loads((TEXTS / f"{name}.toml").read_text(encoding="utf-8"))


def read_claims(name: str) -> dict[str, Claim]:
    """The claims of a recipe by name; some names have placeholders, see `Claim.about`."""
    claims = [one | {"rules": tuple(Rule(**rule) for rule in one["rules"])} for one in read_text(name)["claims"]]
    return {one["name"]: Claim(**one) for one in claims}


def not_judged(finding: Finding, reason: str = SMOKE) -> Finding:
    """The same finding with the status "unknown" and the reason for it."""
    return replace(finding, status="unknown", basis=None, evidence=f"{reason} {finding.evidence}".strip())
