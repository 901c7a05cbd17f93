"""The file formats: one entry for each says who reads it and what it needs; docs/tables.md describes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from congruence.errors import TableError
from congruence.guards import check_readable, suffix_of
from congruence.tables.address import as_path

_KEY = ("key",)
_COLUMNS = ("features", "metadata", "key")
_TEXT = ("features", "metadata", "delimiter", "header")


@dataclass(frozen=True)
class Format:
    """A file format."""

    suffixes: tuple[str, ...]
    reader: str  # module and function in this room, imported when a file of the format is read
    options: tuple[str, ...] = ()  # of `read_table`, besides `id` and `name`
    columnar: bool = False  # named columns, read by `open_columnar`
    writable: bool = False
    folder: bool = False
    extra: str = ""  # what has to be installed: pip install 'congruence[extra]'

    def read(self, *args: Any) -> Any:
        """Call the reader with a path and a selection."""
        module, name = self.reader.split(":")
        read: Callable[..., Any] = getattr(import_module(f"congruence.tables.{module}"), name)
        return read(*args)


FORMATS = (
    Format((".npy",), "_arrays:read_npy", writable=True),
    Format((".npz",), "_arrays:read_npz", _KEY, writable=True),
    Format((".safetensors",), "_arrays:read_safetensors", _KEY, writable=True),
    Format((".pt", ".pth"), "_arrays:read_pt", _KEY, extra="torch"),
    Format((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "_arrow:read_columnar", _TEXT, columnar=True, writable=True),
    Format((".jsonl", ".jsonl.gz", ".ndjson"), "_arrow:read_columnar", _COLUMNS, columnar=True),
    Format((".parquet",), "_arrow:read_columnar", _COLUMNS, columnar=True, writable=True),
    Format((".arrow", ".feather"), "_arrow:read_columnar", _COLUMNS, columnar=True, writable=True),
    Format((".lance",), "_arrow:read_columnar", _COLUMNS, columnar=True, folder=True, extra="lance"),
    Format((".h5ad",), "_anndata:read_h5ad", ("key", "features"), writable=True, extra="h5ad"),
    Format((".zarr",), "_zarr:read_zarr", _KEY, writable=True, folder=True, extra="zarr"),
    Format((".h5", ".hdf5"), "_hdf5:read_hdf5", _KEY, extra="hdf5"),
    Format((".mat",), "_arrays:read_mat", _KEY),
    Format((".fbin", ".ibin", ".u8bin", ".i8bin"), "_vectors:read_bin"),
    Format((".fvecs", ".ivecs", ".bvecs"), "_vectors:read_vecs"),
    Format((".faiss", ".index"), "_vectors:read_faiss"),
)
BY_SUFFIX = {suffix: one for one in FORMATS for suffix in one.suffixes}
SUFFIXES = tuple(BY_SUFFIX)
COLUMNAR = tuple(suffix for suffix, one in BY_SUFFIX.items() if one.columnar)
WRITABLE = tuple(suffix for suffix, one in BY_SUFFIX.items() if one.writable)


def check_format(path: Path) -> Format:
    """Return the format of a path, after checking that there is a file or folder of that kind which can be read."""
    known = BY_SUFFIX.get(suffix_of(path))
    if known is None:
        if not os.path.isdir(path):
            check_readable(path)  # that it does not exist is said before that its suffix is unknown
        raise TableError(f"{path} has an unknown suffix {suffix_of(path)!r}; known are {', '.join(SUFFIXES)}")
    check_readable(path, folder=known.folder)
    return known


def honours(path: str | Path, option: str) -> bool:
    """Whether the format of a file supports an option of `read_table`, such as "features" or "key"."""
    known = BY_SUFFIX.get(suffix_of(as_path(path)))
    return known is None or option in known.options
