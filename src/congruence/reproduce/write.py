"""The files of a reproduction: result.json, table.md, the figures and report.html."""

from __future__ import annotations

from pathlib import Path

from congruence.files import write_text
from congruence.report.figures.svg import standalone
from congruence.report.reproduction import render_reproduction
from congruence.report.words import cell
from congruence.reproduce.recipe import NumberTable, Reproduction
from congruence.result import json_text

RESULT, TABLE, REPORT = "result.json", "table.md", "report.html"
FILES = (RESULT, TABLE, REPORT)
MARKS = {"holds": "✓ holds", "fails": "✕ fails", "unknown": "? unknown"}


def write_reproduction(made: Reproduction, folder: Path) -> None:
    """Write all files of a reproduction.

    result.json goes first and comes last, so that a folder that has one is complete.
    """
    page = render_reproduction(made)
    (folder / RESULT).unlink(missing_ok=True)
    for figure in made.outcome.figures:
        write_text(folder / f"{figure.name}.svg", standalone(figure.svg))
    write_text(folder / TABLE, markdown(made))
    write_text(folder / REPORT, page)
    write_text(folder / RESULT, json_text(made.to_dict()))


def markdown(made: Reproduction) -> str:
    """The claims and the numbers as Markdown tables."""
    parts = [f"# {made.recipe.question}", f"{made.recipe.source}. {made.outcome.answer}"]
    claims = tuple((claim.statement, MARKS[claim.status], claim.evidence) for claim in made.outcome.claims)
    for table in (NumberTable("Claims", ("the claim", "here", "evidence"), claims), *made.outcome.tables):
        parts += _table(table)
    return "\n\n".join(parts) + "\n"


def _table(table: NumberTable) -> list[str]:
    lines = [table.head, ["---"] * len(table.head), *([cell(value) for value in row] for row in table.rows)]
    text = "\n".join("| " + " | ".join(_escaped(value) for value in line) + " |" for line in lines)
    return [f"## {table.title}", *([table.note] if table.note else []), text]


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
