"""The files of a recipe's result: result.json, table.md, the figures and report.html."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from congruence.document import Cell
from congruence.experiments.recipes.recipe import Recipe
from congruence.experiments.recipes.result import RecipeFigure, RecipeResult, number_table
from congruence.files import write_text
from congruence.report.figures.svg import standalone
from congruence.report.html import render_html
from congruence.result import SCHEMA_VERSION, Finding, versions

RESULT, TABLE, REPORT = "result.json", "table.md", "report.html"
FILES = (RESULT, TABLE, REPORT)


def write_files(result: RecipeResult, folder: Path) -> None:
    """Write all files of a result. result.json is removed first and written last: a folder that has it is complete."""
    page = render_html(result.document())
    (folder / RESULT).unlink(missing_ok=True)
    for figure in result.figures:
        write_text(folder / f"{figure.name}.svg", standalone(figure.svg))
    write_text(folder / TABLE, result.to_markdown())
    write_text(folder / REPORT, page)
    write_text(folder / RESULT, result.to_json())


def has_current_layout(content: Mapping[str, Any]) -> bool:
    """Whether the content of a result.json can be read back; that of version 0.1.0 cannot."""
    return content.get("kind") == RecipeResult.__name__ and content.get("schema_version") == SCHEMA_VERSION


def read_result(recipe: Recipe, content: Mapping[str, Any], folder: Path) -> RecipeResult | None:
    """The result in a folder, from the content of its result.json; None if a file is missing or damaged."""
    if not all((folder / file).is_file() for file in FILES):
        return None
    try:
        numbers = content["numbers"]
        notes = tuple(content["notes"])
        other = [f"{name} {one}" for name, one in content["versions"].items() if versions().get(name) != one]
        if other:
            notes += (f"This result was computed earlier, with other versions: {', '.join(other)}.",)
        return RecipeResult(
            recipe=recipe,
            headlines=tuple(numbers["headlines"]),
            findings=tuple(map(_finding, content["findings"])),
            paper=numbers["paper"],
            ours=numbers["ours"],
            tables=tuple(map(_table, numbers["tables"])),
            figures=tuple(_figure(folder / one["file"], one["caption"]) for one in numbers["figures"]),
            notes=notes,
            terms=tuple(numbers["terms"].items()),
            settings=content["settings"],
            folder=folder,
            reused=True,
        )
    except (OSError, KeyError, TypeError, ValueError):
        return None


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _finding(content: Mapping[str, Any]) -> Finding:
    interval = content["interval"]
    premises = tuple(map(_finding, content.get("premises", ())))
    return Finding(**{**content, "interval": None if interval is None else tuple(interval), "premises": premises})


def _table(content: Mapping[str, Any]) -> Any:
    def cell(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return Cell(value["text"], "" if value["value"] is None else value["value"])

    rows = [[cell(value) for value in row] for row in content["rows"]]
    return number_table(content["title"], content["columns"], rows, content["note"])


def _figure(path: Path, caption: str) -> RecipeFigure:
    svg = re.sub(r"<style>.*?</style>", "", path.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
    return RecipeFigure(path.stem, caption, svg.rstrip("\n"))
