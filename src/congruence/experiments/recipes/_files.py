"""The files of a recipe's result: numbers.json.gz, result.json, table.md, the figures and report.html."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from congruence.errors import InputError
from congruence.experiments.recipes.result import NUMBERS, RecipeFigure, RecipeResult
from congruence.files import replacing, write_text
from congruence.guards import NUMBERS_BYTES, read_json, read_object, read_small, reading
from congruence.parts import RECORD, record_files
from congruence.report.figures.svg import standalone
from congruence.report.html import render_html
from congruence.result import json_text, versions

RESULT, TABLE, REPORT = "result.json", "table.md", "report.html"
FILES = (RESULT, TABLE, REPORT)
PARTS = "parts"  # the folder of finished parts
STYLE = re.compile(r"<style>[^<]*</style>")  # that `standalone` adds
SHAPES = ("svg", "g", "defs", "clipPath", "pattern", "path", "rect", "use", "text", "tspan", "image")
DRAWN = {"{http://www.w3.org/2000/svg}" + name for name in SHAPES}  # elements of a figure


def render_files(result: RecipeResult) -> dict[str, str]:
    """The text of every file but the numbers, by name; result.json is the last."""
    page = render_html(result.document())
    figures = {f"{figure.name}.svg": standalone(figure.svg) for figure in result.figures}
    return figures | {TABLE: result.to_markdown(), REPORT: page, RESULT: result.to_json()}


def write_files(result: RecipeResult, folder: Path) -> None:
    """Write all files of a result. result.json is removed first and written last: a folder that has it is complete.

    A folder in which the result was computed, and can be resumed, gets checksums of them.
    """
    files = render_files(result)
    (folder / RESULT).unlink(missing_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    for name, text in files.items():
        if name == RESULT and (folder / PARTS).is_dir():
            record_files(folder, [*files, NUMBERS], {RESULT: text})
        write_text(folder / name, text)


def write_numbers(
    folder: Path, ours: Mapping[str, Any], settings: Mapping[str, Any], drawn: Sequence[RecipeFigure] = ()
) -> dict[str, Any]:
    """Write the numbers that everything else is made from, with their settings and versions, and read them back.

    `drawn` are figures that cannot be made from the numbers; their digests are kept.
    """
    figures = {one.name: {"caption": one.caption, "sha256": digest(standalone(one.svg))} for one in drawn}
    content = {"settings": dict(settings), "versions": versions(), "drawn": figures, "ours": dict(ours)}
    text = json.dumps(json.loads(json_text(content)), separators=(",", ":"), ensure_ascii=False)
    with replacing(folder / NUMBERS) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return read_numbers(folder)


def read_numbers(folder: Path) -> dict[str, Any]:
    """The settings, versions, drawn figures and numbers that `write_numbers` wrote."""
    path = folder / NUMBERS
    with reading(path, what := "the numbers of a recipe"):
        content = read_json(path, what, NUMBERS_BYTES)
        return {name: content[name] for name in ("settings", "versions", "drawn", "ours")}


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_if_there(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is none."""
    try:
        return read_object(path, "a result")
    except InputError:
        return None


def read_figure(folder: Path, name: str, caption: str) -> RecipeFigure:
    """A figure that was drawn earlier, if its file is a drawing and nothing else: it becomes a part of the page."""
    figure = RecipeFigure(name, caption, "")
    path = folder / f"{name}.svg"
    if not path.is_file():
        raise InputError(f"{folder} must hold {name}.svg, which cannot be drawn again")
    with reading(path, "a figure"):
        svg = STYLE.sub("", read_small(path, "a figure").decode(), count=1).rstrip("\n")
        if "<!" in svg or "<?" in svg or not all(map(_is_drawn, ElementTree.fromstring(svg).iter())):
            raise InputError("it has more than shapes, texts and images")
    return replace(figure, drawing=svg)


def _is_drawn(element: Any) -> bool:
    """Whether an element of an SVG file is a shape, text or image, without code or links."""
    links = [value for name, value in element.items() if name.rpartition("}")[2] == "href"]
    return (
        element.tag in DRAWN
        and all(link.startswith(("#", "data:image/png")) for link in links)
        and not any(name.lower().startswith("on") for name in element.attrib)
    )
