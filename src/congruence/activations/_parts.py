"""Parts of an extraction: files of several batches each, written atomically, from which it can resume."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import finite_rows
from congruence.errors import InputError
from congruence.guards import is_file
from congruence.parts import RECORD, Manifest
from congruence.tables import Stream, Table, read_table, stream_parts, write_stream, write_table

SAME = 0.01  # relative difference of rows that fast kernels may make
_NAME = re.compile(r"(\d{9})-(\d{9})-\d+\.parquet")


@dataclass
class PartFolder:
    """A folder next to the output with one file per layer and part, named by its first and last batch."""

    folder: Path
    layers: tuple[str, ...]
    ends: list[int] = field(default_factory=lambda: [0])  # 0, and the batches at which finished parts end
    record: Manifest = field(init=False)

    def open(self, settings: Mapping[str, Any]) -> int:
        """Return the batch to resume from: 0 unless unchanged parts with the same settings exist."""
        known = is_file(self.folder / RECORD) or not self.folder.is_dir()
        # A process that was killed while it removed the folder may have left parts without their record.
        names = [] if known else [path.name for path in self.folder.iterdir()]
        foreign = any(name[0] != "." and not _NAME.fullmatch(name) for name in names)
        if self.folder.is_symlink() or foreign or (self.folder.exists() and not self.folder.is_dir()):
            raise InputError(f"{self.folder} is needed for temporary parts, but has other contents; move it")
        with contextlib.suppress(InputError):  # a damaged record
            record = Manifest.read(self.folder)
            if record is not None and record.settings == json.loads(json.dumps(settings)):
                record.parts = {name: one for name, one in record.parts.items() if record.holds(name)}
                self._follow(record)
                return self.ends[-1]
        self.remove()
        self.folder.mkdir()
        self._follow(Manifest(self.folder, settings))
        return 0

    def _follow(self, record: Manifest) -> None:
        """Keep the parts of a record that follow each other, and remove others."""
        after = {int(found[1]): int(found[2]) for name in record.parts if (found := _NAME.fullmatch(name))}
        ends = [0]
        while (end := after.get(ends[-1], 0)) > ends[-1] and record.parts.keys() >= {*self._files(ends[-1], end)}:
            ends.append(end)
        self.record, self.ends = record, ends
        kept = {name for start, end in pairwise(ends) for name in self._files(start, end)}
        for path in self.folder.glob("*.parquet"):
            if path.name not in kept:
                path.unlink()
        record.parts = {name: record.parts[name] for name in sorted(kept)}
        record.save()

    def begin_with(self, tables: Sequence[Table]) -> bool:
        """Whether the first part begins with the rows of these tables, one per layer."""
        for name, table in zip(self._files(0, self.ends[1]), tables, strict=True):
            both, n = (read_table(self.folder / name), table), table.n
            old, new = (np.nan_to_num(np.asarray(one.values[:n], np.float64)) for one in both)
            texts = [
                str([np.asarray(column)[:n].tolist() for column in (one.ids, *one.metadata.values())]) for one in both
            ]
            if texts[0] != texts[1] or old.shape != new.shape or np.linalg.norm(old - new) > SAME * np.linalg.norm(new):
                return False
        return True

    @contextlib.contextmanager
    def removed_if_empty(self) -> Iterator[None]:
        """Remove the folder if the block fails before the first part is written."""
        try:
            yield
        except BaseException:
            if not self.ends[-1]:
                self.remove()
            raise

    def put(self, end: int, tables: Sequence[Table]) -> None:
        """Write the next part, one table per layer, which ends before the batch `end`."""
        for name, table in zip(self._files(self.ends[-1], end), tables, strict=True):
            write_table(table, self.folder / name)
            self.record.add(name)
        self.ends.append(end)

    def join(self, layer: str, out: Path) -> tuple[int, int, int]:
        """Write the rows of a layer as one table, in chunks; return its shape and the number of non-finite rows."""
        place, widths, not_finite = self.layers.index(layer), set(), []
        stream = stream_parts([self.folder / self._files(start, end)[place] for start, end in pairwise(self.ends)])

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

    def _files(self, start: int, end: int) -> list[str]:
        return [f"{start:09d}-{end:09d}-{place}.parquet" for place in range(len(self.layers))]


def fingerprint(model: Any) -> str:
    """Return a digest of the weights of a model."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
