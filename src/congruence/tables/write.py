"""Write an embedding table, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, row_chunks, to_numpy
from congruence.errors import CongruenceError, TableError
from congruence.files import check_writable, replacing
from congruence.tables.access import first_sentence, require, suffix_of
from congruence.tables.read_anndata import IDS_NOTE
from congruence.tables.read_arrays import FEATURES, IDS, TEXT_HEADER, VALUES
from congruence.tables.read_zarr import hush_loop
from congruence.tables.table import Table
from congruence.tables.write_columns import write_arrow, write_csv, write_csv_gz, write_parquet

HEADER_LIMIT = 50 * 2**20  # bytes of text in a safetensors header; the library refuses to read 100 MB


def write_table(table: Table, path: str | Path, *, id: str | None = None) -> None:
    """Write a table in the format that the suffix of `path` tells; `read_table` gives it back.

    Columnar files hold one column per feature, the ids in the column `id` ("id" if not given) and the
    metadata with the prefix ``Metadata_``. Files of arrays hold ``values``, ``ids``, ``features`` and the
    metadata under their own names. csv files do not keep the dtype (they are read as float64), the difference
    between missing and empty text, nor that ids were integers.
    """
    path = Path(path)
    suffix = _known_suffix(path)
    if suffix in COLUMNAR:
        with writing(path), replacing(path) as temporary:
            COLUMNAR[suffix]([table], temporary, path, "id" if id is None else id)
        return
    if id is not None:
        raise TableError(f"{path} has no columns, so the id column cannot be called {id!r}")
    if suffix == ".zarr":
        write_zarr([table], table.n, path)
        return
    with writing(path), replacing(path) as temporary:
        WRITERS[suffix](table, temporary, path)


def check_table_path(path: str | Path, table: Table | None = None) -> None:
    """Refuse, before any work, a path to which no table, or not one with the ids and metadata of `table`, can go."""
    path = Path(path)
    if table is not None and suffix_of(path) == ".npy" and (table.ids is not None or table.metadata):
        raise TableError(f"{path} cannot be written: .npy would lose the ids or metadata; use .parquet")
    if _known_suffix(path) == ".zarr":
        _check_folder(path)
    else:
        check_writable(path)


def _known_suffix(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix not in (*COLUMNAR, *WRITERS, ".zarr"):
        known = ", ".join([*COLUMNAR, *WRITERS, ".zarr"])
        raise TableError(f"{path} cannot be written: the suffix {suffix!r} is not one of {known}")
    return suffix


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what a file library raises inside the block into one sentence that names the file."""
    try:
        yield
    except CongruenceError:
        raise
    except Exception as error:
        raise TableError(f"{path} could not be written: {first_sentence(error)}") from error


def _write_npy(table: Table, temporary: Path, path: Path) -> None:
    if table.ids is not None or table.metadata or table.features:
        raise TableError(f"{path} cannot be written: .npy would lose the ids, metadata or feature names; use .npz")
    values = to_numpy(table.values)
    header = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": values.shape}
    with temporary.open("wb") as handle:  # np.save would not say why it could not write
        np.lib.format.write_array_header_1_0(handle, header)
        for part in row_chunks(*values.shape):
            handle.write(np.ascontiguousarray(values[part]).tobytes())


def _write_npz(table: Table, temporary: Path, path: Path) -> None:
    numbers, text = _split(table, path)
    arrays = numbers | {name: _as_unicode(column, name, path) for name, column in text.items()}
    with zipfile.ZipFile(temporary, "w") as archive:  # np.savez would trip over a column called "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
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
    # save_file writes the memory of an array as it lies, whatever its strides say.
    tensors = {name: np.ascontiguousarray(column) for name, column in numbers.items()}
    save_file(tensors, str(temporary), {TEXT_HEADER: header} if text else None)


