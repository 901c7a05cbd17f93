"""A document as Markdown: everything but its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from congruence import document as doc
from congruence.document import Block, Cell, Details, Document, Findings, Grid, Group, Heading, Notes, Table, as_cell
from congruence.errors import printable_lines
from congruence.formatting import setting
from congruence.report.html import MARKS
from congruence.result import versions


def render_markdown(document: Document) -> str:
    """Return the document as GitHub-flavoured Markdown."""
    return printable_lines("\n\n".join(part for part in _parts(document) if part)) + "\n"


def _parts(document: Document) -> Iterator[str]:
    yield f"# {_line(document.question)}"
    yield f"**{_line(document.headline)}** {_line(' '.join(document.details))}".rstrip()
    badge = f"{MARKS[document.status]} {document.status_text or document.status}"
    yield f"{document.claim} **{badge}** {document.remark}".strip()
    if document.notes:
        yield _bullets(document.notes)
    for section in document.sections:
        yield f"## {_line(section.title)}"
        yield from _blocks(section.blocks)
    if document.glossary:
        yield "## How to read this"
        yield document.reading
        yield _bullets([f"**{word}**: {meaning}" for word, meaning in document.glossary])
    yield "## How this was made"
    settings = dict(document.settings)
    if command := settings.pop("command", None):
        yield f"```console\n$ {command}\n```"
    files = settings.pop("inputs", None) or ()
    yield _bullets([f"`{f['path']}`: {f['bytes']} bytes, {f['sha256'] or f['modified']}" for f in files])
    yield _bullets([f"{name}: {setting(value)}" for name, value in settings.items()])
    yield ", ".join(f"{name} {version}" for name, version in versions().items())


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, doc.Text):
            status = f" **{MARKS[block.status]} {block.status}**" if block.status else ""
            yield (f"**{block.strong}** " if block.strong else "") + block.text + status
        elif isinstance(block, Table):
            yield _table(block)
            yield f"*{block.note}*" if block.note else ""
        elif isinstance(block, Findings):
            yield _bullets(
                [f"{MARKS[f.status]} **{f.status}** ({f.basis}) {f.claim} {f.evidence}" for f in block.findings]
            )
        elif isinstance(block, Heading):
            yield f"### {_line(block.text)}"
        elif isinstance(block, Notes):
            yield _bullets(block.notes)
        elif isinstance(block, Details):
            yield f"### {_line(block.summary)}"
            yield from _blocks(block.blocks)
        elif isinstance(block, Grid | Group):
            yield from _blocks(block.blocks)


def _table(block: Table) -> str:
    visible = [i for i, _ in enumerate(block.columns) if not all(as_cell(row[i]).drawn for row in block.rows)]
    names = [_entry(Cell(block.columns[i].name)) for i in visible]
    rules = ["---:" if block.columns[i].kind == "number" else "---" for i in visible]
    rows = [
        [_entry(as_cell(row[i])) for i in visible] for row in [*block.rows, *([block.footer] if block.footer else [])]
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [names, rules, *rows])


def _entry(cell: Cell) -> str:
    text = f"{MARKS[cell.status]} {cell.text}" if cell.status else cell.text
    text = f"{text} ({cell.below})" if cell.below else text
    return _line(f"**{text}**" if cell.strong and text else text).replace("|", "\\|")


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines)


def _line(text: str) -> str:
    return " ".join(text.split())
