"""What a file says of its rows, column by column: numbers and words alike, such as the true factors of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import TableError
from congruence.tables.access import check_readable, reading, suffix_of
from congruence.tables.columns import INDEX_NAMES, LIST, NESTED, Selection, choose_id
from congruence.tables.labels import as_column
from congruence.tables.memory import check_fits
from congruence.tables.parquet_batches import parquet_batches
from congruence.tables.read import read_table
from congruence.tables.read_arrays import npy_header
from congruence.tables.read_columns import check_distinct, layout_of, look_at_arrow, open_arrow, plain_column
from congruence.tables.read_csv import csv_columns

BLOCK_ROWS = 2**14  # of a parquet file, at a time


@dataclass(frozen=True, eq=False)
class RowColumns:
    """The columns of a file beside its ids."""

    columns: Mapping[str, Array]  # each (n,)
    ids: Array | None  # (n,)
    notes: tuple[str, ...] = ()  # how the ids were chosen
    indexed: bool = False  # by the index of a data frame, as of `Table`

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))


def read_row_columns(
    path: str | Path, *, id: str | None = None, key: str | None = None, features: Sequence[str] | None = None
) -> RowColumns:
    """Read every column of a file of any format that `read_table` knows; text is kept as Python strings.

    Of files that hold a matrix, the columns are those of the matrix (called 0, 1, ... where they have no names) and
    the metadata. Columns of lists are left out, and so is the index of a pandas frame. Columns that `features` names
    are not taken as ids, unless `id` names them.
    """
    path = Path(path)
    if suffix_of(path) not in (".csv", ".csv.gz", ".parquet", ".arrow", ".feather"):
        return _of_matrix(path, id, key)
    check_readable(path, folder=False)
    select = Selection(id=id, features=None if features is None else tuple(features), name=path.name)
    table = _arrow_table(path, select)
    kinds, facts = layout_of(table.schema, path)
    found = choose_id(kinds, select, path, **facts, look=look_at_arrow(path, table))
    apart = {*facts["index"], *INDEX_NAMES, found.column}
    names = [name for name in kinds if name not in apart and kinds[name] not in (LIST, NESTED)]
    if not names or not table.num_rows:
        raise TableError(f"{path} has no columns with rows besides its ids; it has {listing(list(kinds), 10)}")
    with reading(path):
        columns = {name: plain_column(path, table.column(name).chunks) for name in names}
        ids = None if found.column is None else plain_column(path, table.column(found.column).chunks)
    if found.range is not None:
        ids = found.range[0] + found.range[1] * np.arange(table.num_rows)
    return RowColumns(columns, ids, found.notes, found.indexed)


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


def _of_matrix(path: Path, id: str | None, key: str | None) -> RowColumns:
    if suffix_of(path) == ".npy" and id is None and key is None:
        check_readable(path, folder=False)
        with reading(path), path.open("rb") as handle:
            header = npy_header(path, handle, path.stat().st_size)
        if len(header.shape) == 1 and header.shape[0] and not header.dtype.hasobject:  # labels
            with reading(path):
                return RowColumns({"0": as_column(np.load(path, allow_pickle=False))}, None)
    table = read_table(path, id=id, key=key)
    names = table.features or tuple(map(str, range(table.d)))
    values = to_numpy(table.values)
    matrix = {name: values[:, j] for j, name in enumerate(names)}
    return RowColumns({**matrix, **table.metadata}, table.ids, table.notes, table.indexed)
