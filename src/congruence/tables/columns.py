"""Choose which columns of a file or a data frame are the ids, the features and the metadata.

Columns that the user did not name are classified by their names and, where the rows are available, by their values: an
integer column without repeated values more likely numbers the rows than describes them, so it never becomes a
dimension of the embedding without a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from congruence.arrays import Array, listing
from congruence.errors import InputError, TableError
from congruence.guards import COLUMNS
from congruence.options import ReadOptions
from congruence.tables.table import EXACT, duplicates, missing_labels

PREFIX = "Metadata_"
ID_NAMES = ("id", "row_id", "Metadata_id")  # always the id, regardless of the values
# How pandas writes the index of a frame: in parquet, in csv, and in a csv that went through pandas twice.
INDEX_NAMES = ("__index_level_0__", "", "Unnamed: 0")
_ENDS_LIKE_ID = re.compile(r"(?i:(.*[_. -])?(id|ids|uid|uuid|guid))|.*[a-z0-9](Id|ID)")
_WORDS_LIKE_ID = frozenset(
    {"index", "idx", "key", "name", "row", "row_number", "row_name", "sample", "sample_name", "cell", "doc", "document"}
    | {"image", "file", "filename", "file_name", "path", "barcode", "accession"}
)
_LONGEST_ID = 64  # characters; longer text is a document rather than a name
_LISTED = 20  # columns that a note lists
_FEWEST = 3  # rows needed before distinct integers are taken as ids
_COUNTS = 10  # if more than 1 in so many columns hold distinct integers, they are counts and not ids
_HEAD, _MOST = 2**10, 2**22  # rows that rule out most columns, and rows that decide about the others

NUMBER, LIST, NESTED = "number", "list", "nested"


@dataclass(frozen=True)
class Selection(ReadOptions):
    """The user's choices, checked: which column is the id, which are features, which array inside the file."""

    name: str = ""
    like: ColumnChoice | None = None  # choose the same columns as in another file, if all columns are the same
    no_id: bool = False  # rows have no ids, as those of the first of several files

    def __post_init__(self) -> None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r\0'):
            raise InputError(f"delimiter must be one character, such as ',', ';' or 'tab'; got {delimiter!r}")
        names = {"features": patterns(self.features), "metadata": patterns(self.metadata)}
        for option, value in {**names, "delimiter": delimiter, "name": self.name or ""}.items():
            object.__setattr__(self, option, value)

    def refuse(self, path: Path | str, *options: str, because: str) -> None:
        """Raise an error if any of `options` is set, because the format does not support it."""
        refused = [f"{option} (--{option})" for option in options if getattr(self, option) is not None]
        if refused:
            raise TableError(f"{path} cannot be read with {' and '.join(refused)}: {because}")


@dataclass(frozen=True)
class RowId:
    """How the rows are identified."""

    id: str | None = None  # the column that holds the ids
    indexed: bool = False  # by the index of a data frame; without a column or range, by the default one: 0, 1, ...
    range: tuple[int, int] | None = None  # by an index that pandas stores as its start and step
    notes: tuple[str, ...] = ()

    @property
    def id_name(self) -> str | None:
        """The name of the id column, unless it is one that pandas gives an index without a name."""
        return None if self.id in INDEX_NAMES else self.id

    def read(self, column: Callable[[str], Array], n: int, first: int = 0) -> Array | None:
        """Return the ids of n rows from row `first` on; `column` returns a column by name."""
        if self.range is not None:
            start, step = self.range
            return start + step * np.arange(first, first + n)
        return None if self.id is None else column(self.id)


@dataclass(frozen=True)
class ColumnChoice(RowId):
    """The columns chosen as id, values and metadata."""

    values: tuple[str, ...] = ()  # the feature columns, or the one column of lists
    lists: bool = False  # whether the values come from a column of lists
    metadata: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # name and kind of every column of the file

    @property
    def labels(self) -> list[str]:
        """The columns that are read besides the values: id and metadata."""
        return [*([] if self.id is None else [self.id]), *self.metadata]

    @property
    def unlabelled(self) -> ColumnChoice:
        """The values alone."""
        return replace(self, id=None, range=None, metadata=())


