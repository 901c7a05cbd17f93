"""Parts of an extraction: files of several batches each, written atomically, from which it can resume."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from congruence.arrays import finite_rows
from congruence.errors import InputError
from congruence.files import write_text
from congruence.tables import Stream, Table, stream_parts, write_stream, write_table

SETTINGS = "settings.json"


@dataclass(frozen=True)
class PartFolder:
    """A folder next to the output with one file per layer and part, named by its first and last batch."""

    folder: Path
    layers: tuple[str, ...]

    def open(self, settings: Mapping[str, Any]) -> int:
        """Return the batch to resume from: 0 unless parts with the same settings exist."""
        text = json.dumps(settings, indent=1, sort_keys=True)
        record = self.folder / SETTINGS
        foreign = self.folder.is_dir() and any(self.folder.iterdir()) and not record.is_file()
        if self.folder.is_symlink() or foreign or (self.folder.exists() and not self.folder.is_dir()):
            raise InputError(f"{self.folder} is needed for temporary parts, but has other contents; move it")
        if not record.is_file() or record.read_text(encoding="utf-8") != text:
            self.remove()
            self.folder.mkdir()
            write_text(record, text)
        for path in self.folder.glob("*.parquet"):
            try:
                stream_parts([path])
            except InputError:  # such as one truncated by a crash; it is computed again
                path.unlink()
        return self._ends()[-1]

    @contextlib.contextmanager
    def removed_if_empty(self) -> Iterator[None]:
        """Remove the folder if the block fails before the first part is written."""
        try:
            yield
        except BaseException:
            if not self._ends()[-1]:
                self.remove()
            raise

    def put(self, end: int, tables: Sequence[Table]) -> None:
        """Write the next part, one table per layer, which ends before the batch `end`."""
        start = self._ends()[-1]
        for place, table in enumerate(tables):
            write_table(table, self._file(start, end, place))

    def join(self, layer: str, out: Path) -> tuple[int, int, int]:
        """Write the rows of a layer as one table, in chunks; return its shape and the number of non-finite rows."""
        place, widths, not_finite = self.layers.index(layer), set(), []
        stream = stream_parts([self._file(start, end, place) for start, end in pairwise(self._ends())])

        def chunks() -> Iterator[Table]:
            for table in stream.chunks:
                widths.add(table.d)
                not_finite.append(int((~finite_rows(table.values)).sum()))
                yield table

        write_stream(Stream(stream.n, chunks()), out)
        return stream.n, max(widths), sum(not_finite)

    def remove(self) -> None:
        """Remove the folder with all parts."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def _file(self, start: int, end: int, place: int) -> Path:
        return self.folder / f"{start:09d}-{end:09d}-{place}.parquet"

    def _ends(self) -> list[int]:
        """0 and the ends of the consecutive parts that are complete.

        The layers of a part are written one after the other, so the last part may lack some.
        """
        names = (path.name.split("-") for path in self.folder.glob("[0-9]*-[0-9]*-0.parquet"))
        after = {int(start): int(end) for start, end, _ in names if start < end}
        ends = [0]
        while (end := after.get(ends[-1])) and all(
            self._file(ends[-1], end, place).is_file() for place in range(len(self.layers))
        ):
            ends.append(end)
        return ends


def fingerprint(model: Any) -> str:
    """Return a digest of the weights of a model."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
