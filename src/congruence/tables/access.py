"""Names of tables from their paths, and headers of numpy's files."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError, TableError, printable
from congruence.guards import NPY_HEADER, open_archive, suffix_of
from congruence.memory import check_fits

_NPZ_METHODS = (ZIP_STORED, ZIP_DEFLATED)  # what np.savez and np.savez_compressed write


def stem_of(path: Path) -> str:
    """Return the file name without the suffix that names the format."""
    return printable(path.name[: len(path.name) - len(suffix_of(path))] or path.name)


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


def read_npz_arrays(
    path: str | Path, names: Sequence[str] | None = None, *, what: str = "", most: int | None = None
) -> dict[str, Array]:
    """Read the arrays of a .npz file, or those of `names` that it has, without unpickling.

    All of its members together may take `most` bytes, by default as many as a table.
    """
    path = Path(path)
    with open_archive(path, what) as archive:
        size = sum(info.file_size for info in archive.infolist())
        if most is not None and size > most:
            raise InputError(f"{path} holds {size} bytes; at most {most} are read as {what}")
        check_fits(path, size)
        members = npy_members(path, archive)
        return {name: load_member(archive, name) for name, _ in members if names is None or name in names}


def npy_members(path: Path, archive: ZipFile) -> Iterator[tuple[str, NpyHeader]]:
    """The names of the arrays in a .npz file, and their headers."""
    for info in archive.infolist():
        name = info.filename
        if name.endswith(".npy"):
            if info.compress_type not in _NPZ_METHODS:
                raise TableError(f"{path}: {name} is compressed in a way that np.savez does not use; save it again")
            with archive.open(info) as handle:
                header = npy_header(path, handle, info.file_size)
            yield name.removesuffix(".npy"), header  # with the member closed, also where the caller fails


def load_member(archive: ZipFile, name: str) -> Array:
    """Read an array of a .npz file."""
    with archive.open(f"{name}.npy") as handle:
        array: Array = np.lib.format.read_array(handle, allow_pickle=False)
    return array


def map_npy(path: Path) -> Array:
    """Map a file of np.save into memory, if it is not empty."""
    with path.open("rb") as handle:
        header = npy_header(path, handle, path.stat().st_size)
    if header.dtype.hasobject:
        raise TableError(pickle_refusal(path, "the array"))
    array: Array = np.load(path, mmap_mode=None if 0 in header.shape else "r", allow_pickle=False)
    return array


def pickle_refusal(path: Path, what: str) -> str:
    """Why an array of Python objects is not read."""
    return (
        f"{path}: {what} holds Python objects, which are never unpickled because they may run code; "
        "save it with a number or text dtype"
    )


def npy_header(path: Path, handle: IO[bytes], size: int) -> NpyHeader:
    """Read the header of a .npy file of `size` bytes, and refuse one that declares more than the file holds."""
    start = io.BytesIO(handle.read(NPY_HEADER))  # a header may claim a length of gigabytes
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
