"""Read an embedding table from a file of any supported format."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import TableError
from congruence.guards import check_folder, check_readable, reading, suffix_of
from congruence.options import ReadOptions, takes
from congruence.tables.access import map_npy, stem_of
from congruence.tables.address import as_path
from congruence.tables.columns import INDEX_NAMES, LIST, NESTED, Selection, Source, check_columns, choose_id
from congruence.tables.formats import BY_SUFFIX, COLUMNAR, check_format
from congruence.tables.table import Table, as_column

CODES = "latents.parquet"  # in the folder of a training, as `experiments.runs` writes it


def read_table(
    path: str | Path,
    *,
    id: str | None = None,
    features: str | Sequence[str] | None = None,
    metadata: str | Sequence[str] | None = None,
    key: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    name: str | None = None,
) -> Table:
    """Read an embedding table: values, and row ids and metadata where the file has them.

    Nothing is ever unpickled, and a table that would not fit in memory is refused before it is read. Files that can be
    mapped into memory (.npy, uncompressed .arrow with a column of lists, .safetensors, .pt, .fbin, .fvecs, flat FAISS
    indexes) are not loaded, and a matrix of more than 256 MB from another file (except .npz and .mat) is stored in a
    temporary file, which is mapped. NaN is preserved; `join_tables` refuses or drops it.

    Parameters
    ----------
    path : str or Path
        A file, or a folder for .zarr and .lance. The suffix determines the format; `SUFFIXES` lists the supported ones.
        Also a pattern (``"export/*.parquet"``), a folder whose files are the parts of one table, a Hugging Face dataset
        that was saved to a folder, an address (``s3://``, ``gs://``, ``file://``), or "-" for csv or parquet from
        standard input. In the folder of a training (`experiments.runs`), the codes are read.
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
        Which array inside the file: its name in .npz, .safetensors, .pt, .zarr, .h5 and .mat; "X" or a key of obsm for
        AnnData; the column of lists in .parquet, .arrow, .lance and .jsonl.
    delimiter : str, optional
        The character between the cells of a csv file, or "tab"; by default the one that divides the first lines
        equally (comma, semicolon, tab or bar).
    header : bool, optional
        Whether the first line of a csv file holds the names of the columns; by default unless it holds only numbers, or
        numbers with fractions.
    name : str, optional
        The name of the run; by default the stem of the file.

    Returns
    -------
    Table
        float32 and float64 are preserved; columns of both, and columns of integers, become float64.
        Columns of lists or structs that are not the values are left out.
    """
    from congruence.tables.parts import read_path

    return read_path(path, Selection(id, features, metadata, key, delimiter, header, name or ""))


def read_selected(path: Path, select: Selection) -> Table:
    """Read an embedding table; `read_table` with its options in one object."""
    if suffix_of(path) not in BY_SUFFIX and (path / CODES).is_file():
        check_folder(path, names=[CODES])
        return read_selected(path / CODES, replace(select, name=select.name or path.name))
    known = check_format(path)
    for option in ("delimiter", "header"):
        if option not in known.options:
            select.refuse(path, option, because="it is not a csv file")
    select = replace(select, name=select.name or stem_of(path))
    with warnings.catch_warnings(), reading(path):
        warnings.simplefilter("ignore")  # a file is read, or refused with an error
        table: Table = known.read(path, select)
        return table


def column_names(path: str | Path, select: Selection | None = None) -> tuple[str, ...] | None:
    """Return the names of all columns of a csv, parquet or arrow file; None for formats that store arrays."""
    select = select or Selection()
    path = as_path(path)
    if suffix_of(path) not in COLUMNAR:
        return None
    from congruence.tables._arrow import open_columnar
    from congruence.tables._csv import layout_of_csv

    if suffix_of(path).startswith((".csv", ".tsv")):
        check_format(path)
        with reading(path):
            names = layout_of_csv(path, select).names
        check_columns(names, path)
        return tuple(names)
    with open_columnar(path, select) as file:
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


@takes(ReadOptions)
def read_row_columns(path: str | Path, *, options: ReadOptions) -> RowColumns:
    """Read every column of a file of any format that `read_table` supports; text is returned as Python strings.

    The columns of a file that holds a matrix are those of the matrix (called 0, 1, ... if they have no names) and the
    metadata. Columns of lists and the index of a pandas frame are left out. The options are those of `read_table`;
    `features` and `metadata` name columns that are not ids, unless `id` names them.
    """
    return row_columns(as_path(path), Selection(**asdict(options)))


def row_columns(path: Path, select: Selection) -> RowColumns:
    """Read every column of a file; `read_row_columns` with its options in one object."""
    if suffix_of(path) not in COLUMNAR:
        return _columns_of_matrix(path, select.id, select.key)
    from congruence.tables._arrow import open_columnar

    with open_columnar(path, select, all_columns=True) as file:
        return columns_of(file.source, select, without=INDEX_NAMES)


def columns_of(source: Source, select: Selection, *, without: Sequence[str] = ()) -> RowColumns:
    """Read every column of a file or data frame besides its ids; columns of lists are left out."""
    assert source.take is not None
    kinds, row_id = source.kinds, choose_id(source, select)
    apart = {*source.index, *without, row_id.id}
    names = [name for name in kinds if name not in apart and kinds[name] not in (LIST, NESTED)]
    if not names or not source.n:
        raise TableError(f"{source.where} has no columns with rows besides its ids; it has {listing(list(kinds), 10)}")
    columns = source.take([*names, *([] if row_id.id is None else [row_id.id])], source.n)
    ids = row_id.read(columns.__getitem__, source.n)
    return RowColumns({name: columns[name] for name in names}, ids, row_id.notes, row_id.indexed, row_id.id_name)


def _columns_of_matrix(path: Path, id: str | None, key: str | None) -> RowColumns:
    if suffix_of(path) == ".npy" and id is None and key is None:
        check_readable(path)
        with reading(path):
            array = map_npy(path)
            if array.ndim == 1 and len(array):  # labels
                return RowColumns({"0": as_column(np.array(array))}, None)
    table = read_table(path, id=id, key=key)
    names = table.features or tuple(map(str, range(table.d)))
    values = to_numpy(table.values)
    matrix = {name: values[:, j] for j, name in enumerate(names)}
    return RowColumns({**matrix, **table.metadata}, table.ids, table.notes, table.indexed)
