"""What users hand to `compare` (arrays, tensors, paths, tables, mappings) as matrices with paired rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, finite_rows, to_numpy
from congruence.errors import InputError
from congruence.tables import Joined, Table, join_tables, read_table, unique_names


@dataclass(frozen=True, eq=False)
class Inputs:
    """Runs whose rows are paired: row i of every matrix is the same thing."""

    names: list[str]
    values: list[Any]  # each (n, d_k)
    read: list[int]  # rows each run had before pairing
    cluster: Array | None  # (n,)
    notes: list[str]  # what was left out


def gather(runs: Mapping[str, Any] | Sequence[Any], cluster: Any, drop_missing: bool) -> Inputs:
    """Read, check and pair the runs."""
    names, given = _named(runs)
    if any(isinstance(run, str | Path | Table) for run in given):
        return _from_tables(names, given, cluster, drop_missing)
    return _from_arrays(names, given, cluster, drop_missing)


def _named(runs: Mapping[str, Any] | Sequence[Any]) -> tuple[list[str], list[Any]]:
    if isinstance(runs, Mapping):
        names, given = [str(name) for name in runs], list(runs.values())
    elif isinstance(runs, list | tuple):
        given = list(runs)
        names = unique_names([_label(i, run) for i, run in enumerate(given)])
    else:
        raise InputError(f"runs must be a list of runs or a mapping from name to run, not {type(runs).__name__}")
    if len(given) < 2:
        raise InputError(f"comparing takes at least 2 runs, but {len(given)} was given" if given else "no runs given")
    return names, given


def _label(i: int, run: Any) -> str | Path:
    if isinstance(run, Table):
        return run.path or run.name
    return run if isinstance(run, str | Path) else f"run{i}"


def _from_tables(names: list[str], given: list[Any], cluster: Any, drop_missing: bool) -> Inputs:
    tables = [_as_table(name, run) for name, run in zip(names, given, strict=True)]
    column = cluster if isinstance(cluster, str) else None
    if cluster is not None and column is None:
        raise InputError("with files or tables, cluster must be the name of a metadata column, not an array")
    joined = join_tables(tables, drop_missing=drop_missing, cluster=column)
    read = [table.n for table in tables]
    return Inputs(names, joined.values, read, joined.cluster, _pairing_notes(joined))


def _as_table(name: str, run: Any) -> Table:
    if isinstance(run, str | Path):
        return read_table(run, name=name)
    if isinstance(run, Table):
        return Table(run.values, name, run.ids, run.metadata, run.features, run.path)
    return Table(to_numpy(as_matrix(run, name, finite=False)), name)


def _from_arrays(names: list[str], given: list[Any], cluster: Any, drop_missing: bool) -> Inputs:
    values = [as_matrix(run, name, finite=not drop_missing) for name, run in zip(names, given, strict=True)]
    counts = [len(x) for x in values]
    if len(set(counts)) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in zip(names, counts, strict=True))
        raise InputError(f"arrays are paired row by row, so their row counts must agree: {found}")
    labels = _labels(cluster, counts[0])
    notes = []
    if drop_missing:
        keep = np.logical_and.reduce([finite_rows(x) for x in values])
        if not keep.any():
            raise InputError("every row has NaN or infinite values in some run, so nothing is left to compare")
        if not keep.all():
            values, labels = [x[keep] for x in values], None if labels is None else labels[keep]
            notes.append(f"{(~keep).sum()} of {counts[0]} rows have NaN or infinite values and were left out.")
    return Inputs(names, values, counts, labels, notes)


def _labels(cluster: Any, n: int) -> Array | None:
    if cluster is None:
        return None
    if isinstance(cluster, str):
        raise InputError(f"cluster={cluster!r} names a metadata column, but arrays have none; pass the labels")
    labels = to_numpy(cluster)
    if labels.shape != (n,):
        raise InputError(f"cluster must have one label per row, shape ({n},), but has shape {labels.shape}")
    return labels


def _pairing_notes(joined: Joined) -> list[str]:
    notes = []
    paired = len(joined.values[0])
    left_out = {name: count for name, count in joined.unmatched.items() if count}
    if left_out:
        found = ", ".join(f"{count} of {name}" for name, count in left_out.items())
        notes.append(f"{paired} rows were paired by id; rows without a partner were left out: {found}.")
    dropped = {name: count for name, count in joined.dropped.items() if count}
    if dropped:
        found = ", ".join(f"{count} of {name}" for name, count in dropped.items())
        notes.append(f"Rows with NaN or infinite values were left out: {found}.")
    return notes
