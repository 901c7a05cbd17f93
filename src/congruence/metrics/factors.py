"""True factors: columns of numbers or words, each of a kind that decides how it is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.errors import InputError
from congruence.metrics.notes import Note
from congruence.tables import as_columns, as_rows, as_table, is_table, pair

KINDS = ("categorical", "ordinal", "continuous", "circular")
MOST_LEVELS = 100  # distinct numbers up to which a column of numbers is taken for classes
ROWS_PER_LEVEL = 10  # and the least rows per level for that
PERIODS = {1.0: "1", 2 * math.pi: "2 pi", 360.0: "360"}  # of circular factors, tried in this order
LARGEST = 1e151  # size of a code up to which the squares of a million rows can be added
FULL = 0.8  # share of a period that the values must cover for it to be guessed


@dataclass(frozen=True, eq=False)
class Factor:
    """One true factor of n rows."""

    name: str
    kind: str  # one of `KINDS`
    values: Float  # (n,) numbers; of classes of words, their place in `levels`
    levels: tuple[str, ...] = ()  # of a factor given as words: what each number stands for
    period: float = math.nan  # of a circular factor
    note: str = ""  # how the kind or the period was chosen, where it was not given
    classes: bool | None = None  # whether the values are classes, where more rows than these have decided that

    @property
    def is_discrete(self) -> bool:
        """Whether the values are classes: categorical, or ordinal (or circular) with few distinct values."""
        if self.classes is not None:
            return self.classes
        return self.kind == "categorical" or (self.kind != "continuous" and is_low(self.values))

    @property
    def is_constant(self) -> bool:
        """Whether all rows have the same value, so that nothing can be learned about the factor."""
        return bool((self.values == self.values[0]).all())

    @property
    def names_rows(self) -> bool:
        """Whether no two rows share a class, as if these were the names of the rows: nothing can be learned then.

        Two numbers that were only guessed to be classes (they have a note) still are numbers, and name no rows.
        """
        named = self.kind == "categorical" and not self.note and len(self.values) > 1
        return named and len(np.unique(self.values)) == len(self.values)

    @property
    def left_out(self) -> str:
        """Why nothing can be learned about the factor, as the text of a note; empty where something can."""
        if self.is_constant:
            return "left out, because it is constant"
        return "left out, because every row is a class of its own" if self.names_rows else ""

    def labels(self, bins: int = 10) -> Array:
        """The class of each row, counted from 0, shape (n,); values that are no classes fall into equal-width bins."""
        values = self.values if self.is_discrete else _binned(self.values, bins)
        return np.unique(values, return_inverse=True)[1].reshape(-1)

    def coordinates(self) -> Float:
        """The factor as columns whose distances make sense, shape (n, m).

        One column of numbers; cosine and sine of a circular factor; one column of 0 and 1 for each class but the first
        of a categorical one.
        """
        if self.kind == "circular":
            angle = 2 * math.pi * self.values / self.period
            return np.column_stack([np.cos(angle), np.sin(angle)])
        if self.kind == "categorical":
            labels = self.labels()
            later = np.arange(1, max(2, labels.max() + 1))
            return np.equal(labels[:, None], later).astype(np.float64)
        return self.values[:, None]

    def take(self, index: Array) -> Factor:
        """The same factor of some of the rows; what were classes among all rows are classes among these."""
        return replace(self, values=self.values[index], classes=self.is_discrete)


@dataclass(frozen=True, eq=False)
class Factors(Sequence[Factor]):
    """The true factors of n rows; a sequence of `Factor`."""

    of: tuple[Factor, ...]
    pairing: tuple[Note, ...] = ()  # how rows were paired with codes

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, index: Any) -> Any:
        return self.of[index]

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.of[0].values)

    @property
    def names(self) -> tuple[str, ...]:
        """What the factors are called."""
        return tuple(factor.name for factor in self.of)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each factor."""
        return tuple(factor.kind for factor in self.of)

    @property
    def notes(self) -> tuple[Note, ...]:
        """How rows were paired, and how kinds were chosen where they were not given."""
        return (*self.pairing, *(Note(factor.note, [factor.name]) for factor in self.of if factor.note))

    def labels(self, bins: int = 10) -> Array:
        """The classes of all factors, shape (n, K); see `Factor.labels`."""
        return np.column_stack([factor.labels(bins) for factor in self.of])

    def take(self, index: Array) -> Factors:
        """The same factors of some of the rows."""
        return replace(self, of=tuple(factor.take(index) for factor in self.of))


