"""The report of a reproduction: the question, which claims hold, and the paper's numbers beside ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence import files
from congruence.report.page import fill
from congruence.report.words import cell, count

if TYPE_CHECKING:
    from congruence.reproduce.recipe import NumberTable, Reproduction

IN_THE_COMMAND = ("scale", "data", "seed", "device")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")


def write_reproduction_report(made: Reproduction, path: str | Path) -> None:
    """Write the report of a reproduction to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_reproduction(made))


def render_reproduction(made: Reproduction) -> str:
    """Return the report of a reproduction as one HTML page that needs no other file."""
    options = [f"--{name}={made.settings[name]}" for name in IN_THE_COMMAND if name in made.settings]
    return fill(
        "reproduction.html.j2",
        recipe=made.recipe,
        outcome=made.outcome,
        tables=[_with_keys(table) for table in made.outcome.tables],
        tally=tally([claim.status for claim in made.outcome.claims]),
        command=shlex.join(["congruence", "reproduce", made.recipe.name, *options]),
        made=dict(made.settings),
    )


def _with_keys(table: NumberTable) -> dict[str, Any]:
    """A table as the page shows it: each cell with what it is sorted by."""
    rows = [[(cell(value), _key(value)) for value in row] for row in table.rows]
    return {"title": table.title, "note": table.note, "head": table.head, "rows": rows}


def _key(value: str | float | int | None) -> str | float:
    """What a cell is sorted by; the number that a text begins with, where it does."""
    if not isinstance(value, str):
        return "" if value is None else value
    found = NUMBER.match(value.replace("−", "-"))
    return float(found[0]) if found else value


def tally(statuses: Sequence[str]) -> str:
    """Say how many claims hold, fail, and could not be judged."""
    held, failed, unknown = (statuses.count(status) for status in ("holds", "fails", "unknown"))
    if statuses == ["holds"]:
        return "The one claim holds."
    parts = [f"{held} of {count(len(statuses), 'claim')} hold"]
    parts += [f"{failed} {'does' if failed == 1 else 'do'} not"] if failed else []
    parts += [f"{unknown} cannot be judged at this scale"] if unknown else []
    return ", ".join(parts) + "."
