"""Folders of transformers models, local or from a hub at one commit: checked before anything is loaded.

Nothing in a folder is run or unpickled: weights must be safetensors, and settings that ask for code are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import listing
from congruence.checks import require
from congruence.errors import InputError
from congruence.guards import (
    MODEL_COUNT,
    MODEL_TENSORS,
    check_folder,
    first_sentence,
    is_file,
    read_json,
    read_object,
    reading,
)

CONFIG, TOKENIZER, PIXELS = "config.json", "tokenizer.json", "preprocessor_config.json"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
OWN_CODE = (None, "eager", "sdpa", "flex_attention", "grouped_mm", "batched_mm")  # of transformers and torch
HUB = "https://huggingface.co"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
COUNT = re.compile(r"(num|n)_(?!param|sample|step|token|train).*|.*layers?|\d+")  # parts of a model, also in lists
SETTINGS = (CONFIG, "generation_config.json", "adapter_config.json", PIXELS, INDEX)
MODULES, TEXT, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
KNOWN = ("Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize")  # modules of sentence-transformers
WORDS = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
WEIGHTS = ("model.safetensors", "model-*.safetensors", "[0-9]_*/model.safetensors")


@dataclass(frozen=True)
class HubModel:
    """A model of a hub at one commit, and the folder of the cache that holds it."""

    name: str
    commit: str
    folder: Path

    @property
    def title(self) -> str:
        """The name and the commit, which identify the weights."""
        return f"{self.name}@{self.commit}"


def is_hub_name(name: str) -> bool:
    """Whether a text can be the name of a model on a hub, ``owner/name``."""
    return NAME.fullmatch(name) is not None and ".." not in name and "--" not in name


def find_model(name: str, revision: str | None = None, *, cache: str | Path | None = None) -> HubModel:
    """Return a model of a hub, ``owner/name``, at one commit, downloaded if the cache does not hold it.

    The weights under a name can change, so `revision`, the 40 hex digits of a commit, is required unless the cache
    holds exactly one; branches and tags are refused. Settings are downloaded and checked before weights, of which only
    safetensors are downloaded. A model that is complete in the cache is used without network access. The cache is by
    default that of huggingface_hub (``HF_HUB_CACHE``).
    """
    require("huggingface_hub.constants", "a model of a hub", "extract")
    import huggingface_hub as hub

    if not is_hub_name(name):
        raise InputError(f"{name} is not the name of a model on a hub (owner/name)")
    root = Path(hub.constants.HF_HUB_CACHE if cache is None else cache).expanduser()
    home = root / f"models--{name.replace('/', '--')}"
    commit = _pinned(name, revision, home)
    folder = home / "snapshots" / commit
    missing = _missing(folder, root, home)
    if missing:
        _fetch(hub, HubModel(name, commit, folder), root, home, missing)
    return HubModel(name, commit, folder)


def _pinned(name: str, revision: str | None, home: Path) -> str:
    """Return the requested commit, or the only one that the cache holds."""
    if revision is not None and COMMIT.fullmatch(revision.lower()):
        return revision.lower()
    cached = sorted(path.name for path in home.glob("snapshots/*") if COMMIT.fullmatch(path.name) and path.is_dir())
    if revision is None and len(cached) == 1:
        return cached[0]
    reason = "since the weights under a name can change" if revision is None else f"not {revision!r}, which can change"
    known = f"; the cache holds {listing(cached, 4)}" if cached else ""
    raise InputError(
        f"{name} is not a folder; as the name of a model on a hub it needs --revision with the 40 hex digits of "
        f"a commit, {reason}: {HUB}/{name}/commits/main lists them{known}"
    )


def _missing(folder: Path, root: Path, home: Path) -> str:
    """What a snapshot in the cache is missing, "" if it is complete; one that asks to run code is refused."""
    if not folder.is_dir():
        return f"it is not in the cache {root}"
    check_folder(folder, root, home)
    if not (folder / CONFIG).is_file():
        return f"the cache has no {CONFIG} of it"
    check_settings(folder)
    try:
        _check_all_weights(folder)
    except InputError as error:
        return str(error)
    return ""


def _fetch(hub: Any, model: HubModel, root: Path, home: Path, missing: str) -> None:
    """Download settings, check them, then download weights."""
    for wanted in ((*SETTINGS, *WORDS, MODULES, TEXT, PROMPTS, "*/config.json"), WEIGHTS):
        try:
            # Fail at once without a network; a download would retry for half a minute.
            hub.get_session().head(hub.constants.ENDPOINT, timeout=hub.constants.HF_HUB_ETAG_TIMEOUT)
            hub.snapshot_download(model.name, revision=model.commit, cache_dir=str(root), allow_patterns=list(wanted))
        except Exception as error:  # network, hub and disk raise many kinds
            raise InputError(
                f"{model.title} cannot be used: {missing}, and the download failed ({first_sentence(error)}); "
                f"with a network, run 'hf download {model.name} --revision {model.commit}'"
            ) from error
        check_folder(model.folder, root, home)
        check_settings(model.folder)
    _check_all_weights(model.folder)


def check_model_folder(folder: Path) -> dict[str, Any]:
    """Return the config of a model folder; refuse one that asks to run code or has no safetensors weights."""
    config = check_settings(folder)
    check_weights(folder)
    return config


def check_settings(folder: Path) -> dict[str, Any]:
    """Return the config of a model folder; refuse one that asks to run code or is only an adapter."""
    if not is_file(folder / CONFIG):
        raise InputError(f"{folder} has no {CONFIG}; give a folder written by save_pretrained of transformers")
    for path in sorted(folder.glob("*config.json")):
        for name, value in entries(read_object(path, "settings")):
            if COUNT.fullmatch(name) and isinstance(value, int) and value > MODEL_COUNT:  # builds lists of that length
                raise InputError(f"{path} has {value} for {name}, more than the {MODEL_COUNT} of any model")
            if name == "auto_map":
                raise InputError(f"{path} asks to run its own code (auto_map), which congruence never does")
            if name.strip("_").endswith(("_implementation", "_implementation_internal")) and value not in OWN_CODE:
                raise InputError(f"{path} asks to run code from elsewhere ({name}), which congruence never does")
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} has only an adapter; merge it into its base model and save the result")
    return read_object(folder / CONFIG, "settings")


def entries(settings: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of settings, also of settings inside of settings."""
    for name, value in settings.items() if isinstance(settings, dict) else enumerate(settings):
        yield str(name), value
        if isinstance(value, dict | list):
            yield from entries(value)


