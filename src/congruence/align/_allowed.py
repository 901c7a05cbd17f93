"""The verdict of `check`: is the difference from the baseline within what is allowed?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from congruence.align._options import ALLOWED
from congruence.align.comparison import PairVerdict
from congruence.align.verdict import DRAWS, HEADLINES, UP_TO, count_moved, result_in_words
from congruence.formatting import fixed, percent
from congruence.maps.nearness import HeldOut
from congruence.result import Finding, Status
from congruence.stats.intervals import bootstrap_ratio

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair
    from congruence.arrays import Array, Float
    from congruence.maps.nearness import Nearness

ROUNDING = 1e-3  # of the variance; rounding to int8 changes 1e-4 of Gaussian rows, and more with far values
CLAIMS = {
    "identity": "The embeddings are unchanged.",
    "permutation": "At most the order and signs of the dimensions changed.",
    "rigid": "At most a rotation changed the embeddings.",
    "similarity": "At most a rotation and a scale changed the embeddings.",
}
MARKS = {"fails": "❌", "ambiguous": "⚠️", "unknown": "❔", "holds": "✅"}


@dataclass(frozen=True)
class Spread:
    """Where the variance of the baseline lies, so that a few rows or dimensions do not hide a change of the others."""

    squared_lengths: Float  # (n,) of the centred rows
    unit: Array  # (n,) the cluster of each row
    far: Array  # the rows, mostly none, that are far from all others and hold most of the variance
    rest: float  # the sum of the squared lengths of the others, around their own mean
    typical: float  # the share of its variance by which the median dimension changed; NaN for other widths


def judge_allowed(pair: Pair, spread: Spread, allow: str, tolerance: float) -> PairVerdict:
    """Decide whether the difference of a pair is within a group of maps, from its errors and its verdict.

    Rows that agree within the tolerance without a map hold, whatever is allowed. With a rotation allowed, the verdict
    of `compare` decides (for "rigid", the rows must also agree without a scale); otherwise the share of the variance
    that the allowed maps leave, with its interval.
    """
    smaller = [pair.groups[g] for g in ALLOWED[: ALLOWED.index(allow) + 1] if g in pair.groups]
    lefts = [_unexplained(near, pair.diameter, spread) for near in smaller]
    verdict, near, left = pair.verdict, smaller[-1], lefts[-1]
    first = next((i for i, one in enumerate(lefts) if smaller[i].group in ALLOWED[:2] and one.high <= tolerance), None)
    if first is not None:
        near, left = smaller[first], lefts[first]
        status: Status = "holds"
        shifted = HEADLINES["shift"] if verdict.headline == HEADLINES["shift"] else HEADLINES["permutation"]
        headline = shifted if near.group == "permutation" else _unchanged(near, left)
    elif near.group == "similarity" or (near.group == "rigid" and verdict.status != "holds") or left.high <= tolerance:
        return replace(verdict, finding=replace(verdict.finding, claim=CLAIMS[allow]))
    else:
        status = "fails" if left.low > tolerance else "ambiguous"
        headline = _changed(verdict) if status == "fails" else "The change is about as large as the tolerance."
    moved = count_moved(near.errors * pair.diameter, spread.squared_lengths)
    if moved and status == "holds":
        headline = f"{headline.removesuffix('.')}, except for {moved} of {pair.n} rows."
    elif moved:
        headline += f" Unrelated to those of the baseline: {moved} of {pair.n} rows."
    return PairVerdict(_finding(pair, near, left, status, allow, tolerance), verdict.group, headline, moved)


def _unexplained(near: Nearness, diameter: float, spread: Spread) -> HeldOut:
    """The share of the variance that is left after a map, with its interval; or that of other rows or dimensions."""
    left = HeldOut(1 - near.r2.mean, 1 - near.r2.high, 1 - near.r2.low)
    if math.isnan(left.high):  # in some bootstrap samples no row changed
        errors = np.square(near.errors * diameter)
        left = HeldOut(left.mean, *bootstrap_ratio(errors, spread.squared_lengths, spread.unit, DRAWS, 0))
    others = [spread.typical] if near.group == "identity" else []
    if len(spread.far):
        errors = np.delete(near.errors, spread.far) * diameter
        others.append(float((errors**2).sum()) / max(spread.rest, np.finfo(float).tiny))
    largest = max((share for share in others if share > left.high), default=None)
    return left if largest is None else HeldOut(largest, largest, largest)


def _unchanged(near: Nearness, left: HeldOut) -> str:
    if near.sup == 0:
        return "Identical: no number changed."
    if left.mean <= ROUNDING:
        return "Unchanged: the difference is as small as rounding."
    return "Unchanged within the tolerance."


def _changed(verdict: PairVerdict) -> str:
    if verdict.status == "unknown":
        return f"The embeddings changed, it is unknown by which map. {verdict.headline}"
    if verdict.group == "identity":
        return "The embeddings changed, and no rotation or linear map undoes the change."
    return f"The embeddings changed. {verdict.headline}"


def _finding(pair: Pair, near: Nearness, left: HeldOut, status: Status, allow: str, tolerance: float) -> Finding:
    limit = percent(tolerance, digits=2)
    changed = f"{percent(left.mean)} of the variance changed (tolerance {limit})."
    evidence = [f"{UP_TO[near.group]}, {result_in_words(near)}.", changed]
    if status != "holds":
        evidence.append(pair.verdict.finding.evidence)
    part = Finding(
        "unexplained",
        f"At most {limit} of the variance changed.",
        status,
        evidence=changed,
        number=left.mean,
        interval=(left.low, left.high),
    )
    return Finding(
        f"{pair.source} -> {pair.target}",
        CLAIMS[allow],
        status,
        evidence=" ".join(evidence),
        number=near.of_chance.mean,
        interval=(near.of_chance.low, near.of_chance.high),
        null=1.0,
        premises=(part,),
    )


def summary(comparison: Comparison, passed: bool | None = None) -> str:
    """A check as one line of Markdown: the mark of the gate (by default of the status), verdict, numbers and rows."""
    (pair,), settings = comparison.pairs, comparison.settings
    status = comparison.status
    mark = MARKS[status] if passed is None else MARKS["holds" if passed else "fails"]
    groups = {"identity": "without a map", "similarity": "up to rotation and scale"}
    numbers = [f"{fixed(pair.groups[g].r2.mean, 4)} {words}" for g, words in groups.items() if g in pair.groups]
    model = settings["baseline"].get("model_name")
    of = f" of `{' '.join(model.replace('`', '').split())}`" if model else ""
    rows = f"{pair.n} rows{of} × {comparison.runs[0].d} dimensions"
    missing = settings["baseline"]["missing"]
    lost = f" Missing: {missing} rows of the baseline." if missing else ""
    return (
        f"{mark} **congruence check: {status}**. {comparison.headlines[0]} R² is {' and '.join(numbers)}; {rows}, "
        f"allowed: {settings['allow']}.{lost}"
    )
