"""Write an embedding table, completely or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, row_chunks, to_numpy
from congruence.checks import require
from congruence.errors import TableError, one_sentence
from congruence.files import check_writable, replacing
from congruence.guards import first_sentence, suffix_of
from congruence.tables._anndata import IDS_NOTE
from congruence.tables._arrays import FEATURES, IDS, TEXT_HEADER, VALUES
from congruence.tables._hdf5 import inspection
from congruence.tables._write_columns import first_of, write_columns
from congruence.tables._zarr import import_zarr
from congruence.tables.formats import COLUMNAR, WRITABLE
from congruence.tables.parts import Stream
from congruence.tables.table import Table, concatenate

HEADER_LIMIT = 50 * 2**20  # bytes of text in a safetensors header; the library refuses to read 100 MB


def write_table(table: Table, path: str | Path, *, id: str | None = None) -> None:
    """Write a table in the format given by the suffix of `path`; `read_table` reads it back.

    Columnar files hold one column per feature; ids and metadata keep their names and types, and .parquet and .arrow
    record which columns they are. Files of arrays hold ``values``, ``ids``, ``features`` and the metadata under their
    own names. csv files keep neither the dtype (they are read as float64), nor the difference between missing and empty
    text, nor that ids were integers, nor which columns are metadata: name these with `metadata` when they are read.

    Parameters
    ----------
    table : Table
        The table.
    path : str or Path
        The file, or the folder of a .zarr store. It is replaced if it exists.
    id : str, optional
        The name of the id column in files with columns; by default the one it was read from, or "id".

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from congruence import Table, read_table
    >>> path = tempfile.mkdtemp() + "/run.parquet"
    >>> write_table(Table(np.eye(3), "run", ids=["a", "b", "c"]), path)
    >>> read_table(path)
    Table('run', 3 x 3, ids, 0 metadata columns)
    """
    path = Path(path)
    suffix = writable_suffix(path)
    if id is not None and suffix not in COLUMNAR:
        raise TableError(f"{path} has no columns, so the id column cannot be called {id!r}")
    if suffix == ".npy" and table.features:
        raise TableError(f"{path} cannot be written: .npy would lose the feature names; use .npz")
    write_stream(Stream(table.n, iter([table])), path, id=id)


def write_stream(stream: Stream, path: str | Path, *, id: str | None = None) -> None:
    """Write the chunks of a stream one below the other, completely or not at all.

    .parquet, .arrow, .feather, .csv, .npy and .zarr are written chunk by chunk; the other formats collect the chunks
    first.

    Parameters
    ----------
    stream : Stream
        The rows.
    path : str or Path
        The file, or the folder of a .zarr store.
    id : str, optional
        The name of the id column in files with columns; by default the one it was read from, or "id".
    """
    path = Path(path)
    suffix = writable_suffix(path)
    if suffix == ".zarr":
        _check_folder(path)
    with writing(path, folder=suffix == ".zarr") as temporary:
        if suffix == ".zarr":
            _write_zarr(stream, temporary, path)
        elif suffix in COLUMNAR:
            write_columns(stream.chunks, temporary, path, id)
        elif suffix == ".npy":
            _write_npy(stream.chunks, stream.n, temporary, path)
        else:
            tables = list(stream.chunks)
            _WRITERS[suffix](tables[0] if len(tables) == 1 else concatenate(tables), temporary, path)


def check_table_path(path: str | Path, table: Table | None = None) -> None:
    """Refuse, before any work, a path to which a table cannot be written.

    Parameters
    ----------
    path : str or Path
        The path.
    table : Table, optional
        Also refuse a format that cannot hold the ids and metadata of this table.
    """
    path = Path(path)
    if table is not None and suffix_of(path) == ".npy":
        _check_values_alone(table, path)
    if writable_suffix(path) == ".zarr":
        _check_folder(path)
    else:
        check_writable(path)


def check_obsm_path(path: str | Path) -> Path:
    """Refuse, before any work, a file into which `write_obsm` cannot write."""
    path = Path(path)
    if suffix_of(path) != ".h5ad":
        raise TableError(f"{path} is not AnnData (.h5ad), so no embedding can be written back into it; use --out")
    return path


def write_obsm(path: str | Path, key: str, values: Any) -> None:
    """Write `values` (n, k) into obsm of an .h5ad file under `key`; the file is changed completely or not at all."""
    path = check_obsm_path(path)
    with inspection(path, ["obs"]):
        require("anndata", str(path), "h5ad")
    import h5py
    from anndata.io import write_elem

    with writing(path) as temporary:
        shutil.copyfile(path, temporary)
        with h5py.File(temporary, "r+") as store:
            write_elem(store.require_group("obsm"), key, to_numpy(values))


def writable_suffix(path: Path) -> str:
    """Return the suffix of a path, and refuse one whose format cannot be written."""
    suffix = suffix_of(path)
    if suffix not in WRITABLE:
        raise TableError(f"{path} cannot be written: the suffix {suffix!r} is not one of {', '.join(WRITABLE)}")
    return suffix


@contextlib.contextmanager
def writing(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """As `replacing`; exceptions of file libraries become a `TableError` of one sentence that names the file."""
    with (
        one_sentence(f"{path} could not be written", first_sentence, TableError),
        replacing(path, folder=folder) as temporary,
    ):
        yield temporary


def _check_values_alone(table: Table, path: Path) -> None:
    if table.ids is not None or table.metadata:
        raise TableError(f"{path} cannot be written: .npy would lose the ids or metadata; use .parquet")


def _write_npy(tables: Iterable[Table], n: int, temporary: Path, path: Path) -> None:
    first, tables = first_of(tables)
    _check_values_alone(first, path)
    dtype = to_numpy(first.values[:1]).dtype
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n, first.d)}
    with temporary.open("wb") as handle:  # np.save would not report why it could not write
        np.lib.format.write_array_header_1_0(handle, header)
        for table in tables:
            for part in row_chunks(table.n, table.d):
                handle.write(np.ascontiguousarray(to_numpy(table.values[part])).tobytes())


def save_npz(path: Path, arrays: Mapping[str, Any], *, compressed: bool = False) -> None:
    """Write arrays as an .npz file; unlike np.savez without the time, so that the same arrays give the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:  # np.savez fails on a column called "file"
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
            with archive.open(member, "w", force_zip64=True) as handle:
                np.lib.format.write_array(handle, np.asanyarray(array), allow_pickle=False)


