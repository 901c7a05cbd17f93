"""Paths of tables: their suffix and stem, checks before a file is read, and errors that name the file."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from congruence.errors import CongruenceError, TableError
from congruence.files import system_reason

_SOURCE_LINES = re.compile(r",? \S+\.rs:[\d:]+")  # which libraries in Rust add to their messages
_NPY_HEADER = 2**14  # bytes; numpy writes a few hundred and refuses to parse more than 10,000


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format, in lower case: ``.npy``, ``.csv``, ``.csv.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def stem_of(path: Path) -> str:
    """Return the file name without the suffix that names the format."""
    return path.name[: len(path.name) - len(suffix_of(path))] or path.name


def unique_names(paths: Sequence[str | Path]) -> list[str]:
    """Name each file by its stem, preceded by as many parent folders as make the name unique.

    ``seed0/latents.npy`` and ``seed1/latents.npy`` become ``seed0/latents`` and ``seed1/latents``; a path that
    occurs again becomes ``latents#2``.
    """
    files = [Path(path) for path in paths]
    names = _add_folders({file: stem_of(file) for file in files})
    # Files that differ only in their suffix keep it.
    names |= _add_folders({file: file.name for file in _duplicates(names)})
    seen: Counter[Path] = Counter()
    unique = []
    for file in files:
        seen[file] += 1
        unique.append(names[file] if seen[file] == 1 else f"{names[file]}#{seen[file]}")
    return unique


def _add_folders(names: Mapping[Path, str]) -> dict[Path, str]:
    """Prefix names that are not unique with their parent folders; names that stay ambiguous are returned unchanged."""
    longer = dict(names)
    folders = {file: [part for part in file.parts[:-1] if part != file.anchor] for file in names}
    while ambiguous := [file for file in _duplicates(longer) if folders[file]]:
        for file in ambiguous:
            longer[file] = f"{folders[file].pop()}/{longer[file]}"
    unresolved = set(_duplicates(longer))
    return {file: names[file] if file in unresolved else name for file, name in longer.items()}


def _duplicates(names: Mapping[Path, str]) -> list[Path]:
    counts = Counter(names.values())
    return [file for file, name in names.items() if counts[name] > 1]


def check_readable(path: Path, *, folder: bool = False) -> None:
    """Refuse a path that does not exist, is of the wrong kind, is empty or may not be read."""
    try:
        mode, size = (status := path.stat()).st_mode, status.st_size
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:  # a folder that may not be searched, a name too long, a NUL in it
        raise TableError(f"{path} cannot be read: {first_sentence(error)}") from error
    if folder and not stat.S_ISDIR(mode):
        raise TableError(f"{path} is a file, but a {suffix_of(path)} store is a folder")
    if not folder and stat.S_ISDIR(mode):
        expected = f"a {suffix_of(path)} table is a file" if suffix_of(path) else "a file is required"
        raise TableError(f"{path} is a folder, but {expected}")
    if not folder and not stat.S_ISREG(mode):  # reading a pipe or a device may never end
        raise TableError(f"{path} is not a regular file, but a pipe or a device")
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} cannot be read: permission denied")
    if not folder and size == 0:
        raise TableError(f"{path} is empty: it has 0 bytes")
    if folder:
        _check_contents(path)


def _check_contents(folder: Path) -> None:
    """Refuse a store in which something is a link, and so leads elsewhere, or neither a file nor a folder."""
    for inside, folders, files in os.walk(folder):
        for name in (*folders, *files):
            mode = os.lstat(one := os.path.join(inside, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise TableError(f"{folder} is not a plain store: {one} is not a regular file")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn exceptions of file libraries inside the block into a `TableError` of one sentence that names the file."""
    try:
        yield
    except CongruenceError:
        raise
    except MemoryError as error:
        raise TableError(f"{path} does not fit in memory: {first_sentence(error)}") from error
    except BaseException as error:  # on damaged bytes libraries raise many kinds, from struct.error to RuntimeError
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of libraries in Rust
            raise
        raise TableError(
            f"{path} could not be read as {suffix_of(path)}, it may be damaged: {first_sentence(error)}"
        ) from error


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of a library's error message, or the type of the error if it has none."""
    lines = _SOURCE_LINES.sub("", system_reason(error) or str(error)).strip().splitlines()
    return lines[0].split(". ")[0][:200].rstrip(".") if lines else type(error).__name__


@dataclass(frozen=True)
class NpyHeader:
    """The header of a .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    length: int  # of the header itself, in bytes
    fortran: bool = False  # column-major order

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(path: Path, handle: IO[bytes], size: int) -> NpyHeader:
    """Read the header of a .npy file of `size` bytes, and refuse one that declares more than the file holds."""
    start = io.BytesIO(handle.read(_NPY_HEADER))  # a header may claim a length of gigabytes
    version = np.lib.format.read_magic(start)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(start)
    header = NpyHeader(shape, dtype, start.tell(), fortran)
    if any(length < 0 for length in shape) or (header.nbytes > size - header.length and not dtype.hasobject):
        raise TableError(
            f"{path} is damaged: an array of shape {shape} and dtype {dtype} takes {header.nbytes} bytes, "
            f"but {max(0, size - header.length)} follow"
        )
    return header
