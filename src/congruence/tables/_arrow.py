"""Columnar files (.parquet, .arrow, .csv, .jsonl, .lance) through pyarrow, read a batch of rows at a time."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.checks import require
from congruence.errors import TableError
from congruence.guards import reading, suffix_of
from congruence.memory import check_fits, room_for
from congruence.tables._csv import read_csv_table, read_json_table
from congruence.tables._folders import open_lance
from congruence.tables._hdf5 import LANCE, inspection
from congruence.tables._ipc import open_ipc
from congruence.tables.columns import (
    LIST,
    NESTED,
    NUMBER,
    ColumnChoice,
    Selection,
    Source,
    check_columns,
    choose_columns,
)
from congruence.tables.formats import check_format
from congruence.tables.table import Table

# Entries of the schema where write_table records the id column (empty without ids) and, as JSON, the metadata columns.
ID_RECORD, METADATA_RECORD = b"congruence.id", b"congruence.metadata"
BLOCK_BYTES = 2**26  # of rows transposed at a time: few calls, little extra memory
_TAKE_ROWS = 2**16  # rows of a few columns read at a time
_STRINGS, _BYTES = ("string", "large_string"), ("binary", "large_binary")  # types of text, as arrow names them
Read = Callable[[Sequence[str], int | None, int | None], Iterable[Any]]  # of names, in batches, and the most rows
_TEXT_ROWS = 256  # rows of text read at a time: few enough for texts of many megabytes, and hardly slower than more


class ColumnarFile:
    """The schema and the rows of an open columnar file.

    `read(names, rows, most)` returns the named columns in batches of about `rows` rows, at least the first `most`.
    """

    def __init__(
        self,
        path: Path,
        schema: Any,
        n: int,
        read: Read,
        described: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.path, self.schema, self.n, self.read = path, schema, n, read
        check_columns(schema.names, path)
        records = schema.metadata or {}
        index = json.loads(records.get(b"pandas", b"{}")).get("index_columns", [])
        recorded = records[ID_RECORD].decode() if ID_RECORD in records else None
        described_by = frozenset(map(str, json.loads(records.get(METADATA_RECORD, b"[]"))))
        ranges = [(int(one["start"]), int(one["step"])) for one in index if isinstance(one, dict)]
        self.source = Source(
            path,
            {field.name: kind_of(field.type) for field in schema} | dict(described or {}),
            [name for name in index if isinstance(name, str)],
            recorded,
            ranges[0] if len(ranges) == 1 else None,
            n,
            text_columns(schema),
            self.take,
            described_by,
            notes,
        )

    def batches(self, names: Sequence[str], rows: int | None = None, most: int | None = None) -> Iterator[Any]:
        """Yield the named columns in batches of about `rows` rows: all rows, or at least the first `most`."""
        n = 0
        with reading(self.path):  # which decodes the next one
            for batch in self.read(list(names), rows, most):
                n += batch.num_rows
                yield batch
        if most is None:
            _check_count(self.path, n, self.n)

    def take(self, names: Sequence[str], most: int) -> dict[str, Array]:
        """Read the first `most` rows of some columns."""
        parts: dict[str, list[Any]] = {name: [] for name in names}
        rows = needed = 0
        with reading(self.path):
            for batch in self.batches(names, min(most, _TAKE_ROWS), most) if names else ():
                for name, arrays in parts.items():
                    arrays.extend(_chunks(batch.column(name)))
                    needed += 8 * batch.num_rows + _held_bytes(batch.column(name))
                check_fits(self.path, needed)
                rows += batch.num_rows
                if rows >= most:
                    break
            return {name: plain_column(self.path, arrays)[:most] for name, arrays in parts.items()}

    def table(self, select: Selection, columns: ColumnChoice, *, mapped: bool = False) -> Table:
        """Read the whole table."""
        # A column of lists in one piece is already a matrix, and is used where it is.
        rows = None if mapped and columns.lists else block_rows(columns)
        builder = TableBuilder(self.path, columns, self.schema, self.n, mapped=mapped)
        fields = builder.fill(self.batches([*columns.values, *columns.labels], rows))
        return Table(name=select.name, path=self.path, **fields)

    def chunks(self, select: Selection, columns: ColumnChoice) -> Iterator[Table]:
        """Read the table a batch of rows at a time."""
        start = 0
        for batch in self.batches([*columns.values, *columns.labels], block_rows(columns)):
            fields = TableBuilder(self.path, columns, self.schema, batch.num_rows, first=start).fill([batch])
            yield Table(name=select.name, path=self.path, **fields)
            start += batch.num_rows


@contextlib.contextmanager
def open_columnar(path: Path, select: Selection, *, all_columns: bool = False) -> Iterator[ColumnarFile]:
    """Open a columnar file; with `all_columns`, text in any column of a csv file is expected."""
    check_format(path)
    with contextlib.ExitStack() as stack:
        with reading(path):
            file = _open(path, select, all_columns, stack)
        yield file


def _open(path: Path, select: Selection, all_columns: bool, stack: contextlib.ExitStack) -> ColumnarFile:
    if suffix_of(path) == ".parquet":
        import pyarrow.parquet as pq

        parquet = stack.enter_context(pq.ParquetFile(os.path.abspath(path), memory_map=True))  # "run:1" is no address
        schema = parquet.schema_arrow

        def read(names: Sequence[str], rows: int | None, most: int | None) -> Iterator[Any]:
            return parquet.iter_batches(rows, columns=list(names))  # type: ignore[no-any-return]

        return ColumnarFile(path, schema, parquet.metadata.num_rows, partial(_blocks, path, schema, read))
    if suffix_of(path) == ".lance":
        os.environ.setdefault("LANCE_LOG", "error")  # before it is imported: it would print what it notices
        with inspection(path, [LANCE]):
            require("lance", str(path), "lance")
        schema, n, read = open_lance(path)
        return ColumnarFile(path, schema, n, partial(_blocks, path, schema, read))
    described: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    if suffix_of(path) in (".arrow", ".feather"):
        table = open_ipc(path)
    elif "json" in suffix_of(path):
        table = read_json_table(path, select)
    else:
        table, described, notes = read_csv_table(path, select, all_columns=all_columns)

    def slices(names: Sequence[str], rows: int | None, most: int | None) -> Any:
        return (table if most is None else table.slice(0, most)).select(list(names)).to_batches(rows)

    return ColumnarFile(path, table.schema, table.num_rows, slices, described, notes)


def read_columnar(path: Path, select: Selection) -> Table:
    """Read the needed columns of a columnar file; uncompressed Arrow files are mapped into memory."""
    import pyarrow as pa

    if suffix_of(path).startswith((".csv", ".tsv")):
        select.refuse(path, "key", because="a csv file holds no arrays inside; use features (--features)")
    with open_columnar(path, select) as file:
        columns = choose_columns(file.source, select)
        table = file.table(select, columns, mapped=suffix_of(path) not in (".parquet", ".lance"))
    pa.default_memory_pool().release_unused()  # arrow keeps the memory of batches for reuse
    return table


def _blocks(
    path: Path, schema: Any, read: Read, names: Sequence[str], rows: int | None, most: int | None
) -> Iterator[Any]:
    """Yield blocks of `rows` rows of the named columns as arrow tables.

    Values are stored compressed, and a repeated text once, so a file of a few kilobytes can hold a long one a million
    times. Its size is known only after it is read (the sizes in the metadata need not be true, and pyarrow aborts on
    damaged statistics), so text is read a few rows at a time.
    """
    import pyarrow as pa

    types = {name: schema.field(name).type for name in names}
    texts = [name for name in names if str(types[name]) in (*_STRINGS, *_BYTES)]
    # one value of these may take any number of bytes, in all rows as many
    wide = [name for name in names if kind_of(types[name]) == LIST or str(types[name]).startswith("fixed_size_binary")]
    if wide and rows and (first := next(iter(read(wide, 1, 1)), None)) is not None:
        rows = min(rows, max(1, BLOCK_BYTES // max(1, first.nbytes)))
    others = [name for name in names if name not in texts]
    if not texts or not others:
        yield from read(names, rows if others else _TEXT_ROWS, most)
        return
    text_schema = pa.schema([schema.field(name) for name in texts])
    pieces = iter(read(texts, _TEXT_ROWS, most))
    piece = next(pieces, None)
    for batch in read(others, rows, most):
        block, size, missing = [], 0, batch.num_rows
        while missing and piece is not None:
            part = piece.slice(0, missing)
            block.append(part)
            size, missing = size + part.nbytes, missing - part.num_rows
            check_fits(path, size, "its text")
            piece = piece.slice(part.num_rows) if part.num_rows < piece.num_rows else next(pieces, None)
        text = pa.Table.from_batches(block, text_schema)
        whole = pa.Table.from_batches([batch])
        for name in texts:
            whole = whole.append_column(name, text.column(name))
        yield whole


def text_columns(schema: Any) -> frozenset[str]:
    """Return the columns that hold text, dictionary-encoded or not."""
    import pyarrow.types as pt

    types = {field.name: field.type.value_type if pt.is_dictionary(field.type) else field.type for field in schema}
    return frozenset(name for name, type in types.items() if str(type) in (*_STRINGS, "string_view"))


def kind_of(type: Any) -> str:
    """Return the kind of an arrow type, as `Source` names it."""
    import pyarrow.types as pt

    if pt.is_integer(type) or pt.is_floating(type) or pt.is_decimal(type):
        return NUMBER
    type = getattr(type, "storage_type", type)  # of tensors of a fixed shape
    if pt.is_list(type) or pt.is_large_list(type) or pt.is_fixed_size_list(type):
        inner = type.value_type
        return LIST if pt.is_integer(inner) or pt.is_floating(inner) else NESTED
    return NESTED if pt.is_nested(type) else "empty" if pt.is_null(type) else str(type)


def block_rows(columns: ColumnChoice) -> int:
    """Return how many rows to read at a time."""
    # The length of lists is known only once they are read, and a damaged file may hold enormous ones.
    return 2**12 if columns.lists else max(256, BLOCK_BYTES // (8 * len(columns.values)))


class TableBuilder:
    """The values, ids and metadata of n rows of a columnar file, filled batch by batch.

    The values are plain columns, or one column of lists of equal length; a column of lists in one piece that is
    `mapped` into memory is used where it is. `first` is the number of the first row in the file.
    """

    def __init__(
        self, path: Path | str, columns: ColumnChoice, schema: Any, n: int, *, first: int = 0, mapped: bool = False
    ) -> None:
        self.path, self.columns, self.n, self.first, self.mapped = path, columns, n, first, mapped
        self.rows = 0
        self.types = {} if schema is None else {name: schema.field(name).type for name in columns.labels}
        self.needed = 8 * n * (len(columns.labels) + columns.lists)  # the length of every list is stored too
        check_fits(path, self.needed)
        self.labels: dict[str, list[Any]] = {name: [] for name in columns.labels}
        self.values: Array = np.empty((0, 0))  # (n, d), of lists once the first is read
        self.lengths: list[Array] = []  # of the lists
        self.alike = True  # whether they are all equal
        if columns.values and not columns.lists:
            dtype = common_dtype(schema, columns.values)
            self.values = room_for((n, len(columns.values)), dtype, path)

    def fill(self, batches: Iterable[Any]) -> dict[str, Any]:
        """Return the fields of a `Table` with the rows of the batches."""
        for batch in batches:
            self._put(batch)
        return self.fields()

    def _put(self, batch: Any) -> None:
        """Add the rows of a batch; all that is in memory together must fit."""
        start, end = self.rows, self.rows + batch.num_rows
        _check_count(self.path, min(self.n, end), end)
        if self.columns.lists:
            for part in _chunks(batch.column(self.columns.values[0])):
                self._put_lists(part, start)
                start += len(part)
        else:
            for j, name in enumerate(self.columns.values):
                self.values[start:end, j] = _numbers(batch.column(name))
        for name, parts in self.labels.items():
            parts.extend(_chunks(batch.column(name)))
            self.needed += _held_bytes(batch.column(name))
        check_fits(self.path, self.needed + (self.values.nbytes if self.values.flags.owndata else 0))
        self.rows = end

    def _put_lists(self, part: Any, start: int) -> None:
        import pyarrow.compute as pc

        lengths = pc.list_value_length(part).fill_null(-1).to_numpy()
        if not len(lengths):
            return
        self.lengths.append(lengths)
        width = int(self.lengths[0][0])
        self.alike = self.alike and width >= 0 and bool((lengths == width).all())
        if not self.alike:  # `fields` refuses them, once all lengths are known
            return
        flat = _numbers(part.flatten())
        if self.mapped and len(part) == self.n and flat.dtype.kind == "f":
            self.values = flat.reshape(self.n, width)
            return
        if start == 0:
            self.values = room_for((self.n, width), _float_dtype(part.type.value_type), self.path)
        self.values[start : start + len(part)] = flat.reshape(len(part), width)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `Table`, after checking that no row is missing and lists have equal lengths."""
        _check_count(self.path, self.rows, self.n)
        if not self.alike:
            self._refuse_lists()
        names = self.columns.values
        with reading(Path(self.path)):  # text that is not UTF-8
            ids = self.columns.read(lambda name: plain_column(self.path, self.labels[name]), self.n, self.first)
            metadata = {name: plain_column(self.path, self.labels[name]) for name in self.columns.metadata}
        return {
            "values": self.values,
            "features": tuple(f"{names[0]}_{i}" for i in range(self.values.shape[1])) if self.columns.lists else names,
            "ids": ids,
            "metadata": metadata,
            "notes": self.columns.notes,
            "indexed": self.columns.indexed,
            "id_name": self.columns.id_name,
            "types": self.types,
        }

    def _refuse_lists(self) -> None:
        """Name the rows without a list, or the lists that are shorter or longer than most."""
        lengths = np.concatenate(self.lengths)  # (n,)
        where = f"{self.path}: column {self.columns.values[0]}"
        nulls = np.flatnonzero(lengths < 0)
        if nulls.size:
            raise TableError(f"{where} has no vector in {nulls.size} rows (row {listing(nulls)})")
        different, counts = np.unique(lengths, return_counts=True)
        usual = int(different[counts.argmax()])
        different_rows = listing([f"row {row} has {lengths[row]}" for row in np.flatnonzero(lengths != usual)])
        raise TableError(f"{where} is ragged: most rows have {usual} values, but {different_rows}")


