"""The table that `congruence deconfound` was given: embeddings, what was done to each row, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from congruence.cli import options as given
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.arrays import Array
    from congruence.tables import Table

FEWEST = 10  # controls, and other rows, from which on a column that tells them apart is no chance
DIGITS = "0123456789"
CONTROL, PERTURBED = "control", "perturbed"  # what rows are called where no column names them


@dataclass(frozen=True, eq=False)
class Screened:
    """Embeddings with labels, all of the same rows."""

    table: Table
    perturbation: Array  # (n,) of text
    control: str  # the perturbation of controls
    batch: Array  # (n,)
    guides: Array | None
    groups: Array | None
    images: Array | None
    kept: Array | None  # numbers of the rows of the file that are left, where some were dropped
    rows: int  # of the file
    notes: tuple[str, ...]


def read_screened(
    paths: list[str],
    *,
    control: str | None,
    positive: list[str],
    batch: str,
    by: str | None,
    guide: str | None,
    groups: str | None,
    aggregate: str | None,
    drop_missing: bool,
    wishes: Mapping[str, str | None],
) -> Screened:
    """Read the table and its labels; rows whose labels are missing are refused, or with `drop_missing` left out."""
    column, value = _control(control, by, positive)
    named = {"--control": column, "--batch": batch, "--by": by, "--guide": guide, "--groups": groups}
    named |= {"--aggregate": aggregate}
    table = _read(paths, {option: name for option, name in named.items() if name is not None}, wishes)
    found = {option: _column(table, name, option) for option, name in named.items() if name is not None}
    is_control = _is_control(found, column, value, positive)
    notes = () if wishes.get("features") is not None else _doubtful(table, is_control)
    rows = _kept(table, found, is_control, value if by is None or column == by else None, drop_missing)
    return replace(rows, notes=(*notes, *rows.notes))


def _control(control: str | None, by: str | None, positive: list[str]) -> tuple[str | None, str]:
    """The column and the value that tell controls; none where --positive tells what is not one."""
    if control is None:
        if not positive or by is None:
            raise InputError(
                "controls must be known: give --control COLUMN=VALUE, or --by COLUMN with --positive VALUE"
            )
        return None, CONTROL
    column, equals, value = (part.strip() for part in control.partition("="))
    if not (column and equals and value):
        raise InputError(f"--control takes COLUMN=VALUE such as perturbation=DMSO, not {control!r}")
    if positive and by is None:
        raise InputError("--positive names values of the column --by, which is not given")
    return column, value


def _read(paths: list[str], named: Mapping[str, str], wishes: Mapping[str, str | None]) -> Table:
    """The table; columns that are named as labels are set aside, whatever they hold."""
    from congruence.tables import read_parts
    from congruence.tables.columns import ID_NAMES, PREFIX, patterns
    from congruence.tables.header import column_names

    asked = {name: value for name, value in wishes.items() if value is not None}
    given.check_honoured(paths, [name for name in asked if name != "id"])
    header = column_names(paths[0])
    if header is None:
        return read_parts(paths, **asked)
    aside = []
    for option, name in named.items():
        there = [one for one in (name, PREFIX + name) if one in header]
        if not there:
            _missing(paths[0], name, option, [one for one in header if not _is_counted(one)])
        if there[0] not in (*ID_NAMES, asked.get("id")):
            aside.append(there[0])
    metadata = [*(patterns(asked.pop("metadata", None)) or ()), *dict.fromkeys(aside)]
    return read_parts(paths, metadata=metadata or None, **asked)


def _is_counted(name: str) -> bool:
    """Whether a column is one of many like it (emb_0, emb_1, ...), which would not help in a message."""
    return name[-1:].isdigit()


def _missing(where: Any, name: str, option: str, there: list[str]) -> None:
    from congruence.arrays import listing

    raise InputError(f"{where} has no column {name!r} for {option}; it has {listing(there, 12) or 'none'}")


def _column(table: Table, name: str, option: str) -> Array:
    from congruence.tables.columns import ID_NAMES, PREFIX

    found = table.metadata.get(name, table.metadata.get(PREFIX + name))
    if found is None and table.ids is not None and (name in ID_NAMES or PREFIX + name in ID_NAMES):
        return table.ids
    if found is None:
        _missing(table.path or table.name, name, option, list(table.metadata))
    assert found is not None
    return found


def _text(column: Array) -> Array:
    """A column as text, whole numbers as such."""
    from congruence.tables.labels import as_labels

    return as_labels(column).astype(str)


def _is_control(found: Mapping[str, Array], column: str | None, value: str, positive: list[str]) -> Array:
    import numpy as np

    from congruence.arrays import listing
    from congruence.tables.labels import missing_labels, same_label

    if column is None:
        labels = _text(found["--by"])
        for one in positive:
            if not (labels == one).any():
                raise InputError(f"no row has --positive {one!r}; the column has {listing(np.unique(labels), 8)}")
        return np.asarray(~np.isin(labels, positive) & ~missing_labels(found["--by"]))
    marks = found["--control"]
    labels = _text(marks)
    is_control = np.char.lower(labels) == value.lower() if marks.dtype.kind == "b" else same_label(marks, value)
    if not is_control.any():
        there = listing(np.unique(labels[~missing_labels(marks)]), 8)
        raise InputError(f"no row has {column} = {value} (--control), so there are no controls; it has {there}")
    if is_control.all():
        raise InputError(f"all rows have {column} = {value} (--control), so there is nothing to tell from them")
    return is_control


def _doubtful(table: Table, is_control: Array) -> tuple[str, ...]:
    """Refuse a label that was taken for part of the embedding; note columns that are called unlike all others."""
    from congruence.arrays import listing

    for name in _telling(table, is_control):
        raise InputError(
            f"column {name!r} is taken for part of the embedding, but has one value in all controls and others in all "
            "other rows, so it says which rows are controls; name it with --metadata, or choose with --features"
        )
    names = table.features or ()
    families = Counter(map(_family, names))
    largest = max(families.values(), default=0)
    odd = [name for name in names if families[_family(name)] <= max(1, largest // 10)]
    if not odd or 2 * len(odd) > len(names):  # where all have names of their own, none is odd
        return ()
    usual = next(name for name in names if name not in odd)
    return (
        f"Taken for part of the embedding, beside {len(names) - len(odd)} columns such as {usual}: {listing(odd, 8)}; "
        "if that is wrong, name them with --metadata, or choose with --features.",
    )


def _family(name: str) -> str:
    """What columns that belong together have in common: emb of emb_0, Cells of Cells_AreaShape_Area, e of e17."""
    return name.partition("_")[0].rstrip(DIGITS)


def _telling(table: Table, is_control: Array) -> list[str]:
    """Columns that hold one value in all controls, and never elsewhere; of few rows, chance might do that."""
    import numpy as np

    from congruence.arrays import to_numpy

    controls, others = np.flatnonzero(is_control), np.flatnonzero(~is_control)
    if table.features is None or min(len(controls), len(others)) < FEWEST:
        return []
    x = to_numpy(table.values)
    same = np.flatnonzero((x[controls[:FEWEST]] == x[controls[0]]).all(0))  # few; all rows are looked at for these
    return [
        table.features[j]
        for j in same
        if (x[controls, j] == x[controls[0], j]).all() and (x[others, j] != x[controls[0], j]).all()
    ]


def _kept(
    table: Table, found: Mapping[str, Array], is_control: Array, value: str | None, drop_missing: bool
) -> Screened:
    """Leave out rows without labels or values; name rows by what was done to them."""
    import numpy as np

    from congruence.arrays import finite_rows, listing
    from congruence.tables import finite_table
    from congruence.tables.labels import missing_labels

    good = np.ones(table.n, dtype=bool)
    for option, column in found.items():
        optional = option in ("--by", "--guide", "--groups")  # controls need none of these
        bad = missing_labels(column) & ~(is_control & optional)
        if bad.any() and not drop_missing:
            rows = np.flatnonzero(bad)
            raise InputError(
                f"the column of {option} is missing in {len(rows)} of {table.n} rows (row {listing(rows)}); leave such "
                "rows out with --drop-missing"
            )
        good &= ~bad
    if drop_missing:
        good &= finite_rows(table.values)
    else:
        finite_table(table)
    if not good.any():
        raise InputError("no rows are left once those with missing labels or values are left out")
    rows = np.flatnonzero(good)
    name = CONTROL if value is None else value
    done = _text(found["--by"]) if "--by" in found else np.full(table.n, PERTURBED)
    perturbation = np.where(is_control, name, np.where(~is_control & (done == name), f"{name} (not control)", done))
    taken = {option: column[rows] for option, column in found.items()}
    dropped = table.n - len(rows)
    return Screened(
        table,
        perturbation[rows],
        name,
        taken["--batch"],
        taken.get("--guide"),
        taken.get("--groups"),
        taken.get("--aggregate"),
        rows if dropped else None,
        table.n,
        (f"{dropped} of {table.n} rows have missing labels or values and were left out.",) if dropped else (),
    )
