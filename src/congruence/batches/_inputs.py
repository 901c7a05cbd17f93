"""Read the input of `deconfound`: an embedding, and the target, batch and further labels of each row."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, finite_rows, listing, to_numpy
from congruence.batches._options import DeconfoundOptions
from congruence.errors import InputError
from congruence.files import describe_file
from congruence.options import reading
from congruence.tables import Table, as_table, finite_table, read_parts
from congruence.tables.columns import ID_NAMES, PREFIX, Selection, patterns
from congruence.tables.inputs import check_options
from congruence.tables.parts import part_files
from congruence.tables.read import column_names
from congruence.tables.table import as_labels, is_frame, missing_labels, same_label

FEWEST = 10  # controls, and other rows; with fewer, a column may separate them by chance
CONTROL, TREATED = "control", "treated"  # values of target if no column names them
LABELS = ("batch", "target", "guide", "cluster", "image")
NOT_FOR_CONTROLS = ("target", "guide", "cluster")  # labels that controls may lack


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """An embedding with its labels; rows with missing labels or values are left out of all but `table`."""

    table: Table
    target: Array  # (n,) of text
    control: str  # the target of controls
    batch: Array  # (n,)
    guide: Array | None
    cluster: Array | None
    image: Array | None
    kept: Array | None  # (n,) row numbers in `table`, where some rows were left out
    notes: tuple[str, ...]

    @property
    def values(self) -> Array:
        """The embedding, (n, d)."""
        values = to_numpy(self.table.values)
        return values if self.kept is None else values[self.kept]

    def files(self) -> list[dict[str, Any]]:
        """The files that the table was read from, with size and checksum."""
        return [asdict(describe_file(file)) for file in self.table.read]


def read_rows(x: Any, options: DeconfoundOptions) -> LabelledRows:
    """Read an embedding and its labels, each a column name or an array with one label for each row."""
    if options.batch is None:
        raise InputError("batch is missing: name the column with the batch (plate, experiment), or pass its labels")
    marks, value = _control(options)
    sources = {name: getattr(options, name) for name in LABELS} | {"control": marks}
    sources = {name: labels for name, labels in sources.items() if labels is not None}
    table = _as_table(x, {name: labels for name, labels in sources.items() if isinstance(labels, str)}, options)
    labels = {name: _labels(table, name, one, x) for name, one in sources.items()}
    is_control = _is_control(labels["control"], marks, value, options.positive)
    notes = () if options.features is not None else _check_features(table, is_control)
    name = value if value is not None and marks is options.target else CONTROL
    rows = _kept(table, labels, is_control, name, options.drop_missing)
    return replace(rows, notes=(*table.notes, *notes, *rows.notes))


def _control(options: DeconfoundOptions) -> tuple[Any, str | None]:
    """The labels that mark controls, and their value; None where `positive` names all other rows."""
    control, target = options.control, options.target
    if options.positive is not None and target is None:
        raise InputError("positive names values of target, which is not given")
    if control is None:
        if options.positive is None:
            raise InputError(
                "controls are unknown: give control, as COLUMN=VALUE or as a value of target; or target and positive"
            )
        return target, None
    if isinstance(control, str) and "=" in control and (target is None or isinstance(target, str)):
        column, value = (part.strip() for part in control.split("=", 1))
        if column and value:
            return (target, value) if column == target else (column, value)
    elif target is not None:
        return target, str(control)
    raise InputError(f"control must be COLUMN=VALUE such as gene=none, or a value of target, not {control!r}")


def _as_table(x: Any, named: Mapping[str, str], options: DeconfoundOptions) -> Table:
    """The embedding as a table; columns that are named as labels are metadata, whatever their type."""
    read = reading(options)
    files = _files(x)
    check_options([x] if files is None else files, [n for n in read if n != "id" and read[n] is not None])
    columns = (
        column_names(files[0], Selection(**read)) if files else tuple(map(str, x.columns)) if is_frame(x) else None
    )
    if columns is not None:
        aside = [_column_for(label, name, columns, files[0] if files else "x") for label, name in named.items()]
        aside = [name for name in dict.fromkeys(aside) if name not in (*ID_NAMES, options.id)]
        read["metadata"] = [*(patterns(options.metadata) or ()), *aside] or None
    if files is not None:
        table = read_parts(files, **read, name=options.name)
        folder = Path(x) if isinstance(x, str | os.PathLike) and len(files) > 1 and Path(x).is_dir() else None
        return table if folder is None else replace(table, name=options.name or folder.name)
    name = options.name or (x.name if isinstance(x, Table) else "embedding")
    return _set_aside(as_table(x, name=name, **read), named.values())


def _files(x: Any) -> list[str] | None:
    """The files of a path, a pattern, a folder of parts or a list of paths; None for anything else."""
    if isinstance(x, str | os.PathLike):
        return part_files(x)
    if isinstance(x, list | tuple) and x and all(isinstance(one, str | os.PathLike) for one in x):
        return [file for one in x for file in part_files(one)]
    return None


def _column_for(label: str, name: str, columns: Sequence[str], where: str) -> str:
    """The column that a label names, with or without the prefix of metadata."""
    for one in (name, PREFIX + name):
        if one in columns:
            return one
    known = [one for one in columns if not one[-1:].isdigit()]  # emb_0, emb_1, ... would not help in a message
    raise _no_column(where, name, label, known)


def _set_aside(table: Table, names: Iterable[str]) -> Table:
    """Move label columns from the features of a table to its metadata."""
    features = table.features or ()
    aside = [name for name in dict.fromkeys(names) if name in features and name not in table.metadata]
    if not aside:
        return table
    left = [i for i, name in enumerate(features) if name not in aside]
    values = to_numpy(table.values)
    metadata = dict(table.metadata) | {name: values[:, features.index(name)] for name in aside}
    return replace(table, values=values[:, left], features=tuple(features[i] for i in left), metadata=metadata)


def _no_column(where: Any, name: str, label: str, known: Sequence[str]) -> InputError:
    return InputError(f"{where} has no column {name!r} for {label}; it has {listing(list(known), 12) or 'none'}")


def _labels(table: Table, label: str, source: Any, x: Any) -> Array:
    """One label for each row: a column of the table, or the array itself."""
    if not isinstance(source, str):
        _check_index(x, source, label)
        labels = to_numpy(source)
        if labels.shape != (table.n,):
            raise InputError(f"{label} must have one label for each of {table.n} rows, but has shape {labels.shape}")
        return labels
    column = table.metadata.get(source, table.metadata.get(PREFIX + source))
    if column is None and table.ids is not None and (source in ID_NAMES or PREFIX + source in ID_NAMES):
        return table.ids
    if column is None and table.features is None and not table.metadata:
        raise InputError(f"{label}={source!r} names a column, but x is an array without columns; pass the labels")
    if column is None:
        raise _no_column(table.path or table.name, source, label, list(table.metadata))
    return column


def _check_index(x: Any, labels: Any, label: str) -> None:
    """Refuse a pandas series whose index is not that of the frame it labels."""
    ours: Any = getattr(x, "index", None)
    theirs: Any = getattr(labels, "index", None)
    if hasattr(ours, "equals") and hasattr(theirs, "equals") and not ours.equals(theirs):
        raise InputError(f"the index of {label} differs from that of x: reindex it like x, or pass its values")


def _text(labels: Array) -> Array:
    """Labels as text, whole numbers without a decimal point."""
    return as_labels(labels).astype(str)


def _is_control(labels: Array, marks: Any, value: str | None, positive: Any) -> Array:
    column, text = marks if isinstance(marks, str) else "target", _text(labels)
    if value is None:
        wanted = [positive] if isinstance(positive, str) else list(map(str, positive))
        for one in wanted:
            if not (text == one).any():
                raise InputError(f"no row has positive {one!r}; {column} has {listing(np.unique(text), 8)}")
        return np.asarray(~np.isin(text, wanted) & ~missing_labels(labels))
    is_control = np.char.lower(text) == value.lower() if labels.dtype.kind == "b" else same_label(labels, value)
    if not is_control.any():
        known = listing(np.unique(text[~missing_labels(labels)]), 8)
        raise InputError(f"no row has {column} = {value} (control), so there are no controls; it has {known}")
    if is_control.all():
        raise InputError(f"all rows have {column} = {value} (control), so there is nothing to compare with them")
    return is_control


def _check_features(table: Table, is_control: Array) -> tuple[str, ...]:
    """Refuse a label among the features; note columns whose names differ from all others."""
    for name in _separating(table, is_control):
        raise InputError(
            f"column {name!r} would be part of the embedding, but it has one value in all controls and other values in "
            "all other rows, so it is a label; set it aside with metadata, or choose the embedding with features"
        )
    names = table.features or ()
    families = Counter(map(_family, names))
    largest = max(families.values(), default=0)
    unusual = [name for name in names if families[_family(name)] <= max(1, largest // 10)]
    if not unusual or 2 * len(unusual) > len(names):  # if all names differ, none stands out
        return ()
    usual = next(name for name in names if name not in unusual)
    return (
        f"The embedding has {len(names) - len(unusual)} columns such as {usual}, and also {listing(unusual, 8)}; "
        "if that is wrong, set these aside with metadata, or choose the embedding with features.",
    )


def _family(name: str) -> str:
    """The common part of the names of related columns: emb of emb_0, Cells of Cells_AreaShape_Area, e of e17."""
    return name.partition("_")[0].rstrip("0123456789")


def _separating(table: Table, is_control: Array) -> list[str]:
    """Columns that have one value in all controls and never elsewhere; with few rows, that may be chance."""
    controls, others = np.flatnonzero(is_control), np.flatnonzero(~is_control)
    if table.features is None or min(len(controls), len(others)) < FEWEST:
        return []
    x = to_numpy(table.values)
    same = np.flatnonzero((x[controls[:FEWEST]] == x[controls[0]]).all(0))  # few columns; these are checked in all rows
    return [
        table.features[j]
        for j in same
        if (x[controls, j] == x[controls[0], j]).all() and (x[others, j] != x[controls[0], j]).all()
    ]


def _kept(
    table: Table, labels: Mapping[str, Array], is_control: Array, control: str, drop_missing: bool
) -> LabelledRows:
    """Leave out rows with missing labels or values, or refuse them; name the target of each row."""
    good = np.ones(table.n, dtype=bool)
    for name, column in labels.items():
        bad = missing_labels(column) & ~(is_control & (name in NOT_FOR_CONTROLS))
        if bad.any() and not drop_missing:
            rows = np.flatnonzero(bad)
            raise InputError(
                f"{name} is missing in {len(rows)} of {table.n} rows (row {listing(rows)}); drop_missing leaves "
                "these rows out"
            )
        good &= ~bad
    if drop_missing:
        good &= finite_rows(table.values)
    else:
        finite_table(table)
    if not good.any():
        raise InputError("no rows are left once those with missing labels or values are left out")
    treatment = _text(labels["target"]) if "target" in labels else np.full(table.n, TREATED)
    treatment = np.where(is_control, control, np.where(treatment == control, f"{control} (not control)", treatment))
    dropped = int((~good).sum())
    rows = np.flatnonzero(good)
    taken = {name: column[rows] if dropped else column for name, column in labels.items()}
    return LabelledRows(
        table=table,
        target=treatment[rows] if dropped else treatment,
        control=control,
        batch=taken["batch"],
        guide=taken.get("guide"),
        cluster=taken.get("cluster"),
        image=taken.get("image"),
        kept=rows if dropped else None,
        notes=(f"{dropped} of {table.n} rows have missing labels or values and were left out.",) if dropped else (),
    )
