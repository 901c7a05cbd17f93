"""Writers of columnar files: .csv, .parquet, .arrow and .feather, all through pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, row_chunks, to_numpy
from congruence.errors import TableError
from congruence.tables.columns import NUMBER, PREFIX, Selection, choose_columns, is_number
from congruence.tables.read_columns import ID_RECORD
from congruence.tables.table import Table


def write_parquet(tables: Iterable[Table], temporary: Path, path: Path, id: str) -> None:
    """Write a parquet file, a block of rows at a time; several tables are written one below the other."""
    import pyarrow.parquet as pq

    first, tables = _peek(tables)
    schema = _schema(first, path, id)
    repeating = schema.names[: -first.d]
    # Feature values hardly repeat, so a dictionary of them would only take time and space.
    with pq.ParquetWriter(temporary, schema, use_dictionary=repeating) as writer:
        for batch in _batches(tables, schema):
            writer.write_batch(batch)


def write_arrow(tables: Iterable[Table], temporary: Path, path: Path, id: str) -> None:
    """Write an uncompressed Arrow IPC file, which can be mapped into memory."""
    import pyarrow as pa

    first, tables = _peek(tables)
    schema = _schema(first, path, id)
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _batches(tables, schema):
            writer.write_batch(batch)


def write_csv(tables: Iterable[Table], temporary: Path, path: Path, id: str, *, compression: str | None = None) -> None:
    """Write a csv file with a header; floats are written so that they are read back exactly."""
    import pyarrow as pa
    import pyarrow.csv as pv

    first, tables = _peek(_printable(table) for table in tables)
    schema = _schema(first, path, id)
    if all(is_number(name) for name in schema.names):
        raise TableError(f"{path} cannot be written: a csv header of numbers alone would be taken for a row")
    with (
        pa.output_stream(str(temporary), compression=compression) as sink,
        pv.CSVWriter(sink, schema) as writer,
    ):
        for batch in _batches(tables, schema):
            writer.write_batch(batch)


def write_csv_gz(tables: Iterable[Table], temporary: Path, path: Path, id: str) -> None:
    """Write a csv file compressed with gzip."""
    write_csv(tables, temporary, path, id, compression="gzip")


def _peek(tables: Iterable[Table]) -> tuple[Table, Iterable[Table]]:
    """Return the first table, whose columns decide the schema, and all of them."""
    rest = iter(tables)
    first = next(rest)
    return first, chain([first], rest)


def _printable(table: Table) -> Table:
    half = table.values.dtype == np.float16  # arrow does not print it
    return replace(table, values=table.values.astype(np.float32)) if half else table


def _schema(table: Table, path: Path, id: str) -> Any:
    """Return the arrow schema: id, metadata, features; with a note of which column is the id."""
    import pyarrow as pa

    stored = {name if name.startswith(PREFIX) else PREFIX + name: name for name in table.metadata}
    _check_names(table, path, None if table.ids is None else id, stored)
    types = {} if table.ids is None else {id: pa.int64() if table.ids.dtype.kind == "i" else pa.string()}
    for name, original in stored.items():
        type = pa.array(table.metadata[original]).type
        types[name] = pa.string() if pa.types.is_null(type) else type
    types |= dict.fromkeys(table.feature_names, pa.from_numpy_dtype(to_numpy(table.values[:1]).dtype))
    return pa.schema(types.items(), {ID_RECORD: id.encode() if table.ids is not None else b""})


def _check_names(table: Table, path: Path, id: str | None, stored: Mapping[str, str]) -> None:
    """Refuse names that would be read back as something else."""
    names = [*([] if id is None else [id]), *stored, *table.feature_names]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if len(stored) < len(table.metadata):
        doubled += [name for name in table.metadata if PREFIX + name in table.metadata]
    if doubled:
        raise TableError(f"{path} cannot be written: several columns would be called {listing(doubled)}")
    chosen = set(choose_columns(dict.fromkeys(names, NUMBER), Selection(id), path).values)
    lost = [name for name in table.feature_names if name not in chosen]
    if lost:
        raise TableError(
            f"{path} cannot be written: features called {listing(lost)} would be read back as ids or metadata"
        )


def _batches(tables: Iterable[Table], schema: Any) -> Iterator[Any]:
    """Yield the rows of tables as record batches."""
    import pyarrow as pa

    for table in tables:
        beside = [*([] if table.ids is None else [table.ids]), *table.metadata.values()]
        for part in row_chunks(table.n, table.d):
            columns = np.ascontiguousarray(to_numpy(table.values[part]).T)  # (d, rows)
            arrays = [column[part] for column in beside] + list(columns)
            yield pa.record_batch(
                [_arrow(array, field.type) for array, field in zip(arrays, schema, strict=True)],
                schema=schema,
            )


def _arrow(array: Array, type: Any) -> Any:
    """As an arrow array; whole numbers of which some are missing in this part of the rows come as floats with NaN."""
    import pyarrow as pa

    return pa.array(array, type=type, from_pandas=pa.types.is_integer(type) and array.dtype.kind == "f")
