"""Bring the rows of several tables into the same order, by id if they have ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from congruence.arrays import Array, finite_rows, listing, row_chunks, to_numpy
from congruence.errors import PairedByPositionWarning, TableError, warn_caller
from congruence.memory import take_rows
from congruence.tables._sampling import Sample
from congruence.tables.columns import PREFIX
from congruence.tables.table import Table, as_labels, duplicates, in_one_kind, missing_labels

Index = npt.NDArray[np.intp]
Choose = Callable[[Sequence[Index], Array | None], Sample | None]  # from the paired rows of each table and their ids


@dataclass(frozen=True, eq=False)
class Joined:
    """The same samples in every run: row i of each array of `values` is sample i."""

    values: list[Array]  # (n, d_k) for each table
    rows: list[Index]  # (n,) the row of each table that became joined row i
    names: tuple[str, ...]
    features: list[tuple[str, ...] | None]  # names of the columns of each table
    ids: Array | None  # (n,)
    metadata: Mapping[str, Array]  # of the first table
    cluster: Array | None  # (n,)
    dropped: Mapping[str, int]  # rows of each table with NaN or infinity
    unmatched: Mapping[str, int]  # rows of each table whose id is not in every other
    by_position: bool
    sample: Sample | None = None  # where only some of the paired rows were taken

    @property
    def n(self) -> int:
        """The number of joined rows."""
        return int(self.values[0].shape[0])


def join_tables(
    tables: Sequence[Table],
    *,
    drop_missing: bool = False,
    cluster: str | None = None,
    choose: Choose | None = None,
) -> Joined:
    """Pair the rows of several tables.

    Rows are matched by id, in the order of the first table, if every table has ids; otherwise by position, with a
    warning if only some have them. Rows that some table lacks are left out and counted in `unmatched`. If all rows are
    kept in order, the arrays are returned without a copy.

    Parameters
    ----------
    tables : sequence of Table
        With distinct names.
    drop_missing : bool, default False
        Leave out, from every table, the rows where any table has NaN or infinity, instead of refusing them.
    cluster : str, optional
        The metadata column (with or without ``Metadata_``) that defines which rows belong together; it is taken
        from the first table that has it, and tables that have it must agree.
    choose : callable, optional
        Samples the paired rows, given their numbers in each table and their ids. Values of other rows are not read.
    """
    if not tables:
        raise TableError("tables must hold at least one table")
    if repeated := duplicates([table.name for table in tables]):
        raise TableError(f"several tables have the same name ({repeated}); names must be distinct")
    by_position = any(table.ids is None for table in tables)
    rows = _rows_by_position(tables) if by_position else _rows_by_id(tables)
    unmatched = {table.name: table.n - len(index) for table, index in zip(tables, rows, strict=True)}
    sample = None if choose is None else choose(rows, _paired_ids(tables, rows))
    if sample is not None:
        rows = [index[sample.rows] for index in rows]
    keep, dropped = _finite(tables, rows, drop_missing)
    if not keep.all():
        rows = [index[keep] for index in rows]
    ids = _paired_ids(tables, rows)
    return Joined(
        values=[_take_values(table, index) for table, index in zip(tables, rows, strict=True)],
        rows=rows,
        names=tuple(table.name for table in tables),
        features=[table.features for table in tables],
        ids=ids,
        metadata={name: _take(column, rows[0]) for name, column in tables[0].metadata.items()},
        cluster=None if cluster is None else paired_clusters(tables, rows, cluster, ids),
        dropped=dropped,
        unmatched=unmatched,
        by_position=by_position,
        sample=sample,
    )


def _paired_ids(tables: Sequence[Table], rows: Sequence[Index]) -> Array | None:
    """Return the ids of paired rows, from the first table that has ids."""
    return next((table.ids[index] for table, index in zip(tables, rows, strict=True) if table.ids is not None), None)


def finite_table(table: Table, *, drop_missing: bool = False) -> Table:
    """Refuse a table with NaN or infinity, or leave out the rows that hold them.

    Parameters
    ----------
    table : Table
        Returned without a copy of its values if all are finite.
    drop_missing : bool, default False
        Leave out rows with NaN or infinity instead of refusing them.
    """
    keep, _ = _finite([table], [np.arange(table.n)], drop_missing)
    return table if keep.all() else table.take(np.flatnonzero(keep))


def _rows_by_position(tables: Sequence[Table]) -> list[Index]:
    counts = ", ".join(f"{table.name} has {table.n}" for table in tables)
    if len({table.n for table in tables}) > 1:
        raise TableError(f"rows without ids are paired by position, so their numbers must agree: {counts}")
    named = [table for table in tables if table.ids is not None]
    if named:
        _check_same_order(named)
        without = listing([table.name for table in tables if table.ids is None], 10)
        warn_caller(
            f"rows are paired by position, because {without} has no ids; name the id column with id (--id)",
            PairedByPositionWarning,
        )
    return [np.arange(tables[0].n)] * len(tables)


def _check_same_order(named: Sequence[Table]) -> None:
    """Refuse to pair by position rows whose ids differ in the tables that have ids."""
    keys = in_one_kind([table.ids for table in named if table.ids is not None])
    for table, key in zip(named[1:], keys[1:], strict=True):
        differ = np.flatnonzero(key != keys[0])
        if differ.size:
            raise TableError(
                f"rows cannot be paired by position: {named[0].name} and {table.name} have different ids in "
                f"{differ.size} rows (row {listing(differ)}), and not every table has ids; use id (--id)"
            )


def _rows_by_id(tables: Sequence[Table]) -> list[Index]:
    """Return for each table the rows whose id is in all tables, in the order of the first."""
    keys = in_one_kind([table.ids for table in tables if table.ids is not None])
    same = all(np.array_equal(key, keys[0]) for key in keys[1:])  # the usual case, and sorting text is slow
    if not (same and all(table.indexed for table in tables)):  # frames may repeat rows if their indexes agree
        orders = [_sorted_order(keys[0], tables[0])]
    if same:
        return [np.arange(len(keys[0]))] * len(tables)
    orders += [_sorted_order(key, table) for key, table in zip(keys[1:], tables[1:], strict=True)]
    first = keys[0][orders[0]]
    matched = np.ones(len(first), dtype=bool)
    places = [np.arange(len(first))]
    for key, order in zip(keys[1:], orders[1:], strict=True):
        ranked = key[order]
        place = np.minimum(np.searchsorted(ranked, first), len(ranked) - 1)
        matched &= ranked[place] == first
        places.append(place)
    if not matched.any():
        examples = "; ".join(f"{table.name} has {listing(key, 3)}" for table, key in zip(tables, keys, strict=True))
        raise TableError(f"no id is in all tables: {examples}")
    rows = [order[place[matched]] for order, place in zip(orders, places, strict=True)]
    back = np.argsort(rows[0])
    return [index[back] for index in rows]


def _sorted_order(key: Array, table: Table) -> Index:
    order = np.argsort(key)
    ranked = key[order]
    again = ranked[1:][ranked[1:] == ranked[:-1]]
    if again.size:
        repeated = np.unique(again)
        raise TableError(f"{table.name} has {repeated.size} ids more than once: {listing(repeated)}")
    return order


def _finite(
    tables: Sequence[Table], rows: Sequence[Index], drop_missing: bool
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Return which joined rows are finite in every table, and how many are not in each."""
    keep = np.ones(len(rows[0]), dtype=bool)
    dropped = {}
    complaints = []
    for table, index in zip(tables, rows, strict=True):
        good = _finite_at(table.values, index)
        bad = np.sort(index[~good])  # numbered as in its own file
        keep &= good
        dropped[table.name] = len(bad)
        if bad.size:
            few = "1 row" if bad.size == 1 else f"{bad.size} rows"
            complaints.append(f"{table.name} in {few} of {table.n} (row {listing(bad)}){_in_columns(table, bad)}")
    if complaints and not drop_missing:
        raise TableError(
            f"NaN or infinite values: {'; '.join(complaints)}; leave these rows out with "
            "drop_missing=True (--drop-missing)"
        )
    if not keep.any():
        raise TableError(f"no rows are left without NaN or infinite values: {'; '.join(complaints)}")
    return keep, dropped


