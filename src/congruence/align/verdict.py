"""From held-out errors and their null to a verdict: is the difference of two runs only a rotation and a scale?"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from congruence.align.comparison import Pair, PairVerdict
from congruence.arrays import Array
from congruence.errors import FewRowsWarning
from congruence.formatting import interval, percent
from congruence.maps.groups import GROUPS
from congruence.maps.nearness import Nearness, Protocol
from congruence.result import Finding, Status
from congruence.stats.intervals import bootstrap_ratio

if TYPE_CHECKING:
    from congruence.align._run_statistics import RunStatistics

NEARLY = 0.1  # an error below this share of the null is a match
MOSTLY = 0.5  # and below this share, the map explains most of the difference
WORTHWHILE = 0.1  # a larger group must reduce the error by this share, beyond its interval, to be preferred
RELATED = 0.95  # an error above this share of the null is no better than chance
ROWS_PER_DIMENSION = 10  # enough to distinguish a linear map from a rotation
FEW_CLUSTERS = 10
ROWS_FOR_A_ROTATION = 2  # per dimension; with fewer, even a true rotation cannot be found
DRAWS = 200  # of the bootstrap that compares two groups
PERFECT = 1e-6  # an error below this share of the diameter is float32 rounding

UP_TO = {
    "identity": "Without any map",
    "permutation": "Up to the order and signs of the dimensions",
    "rigid": "Up to a rotation",
    "similarity": "Up to rotation and scale",
    "ridge": "Up to a ridge regression",
    "linear": "Up to a linear map",
}
HEADLINES = {
    "identity": "Nothing changed: the runs agree without any map.",
    "permutation": "Only the order and signs of the dimensions changed.",
    "rigid": "The difference is only a rotation.",
    "similarity": "The difference is only a rotation and a scale.",
    "ridge": "The difference is a linear map, more than a rotation and a scale.",
    "linear": "The difference is a linear map, more than a rotation and a scale.",
    "mostly": "The difference is mostly a rotation and a scale, but not only.",
    "more": "The difference is more than a rotation and a scale.",
    "partly": "The runs are related, but none of these groups of maps explains their difference.",
    "none": "The runs are no more alike than unrelated ones.",
    "few": "There are too few rows to decide.",
    "untested": "Whether the difference is a rotation was not tested: add similarity to the groups.",
    "no null": "There is no null to judge by: set nulls to at least 1.",
}


def judge(
    groups: Mapping[str, Nearness], n: int, d: int, unit: Array | None = None, *, name: str = "pair"
) -> PairVerdict:
    """Decide for one pair, from held-out errors and the null, whether it differs only by a rotation and a scale.

    The claim "only a rotation and a scale"

    - holds if a similarity, or a smaller group, leaves less than a tenth of the error of unrelated runs;
    - fails if a general linear map does clearly better, or if nothing does better than chance;
    - is ambiguous if the runs are related but neither explains the difference;
    - is unknown if there are too few rows per dimension to distinguish these cases, if no rotation was fitted, or if
      there is no null to judge by.

    `unit`, shape (n,), is the cluster of each row.
    """
    ladder = [groups[g] for g in GROUPS if g in groups]
    smallest = _smallest_sufficient(ladder, unit)
    status, headline = _decide(ladder, smallest, n, d, unit)
    reported = next((groups[g] for g in ("similarity", "rigid", *reversed(GROUPS)) if g in groups), None)
    finding = Finding(
        name,
        "The difference is only a rotation and a scale.",
        status,
        evidence=_evidence(reported, groups) if reported else "",
        number=reported.held_out.mean if reported else None,
        interval=(reported.held_out.low, reported.held_out.high) if reported else None,
        null=reported.null if reported else None,
    )
    return PairVerdict(finding, smallest.group if smallest else "none", HEADLINES[headline])


def _decide(
    ladder: Sequence[Nearness], smallest: Nearness | None, n: int, d: int, unit: Array | None
) -> tuple[Status, str]:
    """The status of the claim, and the key of its headline."""
    claims = [near for near in ladder if near.group not in ("ridge", "linear")]
    matches = [claim for claim in claims if _matches(claim, ladder)]
    if matches:
        return "holds", (_smallest_sufficient(matches, unit) or matches[0]).group
    if not any(claim.group in ("rigid", "similarity") for claim in claims):
        return "unknown", "untested"
    if np.isnan([near.null for near in ladder]).any():
        return "unknown", "no null"
    if n < ROWS_FOR_A_ROTATION * d:
        # Rows span too few directions to determine a rotation, so not finding one is no evidence.
        return "unknown", "few"
    if smallest is None:
        return "fails", "none"
    mostly = claims[-1].held_out.mean <= MOSTLY * claims[-1].null
    if smallest.group in ("ridge", "linear"):
        return "fails", "linear" if _matches(smallest, ladder) else "mostly" if mostly else "more"
    if n < ROWS_PER_DIMENSION * d:
        return "unknown", "few"
    return "ambiguous", "mostly" if mostly else "partly"


def _matches(claim: Nearness, ladder: Sequence[Nearness]) -> bool:
    """Whether the error is a small share of the null, under whichever group the null is least."""
    null = min(near.null for near in ladder)  # NaN compares as no match
    return bool(claim.held_out.mean <= PERFECT or claim.held_out.mean <= NEARLY * null)


def _smallest_sufficient(ladder: Sequence[Nearness], unit: Array | None) -> Nearness | None:
    """The smallest group that is better than the null and that no larger group clearly improves upon."""
    related = [
        near
        for near in ladder
        if near.held_out.mean <= PERFECT
        or (near.held_out.mean < RELATED * near.null and not near.held_out.high >= near.null)
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


def _evidence(near: Nearness, groups: Mapping[str, Nearness]) -> str:
    held = near.held_out
    error = f"the held-out error is {percent(held.mean)} of the diameter"
    if np.isfinite(held.low):
        error += f" (95 % interval {interval(held.low, held.high)})"
    if np.isfinite(near.null):
        chance = percent(held.mean / near.null, digits=2)
        error = f"the runs differ by {chance} of chance: {error}, and {percent(near.null)} for unrelated runs"
    linear = groups.get("linear")
    if linear is not None and linear is not near and held.mean >= PERFECT:
        removed = 1 - linear.held_out.mean / held.mean
        gain = f"reduces it by {100 * removed:.0f} %" if removed > 0.005 else "does not reduce it"
        error += f"; a linear map {gain}"
    return f"{UP_TO[near.group]}, {error}."


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
    held = np.array([p.groups[group].held_out.mean for p in pairs])
    null = np.array([p.groups[group].null for p in pairs])
    sentence = f"the held-out error is {interval(held.min(), held.max())} of the diameter"
    if group != "linear" and all("linear" in p.groups for p in pairs):
        linear = [p.groups["linear"].held_out.mean for p in pairs]
        sentence += f", {interval(min(linear), max(linear))} with a linear map"
    if np.isfinite(null).all():
        shares = [percent(share, digits=2) for share in ((held / null).min(), (held / null).max())]
        chance = f"between {shares[0]} and {shares[1]}" if shares[0] != shares[1] else f"by {shares[0]}"
        sentence = f"{len(pairs)} pairs differ {chance} of chance: {sentence}"
        sentence += f", and {interval(null.min(), null.max())} for unrelated runs"
    return f"{UP_TO[group]}, {sentence}."


def sampling_notes(d: int, plan: Protocol, *, warn: bool = False) -> list[str]:
    """Notes on too few rows for d dimensions and on too few or too unequal clusters; with `warn` also as warnings."""
    n, notes = len(plan.unit), []
    if n < ROWS_PER_DIMENSION * d:
        notes.append(
            f"{n} rows for {d} dimensions are fewer than {ROWS_PER_DIMENSION} per dimension, which inflates the "
            f"held-out errors of large groups, the linear map first. Use {ROWS_PER_DIMENSION * d} rows, or fewer "
            "dimensions (PCA)."
        )
    sizes = np.bincount(plan.unit)
    if plan.clustered and len(sizes) < FEW_CLUSTERS:
        notes.append(
            f"There are only {len(sizes)} clusters. Rows of a cluster are not independent, so held-out numbers and "
            "intervals are based on that few independent cases."
        )
    elif plan.clustered and sizes.max() > n / 2:
        notes.append(f"One cluster holds {sizes.max()} of {n} rows: without it, maps are fitted on few rows.")
    for note in notes if warn else ():
        warnings.warn(note, FewRowsWarning, stacklevel=4)
    return notes


def diameter_notes(runs: Sequence[RunStatistics]) -> list[str]:
    """A note for each run whose diameter was needed, and is only known between bounds."""
    used = [(run.name, run.diameter) for run in runs if "diameter" in vars(run)]
    return [
        f"The search for the diameter of {name} stopped at its limit: it lies between {diameter.low:.4g} and "
        f"{diameter.high:.4g}. Errors are divided by the lower bound, so they are upper bounds."
        for name, diameter in used
        if not diameter.exact
    ]
