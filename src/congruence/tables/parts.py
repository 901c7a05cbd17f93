"""Several files with the same columns as one table: the parts of an export, one below the other."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError, TableError
from congruence.tables.access import stem_of, suffix_of
from congruence.tables.lazy import lazy_table
from congruence.tables.read import read_table
from congruence.tables.spill import spill_chunks
from congruence.tables.stream import Stream, stream_table
from congruence.tables.table import Table


def expanded(names: Sequence[str | Path]) -> list[str]:
    """Return the files that names and patterns (``export/*.parquet``) stand for, those of a pattern sorted."""
    paths: list[str] = []
    for name in map(str, names):
        found = sorted(glob.glob(name)) if any(c in name for c in "*?[") and not Path(name).exists() else [name]
        if not found:
            raise InputError(f"no file matches {name}")
        paths += found
    return paths


def read_parts(paths: Sequence[str | Path], **wishes: Any) -> Table:
    """Read files with the same columns as one table, in the order given; the options are those of `read_table`.

    Files are read one after the other, parquet a batch of rows at a time; values that are many go to a temporary file.
    """
    _check_paths(paths)
    if len(paths) == 1:
        return read_table(paths[0], **wishes)
    beside = _Beside()

    def values() -> Iterator[Any]:
        for chunk in _chunks(paths, wishes):
            beside.put(chunk)
            yield chunk.values

    return beside.table(spill_chunks(values(), _name(paths)), _name(paths))


def stream_parts(paths: Sequence[str | Path], **wishes: Any) -> Stream:
    """Read files with the same columns as one table, a chunk of rows at a time; see `stream_table`."""
    _check_paths(paths)
    if len(paths) == 1:
        return stream_table(paths[0], **wishes)
    # Counted first, and opened again one by one: there may be more files than a process can hold open.
    return Stream(_check_rows(sum(stream_table(path, **wishes).n for path in paths), paths), _chunks(paths, wishes))


def lazy_parts(paths: Sequence[str | Path], **wishes: Any) -> Table:
    """Read files with the same columns as one table with a dask array for its values; see `lazy_table`."""
    _check_paths(paths)
    if len(paths) == 1:
        return lazy_table(paths[0], **wishes)
    tables = [lazy_table(path, **wishes) for path in paths if not _is_empty(path, wishes)]
    _check_rows(len(tables), paths)
    import dask.array as da

    beside = _Beside()
    for table in tables:
        _check_like(table, tables[0])
        beside.put(table)
    dtype = tables[0].values.dtype
    return beside.table(da.concatenate([table.values.astype(dtype) for table in tables]), _name(paths))


def _is_empty(path: str | Path, wishes: Mapping[str, Any]) -> bool:
    """Whether a file has columns but no rows, as parts of an export may; of the formats, only parquet lets it be."""
    return suffix_of(Path(path)) == ".parquet" and stream_table(path, **wishes).n == 0


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

    def table(self, values: Any, name: str) -> Table:
        return Table(
            values,
            name,
            np.concatenate(self.ids) if self.ids else None,
            {name: np.concatenate(columns) for name, columns in self.metadata.items()},
            None if self.first is None else self.first.features,
        )


def _chunks(paths: Sequence[str | Path], wishes: Mapping[str, Any]) -> Iterator[Table]:
    """The rows of all files, with the dtype of the first."""
    first: Table | None = None
    for path in paths:
        for chunk in stream_table(path, **wishes).chunks:
            first = first or chunk
            _check_like(chunk, first)
            dtype = first.values.dtype
            same = chunk.values.dtype == dtype
            yield chunk if same else replace(chunk, values=to_numpy(chunk.values).astype(dtype))
    _check_rows(first is not None, paths)


def _check_rows(n: int, paths: Sequence[str | Path]) -> int:
    if not n:
        raise TableError(f"{_name(paths)}: none of the files has rows")
    return n


def _check_paths(paths: Sequence[str | Path]) -> None:
    """Refuse files that cannot be parts of one table, as far as their names tell."""
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


def _name(paths: Sequence[str | Path]) -> str:
    return f"{stem_of(Path(paths[0]))} and {len(paths) - 1} more"
