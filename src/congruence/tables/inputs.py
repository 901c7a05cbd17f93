"""One rule for all inputs: whatever holds rows becomes a `Table`, and rows of several are joined by id or refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, is_dask, is_tensor
from congruence.errors import InputError, InputWarning
from congruence.files import InputFile, describe_file
from congruence.rows.engine import Rows
from congruence.tables._honours import honours
from congruence.tables._pairing import column_notes, identified, labels_of, pairing_notes, per_row, reselected
from congruence.tables.blocks import DaskRows, brought
from congruence.tables.columns import Selection, patterns
from congruence.tables.frames import is_anndata, is_frame, is_series, table_from_frame
from congruence.tables.join import Joined, join_tables
from congruence.tables.memory import check_fits
from congruence.tables.names import unique_names
from congruence.tables.parts import lazy_parts, part_files, read_parts
from congruence.tables.read_anndata import table_from_anndata
from congruence.tables.spill import load_matrix
from congruence.tables.table import Table

Names = str | Sequence[str] | None


def is_table(x: object) -> bool:
    """Whether `x` knows more than its values: a path, `Table`, data frame, series or AnnData object."""
    return isinstance(x, str | os.PathLike | Table) or is_frame(x) or is_series(x) or is_anndata(x)


def as_table(
    x: Any,
    *,
    name: str | None = None,
    id: str | None = None,
    features: Names = None,
    metadata: Names = None,
    key: str | None = None,
) -> Table:
    """Return the rows of `x` as a table: values, and ids and metadata where it has them.

    Parameters
    ----------
    x : array, tensor, dask array, sparse matrix, data frame, AnnData, Table or path
        numpy arrays and memory maps, torch tensors (on any device) and dask arrays are used where they are. Data
        frames may be of pandas, polars, pyarrow or another library that narwhals knows. A path may be a file that
        `read_table` knows, a pattern (``"export/*.parquet"``) or a folder whose files are the parts of one table.
    name : str, optional
        What the run is called; by default the name of the table or the stem of the file.
    id, features, metadata, key : optional
        As for `read_table`. The index of a pandas frame holds the ids if it is not the default one; obs_names are the
        ids and obs the metadata of AnnData, whose matrix is "X" or the entry `key` of obsm.

    Returns
    -------
    Table
        Its `notes` name columns that were taken as ids or left out without having been named.
    """
    select = Selection(id, patterns(features), patterns(metadata), key, name or "")
    where = name or "x"
    if isinstance(x, str | os.PathLike):
        wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
        return _read(os.fspath(x), name, wishes, lazily=False)
    if isinstance(x, Table):
        return reselected(x, select)
    if is_anndata(x):
        return table_from_anndata(x, select, where)
    if is_frame(x) or is_series(x):
        return table_from_frame(x if is_frame(x) else as_frame(x), select, where)
    if hasattr(x, "to_dask_array"):
        raise InputError(f"{where} is a dask data frame; {where}.to_dask_array(lengths=True) gives its rows")
    if hasattr(x, "collect") and hasattr(x, "lazy"):
        raise InputError(f"{where} is a lazy frame; {where}.collect() gives its rows")
    select.refuse(where, "id", "features", "metadata", "key", because="an array has no named columns")
    return Table(_matrix(x, where), where)


def _read(path: str, name: str | None, wishes: Mapping[str, Any], *, lazily: bool) -> Table:
    files = part_files(path)
    folder = Path(path) if len(files) > 1 and Path(path).is_dir() else None
    called = name or (None if folder is None else folder.name)
    table = (lazy_parts if lazily else read_parts)(files, **wishes, name=called)
    return table if folder is None else replace(table, path=folder, parts=())


def as_frame(series: Any) -> Any:
    """A series as a data frame of one column."""
    named = getattr(series, "name", None)
    return series.to_frame() if named not in (None, "") else series.rename("0").to_frame()


def _matrix(x: Any, where: str) -> Any:
    """A matrix, where it is; what is sparse or in an open file is brought into memory."""
    if hasattr(x, "toarray"):
        size = int(np.prod(x.shape)) * x.dtype.itemsize
        check_fits(where, size, f"the sparse matrix of shape {x.shape} when dense")
    elif hasattr(x, "chunks") and hasattr(x, "ndim") and not is_dask(x) and x.ndim == 2:  # zarr, h5py
        return load_matrix(x, where)
    return as_matrix(x, where, finite=False)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Runs whose rows are paired: row i of every matrix is the same sample."""

    names: list[str]
    values: list[Any]  # each (n, d_k)
    read: list[int]  # rows each run had before pairing
    cluster: Array | None  # (n,)
    labels: Array | None  # (n,) or (n, m)
    ids: Array | None  # (n,)
    metadata: dict[str, Array]  # of the first run, each (n,)
    by_id: bool  # whether ids, rather than positions, paired the rows
    notes: list[str]  # how columns were chosen, rows that were left out, columns that look like ids
    features: list[tuple[str, ...] | None] = field(default_factory=list)  # names of the columns of each run
    blocks: list[DaskRows | None] = field(default_factory=list)  # the rows of each run on workers, where they are there
    paths: tuple[Path, ...] = ()

    @cached_property
    def files(self) -> tuple[InputFile, ...]:
        """The files that the runs were read from, with size and checksum."""
        return tuple(describe_file(path) for path in self.paths)

    def rows(self, device: str, normalize: str | None) -> list[Rows]:
        """The rows of each run, to be summed by workers where they have them; a graphics card is faster than these."""
        blocks = self.blocks if device == "cpu" else [None] * len(self.values)
        return [
            Rows(values, device, normalize == "cosine", blocks=there)
            for values, there in zip(self.values, blocks, strict=True)
        ]