@dataclass(frozen=True, eq=False)
class Source:
    """The columns of a file or data frame, before they are chosen.

    The kind of a column is "number", "list" (of numbers), "nested" (anything else with several values per row), or
    words that describe another kind to the user. `take(names, most)` returns the first rows of columns by name; without
    it, columns are classified by name and kind alone.
    """

    where: Path | str  # for messages
    kinds: Mapping[str, str]  # by column name
    index: Sequence[str] = ()  # columns that hold the index of a pandas frame, which are never features
    recorded_id: str | None = None  # the id that `write_table` recorded; empty if the table has none
    range_index: tuple[int, int] | None = None  # start and step of a pandas index that is not stored as a column
    n: int = 0
    text: Collection[str] = field(default_factory=frozenset)  # the columns that hold text
    take: Callable[[Sequence[str], int], Mapping[str, Array]] | None = None
    recorded_metadata: Collection[str] = ()  # the metadata columns that `write_table` recorded
    notes: tuple[str, ...] = ()  # how the file was read

    def head(self, names: Sequence[str]) -> Mapping[str, Array]:
        """The first rows of some columns."""
        return self.take(names, _HEAD) if self.take is not None and names else {}

    def whole(self, names: Sequence[str]) -> list[str]:
        """The columns whose first rows hold only whole numbers."""
        head = self.head(names)
        return [name for name in names if _whole(head[name]) is not None]

    def distinct(self, names: Sequence[str], *, missing: bool = False) -> list[str]:
        """The columns of whole numbers, or of short text, in which no value repeats (or is missing)."""
        head = self.head(names)
        return [
            name
            for name in names
            if self._is_distinct(name, head[name], missing)
            and (self.n <= _HEAD or self._is_distinct(name, self.column(name), missing))
        ]

    def column(self, name: str) -> Array:
        """The first rows of one column, as many as are used to classify it."""
        assert self.take is not None
        return self.take([name], _MOST)[name]

    def is_counted(self, name: str) -> bool:
        """Whether a column holds 0, 1, 2, ..."""
        return np.array_equal(self.column(name), np.arange(min(self.n, _MOST)))

    def _is_distinct(self, name: str, values: Array, missing: bool) -> bool:
        if name in self.text:
            items = values.tolist()
            return (
                not missing_labels(values).any()
                and len(set(items)) == len(items)
                and max(map(len, map(str, items)), default=0) <= _LONGEST_ID
            )
        whole = _whole(values)
        if whole is None or (len(whole) < len(values) and not (missing and 2 * len(whole) > len(values))):
            return False
        return len(np.unique(whole)) == len(whole)


def _whole(values: Array) -> Array | None:
    """Return the numbers that are not missing, if all are whole."""
    if values.dtype.kind in "iu":
        return values
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    present = numbers[~np.isnan(numbers)]
    whole = (present == np.floor(present)) & (np.abs(present) < EXACT)
    return present if present.size and bool(whole.all()) else None


