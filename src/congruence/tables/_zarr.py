"""Reader of .zarr folders: an array, a group of arrays, or an AnnData store.

zarr trusts its chunks: it runs any codec that the metadata names, decompresses a chunk to any size, and reserves room
for as many texts as the first four bytes declare. zarr and numcodecs do not report these sizes, so `check_zarr_array`
reads them from the chunks before zarr decodes them.
"""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.checks import require
from congruence.errors import TableError
from congruence.guards import DEFLATE_RATIO, MISSING_CHUNKS, SETTINGS_BYTES
from congruence.memory import check_fits, load_matrix, max_bytes, spills
from congruence.tables._anndata import parts_of, table_from_store
from congruence.tables._arrays import VALUES, Entry, table_from_entries
from congruence.tables._hdf5 import DEPTH
from congruence.tables.columns import Selection
from congruence.tables.table import Table

_COMPRESSORS = {"blosc", "lz4", "zstd", "gzip", "zlib"}
_TEXT = {"vlen-utf8", "vlen-bytes"}
_HARMLESS = {"bytes", "transpose", "crc32c", "shuffle", "delta", "fixedscaleoffset", "bitround"}
_SETTINGS = {".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json"}
_ZSTD_BLOCK, _ZSTD_BLOCKS = 2**10, 16  # the content of a block is rarely smaller, except for a few
_SLACK = 4096  # bytes that headers and checksums may add to a chunk
_PER_CHUNK = 1024  # bytes that zarr takes to keep track of one chunk
_AT_ONCE = 16  # chunks that zarr decodes at the same time, roughly


def import_zarr(path: Path) -> Any:
    """Import zarr, and silence the messages of its event loop about cancelled tasks."""
    zarr = require("zarr", str(path), "zarr")
    with contextlib.suppress(ImportError, AttributeError):  # private to zarr; the first failure is raised anyway
        from zarr.core.sync import _get_loop

        _get_loop().set_exception_handler(lambda loop, context: None)
    return zarr


def read_zarr(path: Path, select: Selection, lazy_matrix: Callable[[Path, Any], Any] | None = None) -> Table:
    """Read a zarr array, a group of arrays, or an AnnData store; `lazy_matrix` returns a matrix unread."""
    large = [file for file in _files(path) if file.name in _SETTINGS and file.stat().st_size > SETTINGS_BYTES]
    if large:
        raise TableError(f"{large[0]} has more than {SETTINGS_BYTES} bytes, too many for settings")
    node = import_zarr(path).open(os.fspath(path), mode="r")
    if node.attrs.get("encoding-type") != "anndata":
        arrays = dict(node.arrays()) if hasattr(node, "arrays") else {VALUES: node}
        entries = {name: _entry(path, array, lazy_matrix) for name, array in arrays.items()}
        return table_from_entries(path, entries, select)
    require("anndata", str(path), "h5ad")
    parts = [node[part] for part in parts_of(select.key) if part in node]
    check_fits(path, sum(_inspect(path, part, DEPTH) for part in parts))
    return table_from_store(path, node, select)


def _entry(path: Path, array: Any, lazy_matrix: Callable[[Path, Any], Any] | None) -> Entry:
    if lazy_matrix is not None and array.ndim == 2 and array.dtype.kind in "fiu" and 0 not in array.shape:
        return Entry(tuple(array.shape), partial(lazy_matrix, path, array))
    size = 0 if spills(array) else array.nbytes
    return Entry(tuple(array.shape), partial(_load, path, array, size), size)


def _load(path: Path, array: Any, size: int) -> Array:
    check_zarr_array(path, array, size)
    return load_matrix(array, path) if spills(array) else np.asarray(array[...])