def gather(
    runs: Mapping[str, Any] | Sequence[Any] | Any,
    *,
    id: str | None = None,
    features: Names = None,
    metadata: Names = None,
    key: str | None = None,
    cluster: Any = None,
    labels: Any = None,
    drop_missing: bool = False,
) -> Inputs:
    """Read runs, pair their rows and check them.

    Rows are joined by id, in the order of the first run, if every run has ids. If some have none, rows are paired by
    position, with a `PairedByPositionWarning`; the numbers of rows must then agree.

    Parameters
    ----------
    runs : mapping of name to run, sequence of runs, or array of shape (runs, n, d)
        At least two; each is anything that `as_table` takes.
    id, features, metadata, key : optional
        As for `as_table`; an option is used for the runs that can honour it, the id for all.
    cluster : array of shape (n,), or name of a metadata column, optional
        Which rows belong together. An array has one entry for each row of the first run.
    labels : array of shape (n,) or (n, m), or name of a metadata column of the first run, optional
    drop_missing : bool
        Leave out rows with NaN or infinity in any run instead of refusing them.
    """
    names, given = _named(runs)
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    return pair_tables(read_runs(given, names, wishes), cluster=cluster, labels=labels, drop_missing=drop_missing)


def read_runs(
    given: Sequence[Any], names: Sequence[str], wishes: Mapping[str, Any], *, lazily: bool = False
) -> list[Table]:
    """Read every run with the options that it can honour; an option that fits no run is refused.

    Ids are not like the other options: a run without them cannot be joined, so they are asked of every run. With
    `lazily`, the values of files are dask arrays, which workers read.
    """
    asked = {option: value for option, value in wishes.items() if value is not None}
    check_honoured(given, [option for option in asked if option != "id"])
    tables = []
    for run, name in zip(given, names, strict=True):
        mine = {option: value for option, value in asked.items() if option == "id" or honoured(run, option)}
        is_path = isinstance(run, str | os.PathLike)
        table = _read(os.fspath(run), name, mine, lazily=lazily) if is_path else as_table(run, name=name, **mine)
        tables.append(table)
    return tables


def honoured(run: Any, option: str) -> bool:
    """Whether "features", "metadata" or "key" means anything for a run."""
    if isinstance(run, str | os.PathLike):
        return honours(part_files(run)[0], option)
    if is_anndata(run):
        return option != "metadata"
    return is_frame(run) or (isinstance(run, Table) and option == "features")


def check_honoured(runs: Sequence[Any], options: Iterable[str]) -> None:
    """Refuse an option that means nothing for any of the runs."""
    for option in options:
        if not any(honoured(run, option) for run in runs):
            kind = f"files like {runs[0]}" if isinstance(runs[0], str | os.PathLike) else type(runs[0]).__name__
            raise InputError(f"--{option} means nothing for {kind}")


