"""Replace the values of a columnar file and keep every other column as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.guards import suffix_of
from congruence.tables._arrow import ColumnarFile, TableBuilder, block_rows, common_dtype, open_columnar
from congruence.tables._write_columns import is_csv, open_writer, records
from congruence.tables.columns import ColumnChoice, Selection, choose_columns
from congruence.tables.names import numbering
from congruence.tables.table import duplicates
from congruence.tables.write import writable_suffix, writing

Work = Callable[[Array, int], tuple[Array, Mapping[str, Array]]]


def rewrite_values(
    source: Path,
    target: Path,
    select: Selection,
    work: Work,
    *,
    width: int,
    names: Sequence[str] | None = None,
    flag: str = "",
) -> int:
    """Write a columnar file with other values, and every other column with its name, type and place; return its rows.

    A column of lists stays one, under its name. Numbered columns (``emb_0``, ``x 1``) keep their names, and further
    ones continue the numbers; other names meant the old values, so the new ones are called ``emb_0``, ``emb_1``, ...
    With `names`, columns are called by these instead.

    Parameters
    ----------
    source, target : Path
        Columnar files; `target` is written completely or not at all.
    select : Selection
        Which columns are the values.
    work : callable
        ``work(values, first)`` returns new values (n, width) for n rows from row `first` on, and further columns.
    width : int
        The number of new values of a row.
    names : sequence of str, optional
        The names of the new values, unless they are in a column of lists.
    flag : str
        The name of a boolean column that `work` returns as well; "" if it returns none.
    """
    writable_suffix(target)
    with open_columnar(source, select) as file:
        columns = _choose(file, select)
        layout = _layout(file, columns, target, names or number_columns(columns.values, width), flag)
        labels = [name for name in layout.schema.names if name not in layout.values]
        n = 0
        with writing(target) as temporary, ExitStack() as stack:
            writer = stack.enter_context(open_writer(temporary, target, layout.schema, labels))
            for batch in file.batches(file.schema.names, block_rows(columns)):
                if batch.num_rows:
                    builder = TableBuilder(source, columns.unlabelled, file.schema, batch.num_rows)
                    values, further = work(builder.fill([batch])["values"], n)
                    writer.write_batch(layout.batch(batch, values, further))
                n += batch.num_rows
    return n


def _choose(file: ColumnarFile, select: Selection) -> ColumnChoice:
    """The columns of a part: values and id as in the first part, whatever its other columns are."""
    like, kinds = select.like, file.source.kinds
    if like is None or like.kinds == tuple(kinds.items()):
        return choose_columns(file.source, select)
    known = dict(like.kinds)
    wrong = [name for name in like.values if kinds.get(name) != known[name]]
    if wrong:
        why = "lacks" if wrong[0] not in kinds else "has other contents in"
        raise TableError(f"{file.path} does not have the columns of the first part: it {why} {listing(wrong)}")
    id = like.id if like.id in kinds else None
    metadata = tuple(name for name in kinds if name not in (*like.values, id))
    return replace(like, id=id, metadata=metadata, kinds=tuple(kinds.items()))


@dataclass(frozen=True)
class _Layout:
    """The columns of the file that is written."""

    schema: Any
    values: tuple[str, ...]  # the names of the columns of values, or of the one column of lists
    lists: bool

    def batch(self, given: Any, values: Array, further: Mapping[str, Array]) -> Any:
        import pyarrow as pa

        if isinstance(given, pa.Table):
            given = given.unify_dictionaries().combine_chunks().to_batches()[0]
        place = {name: j for j, name in enumerate(self.values)}
        columns = np.ascontiguousarray(values.T) if not self.lists else values
        arrays = []
        for field in self.schema:
            if field.name in further:
                arrays.append(pa.array(further[field.name], field.type))
            elif field.name not in place:
                column = given.column(field.name)
                arrays.append(column if column.type == field.type else column.cast(field.type))
            elif self.lists:
                arrays.append(_as_lists(columns, field.type))
            else:
                arrays.append(pa.array(columns[place[field.name]], field.type))
        return pa.record_batch(arrays, self.schema)


def _layout(file: ColumnarFile, columns: ColumnChoice, target: Path, names: Sequence[str], flag: str) -> _Layout:
    import pyarrow as pa

    values = columns.values if columns.lists else names
    first = file.schema.get_field_index(columns.values[0])
    kept = [field for field in file.schema if field.name not in columns.values]
    before = sum(field.name not in columns.values for field in list(file.schema)[:first])
    if columns.lists:
        new = [pa.field(values[0], _list_type(file.schema.field(first).type, len(names)))]
    else:
        dtype = pa.from_numpy_dtype(common_dtype(file.schema, columns.values))
        if is_csv(target) and pa.types.is_float16(dtype):  # which arrow does not print
            dtype = pa.float32()
        new = [pa.field(name, dtype) for name in values]
    kept = [_writable(field, file.path, target) for field in kept]
    fields = [*kept[:before], *new, *kept[before:], *([pa.field(flag, pa.bool_())] if flag else [])]
    if repeated := duplicates([field.name for field in fields]):
        raise TableError(f"{target} cannot be written: several columns would be called {repeated}")
    notes = dict(file.schema.metadata or {})
    notes.pop(b"pandas", None)  # it describes the columns that were replaced
    metadata = [field.name for field in fields if field.name not in (*values, columns.id)]
    return _Layout(pa.schema(fields, notes | records(columns.id, metadata)), tuple(values), columns.lists)


def number_columns(names: Sequence[str], width: int) -> list[str]:
    """Return names for `width` columns: consecutive numbers after a common stem go on, else emb_0, emb_1, ..."""
    numbered = numbering(names)
    if numbered is not None and numbered[0]:
        stem, start, digits = numbered
        return [f"{stem}{start + i:0{digits}d}" for i in range(width)]
    return [f"emb_{i}" for i in range(width)]


def _list_type(given: Any, width: int) -> Any:
    import pyarrow as pa

    inner = given.value_type if pa.types.is_floating(given.value_type) else pa.float64()
    if pa.types.is_fixed_size_list(given):
        return pa.list_(inner, width)
    return pa.large_list(inner) if pa.types.is_large_list(given) else pa.list_(inner)


def _as_lists(values: Array, type: Any) -> Any:
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values).ravel(), type.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]).cast(type)


def _writable(field: Any, source: Path, target: Path) -> Any:
    """The field as the format of the target can hold it: only parquet has a dictionary for each batch."""
    import pyarrow as pa

    if not pa.types.is_dictionary(field.type) or suffix_of(target) == ".parquet":
        return field
    same = suffix_of(source) in (".arrow", ".feather") and not is_csv(target)  # one dictionary for the whole file
    return field if same else field.with_type(field.type.value_type)
