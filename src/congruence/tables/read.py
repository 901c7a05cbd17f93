"""Read an embedding table from a file of any supported format."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import TableError
from congruence.tables.access import COLUMNAR, check_readable, npy_header, reading, stem_of, suffix_of
from congruence.tables.columns import INDEX_NAMES, LIST, NESTED, Selection, check_distinct, choose_id, selection
from congruence.tables.table import Table, as_column

READERS = {  # the module and the function for each suffix, imported when a file of that format is read
    ".npy": ("_arrays", "read_npy"),
    ".npz": ("_arrays", "read_npz"),
    **dict.fromkeys((".csv", ".csv.gz", ".parquet", ".arrow", ".feather"), ("_arrow", "read_columnar")),
    ".h5ad": ("_anndata", "read_h5ad"),
    ".zarr": ("_zarr", "read_zarr"),
    ".safetensors": ("_arrays", "read_safetensors"),
    ".pt": ("_arrays", "read_pt"),
    ".pth": ("_arrays", "read_pt"),
}
SUFFIXES = tuple(READERS)
CODES = "latents.parquet"  # in the folder of a training, as `experiments.runs` writes it
_OPTIONS: dict[str, tuple[str, ...]] = {
    ".npy": (),
    **dict.fromkeys((".npz", ".safetensors", ".pt", ".pth", ".zarr"), ("key",)),
    ".h5ad": ("key", "features"),
    **dict.fromkeys((".csv", ".csv.gz"), ("features", "metadata")),
}


def honours(path: str | Path, option: str) -> bool:
    """Whether the format of a file supports the option "features", "metadata" or "key" of `read_table`."""
    return option in _OPTIONS.get(suffix_of(Path(path)), ("features", "metadata", "key"))


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

    Nothing is ever unpickled, and a table that would not fit in memory is refused before it is read. Files that can be
    mapped into memory (.npy, uncompressed .arrow with a column of lists, .safetensors, .pt) are not loaded, and a
    matrix of more than 256 MB from another file (except .npz) is stored in a temporary file, which is mapped. NaN is
    preserved; `join_tables` refuses or drops it.

    Parameters
    ----------
    path : str or Path
        A file, or a folder for .zarr. The suffix determines the format; `SUFFIXES` lists the supported ones. In the
        folder of a training (`experiments.runs`), the codes are read.
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
        The name of the run; by default the stem of the file.

    Returns
    -------
    Table
        float32 and float64 are preserved; columns of both, and columns of integers, become float64.
        Columns of lists or structs that are not the values are left out.
    """
    return read_selected(Path(path), selection(id, features, metadata, key, name))


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
        warnings.simplefilter("ignore")  # a file is read, or refused with an error
        module, name = READERS[suffix]
        table: Table = getattr(import_module(f"congruence.tables.{module}"), name)(path, select)
        return table


def column_names(path: str | Path) -> tuple[str, ...] | None:
    """Return the names of all columns of a csv, parquet or arrow file; None for formats that store arrays."""
    path = Path(path)
    if suffix_of(path) not in COLUMNAR:
        return None
    check_readable(path)
    from congruence.tables._arrow import open_columnar
    from congruence.tables._csv import header_of_csv

    if suffix_of(path).startswith(".csv"):
        names = header_of_csv(path)
        check_distinct(names, path)
        return tuple(names)
    with open_columnar(path, Selection()) as file:
        return tuple(file.schema.names)


@dataclass(frozen=True, eq=False)
class RowColumns:
    """The columns of a file besides its ids, numbers and text."""

    columns: Mapping[str, Array]  # each (n,)
    ids: Array | None  # (n,)
    notes: tuple[str, ...] = ()  # how the ids were chosen
    indexed: bool = False  # by the index of a data frame, as in `Table`
    id_name: str | None = None  # the column of the ids

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))


def read_row_columns(
    path: str | Path, *, id: str | None = None, key: str | None = None, features: Sequence[str] | None = None
) -> RowColumns:
    """Read every column of a file of any format that `read_table` supports; text is returned as Python strings.

    The columns of a file that holds a matrix are those of the matrix (called 0, 1, ... if they have no names) and the
    metadata. Columns of lists and the index of a pandas frame are left out.

    Parameters
    ----------
    path : str or Path
        The file.
    id : str, optional
        The column that holds the ids; by default chosen as in `read_table`.
    key : str, optional
        Which array inside the file, for formats that hold several.
    features : sequence of str, optional
        Names or glob patterns of columns that are not ids, unless `id` names them.
    """
    path = Path(path)
    if suffix_of(path) not in COLUMNAR:
        return _columns_of_matrix(path, id, key)
    check_readable(path)
    from congruence.tables._arrow import open_columnar

    select = Selection(id=id, features=None if features is None else tuple(features), name=path.name)
    with open_columnar(path, select, all_columns=True) as file:
        kinds, row_id = file.source.kinds, choose_id(file.source, select)
        apart = {*file.source.index, *INDEX_NAMES, row_id.id}
        names = [name for name in kinds if name not in apart and kinds[name] not in (LIST, NESTED)]
        if not names or not file.n:
            raise TableError(f"{path} has no columns with rows besides its ids; it has {listing(list(kinds), 10)}")
        columns = file.take([*names, *([] if row_id.id is None else [row_id.id])], file.n)
    ids = row_id.read(columns.__getitem__, file.n)
    return RowColumns({name: columns[name] for name in names}, ids, row_id.notes, row_id.indexed, row_id.id_name)


def _columns_of_matrix(path: Path, id: str | None, key: str | None) -> RowColumns:
    if suffix_of(path) == ".npy" and id is None and key is None:
        check_readable(path)
        with reading(path), path.open("rb") as handle:
            header = npy_header(path, handle, path.stat().st_size)
        if len(header.shape) == 1 and header.shape[0] and not header.dtype.hasobject:  # labels
            with reading(path):
                return RowColumns({"0": as_column(np.load(path, allow_pickle=False))}, None)
    table = read_table(path, id=id, key=key)
    names = table.features or tuple(map(str, range(table.d)))
    values = to_numpy(table.values)
    matrix = {name: values[:, j] for j, name in enumerate(names)}
    return RowColumns({**matrix, **table.metadata}, table.ids, table.notes, table.indexed)
