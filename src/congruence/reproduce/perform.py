"""Run a recipe in a folder: what is finished is not done again, what is another's is not touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import resolve_device
from congruence.errors import InputError
from congruence.files import check_writable, system_reason, write_text
from congruence.progress import Progress
from congruence.reproduce.parts import Parts
from congruence.reproduce.recipe import SCALES, Job, Method, Recipe, Reproduction, find_recipe
from congruence.reproduce.write import FILES, RESULT, write_reproduction
from congruence.result import json_text

PARTS, OWNER = "parts", "settings.json"  # the folder of parts, and the file in it that says whose they are


@dataclass(frozen=True)
class Performed:
    """A recipe that was performed: the content of its result.json, the folder, and whether it was done just now."""

    recipe: Recipe
    result: Mapping[str, Any]
    folder: Path
    fresh: bool


def perform(
    name: str,
    out: str | Path,
    *,
    scale: str = "small",
    seed: int = 0,
    device: str = "auto",
    data: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Performed:
    """Make a result of a paper again and write it into the folder `out`.

    Parameters
    ----------
    name : str
        One of the names in `congruence.reproduce.recipe.RECIPES`.
    out : path
        A folder for result.json, table.md, the figures and report.html; it is made where it does not exist.
    scale : {"smoke", "small", "paper", "full"}
        How much is computed.
    seed : int
        The same seed gives the same result on the same device.
    device : str
        "auto" takes a GPU where there is one.
    data : str, optional
        Another data set than that of the scale, of those that the recipe can do with; some recipes take several,
        separated by commas.
    force : bool
        Do it again although it is finished, and also where the folder holds the same recipe with other settings.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    announce : callable, optional
        Called with a sentence about what is to be done, before it is, where the recipe has one.
    """
    recipe = find_recipe(name)
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, not {scale!r}")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be between 0 and {2**32 - 1}, not {seed}")
    engine = _engine(device)
    method = recipe.method()
    parameters = _parameters(method, name, scale, data)
    folder = _writable_folder(Path(out))
    settings = {"recipe": name, "edition": method.EDITION, "scale": scale, "seed": seed, "device": engine}
    settings |= parameters
    settings = json.loads(json_text(settings))  # as it will be read back
    _check_owner(folder, settings, force)
    if not force and (found := _finished(folder, settings)) is not None:
        return Performed(recipe, found, folder, fresh=False)

    (folder / PARTS).mkdir(exist_ok=True)
    write_text(folder / PARTS / OWNER, json_text(settings))
    parts = Parts(folder / PARTS, settings, kept=not force)
    tell = progress or (lambda what, done, total: None)
    if announce is not None and hasattr(method, "plan"):
        announce(method.plan(parameters, engine, parts))
    outcome = method.run(Job(scale, seed, engine, parameters, parts, tell))
    made = Reproduction(recipe, outcome, settings)
    write_reproduction(made, folder)
    return Performed(recipe, made.to_dict(), folder, fresh=True)


def _parameters(method: Method, name: str, scale: str, data: str | None) -> dict[str, Any]:
    """The parameters of a scale, with another data set where one is asked for."""
    parameters = dict(method.PARAMETERS[scale])
    if data is None:
        return parameters
    known = getattr(method, "DATA", ())
    if not known:
        raise InputError(f"{name} makes its own data, so data cannot be {data!r}")
    several = getattr(method, "SEVERAL", False)
    asked = [one.strip() for one in data.split(",")] if several else [data]
    wrong = [one for one in asked if one not in known]
    if wrong:
        raise InputError(f"data must be {'some' if several else 'one'} of {', '.join(known)}, not {wrong[0]!r}")
    return parameters | {"data": ",".join(dict.fromkeys(asked))}


def _engine(device: str) -> str:
    """Turn "auto" into a GPU where torch sees one."""
    if device != "auto":
        return resolve_device(device)
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _writable_folder(folder: Path) -> Path:
    """Make the folder, and refuse one that cannot be written to before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {system_reason(error) or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to the folder {folder}: permission denied")
    for file in FILES:
        check_writable(folder / file)
    if (folder / PARTS).is_dir():
        check_writable(folder / PARTS / OWNER)
    return folder


def _check_owner(folder: Path, settings: Mapping[str, Any], force: bool) -> None:
    """Refuse to write over files that are not ours, and over another reproduction unless that is forced."""
    owner = _read(folder / PARTS / OWNER)
    if owner is None:
        strange = [file for file in (*FILES, PARTS) if (folder / file).exists()]
        if strange:
            raise InputError(f"{folder} holds {strange[0]}, which no recipe wrote; give another --out")
        return
    if owner != settings and (owner.get("recipe") != settings["recipe"] or not force):
        told = ", ".join(f"{key} {owner.get(key)}" for key in ("scale", "seed", "device", "edition"))
        way = "give another --out"
        way += ", or --force to replace it" if owner.get("recipe") == settings["recipe"] else ""
        raise InputError(f"{folder} holds {owner.get('recipe')} with other settings ({told}); {way}")


def _finished(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result in the folder, if it is whole and of these settings."""
    result = _read(folder / RESULT)
    if result is None or result.get("settings") != settings:
        return None
    there = all((folder / file).is_file() for file in (*FILES, *result.get("figures", [])))
    return result if there else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