def patterns(spec: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Split ``"emb_*, pc_*"`` into its glob patterns; a list is returned as a tuple."""
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


def check_columns(names: Sequence[str], path: Path) -> None:
    """Refuse a file with more columns than can be read, or with several of the same name."""
    if len(names) > COLUMNS:
        raise TableError(f"{path} has {len(names)} columns; at most {COLUMNS} are read, more as a matrix (.npy, .zarr)")
    check_distinct(names, path)


def check_distinct(names: Sequence[str], where: Path | str) -> None:
    """Refuse a file or data frame in which several columns have the same name."""
    if repeated := duplicates(names):
        raise TableError(f"{where} has several columns of the same name: {repeated}")


def choose_columns(source: Source, select: Selection) -> ColumnChoice:
    """Divide the columns of a file or data frame into id, features and metadata."""
    kinds, where = source.kinds, source.where
    if select.like is not None and select.like.kinds == tuple(kinds.items()):
        return select.like
    row_id = choose_id(source, select)
    named = _matching(source, select.metadata or (), "metadata")
    barred = {*_index_columns(source), *named, row_id.id}
    notes: tuple[str, ...] = ()
    if select.key is not None:
        chosen = [_check_key(source, select.key)]
    elif select.features is not None:
        chosen = [name for name in _matching(source, select.features, "features") if name not in barred]
    else:
        barred |= set(source.recorded_metadata)
        chosen = [name for name in kinds if name not in barred and not name.startswith(PREFIX)]
        # A column of vectors is certainly the embedding; everything else is metadata.
        lists = [name for name in chosen if kinds[name] == LIST]
        if lists:
            chosen = lists
        elif source.take is not None and source.recorded_id is None:
            chosen, notes = _without_ids(source, chosen)
    _check_features(chosen, kinds, where)
    taken = {*chosen, row_id.id}
    return ColumnChoice(
        row_id.id,
        row_id.indexed,
        row_id.range,
        (*source.notes, *row_id.notes, *notes),
        values=tuple(chosen),
        lists=kinds[chosen[0]] == LIST,
        metadata=tuple(name for name in kinds if name not in taken and kinds[name] not in (LIST, NESTED)),
        kinds=tuple(kinds.items()),
    )


def choose_features(names: Sequence[str], features: Sequence[str], where: Path | str) -> tuple[str, ...]:
    """Return the columns of a matrix that match the patterns, in the order of the matrix."""
    return choose_columns(Source(where, dict.fromkeys(names, NUMBER)), Selection(features=tuple(features))).values


def choose_id(source: Source, select: Selection) -> RowId:
    """Choose what identifies the rows.

    In this order: the column that the user named, the one recorded in the file, one of the names in `ID_NAMES`, an
    index of names, a column named like an id without repeated values, the only column of text without repeated values
    (unless some read as numbers, so that it may be a damaged feature), and an index of integers other than 0, 1, ...
    """
    if select.no_id:
        return RowId()
    kinds = source.kinds
    asked = () if select.id is None else (select.id, PREFIX + select.id)
    for name in filter(None, asked or (source.recorded_id, *ID_NAMES)):
        several = kinds.get(name) in (LIST, NESTED)
        if name in kinds and not several:
            return RowId(name)
        if several and name != select.key:
            hint = "" if asked else "; name another with id (--id)"
            held = f"the column {name!r} holds several values in each row"
            raise TableError(f"{source.where}: {held}, which cannot be an id{hint}")
    if asked:
        raise TableError(f"{source.where} has no column {select.id!r} for id (--id); it has {listing(list(kinds), 10)}")
    index = _index_columns(source)
    for name in index:
        if kinds[name] not in (NUMBER, LIST, NESTED):
            return RowId(name, indexed=True)
    if source.take is None or source.recorded_id is not None:
        return RowId()
    taken = {*index, *_matching(source, select.metadata or (), "metadata")}
    taken |= {name for glob in select.features or () for name in kinds if name == glob or fnmatchcase(name, glob)}
    free = [name for name in kinds if name not in taken and (kinds[name] == NUMBER or name in source.text)]
    likely = sorted((name for name in free if id_likeness(name)), key=id_likeness)
    for name in source.distinct(likely):
        return RowId(name, notes=(f"Column {name} is taken as the row id.",))
    texts = source.distinct([name for name in free if name in source.text and not name.startswith(PREFIX)])
    if len(texts) == 1 and source.n >= _FEWEST and not any(is_number(str(x)) for x in source.head(texts)[texts[0]]):
        return RowId(texts[0], notes=(f"Column {texts[0]} is taken as the row id.",))
    if len(index) == 1 and kinds[index[0]] == NUMBER and source.whole(index):
        return RowId(None if source.is_counted(index[0]) else index[0], indexed=True)
    return RowId(
        indexed=source.range_index is not None, range=None if source.range_index == (0, 1) else source.range_index
    )


def id_likeness(name: str) -> int:
    """Return 1 for names such as cell_id, docID and uuid, 2 for names such as index and sample, else 0."""
    name = name.removeprefix(PREFIX)
    return 1 if _ENDS_LIKE_ID.fullmatch(name) else 2 if name.lower() in _WORDS_LIKE_ID else 0


def _index_columns(source: Source) -> list[str]:
    return [name for name in source.kinds if name in source.index or name in INDEX_NAMES]


def _without_ids(source: Source, chosen: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Leave out columns that identify rows or groups of rows rather than describe them, with notes."""
    numbers = source.whole([name for name in chosen if source.kinds[name] == NUMBER])
    named = [name for name in numbers if id_likeness(name) == 1]
    unnamed = [name for name in numbers if id_likeness(name) != 1]
    distinct = source.distinct(unnamed, missing=True) if source.n >= _FEWEST else []
    others = len(chosen) - len(distinct) - len(named)
    counts = 2 * len(numbers) > len(chosen) and len(distinct) > max(3, len(chosen) // _COUNTS)
    keep = "choose the columns with features (--features) to keep them"
    names = listing(distinct, _LISTED)
    notes = []
    if distinct and (counts or not others):
        notes.append(f"Part of the embedding, although these columns of distinct integers could be row ids: {names}.")
        distinct = []
    elif distinct:
        notes.append(f"Left out of the embedding as possible row ids (columns of distinct integers): {names}; {keep}.")
    if len(named) == len(chosen):
        named = []
    elif named:
        notes.append(f"Left out of the embedding because they are named like an id: {listing(named, _LISTED)}; {keep}.")
    left_out = {*distinct, *named}
    return [name for name in chosen if name not in left_out], tuple(notes)


def _matching(source: Source, globs: Sequence[str], option: str) -> list[str]:
    """Return the columns that match any of the patterns, in the order of the file."""
    chosen: set[str] = set()
    for glob in globs:
        hits = {name for name in source.kinds if name == glob or fnmatchcase(name, glob)}
        if option == "features" and not glob.startswith(PREFIX):
            hits = {name for name in hits if not name.startswith(PREFIX)}  # "*" means all the features
        if not hits:
            known = listing(list(source.kinds), 10)
            hint = "; with features (--features), all other columns are metadata" if option == "metadata" else ""
            raise TableError(
                f"no column of {source.where} matches {option} (--{option}) {glob!r}; it has {known}{hint}"
            )
        chosen |= hits
    return [name for name in source.kinds if name in chosen]


def _check_key(source: Source, key: str) -> str:
    if source.kinds.get(key) != LIST:
        lists = [name for name, kind in source.kinds.items() if kind == LIST]
        known = f"it has {listing(lists, 10)}" if lists else "it has none; use features (--features) for plain columns"
        raise TableError(f"{source.where} has no column of lists of numbers called {key!r} (--key); {known}")
    return key


def _check_features(chosen: Sequence[str], kinds: Mapping[str, str], where: Path | str) -> None:
    if not chosen:
        raise TableError(
            f"{where} has no feature columns besides its ids and metadata; it has {listing(list(kinds), 10)}"
        )
    if len(chosen) > 1 and any(kinds[name] == LIST for name in chosen):
        raise TableError(
            f"{where}: one column of lists can be the features, but several columns are possible "
            f"({listing(chosen, 10)}); name it with key (--key)"
        )
    wrong = [f"{name} ({kinds[name]})" for name in chosen if kinds[name] not in (NUMBER, LIST)]
    if wrong:
        columns = "a column that is" if len(wrong) == 1 else "columns that are"
        raise TableError(
            f"{where} has {columns} not numbers: {listing(wrong, 10)}; choose the columns to use with "
            f"features (--features), name others with metadata (--metadata) or give them the prefix {PREFIX}"
        )