def _write_safetensors(table: Table, temporary: Path, path: Path) -> None:
    from safetensors.numpy import save_file

    numbers, text = _split(table, path)
    header = json.dumps({name: column.tolist() for name, column in text.items()})
    if len(header) > HEADER_LIMIT:
        raise TableError(
            f"{path} cannot be written: {len(header) / 2**20:.0f} MB of text ids and metadata do not fit in "
            "the header of a .safetensors file; use .parquet"
        )
    # save_file writes the memory of an array in order, whatever its strides are.
    tensors = {name: np.ascontiguousarray(column) for name, column in numbers.items()}
    save_file(tensors, str(temporary), {TEXT_HEADER: header} if text else None)


def _write_h5ad(table: Table, temporary: Path, path: Path) -> None:
    anndata = require("anndata", str(path), "h5ad")
    pd = require("pandas", str(path), "h5ad")
    ids = np.arange(table.n) if table.ids is None else table.ids
    obs = pd.DataFrame(dict(table.metadata), index=pd.Index(ids.astype(str).astype(object)))
    var = pd.DataFrame(index=pd.Index(np.array(table.feature_names, dtype=object)))
    kind = "none" if table.ids is None else "integer" if table.ids.dtype.kind == "i" else "text"
    with warnings.catch_warnings():  # AnnData warns of names that are not unique
        warnings.simplefilter("ignore")
        data = anndata.AnnData(np.asarray(to_numpy(table.values)), obs=obs, var=var, uns={IDS_NOTE: kind})
        data.write_h5ad(temporary)


