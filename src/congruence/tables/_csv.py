"""Reader of .csv files, whose column types have to be guessed."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from congruence.arrays import listing
from congruence.errors import TableError
from congruence.memory import check_fits
from congruence.tables.access import first_sentence, reading, suffix_of
from congruence.tables.columns import (
    INDEX_NAMES,
    NUMBER,
    Selection,
    Source,
    check_distinct,
    choose_columns,
    choose_id,
    id_likeness,
    is_number,
)

# Cells that mean a missing number; "nan" is not listed because it parses as a number.
_NULLS = ["", "NA", "N/A", "#N/A", "n/a", "null", "NULL", "None", "<NA>"]
HEADER_LIMIT = 2**26  # characters of the header: a million columns have fewer


def read_csv_table(path: Path, select: Selection, *, all_columns: bool) -> tuple[Any, dict[str, str]]:
    """Read a csv file as an arrow table of numbers and text, and describe text where numbers are expected.

    Ids stay text, so that 007 stays 007. Other columns that may be text (with `all_columns`, all of them) become
    numbers where nothing is lost.
    """
    names = header_of_csv(path)
    check_distinct(names, path)
    if all_columns:
        as_text, values = names, []
    else:  # the types are not known yet, but most columns are chosen by their names alone
        columns = choose_columns(Source(path, dict.fromkeys(names, NUMBER)), select)
        as_text, values = columns.labels, list(columns.values)
    possible = [name for name in names if name in as_text or id_likeness(name) or name in INDEX_NAMES]
    raw = table = _parse(path, names, possible)
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
    return table, {name: _first_text(table.column(name)) for name in values if name in texts}


def _parse(path: Path, names: list[str], as_text: list[str]) -> Any:
    """Parse the file; the columns of `as_text` stay text, the types of the others are guessed."""
    import pyarrow as pa
    import pyarrow.csv as pv

    convert = pv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()), null_values=_NULLS)
    # A blank line is a missing value if there is one column; dropping it would shift the rows below.
    parse = pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    # Every block becomes a chunk of each column, so wide files need large blocks.
    read = pv.ReadOptions(block_size=min(2**28, max(2**20, 2**15 * len(names))))
    with reading(path):
        for read.use_threads in (True, False):  # pyarrow counts lines only without threads
            try:
                with contextlib.closing(_LimitedFile(path)) as source:
                    table = pv.read_csv(source, read, parse, convert)
                    break
            except pa.ArrowInvalid as error:
                if not read.use_threads:
                    raise TableError(_parse_message(path, error)) from error
    if table.num_rows == 0:  # without cells, the types of columns are unknown
        raise TableError(f"{path} is empty: it has a header, but no rows")
    return table


def _open(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if suffix_of(path).endswith(".gz") else open
    stream: IO[bytes] = opener(path, "rb")
    return stream


class _LimitedFile:
    """The bytes of a csv file; reading fails once the table would not fit, since gzip does not store the size."""

    closed = False

    def __init__(self, path: Path) -> None:
        self.path, self.stream = path, _open(path)
        self.size = self.cells = 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.size += len(data)
        self.cells += data.count(b",") + data.count(b"\n")
        check_fits(self.path, max(self.size, 16 * self.cells))  # 8 bytes as a column and 8 in the matrix
        return data

    def close(self) -> None:
        self.stream.close()


def header_of_csv(path: Path) -> list[str]:
    """Return the column names of a csv file, and refuse a first line that is data."""
    with reading(path), io.TextIOWrapper(_open(path), "utf-8-sig", newline="") as handle:
        names: list[str] = next((row for row in csv.reader(_lines(path, handle)) if row), [])
    if not names:
        raise TableError(f"{path} is empty: it has no header")
    counted = len(names) > 1 and names == [str(i) for i in range(len(names))]  # as pandas names columns without names
    if all(is_number(name) for name in names) and not counted:
        raise TableError(
            f"{path} has no header: its first line holds only numbers ({listing(names, 3)}); give each column a name"
        )
    return names


def _lines(path: Path, handle: IO[str]) -> Iterator[str]:
    """Yield lines up to the limit of a header: without a line break, the first would be the whole file."""
    left = HEADER_LIMIT
    while line := handle.readline(left):
        left -= len(line)
        if left <= 0:
            raise TableError(f"{path} has no header: its first line is longer than {HEADER_LIMIT} characters")
        yield line


def _parse_message(path: Path, error: Exception) -> str:
    """Return pyarrow's error message with its row number as the line of the file."""
    match = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if match is None:
        return f"{path} could not be read as {suffix_of(path)}, it may be damaged: {first_sentence(error)}"
    line, expected, got = match.groups()
    return f"{path} is ragged: line {line} has {got} cells, but the header has {expected}"


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