@dataclass(frozen=True, eq=False)
class CodesOfFactors:
    """Codes and factors of the same rows, ready to be measured."""

    codes: Float  # (n, L)
    code_names: tuple[str, ...] | None
    factors: Factors
    cluster: Array | None  # (n,)


def read_pair(codes: Any, factors: Any, kinds: Any = "auto", *, cluster: Any = None) -> CodesOfFactors:
    """Pair codes with factors by the rule of `congruence.tables.pair`, and decide what kind each factor is."""
    if isinstance(factors, Factors):  # read before, and paired by position
        z, names, s, units = as_rows(codes, "codes"), None, factors, cluster
    else:
        rows = pair(codes, factors, cluster=cluster)
        z, names, units = rows.codes, rows.code_names, rows.cluster
        s = replace(read_factors(rows.factors, kinds), pairing=tuple(map(Note, rows.notes)))
    z = to_numpy(z).astype(np.float64)
    span = z.max(0) / 2 - z.min(0) / 2
    if np.abs(z).max() > LARGEST or ((span > 0) & (span < 1 / LARGEST)).any():
        raise InputError("the values of codes are too large or too small to be squared; rescale them")
    if len(z) != s.n:
        raise InputError(f"codes and factors must have paired rows, but codes has {len(z)} and factors has {s.n}")
    return CodesOfFactors(z, names, s, units)


def paired(codes: Any, factors: Any, kinds: Any = "auto") -> tuple[Float, Factors]:
    """Codes as a float64 matrix (n, L) and factors as `Factors`, of the same rows."""
    found = read_pair(codes, factors, kinds)
    return found.codes, found.factors


def hold_integers(codes: Any) -> bool:
    """Whether codes are stored as integers."""
    values = as_table(codes).values if is_table(codes) else codes
    return to_numpy(values).dtype.kind in "iu"


def read_factors(factors: Any, kinds: Any = "auto") -> Factors:
    """Take factors apart into columns and decide what kind each is.

    Parameters
    ----------
    factors : (n, K) or (n,) array, data frame, table, path, or mapping from name to column
        Numbers or words. An array's columns are called factor0, factor1, ...
    kinds : "auto", one of `KINDS` for all, a list of K of them, or a mapping from name to kind
        Or the same as text, "hue=circular:360,shape=categorical".
        A circular factor may carry its period, as in "circular:24"; 1, 2 pi, 360, or the spacing of an even grid times
        its size, is tried otherwise. "auto" takes words, and numbers with few distinct values, for classes (at most
        100, with at least 10 rows each on average) and all other numbers for continuous; the choice is in `notes`.
    """
    if isinstance(factors, Factors):
        return factors
    columns = as_columns(factors).columns
    wanted = _wanted(kinds, list(columns))
    return Factors(tuple(_factor(name, column, wanted[name]) for name, column in columns.items()))


