"""Arrow IPC files and streams: the sizes that a file declares are checked before arrow reserves them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from congruence.memory import check_fits


def open_ipc(path: Path) -> Any:
    """Read an Arrow IPC file (which a feather file is) or stream as an arrow table."""
    import pyarrow as pa

    source, again = (pa.memory_map(os.fspath(path)) for _ in range(2))
    is_file = source.read(6) == b"ARROW1"
    messages = _file_messages(source) if is_file else pa.ipc.MessageReader.open_stream(again)
    check_fits(path, sum(map(_unpacked_bytes, messages)))
    source.seek(0)
    table = (pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)).read_all()
    table.validate(full=True)  # offsets are used unchecked below, and a wrong one would crash the process
    return table


def _file_messages(source: Any) -> Iterator[Any]:
    """Yield the messages that the footer of an Arrow file points to, which are those that are read."""
    import pyarrow as pa

    end = source.size() - 10  # the length of the footer, and ARROW1
    source.seek(end)
    length = int.from_bytes(source.read(4), "little")
    source.seek(end - length)
    footer = _Flatbuffer(source.read(length))
    for field in (2, 3):  # dictionaries, record batches
        for at in footer.structs(footer.root, field, 24):
            source.seek(footer.integer(at, 8))
            yield pa.ipc.read_message(source)


def _unpacked_bytes(message: Any) -> int:
    """Return the size that the compressed buffers of an Arrow message declare.

    Arrow reserves any declared size, and pyarrow does not report it. It is the first eight bytes of each buffer; where
    the buffers are is in a flatbuffer (Message.fbs: RecordBatch and DictionaryBatch).
    """
    if message.type not in ("dictionary", "record batch"):
        return 0
    flat = _Flatbuffer(message.metadata.to_pybytes())
    batch = flat.follow(flat.root, 2)
    if message.type == "dictionary":
        batch = flat.follow(batch, 1)
    total = 0
    for at in flat.structs(batch, 2, 16) if flat.place(batch, 3) else ():  # buffers, if compressed
        offset, length = flat.integer(at, 8), flat.integer(at + 8, 8)
        if length > 0:  # a declared size of -1 marks a buffer that is not compressed
            total += max(0, int.from_bytes(message.body.slice(offset, 8).to_pybytes(), "little", signed=True))
    return total


class _Flatbuffer:
    """A flatbuffer whose tables list the places of their fields, in the order of the schema."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = self.integer(0, 4)

    def integer(self, at: int, width: int) -> int:
        """Return the signed integer at a place."""
        if not 0 <= at <= len(self.data) - width:
            raise ValueError("its metadata points outside of itself")
        return int.from_bytes(self.data[at : at + width], "little", signed=True)

    def place(self, table: int, field: int) -> int:
        """Return where a field of a table is, or 0 if it is absent."""
        fields, at = table - self.integer(table, 4), 4 + 2 * field
        offset = self.integer(fields + at, 2) if at < self.integer(fields, 2) else 0
        return table + offset if offset else 0

    def follow(self, table: int, field: int) -> int:
        """Return where the table or vector is that a field points to."""
        place = self.place(table, field)
        if not place:
            raise ValueError("its metadata is not complete")
        return place + self.integer(place, 4)

    def structs(self, table: int, field: int, size: int) -> range:
        """Return where the elements of a vector of structs are."""
        if not self.place(table, field):
            return range(0)
        vector = self.follow(table, field)
        return range(vector + 4, vector + 4 + size * self.integer(vector, 4), size)
