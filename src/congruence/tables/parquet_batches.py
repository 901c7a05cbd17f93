"""The rows of a parquet file in blocks, none of which becomes larger than memory.

A text that repeats is stored once, so a file of a few kilobytes can hold a long one a million times. How long the
texts are is only known from those already read (the sizes in the metadata need not be true, and pyarrow ends the
process when it is asked for damaged ones). They are therefore read few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from congruence.tables.memory import check_fits

TEXT_ROWS = 256  # of text at a time: few enough for texts of many megabytes, and hardly slower than more


def parquet_batches(path: Path, file: Any, names: Sequence[str], rows: int) -> Iterator[Any]:
    """Yield blocks of `rows` rows of the named columns as arrow tables."""
    import pyarrow as pa

    told = file.schema_arrow  # made anew each time it is asked for, which takes long where there are many columns
    texts = [name for name in names if _is_text(told.field(name).type)]
    others = [name for name in names if name not in texts]
    if not texts:
        yield from file.iter_batches(rows, columns=others)
        return
    if not others:
        yield from file.iter_batches(TEXT_ROWS, columns=texts)
        return
    schema = pa.schema([told.field(name) for name in texts])
    pieces = iter(file.iter_batches(TEXT_ROWS, columns=texts))
    piece = next(pieces, None)
    for batch in file.iter_batches(rows, columns=others):
        block, size, missing = [], 0, batch.num_rows
        while missing and piece is not None:
            part = piece.slice(0, missing)
            block.append(part)
            size, missing = size + part.nbytes, missing - part.num_rows
            check_fits(path, size, "its text")
            piece = piece.slice(part.num_rows) if part.num_rows < piece.num_rows else next(pieces, None)
        text = pa.Table.from_batches(block, schema)
        whole = pa.Table.from_batches([batch])
        for name in texts:
            whole = whole.append_column(name, text.column(name))
        yield whole


def _is_text(type: Any) -> bool:
    import pyarrow.types as pt

    if pt.is_dictionary(type):
        return False  # read as codes and words
    return bool(pt.is_string(type) or pt.is_large_string(type) or pt.is_binary(type) or pt.is_large_binary(type))
