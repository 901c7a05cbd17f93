"""Readers of columnar files: .parquet, .arrow and .feather, and what .csv shares with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.access import reading
from congruence.tables.arrow_sizes import unpacked_bytes
from congruence.tables.columns import (
    HEAD,
    LIST,
    MOST,
    NESTED,
    NUMBER,
    Columns,
    Layout,
    Look,
    Selection,
    choose_columns,
)
from congruence.tables.fill_matrix import ColumnMatrix, ListMatrix, pieces
from congruence.tables.memory import check_fits
from congruence.tables.parquet_batches import parquet_batches
from congruence.tables.table import Table

ID_RECORD = b"congruence.id"  # where write_table notes the id column in the schema; empty if there are no ids
BLOCK_BYTES = 2**26  # of rows turned from columns into rows at a time: few enough calls, little extra memory


def read_parquet(path: Path, select: Selection) -> Table:
    """Read the needed columns of a parquet file, a batch of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        file = pq.ParquetFile(path, memory_map=True)
        schema = file.schema_arrow
    with file:
        columns = choose(schema, select, path, look=look_at_parquet(path, file)).columns
        batches = parquet_batches(path, file, [*columns.values, *columns.beside], block_rows(columns))
        table = _table_from_batches(path, select, columns, schema, file.metadata.num_rows, batches)
    pa.default_memory_pool().release_unused()  # arrow keeps what batches took for later ones, and there are none
    return table


def parquet_chunks(path: Path, select: Selection) -> tuple[int, Iterator[Table]]:
    """Return the number of rows of a parquet file, and its rows as one table per batch."""
    import pyarrow.parquet as pq

    with reading(path):
        file = pq.ParquetFile(path, memory_map=True)
        schema, n = file.schema_arrow, file.metadata.num_rows
    columns = choose(schema, select, path, look=look_at_parquet(path, file)).columns

    def chunks() -> Iterator[Table]:
        with file:
            batches = parquet_batches(path, file, [*columns.values, *columns.beside], block_rows(columns))
            start = 0
            for batch in guarded(path, batches):
                yield _table_from_batches(path, select, columns, schema, batch.num_rows, [batch], first=start)
                start += batch.num_rows
            _check_count(path, start, n)

    return n, chunks()


def read_arrow(path: Path, select: Selection) -> Table:
    """Map an Arrow IPC file (which a feather file is) or stream into memory."""
    return table_from_arrow(path, select, open_arrow(path))


def open_arrow(path: Path) -> Any:
    """The arrow table of an Arrow IPC file or stream, checked."""
    import pyarrow as pa

    with reading(path):
        source = pa.memory_map(str(path))
        is_file = source.read(6) == b"ARROW1"
        check_fits(path, unpacked_bytes(source, is_file=is_file))
        source.seek(0)
        table = (pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)).read_all()
        table.validate(full=True)  # offsets are used unchecked below, and a wrong one would end the process
    return table


def table_from_arrow(path: Path, select: Selection, table: Any, described: Mapping[str, str] | None = None) -> Table:
    """Build a table from an arrow table; `described` says more about columns that are not numbers."""
    columns = choose(table.schema, select, path, described, look=look_at_arrow(path, table)).columns
    # A column of lists in one piece is already a matrix, and can be used where it lies.
    batches = table.select([*columns.values, *columns.beside]).to_batches(
        None if columns.lists else block_rows(columns)
    )
    return _table_from_batches(path, select, columns, table.schema, table.num_rows, batches, mapped=True)


def arrow_layout(path: Path, select: Selection) -> Layout:
    """Choose the columns of an Arrow file."""
    table = open_arrow(path)
    return choose(table.schema, select, path, look=look_at_arrow(path, table))


def parquet_layout(path: Path, select: Selection) -> Layout:
    """Choose the columns of a parquet file."""
    import pyarrow.parquet as pq

    with reading(path), pq.ParquetFile(path, memory_map=True) as file:
        return choose(file.schema_arrow, select, path, look=look_at_parquet(path, file))


