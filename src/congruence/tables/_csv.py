"""Readers of text: .csv and .tsv, whose layout and column types have to be detected, and .jsonl."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from congruence.arrays import listing
from congruence.errors import TableError
from congruence.guards import first_sentence, suffix_of
from congruence.memory import check_fits
from congruence.tables.columns import (
    ID_NAMES,
    INDEX_NAMES,
    NUMBER,
    PREFIX,
    Selection,
    Source,
    check_columns,
    choose_columns,
    choose_id,
    id_likeness,
    is_number,
)

# Cells that mean a missing number; "nan" is not listed because it parses as a number.
_NULLS = ["", "NA", "N/A", "#N/A", "n/a", "null", "NULL", "None", "<NA>"]
HEADER_LIMIT = 2**26  # characters of the header
_BLANK_LINE = 2**8  # characters that a line before it counts at least
_DELIMITERS = "\t;|,"  # in this order, if several divide the first lines equally
_SNIFFED, _SNIFFED_CHARACTERS = 16, 2**20  # lines, and characters after the first, from which the layout is detected
_SAMPLED = 1000  # lines of .jsonl from which the fields and their types are collected
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(e[-+]?\d+)?", re.IGNORECASE)
_NEXT_OBJECT = re.compile(rb'\}(?=\s*\{\s*["}])')  # pyarrow accepts several objects in a line; not inside a text
_FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=e))(e[-+]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """How the cells of a csv file are separated, and the names of its columns."""

    names: list[str]
    delimiter: str = ","
    header: bool = True  # whether the first line holds the names
    decimal: str = "."
    notes: tuple[str, ...] = ()


def read_csv_table(path: Path, select: Selection, *, all_columns: bool) -> tuple[Any, dict[str, str], tuple[str, ...]]:
    """Read a csv file as an arrow table of numbers and text, describe text where numbers are expected, and add notes.

    Ids stay text, so that 007 stays 007. Other columns that may be text (with `all_columns`, all of them) become
    numbers where nothing is lost.
    """
    layout = layout_of_csv(path, select)
    names = layout.names
    check_columns(names, path)
    if all_columns:
        as_text, values = names, []
    else:  # the types are not known yet, but most columns are chosen by their names alone
        columns = choose_columns(Source(path, dict.fromkeys(names, NUMBER)), select)
        as_text, values = columns.labels, list(columns.values)
    possible = [name for name in names if name in as_text or id_likeness(name) or name in INDEX_NAMES]
    raw = table = _parse(path, layout, possible)
    for name in possible:
        table = table.set_column(names.index(name), name, _retype(table.column(name)))
    texts = [name for name in names if str(table.schema.field(name).type) == "string"]
    kinds = {name: "text" if name in texts else NUMBER for name in names}

    def take(names: Any, most: int) -> dict[str, Any]:
        return {name: table.column(name).slice(0, most).to_numpy() for name in names}

    id = choose_id(Source(path, kinds, n=table.num_rows, text=texts, take=take), select).id
    if id in possible:
        table = table.set_column(names.index(id), id, raw.column(id))
        texts.append(id)
    return table, {name: _first_text(table.column(name)) for name in values if name in texts}, layout.notes


def _parse(path: Path, layout: Layout, as_text: list[str]) -> Any:
    """Parse the file; the columns of `as_text` stay text, the types of the others are guessed."""
    import pyarrow as pa
    import pyarrow.csv as pv

    columns = dict.fromkeys(as_text, pa.string())
    convert = pv.ConvertOptions(column_types=columns, null_values=_NULLS, decimal_point=layout.decimal)
    width = len(layout.names)
    # A blank line is a missing value if there is one column; dropping it would shift the rows below.
    parse = pv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True, ignore_empty_lines=width > 1)
    # Every block becomes a chunk of each column, so wide files need large blocks.
    read = pv.ReadOptions(block_size=min(2**28, max(2**20, 2**15 * width)))
    if not layout.header:
        read.column_names = layout.names
    for read.use_threads in (True, False):  # pyarrow counts lines only without threads
        try:
            with contextlib.closing(_LimitedFile(path, layout.delimiter)) as source:
                table = pv.read_csv(source, read, parse, convert)
                break
        except pa.ArrowInvalid as error:
            if not read.use_threads:
                raise TableError(_parse_message(path, error, layout.header)) from error
    if table.num_rows == 0:  # without cells, the types of columns are unknown
        raise TableError(f"{path} is empty: it has a header, but no rows")
    return table


def _open(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if suffix_of(path).endswith(".gz") else open
    stream: IO[bytes] = opener(path, "rb")
    return stream


class _LimitedFile:
    """The bytes of a text file; reading fails once the table would not fit, since gzip does not store the size."""

    closed = False

    def __init__(self, path: Path, delimiter: str = ",", fields: int = 0) -> None:
        self.path, self.stream, self.delimiter = path, _open(path), delimiter.encode()
        self.fields = fields  # of every object of a .jsonl, also where a line lacks them
        self.size = self.cells = self.objects = 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.size += len(data)
        self.cells += data.count(self.delimiter) + data.count(b"\n")
        self.objects += len(_NEXT_OBJECT.findall(data)) if self.fields else 0
        cells = max(self.cells, self.fields * self.objects)
        check_fits(self.path, max(self.size, 16 * cells))  # 8 bytes as a column and 8 in the matrix
        return data

    def close(self) -> None:
        self.stream.close()


def layout_of_csv(path: Path, select: Selection) -> Layout:
    """Detect the delimiter, the decimal separator and whether there is a header, except where the user chose."""
    lines = _first_lines(path)
    delimiter = select.delimiter or ("\t" if suffix_of(path).startswith(".tsv") else _detect_delimiter(lines))
    rows = _cells(lines, delimiter)
    if not rows:
        raise TableError(f"{path} is empty: it has no header")
    first = rows[0]
    comma = delimiter != "," and any(_DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    decimal = "," if comma else "."
    header = select.header
    notes: tuple[str, ...] = ()
    if header is None:
        header = _is_header([cell.replace(decimal, ".") for cell in first])
        notes = () if header else (f"{path.name} has no header: its first line holds numbers ({listing(first, 3)}).",)
    names = first if header else [f"column{i}" for i in range(len(first))]
    return Layout(names, delimiter, header, decimal, notes)


def _first_lines(path: Path) -> list[str]:
    """Return the first lines that are not blank: the first one however long it is, then as many as are short."""
    with io.TextIOWrapper(_open(path), "utf-8-sig", newline="") as handle:
        lines = list(islice((line for line in _lines(path, handle) if line.strip("\r\n")), 1))
        left = _SNIFFED_CHARACTERS
        while lines and len(lines) < _SNIFFED and (line := handle.readline(left)):
            left -= len(line)
            if left <= 0:  # perhaps not the whole line
                break
            lines += [line] if line.strip("\r\n") else []
    return lines


def _cells(lines: list[str], delimiter: str) -> list[list[str]]:
    """Divide lines into cells, as far as these are not longer than the csv module reads."""
    rows: list[list[str]] = []
    with contextlib.suppress(csv.Error):
        rows += (row for row in csv.reader(lines, delimiter=delimiter) if row)
    return rows


def _detect_delimiter(lines: list[str]) -> str:
    """Return the delimiter that divides each of the first lines into equally many cells, at least two; else a comma."""
    for delimiter in _DELIMITERS:
        widths = [len(row) for row in _cells(lines, delimiter)]
        whole = widths[:-1] if len(lines) == _SNIFFED else widths  # a quoted cell may go on after the last line
        if whole and min(whole) == max(whole) > 1:
            return delimiter
    return ","


def _is_header(cells: list[str]) -> bool:
    """Whether the first line holds names: pandas counts columns without names, and only data have fractions."""
    if len(cells) > 1 and cells == [str(i) for i in range(len(cells))]:
        return True
    return not all(map(is_number, cells)) and not any(_FRACTION.fullmatch(cell.strip()) for cell in cells)


def _lines(path: Path, handle: IO[str]) -> Iterator[str]:
    """Yield lines up to the limit of a header: without a line break, the first would be the whole file."""
    left = HEADER_LIMIT
    while line := handle.readline(left):
        left -= max(len(line), _BLANK_LINE)
        if left <= 0:
            raise TableError(f"{path} has no header: its first line is longer than {HEADER_LIMIT} characters")
        yield line


def _parse_message(path: Path, error: Exception, header: bool) -> str:
    """Return pyarrow's error message with its row number as the line of the file."""
    match = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if match is None:
        return f"{path} could not be read as {suffix_of(path)}, it may be damaged: {first_sentence(error)}"
    line, expected, got = match.groups()
    return f"{path} is ragged: line {line} has {got} cells, but the {'header' if header else 'first'} has {expected}"