def check_weights(folder: Path) -> list[Path]:
    """Return the weights of a folder; refuse one without safetensors, or whose index names files that are elsewhere."""
    whole, index = folder / "model.safetensors", folder / INDEX
    if is_file(whole):
        return [whole]
    if not is_file(index):
        pickled = sorted(path.name for path in folder.glob("*") if path.suffix in PICKLED)
        has = f", but {listing(pickled)}, which may run code when unpickled" if pickled else ""
        raise InputError(f"{folder} has no model.safetensors{has}; save the model with safe_serialization=True")
    shards = read_object(index, "settings").get("weight_map")
    names = (
        set(shards.values())
        if isinstance(shards, dict) and all(isinstance(name, str) for name in shards.values())
        else set()
    )
    foreign = sorted(name for name in names if Path(name).name != name or not name.endswith(".safetensors"))
    if foreign or not names:
        raise InputError(f"{index} must name .safetensors files of its own folder, not {listing(foreign) or 'none'}")
    missing = sorted(name for name in names if not is_file(folder / name))
    if missing:
        raise InputError(f"{folder} lacks {listing(missing)}, listed in its index")
    return [folder / name for name in sorted(names)]


def module_folders(folder: Path) -> list[tuple[str, Path]]:
    """The kind and the folder of each module of sentence-transformers, in their order; none without `modules.json`.

    Modules have the names of Python classes, which are compared and never imported.
    """
    path = folder / MODULES
    if not is_file(path):
        return []
    with reading(path, "modules"):
        found = [(str(one["type"]).rpartition(".")[2], str(one["path"])) for one in read_json(path, "modules")]
    if len(found) > MODEL_TENSORS:
        raise InputError(f"{path} has {len(found)} modules; at most {MODEL_TENSORS} are read")
    for kind, home in found:
        if kind not in KNOWN:
            raise InputError(f"{path} has a module {kind!r}; supported are {', '.join(KNOWN)}")
        if Path(home).name != home or home == "..":
            raise InputError(f"{path} must name folders inside its own, not {home!r}")
    kinds = [kind for kind, _ in found]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds.count("Transformer") + kinds.count("Pooling") > 2:
        raise InputError(f"{path} must begin with Transformer and Pooling, once each; got {', '.join(kinds) or 'none'}")
    return [(kind, folder / home) for kind, home in found]


def _check_all_weights(folder: Path) -> None:
    """Refuse a folder if its weights, or those of a module of sentence-transformers in it, are missing."""
    check_weights(folder)
    for kind, path in module_folders(folder):
        if kind in ("Dense", "LayerNorm"):
            check_weights(path)
