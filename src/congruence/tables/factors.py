"""Learned codes and the true factors of the same rows: two tables, paired by id or position."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError, TableError
from congruence.files import InputFile, ReadFile, describe_file
from congruence.options import ReadOptions, takes
from congruence.tables._pairing import assign_ids, joined_rows
from congruence.tables.address import as_path
from congruence.tables.columns import PREFIX, Selection, patterns
from congruence.tables.frames import columns_from_frame
from congruence.tables.inputs import Names, as_table, check_options, files_of, is_table, supports
from congruence.tables.join import join_tables
from congruence.tables.names import difference
from congruence.tables.parts import part_files
from congruence.tables.read import RowColumns, row_columns
from congruence.tables.table import Table, concatenate_labels, is_anndata, is_frame, is_series, missing_labels


@dataclass(frozen=True, eq=False)
class CodesAndFactors:
    """Learned codes and true factors of the same rows."""

    name: str
    codes: Any  # (n, L)
    code_names: tuple[str, ...] | None
    factors: dict[str, Array]  # each (n,)
    cluster: Array | None  # (n,)
    ids: Array | None  # (n,)
    by_id: bool
    notes: tuple[str, ...]  # how columns were chosen and rows were paired
    paths: tuple[ReadFile, ...] = ()

    @cached_property
    def files(self) -> tuple[InputFile, ...]:
        """The files that codes and factors were read from, with size and checksum."""
        return tuple(describe_file(path) for path in self.paths)


@takes(ReadOptions)
def pair(
    codes: Any,
    factors: Any = None,
    *,
    options: ReadOptions,
    columns: Names = None,
    cluster: Any = None,
    drop_missing: bool = False,
) -> CodesAndFactors:
    """Pair learned codes with the true factors of the same rows, by the rule of `gather`.

    The options are those of `as_table`, for the codes; `id`, `delimiter` and `header` are also those of the factors.

    Parameters
    ----------
    codes : anything that `as_table` takes
        The learned codes.
    factors : array of shape (n,) or (n, K), data frame, mapping of name to column, Table or path, optional
        Numbers or words. Without it, the factors are columns of `codes`, which `columns` names.
    columns : str or list of str, optional
        Names or glob patterns of the columns that are factors; by default all columns of `factors`.
    cluster : array of shape (n,), or name of a metadata column, optional
        Which rows belong together. An array has one entry for each row of the codes.
    drop_missing : bool, default False
        Leave out rows with a missing code or factor instead of refusing them.
    """
    if factors is None and columns is None:
        raise InputError(
            "factors are needed: pass them, or name those columns of codes that are factors with factor_columns "
            "(--factor-columns)"
        )
    own = factors is None
    source = codes if own else factors
    shared: dict[str, Any] = {name: getattr(options, name) for name in ("id", "delimiter", "header")}
    facts = as_columns(source, name="factors", key=options.key if own else None, keep=columns, **shared)
    where = os.fspath(source) if isinstance(source, str | os.PathLike) else "codes" if own else "factors"
    names = _choose_factors(facts, columns, where, without=cluster)
    table = _read_codes(codes, asdict(options), list(names.values()) if own else [])
    tables = [replace(table, name="codes"), _row_numbers(facts, names, own=own, drop_missing=drop_missing)]
    tables, notes = ([replace(one, ids=None) for one in tables], list(table.notes)) if own else assign_ids(tables)
    joined = join_tables(tables, drop_missing=drop_missing, cluster=cluster if isinstance(cluster, str) else None)
    first, at = joined.rows
    groups = joined.cluster if isinstance(cluster, str) else joined_rows(cluster, table, "cluster", 1, first)
    for one, count in joined.unmatched.items():
        notes += [f"{count} rows of {one} have no partner and were left out."] if count else []
    if sum(joined.dropped.values()):
        notes.append(f"Rows with missing values were left out; {joined.n} are left.")
    if joined.by_position and not own and (is_table(codes) or is_table(factors)):
        notes.append("Rows of codes and factors were paired by position.")
    return CodesAndFactors(
        name=table.name,
        codes=joined.values[0],
        code_names=table.features,
        factors={one: facts.columns[full][at] for one, full in names.items() if full in tables[1].metadata},
        cluster=groups,
        ids=joined.ids,
        by_id=not joined.by_position,
        notes=tuple(notes),
        paths=tuple(dict.fromkeys(files_of(table, factors))),
    )


@takes(ReadOptions)
def as_columns(x: Any, *, options: ReadOptions, name: str = "factors", keep: Names = None) -> RowColumns:
    """Return all columns of `x` by name, numbers and text, and its ids where it has them.

    The options are those of `read_row_columns`.

    Parameters
    ----------
    x : array of shape (n,) or (n, K), data frame, series, mapping of name to column, AnnData, Table or path
        The columns; those of an array are called factor0, factor1, ...
    name : str, default "factors"
        The name of the argument, for messages.
    keep : str or list of str, optional
        Names or glob patterns of columns that are not ids, unless `id` names them; without the prefix of metadata.
    """
    select = Selection(**asdict(options))
    if keep is not None:
        select = replace(select, features=[p for one in patterns(keep) or () for p in (one, PREFIX + one)])
    if isinstance(x, str | os.PathLike):
        files = part_files(x)
        first = row_columns(as_path(files[0]), select)
        return first if len(files) == 1 else _join_parts(files, first, select, all_columns=keep is None)
    if isinstance(x, Table) or is_anndata(x):
        table = as_table(x, name=name, id=select.id, key=select.key)
        values, names = to_numpy(table.values), table.features or tuple(f"factor{j}" for j in range(table.d))
        own = {} if is_anndata(x) else {one: values[:, j] for j, one in enumerate(names)}
        return RowColumns({**own, **table.metadata}, table.ids, table.notes, table.indexed)
    if is_frame(x) or is_series(x):
        return columns_from_frame(x, select, name)
    if isinstance(x, Mapping) and x and all(is_series(column) and hasattr(column, "index") for column in x.values()):
        import pandas as pd

        return columns_from_frame(pd.DataFrame(dict(x)), select, name)
    select.refuse(name, "id", "key", because="it has no named columns other than the factors")
    return RowColumns(_array_columns(x, name), None)


def _join_parts(files: Sequence[str], first: RowColumns, select: Selection, *, all_columns: bool) -> RowColumns:
    """Join the parts of a table, whose ids and columns are those of the first; without `all_columns`, those named."""

    def compared(part: RowColumns) -> list[str]:
        globs = ("*",) if all_columns else select.features or ()
        return [name for name in part.columns if any(fnmatchcase(name, glob) for glob in globs)]

    parts, select = [first], replace(select, id=select.id or first.id_name, no_id=first.ids is None)
    for file in files[1:]:
        part = row_columns(as_path(file), select)
        if why := difference(compared(part), compared(first)):
            raise TableError(f"{file} does not have the columns of {files[0]}: it {why}")
        parts.append(part)
    common = [name for name in first.columns if all(name in part.columns for part in parts)]
    labels = concatenate_labels([(part.ids, {name: part.columns[name] for name in common}) for part in parts])
    return RowColumns(labels["metadata"], labels["ids"], first.notes)


def _array_columns(x: Any, name: str) -> dict[str, Array]:
    if isinstance(x, Mapping):
        columns = {str(one): to_numpy(column) for one, column in x.items()}
    else:
        matrix = to_numpy(x)
        matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        if matrix.ndim != 2:
            raise InputError(f"{name} must be a matrix (rows, factors), but has shape {matrix.shape}")
        columns = {f"factor{j}": matrix[:, j] for j in range(matrix.shape[1])}
    if not columns:
        raise InputError(f"{name} is empty: it has no columns")
    for one, column in columns.items():
        if column.ndim != 1:
            raise InputError(f"factor {one} must be one column, but has shape {column.shape}")
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) > 1:
        raise InputError(f"{name} must all have as many rows, but have {', '.join(map(str, lengths))}")
    if lengths == [0]:
        raise InputError(f"{name} is empty: it has no rows")
    return columns


def _choose_factors(facts: RowColumns, columns: Names, where: str, *, without: Any) -> dict[str, str]:
    """Return the names of the factors, and the names of their columns in the file."""
    short = {name if _short_name(name) in facts.columns else _short_name(name): name for name in facts.columns}
    without = without if isinstance(without, str) else None
    if columns is None:
        return {name: full for name, full in short.items() if without not in (name, full)}
    chosen: dict[str, str] = {}
    for pattern in patterns(columns) or ():
        hits = {name: full for name, full in short.items() if fnmatchcase(name, pattern) or pattern in (name, full)}
        if not hits:
            raise InputError(
                f"no column of {where} matches factor_columns {pattern!r}; it has {listing(list(short), 10)}"
            )
        chosen |= hits
    return chosen


def _short_name(name: str) -> str:
    """Return a column name without prefix; columns that have only numbers are named like those of an array."""
    return f"factor{name}" if name.isdecimal() else name.removeprefix(PREFIX)


def _read_codes(codes: Any, options: Mapping[str, Any], factors: list[str]) -> Table:
    """Read the codes, without the columns that are factors."""
    chosen = {option: value for option, value in options.items() if value is not None}
    check_options([codes], chosen)
    if factors and supports(codes, "metadata"):
        chosen["metadata"] = [*(patterns(chosen.get("metadata")) or ()), *factors]
    table = as_table(codes, name=None if isinstance(codes, str | os.PathLike | Table) else "codes", **chosen)
    names = table.features or tuple(map(str, range(table.d)))  # as `read_row_columns` names them
    keep = [j for j, name in enumerate(names) if name not in factors]
    if len(keep) == table.d:
        return table
    if not keep:
        raise InputError(f"factor_columns names all columns of {table.path or table.name}, so no codes are left")
    features = tuple(names[j] if table.features else f"code{j}" for j in keep)
    return replace(table, values=to_numpy(table.values)[:, keep], features=features)


def _row_numbers(facts: RowColumns, names: Mapping[str, str], *, own: bool, drop_missing: bool) -> Table:
    """Return the factors as a table of row numbers, NaN where a factor is missing and such rows are left out."""
    numbers = np.arange(facts.n, dtype=np.float64)
    for name, full in names.items():
        missing = np.flatnonzero(missing_labels(facts.columns[full]))
        if missing.size and not drop_missing:
            raise InputError(
                f"factor {name} has missing values (row {listing(missing)}); leave such rows out with "
                "drop_missing=True (--drop-missing)"
            )
        numbers[missing] = np.nan
    ids = None if own else facts.ids
    return Table(numbers[:, None], "factors", ids, facts.columns, notes=facts.notes, indexed=facts.indexed and not own)
