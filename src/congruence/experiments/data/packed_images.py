"""Images inside one large file, .npz or .h5, of which only some rows are wanted."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.checks import require
from congruence.errors import InputError
from congruence.tables.access import NpyHeader, npy_header, reading
from congruence.tables.memory import check_fits

BLOCK = 2**24  # bytes read at a time


def read_npz_rows(path: Path, key: str, expected: tuple[int, ...], rows: Array | None = None) -> Array:
    """Some rows of an array of bytes or integers in a .npz file, in the order asked for; all without `rows`.

    Blocks are unpacked one after the other and only the rows asked for are kept. The array must have the shape
    `expected`; nothing is unpickled.
    """
    with reading(path), zipfile.ZipFile(path) as archive:
        header = _npz_header(path, archive, key)
        _check_array(path, key, header.shape, header.dtype, expected)
        if header.fortran:
            raise InputError(f"{path}: {key} is stored column by column; save it again with np.savez")
        wanted = np.arange(expected[0]) if rows is None else rows
        found = _room_for(path, wanted, expected, header.dtype)
        order, size = np.argsort(wanted, kind="stable"), header.nbytes // expected[0]
        with archive.open(f"{key}.npy") as handle:
            for first, last, places in _blocks(wanted[order], max(1, BLOCK // size)):
                handle.seek(header.length + first * size)
                block = np.frombuffer(handle.read((last - first) * size), header.dtype)
                block = block.reshape(last - first, *expected[1:])
                found[order[places]] = block[wanted[order[places]] - first]
    return found


def read_h5_rows(path: Path, key: str, expected: tuple[int, ...], rows: Array | None = None) -> Array:
    """The same of an array in an HDF5 file."""
    h5py = require("h5py", str(path), "hdf5")
    with reading(path), h5py.File(path, "r") as store:
        link = store.get(key, getlink=True)
        if link is None:
            raise InputError(f"{path} holds no array {key!r}; it holds {listing(list(store), 10)}")
        data = store[key] if isinstance(link, h5py.HardLink) else None
        if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
            raise InputError(f"{path}: {key} must be an array in the file itself, not a group or a link out of it")
        _check_array(path, key, data.shape, data.dtype, expected)
        wanted = np.arange(expected[0]) if rows is None else rows
        found = _room_for(path, wanted, expected, data.dtype)
        order, size = np.argsort(wanted, kind="stable"), max(1, data.nbytes // expected[0])
        for first, last, places in _blocks(wanted[order], max(1, BLOCK // size)):
            found[order[places]] = data[first:last][wanted[order[places]] - first]
    return found


def _npz_header(path: Path, archive: zipfile.ZipFile, key: str) -> NpyHeader:
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    if f"{key}.npy" not in archive.namelist():
        raise InputError(f"{path} holds no array {key!r}; it holds {listing(names, 10)}")
    with archive.open(f"{key}.npy") as handle:
        return npy_header(path, handle, archive.getinfo(f"{key}.npy").file_size)


def _check_array(path: Path, key: str, shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]) -> None:
    if tuple(shape) != expected:
        raise InputError(f"{path}: {key} has the shape {tuple(shape)}, but {expected} was expected")
    if dtype.kind not in "uif":
        raise InputError(f"{path}: {key} has the dtype {dtype}, but numbers were expected")


def _room_for(path: Path, rows: Array, expected: tuple[int, ...], dtype: Any) -> Array:
    shape = (len(rows), *expected[1:])
    check_fits(path, int(np.prod(shape, dtype=object)) * dtype.itemsize, f"{len(rows)} rows of it", "; take fewer (n)")
    return np.empty(shape, dtype)


def _blocks(rows: Array, most: int) -> Iterator[tuple[int, int, slice]]:
    """Cut sorted row numbers into stretches of at most `most` rows: first, last + 1, and which entries are inside."""
    start = 0
    while start < len(rows):
        first = int(rows[start])
        end = int(np.searchsorted(rows, first + most))
        yield first, int(rows[end - 1]) + 1, slice(start, end)
        start = end
