"""The memory limit of a table, and temporary files for matrices that are too large to keep in memory.

A header of a hundred bytes can declare terabytes, and a compressed member can expand a thousandfold. Declared sizes are
therefore checked against the limit before anything is read. Large matrices are stored in a temporary file that is
mapped into memory. It has no name, so nothing remains when the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, is_tensor, row_chunks, to_numpy
from congruence.errors import InputError, TableError
from congruence.files import system_reason

VARIABLE = "CONGRUENCE_MAX_BYTES"
SHARE = 0.75  # of the machine's memory, or of the free disk; the rest is for the computation and other processes
UNKNOWN = 16 * 2**30  # where the system does not report its memory
SPILL_BYTES = 2**28  # a larger matrix is stored in a file
BLOCK_BYTES = 2**26  # read at a time from HDF5 and zarr
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the quota of the user, the largest file allowed
_ELSEWHERE = "set TMPDIR to another folder"


def _limit_from_environment() -> int | None:
    limit = os.environ.get(VARIABLE)
    if not limit:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", limit):
        raise InputError(f"{VARIABLE} must be a number of bytes; got {limit!r}")
    return int(limit)


def max_bytes() -> int:
    """Return how much memory one table may take: `CONGRUENCE_MAX_BYTES`, or three quarters of the machine's."""
    limit = _limit_from_environment()
    if limit is not None:
        return limit
    try:
        return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return UNKNOWN


def check_fits(path: Path | str, needed: int, what: str = "it", hint: str = "") -> None:
    """Refuse to read `needed` bytes if they exceed the limit."""
    limit = max_bytes()
    if needed > limit:
        raise TableError(
            f"{path} does not fit in memory: {what} would take {_gigabytes(needed)}, more than the "
            f"{_gigabytes(limit)} allowed{hint}; {VARIABLE} changes the limit"
        )


def _gigabytes(size: int) -> str:
    return f"{min(size, 10**30) / 2**30:.4g} GB"  # a damaged number may have more digits than a float


def _size(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * int(np.dtype(dtype).itemsize)


def spills(array: Any) -> bool:
    """Whether an array (only its shape and dtype are used) is a numeric matrix that is stored in a temporary file."""
    return array.ndim == 2 and array.dtype.kind in "fiu" and _size(array.shape, array.dtype) > SPILL_BYTES


def room_for(shape: tuple[int, int], dtype: Any, path: Path | str) -> Array:
    """Return an uninitialised matrix for the contents of `path`: in memory, or in a temporary file if it is large.

    The file is reserved in full, so that a full disk is noticed here. A matrix without room on the disk may still fit
    in memory; one that fits nowhere is refused before anything is allocated.
    """
    size, limit = _size(shape, dtype), _limit_from_environment()
    if size <= SPILL_BYTES or (limit is not None and size > limit):
        check_fits(path, size)
        return np.empty(shape, dtype)
    folder = "the temporary folder"
    with contextlib.suppress(OSError):  # the folder does not exist, or is full
        folder = tempfile.gettempdir()
        if size <= SHARE * shutil.disk_usage(folder).free:
            with tempfile.TemporaryFile(dir=folder) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:  # not on every system
                    os.truncate(file.fileno(), size)
                return np.memmap(file, dtype, "r+", shape=shape)
    check_fits(path, size, hint=f", and {folder} has no room for it either ({_ELSEWHERE})")
    return np.empty(shape, dtype)


def spill_chunks(chunks: Iterable[Any], name: str = "x", expected: int = 0) -> Array:
    """Stack chunks of rows, each (m, d), into one matrix (n, d): in memory, or in a temporary file if it is large.

    The chunks are read one at a time. The first one decides the dtype; integers become float64. Chunks without rows are
    skipped. `name` is for messages. If it is known that many bytes are `expected`, none are kept in memory.
    """
    try:
        return _stack(chunks, name, SPILL_BYTES if expected <= SPILL_BYTES else 1)
    except OSError as error:  # some file systems report a full disk only when the file is closed
        if error.errno not in _FULL:
            raise
        raise TableError(f"{name} could not be stored on disk: {system_reason(error)}; {_ELSEWHERE}") from error


def _stack(chunks: Iterable[Any], name: str, in_memory: int) -> Array:
    shape, dtype = (0, 0), np.dtype(np.float64)
    with tempfile.SpooledTemporaryFile(max_size=in_memory) as spool:
        for number, rows in enumerate(chunks):
            if getattr(rows, "shape", ())[:1] == (0,):
                continue
            label = f"chunk {number} of {name}"
            chunk = to_numpy(as_matrix(rows, label, finite=False))
            if not shape[0]:
                shape = (0, chunk.shape[1])
                dtype = chunk.dtype.newbyteorder("=") if chunk.dtype.kind == "f" else dtype
            if chunk.shape[1] != shape[1]:
                raise InputError(f"{label} has {chunk.shape[1]} columns, but the chunks before it have {shape[1]}")
            if not np.can_cast(chunk.dtype, dtype):
                raise InputError(
                    f"{label} is {chunk.dtype}, which the {dtype} of the first chunk cannot hold; use one dtype"
                )
            spool.write(np.ascontiguousarray(chunk, dtype).data)
            shape = (shape[0] + len(chunk), shape[1])
        if not shape[0]:
            raise InputError(f"{name} is empty: it has no chunk with rows")
        if _size(shape, dtype) > in_memory:
            return np.memmap(spool, dtype, "r+", shape=shape)
        spool.seek(0)
        stacked = np.empty(shape, dtype)
        spool.readinto(stacked.data.cast("B"))
        return stacked


def take_rows(values: Any, index: Array, name: str) -> Any:
    """Return the chosen rows of a matrix, in a temporary file if they are many."""
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
    """Divide an array into blocks of whole chunks, because each chunk is decompressed as a whole."""
    n, d = array.shape
    rows, columns = getattr(array, "shards", None) or array.chunks or (1, d)
    many = max(1, BLOCK_BYTES // (rows * columns * array.dtype.itemsize))  # chunks in a block
    rows, columns = rows * max(1, many * columns // d), columns * many
    for start in range(0, n, rows):
        for left in range(0, d, columns):
            yield slice(start, start + rows), slice(left, left + columns)
