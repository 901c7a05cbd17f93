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
    """Read latents and, optionally, a second table of the same rows.

    Arrays and tensors are used as they are. Two files, tables or frames that both have row ids are joined
    by id, and every row must have a partner. Otherwise rows are paired by position.

    Parameters
    ----------
    latents : array, tensor, frame, table or path
    second : array, tensor, frame, table or path, optional
    options : options dataclass
        With `id`, `features`, `metadata`, `key` and `drop_missing`.
    name : str
        Name of the second table in messages.
    """
    first = _read(latents, "latents", reading(options))
    keywords = {"id": options.id} if options.id is not None and _has_columns(second) else {}
    partner = None if second is None else _read(second, name, keywords)
    settings: dict[str, Any] = {
        what: str(x) for what, x in (("latents", latents), (name, second)) if isinstance(x, str | Path)
    }
    tables = [table for table in (first, partner) if isinstance(table, Table)]
    settings |= recorded(map(describe_file, paths_of(tables)))
    if tables:
        rows = _from_tables(_table(first, "latents"), _table(partner, name), options.drop_missing, settings)
        return replace(rows, notes=(*(note for table in tables for note in table.notes), *rows.notes))
    return _from_arrays(first, partner, name, options.drop_missing, settings)


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


def _has_columns(rows: Any) -> bool:
    return isinstance(rows, str | Path) and honours(part_files(rows)[0], "features")


def _table(rows: Any, name: str) -> Table | None:
    return rows if rows is None or isinstance(rows, Table) else Table(to_numpy(rows), name)


def _from_tables(first: Table | None, partner: Table | None, drop_missing: bool, settings: Any) -> Latents:
    assert first is not None
    if partner is None:
        finite = finite_table(first, drop_missing=drop_missing)
        return Latents(_floats(finite.values), None, settings, _dropped(first.n - finite.n, first.n))
    if first.n != partner.n and (first.ids is None or partner.ids is None):
        raise InputError(f"{partner.name} must have a row for each of {first.n} rows of latents; got {partner.n}")
    joined = join_tables([first, partner], drop_missing=drop_missing)
    if any(joined.unmatched.values()):
        raise InputError(
            f"{partner.name} must have the same rows as the latents; {joined.unmatched['latents']} rows of latents and "
            f"{joined.unmatched[partner.name]} rows of {partner.name} have no partner"
        )
    values, others = joined.values
    return Latents(_floats(values), _floats(others), settings, _dropped(first.n - len(values), first.n))


def _from_arrays(first: Any, partner: Any, name: str, drop_missing: bool, settings: Any) -> Latents:
    if partner is not None and len(first) != len(partner):
        raise InputError(f"{name} must have a row for each of {len(first)} rows of latents; got {len(partner)}")
    if not drop_missing:
        return Latents(first, partner, settings)
    arrays = [array for array in (first, partner) if array is not None]
    keep = np.logical_and.reduce([finite_rows(array.reshape(len(array), -1)) for array in arrays])
    values, *others = (array[keep] for array in arrays)
    notes = _dropped(int((~keep).sum()), len(keep))
    return Latents(values, others[0] if others else None, settings, notes)


def _dropped(rows: int, n: int) -> tuple[str, ...]:
    return (f"{rows} of {n} rows have NaN or infinite values and were left out.",) if rows else ()


def _floats(values: Any) -> Any:
    """Convert integers and booleans to floats: a file of integers may hold latents."""
    return values.astype(float) if values.dtype.kind in "iub" else values
