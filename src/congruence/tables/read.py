"""Read an embedding table, whatever the format of its file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from congruence.errors import TableError
from congruence.tables.access import check_readable, reading, stem_of, suffix_of
from congruence.tables.columns import Selection, patterns
from congruence.tables.read_anndata import read_h5ad
from congruence.tables.read_arrays import read_npy, read_npz, read_safetensors
from congruence.tables.read_columns import read_arrow, read_parquet
from congruence.tables.read_csv import read_csv
from congruence.tables.read_pt import read_pt
from congruence.tables.read_zarr import read_zarr
from congruence.tables.table import Table

READERS: dict[str, Callable[[Path, Selection], Table]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".h5ad": read_h5ad,
    ".zarr": read_zarr,
    ".safetensors": read_safetensors,
    ".pt": read_pt,
    ".pth": read_pt,
}
SUFFIXES = tuple(READERS)
CODES = "latents.parquet"  # of the folder of a training, as `experiments.runs` writes it


def read_table(
    path: str | Path,
    *,
    id: str | None = None,
    features: str | Sequence[str] | None = None,
    metadata: str | Sequence[str] | None = None,
    key: str | None = None,
    name: str | None = None,
) -> Table:
    """Read an embedding table: values, and row ids and metadata where the file has them.

    Nothing is ever unpickled, and what would not fit in memory is refused before it is read. Files that can
    be mapped into memory (.npy, uncompressed .arrow with a column of lists, .safetensors, .pt) are not loaded, and a
    matrix of more than 256 MB from another file (but .npz) is put into a temporary file, which is mapped.
    NaN is let through; `join_tables` decides about it.

    Parameters
    ----------
    path : str or Path
        A file, or a folder for .zarr. The suffix tells the format; `SUFFIXES` lists those that are known. Of the
        folder of a training (`experiments.runs`) it is the codes that are read.
    id : str, optional
        The column (or one-dimensional array) that holds the ids. Without it, the column that `write_table`
        recorded, one called ``id``, ``row_id`` or ``Metadata_id``, a pandas index of names, a column named like an id
        (``cell_id``, ``uuid``, ``sample``, ...) in which no integer or text repeats, the only column of short text in
        which nothing repeats, or a pandas index of integers other than 0, 1, ...; the array ``ids``, or the obs_names
        of AnnData; else the table has no ids.
    features : str or list of str, optional
        Names or glob patterns of the columns that are values (``"emb_*"``, comma separated). Every other
        column is then metadata. Without it, all columns are features except ids, those that `metadata`
        names, those with the prefix ``Metadata_``, the index of a pandas frame, and columns of distinct integers,
        which could be ids: `Table.notes` names them.
    metadata : str or list of str, optional
        Names or glob patterns of the columns that are metadata.
    key : str, optional
        Which array inside the file: its name in .npz, .safetensors, .pt and .zarr; "X" or a key of obsm for
        AnnData; the column of lists in .parquet and .arrow.
    name : str, optional
        What the run is called; the stem of the file if not given.

    Returns
    -------
    Table
        float32 and float64 stay what they are; columns of both, and columns of integers, become float64.
        Columns of lists or struct that are not the values are left out.
    """
    return read_selected(Path(path), Selection(id, patterns(features), patterns(metadata), key, name or ""))


def read_selected(path: Path, select: Selection) -> Table:
    """Read an embedding table; `read_table` with its options in one object."""
    suffix = suffix_of(path)
    if suffix not in READERS and (path / CODES).is_file():
        return read_selected(path / CODES, replace(select, name=select.name or path.name))
    if suffix not in READERS:
        raise TableError(f"{path} has an unknown suffix {suffix!r}; known are {', '.join(SUFFIXES)}")
    check_readable(path, folder=suffix == ".zarr")
    select = replace(select, name=select.name or stem_of(path))
    with warnings.catch_warnings(), reading(path):
        warnings.simplefilter("ignore")  # a file is either good enough to be read, or refused with a sentence
        return READERS[suffix](path, select)
