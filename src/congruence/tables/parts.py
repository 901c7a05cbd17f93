"""Several files with the same columns as one table: the parts of an export, one below the other."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError, TableError
from congruence.tables.access import check_readable, reading, stem_of, suffix_of
from congruence.tables.columns import Layout, Selection, patterns
from congruence.tables.lazy import lazy_selected
from congruence.tables.read import CODES, READERS, SUFFIXES, read_selected
from congruence.tables.read_columns import arrow_layout, parquet_layout
from congruence.tables.read_csv import csv_layout
from congruence.tables.spill import spill_chunks
from congruence.tables.stream import Stream, stream_selected
from congruence.tables.table import Table

LAYOUTS: dict[str, Callable[[Path, Selection], Layout]] = {
    ".csv": csv_layout,
    ".csv.gz": csv_layout,
    ".parquet": parquet_layout,
    ".arrow": arrow_layout,
    ".feather": arrow_layout,
}


def expanded(names: Sequence[str | Path]) -> list[str]:
    """Return the files that names and patterns (``export/*.parquet``) stand for, those of a pattern sorted."""
    paths: list[str] = []
    for name in map(str, names):
        found = sorted(glob.glob(name)) if any(c in name for c in "*?[") and not Path(name).exists() else [name]
        if not found:
            raise InputError(f"no file matches {name}")
        paths += found
    return paths


def part_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the files that make one table: those of a pattern or of a folder of parts, else the file itself."""
    folder = Path(path)
    if suffix_of(folder) in READERS or not folder.is_dir() or (folder / CODES).is_file():
        return expanded([os.fspath(path)])
    found = sorted(str(file) for file in folder.iterdir() if suffix_of(file) in READERS and file.name[0] not in "._")
    if not found:
        raise TableError(f"{folder} is a folder without embedding files; known are {', '.join(SUFFIXES)}")
    return found


def read_parts(paths: Sequence[str | Path], **wishes: Any) -> Table:
    """Read files with the same columns as one table, in the order given; the options are those of `read_table`.

    Files are read one after the other, parquet a batch of rows at a time; values that are many go to a temporary file.
    What the columns of the first file are, those of the others are.
    """
    files, select = _checked(paths), _selection(**wishes)
    if len(files) == 1:
        return read_selected(files[0], select)
    select = _settled(files[0], select)
    beside = _Beside()

    def values() -> Iterator[Any]:
        for chunk in _chunks(files, select):
            beside.put(chunk)
            yield chunk.values

    name = select.name or _name(files)
    return beside.table(spill_chunks(values(), name), name, files)


def stream_parts(paths: Sequence[str | Path], **wishes: Any) -> Stream:
    """Read files with the same columns as one table, a chunk of rows at a time; see `stream_table`."""
    files, select = _checked(paths), _selection(**wishes)
    if len(files) == 1:
        return stream_selected(files[0], select)
    select = _settled(files[0], select)
    # Counted first, and opened again one by one: there may be more files than a process can hold open.
    rows = sum(stream_selected(path, select).n for path in files)
    return Stream(_check_rows(rows, files), _chunks(files, select))


def lazy_parts(paths: Sequence[str | Path], **wishes: Any) -> Table:
    """Read files with the same columns as one table with a dask array for its values; see `lazy_table`."""
    files, select = _checked(paths), _selection(**wishes)
    if len(files) == 1:
        return lazy_selected(files[0], select)
    select = _settled(files[0], select)
    tables = [lazy_selected(path, select) for path in files if not _is_empty(path, select)]
    _check_rows(len(tables), files)
    import dask.array as da

    beside = _Beside()
    for table in tables:
        _check_like(table, tables[0])
        beside.put(table)
    dtype = tables[0].values.dtype
    values = da.concatenate([table.values.astype(dtype) for table in tables])
    return beside.table(values, select.name or _name(files), files)


def _selection(
    *,
    id: str | None = None,
    features: str | Sequence[str] | None = None,
    metadata: str | Sequence[str] | None = None,
    key: str | None = None,
    name: str | None = None,
) -> Selection:
    return Selection(id, patterns(features), patterns(metadata), key, name or "")


def _settled(path: Path, select: Selection) -> Selection:
    """Choose the columns once: what an integer column of a part is, that part alone does not tell."""
    suffix = suffix_of(path)
    if suffix not in LAYOUTS:
        return select
    check_readable(path, folder=False)
    with reading(path):
        return replace(select, like=LAYOUTS[suffix](path, select))


def _is_empty(path: Path, select: Selection) -> bool:
    """Whether a file has columns but no rows, as parts of an export may; of the formats, only parquet lets it be."""
    return suffix_of(path) == ".parquet" and stream_selected(path, select).n == 0


class _Beside:
    """The ids and metadata of the parts, one below the other."""

    def __init__(self) -> None:
        self.first: Table | None = None
        self.ids: list[Array] = []
        self.metadata: dict[str, list[Array]] = {}

    def put(self, part: Table) -> None:
        self.first = self.first or part
        if part.ids is not None:
            self.ids.append(part.ids)
        for name, column in part.metadata.items():
            self.metadata.setdefault(name, []).append(column)

    def table(self, values: Any, name: str, files: Sequence[Path]) -> Table:
        return Table(
            values,
            name,
            np.concatenate(self.ids) if self.ids else None,
            {name: np.concatenate(columns) for name, columns in self.metadata.items()},
            None if self.first is None else self.first.features,
            notes=() if self.first is None else self.first.notes,
            parts=tuple(files),
        )


def _chunks(paths: Sequence[Path], select: Selection) -> Iterator[Table]:
    """The rows of all files, with the dtype of the first."""
    first: Table | None = None
    for path in paths:
        for chunk in stream_selected(path, select).chunks:
            first = first or chunk
            _check_like(chunk, first)
            dtype = first.values.dtype
            same = chunk.values.dtype == dtype
            yield chunk if same else replace(chunk, values=to_numpy(chunk.values).astype(dtype))
    _check_rows(first is not None, paths)


def _check_rows(n: int, paths: Sequence[Path]) -> int:
    if not n:
        raise TableError(f"{_name(paths)}: none of the files has rows")
    return n


def _checked(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files, unless their names tell that they cannot be parts of one table."""
    if not paths:
        raise InputError("there is no file to read; give at least one")
    kinds = {suffix_of(Path(path)): path for path in paths}
    if len(kinds) > 1:
        raise TableError(
            f"files of one table must be of one format, but {' and '.join(map(str, kinds.values()))} differ"
        )
    counts = Counter(Path(path).resolve() for path in paths)
    doubled = [path.name for path, count in counts.items() if count > 1]
    if doubled:
        raise TableError(f"files of one table must be given once, but there is more than one {listing(doubled)}")
    return [Path(path) for path in paths]


def _check_like(part: Table, first: Table) -> None:
    """Refuse a part whose columns are not those of the first."""
    if part is first:
        return
    ours, theirs = _columns(part), _columns(first)
    lacking, unknown = [c for c in theirs if c not in ours], [c for c in ours if c not in theirs]
    if lacking or unknown:
        says = [f"lacks {listing(lacking)}"] if lacking else []
        says += [f"has {listing(unknown)} besides"] if unknown else []
        why = " and ".join(says)
    elif part.features != first.features:
        why = "has them in another order"
    elif part.d != first.d:
        why = f"has {part.d} columns instead of {first.d}"
    elif (part.ids is None) != (first.ids is None) or (part.ids is not None and _text(part) != _text(first)):
        why = f"has {_ids(part)} instead of {_ids(first)}"
    elif not np.can_cast(to_numpy(part.values[:0]).dtype, to_numpy(first.values[:0]).dtype):
        why = f"holds {part.values.dtype} instead of {first.values.dtype}"
    else:
        return
    raise TableError(f"{part.path} does not have the columns of {first.path}: it {why}")


def _columns(table: Table) -> dict[str, None]:
    return dict.fromkeys([*(table.features or ()), *table.metadata])


def _text(table: Table) -> bool:
    return table.ids is not None and table.ids.dtype.kind == "U"


def _ids(table: Table) -> str:
    return "no ids" if table.ids is None else "ids that are text" if _text(table) else "ids that are numbers"


def _name(paths: Sequence[Path]) -> str:
    return f"{stem_of(paths[0])} and {len(paths) - 1} more"
