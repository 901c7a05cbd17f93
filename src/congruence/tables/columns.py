"""Which columns of a columnar file are the ids, which the features and which metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from congruence.arrays import listing
from congruence.errors import TableError

PREFIX = "Metadata_"
ID_NAMES = ("id", "row_id", "Metadata_id")
# How pandas writes the index of a frame: in parquet, in csv, and in a csv that went through pandas twice.
INDEX_NAMES = ("__index_level_0__", "", "Unnamed: 0")

NUMBER, LIST, NESTED = "number", "list", "nested"


@dataclass(frozen=True)
class Selection:
    """What the user asked for: which column is the id, which are features, which array inside the file."""

    id: str | None = None
    features: tuple[str, ...] | None = None
    metadata: tuple[str, ...] | None = None
    key: str | None = None
    name: str = ""

    def refuse(self, path: Path, *options: str, because: str) -> None:
        """Raise an error if any of `options` was given, since this kind of file cannot honour it."""
        given = [f"--{option}" for option in options if getattr(self, option) is not None]
        if given:
            raise TableError(f"{path} cannot be read with {' and '.join(given)}: {because}")


@dataclass(frozen=True)
class Columns:
    """The part each column plays."""

    values: tuple[str, ...]  # the feature columns, or the one column of lists
    lists: bool  # whether values come from a column of lists
    id: str | None
    metadata: tuple[str, ...]

    @property
    def beside(self) -> list[str]:
        """The columns that are not the values."""
        return [*([] if self.id is None else [self.id]), *self.metadata]


def patterns(spec: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Split ``"emb_*, pc_*"`` into its glob patterns; a list is taken as it is."""
    if spec is None:
        return None
    return tuple(part.strip() for part in spec.split(",")) if isinstance(spec, str) else tuple(spec)


def is_number(cell: str) -> bool:
    """Whether a cell of a csv file, or a column name, reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def choose_columns(
    kinds: Mapping[str, str],
    select: Selection,
    path: Path,
    *,
    index: Sequence[str] = (),
    recorded_id: str | None = None,
) -> Columns:
    """Divide the columns of a file into id, features and metadata.

    Parameters
    ----------
    kinds : mapping of column name to kind
        "number", "list" (of numbers), "nested" (anything else with several values per row), or words that
        describe a column of another kind, which are shown to the user.
    select : Selection
        The user's wishes, which come first.
    path : Path
        For messages.
    index : sequence of str
        Columns that hold the index of a pandas frame: never features.
    recorded_id : str, optional
        The id column as `write_table` recorded it in the file.
    """
    apart = {name for name in kinds if name in index or name in INDEX_NAMES}
    id = choose_id(kinds, select, path, apart, recorded_id)
    named = _matching(select.metadata or (), kinds, path, "metadata")
    barred = apart | set(named) | {id}
    if select.key is not None:
        wished = [_check_key(select.key, kinds, path)]
    elif select.features is not None:
        wished = [name for name in _matching(select.features, kinds, path, "features") if name not in barred]
    else:
        wished = [name for name in kinds if name not in barred and not name.startswith(PREFIX)]
        # A column of vectors is unmistakably the embedding; what stands beside it is metadata.
        wished = [name for name in wished if kinds[name] == LIST] or wished
    _check_features(wished, kinds, path)
    taken = {*wished, id}
    rest = [name for name in kinds if name not in taken and kinds[name] not in (LIST, NESTED)]
    return Columns(tuple(wished), kinds[wished[0]] == LIST, id, tuple(rest))


def choose_id(
    kinds: Mapping[str, str], select: Selection, path: Path, apart: set[str], recorded_id: str | None
) -> str | None:
    """The column that holds the ids: the one asked for, the one recorded in the file, or one of a usual name."""
    if select.id is not None:
        for name in (select.id, PREFIX + select.id):
            if name in kinds:
                return name
        raise TableError(f"{path} has no column {select.id!r} for --id; it has {listing(list(kinds), 10)}")
    usual = ID_NAMES if recorded_id is None else (recorded_id, *ID_NAMES)
    for name in usual:
        if name in kinds:
            return name
    # The index of a frame serves as ids when somebody gave it names; plain counting says nothing.
    return next((name for name in kinds if name in apart and kinds[name] not in (NUMBER, LIST, NESTED)), None)


def _matching(globs: Sequence[str], kinds: Mapping[str, str], path: Path, option: str) -> list[str]:
    """Return the columns that match any of the patterns, in the order of the file."""
    chosen: set[str] = set()
    for glob in globs:
        hits = {name for name in kinds if name == glob or fnmatchcase(name, glob)}
        if option == "features" and not glob.startswith(PREFIX):
            hits = {name for name in hits if not name.startswith(PREFIX)}  # "*" means all the features
        if not hits:
            raise TableError(f"no column of {path} matches --{option} {glob!r}; it has {listing(list(kinds), 10)}")
        chosen |= hits
    return [name for name in kinds if name in chosen]


def _check_key(key: str, kinds: Mapping[str, str], path: Path) -> str:
    if kinds.get(key) != LIST:
        lists = [name for name, kind in kinds.items() if kind == LIST]
        there = f"it has {listing(lists, 10)}" if lists else "it has none; use --features for plain columns"
        raise TableError(f"{path} has no column of lists of numbers called {key!r} (--key); {there}")
    return key


def _check_features(wished: Sequence[str], kinds: Mapping[str, str], path: Path) -> None:
    if not wished:
        raise TableError(
            f"{path} has no feature columns besides its ids and metadata; it has {listing(list(kinds), 10)}"
        )
    lists = [name for name in wished if kinds[name] == LIST]
    if lists and len(wished) > 1:
        raise TableError(
            f"{path}: one column of lists can be the features, but there is more than one column to choose "
            f"from ({listing(wished, 10)}); name it with --key"
        )
    wrong = [f"{name} ({kinds[name]})" for name in wished if kinds[name] not in (NUMBER, LIST)]
    if wrong:
        columns = "a column that is" if len(wrong) == 1 else "columns that are"
        raise TableError(
            f"{path} has {columns} not numbers: {listing(wrong, 10)}; choose the features with "
            f"--features, name other columns with --metadata or give them the prefix {PREFIX}"
        )