def look_at_arrow(path: Path, table: Any) -> Look:
    """Look at the columns of an arrow table."""

    def take(names: Sequence[str], most: int) -> dict[str, Array]:
        with reading(path):
            return {name: plain_column(path, table.column(name).slice(0, most).chunks) for name in names}

    return Look(
        table.num_rows,
        text_columns(table.schema),
        lambda names: take(names, HEAD),
        lambda name: take([name], MOST)[name],
    )


def look_at_parquet(path: Path, file: Any) -> Look:
    """Look at the columns of an open parquet file, reading no more of it than is needed."""

    def take(names: Sequence[str], most: int) -> dict[str, Array]:
        parts: dict[str, list[Any]] = {name: [] for name in names}
        rows = needed = 0
        with reading(path):
            for batch in parquet_batches(path, file, list(names), min(most, 2**16)) if names else ():
                for name, found in parts.items():
                    found.extend(pieces(batch.column(name)))
                    needed += 8 * batch.num_rows + _held_bytes(batch.column(name))
                check_fits(path, needed)
                rows += batch.num_rows
                if rows >= most:
                    break
            return {name: plain_column(path, found)[:most] for name, found in parts.items()}

    return Look(
        file.metadata.num_rows,
        text_columns(file.schema_arrow),
        lambda names: take(names, HEAD),
        lambda name: take([name], MOST)[name],
    )


def text_columns(schema: Any) -> frozenset[str]:
    """The columns that hold text, also as codes and words."""
    import pyarrow.types as pt

    def is_text(type: Any) -> bool:
        type = type.value_type if pt.is_dictionary(type) else type
        return bool(pt.is_string(type) or pt.is_large_string(type) or str(type) == "string_view")

    return frozenset(field.name for field in schema if is_text(field.type))


