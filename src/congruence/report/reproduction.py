"""The report of a reproduction: the question, which claims hold, and the paper's numbers beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence import files
from congruence.report.page import fill
from congruence.report.words import count

if TYPE_CHECKING:
    from congruence.reproduce.recipe import Outcome, Recipe

IN_THE_COMMAND = ("scale", "seed", "device")


def write_reproduction_report(recipe: Recipe, outcome: Outcome, settings: Mapping[str, Any], path: str | Path) -> None:
    """Write the report of a reproduction to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_reproduction(recipe, outcome, settings))


def render_reproduction(recipe: Recipe, outcome: Outcome, settings: Mapping[str, Any]) -> str:
    """Return the report of a reproduction as one HTML page that needs no other file."""
    options = [f"--{name}={settings[name]}" for name in IN_THE_COMMAND if name in settings]
    return fill(
        "reproduction.html.j2",
        recipe=recipe,
        outcome=outcome,
        tally=tally(outcome),
        command=shlex.join(["congruence", "reproduce", recipe.name, *options]),
        made=dict(settings),
    )


def tally(outcome: Outcome) -> str:
    """Say how many claims hold, fail, and could not be judged."""
    held = [claim.status for claim in outcome.claims]
    parts = [f"{held.count('holds')} of {count(len(held), 'claim')} hold" + ("s" if len(held) == 1 else "")]
    if held.count("fails"):
        parts.append(f"{held.count('fails')} {'does' if held.count('fails') == 1 else 'do'} not")
    if held.count("unknown"):
        parts.append(f"{held.count('unknown')} cannot be judged at this scale")
    return ", ".join(parts) + "."
