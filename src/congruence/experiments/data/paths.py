"""Where data sets are looked for: under `CONGRUENCE_DATA`, then in the user's cache folder. Nothing is downloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from congruence.errors import InputError

VARIABLE = "CONGRUENCE_DATA"


def cache_folder() -> Path:
    """The user's cache folder of this package; it need not exist."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "congruence"


def data_folders(name: str) -> list[Path]:
    """The folders in which the data set `name` is looked for, the first choice first."""
    named = os.environ.get(VARIABLE)
    return [folder / name for folder in ([Path(named)] if named else []) + [cache_folder()]]


def find_files(name: str, files: Sequence[Sequence[str]], how: str) -> list[Path]:
    """Find all files of a data set in one of its folders.

    Parameters
    ----------
    name : str
        The name of the data set, which is that of its folder.
    files : sequence of sequences of str
        For each file the names it may have.
    how : str
        How to get it, for the message where it is missing.
    """
    folders = data_folders(name)
    missing = ""
    for folder in folders:
        found = [next((folder / one for one in names if (folder / one).is_file()), None) for names in files]
        whole = [path for path in found if path is not None]
        if len(whole) == len(files):
            return whole
        if whole and not missing:  # some are there, so this is the folder that was meant
            lost = next(names[0] for names, path in zip(files, found, strict=True) if path is None)
            missing = f"; {folder} holds some of its files, but not {lost}"
    hint = "" if os.environ.get(VARIABLE) else f" ({VARIABLE} is not set)"
    where = " and ".join(map(str, folders))
    raise InputError(f"the data set {name} was not found: it was looked for in {where}{hint}{missing}. {how}")
