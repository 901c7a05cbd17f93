"""What the compressed buffers of an Arrow file unpack to, read from the file before Arrow believes it.

Arrow reserves whatever length stands before a compressed buffer. The lengths lie in the bodies of the messages, and
where, in their metadata: flatbuffers, of which the few fields needed are followed here by hand
(https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message, Message.fbs and File.fbs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DICTIONARY, BATCH = 2, 3  # kinds of message
MAGIC = 10  # bytes at the end of a file: the length of the footer and ARROW1


def unpacked_bytes(source: Any, *, is_file: bool) -> int:
    """Return the bytes that all compressed buffers of a file or a stream say they unpack to."""
    return sum(_unpacked(message) for message in (_blocks(source) if is_file else _messages(source)))


def _messages(source: Any) -> Iterator[Any]:
    import pyarrow as pa

    source.seek(0)
    yield from pa.ipc.MessageReader.open_stream(source)


def _blocks(source: Any) -> Iterator[Any]:
    """Yield the messages that the footer of a file points to, which are those that are read."""
    import pyarrow as pa

    size = source.size()
    source.seek(size - MAGIC)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - MAGIC - length)
    footer = Flat(source.read(length))
    for field in (2, 3):  # dictionaries, record batches
        start, count = footer.vector(field)
        for at in range(start, start + 24 * count, 24):
            source.seek(footer.integer(at, 8))
            yield pa.ipc.read_message(source)


def _unpacked(message: Any) -> int:
    flat = Flat(message.metadata.to_pybytes())
    kind = flat.number(1, 1)
    if kind not in (DICTIONARY, BATCH):
        return 0
    batch = flat.table(2)
    if kind == DICTIONARY:
        batch = batch.table(1)
    if not batch.place(3):  # no compression
        return 0
    start, count = batch.vector(2)
    places = [(batch.integer(at, 8), batch.integer(at + 8, 8)) for at in range(start, start + 16 * count, 16)]
    return sum(_length(message.body, offset, stored) for offset, stored in places)


def _length(body: Any, offset: int, stored: int) -> int:
    """Return the length before a compressed buffer; -1 says that it is not compressed after all."""
    if stored <= 0:
        return 0
    return max(0, int.from_bytes(body.slice(offset, 8).to_pybytes(), "little", signed=True))


class Flat:
    """A table in a flatbuffer: fields found through a table of their places, in the order of the schema."""

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self.data = data
        self.at = self.integer(0, 4) if at is None else at
        self.fields = self.at - self.integer(self.at, 4)

    def integer(self, at: int, width: int) -> int:
        """Return the signed integer at a place."""
        if not 0 <= at <= len(self.data) - width:
            raise ValueError("its metadata points outside of itself")
        return int.from_bytes(self.data[at : at + width], "little", signed=True)

    def place(self, field: int) -> int:
        """Return where a field lies, or 0 if it is left out."""
        at = 4 + 2 * field
        offset = self.integer(self.fields + at, 2) if at < self.integer(self.fields, 2) else 0
        return self.at + offset if offset else 0

    def number(self, field: int, width: int) -> int:
        """Return a field that is a number, 0 if it is left out."""
        place = self.place(field)
        return self.integer(place, width) if place else 0

    def table(self, field: int) -> Flat:
        """Return a field that is a table."""
        place = self.place(field)
        if not place:
            raise ValueError("its metadata is not complete")
        return Flat(self.data, place + self.integer(place, 4))

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the first element of a vector of structs lies, and how many there are."""
        place = self.place(field)
        if not place:
            return 0, 0
        start = place + self.integer(place, 4)
        return start + 4, self.integer(start, 4)
