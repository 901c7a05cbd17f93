"""Read the latents at which a decoder is examined, and optionally a second table with the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import as_matrix, finite_rows, is_tensor, to_numpy
from congruence.errors import InputError
from congruence.files import describe_file
from congruence.options import reading
from congruence.result import recorded
from congruence.tables import Table, as_table, finite_table, honours, is_table, join_tables
from congruence.tables.inputs import paths_of
from congruence.tables.parts import part_files


@dataclass(frozen=True)
class Latents:
    """Rows of latents and, optionally, the rows of a second table in the same order."""

    values: Any  # (n, d) or (n, ...)
    second: Any | None  # (n, k)
    settings: Mapping[str, Any]  # the files and what was read from them
    notes: tuple[str, ...] = ()


def read_latents(latents: Any, options: Any, second: Any = None, name: str = "second") -> Latents:
    """Read latents and, optionally, a second table of the same rows, called `name` in messages.

    Arrays and tensors are used as they are. Two files, tables or frames that both have row ids are joined by id, and
    every row must have a partner. Otherwise rows are paired by position. `options` are those of reading a table, and
    `drop_missing`.
    """
    has_columns = isinstance(second, str | Path) and honours(part_files(second)[0], "features")
    rows = [_read(latents, "latents", reading(options))]
    rows += [] if second is None else [_read(second, name, {"id": options.id if has_columns else None})]
    settings: dict[str, Any] = {
        what: str(x) for what, x in (("latents", latents), (name, second)) if isinstance(x, str | Path)
    }
    tables = [table for table in rows if isinstance(table, Table)]
    settings |= recorded(map(describe_file, paths_of(tables)))
    if tables:  # an array next to a table is paired by position
        named = zip(rows, ("latents", name), strict=False)
        rows = [one if isinstance(one, Table) else Table(to_numpy(one), what) for one, what in named]
    n, *others = (one.n if tables else len(one) for one in rows)
    if others and others[0] != n and not (tables and all(one.ids is not None for one in rows)):
        raise InputError(f"{name} must have a row for each of {n} rows of latents; got {others[0]}")
    values = (_join_tables if tables else _select_rows)(rows, options.drop_missing)
    notes = [note for table in tables for note in table.notes]
    if left := n - len(values[0]):
        notes.append(f"{left} of {n} rows have NaN or infinite values and were left out.")
    return Latents(values[0], values[1] if others else None, settings, tuple(notes))


def _read(rows: Any, name: str, keywords: Mapping[str, Any]) -> Any:
    """Return arrays and tensors unchanged, and anything that may have ids or names as a table."""
    if is_tensor(rows) or isinstance(rows, np.ndarray):
        return rows
    if not is_table(rows):
        return to_numpy(as_matrix(rows, name, finite=False))
    selected = {key: value for key, value in keywords.items() if value is not None}
    for one in selected if isinstance(rows, str | Path) else ():
        if one != "id" and not honours(part_files(rows)[0], one):
            raise InputError(f"{one} does not apply to files like {rows}")
    return replace(as_table(rows, name=name, **selected), name=name)


def _join_tables(tables: list[Any], drop_missing: bool) -> list[Any]:
    """The values of one table, or of two joined by id or position; every row must have a partner."""
    if len(tables) == 1:
        values = [finite_table(tables[0], drop_missing=drop_missing).values]
    else:
        joined = join_tables(tables, drop_missing=drop_missing)
        if any(joined.unmatched.values()):
            name = tables[1].name
            raise InputError(
                f"{name} must have the same rows as the latents; {joined.unmatched['latents']} rows of latents and "
                f"{joined.unmatched[name]} rows of {name} have no partner"
            )
        values = list(joined.values)
    return [one.astype(float) if one.dtype.kind in "iub" else one for one in values]  # a file may hold integers


def _select_rows(arrays: list[Any], drop_missing: bool) -> list[Any]:
    if not drop_missing:
        return arrays
    keep = np.logical_and.reduce([finite_rows(array.reshape(len(array), -1)) for array in arrays])
    return [array[keep] for array in arrays]
