"""What users hand to `compare` (arrays, tensors, paths, tables, mappings) as matrices with paired rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Rows, as_matrix, finite_rows, is_dask, listing, to_numpy
from congruence.errors import InputError
from congruence.maps.blocks import DaskRows, brought
from congruence.tables import Joined, Table, join_tables, read_table, unique_names
from congruence.tables.spill import take_rows


@dataclass(frozen=True, eq=False)
class Inputs:
    """Runs whose rows are paired: row i of every matrix is the same thing."""

    names: list[str]
    values: list[Any]  # each (n, d_k)
    read: list[int]  # rows each run had before pairing
    cluster: Array | None  # (n,)
    labels: Array | None  # (n,) or (n, m)
    ids: Array | None  # (n,)
    metadata: dict[str, Array]  # of the first run, each (n,)
    by_id: bool  # whether ids, rather than positions, paired the rows
    notes: list[str]  # what was left out
    blocks: list[DaskRows | None] = field(default_factory=list)  # the rows of each run on workers, where they are there

    def rows(self, device: str, normalize: str | None) -> list[Rows]:
        """The rows of each run, to be summed by workers where they have them; a graphics card is faster than these."""
        blocks = self.blocks if device == "cpu" else [None] * len(self.values)
        return [
            Rows(values, device, normalize == "cosine", blocks=there)
            for values, there in zip(self.values, blocks, strict=True)
        ]


def gather(runs: Mapping[str, Any] | Sequence[Any], cluster: Any, drop_missing: bool, labels: Any = None) -> Inputs:
    """Read, check and pair the runs; `cluster` and `labels` are metadata columns of tables, or arrays beside arrays."""
    names, given = _named(runs)
    # Re-pairings put rows of one run beside any rows of another, so what workers hold is brought here once.
    there = brought({name: _values(run) for name, run in zip(names, given, strict=True) if is_dask(_values(run))})
    given = [_here(run, there[name][0]) if name in there else run for name, run in zip(names, given, strict=True)]
    paired = _from_tables if any(isinstance(run, str | Path | Table) for run in given) else _from_arrays
    inputs = paired(names, given, cluster, drop_missing, labels)
    # Blocks are still the rows of a run if none was left out or moved, which is when they are handed on as they are.
    rows = [there.get(name, (None, None)) for name in names]
    blocks = [found if x is here else None for x, (here, found) in zip(inputs.values, rows, strict=True)]
    return replace(inputs, blocks=blocks)


def _named(runs: Mapping[str, Any] | Sequence[Any]) -> tuple[list[str], list[Any]]:
    if isinstance(runs, Mapping):
        names, given = [str(name) for name in runs], list(runs.values())
    elif isinstance(runs, list | tuple):
        given = list(runs)
        names = _names(given)
    else:
        raise InputError(f"runs must be a list of runs or a mapping from name to run, not {type(runs).__name__}")
    if len(given) < 2:
        raise InputError(f"comparing takes at least 2 runs, but {len(given)} was given" if given else "no runs given")
    if len(set(names)) < len(names):
        raise InputError(f"runs must have different names, but are called {', '.join(names)}")
    return names, given


def _values(run: Any) -> Any:
    return run.values if isinstance(run, Table) else run


def _here(run: Any, rows: Array) -> Any:
    """A run with the rows that were brought here."""
    return replace(run, values=rows) if isinstance(run, Table) else rows


def _names(given: list[Any]) -> list[str]:
    """Tables keep their names, paths give their stems, arrays are numbered; clashes are told apart by folder."""
    names = [
        run.name if isinstance(run, Table) else stem if isinstance(run, str | Path) else f"run{i}"
        for i, (run, stem) in enumerate(zip(given, _stems(given), strict=True))
    ]
    if len(set(names)) == len(names):
        return names
    paths = [
        getattr(run, "path", None) or (run if isinstance(run, str | Path) else name)
        for run, name in zip(given, names, strict=True)
    ]
    return unique_names(paths)


def _stems(given: list[Any]) -> list[str]:
    paths = [run for run in given if isinstance(run, str | Path)]
    stems = iter(unique_names(paths)) if paths else iter(())
    return [next(stems) if isinstance(run, str | Path) else "" for run in given]


def _from_tables(names: list[str], given: list[Any], cluster: Any, drop_missing: bool, labels: Any) -> Inputs:
    tables = [_as_table(name, run) for name, run in zip(names, given, strict=True)]
    column = cluster if isinstance(cluster, str) else None
    if cluster is not None and column is None:
        raise InputError("with files or tables, cluster must be the name of a metadata column, not an array")
    joined = join_tables(tables, drop_missing=drop_missing, cluster=column)
    return Inputs(
        names=names,
        values=joined.values,
        read=[table.n for table in tables],
        cluster=joined.cluster,
        labels=_column(joined, labels),
        ids=joined.ids,
        metadata=dict(joined.metadata),
        by_id=not joined.by_position,
        notes=_pairing_notes(joined),
    )


def _column(joined: Joined, labels: Any) -> Array | None:
    if labels is None:
        return None
    if not isinstance(labels, str):
        raise InputError("with files or tables, labels must be the name of a metadata column, not an array")
    for name in (labels, f"Metadata_{labels}"):
        if name in joined.metadata:
            found = joined.metadata[name]
            return found.astype(str) if found.dtype == object else found
    known = ", ".join(joined.metadata) or "none"
    raise InputError(f"{joined.names[0]} has no metadata column {labels!r} to take labels from; it has {known}")


def _as_table(name: str, run: Any) -> Table:
    if isinstance(run, str | Path):
        return read_table(run, name=name)
    if isinstance(run, Table):
        return Table(run.values, name, run.ids, run.metadata, run.features, run.path)
    return Table(to_numpy(as_matrix(run, name, finite=False)), name)


def _from_arrays(names: list[str], given: list[Any], cluster: Any, drop_missing: bool, labels: Any) -> Inputs:
    _check_indexes(names, given)
    values = [as_matrix(run, name, finite=not drop_missing) for name, run in zip(names, given, strict=True)]
    counts = [len(x) for x in values]
    if len(set(counts)) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in zip(names, counts, strict=True))
        raise InputError(f"arrays are paired row by row, so their row counts must agree: {found}")
    groups = _per_row(cluster, counts[0], "cluster", dimensions=1)
    targets = _per_row(labels, counts[0], "labels", dimensions=2)
    notes = []
    if drop_missing:
        keep = np.logical_and.reduce([finite_rows(x) for x in values])
        if not keep.any():
            raise InputError("every row has NaN or infinite values in some run, so nothing is left to compare")
        if not keep.all():
            values = [take_rows(x, np.flatnonzero(keep), name) for name, x in zip(names, values, strict=True)]
            groups, targets = (None if a is None else a[keep] for a in (groups, targets))
            notes.append(f"{(~keep).sum()} of {counts[0]} rows have NaN or infinite values and were left out.")
    return Inputs(names, values, counts, groups, targets, None, {}, False, notes)


def _check_indexes(names: list[str], given: list[Any]) -> None:
    """Data frames are paired row by row like arrays, so their indexes must not say otherwise."""
    frames = [
        (name, run) for name, run in zip(names, given, strict=True) if hasattr(run, "index") and hasattr(run, "columns")
    ]
    for name, frame in frames[1:]:
        first = frames[0][1]
        if len(frame) == len(first) and not frame.index.equals(first.index):
            raise InputError(
                f"the data frames {frames[0][0]} and {name} have different indexes: "
                "reindex one like the other, or pass frame.to_numpy() to pair them row by row"
            )


def _per_row(given: Any, n: int, name: str, dimensions: int) -> Array | None:
    """One entry (or, in two dimensions, one row) for each row of the runs."""
    if given is None:
        return None
    if isinstance(given, str):
        raise InputError(f"{name}={given!r} names a metadata column, but arrays have none; pass the labels")
    labels = to_numpy(given)
    if not 1 <= labels.ndim <= dimensions or len(labels) != n:
        raise InputError(f"{name} must have one label per row, shape ({n},), but has shape {labels.shape}")
    missing = np.flatnonzero([label is None or label != label for label in labels] if labels.ndim == 1 else [])
    if missing.size:
        raise InputError(f"{name} has missing labels (row {listing(missing)})")
    return labels.astype(str) if labels.dtype == object else labels


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
