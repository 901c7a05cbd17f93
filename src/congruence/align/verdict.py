"""From held-out numbers and their nulls to a sentence: is the difference only a rotation?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from congruence.align.comparison import Pair, PairVerdict
from congruence.maps.groups import GROUPS
from congruence.maps.nearness import Nearness

NEARLY = 0.1  # an error below this share of the null is a near match
MOSTLY = 0.5  # and below this share, the map explains most of it
WORTHWHILE = 0.1  # a larger group must remove this share of the error, beyond its interval, to count
RELATED = 0.95  # an error above this share of the null is no better than chance
ROWS_PER_DIMENSION = 10  # enough to tell a linear map from a rotation
ROWS_FOR_A_ROTATION = 2  # per dimension; with fewer, even a true rotation cannot be found
PERFECT = 1e-6  # below this share of the diameter, what is left is rounding of float32

UP_TO = {
    "identity": "as they are",
    "permutation": "up to the order and signs of the dimensions",
    "rigid": "up to a rotation",
    "similarity": "up to rotation and scale",
    "linear": "up to a linear map",
}
HEADLINES = {
    "identity": "Nothing changed: the runs agree as they are.",
    "permutation": "Only the order and signs of the dimensions changed.",
    "rigid": "The difference is only a rotation.",
    "similarity": "The difference is only a rotation and a scale.",
    "linear": "The difference is a linear map.",
    "mostly": "The difference is mostly a rotation and a scale, but not only.",
    "more": "The difference is more than a rotation and a scale.",
    "partly": "The runs are related, but no map tried here explains their difference.",
    "none": "The runs are no more alike than unrelated ones.",
    "few": "There are too few rows to tell.",
}


def judge(groups: Mapping[str, Nearness], n: int, d: int) -> PairVerdict:
    """Decide for one pair, from held-out errors against the null, whether it differs by a rotation and a scale.

    The claim "only a rotation and a scale" (or the largest group at hand that is not more than that)

    - holds if it leaves less than a tenth of the error of unrelated runs;
    - fails if a general linear map does clearly better, or if nothing does better than chance;
    - is ambiguous if the runs are related but neither explains the rest;
    - is unknown if there are too few rows per dimension to tell these apart.
    """
    ladder = [groups[g] for g in GROUPS if g in groups]
    if not ladder:
        return PairVerdict("unknown", "none", "No group of maps was asked for.", "")
    claim = next((groups[g] for g in ("similarity", "rigid") if g in groups), ladder[-1])
    rung = _rung(ladder)
    if rung is not None and claim.held_out.mean <= max(NEARLY * claim.null, PERFECT):
        smaller = GROUPS.index(rung.group) < GROUPS.index(claim.group)
        status, headline = "holds", rung.group if smaller else claim.group
    elif n < ROWS_FOR_A_ROTATION * d:
        # Rows span too few directions for a rotation to be learned, so failing to find one says nothing.
        status, headline = "unknown", "few"
    elif rung is None:
        status, headline = "fails", "none"
    elif GROUPS.index(rung.group) > GROUPS.index(claim.group):
        mostly = claim.held_out.mean <= MOSTLY * claim.null
        status, headline = "fails", "mostly" if mostly else "more"
    else:
        status, headline = ("unknown", "few") if n < ROWS_PER_DIMENSION * d else ("ambiguous", "partly")
    return PairVerdict(status, rung.group if rung else "none", HEADLINES[headline], _detail(claim, groups, rung))


def _rung(ladder: Sequence[Nearness]) -> Nearness | None:
    """The smallest group that beats the null and that no larger group clearly improves upon."""
    related = [g for g in ladder if g.held_out.mean < PERFECT or _beats_null(g)]
    for i, group in enumerate(related):
        if not any(_clearly_better(larger, group) for larger in related[i + 1 :]):
            return group
    return None


def _beats_null(near: Nearness) -> bool:
    return near.held_out.mean < RELATED * near.null and not near.held_out.high >= near.null


def _clearly_better(a: Nearness, b: Nearness) -> bool:
    if b.held_out.mean < PERFECT:
        return False
    apart = not a.held_out.high >= b.held_out.low  # also when there is no interval
    return apart and a.held_out.mean < (1 - WORTHWHILE) * b.held_out.mean


def _detail(claim: Nearness, groups: Mapping[str, Nearness], rung: Nearness | None) -> str:
    held = claim.held_out
    parts = [f"{UP_TO[claim.group]} the runs agree to {percent(held.mean)} of the diameter"]
    if np.isfinite(held.low):
        parts[0] += f" (95 % interval {percent(held.low)} to {percent(held.high)})"
    linear = groups.get("linear")
    if linear is not None and linear is not claim and held.mean >= PERFECT:
        removed = 1 - linear.held_out.mean / held.mean
        parts.append(
            f"a general linear map removes {removed:.0%} of the rest".replace("%", " %")
            if removed > 0.005
            else "a general linear map does no better"
        )
    if np.isfinite(claim.null):
        parts.append(f"unrelated runs would give {percent(claim.null)}")
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:] + "."


def summarise(pairs: Sequence[Pair]) -> str:
    """The verdict over all pairs, in plain words."""
    if len(pairs) == 1:
        verdict = pairs[0].verdict
        return f"{verdict.headline} {verdict.detail}".strip()
    counts = Counter(pair.verdict.headline for pair in pairs)
    said = [
        headline if count == len(pairs) else f"{count} of {len(pairs)} pairs: {headline}"
        for headline, count in counts.most_common()
    ]
    shared = [g for g in ("similarity", "rigid", *reversed(GROUPS)) if all(g in p.groups for p in pairs)]
    return " ".join([*said, _ranges(pairs, shared[0])] if shared else said)


def _ranges(pairs: Sequence[Pair], group: str) -> str:
    held = [p.groups[group].held_out.mean for p in pairs]
    null = [p.groups[group].null for p in pairs]
    sentence = f"Over {len(pairs)} pairs, {UP_TO[group]} the runs agree to {_range(held)} of the diameter"
    if group != "linear" and all("linear" in p.groups for p in pairs):
        sentence += f" and up to a linear map to {_range([p.groups['linear'].held_out.mean for p in pairs])}"
    if np.isfinite(null).all():
        sentence += f"; unrelated runs would give {_range(null)}"
    return sentence + "."


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low[:-2]} to {high}"


def percent(share: float) -> str:
    """Write a share of the diameter as a percentage with two significant digits."""
    if np.isnan(share):
        return "an undefined share"
    if share < PERFECT:
        return "0 %"
    return f"{float(f'{100 * share:.2g}'):g} %"


def advice_on_rows(n: int, d: int) -> str | None:
    """What to say when there are too few rows for the width of the data."""
    if n >= ROWS_PER_DIMENSION * d:
        return None
    return (
        f"{n} rows for {d} dimensions are fewer than {ROWS_PER_DIMENSION} per dimension: large groups, the linear map "
        f"first, are fitted with little to spare and their held-out errors are inflated. "
        f"{ROWS_PER_DIMENSION * d} rows, or fewer dimensions (PCA), would settle it."
    )