def _finite_at(values: Array, index: Index) -> npt.NDArray[np.bool_]:
    """Return which of the chosen rows are finite; if these are few, the others are not read."""
    if 2 * len(index) > len(values):
        return finite_rows(values)[index]
    return np.concatenate([finite_rows(values[index[part]]) for part in row_chunks(len(index), values.shape[1])])


def _in_columns(table: Table, bad: Index) -> str:
    """Name the columns that hold the missing values, if they are few: they may not belong to the embedding."""
    some = to_numpy(table.values[bad[:1000]])
    columns = np.flatnonzero(~np.isfinite(some).all(axis=0))
    if table.features is None or len(columns) > 5 or len(columns) == table.d:
        return ""
    return f", all in {listing([table.features[j] for j in columns])}"


def _take_values(table: Table, index: Index) -> Array:
    """Return the chosen rows of the matrix, or the matrix itself if they are all of them in order."""
    values: Array = table.values if _is_all(index, table.n) else take_rows(table.values, index, table.name)
    return values


def _take(column: Array, index: Index) -> Array:
    return column if _is_all(index, len(column)) else column[index]


def _is_all(index: Index, n: int) -> bool:
    return len(index) == n and np.array_equal(index, np.arange(n))


def paired_clusters(tables: Sequence[Table], rows: Sequence[Index], name: str, ids: Array | None) -> Array:
    """Return the cluster of each joined row, (n,), after checking that the tables agree."""
    columns: list[tuple[Table, Array]] = []
    for table, index in zip(tables, rows, strict=True):
        column = table.metadata.get(name, table.metadata.get(PREFIX + name))
        if column is not None:
            missing = np.sort(index[missing_labels(column[index])])
            if missing.size:
                rows_missing = f"{missing.size} of its joined rows (row {listing(missing)})"
                raise TableError(f"{table.name} has no {name!r} in {rows_missing}")
            columns.append((table, as_labels(column[index])))
    if not columns:
        known = listing(list(dict.fromkeys(column for table in tables for column in table.metadata)), 10)
        raise TableError(f"no table has a metadata column {name!r}; they have {known or 'none'}")
    labels = in_one_kind([label for _, label in columns])
    for (table, _), label in zip(columns[1:], labels[1:], strict=True):
        differ = np.flatnonzero(label != labels[0])
        if differ.size:
            at = differ[0]
            example = f"id {ids[at]}" if ids is not None else f"row {at}"
            raise TableError(
                f"{columns[0][0].name} and {table.name} disagree on {name!r} in {differ.size} joined rows; "
                f"for {example} the values are {labels[0][at]} and {label[at]}"
            )
    return columns[0][1]
