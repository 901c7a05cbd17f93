"""Whether a folder of a transformers model can be opened without running or unpickling anything that lies in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from congruence.arrays import listing
from congruence.errors import InputError
from congruence.tables.access import first_sentence

CONFIG, TOKENIZER, PIXELS = "config.json", "tokenizer.json", "preprocessor_config.json"
INDEX = "model.safetensors.index.json"
CONFIG_BYTES = 2**22  # of the files that say something about the model; a vocabulary may be larger
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


def check_model_folder(folder: Path) -> dict[str, Any]:
    """Return the config of a model folder; one that asks to run code or has no safetensors weights is refused."""
    config = check_settings(folder)
    check_weights(folder)
    return config


def check_settings(folder: Path) -> dict[str, Any]:
    """Return the config of a model folder; one that asks to run code, or is only an adapter, is refused."""
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder} has no {CONFIG}; a folder that save_pretrained of transformers wrote would do")
    for path in sorted(folder.glob("*config.json")):
        if "auto_map" in read_settings(path):
            raise InputError(f"{path} asks to run code of the model's own (auto_map), which is never done")
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} holds an adapter of another model; merge them and save the whole model")
    return read_settings(folder / CONFIG)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a small JSON file that holds names and values."""
    try:
        if path.stat().st_size > CONFIG_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes, too many for settings")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged or no JSON: {first_sentence(error)}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold names and values, but holds a {type(found).__name__}")
    return found


def check_weights(folder: Path) -> None:
    """Refuse a folder without safetensors weights, or whose index names files elsewhere or that are not there."""
    whole, index = folder / "model.safetensors", folder / INDEX
    if whole.is_file():
        return
    if not index.is_file():
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)
        has = f", but {listing(pickled)}, which may run code when unpickled" if pickled else ""
        raise InputError(f"{folder} has no model.safetensors{has}; save the model with safe_serialization=True")
    shards = read_settings(index).get("weight_map")
    names = set(shards.values()) if isinstance(shards, dict) and all(map(_is_text, shards.values())) else set()
    odd = sorted(name for name in names if Path(name).name != name or not name.endswith(".safetensors"))
    if odd or not names:
        raise InputError(f"{index} must name .safetensors files of its own folder, not {listing(odd) or 'none'}")
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        raise InputError(f"{folder} lacks {listing(missing)}, which its index names")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
