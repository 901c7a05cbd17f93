"""Room for large matrices: not in memory, but in a temporary file that is mapped into memory.

The system keeps as much of the file in memory as there is room for, and takes the room back when others need it. The
file has no name from the moment it exists, so that nothing is left behind, however the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, is_tensor, row_chunks, to_numpy
from congruence.errors import InputError, TableError
from congruence.files import system_reason
from congruence.tables.memory import SHARE, check_fits, given_limit

SPILL_BYTES = 2**28  # a matrix that takes more goes to a file
BLOCK_BYTES = 2**26  # read at a time on the way there
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the share of the user, the largest file allowed
ELSEWHERE = "TMPDIR names another folder"


def spills(array: Any) -> bool:
    """Whether an array, of which only shape and dtype need be known, is a matrix of numbers that goes to a file."""
    return array.ndim == 2 and array.dtype.kind in "fiu" and _size(array.shape, array.dtype) > SPILL_BYTES


def _size(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * int(np.dtype(dtype).itemsize)


def room_for(shape: tuple[int, int], dtype: Any, path: Path | str) -> Array:
    """Return a matrix to be filled with what `path` holds: in memory, or in a temporary file where it is large.

    The file is reserved whole, so that a full disk is met here and not halfway. What has no room on the disk may still
    have it in memory; what has it nowhere is refused before any is taken.
    """
    size, limit = _size(shape, dtype), given_limit()
    if size <= SPILL_BYTES or (limit is not None and size > limit):
        check_fits(path, size)
        return np.empty(shape, dtype)
    folder = "the temporary folder"
    with contextlib.suppress(OSError):  # there is no such folder, or it is full
        folder = tempfile.gettempdir()
        if size <= SHARE * shutil.disk_usage(folder).free:
            with tempfile.TemporaryFile(dir=folder) as file:
                _reserve(file.fileno(), size)
                return np.memmap(file, dtype, "r+", shape=shape)
    check_fits(path, size, hint=f", and {folder} has no room for it either ({ELSEWHERE})")
    return np.empty(shape, dtype)


def _reserve(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:  # not on every system
        os.truncate(handle, size)


def spill_chunks(chunks: Iterable[Any], name: str = "x") -> Array:
    """Stack chunks of rows, each (m, d), into one matrix (n, d): in memory, or in a temporary file where it is large.

    Chunks are taken one at a time, and how many there are need not be known. The first decides the dtype; integers
    become float64. Chunks without rows are passed over. `name` is for messages.
    """
    try:
        return _stack(chunks, name)
    except OSError as error:  # where it is not met before, a full disk is met when the file is closed
        if error.errno not in FULL:
            raise
        raise TableError(f"{name} could not be kept on disk: {system_reason(error)}; {ELSEWHERE}") from error


def _stack(chunks: Iterable[Any], name: str) -> Array:
    shape, dtype = (0, 0), np.dtype(np.float64)
    with tempfile.SpooledTemporaryFile(max_size=SPILL_BYTES) as spool:
        for number, given in enumerate(chunks):
            if getattr(given, "shape", ())[:1] == (0,):
                continue
            label = f"chunk {number} of {name}"
            chunk = to_numpy(as_matrix(given, label, finite=False))
            if not shape[0]:
                shape = (0, chunk.shape[1])
                dtype = chunk.dtype.newbyteorder("=") if chunk.dtype.kind == "f" else dtype
            _check_like_first(chunk, shape[1], dtype, label)
            spool.write(np.ascontiguousarray(chunk, dtype).data)
            shape = (shape[0] + len(chunk), shape[1])
        if not shape[0]:
            raise InputError(f"{name} is empty: it has no chunk with rows")
        if _size(shape, dtype) > SPILL_BYTES:
            return np.memmap(spool, dtype, "r+", shape=shape)
        spool.seek(0)
        return np.frombuffer(bytearray(spool.read()), dtype).reshape(shape)


def _check_like_first(chunk: Array, width: int, dtype: np.dtype[Any], label: str) -> None:
    if chunk.shape[1] != width:
        raise InputError(f"{label} has {chunk.shape[1]} columns, but the chunks before it have {width}")
    if not np.can_cast(chunk.dtype, dtype):
        raise InputError(f"{label} is {chunk.dtype}, which the {dtype} of the first chunk cannot hold; make them alike")


def take_rows(values: Any, index: Array, name: str) -> Any:
    """Return the chosen rows of a matrix, which go to a file where they are many."""
    if is_tensor(values):
        return values[index]
    taken = room_for((len(index), values.shape[1]), values.dtype, name)
    for part in row_chunks(*taken.shape):
        taken[part] = values[index[part]]
    return taken


def load_matrix(array: Any, path: Path | str) -> Array:
    """Read a two-dimensional array of an open HDF5 file or zarr store, block by block."""
    values = room_for(array.shape, array.dtype, path)
    for block in _blocks(array):
        values[block] = array[block]
    return values


def _blocks(array: Any) -> Iterator[tuple[slice, slice]]:
    """Divide an array into blocks of whole chunks, since each chunk is unpacked whole, as wide as they may be."""
    n, d = array.shape
    rows, columns = getattr(array, "shards", None) or array.chunks or (1, d)
    many = max(1, BLOCK_BYTES // (rows * columns * array.dtype.itemsize))  # chunks in a block
    rows, columns = rows * max(1, many * columns // d), columns * many
    for start in range(0, n, rows):
        for left in range(0, d, columns):
            yield slice(start, start + rows), slice(left, left + columns)
