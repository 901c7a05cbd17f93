"""The files of a reproduction: result.json, table.md, the figures and report.html."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from congruence.files import write_text
from congruence.report.reproduction import render_reproduction
from congruence.report.svg import standalone
from congruence.report.words import cell
from congruence.reproduce.recipe import NumberTable, Outcome, Recipe
from congruence.results import json_text

RESULT, TABLE, REPORT = "result.json", "table.md", "report.html"
FILES = (RESULT, TABLE, REPORT)
MARKS = {"holds": "✓ holds", "fails": "✕ fails", "unknown": "? unknown"}


def write_outcome(recipe: Recipe, outcome: Outcome, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write all files of an outcome and return the content of result.json.

    result.json goes first and comes last, so that a folder that has one is complete.
    """
    result = result_of(recipe, outcome, settings)
    (folder / RESULT).unlink(missing_ok=True)
    for figure in outcome.figures:
        write_text(folder / f"{figure.name}.svg", standalone(figure.svg))
    write_text(folder / TABLE, markdown(recipe, outcome))
    write_text(folder / REPORT, render_reproduction(recipe, outcome, settings))
    write_text(folder / RESULT, json_text(result))
    return result


def result_of(recipe: Recipe, outcome: Outcome, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The content of result.json; the same settings give the same content."""
    return {
        "recipe": recipe.name,
        "source": recipe.source,
        "question": recipe.question,
        "answer": outcome.answer,
        "paper": dict(outcome.paper),
        "ours": dict(outcome.ours),
        "claims": [claim.to_dict() for claim in outcome.claims],
        "notes": list(outcome.notes),
        "figures": [f"{figure.name}.svg" for figure in outcome.figures],
        "settings": dict(settings),
    }


def markdown(recipe: Recipe, outcome: Outcome) -> str:
    """The claims and the numbers as Markdown tables."""
    parts = [f"# {recipe.question}", f"{recipe.source}. {outcome.answer}"]
    claims = tuple((claim.statement, MARKS[claim.status], claim.evidence) for claim in outcome.claims)
    parts += _table(NumberTable("Claims", ("the claim", "", "evidence"), claims))
    for table in outcome.tables:
        parts += _table(table)
    return "\n\n".join(parts) + "\n"


def _table(table: NumberTable) -> list[str]:
    lines = [table.head, ["---"] * len(table.head), *([cell(value) for value in row] for row in table.rows)]
    text = "\n".join("| " + " | ".join(_escaped(value) for value in line) + " |" for line in lines)
    return [f"## {table.title}", *([table.note] if table.note else []), text]


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