def _check_count(path: Path | str, rows: int, declared: int) -> None:
    if rows != declared:
        raise TableError(f"{path} could not be read completely, it may be damaged: {rows} of {declared} rows")


def _chunks(column: Any) -> list[Any]:
    """Return the arrays that a column of a batch or of a table consists of; tensors as lists."""
    chunks: list[Any] = getattr(column, "chunks", [column])
    return [chunk.storage if kind_of(chunk.type) == LIST and hasattr(chunk, "storage") else chunk for chunk in chunks]


def _held_bytes(column: Any) -> int:
    """Return the size of a column; 0 if it is dictionary-encoded, because its words exist once for all batches."""
    import pyarrow.types as pt

    return 0 if pt.is_dictionary(column.type) else int(column.nbytes)


def plain_column(path: Path | str, parts: list[Any]) -> Array:
    """Return an arrow column as numpy: numbers, bools, times, or text with None where it is missing."""
    import pyarrow as pa

    column = pa.chunked_array(parts) if parts else pa.chunked_array([], pa.int64())
    if pa.types.is_dictionary(column.type):
        if "string" in str(column.type.value_type) or "binary" in str(column.type.value_type):
            return np.concatenate([_decode_words(part) for part in column.chunks])
        column = column.cast(column.type.value_type)
    if str(column.type) in ("string_view", "binary_view"):  # any number of rows may refer to the same long text
        check_fits(path, sum(_viewed_bytes(part) for part in column.chunks), "its text")
    array: Array = column.to_numpy()
    return array


def _decode_words(part: Any) -> Array:
    """Return a dictionary-encoded column as text; each word exists once, however often it is used."""
    words = np.array([*part.dictionary.to_numpy(zero_copy_only=False), None], dtype=object)
    return np.asarray(words[part.indices.cast("int64").fill_null(-1).to_numpy()])  # polars has unsigned indices


def _viewed_bytes(part: Any) -> int:
    views = np.frombuffer(part.buffers()[1], np.int32)  # a length, and 12 bytes that refer to the text
    return int(views[4 * part.offset : 4 * (part.offset + len(part)) : 4].sum(dtype=np.int64))


def common_dtype(schema: Any, names: Sequence[str]) -> np.dtype[Any]:
    """Return float32 if every column is; float64 as soon as one is wider or holds integers."""
    return np.result_type(*{_float_dtype(schema.field(name).type) for name in names})


def _float_dtype(type: Any) -> Any:
    import pyarrow.types as pt

    return type.to_pandas_dtype() if pt.is_floating(type) else np.float64


def _numbers(column: Any) -> Array:
    """Return an arrow array as numbers, nulls as NaN."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    array: Array = column.to_numpy(zero_copy_only=False)
    return array
