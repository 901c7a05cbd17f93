"""A baseline: a sample of rows, stored with ids, model, settings and versions, that later embeddings are checked by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from congruence._saved import is_saved, read_saved, write_saved
from congruence.align._options import ALLOWED, CheckOptions
from congruence.arrays import Array, listing, to_numpy
from congruence.checks import check_choice, check_integer, check_number, check_seed
from congruence.errors import InputError
from congruence.options import ReadOptions, reading, takes
from congruence.result import versions
from congruence.tables import Table, honours, pair_tables, read_table
from congruence.tables._arrays import IDS, TEXT_HEADER, VALUES
from congruence.tables.inputs import LEAST_ROWS, read_runs
from congruence.tables.table import in_one_kind, is_frame

ROWS, TOLERANCE, MARGIN = 1000, 0.01, 0.1
POSITIONS = "Metadata_position"  # of the rows of a table without ids
POLICY = ("allow", "tolerance", "margin", "normalize")  # options that a check takes from its baseline
COLUMNS = tuple(field.name for field in fields(ReadOptions))
EMBEDDERS = ("torch", "transformers", "tokenizers", "sentence-transformers")  # libraries that make embeddings


@dataclass(frozen=True, eq=False)
class Baseline:
    """The rows of a baseline, and what was known when they were saved."""

    table: Table  # with their ids where the table had some
    of: int  # number of rows of the table that they were sampled from
    settings: Mapping[str, Any]  # options for reading and judging that were given; checks use them unless given others
    versions: Mapping[str, str]  # of the installed libraries
    model_name: str | None = None
    positions: Array | None = None  # (n,) of the rows in the table, if they are a sample without ids

    def __repr__(self) -> str:
        of = f" of {self.of}" if self.of > self.table.n else ""
        return f"<Baseline of {self.model_name or 'a model'}: {self.table.n}{of} rows x {self.table.d}>"

    def pick(self, new: Table) -> Table:
        """The rows of a new table that may be those of the baseline: all, if the baseline is no sample."""
        if self.positions is not None:
            if new.n != self.of:
                raise InputError(
                    f"the baseline has rows of a table with {self.of} rows and without ids, but new has {new.n} rows; "
                    "save a baseline with ids (id=, --id)"
                )
            return _take(new, self.positions)
        if new.ids is None or self.table.ids is None or self.of == self.table.n:
            return new
        ids, known = in_one_kind([new.ids, self.table.ids])
        return _take(new, np.flatnonzero(np.isin(ids, known)))

    def describe(self, new: Table) -> dict[str, Any]:
        """The baseline as an entry of the settings, with the number of its rows that a new table lacks."""
        missing = 0
        if new.ids is not None and self.table.ids is not None:
            ids, known = in_one_kind([new.ids, self.table.ids])
            missing = int((~np.isin(known, ids)).sum())
        of = {"rows": self.table.n, "of": self.of, "missing": missing}
        return of | {"model_name": self.model_name, "versions": dict(self.versions)}


@takes(CheckOptions)
def save_baseline(x: Any, path: str | Path, *, options: CheckOptions) -> Baseline:
    """Save a sample of rows as the baseline of later checks.

    Rows are sampled by a hash of their ids and the seed, as ``compare(..., rows=)`` does: the same rows in any order.
    Without ids they are sampled by their position, and only tables with as many rows can be checked.

    Parameters
    ----------
    x : array, table, frame or path
        The embeddings.
    path : str or Path
        A .safetensors file, which is replaced if it exists. `read_table` reads its rows as well.

    Returns
    -------
    Baseline
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"a baseline is a .safetensors file; got {path}")
    size = ROWS if options.rows is None else check_integer("rows", options.rows, LEAST_ROWS)
    check_seed(options.seed)
    check_policy(options)
    table = read_runs([x], ["baseline"], reading(options))[0]
    cluster = options.cluster if isinstance(options.cluster, str) else ""
    named = {name: table.metadata[name] for name in (cluster, f"Metadata_{cluster}") if name in table.metadata}
    numbered = replace(table, metadata={**named, POSITIONS: np.arange(table.n)})  # no other column may become the id
    sampled = pair_tables(  # with itself, which samples and checks the rows
        [numbered, replace(numbered, name="again")],
        cluster=options.cluster,
        drop_missing=options.drop_missing,
        rows=size,
        seed=options.seed,
    )
    values = to_numpy(sampled.values[0])
    if len(values) < LEAST_ROWS:
        raise InputError(f"a baseline needs at least {LEAST_ROWS} rows; got {len(values)}")
    given = {name: getattr(options, name) for name in (*COLUMNS, *POLICY)}
    baseline = Baseline(
        table=Table(values, "baseline", sampled.ids, notes=table.notes),
        of=table.n,
        settings={n: list(v) if isinstance(v, tuple) else v for n, v in given.items() if v is not None},
        versions=installed(),
        model_name=options.model_name,
        positions=sampled.metadata[POSITIONS] if sampled.ids is None and len(values) < table.n else None,
    )
    _write(baseline, path, options.seed)
    return replace(baseline, table=replace(baseline.table, path=path))


