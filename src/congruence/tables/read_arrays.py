"""Readers of files that hold arrays under names: .npy, .npz and .safetensors; and what .pt and .zarr share with them.

One matrix is the values. The array ``ids`` holds the ids, the text array ``features`` the names of the
columns, and every other one-dimensional array with one entry per row is metadata.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.access import reading
from congruence.tables.columns import Selection
from congruence.tables.memory import check_fits
from congruence.tables.table import Table

VALUES, IDS, FEATURES = "values", "ids", "features"  # the names write_table uses
TEXT_HEADER = "congruence.text"  # where a safetensors file keeps what is not numbers

SAFETENSORS_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
NPY_HEADER = 2**14  # bytes; numpy writes a few hundred and refuses to understand more than 10,000
NPZ_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what np.savez and np.savez_compressed write


@dataclass(frozen=True)
class Entry:
    """One array inside a file, not yet read."""

    shape: tuple[int, ...]
    load: Callable[[], Array]
    nbytes: int = 0  # of memory that loading takes; nothing where the file is mapped
    pickled: bool = False  # Python objects, which only unpickling could read


@dataclass(frozen=True)
class NpyHeader:
    """What the first bytes of a .npy file say about the rest."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    length: int  # of the header itself, in bytes
    fortran: bool = False  # columns one after the other, and not rows

    @property
    def nbytes(self) -> int:
        """The bytes that have to follow."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path, select: Selection) -> Table:
    """Map a .npy file into memory."""
    select.refuse(path, "id", "features", "metadata", "key", because="a .npy file holds one array and no names")
    with path.open("rb") as handle:
        header = npy_header(path, handle, path.stat().st_size)
    if header.dtype.hasobject:
        raise TableError(_pickle_refusal(path, "the array"))
    # An empty file cannot be mapped.
    values = np.load(path, mmap_mode=None if 0 in header.shape else "r", allow_pickle=False)
    return Table(values, select.name, path=path)


def read_npz(path: Path, select: Selection) -> Table:
    """Read the arrays of a .npz file, only those that are needed."""
    entries = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if not member.endswith(".npy"):
                continue
            info = archive.getinfo(member)
            if info.compress_type not in NPZ_METHODS:
                raise TableError(f"{path}: {member} is compressed in a way that np.savez does not use; save it anew")
            with archive.open(member) as handle:
                header = npy_header(path, handle, info.file_size)
            load = partial(_load_member, path, member)
            entries[member[:-4]] = Entry(header.shape, load, header.nbytes, header.dtype.hasobject)
    return table_from_entries(path, entries, select)


def read_safetensors(path: Path, select: Selection) -> Table:
    """Map the tensors of a .safetensors file into memory; bfloat16 is widened to float32."""
    from safetensors import safe_open

    # Opening it raises if the file is not whole and consistent.
    with safe_open(str(path), framework="np") as checked:
        text = json.loads((checked.metadata() or {}).get(TEXT_HEADER, "{}"))
    with path.open("rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        header: dict[str, Any] = json.loads(handle.read(size))
    header.pop("__metadata__", None)
    entries = {name: Entry((len(column),), partial(_as_text, path, name, column)) for name, column in text.items()}
    for name, info in header.items():
        widened = 4 * math.prod(info["shape"]) if info["dtype"] == "BF16" else 0
        entries[name] = Entry(tuple(info["shape"]), partial(_map_tensor, path, info, 8 + size), widened)
    return table_from_entries(path, entries, select)


def table_from_entries(path: Path, entries: Mapping[str, Entry], select: Selection) -> Table:
    """Build a table from named arrays: the matrix, its ids, its feature names and its metadata."""
    select.refuse(path, "features", "metadata", because="it holds arrays, not columns; --key chooses the array")
    key = _choose_key(path, entries, select.key)
    n, d = entries[key].shape if len(entries[key].shape) == 2 else (-1, -1)
    id = _choose_id(path, entries, select.id)
    columns = [name for name, entry in entries.items() if len(entry.shape) == 1 and not entry.pickled]
    columns = [name for name in columns if name not in (key, select.id or IDS)]
    names = [name for name in columns if name == FEATURES and entries[name].shape == (d,)]
    beside = [name for name in columns if entries[name].shape == (n,)]
    check_fits(path, sum(entries[name].nbytes for name in {key, *([] if id is None else [id]), *names, *beside}))
    loaded = {name: _load(path, name, entries[name]) for name in dict.fromkeys([key, *names, *beside])}
    names = [name for name in names if loaded[name].dtype.kind in "UOT"]
    return Table(
        loaded[key],
        select.name,
        None if id is None else _load(path, id, entries[id]),
        {name: loaded[name] for name in beside if name not in names},
        tuple(loaded[names[0]].tolist()) if names else None,
        path,
    )


def _choose_key(path: Path, entries: Mapping[str, Entry], key: str | None) -> str:
    there = listing([f"{name} {entry.shape}" for name, entry in entries.items()], 10)
    if not entries:
        raise TableError(f"{path} holds no arrays at its top level")
    if key is not None:
        if key not in entries:
            raise TableError(f"{path} holds no array {key!r} (--key); it holds {there}")
        return key
    matrices = [name for name, entry in entries.items() if len(entry.shape) == 2]
    if len(matrices) > 1:
        raise TableError(f"{path} holds several matrices ({listing(matrices, 10)}); choose one with --key")
    if not matrices and len(entries) > 1:
        raise TableError(f"{path} holds no matrix (rows, dimensions); it holds {there}")
    return matrices[0] if matrices else next(iter(entries))  # a lone vector is refused with its shape


def _choose_id(path: Path, entries: Mapping[str, Entry], id: str | None) -> str | None:
    if id is not None and id not in entries:
        raise TableError(f"{path} holds no array {id!r} for --id; it holds {listing(list(entries), 10)}")
    if id is None:  # a matrix that happens to be called ids is none
        return IDS if IDS in entries and len(entries[IDS].shape) == 1 else None
    return id


def _load(path: Path, name: str, entry: Entry) -> Array:
    if entry.pickled:
        raise TableError(_pickle_refusal(path, f"the array {name!r}"))
    with reading(path):
        array = entry.load()
    if array.dtype.kind == "U" and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
            raise TableError(f"{path} is damaged: the text array {name!r} holds characters that do not exist")
    return array


def _pickle_refusal(path: Path, what: str) -> str:
    return (
        f"{path}: {what} holds Python objects, which are never unpickled because they may run code; "
        "save it with a number or text dtype"
    )


def npy_header(path: Path, handle: IO[bytes], size: int) -> NpyHeader:
    """Read the header of a .npy file of `size` bytes, and refuse one that promises more than there is."""
    start = io.BytesIO(handle.read(NPY_HEADER))  # a header may claim a length of gigabytes
    version = np.lib.format.read_magic(start)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(start)
    header = NpyHeader(shape, dtype, start.tell(), fortran)
    if any(length < 0 for length in shape) or (header.nbytes > size - header.length and not dtype.hasobject):
        raise TableError(
            f"{path} is damaged: an array of shape {shape} and dtype {dtype} takes {header.nbytes} bytes, "
            f"but {max(0, size - header.length)} follow"
        )
    return header


def _load_member(path: Path, member: str) -> Array:
    with zipfile.ZipFile(path) as archive, archive.open(member) as handle:
        array: Array = np.lib.format.read_array(handle, allow_pickle=False)
    return array


def _map_tensor(path: Path, info: Mapping[str, Any], start: int) -> Array:
    dtype = SAFETENSORS_DTYPES.get(info["dtype"])
    if dtype is None:
        known = ", ".join(SAFETENSORS_DTYPES)
        raise TableError(f"{path}: tensors of dtype {info['dtype']} cannot be used; {known} can")
    shape = tuple(info["shape"])
    if 0 in shape:  # nothing to map
        return np.empty(shape, dtype)
    array: Array = np.memmap(path, dtype, "r", offset=start + info["data_offsets"][0], shape=shape)
    if info["dtype"] == "BF16":  # a bfloat16 is the upper half of a float32
        wide = array.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return array


def _as_text(path: Path, name: str, column: list[str | None]) -> Array:
    if not isinstance(column, list) or not all(item is None or isinstance(item, str) for item in column):
        raise TableError(f"{path} is damaged: its text column {name!r} holds something else than text")
    "".join(item or "" for item in column).encode()  # JSON can spell halves of characters, which cannot be printed
    return np.array(column, dtype=object)
