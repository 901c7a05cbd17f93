"""Which columns of a file or a data frame are the ids, which the features and which metadata.

Columns that were not named by the user are judged by their names and, where a `Look` at the rows is given, by what they
hold: an integer column in which no value repeats is more likely to number the rows than to describe them, so it never
becomes a dimension of the embedding without a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import TableError
from congruence.tables.labels import EXACT, missing_labels

PREFIX = "Metadata_"
ID_NAMES = ("id", "row_id", "Metadata_id")  # always the id, whatever they hold
# How pandas writes the index of a frame: in parquet, in csv, and in a csv that went through pandas twice.
INDEX_NAMES = ("__index_level_0__", "", "Unnamed: 0")
ENDS_LIKE_ID = re.compile(r"(?i:(.*[_. -])?(id|ids|uid|uuid|guid))|.*[a-z0-9](Id|ID)")
WORDS_LIKE_ID = frozenset(
    {"index", "idx", "key", "name", "row", "row_number", "row_name", "sample", "sample_name", "cell", "doc", "document"}
    | {"image", "file", "filename", "file_name", "path", "barcode", "accession"}
)
LONGEST_ID = 64  # characters; longer text is a document rather than a name
NAMED = 20  # columns that a note lists
FEWEST = 3  # rows from which on distinct integers tell anything
COUNTS = 10  # where more than 1 in so many columns hold distinct integers, they are counts and not ids
HEAD, MOST = 2**10, 2**22  # rows that rule out most columns, and rows that decide about the others

NUMBER, LIST, NESTED = "number", "list", "nested"


@dataclass(frozen=True)
class Selection:
    """What the user asked for: which column is the id, which are features, which array inside the file."""

    id: str | None = None
    features: tuple[str, ...] | None = None
    metadata: tuple[str, ...] | None = None
    key: str | None = None
    name: str = ""
    like: Layout | None = None  # choose the same columns as in another file, where all columns are the same

    def refuse(self, path: Path | str, *options: str, because: str) -> None:
        """Raise an error if any of `options` was given, since this kind of file cannot honour it."""
        given = [f"--{option}" for option in options if getattr(self, option) is not None]
        if given:
            raise TableError(f"{path} cannot be read with {' and '.join(given)}: {because}")


@dataclass(frozen=True)
class RowId:
    """How the rows are identified."""

    column: str | None = None
    indexed: bool = False  # by the index of a data frame; without a column or range, by the default one: 0, 1, ...
    range: tuple[int, int] | None = None  # by an index that pandas stores as its start and step
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The part each column plays."""

    values: tuple[str, ...]  # the feature columns, or the one column of lists
    lists: bool  # whether values come from a column of lists
    row_id: RowId
    metadata: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        """The column with the ids."""
        return self.row_id.column

    @property
    def beside(self) -> list[str]:
        """The columns that are not the values."""
        return [*([] if self.id is None else [self.id]), *self.metadata]


@dataclass(frozen=True)
class Layout:
    """The columns of a file by name and kind, and the part that was chosen for each."""

    kinds: tuple[tuple[str, str], ...]
    columns: Columns


@dataclass(frozen=True, eq=False)
class Look:
    """What is needed of the rows to judge a column."""

    n: int
    text: Collection[str]  # the columns that hold text
    head: Callable[[Sequence[str]], Mapping[str, Array]]  # the first `HEAD` rows of some columns
    column: Callable[[str], Array]  # the first `MOST` rows of one

    def whole(self, names: Sequence[str]) -> list[str]:
        """The columns whose first rows hold whole numbers only."""
        head = self.head(names) if names else {}
        return [name for name in names if _whole(head[name]) is not None]

    def distinct(self, names: Sequence[str], *, missing: bool = False) -> list[str]:
        """The columns of whole numbers, or of short text, in which no value repeats (or is missing)."""
        head = self.head(names) if names else {}
        return [
            name
            for name in names
            if self._is_distinct(name, head[name], missing)
            and (self.n <= HEAD or self._is_distinct(name, self.column(name), missing))
        ]

    def _is_distinct(self, name: str, values: Array, missing: bool) -> bool:
        if name in self.text:
            items = values.tolist()
            return (
                not missing_labels(values).any()
                and len(set(items)) == len(items)
                and max(map(len, map(str, items)), default=0) <= LONGEST_ID
            )
        whole = _whole(values)
        if whole is None or (len(whole) < len(values) and not (missing and 2 * len(whole) > len(values))):
            return False
        return len(np.unique(whole)) == len(whole)


