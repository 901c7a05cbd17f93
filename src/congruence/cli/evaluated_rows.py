"""The codes and the factors that `congruence evaluate` was given, brought into the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.cli import options as given
from congruence.errors import InputError
from congruence.runs import LATENTS

if TYPE_CHECKING:
    from congruence.arrays import Array
    from congruence.ica.latents import LatentComponents
    from congruence.runs import Run
    from congruence.tables import RowColumns, Table

NAMES = {"centred": " + ICA", "as is": " + ICA, not centred", "whitened": " + ICA, whitened"}


@dataclass(frozen=True, eq=False)
class Given:
    """Codes and factors of the same rows."""

    name: str
    codes: Array  # (n, L)
    code_names: tuple[str, ...] | None
    factors: dict[str, Array]  # each (n,)
    cluster: Array | None  # (n,)
    notes: tuple[str, ...]  # how rows were paired


def read_given(
    codes: Path,
    factors: Path | None,
    columns: str | None,
    *,
    group_by: str | None,
    drop_missing: bool,
    wishes: Mapping[str, str | None],
) -> Given:
    """Read codes and factors and pair their rows; `columns` names the factors, in their file or beside the codes."""
    from congruence.tables import read_row_columns

    if not codes.exists():
        raise InputError(f"there is no file and no run folder {codes}")
    if factors is None and columns is None:
        raise InputError("evaluate takes a file of codes and one of factors, or --factors with columns of the codes")
    own = factors is None
    facts = read_row_columns(factors or codes, id=wishes["id"], key=wishes["key"] if own else None)
    names = _picked(facts, columns, factors or codes, without=group_by)
    table = _read_codes(codes, wishes, aside=list(names.values()) if own else [])
    return _joined(table, facts, names, own=own, group_by=group_by, drop_missing=drop_missing)


def read_run(run: Run, factors: Path | None, columns: str | None, *, wishes: Mapping[str, str | None]) -> Given:
    """The codes and the factors that a training has written into its run folder."""
    if factors is not None:
        raise InputError(f"{run.folder} is a run folder, which has its own factors; leave {factors} out")
    for name, value in wishes.items():
        if value is not None:
            raise InputError(f"--{name} means nothing for a run folder such as {run.folder}")
    about = run.config.get("data")
    known = about.get("factors") if isinstance(about, dict) else None
    if not known:
        raise InputError(f"the data that {run.folder} was trained on has no factors, so nothing can be evaluated")
    if not (isinstance(known, list) and all(isinstance(one, str) for one in known)):
        raise InputError(f"the config of {run.folder} is damaged: factors must be a list of names, not {known!r}")
    latents = run.folder / LATENTS
    if not latents.exists():
        raise InputError(f"there is no {latents}; the training may not be over")
    nothing = dict.fromkeys(("id", "features", "metadata", "key"))
    found = read_given(latents, None, columns or ",".join(known), group_by=None, drop_missing=False, wishes=nothing)
    return replace(found, name=run.name)


def _picked(facts: RowColumns, columns: str | None, path: Path, *, without: str | None) -> dict[str, str]:
    """The columns that are factors: what they are called, and their names in the file."""
    short = {name if _called(name) in facts.columns else _called(name): name for name in facts.columns}
    if columns is None:
        return {name: full for name, full in short.items() if without not in (name, full)}
    chosen: dict[str, str] = {}
    for pattern in (part.strip() for part in columns.split(",")):
        hits = {name: full for name, full in short.items() if fnmatchcase(name, pattern) or pattern in (name, full)}
        if not hits:
            raise InputError(f"no column of {path} matches --factors {pattern!r}; it has {', '.join(list(short)[:10])}")
        chosen |= hits
    return chosen


def _called(name: str) -> str:
    """A column by its short name; the columns of a matrix, which have only numbers, as they are called in Python."""
    from congruence.tables.columns import PREFIX

    return f"factor{name}" if name.isdecimal() else name.removeprefix(PREFIX)


def _read_codes(path: Path, wishes: Mapping[str, str | None], aside: list[str]) -> Table:
    """The codes; columns that are factors are set aside, and so are no codes."""
    from congruence.arrays import to_numpy
    from congruence.tables import honours, read_table
    from congruence.tables.columns import patterns

    asked: dict[str, Any] = {key: wishes[key] for key in ("features", "key") if wishes[key] is not None}
    metadata = [*(patterns(wishes["metadata"]) or ()), *(aside if honours(path, "metadata") else ())]
    given.check_honoured([path], [key for key in ("features", "metadata", "key") if wishes[key] is not None])
    table = read_table(path, id=wishes["id"], metadata=metadata or None, **asked)
    names = table.features or tuple(map(str, range(table.d)))  # as `read_row_columns` calls them
    keep = [j for j, name in enumerate(names) if name not in aside]
    if len(keep) == table.d:
        return table
    if not keep:
        raise InputError(f"--factors names all columns of {path}, so that no codes are left")
    features = tuple(names[j] if table.features else f"code{j}" for j in keep)
    return replace(table, values=to_numpy(table.values)[:, keep], features=features)


def _joined(
    table: Table, facts: RowColumns, names: Mapping[str, str], *, own: bool, group_by: str | None, drop_missing: bool
) -> Given:
    """Pair rows as those of any two tables; the second holds the row numbers, or NaN where a factor is missing."""
    import numpy as np

    from congruence.tables import Table, join_tables
    from congruence.tables.labels import missing_labels

    numbers = np.arange(facts.n, dtype=np.float64)
    for full in names.values():
        numbers[missing_labels(facts.columns[full])] = np.nan
    beside = Table(numbers[:, None], "factors", None if own else facts.ids, facts.columns)
    if own:
        table = replace(table, ids=None)
    joined = join_tables([replace(table, name="codes"), beside], drop_missing=drop_missing, cluster=group_by)
    rows = joined.values[1][:, 0].astype(int)
    found = {name: facts.columns[full][rows] for name, full in names.items()}
    return Given(table.name, joined.values[0], table.features, found, joined.cluster, _pairing_notes(joined, own))


def _pairing_notes(joined: Any, own: bool) -> tuple[str, ...]:
    notes = [
        f"{count} rows of {name} have no partner and were left out."
        for name, count in joined.unmatched.items()
        if count
    ]
    dropped = sum(joined.dropped.values())
    if dropped:
        notes.append(f"Rows with missing values were left out; {joined.n} are left.")
    if joined.by_position and not own:
        notes.append("Rows of codes and factors were paired by their position.")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class Unmixed:
    """Rows whose codes are independent components of other codes, and these components."""

    rows: Given
    components: LatentComponents


def unmixed(rows: Given, *, discrete_codes: bool, seed: int) -> list[Unmixed]:
    """The independent components of codes in every way: centred, not centred, and whitened."""
    from congruence.ica.latents import WAYS, latent_components

    if discrete_codes:
        raise InputError(f"--ica takes codes that are numbers, but those of {rows.name} are classes")
    found = []
    for way in WAYS:
        one = latent_components(rows.codes, way=way, seed=seed)
        called = tuple(f"component{j}" for j in range(one.k))
        name = rows.name + NAMES[way]
        notes = () if one.converged else (f"{name}: components did not settle, so their axes may be arbitrary.",)
        turned = replace(rows, name=name, codes=one.transform(rows.codes), code_names=called, notes=notes)
        found.append(Unmixed(turned, one))
    return found
