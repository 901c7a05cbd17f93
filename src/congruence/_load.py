"""`load`: open any saved file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from congruence._saved import read_saved
from congruence.errors import InputError

_LOADERS = {
    "map": ("congruence.maps.groups", "load_map"),
    "translator": ("congruence.translation.translator", "load_translator"),
    "ica": ("congruence.ica.estimator", "load_ica"),
}


def load(path: str | Path) -> Any:
    """Open a file written by `Map.save`, `Translator.save` or `ICA.save`; its header says which.

    Files written by version 0.1.0 can be opened. A file loads on any machine, and nothing in it is executed.

    Parameters
    ----------
    path : str or Path
        A .safetensors file.

    Returns
    -------
    Map, Translator or ICA
    """
    header, _ = read_saved(path)
    kind, about = header["kind"], header.get("about")
    if kind == "map" and isinstance(about, dict) and {"d_new", "d_old"} <= about.keys():
        kind = "translator"  # 0.1.0 saved translators as maps
    if kind not in _LOADERS:
        raise InputError(f"{path} holds {kind!r}, but only files of the kinds {', '.join(_LOADERS)} can be loaded")
    module, name = _LOADERS[kind]
    return getattr(import_module(module), name)(path)