def _whole(values: Array) -> Array | None:
    """The numbers that are there, if all are whole; missing ones are left out."""
    if values.dtype.kind in "iu":
        return values
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    there = numbers[~np.isnan(numbers)]
    return there if there.size and bool(((there == np.floor(there)) & (np.abs(there) < EXACT)).all()) else None


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
    path: Path | str,
    *,
    index: Sequence[str] = (),
    recorded_id: str | None = None,
    range_index: tuple[int, int] | None = None,
    look: Look | None = None,
) -> Columns:
    """Divide the columns of a file or frame into id, features and metadata.

    Parameters
    ----------
    kinds : mapping of column name to kind
        "number", "list" (of numbers), "nested" (anything else with several values per row), or words that
        describe a column of another kind, which are shown to the user.
    select : Selection
        The user's wishes, which come first.
    path : Path or str
        For messages.
    index : sequence of str
        Columns that hold the index of a pandas frame: never features.
    recorded_id : str, optional
        The id column as `write_table` recorded it in the file; empty if it recorded that there is none. Nothing is
        guessed then.
    range_index : (start, step), optional
        The index of a pandas frame that is not stored as a column.
    look : Look, optional
        The rows, for what names and kinds do not tell.
    """
    if select.like is not None and select.like.kinds == tuple(kinds.items()):
        return select.like.columns
    look = None if recorded_id is not None else look
    row_id = choose_id(kinds, select, path, index=index, recorded_id=recorded_id, range_index=range_index, look=look)
    named = _matching(select.metadata or (), kinds, path, "metadata")
    barred = _index_columns(kinds, index) | set(named) | {row_id.column}
    notes: tuple[str, ...] = ()
    if select.key is not None:
        wished = [_check_key(select.key, kinds, path)]
    elif select.features is not None:
        wished = [name for name in _matching(select.features, kinds, path, "features") if name not in barred]
    else:
        wished = [name for name in kinds if name not in barred and not name.startswith(PREFIX)]
        # A column of vectors is unmistakably the embedding; what stands beside it is metadata.
        lists = [name for name in wished if kinds[name] == LIST]
        if lists:
            wished = lists
        elif look is not None:
            wished, notes = _without_ids(wished, kinds, look)
    _check_features(wished, kinds, path)
    taken = {*wished, row_id.column}
    rest = [name for name in kinds if name not in taken and kinds[name] not in (LIST, NESTED)]
    return Columns(tuple(wished), kinds[wished[0]] == LIST, row_id, tuple(rest), (*row_id.notes, *notes))


