"""Readers of files that hold arrays under names: .npy, .npz, .safetensors, .pt, .mat; .zarr and .h5 share their rules.

One matrix is the values. The array ``ids`` holds the ids, the text array ``features`` the names of the columns, and
every other one-dimensional array with one entry per row is metadata.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import pickletools
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from congruence.arrays import Array, is_tensor, listing, to_numpy
from congruence.checks import require
from congruence.errors import TableError
from congruence.guards import open_archive, open_tensors, parse_json
from congruence.memory import check_fits
from congruence.tables.access import load_member, map_npy, npy_members, pickle_refusal
from congruence.tables.columns import Selection
from congruence.tables.table import Table

VALUES, IDS, FEATURES = "values", "ids", "features"  # the names write_table uses
TEXT_HEADER = "congruence.text"  # the entry of a safetensors file that holds text

_SAFETENSORS_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
# All names in a file of tensors. torch's own weights_only list is longer, and includes calls that take as much memory
# as a few bytes ask for, such as bytearray(10**12).
_TENSOR_GLOBALS = re.compile(
    r"collections OrderedDict|torch Size|torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter)"
    r"|torch\.nn\.parameter Parameter|torch (\w+Storage|b?float\w*|u?int\d+|bool|double|half|short|long)"
    r"|torch\.storage UntypedStorage"
)
_MAT_CLASSES = {
    "logical",
    "char",
    "single",
    "double",
    *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)),
}
_JSON_RATIO = 24  # the largest expansion of JSON: an empty list and a comma become 64 bytes and a reference
_LEGACY_PICKLES = 5  # in a file from before torch 1.6: magic number, version, system, object, names of the storages


@dataclass(frozen=True)
class Entry:
    """One array inside a file, not yet read."""

    shape: tuple[int, ...]
    load: Callable[[], Array]
    nbytes: int = 0  # of memory that loading takes; 0 if the file is mapped
    pickled: bool = False  # Python objects, which only unpickling could read


def read_npy(path: Path, select: Selection) -> Table:
    """Map a .npy file into memory."""
    select.refuse(path, "id", "features", "metadata", "key", because="a .npy file holds one array and no names")
    return Table(map_npy(path), select.name, path=path)


def read_npz(path: Path, select: Selection) -> Table:
    """Read the needed arrays of a .npz file."""
    entries = {}
    with open_archive(path) as archive:
        for name, header in npy_members(path, archive):
            load = partial(load_member, archive, name)
            entries[name] = Entry(header.shape, load, header.nbytes, header.dtype.hasobject)
        return table_from_entries(path, entries, select)


def read_safetensors(path: Path, select: Selection) -> Table:
    """Map the tensors of a .safetensors file into memory; bfloat16 is widened to float32."""
    # Opening raises if the file is incomplete or inconsistent.
    with open_tensors(path) as checked:
        header_text = (checked.metadata() or {}).get(TEXT_HEADER, "{}")
        check_fits(path, _JSON_RATIO * len(header_text), "its text")
        text = parse_json(header_text, path)
    with path.open("rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        header: dict[str, Any] = json.loads(handle.read(size))
    header.pop("__metadata__", None)
    entries = {name: Entry((len(column),), partial(_as_text, path, name, column)) for name, column in text.items()}
    for name, info in header.items():
        widened = 4 * math.prod(info["shape"]) if info["dtype"] == "BF16" else 0
        entries[name] = Entry(tuple(info["shape"]), partial(_map_tensor, path, info, 8 + size), widened)
    return table_from_entries(path, entries, select)


def _map_tensor(path: Path, info: Mapping[str, Any], start: int) -> Array:
    dtype = _SAFETENSORS_DTYPES.get(info["dtype"])
    if dtype is None:
        known = ", ".join(_SAFETENSORS_DTYPES)
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
        raise TableError(f"{path} is damaged: its text column {name!r} holds values other than text")
    "".join(item or "" for item in column).encode()  # JSON can spell halves of characters, which cannot be printed
    return np.array(column, dtype=object)


def read_pt(path: Path, select: Selection) -> Table:
    """Read a tensor, or a dict of tensors, saved with torch.save; mapped into memory where torch can."""
    from pickle import UnpicklingError

    torch = require("torch", str(path), "torch")
    try:
        loaded = _load_zip(path, torch) if zipfile.is_zipfile(path) else _load_legacy(path, torch)
    except UnpicklingError as error:
        raise TableError(_tensor_refusal(path)) from error
    arrays = loaded if isinstance(loaded, dict) else {VALUES: loaded}
    entries = {}
    for name, item in arrays.items():
        if is_tensor(item):
            entries[str(name)] = Entry(tuple(item.shape), partial(to_numpy, item), _tensor_bytes(item))
        elif isinstance(item, list | tuple) and all(isinstance(part, str | int | float) for part in item):
            entries[str(name)] = Entry((len(item),), partial(np.asarray, item))
    return table_from_entries(path, entries, select)


def _load_zip(path: Path, torch: Any) -> Any:
    """Load the zip format, torch's default since 1.6, which can be mapped."""
    with open_archive(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise TableError(f"{path} is compressed, which torch.save does not do; save it again")
        for member in archive.namelist():
            if member.casefold().endswith("data.pkl"):  # torch ignores case
                _check_pickle(path, io.BytesIO(archive.read(member)), 1)
    return torch.load(os.fspath(path), weights_only=True, mmap=True, map_location="cpu")


def _load_legacy(path: Path, torch: Any) -> Any:
    """Load the format from before torch 1.6, which has to be read as a whole."""
    check_fits(path, path.stat().st_size)
    # A map returns no more bytes than the file has, whatever length it declares.
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        _check_pickle(path, mapped, _LEGACY_PICKLES)
        mapped.seek(0)
        return torch.load(mapped, weights_only=True, map_location="cpu")


def _check_pickle(path: Path, stream: Any, count: int) -> None:
    """Refuse, without running it, a pickle that refers to anything but the parts of tensors."""
    for _ in range(count):
        for opcode, argument, _ in pickletools.genops(stream):
            by_name = opcode.name in ("GLOBAL", "INST") and _TENSOR_GLOBALS.fullmatch(str(argument))
            if opcode.name in ("GLOBAL", "INST", "STACK_GLOBAL") and not by_name:
                raise TableError(_tensor_refusal(path))


def read_mat(path: Path, select: Selection) -> Table:
    """Read the needed arrays of a MATLAB file of version 4 to 7; a row or a column of it is a vector."""
    import scipy.io

    with path.open("rb") as handle:
        if handle.read(10) == b"MATLAB 7.3":
            raise TableError(f"{path} is MATLAB 7.3 (HDF5); save it with -v7, or export the matrix as .h5")
        _check_elements(path, handle)
        handle.seek(0)
        known = [one for one in scipy.io.whosmat(handle) if one[2] in _MAT_CLASSES and len(one[1]) in (1, 2)]
    matrices = [name for name, shape, kind in known if kind != "char" and 1 not in shape]
    entries = {}
    for name, shape, kind in known:
        as_vector = 1 in shape and name != select.key and bool(matrices)
        flat = (max(shape),) if as_vector else shape[:1] if kind == "char" else shape
        entries[name] = Entry(tuple(flat), partial(_load_variable, path, name, flat), 8 * math.prod(shape))
    return table_from_entries(path, entries, select)


def _check_elements(path: Path, handle: IO[bytes]) -> None:
    """Refuse a file that ends inside a variable, or between them: scipy would read what is left."""
    handle.seek(0)
    header = handle.read(128)
    if b"\0" in header[:4]:  # version 4 has no header
        return
    order: Literal["little", "big"] = "little" if header[126:] == b"IM" else "big"
    at, size = 128, path.stat().st_size
    while at < size:
        handle.seek(at + 4)
        at += 8 + int.from_bytes(handle.read(4), order)
    if at != size:
        raise TableError(f"{path} is damaged: it declares {at} bytes, but has {size}")


def _load_variable(path: Path, name: str, shape: tuple[int, ...]) -> Array:
    import scipy.io

    with path.open("rb") as handle:
        array: Array = scipy.io.loadmat(handle, variable_names=[name])[name]
    return np.char.rstrip(array).ravel() if array.dtype.kind == "U" else array.reshape(shape)


def _tensor_bytes(tensor: Any) -> int:
    """Return the bytes that using a tensor as an array takes, beyond those of its storage."""
    if str(tensor.dtype) == "torch.bfloat16":
        return 4 * int(tensor.numel())
    size = int(tensor.numel()) * int(tensor.element_size())
    # A stride of 0 makes a matrix of any size out of one number.
    stored = str(tensor.layout) == "torch.strided" and size <= tensor.untyped_storage().nbytes()
    return 0 if stored else size


def _tensor_refusal(path: Path) -> str:
    return (
        f"{path} is damaged or holds Python objects other than tensors, which are never unpickled "
        "because they may run code; save tensors only, as in torch.save({'values': x}, path)"
    )


def table_from_entries(path: Path, entries: Mapping[str, Entry], select: Selection) -> Table:
    """Build a table from named arrays: the matrix, its ids, its feature names and its metadata."""
    select.refuse(path, "features", "metadata", because="it holds arrays, not columns; key (--key) chooses the array")
    key, id = _choose_key(path, entries, select.key), select.id
    if id is not None and id not in entries:
        raise TableError(f"{path} holds no array {id!r} for id (--id); it holds {listing(list(entries), 10)}")
    if id is None and IDS in entries and len(entries[IDS].shape) == 1:
        id = IDS
    n, d = entries[key].shape if len(entries[key].shape) == 2 else (-1, -1)
    vectors = [
        name
        for name, entry in entries.items()
        if len(entry.shape) == 1 and not entry.pickled and name not in (key, select.id or IDS)
    ]
    names = [name for name in vectors if name == FEATURES and entries[name].shape == (d,)]
    metadata = [name for name in vectors if entries[name].shape == (n,)]
    needed = dict.fromkeys([key, *([] if id is None else [id]), *names, *metadata])
    check_fits(path, sum(entries[name].nbytes for name in needed))
    loaded = {name: _load(path, name, entries[name]) for name in needed}
    names = [name for name in names if loaded[name].dtype.kind in "UOT"]
    return Table(
        loaded[key],
        select.name,
        None if id is None else loaded[id],
        {name: loaded[name] for name in metadata if name not in names},
        tuple(loaded[names[0]].tolist()) if names else None,
        path,
        id_name=select.id,
    )


def _choose_key(path: Path, entries: Mapping[str, Entry], key: str | None) -> str:
    known = listing([f"{name} {entry.shape}" for name, entry in entries.items()], 10)
    if not entries:
        raise TableError(f"{path} holds no arrays at its top level")
    if key is not None:
        if key not in entries:
            raise TableError(f"{path} holds no array {key!r} (--key); it holds {known}")
        return key
    matrices = [name for name, entry in entries.items() if len(entry.shape) == 2]
    if len(matrices) > 1:
        raise TableError(f"{path} holds several matrices ({listing(matrices, 10)}); choose one with key (--key)")
    if not matrices and len(entries) > 1:
        raise TableError(f"{path} holds no matrix (rows, dimensions); it holds {known}")
    return matrices[0] if matrices else next(iter(entries))  # a single vector is refused with its shape


def _load(path: Path, name: str, entry: Entry) -> Array:
    if entry.pickled:
        raise TableError(pickle_refusal(path, f"the array {name!r}"))
    array = entry.load()
    if array.dtype.kind == "U" and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
            raise TableError(f"{path} is damaged: the text array {name!r} holds characters that do not exist")
    return array
