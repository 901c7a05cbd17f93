"""Finished parts of a long computation, stored on disk with checksums so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from congruence._saved import read_tensors, write_tensors
from congruence.arrays import Array
from congruence.errors import InputError
from congruence.files import append_line, describe_file, write_text
from congruence.guards import is_file, read_json_lines

Arrays = dict[str, Array]
RECORD = "_record.jsonl"  # in a folder of parts; readers of tables skip the name
_HEADER = {"kind": "congruence record", "version": 1}
_FILE = {"part": str, "bytes": int, "sha256": str | None, "modified": str | None}  # the types of a line


@dataclass(frozen=True)
class Parts:
    """A folder of finished parts. A part is a set of named arrays, written once all of them are computed.

    Each file carries a digest of the settings it was computed with, and a checksum; a part with other settings, or that
    is damaged, is computed again.
    """

    folder: Path
    settings: Mapping[str, Any]
    kept: bool = True  # whether existing files may be used
    prefix: str = ""  # of the names of files, for parts of one computation among several

    def get(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """Return the arrays of the part `name`: from disk if they are stored, else from `compute`."""
        stored = self.find(name)
        return self.put(name, compute()) if stored is None else stored

    def find(self, name: str) -> Arrays | None:
        """The arrays of the part `name`, or None if they are absent or may not be used."""
        if not self.kept:
            return None
        try:
            arrays, about = read_tensors(self._path(name), "a part")
        except InputError:  # absent or damaged
            return None
        return arrays if about.get("settings") == self._digest() else None

    def put(self, name: str, arrays: Mapping[str, Any]) -> Arrays:
        """Write the arrays of the part `name`."""
        whole = {key: np.asarray(value) for key, value in arrays.items()}
        write_tensors(self._path(name), whole, {"settings": self._digest()})
        return whole

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.prefix}{name}.safetensors"

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()


@dataclass
class Manifest:
    """The finished files of a folder: a line of JSON with the settings, then one for each file with its checksum.

    A last line that was truncated because the process was killed is ignored.
    """

    folder: Path
    settings: Mapping[str, Any]
    types: Mapping[str, Any] = field(default_factory=dict)  # of further entries of a line
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, **types: Any) -> Manifest | None:
        """The record of a folder, None if there is none; one that congruence did not write is refused."""
        path = folder / RECORD
        if not is_file(path):
            return None
        header, *entries = read_json_lines(path, "a record") or [{}]
        settings = header.pop("settings", None) if isinstance(header, dict) else None
        record = cls(folder, settings or {}, types)
        if header != _HEADER or not isinstance(settings, dict) or not all(map(record._is_entry, entries)):
            raise InputError(f"{path} is damaged, or of another version; remove {folder} to start again")
        record.parts |= {entry["part"]: entry for entry in entries}
        return record

    def save(self) -> None:
        """Write the whole record."""
        lines = [{**_HEADER, "settings": self.settings}, *self.parts.values()]
        write_text(self.folder / RECORD, "".join(json.dumps(line) + "\n" for line in lines))

    def add(self, name: str, **more: Any) -> None:
        """Record that a file is complete."""
        self.parts[name] = {**self._describe(name), **more}
        append_line(self.folder / RECORD, json.dumps(self.parts[name]))

    def holds(self, name: str) -> bool:
        """Whether a file was completed and is unchanged."""
        try:
            return self._describe(name).items() <= self.parts.get(name, {}).items()
        except InputError:  # it is not there
            return False

    def _describe(self, name: str) -> dict[str, Any]:
        about = describe_file(self.folder / name)
        return {"part": name, "bytes": about.bytes, "sha256": about.sha256, "modified": about.modified}

    def _is_entry(self, entry: Any) -> bool:
        types = {**_FILE, **self.types}
        if not isinstance(entry, dict) or entry.keys() != types.keys():
            return False
        typed = all(isinstance(entry[name], kind) for name, kind in types.items())
        return typed and not Path(entry["part"]).is_absolute() and ".." not in Path(entry["part"]).parts


def record_files(folder: Path, names: Iterable[str], texts: Mapping[str, str] = MappingProxyType({})) -> None:
    """Record the checksums of those files of a folder that exist, and of texts to be written, for `changed_files`."""
    record = Manifest(folder, {})
    record.parts |= {name: record._describe(name) for name in names if (folder / name).exists()}
    for name, content in ((name, text.encode()) for name, text in texts.items()):
        digest = hashlib.sha256(content).hexdigest()
        record.parts[name] = {"part": name, "bytes": len(content), "sha256": digest, "modified": None}
    record.save()


def changed_files(folder: Path) -> list[str]:
    """The names of files of a folder that are not as `record_files` recorded them; none without a record."""
    record = Manifest.read(folder)
    return [] if record is None else [name for name in record.parts if not record.holds(name)]