def choose_id(
    kinds: Mapping[str, str],
    select: Selection,
    path: Path | str,
    *,
    index: Sequence[str] = (),
    recorded_id: str | None = None,
    range_index: tuple[int, int] | None = None,
    look: Look | None = None,
) -> RowId:
    """Choose what identifies the rows; the arguments are those of `choose_columns`.

    In this order: the column asked for, the one recorded in the file, one of the names in `ID_NAMES`, an index of
    names, a column named like an id without repeated values, the only column of text without repeated values (unless
    some read as numbers, so that it may be a damaged feature), and an index of integers other than 0, 1, ...
    """
    if select.id is not None:
        for name in (select.id, PREFIX + select.id):
            if name in kinds:
                return RowId(name)
        raise TableError(f"{path} has no column {select.id!r} for --id; it has {listing(list(kinds), 10)}")
    for name in (*([recorded_id] if recorded_id else []), *ID_NAMES):
        if name in kinds:
            return RowId(name)
    indexes = _index_columns(kinds, index)
    apart = [name for name in kinds if name in indexes]
    for name in apart:
        if kinds[name] not in (NUMBER, LIST, NESTED):
            return RowId(name, indexed=True)
    if look is None:
        return RowId()
    spoken_for = {*apart, *_matching(select.metadata or (), kinds, path, "metadata")}
    spoken_for |= {name for glob in select.features or () for name in kinds if name == glob or fnmatchcase(name, glob)}
    free = [name for name in kinds if name not in spoken_for and (kinds[name] == NUMBER or name in look.text)]
    likely = sorted((name for name in free if id_likeness(name)), key=id_likeness)
    for name in look.distinct(likely):
        return RowId(name, notes=(f"Column {name} is taken as the row id.",))
    texts = look.distinct([name for name in free if name in look.text and not name.startswith(PREFIX)])
    if len(texts) == 1 and look.n >= FEWEST and not any(is_number(str(cell)) for cell in look.head(texts)[texts[0]]):
        return RowId(texts[0], notes=(f"Column {texts[0]} is taken as the row id.",))
    if len(apart) == 1 and kinds[apart[0]] == NUMBER and look.whole(apart):
        counted = np.array_equal(look.column(apart[0]), np.arange(min(look.n, MOST)))
        return RowId(None if counted else apart[0], indexed=True)
    return RowId(indexed=range_index is not None, range=None if range_index == (0, 1) else range_index)


def id_likeness(name: str) -> int:
    """Return 1 for names such as cell_id, docID and uuid, 2 for names such as index and sample, else 0."""
    name = name.removeprefix(PREFIX)
    return 1 if ENDS_LIKE_ID.fullmatch(name) else 2 if name.lower() in WORDS_LIKE_ID else 0


def _index_columns(kinds: Mapping[str, str], index: Sequence[str]) -> set[str]:
    return {name for name in kinds if name in index or name in INDEX_NAMES}


def _without_ids(wished: list[str], kinds: Mapping[str, str], look: Look) -> tuple[list[str], tuple[str, ...]]:
    """Leave columns out that identify rows or groups of rows rather than describe them, and say which."""
    numbers = look.whole([name for name in wished if kinds[name] == NUMBER])
    named = [name for name in numbers if id_likeness(name) == 1]
    unnamed = [name for name in numbers if id_likeness(name) != 1]
    distinct = look.distinct(unnamed, missing=True) if look.n >= FEWEST else []
    others = len(wished) - len(distinct) - len(named)
    counts = 2 * len(numbers) > len(wished) and len(distinct) > max(3, len(wished) // COUNTS)
    keep = "choose the columns with features (--features) to keep them"
    notes = []
    if distinct and (counts or not others):
        found = listing(distinct, NAMED)
        notes.append(f"Kept in the embedding, although these columns of distinct integers could be row ids: {found}.")
        distinct = []
    elif distinct:
        found = listing(distinct, NAMED)
        notes.append(f"Left out of the embedding as possible row ids (columns of distinct integers): {found}; {keep}.")
    if len(named) == len(wished):
        named = []
    elif named:
        notes.append(f"Left out of the embedding for having the name of an id: {listing(named, NAMED)}; {keep}.")
    left_out = {*distinct, *named}
    return [name for name in wished if name not in left_out], tuple(notes)


def _matching(globs: Sequence[str], kinds: Mapping[str, str], path: Path | str, option: str) -> list[str]:
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


def _check_key(key: str, kinds: Mapping[str, str], path: Path | str) -> str:
    if kinds.get(key) != LIST:
        lists = [name for name, kind in kinds.items() if kind == LIST]
        there = f"it has {listing(lists, 10)}" if lists else "it has none; use --features for plain columns"
        raise TableError(f"{path} has no column of lists of numbers called {key!r} (--key); {there}")
    return key


def _check_features(wished: Sequence[str], kinds: Mapping[str, str], path: Path | str) -> None:
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
