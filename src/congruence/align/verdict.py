"""From distortion, unexplained variance and the null to a verdict: is the difference only a rotation and a scale?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from congruence.align._distortion import Distortion
from congruence.align._notes import ROWS_PER_DIMENSION
from congruence.align.comparison import Pair, PairVerdict
from congruence.arrays import Array, Float
from congruence.formatting import count, fixed, interval, number, percent
from congruence.maps.dependence import Dependence
from congruence.maps.groups import GROUPS, Map
from congruence.maps.nearness import RELATED as RELATED
from congruence.maps.nearness import Nearness, Protocol
from congruence.result import Finding, Status
from congruence.stats.intervals import bootstrap_ratio

WORTHWHILE = 0.1  # a larger group must reduce the error by this share, beyond its interval, to be preferred
LEVEL = 0.05  # of the test against shifts of ordered rows
ENOUGH_UNITS = 30  # independent rows or clusters; with fewer, a wide interval does not mean that runs are unrelated
ROWS_FOR_A_ROTATION = 2  # per dimension; with fewer, even a true rotation cannot be found
DRAWS = 200  # of the bootstrap that compares two groups
PERFECT = 1e-6  # an error below this share of the diameter is float32 rounding
MOVED = 0.5  # of the distance to an unrelated row: a row with a larger error does not match
OUTLYING = 4.0  # robust standard deviations that separate such a row from the others
FAR = 10.0  # times the median distance from the mean
DISAGREE = 1.5  # factor between the ratios to chance with and without the largest errors
LARGE = ("ridge", "linear")  # groups larger than the claim

UP_TO = {
    "identity": "Without any map",
    "permutation": "Up to the order and signs of the dimensions",
    "rigid": "Up to a rotation",
    "similarity": "Up to rotation and scale",
    "ridge": "Up to a ridge regression",
    "linear": "Up to a linear map",
}
HEADLINES = {
    "identity": "No map is needed: the runs agree as they are, within the tolerance.",
    "shift": "Only a constant was added to every row.",
    "scale": "Only the scale changed, and possibly a constant was added.",
    "permutation": "Only the order and signs of the dimensions changed.",
    "rigid": "The difference is only a rotation.",
    "similarity": "The difference is only a rotation and a scale.",
    "within": "The difference is a rotation, a scale, and a distortion within the margin.",
    "noise": "The difference looks like a rotation and a scale plus noise.",
    "linear": "The difference is a linear map, more than a rotation and a scale.",
    "more": "The difference is more than a rotation and a scale.",
    "undecided": "The runs are related, but whether by more than a rotation and a scale is undecided.",
    "partly": "The runs are related, but too weakly to tell by which maps.",
    "none": "The runs are no more alike than unrelated ones.",
    "few": "There are too few rows to decide.",
    "dependent": "The rows depend on each other, so the runs cannot be judged yet.",
    "untested": "Whether the difference is a rotation was not tested: add similarity to the groups.",
    "no null": "There is no null to judge by: set nulls to at least 1.",
}


@dataclass(frozen=True)
class FarRows:
    """A few rows that hold most of the variance of a run, and the result without them."""

    count: int
    share: float  # of the variance
    without: Nearness
    verdict: PairVerdict


@dataclass(frozen=True)
class Evidence:
    """What a pair is judged by, in addition to the errors of its groups."""

    plan: Protocol
    d: int
    tolerance: float = 0.1  # the share of the variance that may be left unexplained
    distortion: Distortion | None = None
    dependence: Dependence | None = None
    maps: Mapping[str, Map] = field(default_factory=dict)
    moved: int = 0  # rows that match no better than unrelated ones
    far: FarRows | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.plan.unit)

    @property
    def unit(self) -> Array:
        """The cluster of each row, shape (n,)."""
        return self.plan.unit


def judge(groups: Mapping[str, Nearness], known: Evidence, *, name: str = "pair") -> PairVerdict:
    """Decide for one pair whether it differs only by a rotation and a scale.

    ================  =====================  ====================================
    distortion        unexplained            status
    ================  =====================  ====================================
    none              at most `tolerance`    holds
    none              more                   ambiguous: a rotation plus noise
    beyond `margin`   any                    fails
    undecided         any                    ambiguous, or unknown with few rows
    no better than chance                    fails, or unknown with few rows
    dependent rows, no null, not tested      unknown
    ================  =====================  ====================================

    A few rows that hold most of the variance are left out as well. Where the rest gives a worse answer, it counts;
    where it gives a better one, the status is ambiguous.
    """
    ladder = [groups[g] for g in GROUPS if g in groups]
    smallest = _smallest_sufficient(ladder, known.unit)
    status, key = _decide(ladder, smallest, known)
    reported = next((groups[g] for g in ("similarity", "rigid", *reversed(GROUPS)) if g in groups), None)
    headline = HEADLINES[key]
    if known.far is not None and known.far.verdict.status != status:
        rest, order = known.far.verdict, ("fails", "unknown", "ambiguous", "holds")
        if order.index(rest.status) < order.index(status):
            status, headline = rest.status, rest.headline
        else:  # a few rows of one run are far from all others, and the rest matches
            status = "ambiguous"
            headline = f"{rest.headline.removesuffix('.')}, except for {known.far.count} of {known.n} far rows."
    if known.moved and status in ("holds", "ambiguous"):
        headline = f"{headline.removesuffix('.')}, except for {known.moved} of {known.n} rows."
    finding = Finding(
        name,
        "The difference is only a rotation and a scale.",
        status,
        evidence=" ".join(_sentences(reported, groups, known)) if reported else "",
        number=reported.of_chance.mean if reported else None,
        interval=(reported.of_chance.low, reported.of_chance.high) if reported else None,
        null=1.0 if reported else None,
        premises=tuple(_premises(reported, known)) if reported else (),
    )
    return PairVerdict(finding, smallest.group if smallest else "none", headline, known.moved)


def _decide(ladder: Sequence[Nearness], smallest: Nearness | None, known: Evidence) -> tuple[Status, str]:
    """The status of the claim, and the key of its headline."""
    claims = [near for near in ladder if near.group not in LARGE]
    explained = [claim for claim in claims if _explains(claim, known.tolerance)]
    distortion = known.distortion.status if known.distortion else "unknown"
    if not any(claim.group in ("rigid", "similarity") for claim in claims):
        return ("holds", _kind(explained, known)) if explained else ("unknown", "untested")
    exact = any(claim.held_out.mean <= PERFECT for claim in explained)
    if exact or (explained and distortion == "holds" and np.isnan(explained[-1].null)):
        return "holds", _kind(explained, known)
    if np.isnan([near.null for near in ladder]).any():
        return "unknown", "no null"
    if known.dependence is not None and known.dependence.matters:
        return "unknown", "dependent"
    if distortion == "fails":
        linear = [near for near in ladder if near.group in LARGE and _explains(near, known.tolerance)]
        return "fails", "linear" if linear else "more"
    if distortion == "holds" and explained and smallest is not None:
        return _within(ladder, explained, known)
    if known.n < ROWS_FOR_A_ROTATION * known.d:
        return "unknown", "few"  # such rows do not determine a rotation, so not finding one says nothing
    if smallest is None:
        return ("fails", "none") if known.plan.units >= ENOUGH_UNITS else ("unknown", "few")
    if not explained and known.distortion is not None and known.distortion.measured < known.distortion.margin:
        # a direction that one run lost is not tested, but a linear map finds it
        return "ambiguous", "undecided" if _linear_is_better(ladder, claims[-1], known) else "noise"
    if known.n < ROWS_PER_DIMENSION * known.d:
        return "unknown", "few"
    return "ambiguous", "undecided" if distortion == "ambiguous" else "partly"


def _explains(near: Nearness, tolerance: float) -> bool:
    """Whether the share of the variance left unexplained is at most the tolerance, with its upper limit."""
    least = near.r2.low if math.isfinite(near.r2.low) else near.r2.mean
    return near.held_out.mean <= PERFECT or 1 - least <= tolerance


def _within(ladder: Sequence[Nearness], explained: Sequence[Nearness], known: Evidence) -> tuple[Status, str]:
    """The answer where no gain is beyond the margin: "only" is not said where a linear map is clearly better."""
    if _linear_is_better(ladder, explained[-1], known):
        return "ambiguous", "undecided"
    better = [near for near in ladder if near.group in LARGE and clearly_better(near, explained[-1], known.unit)]
    return "holds", "within" if better else _kind(explained, known)


def _linear_is_better(ladder: Sequence[Nearness], best: Nearness, known: Evidence) -> bool:
    """Whether a linear map explains clearly more, by more of the variance than gains within the margin could give."""
    least = best.r2.mean + (known.distortion.margin**2 if known.distortion else 0.0)
    large = [near for near in ladder if near.group in LARGE and near.r2.mean > least]
    return any(clearly_better(near, best, known.unit) for near in large)


def _kind(explained: Sequence[Nearness], known: Evidence) -> str:
    """The smallest kind of map that suffices, among those that explain the difference."""
    group = (_smallest_sufficient(explained, known.unit) or explained[0]).group
    h = known.maps.get(group)
    if h is None or group == "identity" or not np.allclose(h.matrix, h.scale * np.eye(h.width), atol=1e-3 * h.scale):
        return group
    if abs(h.scale - 1) > 1e-3:
        return "scale"
    shift = np.linalg.norm(h.target_mean - h.source_mean)
    return "shift" if shift > 1e-3 * np.linalg.norm(h.target_mean) + PERFECT else "identity"


def _smallest_sufficient(ladder: Sequence[Nearness], unit: Array | None) -> Nearness | None:
    """The smallest group that is better than the null and that no larger group clearly improves upon."""
    related = [
        near
        for near in ladder
        if near.held_out.mean <= PERFECT
        or (near.of_chance.mean < RELATED and not near.of_chance.high >= 1 and not near.p > LEVEL)
    ]
    for i, near in enumerate(related):
        if not any(clearly_better(larger, near, unit) for larger in related[i + 1 :]):
            return near
    return None


def clearly_better(a: Nearness, b: Nearness, unit: Array | None = None) -> bool:
    """Whether the held-out error of a is below that of b on the same rows, by a tenth and beyond the interval."""
    if b.held_out.mean <= PERFECT or not a.held_out.mean < (1 - WORTHWHILE) * b.held_out.mean:
        return False
    unit = np.arange(len(a.errors)) if unit is None else unit
    return bootstrap_ratio(a.errors, b.errors, unit, DRAWS, 0)[1] < 1


def count_moved(errors: Float, squared_lengths: Float) -> int:
    """The number of rows that match no better than unrelated ones, while the others match.

    `errors` are held-out distances, `squared_lengths` those of the target's rows from their mean. The distance to an
    unrelated row is sqrt(length² + mean length²) on average.
    """
    ratio = errors / np.maximum(np.sqrt(squared_lengths + squared_lengths.mean()), np.finfo(float).tiny)
    logs = np.log(np.maximum(ratio, 1e-12))
    middle = np.median(logs)
    spread = 1.4826 * np.median(np.abs(logs - middle))
    return int(((ratio > MOVED) & (logs > middle + OUTLYING * spread)).sum())


def far_rows(*squared_lengths: Float) -> Array:
    """The rows that are far from all others and together hold most of the variance of a run; mostly none."""
    far: set[int] = set()
    for lengths in squared_lengths:
        beyond = np.flatnonzero(lengths > FAR**2 * np.median(lengths))
        if lengths[beyond].sum() > lengths.sum() / 2 and len(beyond) < len(lengths) / 10:
            far |= set(beyond.tolist())
    return np.array(sorted(far), dtype=int)


def _sentences(near: Nearness, groups: Mapping[str, Nearness], known: Evidence) -> list[str]:
    sentences = [f"{UP_TO[near.group]}, {result_in_words(near)}."]
    linear = next((groups[g] for g in ("linear", "ridge") if g in groups and groups[g] is not near), None)
    if known.distortion is not None:
        sentences.append(_gains(known.distortion))
    if linear is not None and near.held_out.mean >= PERFECT:
        removed = 1 - linear.held_out.mean / near.held_out.mean
        gain = f"reduces the error by {100 * removed:.0f} %" if removed > 0.005 else "does not reduce the error"
        sentences.append(f"{'A ridge regression' if linear.group == 'ridge' else 'A linear map'} {gain}.")
    if known.moved:
        verb = "matches" if known.moved == 1 else "match"
        sentences.append(f"{known.moved} of {count(known.n, 'row')} {verb} no better than unrelated rows.")
    if known.far is not None:
        far = known.far
        rows = f"{far.count} of {count(known.n, 'row')} {'holds' if far.count == 1 else 'hold'}"
        left_out = f"{rows} {percent(far.share, digits=2)} of the variance of a run."
        sentences.append(f"{left_out} Without them: {far.verdict.finding.evidence}")
    elif not known.moved and _disagrees(near):
        sentences.append(f"Without the 5 % largest errors, the error is {percent(near.trimmed, digits=2)} of chance.")
    if known.dependence is not None and known.dependence.matters:
        sentences.append(dependence_sentence(known.dependence))
    return sentences


def result_in_words(near: Nearness) -> str:
    """The held-out error relative to chance, with its interval, and R²."""
    ratio = near.of_chance
    text = f"the held-out error is {percent(ratio.mean)} of chance"
    if not math.isfinite(ratio.mean):
        text = f"the held-out error is {percent(near.held_out.mean)} of the diameter"
    elif math.isfinite(ratio.low):
        text += f" (95 % interval {interval(ratio.low, ratio.high)})"
    return f"{text} and R² is {fixed(near.r2.mean, 3)}"


def _disagrees(near: Nearness) -> bool:
    low, high = sorted((near.trimmed, near.of_chance.mean))
    return high > DISAGREE * low and high - low > 0.05


def _gains(found: Distortion) -> str:
    where = f"in {found.tested} of {found.directions} directions with {percent(found.share)} of the variance"
    if found.status == "holds":
        return f"No distortion: every |log gain| is below {number(found.bound, 2)} (margin {found.margin:g}) {where}."
    if found.status == "fails":
        return (
            f"Distortion: some |log gain| is above {number(found.certain, 2)} (margin {found.margin:g}), whichever run "
            f"has the noise; the largest is {number(found.largest, 2)}."
        )
    if found.status == "unknown":
        return "Distortion was not tested: in no direction is the signal above the noise."
    seen = f"the largest |log gain| is {number(found.largest, 2)}"
    if found.measured < found.margin:
        return (
            f"No distortion was found, but one up to {number(found.bound, 2)} is not excluded (margin "
            f"{found.margin:g}): {seen} {where}."
        )
    if found.largest > found.margin:
        cause = "but noise in one of the runs could be the cause"
        return f"Distortion is undecided: {seen} (margin {found.margin:g}), {cause}."
    return (
        f"Distortion is undecided: {seen}, at most {number(found.bound, 2)} with 95 % confidence (margin "
        f"{found.margin:g}), {where}."
    )


def dependence_sentence(found: Dependence) -> str:
    """How the error changes where rows that depend on each other are left out together, and what to do."""
    if not (found.ordered or found.clustered):
        return (
            f"{len(found.copies)} of {found.n} rows are copies of others; leave them out, or give each set of copies "
            "one value of a cluster column (--cluster)."
        )
    how, value, then = "rows near each other are left out together", found.neighbours, "cluster (--cluster)"
    if found.ordered:
        how, value = "consecutive rows are left out together", found.consecutive
        then = "order_blocks (--order-blocks)"
    return (
        f"The error rises from {percent(found.scattered)} to {percent(value)} of chance where {how}; state "
        f"which rows belong together with {then}."
    )


def _premises(near: Nearness, known: Evidence) -> list[Finding]:
    premises = []
    if known.distortion is not None:
        found = known.distortion
        defined = found.status != "unknown"
        premises.append(
            Finding(
                "distortion",
                f"No direction is stretched by more than the margin, |log gain| {found.margin:g}.",
                found.status,
                evidence=_gains(found),
                number=found.largest if defined else None,
                interval=(found.certain, found.bound) if defined else None,
            )
        )
    left = (1 - near.r2.high, 1 - near.r2.low)
    status: Status = "fails" if left[0] > known.tolerance else "ambiguous"
    status = "holds" if _explains(near, known.tolerance) else status
    premises.append(
        Finding(
            "unexplained",
            f"At most {percent(known.tolerance, digits=2)} of the variance is left unexplained.",
            status,
            evidence=f"{percent(1 - near.r2.mean)} of the variance is left after the best {near.group} map.",
            number=1 - near.r2.mean,
            interval=left,
        )
    )
    return premises


def summarise(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The verdict over all pairs: the headline, then further sentences."""
    if len(pairs) == 1:
        verdict = pairs[0].verdict
        return tuple(text for text in (verdict.headline, verdict.finding.evidence) if text)
    counts = Counter(pair.verdict.headline for pair in pairs)
    headlines = [
        headline if count == len(pairs) else f"{count} of {len(pairs)} pairs: {headline}"
        for headline, count in counts.most_common()
    ]
    shared = [g for g in ("similarity", "rigid", *reversed(GROUPS)) if all(g in p.groups for p in pairs)]
    return (*headlines, *([_ranges(pairs, shared[0])] if shared else []))


def _ranges(pairs: Sequence[Pair], group: str) -> str:
    nears = [p.groups[group] for p in pairs]
    ratios = [near.of_chance.mean for near in nears]
    sentence = f"the held-out error is {interval(min(ratios), max(ratios))} of chance"
    if not np.isfinite(ratios).all():
        held = [near.held_out.mean for near in nears]
        sentence = f"the held-out error is {interval(min(held), max(held))} of the diameter"
    r2 = dict.fromkeys(fixed(end([near.r2.mean for near in nears]), 3) for end in (min, max))
    return f"{UP_TO[group]}, {sentence} and R² {' to '.join(r2)} over {len(pairs)} pairs."
