"""A document as text on a terminal: headline, main tables, notes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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


def _table(block: Table, console: Console) -> Any:
    """The table; where words would have to be broken, with less space and with marks instead of statuses."""
    table = _fill(block, crowded=False)
    unlimited = console.options.update(width=1000)
    crowded = console.measure(table, options=unlimited).minimum > console.width
    return _fill(block, crowded=True) if crowded else table


def _fill(block: Table, *, crowded: bool) -> Any:
    from rich import box
    from rich.table import Table as RichTable

    visible = [i for i, column in enumerate(block.columns) if column.brief and not _drawn_only(block, i)]
    table = RichTable(
        title=_plain(block.label),
        box=box.SIMPLE_HEAD,
        padding=(0, 0) if crowded else (0, 1),
        pad_edge=False,
        show_edge=not crowded,
        show_header=block.header,
    )
    for place, column in enumerate(block.columns[i] for i in visible):
        right = column.kind == "number"
        table.add_column(
            _plain(column.name),
            justify="right" if right else "left",
            overflow="fold",
            min_width=8 if place == 0 else None,
        )

    narrow = len(visible) > WIDE  # no room for second lines

    def add(row: Any, style: str | None = None) -> None:
        table.add_row(*(_cell(as_cell(row[i]), narrow, crowded) for i in visible), style=style)

    for i, row in enumerate(block.rows[:ROWS]):
        add(row, "bold" if i == block.marked else None)
    if len(block.rows) > ROWS:
        table.add_row(f"and {len(block.rows) - ROWS} more rows", style="dim")
    if block.footer:
        add(block.footer, "dim")
    return table


def _drawn_only(block: Table, column: int) -> bool:
    """Whether a column holds only images and figures, which a terminal cannot show."""
    return bool(block.rows) and all(as_cell(row[column]).drawn for row in block.rows)


def _cell(cell: Cell, narrow: bool, crowded: bool) -> str:
    text = cell.text
    if cell.status:
        text = MARKS[cell.status] if crowded and text == cell.status else f"{MARKS[cell.status]} {text}"
    return _plain(f"{text} ({cell.below})" if cell.below and not narrow else text)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))
