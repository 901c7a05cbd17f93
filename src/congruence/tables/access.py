"""Before and around the reading of a file: every way it can fail becomes one clear sentence."""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from congruence.errors import CongruenceError, MissingDependencyError, TableError
from congruence.files import system_reason


def suffix_of(path: Path) -> str:
    """Return the suffix that tells the format: ``.npy``, ``.csv``, ``.csv.gz``; in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def stem_of(path: Path) -> str:
    """Return the file name without the suffix that tells the format."""
    return path.name[: len(path.name) - len(suffix_of(path))] or path.name


def check_readable(path: Path, *, folder: bool) -> None:
    """Refuse a path that does not exist, is of the wrong sort, is empty or may not be read."""
    try:
        mode, size = (found := path.stat()).st_mode, found.st_size
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:  # a folder that may not be searched, a name too long, a NUL in it
        raise TableError(f"{path} cannot be read: {first_sentence(error)}") from error
    if folder and not stat.S_ISDIR(mode):
        raise TableError(f"{path} is a file, but a {suffix_of(path)} store is a folder")
    if not folder and stat.S_ISDIR(mode):
        kind = f"a {suffix_of(path)} table" if suffix_of(path) else "what is wanted"
        raise TableError(f"{path} is a folder, but {kind} is a file")
    if not folder and not stat.S_ISREG(mode):  # reading a pipe or a device may never end
        raise TableError(f"{path} is not a regular file, but a pipe or a device")
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} cannot be read: permission denied")
    if not folder and size == 0:
        raise TableError(f"{path} is empty: it has 0 bytes")


def stamp_of(path: Path) -> int:
    """Return when a file was changed last, as the worker that is to read some of it sees it."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise TableError(f"a worker does not find {path}; every worker must see the file at the same place") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a file library raises inside the block into one sentence that names the file."""
    try:
        yield
    except CongruenceError:
        raise
    except MemoryError as error:
        raise TableError(f"{path} does not fit in memory: {first_sentence(error)}") from error
    except Exception as error:  # on damaged bytes libraries raise anything from struct.error to RuntimeError
        raise TableError(
            f"{path} could not be read as {suffix_of(path)}, it may be damaged: {first_sentence(error)}"
        ) from error


def first_sentence(error: Exception) -> str:
    """Return the first sentence of the library's own message, or the kind of error where there is none."""
    lines = (system_reason(error) or str(error)).strip().splitlines()
    return lines[0].split(". ")[0][:200].rstrip(".") if lines else type(error).__name__


def require(module: str, extra: str, path: Path) -> Any:
    """Import an optional package, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{path}: {suffix_of(path)} files need {module}: pip install 'congruence[{extra}]'"
        ) from error
