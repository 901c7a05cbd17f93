"""Readers of columnar files: .parquet, .arrow and .feather, and what .csv shares with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.access import reading
from congruence.tables.arrow_sizes import unpacked_bytes
from congruence.tables.columns import LIST, NESTED, NUMBER, Columns, Selection, choose_columns
from congruence.tables.fill_matrix import ColumnMatrix, ListMatrix, pieces
from congruence.tables.memory import check_fits
from congruence.tables.parquet_batches import parquet_batches
from congruence.tables.table import Table

ID_RECORD = b"congruence.id"  # where write_table notes the id column in the schema
BLOCK_BYTES = 2**26  # of rows turned from columns into rows at a time: few enough calls, little extra memory


def read_parquet(path: Path, select: Selection) -> Table:
    """Read the needed columns of a parquet file, a batch of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        file = pq.ParquetFile(path, memory_map=True)
        schema = file.schema_arrow
    columns = choose(schema, select, path)
    with file:
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
    columns = choose(schema, select, path)

    def chunks() -> Iterator[Table]:
        with file:
            batches = parquet_batches(path, file, [*columns.values, *columns.beside], block_rows(columns))
            start = 0
            for batch in guarded(path, batches):
                yield _table_from_batches(path, select, columns, schema, batch.num_rows, [batch])
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
    columns = choose(table.schema, select, path, described)
    # A column of lists in one piece is already a matrix, and can be used where it lies.
    batches = table.select([*columns.values, *columns.beside]).to_batches(
        None if columns.lists else block_rows(columns)
    )
    return _table_from_batches(path, select, columns, table.schema, table.num_rows, batches, mapped=True)


def block_rows(columns: Columns) -> int:
    """How many rows to read at a time."""
    # How long lists are is known when they are there, and a damaged file may hold enormous ones.
    return 2**12 if columns.lists else max(256, BLOCK_BYTES // (8 * len(columns.values)))


def choose(schema: Any, select: Selection, path: Path, described: Mapping[str, str] | None = None) -> Columns:
    """Choose the columns of a file by their names and types."""
    with reading(path):  # names that are not UTF-8, notes that are not JSON
        check_distinct(schema.names, path)
        notes = schema.metadata or {}
        pandas = json.loads(notes.get(b"pandas", b"{}"))
        index = [name for name in pandas.get("index_columns", []) if isinstance(name, str)]
        recorded = notes.get(ID_RECORD, b"").decode() or None
        kinds = {field.name: _kind(field.type) for field in schema} | dict(described or {})
    return choose_columns(kinds, select, path, index=index, recorded_id=recorded)


def check_distinct(names: list[str], path: Path) -> None:
    """Refuse a file in which a name does not tell which column is meant."""
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise TableError(f"{path} has several columns of the same name: {listing(doubled)}")


def _kind(type: Any) -> str:
    import pyarrow.types as pt

    if pt.is_integer(type) or pt.is_floating(type) or pt.is_decimal(type):
        return NUMBER
    if pt.is_list(type) or pt.is_large_list(type) or pt.is_fixed_size_list(type):
        inner = type.value_type
        return LIST if pt.is_integer(inner) or pt.is_floating(inner) else NESTED
    return NESTED if pt.is_nested(type) else "empty" if pt.is_null(type) else str(type)


def _table_from_batches(
    path: Path, select: Selection, columns: Columns, schema: Any, n: int, batches: Iterable[Any], mapped: bool = False
) -> Table:
    """Fill the matrix row block by row block, so that the file and the matrix are never in memory twice."""
    beside = Beside(path, columns, n)
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

    def __init__(self, path: Path, columns: Columns, n: int) -> None:
        self.path, self.columns = path, columns
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
        """The ids and metadata as a table takes them."""
        with reading(self.path):  # text that is not UTF-8
            ids = None if self.columns.id is None else plain_column(self.path, self.parts[self.columns.id])
            metadata = {name: plain_column(self.path, self.parts[name]) for name in self.columns.metadata}
        return {"ids": ids, "metadata": metadata}


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


def plain_column(path: Path, parts: list[Any]) -> Array:
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