def _files(folder: Path) -> Iterator[Path]:
    return (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def _inspect(path: Path, node: Any, depth: int) -> int:
    """Check every array under a node before AnnData reads it; return the bytes of memory they take."""
    if not hasattr(node, "arrays"):
        return check_zarr_array(path, node, node.nbytes)
    if depth == 0:
        raise TableError(f"{path} is not an AnnData store: {node.path} has groups within groups")
    return sum(_inspect(path, member, depth - 1) for _, member in node.members())


@dataclass(frozen=True)
class _Chunks:
    """How the chunks of an array are stored, each in a file or several in a shard."""

    path: Path  # of the store
    codecs: list[str]
    length: int  # entries of one chunk
    itemsize: int
    in_shard: int = 0  # chunks in one file; 0 if each has its own
    index_first: bool = False  # whether a shard begins with its index

    @property
    def compressor(self) -> str | None:
        """The codec that decides how large a chunk becomes."""
        return next((name for name in self.codecs if name in _COMPRESSORS), None)

    def check_file(self, file: Path) -> int:
        """Refuse a file with a chunk that becomes larger than allowed; return the bytes of text in it."""
        text = 0
        with open(file, "rb") as handle:
            for start, length in self._places(handle):
                handle.seek(start)
                text += self._check(handle, length)
        return text

    def _places(self, handle: Any) -> Iterator[tuple[int, int]]:
        """Yield where each chunk in a file starts, and its length."""
        size = os.fstat(handle.fileno()).st_size
        if not self.in_shard:
            yield 0, size
            return
        length = 16 * self.in_shard + 4  # start and length of each chunk, and a checksum
        if length > size:
            raise TableError(f"{self.path} is damaged: a shard is shorter than its index")
        handle.seek(0 if self.index_first else size - length)
        for start, extent in np.frombuffer(handle.read(length - 4), "<u8").reshape(-1, 2).tolist():
            if start + extent <= size:  # an absent chunk has neither
                yield start, extent

    def _check(self, handle: Any, length: int) -> int:
        is_text = bool(_TEXT & set(self.codecs))
        most = max_bytes() if is_text else 8 * self.length * self.itemsize + _SLACK
        data = handle.read(length if is_text else min(length, 18))
        if self.compressor == "blosc" and int.from_bytes(data[12:16], "little") != length:
            # blosc trusts this length, and would read beyond the end of the chunk
            raise TableError(f"{self.path} is damaged: a chunk of {length} bytes declares another length")
        size = self._unpacked_size(data, handle, length, most)
        if size > most:
            raise TableError(f"{self.path} is damaged: a chunk unpacks to {size} bytes or more; expected {most}")
        if not is_text:
            return 0
        if self.compressor is not None:
            import numcodecs

            data = numcodecs.get_codec({"id": self.compressor}).decode(data)
        count = int.from_bytes(bytes(data[:4]), "little")
        if count != self.length:
            raise TableError(f"{self.path} is damaged: a chunk of {self.length} texts declares {count}")
        return size

    def _unpacked_size(self, data: bytes, handle: Any, length: int, most: int) -> int:
        """Return the size that a chunk declares, or count it if it declares none, up to slightly beyond `most`."""
        compressor = self.compressor
        if compressor is None:
            return length
        if compressor in ("blosc", "lz4"):
            return int.from_bytes(data[4:8] if compressor == "blosc" else data[:4], "little")
        declared = _zstd_size(handle, handle.tell() - len(data), length) if compressor == "zstd" else None
        if declared is not None:
            return declared
        if compressor != "zstd" and length * DEFLATE_RATIO * _AT_ONCE < max_bytes():
            return 0
        data += handle.read(length - len(data))
        if compressor == "zlib":
            return len(zlib.decompressobj().decompress(data, most + 1))
        import pyarrow as pa

        size = 0
        with pa.CompressedInputStream(pa.BufferReader(data), compressor) as stream:
            while size <= most and (part := stream.read(2**20)):
                size += len(part)
        return size


def _zstd_size(handle: Any, start: int, length: int) -> int | None:
    """Return the content size in the header of a zstd frame (RFC 8878, 3.1.1), if it is stored.

    None as well for several frames, which are decompressed together, and for a frame of unusually many blocks. The
    position in the file is that of before.
    """
    before = handle.tell()

    def number(at: int, width: int) -> int:
        handle.seek(start + at)
        return int.from_bytes(handle.read(width), "little")

    flags = number(4, 1)
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    declared = number(at, width) + (256 if width == 2 else 0) if width else None
    at += width
    for _ in range(_ZSTD_BLOCKS + (declared or 0) // _ZSTD_BLOCK):
        if at + 3 > length:  # beyond the chunk
            whole = False
            break
        header = number(at, 3)
        at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # a repeated byte is stored once
        if header & 1:  # the last block, and perhaps a checksum
            whole = at + (4 if flags & 4 else 0) == length
            break
    else:
        whole = False
    handle.seek(before)
    return declared if whole else None


def check_zarr_array(path: Path, array: Any, size: int) -> int:
    """Refuse an array that cannot be read safely; return the bytes of memory it takes, `size` for its entries."""
    chunks = _describe_chunks(path, array)
    name = f"the array {array.path or 'inside'!r}"
    count = math.prod(-(-n // max(1, c)) for n, c in zip(array.shape, array.chunks, strict=True))
    needed: int = size + count * _PER_CHUNK
    check_fits(path, max(needed, chunks.length * chunks.itemsize), name)
    files = [file for file in _files(Path(array.store.root) / array.path) if file.name not in _SETTINGS]
    missing = count // max(1, chunks.in_shard) - len(files)
    if missing > MISSING_CHUNKS:
        raise TableError(
            f"{path} lacks {missing} chunks of {name}, and at most {MISSING_CHUNKS} may be missing; save it with "
            "larger chunks"
        )
    needed += sum(map(chunks.check_file, files))
    check_fits(path, needed, name)
    return needed


def _describe_chunks(path: Path, array: Any) -> _Chunks:
    about = array.metadata.to_dict()
    codecs = about.get("codecs") or [*(about.get("filters") or []), about.get("compressor") or {"id": "bytes"}]
    sharding = codecs[0]["configuration"] if _codec_name(codecs[0]) == "sharding_indexed" else {}
    names = [_codec_name(codec) for codec in [*codecs, *sharding.get("codecs", ())]]
    unknown = [name for name in names[bool(sharding) :] if name not in _COMPRESSORS | _TEXT | _HARMLESS]
    index = [_codec_name(codec) for codec in sharding.get("index_codecs", ())]
    twice = sum(name in _COMPRESSORS for name in names) > 1 or (sharding and len(codecs) > 1)
    if unknown or twice or index not in ([], ["bytes", "crc32c"]):
        named = listing(unknown or [*names, *index], 10)
        raise TableError(f"{path}: an array is coded in a way that is not known to be safe ({named}); save it again")
    length, itemsize = math.prod(array.chunks), array.dtype.itemsize
    if not sharding:
        return _Chunks(path, names, length, itemsize)
    in_shard = math.prod(shard // inner for shard, inner in zip(array.shards, array.chunks, strict=True))
    return _Chunks(path, names, length, itemsize, in_shard, sharding.get("index_location") == "start")


def _codec_name(codec: Any) -> str:
    name = codec.get("id") or codec.get("name")
    return str(name).removeprefix("numcodecs.")