def _retype(column: Any) -> Any:
    """Convert text to numbers where nothing is lost: 12 becomes a number, 007 and A01 stay text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    filled = pc.if_else(pc.equal(column, ""), None, column)
    if filled.null_count == len(filled) or pc.any(pc.match_substring_regex(filled, r"^-?0\d")).as_py():
        return column
    for type in (pa.int64(), pa.float64()):
        try:
            return filled.cast(type)
        except pa.ArrowInvalid:
            continue
    return column


def _first_text(column: Any) -> str:
    """Describe the first cell of a text column that is not a number."""
    for row, cell in enumerate(column.to_pylist()):
        if cell not in _NULLS and not is_number(cell):
            return f"{cell[:40]!r} in row {row}"
    return "text"


def read_json_table(path: Path, select: Selection) -> Any:
    """Read a file with one JSON object in each line as an arrow table of numbers, text and lists of numbers.

    The fields and their types are those of the first lines: a file in which every line had fields of its own would
    take more memory than can be foreseen. Fields of other types, or that appear only later, are left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    objects: list[Any] = []
    with io.TextIOWrapper(_open(path), "utf-8-sig") as handle:
        try:
            for line in islice(_lines(path, handle), _SAMPLED):
                objects += [json.loads(line)] if line.strip() else []
        except TableError:  # of long lines, fewer are enough
            if not objects:
                raise
        size = handle.buffer.tell()
    if not all(isinstance(one, dict) for one in objects):
        raise TableError(f'{path} must hold one JSON object in each line, such as {{"id": 1, "vector": [0.5, 2]}}')
    known = _field_types(path, objects, select)
    if not known:
        raise TableError(f"{path} is empty: it has no fields of numbers or text")
    check_columns(list(known), path)
    check_fits(path, 16 * len(known) * len(objects))
    read = pj.ReadOptions(block_size=min(2**28, max(2**22, size)))  # a line must fit in a block
    whole = {name for name, type in known.items() if type is None}

    def parse(fractions: set[str]) -> Any:
        schema = [(name, type or (pa.float64() if name in fractions else pa.int64())) for name, type in known.items()]
        options = pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore")
        with contextlib.closing(_LimitedFile(path, fields=len(known))) as source:
            return pj.read_json(source, read, options)

    try:
        return parse(set())  # integers, unless a fraction follows after the first lines
    except pa.ArrowInvalid:
        if not whole:
            raise
    table = parse(whole)
    fractions = {name for name in whole if pc.any(pc.not_equal(column := table[name], pc.floor(column))).as_py()}
    large = {name for name in whole if pc.any(pc.greater_equal(pc.abs(table[name]), float(2**53))).as_py()}
    for floats in (fractions, whole - large):  # ids beyond 2**53 stay exact, also where others are written as 1.0
        with contextlib.suppress(pa.ArrowInvalid):
            return parse(floats)
    return table


