"""Reader of .csv files, where every type has to be guessed."""

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
from congruence.tables.access import first_sentence, reading, suffix_of
from congruence.tables.columns import (
    INDEX_NAMES,
    NUMBER,
    Layout,
    Selection,
    choose_columns,
    choose_id,
    id_likeness,
    is_number,
)
from congruence.tables.memory import check_fits
from congruence.tables.read_columns import check_distinct, choose, look_at_arrow, table_from_arrow
from congruence.tables.table import Table

# What stands for a missing number; "nan" is a number already and not in the list.
NULLS = ["", "NA", "N/A", "#N/A", "n/a", "null", "NULL", "None", "<NA>"]
HEADER_LIMIT = 2**26  # characters of the header: a million columns have fewer


def read_csv(path: Path, select: Selection) -> Table:
    """Read a csv file with a header; ids are kept as text, so that 007 stays 007."""
    select.refuse(path, "key", because="a csv file holds no arrays inside; use --features")
    table, described = _typed(path, select)
    return table_from_arrow(path, select, table, described)


def csv_layout(path: Path, select: Selection) -> Layout:
    """Choose the columns of a csv file."""
    table, described = _typed(path, select)
    return choose(table.schema, select, path, described, look=look_at_arrow(path, table))


def _typed(path: Path, select: Selection) -> tuple[Any, dict[str, str]]:
    """The file as an arrow table of numbers and text, and what text stands where numbers are expected."""
    names = header_of_csv(path)
    check_distinct(names, path)
    # The types are not known yet, but the parts that most columns play follow from their names alone.
    columns = choose_columns(dict.fromkeys(names, NUMBER), select, path)
    table = _with_id(path, names, columns.beside, select)
    return table, {name: _first_text(table.column(name)) for name in columns.values if _is_text(table, name)}


def csv_columns(path: Path, select: Selection) -> Any:
    """Read all columns of a csv file as an arrow table: numbers where nothing is lost by it, otherwise text."""
    names = header_of_csv(path)
    check_distinct(names, path)
    return _with_id(path, names, names, select)


def _with_id(path: Path, names: list[str], as_text: list[str], select: Selection) -> Any:
    """Read a csv file: the id stays text, `as_text` becomes numbers where nothing is lost by it, others are guessed."""
    possible = [name for name in names if name in as_text or id_likeness(name) or name in INDEX_NAMES]
    raw = table = _arrow_table(path, names, possible)
    for name in possible:
        table = table.set_column(names.index(name), name, _retyped(table.column(name)))
    kinds = {name: "text" if _is_text(table, name) else NUMBER for name in names}
    id = choose_id(kinds, select, path, look=look_at_arrow(path, table)).column
    return table.set_column(names.index(id), id, raw.column(id)) if id in possible else table


def _arrow_table(path: Path, names: list[str], as_text: list[str]) -> Any:
    """Parse the file; the columns of `as_text` stay what they are, the types of others are guessed."""
    import pyarrow as pa
    import pyarrow.csv as pv

    convert = pv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()), null_values=NULLS)
    # A blank line is a missing value where there is one column; dropping it would shift the rows below.
    parse = pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    # Every block becomes a chunk of each column, so wide files want large blocks.
    read = pv.ReadOptions(block_size=min(2**28, max(2**20, 2**15 * len(names))))
    with reading(path):
        try:
            table = _parse(path, read, parse, convert)
        except pa.ArrowInvalid:
            read.use_threads = False  # pyarrow counts lines only without threads
            try:
                table = _parse(path, read, parse, convert)
            except pa.ArrowInvalid as error:
                raise TableError(_csv_complaint(path, error)) from error
    if table.num_rows == 0:  # of columns without cells nothing could be said, not even that they are numbers
        raise TableError(f"{path} is empty: it has a header, but no rows")
    return table


def _parse(path: Path, *options: Any) -> Any:
    import pyarrow.csv as pv

    with contextlib.closing(Counted(path)) as source:
        return pv.read_csv(source, *options)


def _open(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if suffix_of(path).endswith(".gz") else open
    stream: IO[bytes] = opener(path, "rb")
    return stream


class Counted:
    """The bytes of a csv file, refused as soon as the table would not fit: how many gzip holds, it does not say."""

    closed = False

    def __init__(self, path: Path) -> None:
        self.path, self.stream = path, _open(path)
        self.size = self.cells = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self.stream.read(size)
        self.size += len(data)
        self.cells += data.count(b",") + data.count(b"\n")
        check_fits(self.path, max(self.size, 16 * self.cells))  # 8 bytes as a column and 8 in the matrix
        return data

    def close(self) -> None:
        """Close the file."""
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
    """Yield lines, as long as the header may be: without a line break, the first would be all of the file."""
    left = HEADER_LIMIT
    while line := handle.readline(left):
        left -= len(line)
        if left <= 0:
            raise TableError(f"{path} has no header: its first line is longer than {HEADER_LIMIT} characters")
        yield line


def _csv_complaint(path: Path, error: Exception) -> str:
    """Return pyarrow's complaint with its row number as the line of the file."""
    found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if found is None:
        return f"{path} could not be read as {suffix_of(path)}, it may be damaged: {first_sentence(error)}"
    line, expected, got = found.groups()
    return f"{path} is ragged: line {line} has {got} cells, but the header has {expected}"


def _retyped(column: Any) -> Any:
    """Turn text into numbers where nothing is lost by it: 12 becomes a number, 007 and A01 stay text."""
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


def _is_text(table: Any, name: str) -> bool:
    return str(table.schema.field(name).type) == "string"


def _first_text(column: Any) -> str:
    """Describe the first cell of a text column that is not a number."""
    for row, cell in enumerate(column.to_pylist()):
        if cell not in NULLS and not is_number(cell):
            return f"{cell[:40]!r} in row {row}"
    return "text"