def _write(baseline: Baseline, path: Path, seed: int) -> None:
    table = baseline.table
    header = {name: getattr(baseline, name) for name in ("model_name", "of", "settings", "versions")} | {"seed": seed}
    tensors, text = {VALUES: table.values}, {}
    if baseline.positions is not None:
        tensors[POSITIONS] = baseline.positions.astype(np.int64)
    if table.ids is not None and table.ids.dtype.kind == "i":
        tensors[IDS] = table.ids
    elif table.ids is not None:
        text[TEXT_HEADER] = json.dumps({IDS: table.ids.tolist()})
    write_saved(path, "baseline", header, tensors, text)


def load_baseline(path: str | Path) -> Baseline:
    """Load a baseline that `save_baseline` wrote; nothing in the file is executed."""
    header, _ = read_saved(path, (VALUES,), kinds=("baseline",), what="a baseline")
    table = read_table(path, name="baseline")
    of, name = header.get("of"), header.get("model_name")
    kept = {part: header.get(part) or {} for part in ("settings", "versions")}
    positions = table.metadata.get(POSITIONS)
    plain = all(isinstance(one, dict) and all(map(_is_plain, one.values())) for one in kept.values())
    if type(of) is not int or of < table.n or not plain or not isinstance(name, str | None):
        raise InputError(f"{path} is damaged: its header does not describe {table.n} rows")
    if positions is not None and not (positions.dtype.kind == "i" and ((positions >= 0) & (positions < of)).all()):
        raise InputError(f"{path} is damaged: it has rows at positions beyond {of}")
    return Baseline(replace(table, metadata={}), of, model_name=name, positions=positions, **kept)


def _is_plain(value: Any) -> bool:
    """Whether a setting is text, a number or a list of texts."""
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return texts or isinstance(value, str | int | float)


def as_baseline(x: Any) -> Baseline | None:
    """The baseline itself, or that in a file; None for other runs, which are read as tables."""
    if isinstance(x, Baseline):
        return x
    if not isinstance(x, str | Path) or Path(x).suffix != ".safetensors":
        return None
    if not Path(x).exists():
        raise InputError(f"there is no baseline {x}; make it with 'congruence check FILE --save {x}' or save_baseline")
    return load_baseline(x) if is_saved(x, "baseline") else None


def remembered(baseline: Baseline | None, new: Any, options: CheckOptions) -> CheckOptions:
    """The options with those of the baseline where none are given; for reading, where `new` has named columns."""
    saved = {} if baseline is None else dict(baseline.settings)
    columns = is_frame(new) or (isinstance(new, str | Path) and honours(new, "features"))
    if not columns or any(value is not None for value in reading(options).values()):
        saved = {name: value for name, value in saved.items() if name in POLICY}
    missing = [name for name in (*COLUMNS, *POLICY) if name in saved and getattr(options, name) is None]
    return replace(options, **{name: saved[name] for name in missing})


def check_policy(options: CheckOptions) -> tuple[str, float, float]:
    """What a check allows, its tolerance and its margin, with their defaults."""
    allow = check_choice("allow", "identity" if options.allow is None else options.allow, ALLOWED)
    tolerance = check_number("tolerance", TOLERANCE if options.tolerance is None else options.tolerance, 0, 1)
    margin = check_number("margin", MARGIN if options.margin is None else options.margin, 0, open_low=True)
    return allow, tolerance, margin


def installed() -> dict[str, str]:
    """The versions of the libraries that affect embeddings and their comparison."""
    found = dict(versions())
    for name in EMBEDDERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def version_notes(before: Mapping[str, str]) -> list[str]:
    """A note that names the libraries whose versions differ from those of the baseline."""
    now = installed()
    changed = [
        f"{name} {before[name]} -> {now[name]}" for name in before if now.get(name, before[name]) != before[name]
    ]
    return [f"Versions differ from those of the baseline: {listing(changed, 12)}."] if changed else []


def _take(table: Table, index: Array) -> Table:
    return replace(
        table,
        values=table.values[index],
        ids=None if table.ids is None else table.ids[index],
        metadata={name: column[index] for name, column in table.metadata.items()},
    )
