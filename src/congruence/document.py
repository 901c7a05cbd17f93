"""A result as a document: headline, tables, figures and glossary, as plain data.

A verb's result builds one `Document`; the renderers of `congruence.report` turn it into an HTML page, terminal text,
Markdown or a notebook cell. Figures are named, not drawn: `Figure("ladder", pair)` is drawn by
`congruence.report.figures.pairs` when a renderer asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from congruence.formatting import UNDEFINED, elided, interval, number, percent
from congruence.result import Finding, Status

Kind = Literal["text", "number", "name"]
LETTERS, HINT = 32, 300  # characters of a label in a cell, and of its tooltip
CONTEXT_LETTERS = 96  # of a token and its context, as `extract` writes them


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, sort key and decoration."""

    text: str
    value: float | str | None = None  # sort key; None sorts by the text, "" sorts last
    below: str = ""  # a second, smaller line
    hint: str = ""  # tooltip
    strong: bool = False
    status: Status | None = None  # shown as a badge with `text`
    tint: float | None = None  # strength of the background colour, 0 to 1
    link: str = ""  # the id of a part of the page
    image: Image | None = None
    figure: Figure | None = None  # a small drawing, such as a score on its range

    @property
    def drawn(self) -> bool:
        """Whether the cell holds an image or a figure, which text cannot show."""
        return self.image is not None or self.figure is not None


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers are aligned right, names may be long."""

    name: str
    kind: Kind = "number"
    brief: bool = True  # also on a terminal


@dataclass(frozen=True)
class Table:
    """Rows of cells. Plain values may be given as cells: text, numbers (three digits), None (a dash)."""

    label: str  # for screen readers, and the title on a terminal
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str | float | int | None]]
    style: Literal["compact", "facts", "heat", "images"] = "compact"
    sortable: bool = True
    brief: bool = False  # also on a terminal and in a notebook
    note: str = ""
    footer: Sequence[Cell | str | float | int | None] = ()
    marked: int | None = None  # the highlighted row
    header: bool = True


@dataclass(frozen=True)
class Figure:
    """A figure of `congruence.report.figures`, by the name of the function that draws it and its arguments."""

    painter: str
    data: tuple[Any, ...] = field(repr=False)
    caption: str = ""
    detail: str = ""  # a smaller second line of the caption
    wide: bool = False
    brief: bool = False  # the main figure: in a notebook, and drawn by Result.plot
    title: str = ""  # of the axes that Result.plot draws; a page has headings instead
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
    """A figure that is already drawn, as the text of an SVG element."""

    svg: str = field(repr=False)
    caption: str = ""
    detail: str = ""
    wide: bool = True
    brief: bool = False  # the main figure: in a notebook, and drawn by Result.plot if it has a drawing
    drawing: Any = field(default=None, repr=False)  # a `Drawing` of the same figure


@dataclass(frozen=True)
class Image:
    """Pixels (height, width, 4) uint8, or images (m, channels, height, width) side by side."""

    pixels: Any = field(repr=False)
    label: str  # for screen readers
    caption: str = ""
    detail: str = ""
    width: str = ""  # CSS; by default the size of the pixels
    framed: bool = False


@dataclass(frozen=True)
class Text:
    """A paragraph: `strong` is bold text before it, `status` a badge after it."""

    text: str
    muted: bool = False
    strong: str = ""
    status: Status | None = None
    brief: bool = False


@dataclass(frozen=True)
class Findings:
    """Findings with their badges and evidence, one below the other."""

    findings: Sequence[Finding]
    brief: bool = False


@dataclass(frozen=True)
class Grid:
    """Blocks side by side: figure and table ("pictures"), two halves, or several small ones."""

    blocks: Sequence[Block]
    layout: Literal["pictures", "halves", "small"] = "halves"


@dataclass(frozen=True)
class Group:
    """Blocks below each other, as one cell of a grid."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Details:
    """Blocks behind a summary line that opens on a click."""

    summary: str
    blocks: Sequence[Block]
    id: str = ""
    open: bool = False
    status: Status | None = None


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str
    id: str = ""


