"""Tables larger than memory: read, changed and written a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from congruence.arrays import row_chunks, to_numpy
from congruence.errors import TableError
from congruence.files import replacing
from congruence.tables.access import check_readable, stem_of, suffix_of
from congruence.tables.columns import Selection, patterns
from congruence.tables.read import read_selected
from congruence.tables.read_columns import parquet_chunks
from congruence.tables.table import Table
from congruence.tables.write import COLUMNAR, write_table, write_zarr, writing


@dataclass(frozen=True, eq=False)
class Stream:
    """The rows of a file as tables of some rows each, in order; it can be walked once."""

    n: int
    chunks: Iterator[Table]


def stream_table(
    path: str | Path,
    *,
    id: str | None = None,
    features: str | Sequence[str] | None = None,
    metadata: str | Sequence[str] | None = None,
    key: str | None = None,
) -> Stream:
    """Read an embedding table a chunk of rows at a time; the options are those of `read_table`.

    Parquet is read batch by batch, and files that can be mapped into memory (.npy, .arrow, .safetensors, .pt) are
    never loaded whole. The other formats are read whole and handed out in chunks.
    """
    return stream_selected(Path(path), Selection(id, patterns(features), patterns(metadata), key))


def stream_selected(path: Path, select: Selection) -> Stream:
    """Read an embedding table a chunk of rows at a time; `stream_table` with its options in one object."""
    if suffix_of(path) == ".parquet":
        check_readable(path, folder=False)
        return Stream(*parquet_chunks(path, replace(select, name=select.name or stem_of(path))))
    table = read_selected(path, select)
    return Stream(table.n, slices(table))


def slices(table: Table, width: int = 0) -> Iterator[Table]:
    """Hand out the rows of a table as tables of some rows each, in order; few enough for rows that become `width`."""
    for part in row_chunks(table.n, max(table.d, width)):
        yield replace(
            table,
            values=table.values[part],
            ids=None if table.ids is None else table.ids[part],
            metadata={name: column[part] for name, column in table.metadata.items()},
        )


def write_stream(stream: Stream, path: str | Path, *, id: str = "id") -> None:
    """Write the chunks of a stream one below the other, whole or not at all.

    .parquet, .arrow, .feather, .csv, .npy and .zarr are written as the chunks come; the other formats collect them
    first. Files with columns have the ids in the column `id`.
    """
    path = Path(path)
    suffix = suffix_of(path)
    if suffix in COLUMNAR:
        with writing(path), replacing(path) as temporary:
            COLUMNAR[suffix](stream.chunks, temporary, path, id)
    elif suffix == ".npy":
        with writing(path), replacing(path) as temporary:
            _write_npy(stream, temporary, path)
    elif suffix == ".zarr":
        write_zarr(stream.chunks, stream.n, path)
    else:
        write_table(_joined(list(stream.chunks)), path)


def _write_npy(stream: Stream, temporary: Path, path: Path) -> None:
    first = next(stream.chunks)
    if first.ids is not None or first.metadata:
        raise TableError(f"{path} cannot be written: .npy would lose the ids or metadata; use .parquet")
    dtype = to_numpy(first.values[:1]).dtype
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (stream.n, first.d)}
    with temporary.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, header)
        for table in _again(first, stream.chunks):
            handle.write(np.ascontiguousarray(to_numpy(table.values)).tobytes())


def _again(first: Table, rest: Iterable[Table]) -> Iterator[Table]:
    yield first
    yield from rest


def _joined(tables: list[Table]) -> Table:
    first = tables[0]
    return replace(
        first,
        values=np.concatenate([to_numpy(table.values) for table in tables]),
        ids=None if first.ids is None else np.concatenate([np.asarray(table.ids) for table in tables]),
        metadata={name: np.concatenate([table.metadata[name] for table in tables]) for name in first.metadata},
    )