def _field_types(path: Path, objects: list[dict[str, Any]], select: Selection) -> dict[str, Any]:
    """Return the arrow type of each field; None for integers, which may turn out to be floats."""
    import pyarrow as pa

    kinds: dict[str, set[str]] = {}
    for one in objects:
        for name, value in one.items():
            kinds.setdefault(name, set()).update(_json_kinds(value))
    types = {"int": None, "float": pa.float64(), "str": pa.string(), "bool": pa.bool_(), "list": pa.list_(pa.float64())}
    chosen: dict[str, Any] = {}
    for name, found in kinds.items():
        kind = "float" if found == {"int", "float"} else next(iter(found)) if len(found) == 1 else ""
        if kind in types:
            chosen[name] = types[kind]
    for name in ID_NAMES if select.id is None else (select.id, PREFIX + select.id):
        if name in chosen:
            break
        if len(found := kinds.get(name, set())) > 1:  # rows would be paired by position
            raise TableError(f"{path}: the field {name!r} holds {' and '.join(sorted(found))}; write all ids as text")
    return chosen


def _json_kinds(value: Any) -> set[str]:
    if value is None:
        return set()
    if isinstance(value, list):
        numbers = all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in value)
        return {"list" if numbers else "nested"}
    return {type(value).__name__}
