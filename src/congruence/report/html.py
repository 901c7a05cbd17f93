"""A document as one self-contained HTML page, or as a notebook cell."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from congruence.document import Block, Column, Details, Document, Figure, Image, Table, as_cell, walk
from congruence.errors import printable_lines
from congruence.formatting import UNDEFINED, setting
from congruence.result import versions

LIMIT = 1_900_000  # bytes of a page
ROWS, DETAILS = 500, 12  # of a table; and parts with figures, about 60 kB each
MARKS = {"fails": "✕", "ambiguous": "≈", "unknown": "?", "holds": "✓"}  # distinguish statuses without colour
GAP = 2  # pixels between adjacent images


class _Limits(NamedTuple):
    rows: int
    details: int


def render_html(document: Document) -> str:
    """Return the document as one HTML page that needs no other file, below 2 MB.

    Where it would be larger, fewer parts with figures and fewer rows of each table are shown, with a note.
    """
    drawn: dict[int, str] = {}
    limits = _Limits(ROWS, DETAILS)
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    more = {"script": script, "script_hash": f"sha256-{digest}"}  # the only script that the page may run
    page = _render("page.html.j2", document, limits, drawn, **more)
    while len(page.encode()) > LIMIT and (limits.details > 0 or limits.rows > 1):
        limits = _Limits(max(limits.rows // 2, 1), limits.details // 2)
        page = _render("page.html.j2", document, limits, drawn, **more)
    return page


def render_cell(document: Document) -> str:
    """Return headline, main tables and main figure as a fragment for a notebook."""
    brief: list[Block] = [b for b in document.blocks() if getattr(b, "brief", False)]
    return _render("cell.html.j2", document, _Limits(20, 0), {}, brief=brief)


def _render(template: str, document: Document, limits: _Limits, drawn: dict[int, str], **more: Any) -> str:
    settings = dict(document.settings)
    command, files = settings.pop("command", None), settings.pop("inputs", None)
    environment = _environment()
    environment.filters["draw"] = lambda figure: _draw(figure, drawn, hover="script" in more)
    text = environment.get_template(template).render(
        document=document,
        limits=limits,
        command=command,
        inputs=_files(files) if files else None,
        settings=_settings(settings),
        versions=versions(),
        **more,
    )
    return printable_lines(text)


def _settings(settings: dict[str, Any]) -> Table:
    columns = (Column("setting", "text"), Column("value", "text"))
    return Table("Settings", columns, [(name, setting(value)) for name, value in settings.items()], "compact", False)


def _files(files: Sequence[Any]) -> Table:
    columns = (Column("file", "name"), Column("bytes"), Column("SHA-256", "name"))
    rows = [(f["path"], f"{f['bytes']:,}", f["sha256"] or f"modified {f['modified']}") for f in files]
    return Table("Input files", columns, rows, "compact", False)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "cell": as_cell,
        "kind": _kind,
        "png": _png,
        "prose": _prose,
        "folded": _folded,
        "draw": str,
    }
    environment.globals |= {"marks": MARKS, "palette": _palette, "undefined": UNDEFINED}
    return environment


def _read(name: str) -> str:
    return resources.files("congruence.report").joinpath(name).read_text(encoding="utf-8")


def _palette(scheme: int) -> Any:
    from markupsafe import Markup

    from congruence.report.figures.svg import PALETTE

    return Markup("".join(f"--{name}: {colours[scheme]}; " for name, colours in PALETTE.items()))


def _kind(block: Block) -> str:
    return type(block).__name__


def _prose(sentence: str) -> str:
    """Keep percent signs on the line of their number."""
    return sentence.replace(" %", "\u00a0%")


def _folded(blocks: Sequence[Block], most: int) -> dict[str, Any]:
    """The blocks of a section with at most so many details that hold figures, and how many were left out."""
    heavy = [b for b in blocks if isinstance(b, Details) and any(isinstance(x, Figure) for x in walk(b.blocks))]
    dropped = {id(block) for block in heavy[most:]}
    return {"shown": [b for b in blocks if id(b) not in dropped], "left_out": len(dropped)}


def _draw(figure: Figure, drawn: dict[int, str], hover: bool) -> Any:
    from markupsafe import Markup

    from congruence.report.figures import drawing

    if id(figure) not in drawn:
        drawn[id(figure)] = drawing(figure).svg(hover)
    return Markup(drawn[id(figure)])


def _png(image: Image) -> dict[str, Any]:
    """Encode an image for the page; several images are put side by side."""
    pixels = side_by_side(image.pixels) if np.ndim(image.pixels) == 4 else image.pixels
    address = "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
    return {"address": address, "width": pixels.shape[1], "height": pixels.shape[0]}


def side_by_side(images: Any) -> Any:
    """Images (m, channels, height, width) in one row, as pixels (height, wide, 4); the gaps are transparent."""
    m, channels, height, width = images.shape
    shades = np.asarray(images[:, :3] if channels >= 3 else images[:, [0, 0, 0]], dtype=np.uint8)  # grey as colours
    pixels = np.concatenate([shades, np.full((m, 1, height, width), 255, np.uint8)], 1)
    wide = np.zeros((height, m * (width + GAP) - GAP, 4), np.uint8)
    for i, image in enumerate(pixels):
        wide[:, i * (width + GAP) : i * (width + GAP) + width] = image.transpose(1, 2, 0)
    return wide


def png(pixels: Any) -> bytes:
    """Pixels (height, width, 4) uint8, red, green, blue and alpha, as a png file; the same pixels, the same bytes."""
    from PIL import Image as Picture

    file = io.BytesIO()
    Picture.fromarray(np.ascontiguousarray(pixels), "RGBA").save(file, "PNG", compress_level=9)
    return file.getvalue()
