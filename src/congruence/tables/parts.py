"""Tables in several files with the same columns, and tables read a chunk of rows at a time."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, row_chunks, to_numpy
from congruence.errors import InputError, TableError
from congruence.files import ReadFile, real_path
from congruence.guards import check_folder, suffix_of
from congruence.memory import spill_chunks
from congruence.options import ReadOptions, takes
from congruence.tables._folders import dataset_files
from congruence.tables.access import stem_of
from congruence.tables.address import Address, as_path, listed
from congruence.tables.columns import Selection, choose_columns
from congruence.tables.formats import BY_SUFFIX, COLUMNAR, SUFFIXES
from congruence.tables.names import difference
from congruence.tables.read import CODES, read_selected
from congruence.tables.table import Table, concatenate_labels


def expanded(names: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files that names and patterns (``export/*.parquet``) refer to, those of a pattern sorted."""
    paths: list[str] = []
    for name in map(str, names):
        path = as_path(name)
        if not any(c in name for c in "*?["):
            matches = [str(path) if isinstance(path, Address) else name]
        elif isinstance(path, Address):
            matches = listed(Address(str(path).rpartition("/")[0]), path.name)
        else:
            matches = [name] if path.exists() else sorted(glob.glob(name))
        if not matches:
            raise InputError(f"no file matches {name}")
        paths += matches
    return paths


