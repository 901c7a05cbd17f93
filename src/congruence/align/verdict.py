"""From held-out numbers and their nulls to a sentence: is the difference only a rotation?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from congruence.align.comparison import Pair, PairVerdict
from congruence.arrays import Array
from congruence.maps._diameter import Diameter
from congruence.maps.groups import GROUPS
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Status
from congruence.stats.intervals import bootstrap_ratio

NEARLY = 0.1  # an error below this share of the null is a near match
MOSTLY = 0.5  # and below this share, the map explains most of it
WORTHWHILE = 0.1  # a larger group must remove this share of the error, beyond its interval, to count
RELATED = 0.95  # an error above this share of the null is no better than chance
ROWS_PER_DIMENSION = 10  # enough to tell a linear map from a rotation
FEW_CLUSTERS = 10
ROWS_FOR_A_ROTATION = 2  # per dimension; with fewer, even a true rotation cannot be found
DRAWS = 200  # of the bootstrap that compares two groups
PERFECT = 1e-6  # below this share of the diameter, what is left is rounding of float32

UP_TO = {
    "identity": "as they are",
    "permutation": "up to the order and signs of the dimensions",
    "rigid": "up to a rotation",
    "similarity": "up to rotation and scale",
    "linear": "up to a linear map",
}
START = {  # the same, at the start of a sentence
    "identity": "As they are",
    "permutation": "Up to the order and signs of the dimensions",
    "rigid": "Up to a rotation",
    "similarity": "Up to rotation and scale",
    "linear": "Up to a linear map",
}
HEADLINES = {
    "identity": "Nothing changed: the runs agree as they are.",
    "permutation": "Only the order and signs of the dimensions changed.",
    "rigid": "The difference is only a rotation.",
    "similarity": "The difference is only a rotation and a scale.",
    "linear": "The difference is a linear map, more than a rotation and a scale.",
    "mostly": "The difference is mostly a rotation and a scale, but not only.",
    "more": "The difference is more than a rotation and a scale.",
    "partly": "The runs are related, but no map tried here explains their difference.",
    "none": "The runs are no more alike than unrelated ones.",
    "few": "There are too few rows to tell.",
    "untried": "Whether the difference is a rotation was not tried: ask for the group similarity.",
    "no null": "There is no null to judge by: ask for at least one re-pairing.",
}


def judge(
    groups: Mapping[str, Nearness], n: int, d: int, unit: Array | None = None, *, name: str = "pair"
) -> PairVerdict:
    """Decide for one pair, from held-out errors against the null, whether it differs by a rotation and a scale.

    The claim "only a rotation and a scale"

    - holds if a similarity, or a smaller group, leaves less than a tenth of the error of unrelated runs;
    - fails if a general linear map does clearly better, or if nothing does better than chance;
    - is ambiguous if the runs are related but neither explains the rest;
    - is unknown if there are too few rows per dimension to tell these apart, if no rotation was tried, or if there is
      no null to judge by.

    `unit`, shape (n,), names the cluster of each row.
    """
    ladder = [groups[g] for g in GROUPS if g in groups]
    claims = [near for near in ladder if near.group != "linear"]
    rung = _rung(ladder, unit)
    status, headline = _judged(claims, ladder, rung, n, d, unit)
    shown = [groups[g] for g in ("similarity", "rigid") if g in groups] or ladder[::-1]
    best = shown[0] if shown else None
    finding = Finding(
        name,
        "The difference is only a rotation and a scale.",
        status,
        evidence=_detail(best, groups) if best else "",
        number=best.held_out.mean if best else None,
        interval=(best.held_out.low, best.held_out.high) if best else None,
        null=best.null if best else None,
    )
    return PairVerdict(finding, rung.group if rung else "none", HEADLINES[headline])


def _judged(
    claims: Sequence[Nearness], ladder: Sequence[Nearness], rung: Nearness | None, n: int, d: int, unit: Array | None
) -> tuple[Status, str]:
    """The status of the claim, and which headline says it."""
    near = [c for c in claims if _matches(c, ladder)]
    if near:
        return "holds", (_rung(near, unit) or near[0]).group
    if not any(c.group in ("rigid", "similarity") for c in claims):
        return "unknown", "untried"
    if np.isnan([c.null for c in ladder]).any():
        return "unknown", "no null"
    if n < ROWS_FOR_A_ROTATION * d:
        # Rows span too few directions for a rotation to be learned, so failing to find one says nothing.
        return "unknown", "few"
    if rung is None:
        return "fails", "none"
    mostly = claims[-1].held_out.mean <= MOSTLY * claims[-1].null
    if rung.group == "linear":
        return "fails", "linear" if _matches(rung, ladder) else "mostly" if mostly else "more"
    if n < ROWS_PER_DIMENSION * d:
        return "unknown", "few"
    return "ambiguous", "mostly" if mostly else "partly"


def _matches(claim: Nearness, ladder: Sequence[Nearness]) -> bool:
    """Whether a map leaves next to nothing of what unrelated runs would give, under whichever group gives least."""
    null = min(near.null for near in ladder)  # NaN compares as no match
    return bool(claim.held_out.mean <= PERFECT or claim.held_out.mean <= NEARLY * null)


def _rung(ladder: Sequence[Nearness], unit: Array | None) -> Nearness | None:
    """The smallest group that beats the null and that no larger group clearly improves upon."""
    related = [g for g in ladder if g.held_out.mean <= PERFECT or _beats_null(g)]
    for i, group in enumerate(related):
        if not any(clearly_better(larger, group, unit) for larger in related[i + 1 :]):
            return group
    return None


def _beats_null(near: Nearness) -> bool:
    return near.held_out.mean < RELATED * near.null and not near.held_out.high >= near.null


def clearly_better(a: Nearness, b: Nearness, unit: Array | None = None) -> bool:
    """Whether a leaves less than b on the same held-out rows, by a tenth and beyond the bootstrap interval."""
    if b.held_out.mean <= PERFECT or not a.held_out.mean < (1 - WORTHWHILE) * b.held_out.mean:
        return False
    unit = np.arange(len(a.errors)) if unit is None else unit
    return bootstrap_ratio(a.errors, b.errors, unit, DRAWS, 0)[1] < 1


def _detail(claim: Nearness, groups: Mapping[str, Nearness]) -> str:
    held = claim.held_out
    parts = [f"{START[claim.group]} the runs agree to {percent(held.mean)} of the diameter"]
    if np.isfinite(held.low):
        parts[0] += f" (95 % interval {percent(held.low)} to {percent(held.high)})"
    linear = groups.get("linear")
    if linear is not None and linear is not claim and held.mean >= PERFECT:
        removed = 1 - linear.held_out.mean / held.mean
        gain = f"removes {100 * removed:.0f} % of the rest" if removed > 0.005 else "does no better"
        parts.append(f"a general linear map {gain}")
    if np.isfinite(claim.null):
        parts.append(f"unrelated runs would give {percent(claim.null)}")
    return "; ".join(parts) + "."


def summarise(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The verdict over all pairs: the headline, then further sentences."""
    if len(pairs) == 1:
        verdict = pairs[0].verdict
        return tuple(text for text in (verdict.headline, verdict.finding.evidence) if text)
    counts = Counter(pair.verdict.headline for pair in pairs)
    said = [
        headline if count == len(pairs) else f"{count} of {len(pairs)} pairs: {headline}"
        for headline, count in counts.most_common()
    ]
    shared = [g for g in ("similarity", "rigid", *reversed(GROUPS)) if all(g in p.groups for p in pairs)]
    return (*said, *([_ranges(pairs, shared[0])] if shared else []))


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
    return low if low == high else f"{percent(min(values), unit='')} to {high}"


