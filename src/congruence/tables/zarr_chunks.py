"""What a zarr array would take to read, found out without decoding it.

zarr trusts its chunks: it would run any codec that the metadata names, decompress a chunk to whatever size it says,
and reserve room for as many texts as its first four bytes count. Here every chunk has to say the size first.
"""

from __future__ import annotations

import math
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import listing
from congruence.errors import TableError
from congruence.tables.memory import check_fits, max_bytes

COMPRESSORS = {"blosc", "lz4", "zstd", "gzip", "zlib"}
TEXT = {"vlen-utf8", "vlen-bytes"}
HARMLESS = {"bytes", "transpose", "crc32c", "shuffle", "delta", "fixedscaleoffset", "bitround"}
NOT_CHUNKS = {".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json"}
SLACK = 4096  # bytes that headers and checksums may add to a chunk
PER_CHUNK = 1024  # bytes that zarr takes to keep track of one chunk
DEFLATE_RATIO = 1032  # the most that gzip and zlib can expand
AT_ONCE = 16  # chunks that zarr decodes at the same time, roughly


@dataclass(frozen=True)
class Layout:
    """How the pieces of an array are stored: the chunks, or the chunks inside of shards."""

    codecs: list[str]
    shape: tuple[int, ...]  # of one piece
    itemsize: int
    in_shard: int = 0  # pieces in one file; 0 where each has its own
    index_first: bool = False  # whether a shard begins with its index

    @property
    def compressor(self) -> str | None:
        """The codec that decides how large a piece becomes."""
        return next((name for name in self.codecs if name in COMPRESSORS), None)

    @property
    def is_text(self) -> bool:
        """Whether a piece is a number of texts, each of its own length."""
        return bool(TEXT & set(self.codecs))


def check_zarr_array(path: Path, array: Any, size: int) -> int:
    """Refuse an array that cannot be read safely; return the bytes of memory it takes, `size` of them as a whole."""
    layout = _layout(path, array)
    pieces = math.prod(-(-n // max(1, c)) for n, c in zip(array.shape, array.chunks, strict=True))
    needed: int = size + pieces * PER_CHUNK
    check_fits(path, max(needed, math.prod(layout.shape) * layout.itemsize), f"the array {array.path or 'inside'!r}")
    for file in _files(Path(array.store.root) / array.path):
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise TableError(f"{path} is no plain store: {file} is not a regular file")
        with open(file, "rb") as handle:
            for start, length in _pieces(path, handle, layout):
                handle.seek(start)
                needed += _check_piece(path, handle.read(length) if layout.is_text else handle, length, layout)
    check_fits(path, needed, f"the array {array.path or 'inside'!r}")
    return needed


def _layout(path: Path, array: Any) -> Layout:
    about = array.metadata.to_dict()
    codecs = about.get("codecs") or [*(about.get("filters") or []), about.get("compressor") or {"id": "bytes"}]
    sharding = codecs[0]["configuration"] if _name(codecs[0]) == "sharding_indexed" else {}
    names = [_name(codec) for codec in [*codecs, *sharding.get("codecs", ())]]
    unknown = [name for name in names[bool(sharding) :] if name not in COMPRESSORS | TEXT | HARMLESS]
    index = [_name(codec) for codec in sharding.get("index_codecs", ())]
    twice = sum(name in COMPRESSORS for name in names) > 1 or (sharding and len(codecs) > 1)
    if unknown or twice or index not in ([], ["bytes", "crc32c"]):
        named = listing(unknown or [*names, *index], 10)
        raise TableError(f"{path}: an array is coded in a way that is not known to be safe ({named}); save it anew")
    shape = tuple(array.chunks)
    if not sharding:
        return Layout(names, shape, array.dtype.itemsize)
    in_shard = math.prod(shard // inner for shard, inner in zip(array.shards, shape, strict=True))
    return Layout(names, shape, array.dtype.itemsize, in_shard, sharding.get("index_location") == "start")


def _name(codec: Any) -> str:
    name = codec.get("id") or codec.get("name")
    return str(name).removeprefix("numcodecs.")


def _files(folder: Path) -> Iterator[str]:
    """Yield the chunk files of an array, whose names may be in folders of their own."""
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name not in NOT_CHUNKS)


def _pieces(path: Path, handle: Any, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield where each piece in a file starts, and its length."""
    size = os.fstat(handle.fileno()).st_size
    if not layout.in_shard:
        yield 0, size
        return
    length = 16 * layout.in_shard + 4  # start and length of each piece, and a checksum
    if length > size:
        raise TableError(f"{path} is damaged: a shard is shorter than its index")
    handle.seek(0 if layout.index_first else size - length)
    index = handle.read(length)
    for at in range(0, length - 4, 16):
        start, extent = int.from_bytes(index[at : at + 8], "little"), int.from_bytes(index[at + 8 : at + 16], "little")
        if start + extent <= size:  # a piece that is not there has neither
            yield start, extent


def _check_piece(path: Path, piece: Any, length: int, layout: Layout) -> int:
    """Refuse a piece that becomes larger than it may; return the bytes of text in it, which only it knows."""
    most = max_bytes() if layout.is_text else 8 * math.prod(layout.shape) * layout.itemsize + SLACK
    head = piece[:18] if isinstance(piece, bytes) else piece.read(18)
    if layout.compressor == "blosc" and int.from_bytes(head[12:16], "little") != length:
        # blosc believes what its header says about its own length, and reads beyond the end
        raise TableError(f"{path} is damaged: a chunk of {length} bytes says that it has another length")
    size = _unpacked_size(head, piece, length, layout.compressor, most)
    if size > most:
        raise TableError(f"{path} is damaged: a chunk unpacks to {size} bytes or more, where {most} would do")
    if not layout.is_text:
        return 0
    content = piece
    if layout.compressor is not None:
        import numcodecs

        content = numcodecs.get_codec({"id": layout.compressor}).decode(piece)
    count = int.from_bytes(bytes(content[:4]), "little")
    if count != math.prod(layout.shape):
        raise TableError(f"{path} is damaged: a chunk of {math.prod(layout.shape)} texts says that it holds {count}")
    return size


def _unpacked_size(head: bytes, piece: Any, length: int, compressor: str | None, most: int) -> int:
    """Return the size a piece says it has, or count it where it does not say, up to a little beyond `most`."""
    if compressor is None:
        return length
    if compressor in ("blosc", "lz4"):
        return int.from_bytes(head[4:8] if compressor == "blosc" else head[:4], "little")
    said = _zstd_size(head) if compressor == "zstd" else None
    if said is not None:
        return said
    if compressor != "zstd" and length * DEFLATE_RATIO * AT_ONCE < max_bytes():
        return 0
    return _count(head + (piece[18:] if isinstance(piece, bytes) else piece.read(length - 18)), compressor, most)


def _zstd_size(head: bytes) -> int | None:
    """Return the content size in the header of a zstd frame (RFC 8878, 3.1.1.1), if it is given."""
    if len(head) < 5:
        return None
    flags = head[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0) if width else None


def _count(data: bytes, compressor: str, most: int) -> int:
    if compressor == "zlib":
        return len(zlib.decompressobj().decompress(data, most + 1))
    import pyarrow as pa

    size = 0
    with pa.CompressedInputStream(pa.BufferReader(data), compressor) as stream:
        while size <= most and (part := stream.read(2**20)):
            size += len(part)
    return size
