"""A document as text on a terminal: headline, main tables, notes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from congruence.document import Cell, Document, Findings, Notes, Table, Text, as_cell
from congruence.errors import printable
from congruence.report.html import MARKS

if TYPE_CHECKING:
    from rich.console import Console

ROWS = 40  # of a table
WIDE = 5  # columns
STYLES = {"holds": "green", "fails": "red", "ambiguous": "yellow", "unknown": "dim"}


def show(document: Document, console: Console) -> None:
    """Print the document on a rich console: sentences are wrapped on a terminal, and stay on one line in a file."""
    for part in _parts(document, console):
        console.print(part, soft_wrap=isinstance(part, str) and not console.is_terminal, highlight=False)


def show_table(table: Table, console: Console) -> None:
    """Print one table on a rich console."""
    console.print(_table(table, console), highlight=False)


def render_text(document: Document, width: int = 100) -> str:
    """Return what `show` prints, without colours."""
    from rich.console import Console

    out = io.StringIO()
    show(document, Console(file=out, width=width, no_color=True, force_terminal=False))
    return out.getvalue().rstrip("\n")


def _parts(document: Document, console: Console) -> Iterator[Any]:
    yield f"[bold]{_plain(document.headline)}[/bold]"
    if document.details:
        yield _plain(" ".join(document.details))
    status = f"{MARKS[document.status]} {document.status_text or document.status}"
    line = f"[{STYLES[document.status]}]{status}[/]"
    if document.claim:
        line = f"{_plain(document.claim)} {line}"
    yield f"{line}  {_plain(document.remark)}".rstrip()
    for block in document.blocks():
        if isinstance(block, Table) and block.brief:
            yield _table(block, console)
            if block.note:
                yield _plain(block.note)
        elif isinstance(block, Findings) and block.brief:
            for finding in block.findings:
                word = f"[{STYLES[finding.status]}]{MARKS[finding.status]} {finding.status:<9}[/]"
                yield f"{word} {_plain(finding.claim)} ({finding.basis})"
                if finding.evidence:
                    yield f"            {_plain(finding.evidence)}"
        elif isinstance(block, Text) and block.brief:
            yield _plain(block.text)
        elif isinstance(block, Notes) and block.brief:
            yield from (f"note: {_plain(note)}" for note in block.notes)
    for note in document.notes:
        yield f"note: {_plain(note)}"


class _Layout(NamedTuple):
    """How to fit a table into the width of a terminal."""

    whole: bool = True  # numbers are not broken
    stacked: bool = False  # second lines of numbers are below them
    crowded: bool = False  # less space, and marks instead of statuses


# from much to little room
_LAYOUTS = (
    _Layout(),
    _Layout(stacked=True),
    _Layout(stacked=True, crowded=True),
    _Layout(whole=False),
    _Layout(whole=False, crowded=True),
)


def _table(block: Table, console: Console) -> Any:
    """The table as it is if it fits, else in the first layout in which no number and no word has to be broken.

    Where there is none, rich would cut the ends of numbers; then rows are sentences.
    """
    unlimited = console.options.update(width=1000)
    natural = _fill(block, _Layout(whole=False))
    if console.measure(natural, options=unlimited).maximum <= console.width:
        return natural
    tables = [_fill(block, layout) for layout in _LAYOUTS]
    fitting = (
        table
        for table in tables
        if max(console.measure(table, options=unlimited).minimum, _drawn_width(table, console)) <= console.width
    )
    return next(fitting, None) or "\n".join([f"[bold]{_plain(block.label)}[/bold]", *_sentences(block)])


def _drawn_width(table: Any, console: Console) -> int:
    """The width that rich gives a table where it has less room: it may exceed the room, and is then cut."""
    from rich.cells import cell_len

    drawn = "".join(segment.text for segment in console.render(table, console.options))
    return max(map(cell_len, drawn.splitlines()), default=0)


def _sentences(block: Table) -> Iterator[str]:
    columns = [(i, column.name) for i, column in enumerate(block.columns) if column.brief and not _drawn_only(block, i)]
    for row in [*block.rows[:ROWS], *([block.footer] if block.footer else [])]:
        (_, first), *cells = [(name, _text(as_cell(row[i]), False, _Layout())) for i, name in columns]
        yield _plain(f"{first}: " + "; ".join(f"{name} {text}" for name, text in cells if text))
    if len(block.rows) > ROWS:
        yield f"and {len(block.rows) - ROWS} more rows"


def _fill(block: Table, layout: _Layout) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table as RichTable

    visible = [i for i, column in enumerate(block.columns) if column.brief and not _drawn_only(block, i)]
    table = RichTable(
        title=_plain(block.label),
        box=box.SIMPLE_HEAD,
        padding=(0, 0) if layout.crowded else (0, 1),
        pad_edge=False,
        show_edge=not layout.crowded,
        show_header=block.header,
    )
    narrow = len(visible) > WIDE  # no room for second lines
    shown, footer = block.rows[:ROWS], [block.footer] if block.footer else []
    texts = [[_text(as_cell(row[i]), narrow, layout) for i in visible] for row in [*shown, *footer]]
    for place, column in enumerate(block.columns[i] for i in visible):
        right = column.kind == "number"
        table.add_column(
            _plain(column.name),
            justify="right" if right else "left",
            overflow="fold",
            min_width=8 if place == 0 else None,
            width=_width(column.name, [row[place] for row in texts]) if right and layout.whole else None,
        )
    for i, row in enumerate(texts[: len(shown)]):
        table.add_row(*map(escape, row), style="bold" if i == block.marked else None)
    if len(block.rows) > ROWS:
        table.add_row(f"and {len(block.rows) - ROWS} more rows", style="dim")
    for row in texts[len(shown) :]:
        table.add_row(*map(escape, row), style="dim")
    return table


def _width(name: str, cells: Sequence[str]) -> int:
    """The width of a column whose cells stay whole; its name may be broken between words."""
    from rich.cells import cell_len

    lines = [line for cell in cells for line in cell.split("\n")]
    return max((cell_len(text) for text in [*lines, *printable(name).split()]), default=1)


def _drawn_only(block: Table, column: int) -> bool:
    """Whether a column holds only images and figures, which a terminal cannot show."""
    return bool(block.rows) and all(as_cell(row[column]).drawn for row in block.rows)


def _text(cell: Cell, narrow: bool, layout: _Layout) -> str:
    text = printable(cell.text)
    if cell.status:
        text = MARKS[cell.status] if layout.crowded and text == cell.status else f"{MARKS[cell.status]} {text}"
    between = "\n" if layout.stacked else " "
    return f"{text}{between}({printable(cell.below)})" if cell.below and not narrow else text


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))
