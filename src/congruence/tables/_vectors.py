"""Readers of the files of nearest-neighbour libraries: .fbin and .fvecs with their kin, and FAISS indexes.

A FAISS index is read here rather than by faiss: its reader believes the sizes in a file, and opens other files that an
index names (on-disk inverted lists). The layouts of flat indexes, of inverted lists of flat vectors and of id maps have
not changed since 2017 (faiss/impl/index_write.cpp); everything else is refused.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import TableError
from congruence.guards import suffix_of
from congruence.memory import room_for, take_rows
from congruence.tables.columns import Selection
from congruence.tables.table import Table

_DTYPES = {
    ".fbin": "<f4", ".ibin": "<i4", ".u8bin": "u1", ".i8bin": "i1", ".fvecs": "<f4", ".ivecs": "<i4", ".bvecs": "u1"
}  # fmt: skip
_FLAT, _IVF_FLAT, _ID_MAP = (b"IxF2", b"IxFI", b"IxFl"), b"IwFl", (b"IxMp", b"IxM2")
_HASH_TABLE = 2  # the kind of direct map that stores pairs


def read_bin(path: Path, select: Selection) -> Table:
    """Map a file of the BigANN benchmarks: rows and columns as 32-bit integers, then the matrix."""
    _refuse_names(path, select)
    size, dtype = path.stat().st_size, np.dtype(_DTYPES[suffix_of(path)])
    n, d = np.fromfile(path, "<u4", 2).tolist() if size >= 8 else (0, 0)
    if size != 8 + n * d * dtype.itemsize:
        raise TableError(f"{path} is damaged: {n} rows of {d} numbers do not make {size} bytes")
    if not size > 8:
        raise TableError(f"{path} is empty: it declares {n} rows of {d} numbers")
    return Table(np.memmap(path, dtype, "r", 8, (n, d)), select.name, path=path)


def read_vecs(path: Path, select: Selection) -> Table:
    """Map a file of the TEXMEX benchmarks: every row is its length as a 32-bit integer, then its numbers."""
    _refuse_names(path, select)
    size, dtype = path.stat().st_size, np.dtype(_DTYPES[suffix_of(path)])
    d = int(np.fromfile(path, "<i4", 1)[0]) if size >= 4 else 0
    step = 4 + d * dtype.itemsize
    if d < 1 or size % step:
        raise TableError(f"{path} is damaged: rows of {d} numbers do not make {size} bytes")
    rows: Any = np.memmap(path, np.dtype([("length", "<i4"), ("values", dtype, (d,))]), "r")
    different = np.flatnonzero(rows["length"] != d)
    if different.size:
        at = int(different[0])
        raise TableError(f"{path} is damaged or ragged: row {at} has {rows['length'][at]} numbers, but row 0 has {d}")
    return Table(rows["values"], select.name, path=path)


def read_faiss(path: Path, select: Selection) -> Table:
    """Read the vectors of a FAISS index in the order in which they were added, or of their ids."""
    _refuse_names(path, select)
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        index = _Index(path, len(data), data)
        values, ids = index.read()
        index.done()
    return Table(values, select.name, ids, path=path)


def _refuse_names(path: Path, select: Selection) -> None:
    select.refuse(path, "id", "features", "metadata", "key", because="it holds one matrix and no names")


@dataclass
class _Index:
    """The parts of an index, read one after the other; every size is checked against what is left of the file."""

    path: Path
    size: int
    data: Any
    at: int = 0

    def read(self) -> tuple[Array, Array | None]:
        """Return the vectors and, where they are not 0, 1, ..., their ids."""
        kind = self._skip(4)
        d, n = self._header()
        if kind in _FLAT:
            return self._flat(n, d), None
        if kind == _IVF_FLAT:
            return self._lists(n, d)
        if kind in _ID_MAP:
            values, _ = self.read()
            ids = self._vector("<i8")
            if len(ids) != len(values):
                raise ValueError(f"it has {len(ids)} ids for {len(values)} vectors")
            return values, ids
        if not re.fullmatch(rb"I[\w-]{3}", kind):
            raise ValueError("it does not begin with the type of an index")
        raise TableError(
            f"{self.path} is an index of type {kind.decode()!r}; flat and IVF,Flat indexes can be read, with ids or not"
        )

    def done(self) -> None:
        """Refuse a file with anything after the index."""
        if self.at != self.size:
            raise ValueError(f"{self.size - self.at} bytes follow the index")

    def _header(self) -> tuple[int, int]:
        d, n = self._integer(4), self._integer(8)
        self._skip(17)  # two unused integers, and whether it is trained
        if self._integer(4) > 1:  # other metrics than inner product and L2 have an argument
            self._skip(4)
        if d < 1 or n < 0:
            raise ValueError(f"it declares {n} vectors of {d} dimensions")
        return d, n

    def _flat(self, n: int, d: int) -> Array:
        count, start = self._integer(8), self.at
        if count != n * d:
            raise ValueError(f"it holds {count} numbers for {n} vectors of {d} dimensions")
        self._skip(4 * count)
        return np.memmap(self.path, "<f4", "r", start, (n, d)) if count else np.empty((n, d), np.float32)

    def _lists(self, n: int, d: int) -> tuple[Array, Array | None]:
        """Read inverted lists of vectors and their ids, in the order of the ids."""
        self._skip(16)  # numbers of lists and of probes
        self.read()  # the centroids
        pairs = self._skip(1)[0] == _HASH_TABLE
        self._vector("<i8")
        if pairs:
            self._vector("<i8", 2)
        if self._skip(4) != b"ilar":
            raise TableError(f"{self.path} keeps its vectors in another file, which is not followed")
        lists, width, form = self._integer(8), self._integer(8), self._skip(4)
        lengths = self._vector("<i8")
        if form == b"sprs":  # pairs of a list and its length
            lengths = lengths.reshape(-1, 2)[:, 1]
        if width != 4 * d or len(lengths) > lists or (lengths < 0).any() or sum(lengths.tolist()) != n:
            raise ValueError("its lists do not hold its vectors")
        self._check(n * (width + 8))  # before room for them is reserved
        values = room_for((n, d), np.dtype("<f4"), self.path)
        ids, row = np.empty(n, np.int64), 0
        for length in lengths.tolist():
            end = row + length
            values[row:end] = np.frombuffer(self.data, "<f4", length * d, self.at).reshape(length, d)
            ids[row:end] = np.frombuffer(self.data, "<i8", length, self.at + length * width)
            self.at, row = self.at + length * (width + 8), end
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        return take_rows(values, order, str(self.path)), None if np.array_equal(ids, np.arange(n)) else ids

    def _check(self, length: int) -> None:
        if not 0 <= length <= self.size - self.at:
            raise ValueError(f"{length} bytes are expected, but {self.size - self.at} follow")

    def _skip(self, length: int) -> Any:
        self._check(length)
        self.at += length
        return self.data[self.at - length : self.at] if length <= 8 else b""

    def _integer(self, width: int) -> int:
        return int.from_bytes(self._skip(width), "little", signed=True)

    def _vector(self, dtype: str, width: int = 1) -> Array:
        """Read a vector, which is stored after its length."""
        count = self._integer(8) * width
        self._check(count * np.dtype(dtype).itemsize)
        vector = np.frombuffer(self.data, dtype, count, self.at).copy()
        self.at += vector.nbytes
        return vector