def block_rows(columns: Columns) -> int:
    """How many rows to read at a time."""
    # How long lists are is known when they are there, and a damaged file may hold enormous ones.
    return 2**12 if columns.lists else max(256, BLOCK_BYTES // (8 * len(columns.values)))


def choose(
    schema: Any,
    select: Selection,
    path: Path,
    described: Mapping[str, str] | None = None,
    *,
    look: Look | None = None,
) -> Layout:
    """Choose the columns of a file by their names, their types and what they hold."""
    kinds, facts = layout_of(schema, path)
    kinds |= dict(described or {})
    return Layout(tuple(kinds.items()), choose_columns(kinds, select, path, **facts, look=look))


def layout_of(schema: Any, path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The kind of every column, and what pandas and `write_table` noted about index and ids."""
    with reading(path):  # names that are not UTF-8, notes that are not JSON
        check_distinct(schema.names, path)
        notes = schema.metadata or {}
        index = json.loads(notes.get(b"pandas", b"{}")).get("index_columns", [])
        recorded = notes[ID_RECORD].decode() if ID_RECORD in notes else None
        ranges = [(int(one["start"]), int(one["step"])) for one in index if isinstance(one, dict)]
        kinds = {field.name: kind_of(field.type) for field in schema}
    facts = {"index": [name for name in index if isinstance(name, str)], "recorded_id": recorded}
    return kinds, facts | {"range_index": ranges[0] if len(ranges) == 1 else None}


def check_distinct(names: list[str], path: Path | str) -> None:
    """Refuse a file in which a name does not tell which column is meant."""
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise TableError(f"{path} has several columns of the same name: {listing(doubled)}")


def kind_of(type: Any) -> str:
    """What `choose_columns` calls columns of an arrow type."""
    import pyarrow.types as pt

    if pt.is_integer(type) or pt.is_floating(type) or pt.is_decimal(type):
        return NUMBER
    if pt.is_list(type) or pt.is_large_list(type) or pt.is_fixed_size_list(type):
        inner = type.value_type
        return LIST if pt.is_integer(inner) or pt.is_floating(inner) else NESTED
    return NESTED if pt.is_nested(type) else "empty" if pt.is_null(type) else str(type)


def _table_from_batches(
    path: Path,
    select: Selection,
    columns: Columns,
    schema: Any,
    n: int,
    batches: Iterable[Any],
    *,
    mapped: bool = False,
    first: int = 0,
) -> Table:
    """Fill the matrix row block by row block, so that the file and the matrix are never in memory twice."""
    beside = Beside(path, columns, n, first)
    matrix = matrix_for(path, columns, schema, n, mapped=mapped)
    start = 0
    for batch in guarded(path, batches):
        end = start + batch.num_rows
        _check_count(path, min(n, end), end)
        matrix.put(batch, start)
        owned = matrix.values.nbytes if matrix.values.flags.owndata else 0  # nothing where it lies in a file
        beside.put(batch, owned)
        start = end
    _check_count(path, start, n)
    matrix.check()
    return Table(matrix.values, select.name, features=matrix.features, path=path, **beside.finish())


def matrix_for(path: Path, columns: Columns, schema: Any, n: int, mapped: bool = False) -> ColumnMatrix | ListMatrix:
    """Return a matrix to be filled with n rows."""
    if columns.lists:
        return ListMatrix(path, columns.values[0], n, mapped=mapped)
    return ColumnMatrix(path, schema, columns.values, n)


class Beside:
    """The ids and metadata of a columnar file, collected batch by batch."""

    def __init__(self, path: Path, columns: Columns, n: int, first: int = 0) -> None:
        self.path, self.columns, self.n, self.first = path, columns, n, first
        self.needed = 8 * n * (len(columns.beside) + columns.lists)  # the length of every list is kept, too
        check_fits(path, self.needed)
        self.parts: dict[str, list[Any]] = {name: [] for name in columns.beside}

    def put(self, batch: Any, owned: int = 0) -> None:
        """Keep what a batch has of them; together with the `owned` bytes of values they must fit in memory."""
        for name, parts in self.parts.items():
            parts.extend(pieces(batch.column(name)))
        self.needed += sum(_held_bytes(batch.column(name)) for name in self.parts)
        check_fits(self.path, self.needed + owned)

    def finish(self) -> dict[str, Any]:
        """The ids, the metadata and the notes as a table takes them."""
        row_id = self.columns.row_id
        with reading(self.path):  # text that is not UTF-8
            ids = None if row_id.column is None else plain_column(self.path, self.parts[row_id.column])
            metadata = {name: plain_column(self.path, self.parts[name]) for name in self.columns.metadata}
        if row_id.range is not None:
            start, step = row_id.range
            ids = start + step * np.arange(self.first, self.first + self.n)
        return {"ids": ids, "metadata": metadata, "notes": self.columns.notes, "indexed": row_id.indexed}


def _held_bytes(column: Any) -> int:
    """Return the bytes of a column; of a column of codes none, since its words are there once for all batches."""
    import pyarrow.types as pt

    return 0 if pt.is_dictionary(column.type) else int(column.nbytes)


def _check_count(path: Path, found: int, promised: int) -> None:
    if found != promised:
        raise TableError(f"{path} could not be read whole, it may be damaged: {found} of {promised} rows are there")


def guarded(path: Path, batches: Iterable[Any]) -> Iterator[Any]:
    """Hand on the batches; only what the library raises while it decodes the next one is put into words."""
    with reading(path):
        yield from batches


def plain_column(path: Path | str, parts: list[Any]) -> Array:
    """Return a column as numpy: numbers, bools, times, or text with None where it is missing."""
    import pyarrow as pa

    column = pa.chunked_array(parts) if parts else pa.chunked_array([], pa.int64())
    if pa.types.is_dictionary(column.type):
        if "string" in str(column.type.value_type) or "binary" in str(column.type.value_type):
            return np.concatenate([_words(part) for part in column.chunks])
        column = column.cast(column.type.value_type)
    if str(column.type) in ("string_view", "binary_view"):  # any number of rows may show the same long text
        check_fits(path, sum(_viewed_bytes(part) for part in column.chunks), "its text")
    array: Array = column.to_numpy()
    return array


def _words(part: Any) -> Array:
    """Return a column of codes as text; each word exists once, however often it is used."""
    words = np.array([*part.dictionary.to_numpy(zero_copy_only=False), None], dtype=object)
    return np.asarray(words[part.indices.fill_null(-1).to_numpy()])


def _viewed_bytes(part: Any) -> int:
    views = np.frombuffer(part.buffers()[1], np.int32)  # length, and 12 bytes that say where
    return int(views[4 * part.offset : 4 * (part.offset + len(part)) : 4].sum(dtype=np.int64))
