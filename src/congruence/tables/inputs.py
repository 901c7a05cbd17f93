"""Inputs of all verbs: files, frames and arrays become a `Table`, and rows of several tables are joined by id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, is_dask, is_tensor
from congruence.checks import check_integer
from congruence.errors import InputError, InputWarning, warn_caller
from congruence.files import InputFile, ReadFile, describe_file
from congruence.memory import check_fits, load_matrix
from congruence.options import ReadOptions, takes
from congruence.rows.blocks import DaskRows, fetch_rows
from congruence.rows.engine import Rows
from congruence.tables._pairing import (
    assign_ids,
    column_notes,
    joined_labels,
    joined_rows,
    pairing_notes,
    select_columns,
)
from congruence.tables._sampling import Sample, sample_by_hash
from congruence.tables.access import unique_names
from congruence.tables.address import as_path
from congruence.tables.columns import Selection
from congruence.tables.formats import honours
from congruence.tables.join import Index, Joined, join_tables, paired_clusters
from congruence.tables.parts import part_files, read_path
from congruence.tables.table import Table, is_anndata, is_frame, is_series

Names = str | Sequence[str] | None
LEAST_ROWS = 4  # of a sample: fewer cannot be divided into folds


def _is_path(x: object) -> bool:
    return isinstance(x, str | os.PathLike)


def is_table(x: object) -> bool:
    """Whether `x` may have ids or metadata: a path, `Table`, data frame, series or AnnData object."""
    return _is_path(x) or isinstance(x, Table) or is_frame(x) or is_series(x) or is_anndata(x)


@takes(ReadOptions)
def as_table(x: Any, *, name: str | None = None, options: ReadOptions) -> Table:
    """Return the rows of `x` as a table: values, and ids and metadata where it has them.

    The options are those of `read_table`. The index of a pandas frame holds the ids if it is not the default one.
    AnnData has its obs_names as ids and obs as metadata, and its key is "X", an entry of obsm or a layer.

    Parameters
    ----------
    x : array, tensor, dask array, sparse matrix, data frame, AnnData, Table or path
        numpy arrays and memory maps, torch tensors (on any device) and dask arrays are used without a copy. Data
        frames may be of pandas, polars, pyarrow or another library that narwhals supports. A path may be a file that
        `read_table` reads, a pattern (``"export/*.parquet"``) or a folder whose files are the parts of one table.
    name : str, optional
        The name of the run; by default the name of the table or the stem of the file.

    Returns
    -------
    Table
        Its `notes` name columns that were taken as ids or left out without having been named.
    """
    select = Selection(**asdict(options), name=name or "")
    where = name or "x"
    if _is_path(x):
        return read_path(x, select)
    select.refuse(where, "delimiter", "header", because="it is not a csv file")
    if isinstance(x, Table):
        return select_columns(x, select)
    if is_anndata(x):
        from congruence.tables._anndata import table_from_anndata

        return table_from_anndata(x, select, where)
    if is_frame(x) or is_series(x):
        from congruence.tables.frames import table_from_frame

        return table_from_frame(x, select, where)
    if hasattr(x, "to_dask_array"):
        raise InputError(f"{where} is a dask data frame; {where}.to_dask_array(lengths=True) returns its rows")
    if hasattr(x, "collect") and hasattr(x, "lazy"):
        raise InputError(f"{where} is a lazy frame; {where}.collect() returns its rows")
    select.refuse(where, "id", "features", "metadata", "key", because="an array has no named columns")
    return Table(_matrix(x, where), where)


def _matrix(x: Any, where: str) -> Any:
    """Return a matrix without a copy; a sparse one or one in an open file is read into memory."""
    if hasattr(x, "toarray"):
        size = int(np.prod(x.shape)) * x.dtype.itemsize
        check_fits(where, size, f"the sparse matrix of shape {x.shape} when dense")
    elif hasattr(x, "chunks") and hasattr(x, "ndim") and not is_dask(x) and x.ndim == 2:  # zarr, h5py
        return load_matrix(x, where)
    return as_matrix(x, where, finite=False)


@dataclass(frozen=True, eq=False)
class PairedRuns:
    """Runs whose rows are paired: row i of every matrix is the same sample."""

    names: list[str]
    values: list[Any]  # each (n, d_k)
    read: list[int]  # rows of each run before pairing
    cluster: Array | None  # (n,)
    labels: Array | None  # (n,) or (n, m)
    ids: Array | None  # (n,)
    metadata: dict[str, Array]  # of the first run, each (n,)
    by_id: bool  # whether the rows were paired by id rather than by position
    notes: list[str]  # how columns were chosen, which rows were left out, columns that could be ids
    features: list[tuple[str, ...] | None] = field(default_factory=list)  # names of the columns of each run
    blocks: list[DaskRows | None] = field(default_factory=list)  # the rows of each run that are on workers
    paths: tuple[ReadFile, ...] = ()
    id_name: str | None = None  # the column of the ids of the first run
    types: Mapping[str, Any] = field(default_factory=dict)  # of the ids and metadata of the first run in its file

    @cached_property
    def files(self) -> tuple[InputFile, ...]:
        """The files that the runs were read from, with size and checksum."""
        return tuple(describe_file(path) for path in self.paths)

    def rows(self, device: str, normalize: str | None) -> list[Rows]:
        """Return the rows of each run, to be summed by the workers that hold them unless a GPU is used."""
        blocks = self.blocks if device == "cpu" else [None] * len(self.values)
        return [
            Rows(values, device, normalize == "cosine", blocks=there)
            for values, there in zip(self.values, blocks, strict=True)
        ]


@takes(ReadOptions)
def gather(
    runs: Mapping[str, Any] | Sequence[Any] | Any,
    *,
    options: ReadOptions,
    cluster: Any = None,
    labels: Any = None,
    drop_missing: bool = False,
    rows: int | None = None,
    seed: int = 0,
) -> PairedRuns:
    """Read runs, pair their rows and check them; the options of `as_table` apply to the runs that support them.

    Rows are joined by id, in the order of the first run, if every run has ids. If some have none, rows are paired by
    position, with a `PairedByPositionWarning`, and the numbers of rows must agree.

    Parameters
    ----------
    runs : mapping of name to run, sequence of runs, or array of shape (runs, n, d)
        At least two; each is anything that `as_table` takes.
    cluster : array of shape (n,), or name of a metadata column, optional
        Which rows belong together. An array has one entry for each row of the first run.
    labels : array of shape (n,) or (n, m), or name of a metadata column of the first run, optional
        Labels of the rows, returned for the paired rows. An array has one entry for each row of the first run.
    drop_missing : bool, default False
        Leave out rows with NaN or infinity in any run instead of refusing them.
    rows : int, optional
        Take only this many of the paired rows, those with the least hashes of their ids (without ids, of their
        positions), before values are checked and copied. Clusters are taken whole until there are as many rows.
    seed : int, default 0
        Of the hash: another seed gives another sample.
    """
    if rows is not None:
        check_integer("rows", rows, LEAST_ROWS)
    names, items = _named(runs)
    tables = read_runs(items, names, asdict(options))
    return pair_tables(tables, cluster=cluster, labels=labels, drop_missing=drop_missing, rows=rows, seed=seed)


def read_runs(
    runs: Sequence[Any], names: Sequence[str], options: Mapping[str, Any], *, lazily: bool = False
) -> list[Table]:
    """Read every run with the options that it supports; an option that no run supports is refused.

    The id is passed to every run, because a run without ids cannot be joined by id. With `lazily`, the values of files
    are dask arrays, which workers read.
    """
    chosen = {option: value for option, value in options.items() if value is not None}
    check_options(runs, chosen)
    tables = []
    for run, name in zip(runs, names, strict=True):
        own = {option: value for option, value in chosen.items() if supports(run, option)}
        own["name"] = name
        is_path = _is_path(run)
        tables.append(read_path(run, Selection(**own), lazily=lazily) if is_path else as_table(run, **own))
    return tables


def supports(run: Any, option: str) -> bool:
    """Whether an option of `read_table` applies to a run; "id" always does."""
    if option == "id":
        return True
    if _is_path(run):
        return honours(part_files(run)[0], option)
    if option in ("delimiter", "header"):
        return False
    if is_anndata(run):
        return option != "metadata"
    return is_frame(run) or (isinstance(run, Table) and option == "features")


def check_options(runs: Sequence[Any], options: Iterable[str]) -> None:
    """Refuse an option that applies to none of the runs."""
    for option in options:
        if not any(supports(run, option) for run in runs):
            kind = f"files like {runs[0]}" if _is_path(runs[0]) else type(runs[0]).__name__
            raise InputError(f"{option} (--{option}) does not apply to {kind}")


def pair_tables(
    tables: Sequence[Table],
    *,
    cluster: Any = None,
    labels: Any = None,
    drop_missing: bool = False,
    rows: int | None = None,
    seed: int = 0,
) -> PairedRuns:
    """Pair the rows of tables with distinct names, as `gather` does; the options are described there."""
    # A re-pairing combines rows of one run with any rows of another, so the rows of workers are fetched once.
    fetched = fetch_rows({table.name: table.values for table in tables if is_dask(table.values)})
    tables = [replace(one, values=fetched[one.name][0]) if one.name in fetched else one for one in tables]
    tables, notes = assign_ids(tables)
    for option, value in {"cluster": cluster, "labels": labels}.items():
        if isinstance(value, str) and not any(table.metadata for table in tables):
            raise InputError(f"{option}={value!r} names a metadata column, but the runs have none; pass the labels")
    column = cluster if isinstance(cluster, str) else None

    def choose(paired: Sequence[Index], ids: Array | None) -> Sample | None:
        if column is None:
            clusters = joined_rows(cluster, tables[0], "cluster", 1, paired[0])
        else:
            clusters = paired_clusters(tables, paired, column, ids)
        return None if rows is None else sample_by_hash(len(paired[0]), rows, seed, ids=ids, cluster=clusters)

    joined = join_tables(tables, drop_missing=drop_missing, cluster=column, choose=None if rows is None else choose)
    # Blocks are still the rows of a run if none was left out or moved: then the matrix is returned as it is.
    sources = [fetched.get(table.name, (None, None)) for table in tables]
    return PairedRuns(
        names=list(joined.names),
        values=joined.values,
        read=[table.n for table in tables],
        cluster=joined.cluster if column else joined_rows(cluster, tables[0], "cluster", 1, joined.rows[0]),
        labels=joined_labels(joined, labels, tables[0]),
        ids=joined.ids,
        metadata=dict(joined.metadata),
        by_id=not joined.by_position,
        notes=[*notes, *pairing_notes(joined), *column_notes(tables, joined.values)],
        features=[table.features for table in tables],
        blocks=[blocks if x is here else None for x, (here, blocks) in zip(joined.values, sources, strict=True)],
        paths=paths_of(tables),
        id_name=next((table.id_name for table in tables if table.ids is not None), None),
        types=tables[0].types,
    )


def as_paired(x: Any, y: Any, names: tuple[str, str] = ("x", "y")) -> tuple[Any, Any]:
    """Return two matrices of finite numbers with paired rows; those of tables are joined by id."""
    if is_table(x) or is_table(y):
        x, y = join_two(x, y, names).values
        return x, y
    x, y = (as_matrix(one, name) for one, name in zip((x, y), names, strict=True))
    if len(x) != len(y):
        raise InputError(
            f"{names[0]} and {names[1]} must have paired rows, but {names[0]} has {len(x)} and {names[1]} has {len(y)}"
        )
    return x, y


def join_two(x: Any, y: Any, names: tuple[str, str] = ("x", "y")) -> Joined:
    """Join the rows of two runs; notes become an `InputWarning`."""
    tables, notes = assign_ids([as_table(one, name=name) for one, name in zip((x, y), names, strict=True)])
    joined = join_tables(tables)
    warn_of([*notes, *pairing_notes(joined)])
    return joined


def as_rows(x: Any, name: str = "x") -> Any:
    """Return the rows of anything that `as_table` takes as a matrix of finite numbers, without a copy."""
    if not is_table(x):
        return as_matrix(x, name)
    table = as_table(x, name=name)
    warn_of(table.notes)
    return as_matrix(table.values, name)


def warn_of(notes: Iterable[str]) -> None:
    """Issue notes about inputs as warnings, for functions whose result has no notes."""
    for note in notes:
        warn_caller(note, InputWarning)


def _named(runs: Any) -> tuple[list[str], list[Any]]:
    if isinstance(runs, Mapping):
        names, items = [str(name) for name in runs], list(runs.values())
    elif isinstance(runs, list | tuple) or (
        (isinstance(runs, np.ndarray) or is_tensor(runs) or is_dask(runs)) and runs.ndim == 3
    ):
        items = [runs[i] for i in range(len(runs))]
        names = _names(items)
    else:
        what = f"an array of shape {tuple(runs.shape)}" if hasattr(runs, "shape") else f"one {type(runs).__name__}"
        raise InputError(
            f"comparing takes at least 2 runs, but {what} was given; pass a list of runs, a mapping from name to run, "
            "or an array of shape (runs, n, d)"
        )
    if len(items) < 2:
        raise InputError(f"comparing takes at least 2 runs, but {len(items)} was given" if items else "no runs given")
    if len(set(names)) < len(names):
        raise InputError(f"runs must have different names, but are called {', '.join(names)}")
    return names, items


def _names(items: list[Any]) -> list[str]:
    """Name tables by their names, paths by their stems, others by number; add folders where names are equal."""
    paths = [os.fspath(run) for run in items if _is_path(run)]
    stems = iter(unique_names(paths))
    names = [
        run.name if isinstance(run, Table) else next(stems) if _is_path(run) else f"run{i}"
        for i, run in enumerate(items)
    ]
    if len(set(names)) == len(names):
        return names
    return unique_names(
        [
            getattr(run, "path", None) or (run if isinstance(run, str | Path) else name)
            for run, name in zip(items, names, strict=True)
        ]
    )


def files_of(*given: Any) -> list[ReadFile]:
    """Return the files of paths, patterns, folders of parts and tables, as they are now or were when they were read."""
    files = []
    for x in given:
        if isinstance(x, str | os.PathLike):
            files += [ReadFile.now(as_path(path)) for path in part_files(x)]
        elif isinstance(x, Table):
            files += x.read
    return files


def paths_of(tables: Sequence[Table]) -> tuple[ReadFile, ...]:
    """Return the files that tables were read from, as they were then."""
    return tuple(file for table in tables for file in table.read)