def is_low(values: Float) -> bool:
    """Whether a column of numbers repeats so few of them that they may be classes."""
    return len(np.unique(values)) <= min(MOST_LEVELS, max(2, len(values) // ROWS_PER_LEVEL))


def _wanted(kinds: Any, names: list[str]) -> dict[str, str]:
    """The kind asked for of each factor, "auto" where none was."""
    if isinstance(kinds, str) and "=" in kinds:
        kinds = parse_kinds(kinds)
    if isinstance(kinds, str):
        wanted = dict.fromkeys(names, kinds)
    elif isinstance(kinds, Mapping):
        unknown = [name for name in kinds if name not in names]
        if unknown:
            raise InputError(f"kinds names {listing(unknown)}, but the factors are {', '.join(names)}")
        wanted = {name: kinds.get(name, "auto") for name in names}
    else:
        if len(kinds) != len(names):
            raise InputError(f"kinds must have one entry for each of {len(names)} factors, but has {len(kinds)}")
        wanted = dict(zip(names, kinds, strict=True))
    for kind in wanted.values():
        if str(kind).partition(":")[0] not in ("auto", *KINDS):
            raise InputError(f"kinds must be 'auto' or some of {', '.join(KINDS)}; {kind!r} is not")
    return wanted


def parse_kinds(text: str) -> dict[str, str]:
    """Read kinds given as text: "hue=circular:360,shape=categorical"."""
    kinds: dict[str, str] = {}
    for part in text.split(","):
        name, _, kind = (piece.strip() for piece in part.partition("="))
        if not (name and kind):
            raise InputError(f"kinds must be like 'hue=circular,size=ordinal', but has {part.strip()!r}")
        if name in kinds:
            raise InputError(f"kinds names {name} twice")
        kinds[name] = kind
    return kinds


def _factor(name: str, column: Array, kind: str) -> Factor:
    kind, _, given = kind.partition(":")
    if column.dtype.kind not in "fiub":
        return _of_words(name, column, kind)
    values = column.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(f"factor {name} has NaN or infinite values (row {listing(bad)})")
    if kind == "auto":
        return _guessed(name, values, column.dtype.kind)
    if kind == "circular":
        period, note = _period(name, values, given)
        return Factor(name, kind, values, period=period, note=note)
    return Factor(name, kind, values)


def _of_words(name: str, column: Array, kind: str) -> Factor:
    missing = np.flatnonzero([value is None or value != value for value in column])
    if missing.size:
        raise InputError(f"factor {name} has missing values (row {listing(missing)})")
    if kind not in ("auto", "categorical"):
        try:
            return _factor(name, column.astype(np.float64), kind)
        except (TypeError, ValueError) as error:
            raise InputError(f"factor {name} is made of words, so it is categorical and cannot be {kind}") from error
    levels, labels = np.unique(column.astype(str), return_inverse=True)
    return Factor(name, "categorical", labels.reshape(-1).astype(np.float64), tuple(map(str, levels)))


def _guessed(name: str, values: Float, dtype: str) -> Factor:
    if dtype == "b":
        return Factor(name, "categorical", values)
    count = len(np.unique(values))
    if is_low(values):
        return Factor(name, "categorical", values, note=f"{count} distinct values, taken as classes")
    return Factor(name, "continuous", values, note=f"{count} distinct values, taken as continuous")


def _period(name: str, values: Float, given: str) -> tuple[float, str]:
    if given:
        try:
            period = float(given)
        except ValueError:
            period = math.nan
        if not 0 < period < math.inf:
            raise InputError(f"the period of {name} must be a number above 0, as in circular:360, not {given!r}")
        return period, ""
    spread = float(values.max() - values.min())
    for period, words in PERIODS.items():
        if FULL * period < spread <= period * (1 + 1e-6):
            return period, f"period taken as {words}"
    levels = np.unique(values)
    steps = np.diff(levels)
    if len(levels) > 2 and is_low(values) and np.allclose(steps, steps[0], rtol=1e-3):
        period = float(steps.mean() * len(levels))
        return period, f"evenly spaced values, period taken as {period:g}"
    raise InputError(f"the period of the circular factor {name} cannot be guessed; give it, as in circular:360")


def _binned(values: Float, bins: int) -> Array:
    """The equal-width bin of each value, as the reference implementations bin."""
    if bins < 2:
        raise InputError(f"bins must be at least 2, not {bins}")
    return np.digitize(values, np.histogram(values, bins)[1][:-1])
