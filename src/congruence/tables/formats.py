"""The file formats: one entry for each says who reads it, what it needs, and how the documentation describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from congruence.errors import TableError
from congruence.guards import check_readable, is_folder, suffix_of
from congruence.tables.address import as_path

_COLUMNS = ("features", "metadata", "key")
_TEXT = ("features", "metadata", "delimiter", "header")


@dataclass(frozen=True)
class Format:
    """A file format; `values`, `ids` and `metadata` are its line in the documentation (docs/tables.md)."""

    suffixes: tuple[str, ...]
    reader: str  # module and function in this room, imported when a file of the format is read
    values: str
    ids: str
    metadata: str
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

    def row(self) -> str:
        """The line of the table of formats in docs/tables.md."""
        names = " ".join(f"`{suffix}`" for suffix in self.suffixes)
        notes = [*([f"extra `{self.extra}`"] if self.extra else []), *(["folder"] if self.folder else [])]
        name = f"{names} ({', '.join(notes)})" if notes else names
        return f"| {name} | {self.values} | {self.ids} | {self.metadata} | {'yes' if self.writable else 'no'} |"


FORMATS = (
    Format((".npy",), "_arrays:read_npy", "the matrix, memory-mapped", "none", "none", writable=True),
    Format(
        (".npz",),
        "_arrays:read_npz",
        "the only matrix, or `--key`",
        "array `ids`",
        "other arrays with one entry per row",
        ("key",),
        writable=True,
    ),
    Format(
        (".safetensors",),
        "_arrays:read_safetensors",
        "the only matrix, or `--key`, memory-mapped; bfloat16 too",
        "tensor `ids`",
        "as `.npz`",
        ("key",),
        writable=True,
    ),
    Format(
        (".pt", ".pth"),
        "_arrays:read_pt",
        "a tensor, or a dict of tensors with `--key`; `weights_only`",
        "tensor `ids`",
        "as `.npz`",
        ("key",),
        extra="torch",
    ),
    Format(
        (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
        "_arrow:read_columnar",
        "numeric columns; delimiter, decimal comma and header are detected (`--delimiter`, `--no-header`)",
        "a column",
        "columns",
        _TEXT,
        columnar=True,
        writable=True,
    ),
    Format(
        (".jsonl", ".jsonl.gz", ".ndjson"),
        "_arrow:read_columnar",
        "a field that is a list of numbers, or numeric fields",
        "a field",
        "other fields of numbers or text",
        _COLUMNS,
        columnar=True,
    ),
    Format(
        (".parquet",),
        "_arrow:read_columnar",
        "numeric columns, or one column of lists or of tensors (`fixed_shape_tensor`)",
        "a column, or an index of pandas",
        "columns",
        _COLUMNS,
        columnar=True,
        writable=True,
    ),
    Format(
        (".arrow", ".feather"),
        "_arrow:read_columnar",
        "as `.parquet`, memory-mapped",
        "as `.parquet`",
        "as `.parquet`",
        _COLUMNS,
        columnar=True,
        writable=True,
    ),
    Format(
        (".lance",),
        "_arrow:read_columnar",
        "as `.parquet`, the latest version",
        "a column",
        "columns",
        _COLUMNS,
        columnar=True,
        folder=True,
        extra="lance",
    ),
    Format(
        (".h5ad",),
        "_anndata:read_h5ad",
        "`X`, or an `obsm` key with `--key`",
        "`obs_names`, or an `obs` column",
        "`obs` columns",
        ("key", "features"),
        writable=True,
        extra="h5ad",
    ),
    Format(
        (".zarr",),
        "_zarr:read_zarr",
        "the array, the only matrix of the group, or `--key`; AnnData stores as `.h5ad`",
        "array `ids`",
        "as `.npz`",
        ("key",),
        writable=True,
        folder=True,
        extra="zarr",
    ),
    Format(
        (".h5", ".hdf5"),
        "_hdf5:read_hdf5",
        "the only matrix, or `--key`, also inside groups (`group/name`)",
        "array `ids`",
        "as `.npz`",
        ("key",),
        extra="hdf5",
    ),
    Format(
        (".mat",),
        "_arrays:read_mat",
        "the only matrix of a MATLAB file up to version 7, or `--key`",
        "array `ids`, numbers or characters",
        "as `.npz`",
        ("key",),
    ),
    Format(
        (".fbin", ".ibin", ".u8bin", ".i8bin"),
        "_vectors:read_bin",
        "the matrix (rows and columns as two integers, then the numbers), memory-mapped",
        "none",
        "none",
    ),
    Format(
        (".fvecs", ".ivecs", ".bvecs"),
        "_vectors:read_vecs",
        "the matrix (each row after its length), memory-mapped",
        "none",
        "none",
    ),
    Format(
        (".faiss", ".index"),
        "_vectors:read_faiss",
        "the vectors of a FAISS index, flat (memory-mapped) or `IVF,Flat`; no faiss is needed",
        "those of an id map, or of `add_with_ids`",
        "none",
    ),
)
BY_SUFFIX = {suffix: one for one in FORMATS for suffix in one.suffixes}
SUFFIXES = tuple(BY_SUFFIX)
COLUMNAR = tuple(suffix for suffix, one in BY_SUFFIX.items() if one.columnar)
WRITABLE = tuple(suffix for suffix, one in BY_SUFFIX.items() if one.writable)


def format_of(path: Path) -> Format:
    """Return the format of a path, by its suffix."""
    if suffix_of(path) not in BY_SUFFIX:
        raise TableError(f"{path} has an unknown suffix {suffix_of(path)!r}; known are {', '.join(SUFFIXES)}")
    return BY_SUFFIX[suffix_of(path)]


def check_format(path: Path) -> Format:
    """Return the format of a path, after checking that there is a file or folder of that kind which can be read."""
    if suffix_of(path) not in BY_SUFFIX and not is_folder(path):
        check_readable(path)  # that it does not exist is said before that its suffix is unknown
    known = format_of(path)
    check_readable(path, folder=known.folder)
    return known


def honours(path: str | Path, option: str) -> bool:
    """Whether the format of a file supports an option of `read_table`, such as "features" or "key"."""
    known = BY_SUFFIX.get(suffix_of(as_path(path)))
    return known is None or option in known.options