def pair_tables(
    tables: Sequence[Table], *, cluster: Any = None, labels: Any = None, drop_missing: bool = False
) -> Inputs:
    """Pair the rows of tables; `gather` for what has been read."""
    # Re-pairings put rows of one run beside any rows of another, so what workers hold is brought here once.
    there = brought({table.name: table.values for table in tables if is_dask(table.values)})
    tables = [replace(one, values=there[one.name][0]) if one.name in there else one for one in tables]
    tables, notes = identified(tables)
    column = cluster if isinstance(cluster, str) else None
    if column is not None and not any(table.metadata for table in tables):
        raise InputError(f"cluster={column!r} names a metadata column, but the runs have none; pass the labels")
    if isinstance(labels, str) and not any(table.metadata for table in tables):
        raise InputError(f"labels={labels!r} names a metadata column, but the runs have none; pass the labels")
    joined = join_tables(tables, drop_missing=drop_missing, cluster=column)
    first = joined.rows[0]
    groups = joined.cluster if column is not None else per_row(cluster, tables[0], "cluster", 1, first)
    # Blocks are still the rows of a run if none was left out or moved, which is when they are handed on as they are.
    rows = [there.get(table.name, (None, None)) for table in tables]
    return Inputs(
        names=list(joined.names),
        values=joined.values,
        read=[table.n for table in tables],
        cluster=groups,
        labels=labels_of(joined, labels, tables[0]),
        ids=joined.ids,
        metadata=dict(joined.metadata),
        by_id=not joined.by_position,
        notes=[*notes, *pairing_notes(joined), *column_notes(tables, joined.values)],
        features=[table.features for table in tables],
        blocks=[found if x is here else None for x, (here, found) in zip(joined.values, rows, strict=True)],
        paths=paths_of(tables),
    )


def as_paired(x: Any, y: Any, names: tuple[str, str] = ("x", "y")) -> tuple[Any, Any]:
    """Return two matrices of finite numbers whose rows belong together; those of tables are joined by id."""
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
    """Join the rows of two runs; what a result would note is an `InputWarning`."""
    tables, notes = identified([as_table(one, name=name) for one, name in zip((x, y), names, strict=True)])
    joined = join_tables(tables)
    warn_of([*notes, *pairing_notes(joined)])
    return joined


def as_rows(x: Any, name: str = "x") -> Any:
    """Return the rows of anything that `as_table` takes as a matrix of finite numbers, where they are."""
    if not is_table(x):
        return as_matrix(x, name)
    table = as_table(x, name=name)
    warn_of(table.notes)
    return as_matrix(table.values, name)


def warn_of(notes: Iterable[str]) -> None:
    """Warn of what was noted about inputs, for functions whose result has no notes."""
    for note in notes:
        warnings.warn(note, InputWarning, stacklevel=4)


def _named(runs: Any) -> tuple[list[str], list[Any]]:
    if isinstance(runs, Mapping):
        names, given = [str(name) for name in runs], list(runs.values())
    elif isinstance(runs, list | tuple):
        given = list(runs)
        names = _names(given)
    elif (isinstance(runs, np.ndarray) or is_tensor(runs) or is_dask(runs)) and runs.ndim == 3:
        given = [runs[i] for i in range(len(runs))]
        names = _names(given)
    else:
        what = f"an array of shape {tuple(runs.shape)}" if hasattr(runs, "shape") else f"one {type(runs).__name__}"
        raise InputError(
            f"comparing takes at least 2 runs, but {what} was given; pass a list of runs, a mapping from name to run, "
            "or an array of shape (runs, n, d)"
        )
    if len(given) < 2:
        raise InputError(f"comparing takes at least 2 runs, but {len(given)} was given" if given else "no runs given")
    if len(set(names)) < len(names):
        raise InputError(f"runs must have different names, but are called {', '.join(names)}")
    return names, given


def _names(given: list[Any]) -> list[str]:
    """Tables keep their names, paths give their stems, others are numbered; clashes are told apart by folder."""
    paths = [run for run in given if isinstance(run, str | os.PathLike)]
    stems = iter(unique_names([os.fspath(path) for path in paths]) if paths else ())
    names = [
        run.name if isinstance(run, Table) else next(stems) if isinstance(run, str | os.PathLike) else f"run{i}"
        for i, run in enumerate(given)
    ]
    if len(set(names)) == len(names):
        return names
    return unique_names(
        [
            getattr(run, "path", None) or (run if isinstance(run, str | Path) else name)
            for run, name in zip(given, names, strict=True)
        ]
    )


def paths_of(tables: Sequence[Table]) -> tuple[Path, ...]:
    """The files that tables were read from."""
    return tuple(path for table in tables for path in (table.parts or ([table.path] if table.path else [])))
