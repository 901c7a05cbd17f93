"""Parts of a recipe that were already computed, kept on disk so that an interrupted run can be resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.files import replacing

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Parts:
    """The folder of the parts of one recipe. A part is some named arrays, written when all of them are there.

    Each file carries a digest of the settings it was computed with; a part of other settings is computed anew.
    """

    folder: Path
    settings: Mapping[str, Any]
    kept: bool = True  # whether what is there may be used

    def get(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """Return the arrays of the part `name`, from disk where they are, or else from `compute`."""
        found = self.find(name)
        return self.put(name, compute()) if found is None else found

    def find(self, name: str) -> Arrays | None:
        """The arrays of the part `name`, None where they are not there or may not be used."""
        return self._read(self.folder / f"{name}.safetensors") if self.kept else None

    def put(self, name: str, arrays: Mapping[str, Any]) -> Arrays:
        """Write the arrays of the part `name`."""
        whole = {key: np.asarray(value) for key, value in arrays.items()}
        self._write(self.folder / f"{name}.safetensors", whole)
        return whole

    def _read(self, path: Path) -> Arrays | None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                if (file.metadata() or {}).get("settings") != self._digest():
                    return None
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, it is not a mapping
        except (OSError, SafetensorError):  # absent, or damaged: it is computed anew
            return None

    def _write(self, path: Path, arrays: Arrays) -> None:
        from safetensors.numpy import save_file

        whole = {key: np.ascontiguousarray(value).reshape(value.shape) for key, value in arrays.items()}
        with replacing(path) as temporary:
            save_file(whole, temporary, metadata={"settings": self._digest()})

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
