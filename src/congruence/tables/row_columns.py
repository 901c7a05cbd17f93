"""What a file says of its rows, column by column: numbers and words alike, such as the true factors of each row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import TableError
from congruence.tables.access import check_readable, reading, suffix_of
from congruence.tables.columns import INDEX_NAMES, Selection, choose_id
from congruence.tables.memory import check_fits
from congruence.tables.parquet_batches import parquet_batches
from congruence.tables.read import read_table
from congruence.tables.read_columns import ID_RECORD, check_distinct, open_arrow, plain_column
from congruence.tables.read_csv import csv_columns

BLOCK_ROWS = 2**14  # of a parquet file, at a time


@dataclass(frozen=True, eq=False)
class RowColumns:
    """The columns of a file beside its ids."""

    columns: Mapping[str, Array]  # each (n,)
    ids: Array | None  # (n,)

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))


def read_row_columns(path: str | Path, *, id: str | None = None, key: str | None = None) -> RowColumns:
    """Read every column of a file of any format that `read_table` knows; text is kept as Python strings.

    Of files that hold a matrix, the columns are those of the matrix (called 0, 1, ... where they have no names) and
    the metadata. Columns of lists are left out, and so is the index of a pandas frame.
    """
    path = Path(path)
    if suffix_of(path) not in (".csv", ".csv.gz", ".parquet", ".arrow", ".feather"):
        return _of_matrix(path, id, key)
    check_readable(path, folder=False)
    select = Selection(id=id, name=path.name)
    table = _arrow_table(path, select)
    notes = table.schema.metadata or {}
    with reading(path):
        check_distinct(table.schema.names, path)
        recorded = notes.get(ID_RECORD, b"").decode() or None
        index = json.loads(notes.get(b"pandas", b"{}")).get("index_columns", [])
    kinds = {field.name: str(field.type) for field in table.schema}
    apart = {name for name in kinds if name in index or name in INDEX_NAMES}
    found = choose_id(kinds, select, path, apart, recorded)
    names = [name for name in kinds if name not in apart | {found} and not _is_nested(table, name)]
    if not names or not table.num_rows:
        raise TableError(f"{path} has no columns with rows besides its ids; it has {listing(list(kinds), 10)}")
    with reading(path):
        columns = {name: plain_column(path, table.column(name).chunks) for name in names}
        ids = None if found is None else plain_column(path, table.column(found).chunks)
    return RowColumns(columns, ids)


def _arrow_table(path: Path, select: Selection) -> Any:
    if suffix_of(path) in (".csv", ".csv.gz"):
        return csv_columns(path, select)
    return open_arrow(path) if suffix_of(path) != ".parquet" else _parquet(path)


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path), pq.ParquetFile(path, memory_map=True) as file:
        check_distinct(file.schema_arrow.names, path)
        schema = file.schema_arrow
        names = [field.name for field in schema if not pa.types.is_nested(field.type)]
        blocks, size = [], 0
        for block in parquet_batches(path, file, names, BLOCK_ROWS):
            size += block.nbytes
            check_fits(path, 2 * size)
            blocks.append(pa.table(block).select(names))
        plain = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
        return pa.concat_tables([plain.empty_table(), *blocks]).replace_schema_metadata(schema.metadata)


def _is_nested(table: Any, name: str) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_nested(table.schema.field(name).type))


def _of_matrix(path: Path, id: str | None, key: str | None) -> RowColumns:
    table = read_table(path, id=id, key=key)
    names = table.features or tuple(map(str, range(table.d)))
    values = to_numpy(table.values)
    matrix = {name: values[:, j] for j, name in enumerate(names)}
    return RowColumns({**matrix, **table.metadata}, table.ids)
