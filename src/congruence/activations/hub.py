"""Models of a hub, by name and commit: from the cache on this machine, or fetched into it, and only what is needed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.activations.model_folders import CONFIG, INDEX, PIXELS, TOKENIZER, check_settings, check_weights
from congruence.arrays import listing
from congruence.errors import InputError, MissingDependencyError
from congruence.tables.access import first_sentence

HUB = "https://huggingface.co"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
SETTINGS = (CONFIG, "generation_config.json", "adapter_config.json", PIXELS, INDEX)
WORDS = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
WEIGHTS = ("model.safetensors", "model-*.safetensors")


@dataclass(frozen=True)
class HubModel:
    """A model of a hub at one commit, and the folder of the cache that holds it."""

    name: str
    commit: str
    folder: Path

    @property
    def title(self) -> str:
        """The name and the commit, which say all there is to say about the weights."""
        return f"{self.name}@{self.commit}"


def is_hub_name(name: str) -> bool:
    """Whether a text can be the name of a model on a hub, ``owner/name``."""
    return NAME.fullmatch(name) is not None and ".." not in name and "--" not in name


def find_model(name: str, revision: str | None = None, *, cache: str | Path | None = None) -> HubModel:
    """Return a model of a hub at one commit, fetched where the cache does not have it.

    What is behind a name changes, so a commit has to be given; without one, the cache is asked, and does if it holds
    exactly one. Settings are fetched and looked at before weights. Of weights only safetensors are fetched. A model
    that the cache has whole is used without a look at the network.

    Parameters
    ----------
    name : str
        ``owner/name``.
    revision : str, optional
        The 40 hex digits of a commit; a branch or a tag, which can be moved, is refused.
    cache : path, optional
        The hub's cache, by default where huggingface_hub has it (``HF_HUB_CACHE``).
    """
    hub = _huggingface_hub()
    if not is_hub_name(name):
        raise InputError(f"{name} is no name of a model on a hub, owner/name")
    root = Path(hub.constants.HF_HUB_CACHE if cache is None else cache).expanduser()
    home = root / f"models--{name.replace('/', '--')}"
    commit = _pinned(name, revision, home)
    folder = home / "snapshots" / commit
    lacks = _lacks(folder, root, home)
    if lacks:
        _fetch(hub, HubModel(name, commit, folder), root, home, lacks)
    return HubModel(name, commit, folder)


def _pinned(name: str, revision: str | None, home: Path) -> str:
    """Return the commit that was asked for, or the only one that the cache holds."""
    if revision is not None and COMMIT.fullmatch(revision.lower()):
        return revision.lower()
    cached = sorted(path.name for path in home.glob("snapshots/*") if COMMIT.fullmatch(path.name) and path.is_dir())
    if revision is None and len(cached) == 1:
        return cached[0]
    said = f"not {revision!r}, which can be moved" if revision is not None else "since what a name stands for changes"
    there = f"; the cache holds {listing(cached, 4)}" if cached else ""
    raise InputError(
        f"{name} is no folder here, and as the name of a model on a hub it needs --revision with the 40 hex digits of "
        f"a commit, {said}: {HUB}/{name}/commits/main lists them{there}"
    )


def _lacks(folder: Path, root: Path, home: Path) -> str:
    """Return what a snapshot in the cache lacks, or nothing; one that asks to run code is refused."""
    if not folder.is_dir():
        return f"it is not in the cache {root}"
    _check_links(folder, root, home)
    if not (folder / CONFIG).is_file():
        return f"the cache has no {CONFIG} of it"
    check_settings(folder)
    try:
        check_weights(folder)
    except InputError as error:
        return str(error)
    return ""


def _check_links(folder: Path, root: Path, home: Path) -> None:
    """Refuse links that lead out of the cache; its own, from snapshots to blobs, stay inside."""
    inside = (root.resolve(), home.resolve())  # a user may have moved a model to another disk
    for path in sorted(folder.rglob("*")):
        target = Path(os.path.realpath(path))  # which does not mind a link to itself, as some versions of resolve do
        if not any(target.is_relative_to(place) for place in inside):
            raise InputError(f"{path} is a link that leads out of the cache, to {target}; remove it")


def _fetch(hub: Any, model: HubModel, root: Path, home: Path, lacks: str) -> None:
    """Fetch settings, look at them, and then fetch weights."""
    for wanted in ((*SETTINGS, *WORDS), WEIGHTS):
        try:
            _knock(hub)
            hub.snapshot_download(model.name, revision=model.commit, cache_dir=str(root), allow_patterns=list(wanted))
        except Exception as error:  # of the network, of the hub, of the disk: each has its own kinds
            raise InputError(
                f"{model.title} cannot be used: {lacks}, and it could not be fetched ({first_sentence(error)}); "
                f"where there is a network, 'hf download {model.name} --revision {model.commit}' fetches it"
            ) from error
        _check_links(model.folder, root, home)
        check_settings(model.folder)
    check_weights(model.folder)


def _knock(hub: Any) -> None:
    """Send one request, which fails at once where there is no network; a download would try for half a minute."""
    hub.get_session().head(hub.constants.ENDPOINT, timeout=hub.constants.HF_HUB_ETAG_TIMEOUT)


def _huggingface_hub() -> Any:
    try:
        import huggingface_hub.constants
    except ImportError as error:
        raise MissingDependencyError(
            "models of a hub need huggingface_hub: pip install 'congruence[extract]'"
        ) from error
    return huggingface_hub
