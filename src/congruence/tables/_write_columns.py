"""Write columnar files (.parquet, .arrow, .feather, .csv) through pyarrow, a batch of rows at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, row_chunks, to_numpy
from congruence.errors import TableError
from congruence.guards import suffix_of
from congruence.tables._arrow import ID_RECORD, METADATA_RECORD
from congruence.tables.columns import NUMBER, Selection, Source, choose_columns, is_number
from congruence.tables.table import Table, duplicates


def first_of(tables: Iterable[Table]) -> tuple[Table, Iterable[Table]]:
    """Return the first table, whose columns decide the format, and all of them."""
    rest = iter(tables)
    first = next(rest)
    return first, chain([first], rest)


def write_columns(tables: Iterable[Table], temporary: Path, path: Path, id: str | None) -> None:
    """Write a columnar file."""
    first, tables = first_of(map(_printable, tables) if is_csv(path) else tables)
    schema = _schema(first, path, id or first.id_name or "id")
    with open_writer(temporary, path, schema, schema.names[: -first.d]) as writer:
        for batch in _batches(tables, schema):
            writer.write_batch(batch)


def is_csv(path: Path) -> bool:
    """Whether a path is that of a csv file, compressed or not."""
    return suffix_of(path).startswith((".csv", ".tsv"))


@contextlib.contextmanager
def open_writer(temporary: Path, path: Path, schema: Any, labels: Sequence[str]) -> Iterator[Any]:
    """Open a writer of batches: csv with a header, parquet, or uncompressed Arrow IPC, which can be mapped into memory.

    `temporary` is the file that is written, and `path` determines its format. `labels` are the columns whose values
    may repeat: a dictionary of feature values would only take time and space.
    """
    import pyarrow as pa
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    if is_csv(path) and all(is_number(name) for name in schema.names):
        raise TableError(f"{path} cannot be written: a csv header of numbers alone would be read as a row")
    with contextlib.ExitStack() as stack:
        if suffix_of(path) == ".parquet":
            writer = pq.ParquetWriter(temporary, schema, use_dictionary=list(labels))
        elif is_csv(path):
            compression = "gzip" if suffix_of(path).endswith(".gz") else None
            target = stack.enter_context(pa.output_stream(str(temporary), compression=compression))
            delimiter = "\t" if suffix_of(path).startswith(".tsv") else ","
            writer = pv.CSVWriter(target, schema, write_options=pv.WriteOptions(delimiter=delimiter))
        else:
            writer = pa.ipc.new_file(stack.enter_context(pa.OSFile(str(temporary), "wb")), schema)
        yield stack.enter_context(writer)


def _printable(table: Table) -> Table:
    half = table.values.dtype == np.float16  # which arrow does not print
    return replace(table, values=table.values.astype(np.float32)) if half else table


def _schema(table: Table, path: Path, id: str) -> Any:
    """Return the arrow schema: id, metadata, features; and a record of which column is the id."""
    import pyarrow as pa

    ids = {} if table.ids is None else {id: table.ids}
    names = [*ids, *table.metadata, *table.feature_names]
    if repeated := duplicates(names):
        raise TableError(f"{path} cannot be written: several columns would be called {repeated}")
    recorded = None if is_csv(path) else "".join(ids)
    source = Source(path, dict.fromkeys(names, NUMBER), recorded_id=recorded, recorded_metadata=tuple(table.metadata))
    chosen = choose_columns(source, Selection(id if ids else None)).values
    lost = [name for name in table.feature_names if name not in chosen]
    if lost:
        raise TableError(f"{path} cannot be written: features called {listing(lost)} would be read as ids or metadata")
    known = {id if name == table.id_name else name: type for name, type in table.types.items()}
    types = {name: _arrow_type(column, known.get(name), path) for name, column in (ids | dict(table.metadata)).items()}
    types |= dict.fromkeys(table.feature_names, pa.from_numpy_dtype(to_numpy(table.values[:1]).dtype))
    return pa.schema(types.items(), records(id if ids else None, table.metadata))


def records(id: str | None, metadata: Iterable[str]) -> dict[bytes, bytes]:
    """Return the entries of a schema that record which columns are the id and the metadata."""
    return {ID_RECORD: (id or "").encode(), METADATA_RECORD: json.dumps(list(metadata)).encode()}


def _arrow_type(column: Array, known: Any, path: Path) -> Any:
    """Return the type that a column had in the file it was read from, if it still fits, or else its own."""
    import pyarrow as pa

    if known is not None and pa.types.is_dictionary(known) and suffix_of(path) != ".parquet":
        known = known.value_type  # an Arrow file has one dictionary for all batches, and csv has none
    if known is not None:
        with contextlib.suppress(pa.ArrowException, TypeError):
            _as_arrow(column, known)
            return known
    type = pa.array(column).type
    return pa.string() if pa.types.is_null(type) else type


def _as_arrow(column: Array, type: Any) -> Any:
    import pyarrow as pa

    # Integers of which some are missing in this part of the rows are read as floats with NaN.
    if column.dtype.kind == "U" and not pa.types.is_string(type):  # ids that are neither integers nor text
        return pa.array(column).cast(type)
    return pa.array(column, type=type, from_pandas=pa.types.is_integer(type) and column.dtype.kind == "f")


def _batches(tables: Iterable[Table], schema: Any) -> Iterator[Any]:
    """Yield the rows of tables as record batches."""
    import pyarrow as pa

    for table in tables:
        labels = [*([] if table.ids is None else [table.ids]), *table.metadata.values()]
        for part in row_chunks(table.n, table.d):
            columns = np.ascontiguousarray(to_numpy(table.values[part]).T)  # (d, rows)
            arrays = [column[part] for column in labels] + list(columns)
            yield pa.record_batch([_as_arrow(a, field.type) for a, field in zip(arrays, schema, strict=True)], schema)
