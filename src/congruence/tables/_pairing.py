"""Ids inferred from several tables together, notes about pairing, and labels for each paired row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from congruence.arrays import Array, listing, to_numpy
from congruence.errors import InputError, TableError
from congruence.tables.columns import PREFIX, Selection, choose_features, id_likeness
from congruence.tables.join import Joined
from congruence.tables.table import Table, as_labels, in_one_kind, missing_labels

_SAMPLE = 2**12  # rows used to inspect columns
_DOMINANT = 0.99  # share of the variance in one column, above which a note names it


def select_columns(table: Table, select: Selection) -> Table:
    """Return a table under another name, with another id or fewer features."""
    where = str(table.path or table.name)
    select.refuse(where, "metadata", "key", because="it is a table already, whose columns have been chosen")
    table = replace(table, name=select.name or table.name)
    if select.id is not None:
        column = next((one for one in (select.id, PREFIX + select.id) if one in table.metadata), None)
        if column is None:
            known = listing(list(table.metadata), 10) or "none"
            raise TableError(f"{where} has no metadata column {select.id!r} for id (--id); it has {known}")
        rest = {one: entries for one, entries in table.metadata.items() if one != column}
        table = replace(table, ids=table.metadata[column], metadata=rest, indexed=False)
    if select.features is not None:
        names = table.features or tuple(map(str, range(table.d)))
        chosen = choose_features(names, select.features, where)
        table = replace(table, values=table.values[:, [names.index(one) for one in chosen]], features=chosen)
    return table


def assign_ids(tables: Sequence[Table]) -> tuple[list[Table], list[str]]:
    """Assign ids that can be inferred only from several tables together, and collect the notes about each."""
    tables, left_out = _drop_id_columns(tables)
    notes = [*_shared_notes(tables), *left_out]
    tables = _with_default_index(tables)
    if any(table.ids is not None for table in tables):
        return tables, notes
    for name in tables[0].metadata:
        integers = [_distinct_integers(table.metadata.get(name)) for table in tables]
        columns = [column for column in integers if column is not None]
        if len(columns) < len(tables) or any(not np.array_equal(np.sort(x), np.sort(columns[0])) for x in columns):
            continue
        if any(not np.array_equal(x, np.arange(len(x))) for x in columns):  # otherwise it is only the position
            note = f"Column {name} holds the same distinct integers in all runs and is taken as the row id."
            rest = [{key: entries for key, entries in one.metadata.items() if key != name} for one in tables]
            parts = zip(tables, columns, rest, strict=True)
            return [replace(one, ids=ids, metadata=left) for one, ids, left in parts], [*notes, note]
    _check_named_ids(tables)
    return tables, notes


def _check_named_ids(tables: Sequence[Table]) -> None:
    """Refuse to pair rows by position if a column named like an id shows that they are different rows."""
    first, *others = tables
    for name, column in first.metadata.items():
        for other in others if id_likeness(name) == 1 else ():
            there = other.metadata.get(name)
            if there is None or len(there) != len(column):
                continue
            here, there = (np.asarray(one, dtype=object).astype(str) for one in (column, there))
            if not np.array_equal(here, there):
                raise TableError(
                    f"column {name} is named like an id, but cannot be used as one (repeated or missing values), and "
                    f"{first.name} and {other.name} differ in it row by row; give distinct ids, or leave the column out"
                )


def _drop_id_columns(tables: Sequence[Table]) -> tuple[list[Table], list[str]]:
    """Leave out of all tables the columns that were left out of one as possible ids."""
    aside = {
        name
        for table in tables
        for name, column in table.metadata.items()
        if any(name in (other.features or ()) for other in tables) and _distinct_integers(column) is not None
    }
    reduced, notes = [], []
    for table in tables:
        names = [name for name in table.features or () if name in aside]
        if names and len(names) < table.d:
            keep = tuple(name for name in table.features or () if name not in aside)
            table = select_columns(table, Selection(features=keep))
            notes.append(
                f"Left out of {table.name}, because they could be row ids in another run: {listing(names, 20)}."
            )
        reduced.append(table)
    return reduced, notes


def _with_default_index(tables: Sequence[Table]) -> list[Table]:
    """Number the rows of data frames 0, 1, ... if another frame has an index that is another order of integers."""
    ids = [table.ids for table in tables if table.ids is not None and table.indexed]
    if not ids or not all(table.indexed for table in tables):
        return list(tables)
    if not all(one.dtype.kind == "i" or np.char.isdecimal(one).all() for one in ids):
        return list(tables)
    return [replace(one, ids=np.arange(one.n)) if one.ids is None else one for one in tables]


def _distinct_integers(column: Array | None) -> Array | None:
    if column is None or column.dtype.kind not in "iuf" or missing_labels(column).any():
        return None
    labels = as_labels(column)
    return labels if labels.dtype.kind == "i" and len(np.unique(labels)) == len(labels) else None


def _shared_notes(tables: Sequence[Table]) -> list[str]:
    """Return notes about all tables once, and notes about some with their names."""
    notes: dict[str, list[str]] = {}
    for table in tables:
        for note in table.notes:
            notes.setdefault(note, []).append(table.name)
    return [note if len(of) == len(tables) else f"{listing(of)}: {note}" for note, of in notes.items()]


def pairing_notes(joined: Joined) -> list[str]:
    """Return notes about rows that were left out."""
    notes = []
    paired = joined.n if joined.sample is None else joined.sample.of
    left_out = ", ".join(f"{count} of {name}" for name, count in joined.unmatched.items() if count)
    if left_out:
        notes.append(f"{paired} rows were paired by id; rows without a partner were left out: {left_out}.")
    if joined.sample is not None:
        notes.append(joined.sample.note)
    dropped = ", ".join(f"{count} of {name}" for name, count in joined.dropped.items() if count)
    if dropped:
        notes.append(f"Rows with NaN or infinite values were left out: {dropped}.")
    return notes


def column_notes(tables: Sequence[Table], values: Sequence[Any]) -> list[str]:
    """Name columns that could be ids or row numbers: identical in all runs, or with nearly all of the variance."""
    step = max(1, len(values[0]) // _SAMPLE)
    sample = [to_numpy(x[::step]).astype(np.float64) for x in values]  # (m, d_k)
    notes = []
    same = _same_columns(tables, values, sample)
    if same:
        notes.append(f"Columns that are identical in all runs, as ids would be: {listing(same, 10)}.")
    for table, rows in zip(tables, sample, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            variance = rows.var(axis=0)
            share = variance / variance.sum()
        if table.d > 1 and share.max() > _DOMINANT:
            name = _column_name(table, int(share.argmax()))
            notes.append(f"Column {name} of {table.name} has {100 * share.max():.3g} % of the variance.")
    return notes


def _same_columns(tables: Sequence[Table], values: Sequence[Any], sample: Sequence[Array]) -> list[str]:
    """Return the columns of the same name (or place) that are identical in all runs; none if the runs are identical."""
    names = {table.feature_names for table in tables}
    if len(tables) < 2 or len(names) > 1 or len(sample[0]) < 2:
        return []
    varying = np.ptp(sample[0], axis=0) > 0
    alike = np.logical_and.reduce([(rows == sample[0]).all(axis=0) for rows in sample[1:]])
    if not (alike & varying).any() or alike[varying].all():
        return []
    same = []
    for j in np.flatnonzero(alike & varying):
        first = to_numpy(values[0][:, j])
        if all(np.array_equal(first, to_numpy(x[:, j])) for x in values[1:]):
            same.append(_column_name(tables[0], int(j)))
    return same


def _column_name(table: Table, j: int) -> str:
    return str(j) if table.features is None else table.features[j]


def joined_labels(joined: Joined, labels: Any, first: Table) -> Array | None:
    """Return labels for the joined rows, given as an array or as the name of a metadata column of the first table."""
    if not isinstance(labels, str):
        return joined_rows(labels, first, "labels", 2, joined.rows[0])
    for name in (labels, PREFIX + labels):
        if name in joined.metadata:
            column = joined.metadata[name]
            return column.astype(str) if column.dtype == object else column
    known = ", ".join(joined.metadata) or "none"
    raise InputError(f"{joined.names[0]} has no metadata column {labels!r} to take labels from; it has {known}")


def joined_rows(values: Any, table: Table, name: str, dimensions: int, index: Array) -> Array | None:
    """Return one entry (or, in two dimensions, one row) per row of a table, for the rows that were paired.

    A pandas series or frame with its own index is reordered to match the ids of the table.
    """
    if values is None:
        return None
    n = table.n
    labels = to_numpy(values)
    own = getattr(values, "index", None)
    has_index = own is not None and not callable(own) and not hasattr(own, "step")
    if table.ids is not None and has_index and len(labels) == n:
        labels = labels[_order_of(np.asarray(own), table.ids, name)]
    if not 1 <= labels.ndim <= dimensions or len(labels) != n:
        raise InputError(f"{name} must have one label per row, shape ({n},), but has shape {labels.shape}")
    labels = labels[index]
    missing = np.flatnonzero(missing_labels(labels) if labels.ndim == 1 else [])
    if missing.size:
        raise InputError(f"{name} has missing labels (row {listing(index[missing])})")
    return labels.astype(str) if labels.dtype == object else labels


def _order_of(own: Array, ids: Array, name: str) -> Array:
    """Return the position of each of `ids` in `own`; refuse them if they are not the same."""
    wanted, own_ids = in_one_kind([ids, as_labels(own)])
    order = np.argsort(own_ids, kind="stable")
    if not np.array_equal(own_ids[order], np.sort(wanted)):
        raise InputError(f"the index of {name} differs from the ids of the rows; reindex it, or pass {name}.to_numpy()")
    places = np.empty(len(order), dtype=np.intp)
    places[np.argsort(wanted, kind="stable")] = order
    return places
