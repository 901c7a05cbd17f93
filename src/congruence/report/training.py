"""Along a training: how far each checkpoint is from the last one, and how far it is from the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from congruence.report.curves import training_curves
from congruence.report.words import AFTER, ordered, percent, step

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint before the last, with its held-out errors by group (NaN where there is none)."""

    name: str
    step: float
    to_last: dict[str, float]
    to_next: dict[str, float]
    null: float  # onto the last, of the similarity or else of the smallest group


@dataclass(frozen=True)
class Training:
    """The section on a training as the page shows it."""

    sentence: str
    figure: str
    checkpoints: list[Checkpoint]
    last: str
    last_step: float


def training_section(comparison: Comparison) -> Training | None:
    """Gather the errors along a training; None where runs are not checkpoints."""
    if comparison.steps is None or not comparison.pairs:
        return None
    groups = ordered({name for pair in comparison.pairs for name in pair.groups})
    group = "similarity" if "similarity" in groups else groups[0]
    *points, last = comparison.series()
    nulls = {p.source: p.groups[group].null for p in comparison.pairs if p.target == last["name"] and group in p.groups}
    checkpoints = [
        Checkpoint(
            point["name"],
            point["step"],
            {name: point["to_last"].get(name, math.nan) for name in groups},
            {name: point["to_next"].get(name, math.nan) for name in groups},
            nulls.get(point["name"], math.nan),
        )
        for point in points
    ]
    figure = training_curves(checkpoints, groups, group)
    return Training(_sentence(checkpoints, group), figure, checkpoints, last["name"], last["step"])


def _sentence(checkpoints: list[Checkpoint], group: str) -> str:
    """How the error onto the last checkpoint changes from the first one to the last but one."""
    start, end = checkpoints[0], checkpoints[-1]
    first, final = start.to_last[group], end.to_last[group]
    if start is end or not (math.isfinite(first) and math.isfinite(final)):
        return ""
    after = AFTER.get(group, f"up to {group}")
    return (
        f"{after[0].upper()}{after[1:]}, the held-out error onto the last checkpoint "
        f"{'falls' if final < first else 'rises'} from {percent(first)} at step {step(start.step)} "
        f"to {percent(final)} at step {step(end.step)}."
    )
