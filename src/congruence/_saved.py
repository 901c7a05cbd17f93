"""Saved files: safetensors with one JSON header, which names the kind of the file and its schema version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.files import replacing
from congruence.result import SCHEMA_VERSION

_KEY = "congruence"


def write_saved(path: str | Path, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write arrays and a header as one file, whole or not at all."""
    from safetensors.numpy import save_file

    text = json.dumps({"kind": kind, "schema_version": SCHEMA_VERSION, **header})
    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, temporary, metadata={_KEY: text})


def read_saved(
    path: str | Path, names: tuple[str, ...] = (), *, kinds: tuple[str, ...] = (), what: str = "a file"
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the named arrays of a saved file of one of these kinds; nothing in it is executed.

    Files of 0.1.0 have no schema version and are read as they are; those of a later schema are refused.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
                raise InputError(f"{path} is a safetensors file, but not {what} saved by congruence")
            if kinds and header["kind"] not in kinds:
                raise InputError(f"{path} holds {header['kind']!r}, not {what}; open it with congruence.load")
            _check_schema(header, path)
            return header, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read {what} from {path}: {error}") from error


def _check_schema(header: Mapping[str, Any], path: str | Path) -> None:
    written = header.get("schema_version", SCHEMA_VERSION)
    if type(written) is not int or not 1 <= written <= SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {written!r}, but this version of congruence reads {SCHEMA_VERSION} and below: "
            "upgrade congruence, or save the file again"
        )
