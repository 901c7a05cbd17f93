"""Activations on their way to a table: parts of some batches each, written whole, from which a run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import finite_rows
from congruence.errors import InputError
from congruence.files import write_text
from congruence.tables import Stream, Table, stream_parts, write_stream, write_table

SETTINGS = "settings.json"


@dataclass(frozen=True)
class Parts:
    """A folder beside the output: a file for every layer and part, called after the batch at which the part ends."""

    folder: Path
    layers: tuple[str, ...]

    def open(self, settings: Mapping[str, Any]) -> int:
        """Return the batch to go on from: 0 unless parts of the very same settings are there."""
        text = json.dumps(settings, indent=1, sort_keys=True)
        record = self.folder / SETTINGS
        foreign = self.folder.is_dir() and any(self.folder.iterdir()) and not record.is_file()
        if self.folder.is_symlink() or foreign or (self.folder.exists() and not self.folder.is_dir()):
            raise InputError(f"{self.folder} is where parts would go, but something else is there; move it away")
        if not record.is_file() or record.read_text(encoding="utf-8") != text:
            self.remove()
            self.folder.mkdir()
            write_text(record, text)
        return max(self._ends(), default=0)

    @contextlib.contextmanager
    def left_only_with_rows(self) -> Iterator[None]:
        """Where the block fails before the first part is written, leave no folder behind."""
        try:
            yield
        except BaseException:
            if not self._ends():
                self.remove()
            raise

    def put(self, end: int, tables: Sequence[Table]) -> None:
        """Write a part that ends before the batch `end`, a table for each layer."""
        for place, table in enumerate(tables):
            write_table(table, self._file(end, place))

    def join(self, layer: str, out: Path) -> tuple[int, int, int]:
        """Write the rows of a layer as one table, a chunk at a time; return its shape and how many are not finite."""
        place, widths, odd = self.layers.index(layer), set(), []
        stream = stream_parts([self._file(end, place) for end in self._ends()])

        def chunks() -> Iterator[Table]:
            for table in stream.chunks:
                widths.add(table.d)
                odd.append(int((~finite_rows(table.values)).sum()))
                yield table

        write_stream(Stream(stream.n, chunks()), out)
        return stream.n, max(widths), sum(odd)

    def remove(self) -> None:
        """Remove the folder with all parts."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def _file(self, end: int, place: int) -> Path:
        return self.folder / f"{end:09d}-{place}.parquet"

    def _ends(self) -> list[int]:
        """The ends of parts that all layers have: the layers of a part are written one after the other."""
        ends = sorted(int(path.name[:9]) for path in self.folder.glob("*-0.parquet"))
        return [end for end in ends if all(self._file(end, place).is_file() for place in range(len(self.layers)))]


def fingerprint(model: Any) -> str:
    """Return a short text that tells the weights of a model from all others."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
