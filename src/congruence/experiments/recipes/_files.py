"""The files of a recipe's result: numbers.json.gz, result.json, table.md, the figures and report.html."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from congruence.document import Cell
from congruence.errors import InputError
from congruence.experiments.recipes.claims import Judgement
from congruence.experiments.recipes.recipe import Recipe
from congruence.experiments.recipes.result import RecipeFigure, RecipeResult, number_table
from congruence.files import replacing, write_text
from congruence.guards import read_object
from congruence.report.figures.svg import standalone
from congruence.report.html import render_html
from congruence.result import SCHEMA_VERSION, Finding, json_text, versions

RESULT, TABLE, REPORT, NUMBERS = "result.json", "table.md", "report.html", "numbers.json.gz"
FILES = (RESULT, TABLE, REPORT)


def render_files(result: RecipeResult) -> dict[str, str]:
    """The text of every file but the numbers, by name; result.json is the last."""
    page = render_html(result.document())
    figures = {f"{figure.name}.svg": standalone(figure.svg) for figure in result.figures}
    return figures | {TABLE: result.to_markdown(), REPORT: page, RESULT: result.to_json()}


def write_files(result: RecipeResult, folder: Path) -> None:
    """Write all files of a result. result.json is removed first and written last: a folder that has it is complete."""
    files = render_files(result)
    (folder / RESULT).unlink(missing_ok=True)
    for name, text in files.items():
        write_text(folder / name, text)


def write_numbers(
    folder: Path,
    ours: Mapping[str, Any],
    settings: Mapping[str, Any],
    drawn: Sequence[RecipeFigure] = (),
    made_with: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write the numbers that everything else is made from, with their settings and versions, and read them back.

    `drawn` are figures that cannot be made from the numbers; their digests are kept. `made_with` are the versions of
    the libraries, those of this process unless given.
    """
    figures = {one.name: {"caption": one.caption, "sha256": digest(standalone(one.svg))} for one in drawn}
    made = versions() if made_with is None else dict(made_with)
    content = {"settings": dict(settings), "versions": made, "drawn": figures, "ours": dict(ours)}
    text = json.dumps(json.loads(json_text(content)), separators=(",", ":"), ensure_ascii=False)
    with replacing(folder / NUMBERS) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return read_numbers(folder)


def read_numbers(folder: Path) -> dict[str, Any]:
    """The settings, versions, drawn figures and numbers that `write_numbers` wrote."""
    try:
        content = json.loads(gzip.decompress((folder / NUMBERS).read_bytes()))
        return {name: content[name] for name in ("settings", "versions", "drawn", "ours")}
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise InputError(f"{folder} must hold the numbers of a recipe in {NUMBERS}: {error}") from error


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
        kept = numbers["ours"].get("file") == NUMBERS
        claims = {one["name"]: one for one in numbers["claims"]}
        return RecipeResult(
            recipe=recipe,
            headlines=tuple(numbers["headlines"]),
            findings=tuple(_finding(one, claims.get(one["name"])) for one in content["findings"]),
            paper=numbers["paper"],
            ours=read_numbers(folder)["ours"] if kept else numbers["ours"],
            numbers_file=NUMBERS if kept else "",
            tables=tuple(map(_table, numbers["tables"])),
            figures=tuple(read_figure(folder / one["file"], one["caption"]) for one in numbers["figures"]),
            notes=notes,
            terms=tuple(numbers["terms"].items()),
            settings=content["settings"],
            folder=folder,
            reused=True,
        )
    except (OSError, KeyError, TypeError, ValueError, InputError):
        return None


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is none."""
    try:
        return read_object(path, "a result")
    except InputError:
        return None


def _finding(content: Mapping[str, Any], claim: Mapping[str, Any] | None = None) -> Finding:
    interval = content["interval"]
    premises = tuple(map(_finding, content.get("premises", ())))
    values = {**content, "interval": None if interval is None else tuple(interval), "premises": premises}
    return Finding(**values) if claim is None else Judgement(**values | dict(claim))


def _table(content: Mapping[str, Any]) -> Any:
    def cell(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return Cell(value["text"], "" if value["value"] is None else value["value"])

    rows = [[cell(value) for value in row] for row in content["rows"]]
    return number_table(content["title"], content["columns"], rows, content["note"])


def read_figure(path: Path, caption: str) -> RecipeFigure:
    """A figure that was drawn earlier."""
    svg = re.sub(r"<style>.*?</style>", "", path.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
    return RecipeFigure(path.stem, caption, svg.rstrip("\n"))