@dataclass(frozen=True)
class Notes:
    """Remarks as a list."""

    notes: Sequence[str]
    brief: bool = False


Block = Text | Table | Figure | Drawn | Image | Findings | Grid | Group | Details | Heading | Notes


@dataclass(frozen=True)
class Section:
    """A titled part of a page."""

    title: str
    blocks: Sequence[Block]
    id: str = ""


@dataclass(frozen=True)
class Document:
    """The content of a page."""

    question: str  # with the names of the inputs
    headline: str  # the answer, one sentence
    status: Status
    claim: str = ""  # the claim of the status, as a short question
    details: Sequence[str] = ()  # sentences below the headline
    status_text: str = ""  # the word on the badge, if it is not the status (go, no-go)
    remark: str = ""  # next to the badge
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    reading: str = ""  # the first paragraph of "How to read this"
    glossary: Sequence[tuple[str, str]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # "command" and "inputs" are shown separately
    title: str = ""  # of the browser tab; by default the question

    def blocks(self) -> Iterator[Block]:
        """All blocks, including nested ones, in the order of the page."""
        for section in self.sections:
            yield from walk(section.blocks)

    @property
    def main_figure(self) -> Figure | None:
        """The first figure that is marked `brief`."""
        return next((b for b in self.blocks() if isinstance(b, Figure) and b.brief), None)


def document_of(result: Any, question: str, *, about: str | None = None, **more: Any) -> Document:
    """The document of a result, with its headlines, status, notes and settings; `about` is put into its title."""
    headline, *details = result.headlines
    title = {} if about is None else {"title": f"{about}: {headline}" if about else headline}
    common = {"details": details, "status": result.status, "notes": result.notes, "settings": result.settings}
    return Document(question, headline, **(common | title | more))


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """All blocks, including nested ones."""
    for block in blocks:
        yield block
        if isinstance(block, Grid | Group | Details):
            yield from walk(block.blocks)


def columns(*names: str, kind: Kind = "number") -> tuple[Column, ...]:
    """Several columns of one kind."""
    return tuple(Column(name, kind) for name in names)


def as_cell(value: Any) -> Cell:
    """A plain value as a cell; numbers have three digits and sort by their value."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell(UNDEFINED, "")
    if isinstance(value, str):
        return Cell(value)
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int):
        return Cell(str(value), value)
    return Cell(number(value), value if value == value else "")


def share(value: float, **more: Any) -> Cell:
    """A cell with a share as a percentage."""
    return Cell(percent(value), value if value == value else "", **more)


def shares(low: float, high: float) -> Cell:
    """A cell with an interval of shares, sorted by its lower end."""
    return Cell(interval(low, high), low if low == low else "")


def badge(status: Status, text: str = "") -> Cell:
    """A cell with a badge; worse statuses sort first."""
    from congruence.result import STATUSES

    return Cell(text or status, STATUSES.index(status), status=status)


def facts(rows: Sequence[tuple[str, Any, str]], label: str, **more: Any) -> Table:
    """A table of single numbers: name, value, meaning."""
    columns = (Column("", "text"), Column("", "number"), Column("", "text"))
    return Table(label, columns, rows, style="facts", sortable=False, header=False, **more)


def label_cell(value: Any, letters: int = LETTERS) -> Cell:
    """Any id or metadata as a cell of a table, with the middle of long texts left out; missing values sort last."""
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or (isinstance(plain, float) and math.isnan(plain)):
        return Cell("", "")
    if isinstance(plain, float):
        whole = plain.is_integer() and abs(plain) < 1e15
        return Cell(f"{plain:.0f}".replace("-", "−") if whole else number(plain, 4), plain)
    text = str(plain)
    short = elided([text], letters)[0]
    return Cell(short) if short == text else Cell(short, hint=elided([text], HINT)[0])
