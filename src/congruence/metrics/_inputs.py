"""Codes and factors as users have them, brought into the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, listing, to_numpy
from congruence.errors import InputError
from congruence.metrics._options import EvaluateOptions
from congruence.metrics.factors import factor_columns
from congruence.metrics.notes import Note
from congruence.tables import Joined, RowColumns, Table, join_tables, read_row_columns, read_table
from congruence.tables.columns import PREFIX, patterns
from congruence.tables.honours import honours
from congruence.tables.labels import missing_labels

CLUSTER = "__cluster__"  # a metadata column for clusters that were given as an array


@dataclass(frozen=True, eq=False)
class Rows:
    """Codes and factors of the same rows."""

    name: str
    codes: Array  # (n, L)
    code_names: tuple[str, ...]
    factors: Mapping[str, Array]  # each (n,)
    cluster: Array | None  # (n,)
    by_id: bool
    notes: tuple[Note, ...]


def pair_rows(codes: Any, factors: Any, options: EvaluateOptions) -> Rows:
    """Read codes and factors, and pair their rows by id, or by position where one of them has no ids."""
    own = factors is None
    if own and options.factor_columns is None:
        raise InputError("give factors, or name those columns of the codes that are factors with factor_columns")
    _check_frames(codes, factors)
    facts = _facts(codes if own else factors, options)
    names = _picked(facts, options)
    table = _codes(codes, options, set_aside=list(names.values()) if own else [])
    return _joined(table, facts, names, own, options)


def _check_frames(codes: Any, factors: Any) -> None:
    """Data frames are paired row by row like arrays, so their indexes must not say otherwise."""
    frames = all(hasattr(x, "index") and hasattr(x, "columns") for x in (codes, factors))
    if frames and len(codes) == len(factors) and not codes.index.equals(factors.index):
        raise InputError(
            "the data frames codes and factors have different indexes: "
            "reindex one like the other, or pass frame.to_numpy() to pair them row by row"
        )


def _facts(factors: Any, options: EvaluateOptions) -> RowColumns:
    """Every column of the factors, by name, and the ids of the rows."""
    if isinstance(factors, str | Path):
        return read_row_columns(factors, id=options.id)
    if isinstance(factors, Table):
        values = to_numpy(factors.values)
        names = factors.features or tuple(map(str, range(factors.d)))
        return RowColumns({**{name: values[:, j] for j, name in enumerate(names)}, **factors.metadata}, factors.ids)
    return RowColumns(factor_columns(factors), None)


def _picked(facts: RowColumns, options: EvaluateOptions) -> dict[str, str]:
    """The columns that are factors: their short names, and their names in the file."""
    short = {name if _short(name) in facts.columns else _short(name): name for name in facts.columns}
    wanted = patterns(options.factor_columns)
    if wanted is None:
        cluster = options.cluster if isinstance(options.cluster, str) else None
        return {name: full for name, full in short.items() if cluster not in (name, full)}
    chosen: dict[str, str] = {}
    for pattern in wanted:
        hits = {name: full for name, full in short.items() if fnmatchcase(name, pattern) or pattern in (name, full)}
        if not hits:
            raise InputError(f"no column matches factor_columns {pattern!r}; there are {listing(list(short), 10)}")
        chosen |= hits
    return chosen


def _short(name: str) -> str:
    """A column name without its prefix; columns that only have a number are called as in an array."""
    return f"factor{name}" if name.isdecimal() else name.removeprefix(PREFIX)


def _codes(codes: Any, options: EvaluateOptions, set_aside: Sequence[str]) -> Table:
    """The codes as a table, without the columns that are factors."""
    if isinstance(codes, str | Path):
        asked: dict[str, Any] = {"features": options.features, "key": options.key}
        metadata = [*(patterns(options.metadata) or ()), *(set_aside if honours(codes, "metadata") else ())]
        table = read_table(
            codes, id=options.id, metadata=metadata or None, **{k: v for k, v in asked.items() if v is not None}
        )
    elif isinstance(codes, Table):
        table = codes
    else:
        matrix = to_numpy(as_matrix(codes, "codes", finite=False))
        features = codes.columns if hasattr(codes, "columns") and hasattr(codes, "iloc") else range(matrix.shape[1])
        table = Table(matrix, options.name or "codes", features=tuple(map(_code_name, features)))
    names = table.features or tuple(map(str, range(table.d)))  # as `read_row_columns` calls them
    keep = [j for j, name in enumerate(names) if name not in set_aside]
    if not keep:
        raise InputError("factor_columns names all columns of the codes, so no codes are left")
    called = tuple(names[j] if table.features else f"code{j}" for j in keep)
    values = table.values if len(keep) == table.d else to_numpy(table.values)[:, keep]
    return replace(table, values=values, features=called, name=options.name or table.name)


def _code_name(column: Any) -> str:
    return f"code{column}" if isinstance(column, int | np.integer) else str(column)


def _joined(table: Table, facts: RowColumns, names: Mapping[str, str], own: bool, options: EvaluateOptions) -> Rows:
    """Pair rows as those of any two tables; the second holds the row numbers, or NaN where a factor is missing."""
    numbers = np.arange(facts.n, dtype=np.float64)
    for full in names.values():
        numbers[missing_labels(facts.columns[full])] = np.nan
    second = Table(numbers[:, None], "factors", None if own else facts.ids, facts.columns)
    first = replace(table, name="codes", ids=None if own else table.ids)
    cluster = options.cluster
    if cluster is not None and not isinstance(cluster, str):
        labels = to_numpy(cluster)
        if labels.shape != (table.n,):
            raise InputError(f"cluster must name the cluster of each of {table.n} rows, but has shape {labels.shape}")
        first, cluster = replace(first, metadata={**table.metadata, CLUSTER: labels}), CLUSTER
    joined = join_tables([first, second], drop_missing=options.drop_missing, cluster=cluster)
    rows = joined.values[1][:, 0].astype(int)
    found = {name: facts.columns[full][rows] for name, full in names.items()}
    by_id = not joined.by_position
    read = any(column is not None for column in (table.ids, facts.ids, table.path))
    notes = _pairing_notes(joined, positions=read and not own and not by_id)
    return Rows(table.name, joined.values[0], table.features or (), found, joined.cluster, by_id, notes)


def _pairing_notes(joined: Joined, *, positions: bool) -> tuple[Note, ...]:
    notes = [
        Note(f"{count} rows of {name} have no partner and were left out")
        for name, count in joined.unmatched.items()
        if count
    ]
    if sum(joined.dropped.values()):
        notes.append(Note(f"Rows with missing values were left out; {joined.n} are left"))
    if positions:
        notes.append(Note("Rows of codes and factors were paired by position"))
    return tuple(notes)
