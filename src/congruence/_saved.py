"""Saved files: safetensors with one JSON header, which names the kind of the file and its schema version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.files import replacing
from congruence.guards import open_tensors, parse_json, reading
from congruence.result import SCHEMA_VERSION

_KEY, _KEY_0_1_0, _CHECKSUM = "congruence", "about", "sha256"  # of the header, in checkpoints of 0.1.0, and in it
_LOADERS = {
    "map": ("congruence.maps.groups", "load_map"),
    "translator": ("congruence.translation.translator", "load_translator"),
    "ica": ("congruence.ica.estimator", "load_ica"),
    "baseline": ("congruence.align._baseline", "load_baseline"),
}


def load(path: str | Path) -> Any:
    """Load a file written by `Map.save`, `Translator.save`, `ICA.save` or `save_baseline`; its header names the kind.

    Files written by version 0.1.0 can be loaded. A file loads on any machine, and nothing in it is executed.

    Parameters
    ----------
    path : str or Path
        A .safetensors file.

    Returns
    -------
    Map, Translator, ICA or Baseline
    """
    header, _ = read_saved(path)
    kind, about = header["kind"], header.get("about")
    if kind == "map" and isinstance(about, dict) and {"d_new", "d_old"} <= about.keys():
        kind = "translator"  # 0.1.0 saved translators as maps
    if kind not in _LOADERS:
        raise InputError(f"{path} holds {kind!r}, but only files of the kinds {', '.join(_LOADERS)} can be loaded")
    module, name = _LOADERS[kind]
    with reading(path, f"a file of the kind {kind!r}"):
        return getattr(import_module(module), name)(path)


def write_saved(
    path: str | Path,
    kind: str,
    header: Mapping[str, Any],
    tensors: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays, a header and further metadata as one file; an interrupted write leaves no partial file."""
    write_tensors(path, tensors, {"kind": kind, "schema_version": SCHEMA_VERSION, **header}, metadata)


def write_tensors(
    path: str | Path, arrays: Mapping[str, Any], header: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays or tensors, a header of plain values and further texts as one file with a checksum."""
    from safetensors.numpy import save_file

    whole = {name: np.asarray(to_numpy(array), order="C") for name, array in arrays.items()}
    plain = json.loads(json.dumps(header))
    text = json.dumps({**plain, _CHECKSUM: _checksum(whole, plain, metadata or {})})
    with replacing(path) as temporary:
        save_file(whole, temporary, metadata={_KEY: text, **(metadata or {})})


def read_tensors(path: str | Path, what: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read the arrays and the header of a safetensors file; refuse one that was changed after `write_tensors`."""
    with open_tensors(path, what) as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a mapping
        # "V" are those of ml_dtypes, where it is loaded; the imaginary parts of "c" would be lost later
        if odd := [array.dtype.name for array in arrays.values() if array.dtype.kind in "Vc"]:
            raise TypeError(f"data type {odd[0]!r} not understood")
        metadata = file.metadata() or {}
    header = parse_json(metadata.pop(_KEY, None) or metadata.get(_KEY_0_1_0) or "{}", path, what)
    stored = header.pop(_CHECKSUM, None) if isinstance(header, dict) else ""
    if stored is not None and stored != _checksum(arrays, header, metadata):
        raise InputError(f"cannot read {what} from {path}, it is damaged: its checksum differs")
    return arrays, header


def _checksum(arrays: Mapping[str, Array], header: Any, metadata: Mapping[str, str]) -> str:
    about = {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps([about, header, metadata], sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def is_saved(path: str | Path, kind: str) -> bool:
    """Whether a file is a safetensors file of this kind; a file that cannot be read is not."""
    try:
        return bool(read_saved(path)[0]["kind"] == kind)
    except InputError:
        return False


def read_saved(
    path: str | Path,
    names: tuple[str, ...] = (),
    *,
    kinds: tuple[str, ...] = (),
    what: str = "a file",
    optional: tuple[str, ...] = (),
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the named arrays of a saved file of one of these kinds; nothing in it is executed.

    The optional arrays are returned if the file has them.

    Files of version 0.1.0 have no schema version and are accepted; those of a later schema are refused.
    """
    with open_tensors(path, what) as file:
        header = parse_json((file.metadata() or {}).get(_KEY, "{}"), path, what)
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise InputError(f"{path} is a safetensors file, but not {what} saved by congruence")
    if kinds and header["kind"] not in kinds:
        raise InputError(f"{path} holds {header['kind']!r}, not {what}; open it with congruence.load")
    written = header.get("schema_version", SCHEMA_VERSION)
    if type(written) is not int or not 1 <= written <= SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {written!r}, but this version of congruence reads {SCHEMA_VERSION} and "
            "below: upgrade congruence, or save the file again"
        )
    arrays = read_tensors(path, what)[0] if names else {}  # a table may be large
    with reading(path, what):
        return header, {name: arrays[name] for name in (*names, *(name for name in optional if name in arrays))}
