"""Finished parts of a long computation, stored on disk so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.files import replacing
from congruence.guards import open_tensors

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Parts:
    """A folder of finished parts. A part is a set of named arrays, written once all of them are computed.

    Each file carries a digest of the settings it was computed with; a part with other settings is computed again.
    """

    folder: Path
    settings: Mapping[str, Any]
    kept: bool = True  # whether existing files may be used

    def get(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """Return the arrays of the part `name`: from disk if they are stored, else from `compute`."""
        stored = self.find(name)
        return self.put(name, compute()) if stored is None else stored

    def find(self, name: str) -> Arrays | None:
        """The arrays of the part `name`, or None if they are absent or may not be used."""
        return self._read(self.folder / f"{name}.safetensors") if self.kept else None

    def put(self, name: str, arrays: Mapping[str, Any]) -> Arrays:
        """Write the arrays of the part `name`."""
        whole = {key: np.asarray(value) for key, value in arrays.items()}
        self._write(self.folder / f"{name}.safetensors", whole)
        return whole

    def _read(self, path: Path) -> Arrays | None:
        try:
            with open_tensors(path, "a part") as file:
                if (file.metadata() or {}).get("settings") != self._digest():
                    return None
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, it is not a mapping
        except InputError:  # absent or damaged: computed again
            return None

    def _write(self, path: Path, arrays: Arrays) -> None:
        from safetensors.numpy import save_file

        whole = {key: np.ascontiguousarray(value).reshape(value.shape) for key, value in arrays.items()}
        with replacing(path) as temporary:
            save_file(whole, temporary, metadata={"settings": self._digest()})

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