def _write_zarr(stream: Stream, temporary: Path, path: Path) -> None:
    """Write a zarr group; the values are written chunk by chunk, the other columns are collected first."""
    # Version 3 of the format has no stable specification of text yet.
    group = import_zarr(path).open_group(str(temporary), mode="w-", zarr_format=2)
    labels: dict[str, list[Array]] = {}
    features: dict[str, Array] = {}
    start = 0
    for table in stream.chunks:
        columns = _unicode_arrays(table, path)
        if nested := [name for name in columns if "/" in name]:
            raise TableError(f"{path} cannot be written: zarr takes the / in {listing(nested)} for a folder")
        values, features = columns.pop(VALUES), {FEATURES: columns.pop(FEATURES)} if table.features else {}
        if not start:
            chunks = "auto" if table.n >= stream.n else (table.n, table.d)
            group.create_array(VALUES, shape=(stream.n, table.d), dtype=values.dtype, chunks=chunks)
        _fill(group[VALUES], values, start)
        for name, column in columns.items():
            labels.setdefault(name, []).append(column)
        start += table.n
    for name, column in ({name: np.concatenate(parts) for name, parts in labels.items()} | features).items():
        _fill(group.create_array(name, shape=column.shape, dtype=column.dtype), column, 0)


def _fill(array: Any, column: Array, start: int) -> None:
    """Write rows from `start` on, chunk by chunk: on a full disk, zarr would write on while the folder is removed."""
    step = array.chunks[0]
    for first in range(start - start % step, start + len(column), step):
        a, b = max(first, start), min(first + step, start + len(column))
        for left in range(0, array.shape[1], array.chunks[1]) if array.ndim == 2 else (None,):
            across = () if left is None else (slice(left, left + array.chunks[1]),)
            array[(slice(a, b), *across)] = column[(slice(a - start, b - start), *across)]


def _split(table: Table, path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the arrays of a table under the names they are stored by: first numbers, then text."""
    clash = [name for name in table.metadata if name in (VALUES, IDS, FEATURES)]
    if clash:
        raise TableError(f"{path} cannot be written: metadata cannot be called {listing(clash)} in this format")
    columns = dict(table.metadata)
    if table.ids is not None:
        columns[IDS] = table.ids
    if table.features is not None:
        columns[FEATURES] = np.array(table.features, dtype=object)
    times = [name for name, column in columns.items() if column.dtype.kind in "Mm"]
    if times:
        raise TableError(f"{path} cannot be written: it cannot hold times ({listing(times)}); use .parquet")
    numbers = {name: column for name, column in columns.items() if column.dtype.kind in "biuf"}
    text = {name: column for name, column in columns.items() if name not in numbers}
    return {VALUES: to_numpy(table.values), **numbers}, text


def _unicode_arrays(table: Table, path: Path) -> dict[str, Array]:
    """Return the arrays of a table under the names they are stored by, text as unicode."""
    arrays, text = _split(table, path)
    for name, column in text.items():
        missing = [row for row, item in enumerate(column.tolist()) if not isinstance(item, str)]
        if missing:
            raise TableError(
                f"{path} cannot be written: {name!r} is missing or not text in {len(missing)} rows "
                f"(row {listing(missing)}), which this format cannot hold; use .parquet"
            )
        arrays[name] = column.astype(str)
    return arrays


def _check_folder(path: Path) -> None:
    if not os.path.isdir(path) or path.is_symlink():  # Path.is_dir raises for a name that is too long
        check_writable(path)
    elif not any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zarray")):
        raise TableError(f"{path} cannot be written: it is a folder, but not a zarr store")
    elif not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
        raise TableError(f"cannot write to {path}: permission denied")


_WRITERS: dict[str, Callable[[Table, Path, Path], Any]] = {
    ".npz": lambda table, temporary, path: save_npz(temporary, _unicode_arrays(table, path)),
    ".safetensors": _write_safetensors,
    ".h5ad": _write_h5ad,
}