def percent(share: float, unit: str = " %") -> str:
    """Write a share of the diameter as a percentage with two significant digits; rounding errors are 0."""
    if np.isnan(share):
        return "an undefined share"
    return f"{float(f'{100 * share:.2g}') if share >= PERFECT else 0:g}{unit}"


def advice_on_clusters(unit: Array) -> str | None:
    """What to say when clusters are too few, or too unequal, for held-out numbers to rest on them."""
    sizes = np.bincount(unit)
    if len(sizes) < FEW_CLUSTERS:
        return (
            f"There are only {len(sizes)} clusters: rows of a cluster count as one, so held-out numbers and intervals "
            "rest on that few independent cases."
        )
    if sizes.max() > len(unit) / 2:
        return f"One cluster holds {sizes.max()} of {len(unit)} rows: without it, maps are fitted on few."
    return None


def advice_on_diameter(name: str, diameter: Diameter) -> str | None:
    """What to say when the diameter by which errors are divided is only known between bounds."""
    if diameter.exact:
        return None
    return (
        f"The diameter of {name} was not searched to the end: it lies between {diameter.low:.4g} and "
        f"{diameter.high:.4g}, and errors are divided by the lower bound, so they are upper estimates."
    )


def advice_on_rows(n: int, d: int) -> str | None:
    """What to say when there are too few rows for the width of the data."""
    if n >= ROWS_PER_DIMENSION * d:
        return None
    return (
        f"{n} rows for {d} dimensions are fewer than {ROWS_PER_DIMENSION} per dimension: large groups, the linear map "
        f"first, are fitted with little to spare and their held-out errors are inflated. "
        f"{ROWS_PER_DIMENSION * d} rows, or fewer dimensions (PCA), would settle it."
    )
