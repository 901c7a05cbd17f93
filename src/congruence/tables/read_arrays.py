"""Readers of files that hold arrays under names: .npy, .npz, .safetensors, .pt and plain .zarr.

One matrix is the values. The array ``ids`` holds the ids, the text array ``features`` the names of the
columns, and every other one-dimensional array with one entry per row is metadata.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from congruence.arrays import Array, is_tensor, listing, to_numpy
from congruence.errors import TableError
from congruence.tables.access import reading, require
from congruence.tables.columns import Selection
from congruence.tables.table import Table

VALUES, IDS, FEATURES = "values", "ids", "features"  # the names write_table uses
TEXT_HEADER = "congruence.text"  # where a safetensors file keeps what is not numbers

SAFETENSORS_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One array inside a file, not yet read."""

    shape: tuple[int, ...]
    load: Callable[[], Array]
    pickled: bool = False  # Python objects, which only unpickling could read


def read_npy(path: Path, select: Selection) -> Table:
    """Map a .npy file into memory."""
    select.refuse(path, "id", "features", "metadata", "key", because="a .npy file holds one array and no names")
    with reading(path), path.open("rb") as handle:
        shape, dtype = _npy_header(handle)
    if dtype.hasobject:
        raise TableError(_pickle_refusal(path, "the array"))
    with reading(path):  # an empty file cannot be mapped
        values = np.load(path, mmap_mode=None if 0 in shape else "r", allow_pickle=False)
    return Table(values, select.name, path=path)


def read_npz(path: Path, select: Selection) -> Table:
    """Read the arrays of a .npz file, only those that are needed."""
    entries = {}
    with reading(path), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as handle:
                    shape, dtype = _npy_header(handle)
                entries[member[:-4]] = Entry(shape, partial(_load_member, path, member), dtype.hasobject)
    return table_from_entries(path, entries, select)


def read_safetensors(path: Path, select: Selection) -> Table:
    """Map the tensors of a .safetensors file into memory; bfloat16 is widened to float32."""
    from safetensors import safe_open

    with reading(path):
        # Opening it raises if the file is not whole and consistent.
        with safe_open(str(path), framework="np") as checked:
            text = json.loads((checked.metadata() or {}).get(TEXT_HEADER, "{}"))
        with path.open("rb") as handle:
            size = int.from_bytes(handle.read(8), "little")
            header: dict[str, Any] = json.loads(handle.read(size))
    header.pop("__metadata__", None)
    entries = {name: Entry((len(column),), partial(_as_text, column)) for name, column in text.items()}
    for name, info in header.items():
        entries[name] = Entry(tuple(info["shape"]), partial(_map_tensor, path, info, 8 + size))
    return table_from_entries(path, entries, select)


def read_pt(path: Path, select: Selection) -> Table:
    """Read a tensor, or a dict of tensors, saved with torch.save; mapped into memory where torch can."""
    from pickle import UnpicklingError

    torch = require("torch", "torch", path)
    with reading(path):
        try:  # only the zip format, torch's default since 1.6, can be mapped
            mapped = zipfile.is_zipfile(path)
            loaded = torch.load(str(path), weights_only=True, mmap=mapped, map_location="cpu")
        except UnpicklingError as error:
            raise TableError(
                f"{path} is damaged or holds Python objects besides tensors, which are never unpickled "
                "because they may run code; save tensors only, as in torch.save({'values': x}, path)"
            ) from error
    arrays = loaded if isinstance(loaded, dict) else {VALUES: loaded}
    entries = {}
    for name, item in arrays.items():
        if is_tensor(item):
            entries[str(name)] = Entry(tuple(item.shape), partial(to_numpy, item))
        elif isinstance(item, list | tuple) and all(isinstance(part, str | int | float) for part in item):
            entries[str(name)] = Entry((len(item),), partial(np.asarray, item))
    return table_from_entries(path, entries, select)


def zarr_entries(path: Path, node: Any) -> dict[str, Entry]:
    """Return the arrays of an opened zarr store: the root array, or those directly under the root group."""
    with reading(path):
        arrays = dict(node.arrays()) if hasattr(node, "arrays") else {VALUES: node}
    return {name: Entry(tuple(array.shape), partial(_load_zarr, array)) for name, array in arrays.items()}


def table_from_entries(path: Path, entries: Mapping[str, Entry], select: Selection) -> Table:
    """Build a table from named arrays: the matrix, its ids, its feature names and its metadata."""
    select.refuse(path, "features", "metadata", because="it holds arrays, not columns; --key chooses the array")
    key = _choose_key(path, entries, select.key)
    values = _load(path, key, entries[key])
    n, d = values.shape if values.ndim == 2 else (-1, -1)
    ids = _read_ids(path, entries, select.id, n)
    features = None
    metadata = {}
    for name, entry in entries.items():
        if name in (key, select.id or IDS) or len(entry.shape) != 1 or entry.pickled:
            continue
        if name == FEATURES and entry.shape == (d,) and _load(path, name, entry).dtype.kind in "UOT":
            features = tuple(_load(path, name, entry).tolist())
        elif entry.shape == (n,):
            metadata[name] = _load(path, name, entry)
    return Table(values, select.name, ids, metadata, features, path)


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


def _read_ids(path: Path, entries: Mapping[str, Entry], id: str | None, n: int) -> Array | None:
    name = IDS if id is None else id
    if name not in entries:
        if id is not None:
            raise TableError(f"{path} holds no array {id!r} for --id; it holds {listing(list(entries), 10)}")
        return None
    if id is None and len(entries[name].shape) != 1:  # a matrix that happens to be called ids
        return None
    return _load(path, name, entries[name])


def _load(path: Path, name: str, entry: Entry) -> Array:
    if entry.pickled:
        raise TableError(_pickle_refusal(path, f"the array {name!r}"))
    with reading(path):
        return entry.load()


def _pickle_refusal(path: Path, what: str) -> str:
    return (
        f"{path}: {what} holds Python objects, which are never unpickled because they may run code; "
        "save it with a number or text dtype"
    )


def _npy_header(handle: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(handle)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(handle)
    return shape, dtype


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
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _as_text(column: list[str | None]) -> Array:
    return np.array(column, dtype=object)


def _load_zarr(array: Any) -> Array:
    return np.asarray(array[...])