def write_zarr(tables: Iterable[Table], n: int, path: Path) -> None:
    """Write a zarr group; several tables, of n rows together, are written one below the other as they come."""
    with writing(path), _replacing_folder(path) as temporary:
        zarr = require("zarr", "zarr", path)
        hush_loop()
        # Version 3 of the format has no stable specification of text yet.
        group = zarr.open_group(str(temporary), mode="w-", zarr_format=2)
        beside: dict[str, list[Array]] = {}  # the columns that are not the values take little room
        features: dict[str, Array] = {}
        start = 0
        for table in tables:
            columns = _zarr_columns(table, path)
            values, features = columns.pop(VALUES), {FEATURES: columns.pop(FEATURES)} if table.features else {}
            if not start:
                chunks = "auto" if table.n >= n else (table.n, table.d)
                group.create_array(VALUES, shape=(n, table.d), dtype=values.dtype, chunks=chunks)
            _fill(group[VALUES], values, start)
            for name, column in columns.items():
                beside.setdefault(name, []).append(column)
            start += table.n
        for name, column in ({name: np.concatenate(parts) for name, parts in beside.items()} | features).items():
            _fill(group.create_array(name, shape=column.shape, dtype=column.dtype), column, 0)


def _zarr_columns(table: Table, path: Path) -> dict[str, Array]:
    """Return the arrays of a table under the names they are stored by, text as unicode."""
    numbers, text = _split(table, path)
    nested = [name for name in (*numbers, *text) if "/" in name]
    if nested:
        raise TableError(f"{path} cannot be written: zarr takes the / in {listing(nested)} for a folder")
    return numbers | {name: _as_unicode(column, name, path) for name, column in text.items()}


def _fill(array: Any, column: Array, start: int) -> None:
    """Write rows from `start` on, a chunk at a time: on a full disk, zarr would go on while the folder is removed."""
    step = array.chunks[0]
    for first in range(start - start % step, start + len(column), step):
        a, b = max(first, start), min(first + step, start + len(column))
        for left in range(0, array.shape[1], array.chunks[1]) if array.ndim == 2 else (None,):
            across = () if left is None else (slice(left, left + array.chunks[1]),)
            array[(slice(a, b), *across)] = column[(slice(a - start, b - start), *across)]


def _write_h5ad(table: Table, temporary: Path, path: Path) -> None:
    anndata = require("anndata", "h5ad", path)
    pd = require("pandas", "h5ad", path)
    ids = np.arange(table.n) if table.ids is None else table.ids
    obs = pd.DataFrame(dict(table.metadata), index=pd.Index(ids.astype(str).astype(object)))
    var = pd.DataFrame(index=pd.Index(np.array(table.feature_names, dtype=object)))
    note = "none" if table.ids is None else "integer" if table.ids.dtype.kind == "i" else "text"
    with warnings.catch_warnings():  # AnnData warns of names that are not unique, which is ours to say
        warnings.simplefilter("ignore")
        data = anndata.AnnData(to_numpy(table.values), obs=obs, var=var, uns={IDS_NOTE: note})
        data.write_h5ad(temporary)


def _split(table: Table, path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the arrays of a table under the names they are stored by: first numbers, then text."""
    clash = [name for name in table.metadata if name in (VALUES, IDS, FEATURES)]
    if clash:
        raise TableError(f"{path} cannot be written: metadata may not be called {listing(clash)} there")
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


def _as_unicode(column: Array, name: str, path: Path) -> Array:
    if column.dtype.kind == "O":
        odd = [row for row, item in enumerate(column.tolist()) if not isinstance(item, str)]
        if odd:
            raise TableError(
                f"{path} cannot be written: {name!r} is missing or not text in {len(odd)} rows "
                f"(row {listing(odd)}), which this format cannot hold; use .parquet"
            )
    return column.astype(str)


def _check_folder(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():
        check_writable(path)
    elif not any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zarray")):
        raise TableError(f"{path} cannot be written: it is a folder, but not a zarr store")
    elif not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
        raise TableError(f"cannot write to {path}: permission denied")


@contextlib.contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its place when the block succeeds."""
    _check_folder(path)
    temporary = path.parent / f".{path.name[:40]}.{uuid.uuid4().hex}.part"
    old = temporary.with_suffix(".old")
    try:
        yield temporary
        if path.is_dir():  # a folder cannot be replaced in one step
            os.replace(path, old)
        os.replace(temporary, path)
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


COLUMNAR: dict[str, Callable[[Iterable[Table], Path, Path, str], None]] = {
    ".csv": write_csv,
    ".csv.gz": write_csv_gz,
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".feather": write_arrow,
}
WRITERS: dict[str, Callable[[Table, Path, Path], Any]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".h5ad": _write_h5ad,
}