def part_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the files that make one table: those of a pattern or of a folder of parts, else the file itself."""
    folder = as_path(path)
    if suffix_of(folder) in BY_SUFFIX:
        return expanded([path])
    if isinstance(folder, Address):
        inside = listed(folder)
    elif not folder.is_dir() or (folder / CODES).is_file():
        return expanded([path])
    else:
        inside = dataset_files(folder) or sorted(map(str, folder.iterdir()))
    files = [one for one in inside if suffix_of(file := as_path(one)) in BY_SUFFIX and file.name[0] not in "._"]
    if not files:
        folders = sorted(Path(one).name for one in inside if Path(one).is_dir())
        hint = f"it holds the folders {listing(folders)}" if folders else f"known are {', '.join(SUFFIXES)}"
        raise TableError(f"{folder} is a folder without embedding files; {hint}")
    if not isinstance(folder, Address):
        check_folder(folder, names=[Path(one).name for one in files])
    return files


def read_path(path: str | os.PathLike[str], select: Selection, *, lazily: bool = False) -> Table:
    """Read a file, a pattern or a folder of parts as one table, with a dask array for its values if `lazily`."""
    files = part_files(path)
    table = (lazy_files if lazily else read_files)(files, select)
    folder = Path(path)
    if suffix_of(folder) in BY_SUFFIX or not folder.is_dir() or files == [os.fspath(path)]:
        return table
    return replace(table, name=select.name or folder.name, path=folder, parts=())


@dataclass(frozen=True, eq=False)
class Stream:
    """The rows of a file as tables of some rows each, in order; it can be iterated once."""

    n: int
    chunks: Iterator[Table]


@takes(ReadOptions)
def stream_table(path: str | Path, *, options: ReadOptions) -> Stream:
    """Read an embedding table a chunk of rows at a time; the options are those of `read_table`.

    Parquet and Lance are read batch by batch, and files that can be mapped into memory (.npy, .arrow, .safetensors,
    .pt) are never loaded as a whole. The other formats are read as a whole and returned in chunks.
    """
    return _stream(as_path(path), Selection(**asdict(options)))


def _stream(path: Path, select: Selection) -> Stream:
    if suffix_of(path) not in (".parquet", ".lance"):
        table = read_selected(path, select)
        return Stream(table.n, slices(table))
    from congruence.tables._arrow import open_columnar

    select = replace(select, name=select.name or stem_of(path))
    stack = ExitStack()
    file = stack.enter_context(open_columnar(path, select))
    columns = choose_columns(file.source, select)

    def chunks() -> Iterator[Table]:
        with stack:
            yield from file.chunks(select, columns)

    return Stream(file.n, chunks())


def slices(table: Table, width: int = 0) -> Iterator[Table]:
    """Split a table into tables of some rows each, in order; few enough rows for results of `width` columns."""
    for part in row_chunks(table.n, max(table.d, width)):
        yield table.take(part)


def read_parts(paths: Sequence[str | Path], **options: Any) -> Table:
    """Read files with the same columns as one table, in this order; the options are those of `read_table`.

    A pattern or a folder stands for its files. They are read one after the other, parquet a batch of rows at a time; a
    large matrix is stored in a temporary file. The columns are chosen in the first file.
    """
    return read_files(paths, Selection(**options))


def read_files(paths: Sequence[str | Path], select: Selection) -> Table:
    """Read files as one table; `read_parts` with its options in one object."""
    files = _check_files(paths)
    if len(files) == 1:
        return read_selected(files[0], select)
    select, read = fix_columns(files[0], select), tuple(map(ReadFile.now, files))
    labels: list[tuple[Array | None, Mapping[str, Array]]] = []
    fields: dict[str, Any] = {}

    def values() -> Iterator[Any]:
        for chunk in _chunks(files, select):
            labels.append((chunk.ids, chunk.metadata))
            fields.setdefault("features", chunk.features)
            for name in ("notes", "id_name", "types"):
                fields.setdefault(name, getattr(chunk, name))
            yield chunk.values

    name = select.name or _name(files)
    size = sum(file.stat().st_size for file in files if not isinstance(file, Address) and file.is_file())
    stacked = spill_chunks(values(), name, size)
    return Table(stacked, name, **concatenate_labels(labels), **fields, parts=tuple(files), read=read)


def stream_parts(paths: Sequence[str | Path], **options: Any) -> Stream:
    """Read files with the same columns as one table, a chunk of rows at a time; see `stream_table`."""
    files, select = _check_files(paths), Selection(**options)
    if len(files) == 1:
        return _stream(files[0], select)
    select = fix_columns(files[0], select)
    # Rows are counted first, and files are opened again one by one: they may exceed the limit of open files.
    rows = sum(_stream(path, select).n for path in files)
    return Stream(_check_rows(rows, files), _chunks(files, select))


def lazy_parts(paths: Sequence[str | Path], **options: Any) -> Table:
    """Read files with the same columns as one table with a dask array for its values; see `lazy_selected`."""
    return lazy_files(paths, Selection(**options))


def lazy_files(paths: Sequence[str | Path], select: Selection) -> Table:
    """Read files as one table with a dask array for its values; `lazy_parts` with its options in one object."""
    from congruence.tables.lazy import lazy_selected

    files = _check_files(paths)
    if len(files) == 1:
        return lazy_selected(files[0], select)
    select = fix_columns(files[0], select)
    # Parts of an export may have columns but no rows; only parquet allows it.
    tables = [lazy_selected(path, select) for path in files if suffix_of(path) != ".parquet" or _stream(path, select).n]
    _check_rows(len(tables), files)
    import dask.array as da

    first = tables[0]
    for table in tables:
        _check_same_columns(table, first)
    values = da.concatenate([table.values.astype(first.values.dtype) for table in tables])
    labels = concatenate_labels([(table.ids, table.metadata) for table in tables])
    name = select.name or _name(files)
    return replace(first, values=values, name=name, **labels, path=None, parts=tuple(files))


def fix_columns(path: Path, select: Selection) -> Selection:
    """Choose the columns once: the values of one part may suggest another choice than those of the next."""
    if suffix_of(path) not in COLUMNAR:
        return select
    from congruence.tables._arrow import open_columnar

    with open_columnar(path, select) as file:
        return replace(select, like=choose_columns(file.source, select))


def _chunks(paths: Sequence[Path], select: Selection) -> Iterator[Table]:
    """Yield the rows of all files, with the dtype of the first."""
    first: Table | None = None
    for path in paths:
        for chunk in _stream(path, select).chunks:
            first = first or chunk
            _check_same_columns(chunk, first)
            dtype = first.values.dtype
            same = chunk.values.dtype == dtype
            yield chunk if same else replace(chunk, values=to_numpy(chunk.values).astype(dtype))
    _check_rows(first is not None, paths)


def _check_rows(n: int, paths: Sequence[Path]) -> int:
    if not n:
        raise TableError(f"{_name(paths)}: none of the files has rows")
    return n


def _check_files(paths: Sequence[str | Path]) -> list[Path]:
    """Refuse files that cannot be parts of one table."""
    if not paths:
        raise InputError("paths must name at least one file")
    files = [as_path(file) for path in paths for file in part_files(path)]
    kinds = {suffix_of(file): file for file in files}
    if len(kinds) > 1:
        raise TableError(
            f"files of one table must be of one format, but {' and '.join(map(str, kinds.values()))} differ"
        )
    counts = Counter(map(real_path, files))
    repeated = [path.name for path, count in counts.items() if count > 1]
    if repeated:
        raise TableError(f"files of one table must be distinct; got more than one {listing(repeated)}")
    return files


def _check_same_columns(part: Table, first: Table) -> None:
    """Refuse a part whose columns are not those of the first."""
    if part is first:
        return
    ours, theirs = (dict.fromkeys([*(table.features or ()), *table.metadata]) for table in (part, first))
    if ours.keys() != theirs.keys():
        why = difference(ours, theirs)
    elif part.features != first.features:
        why = "has them in another order"
    elif part.d != first.d:
        why = f"has {part.d} columns instead of {first.d}"
    elif _ids(part) != _ids(first):
        why = f"has {_ids(part)} instead of {_ids(first)}"
    elif not np.can_cast(to_numpy(part.values[:0]).dtype, to_numpy(first.values[:0]).dtype):
        why = f"holds {part.values.dtype} instead of {first.values.dtype}"
    else:
        return
    raise TableError(f"{part.path} does not have the columns of {first.path}: it {why}")


def _ids(table: Table) -> str:
    if table.ids is None:
        return "no ids"
    return "ids that are text" if table.ids.dtype.kind == "U" else "ids that are numbers"


def _name(paths: Sequence[Path]) -> str:
    return f"{stem_of(paths[0])} and {len(paths) - 1} more"
