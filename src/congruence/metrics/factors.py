"""True factors: columns of numbers or words, each of a kind that decides how it is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.checks import check_integer
from congruence.errors import InputError
from congruence.metrics._information import bin_columns, number_values
from congruence.metrics._results import Note, note_if
from congruence.tables import as_columns, as_rows, pair
from congruence.tables.columns import PREFIX

KINDS = ("categorical", "ordinal", "continuous", "circular")
_MOST_LEVELS = 100  # distinct numbers up to which a column of numbers is taken for classes
_ROWS_PER_LEVEL = 10  # and the least rows per level for that
_PERIODS = {1.0: "1", 2 * math.pi: "2 pi", 360.0: "360"}  # of circular factors, tried in this order
_LARGEST = 1e151  # size of a code up to which the squares of a million rows can be added
_FULL = 0.8  # share of a period that the values must cover for it to be guessed
NO_FACTORS = "No factor varies, or every row is a class of its own."


@dataclass(frozen=True, eq=False)
class Factor:
    """One true factor of n rows."""

    name: str
    kind: str  # one of `KINDS`
    values: Float  # (n,) numbers; of classes of words, their place in `levels`
    levels: tuple[str, ...] = ()  # of a factor given as words: what each number stands for
    period: float = math.nan  # of a circular factor
    note: str = ""  # how the kind or the period was chosen, where it was not given
    classes: bool | None = None  # whether the values are classes, where that was decided from more rows than these

    @cached_property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len(np.unique(self.values))

    @cached_property
    def is_discrete(self) -> bool:
        """Whether the values are classes: categorical, or ordinal (or circular) with few distinct values."""
        if self.classes is not None:
            return self.classes
        return self.kind == "categorical" or (self.kind != "continuous" and has_few_levels(self.values))

    @property
    def is_guessed(self) -> bool:
        """Whether the values are three numbers or more that were only guessed to be classes, and still are numbers."""
        return self.kind == "categorical" and bool(self.note) and self.distinct > 2

    @property
    def is_unordered(self) -> bool:
        """Whether the values are three classes or more whose numbers mean nothing."""
        return self.kind == "categorical" and not self.note and self.distinct > 2

    @cached_property
    def left_out(self) -> str:
        """Why nothing can be learned about the factor, as the text of a note; empty if something can.

        No two rows share a class where the values are the names of the rows. Numbers that were only guessed to be
        classes are not names.
        """
        if (self.values == self.values[0]).all():
            return "left out, because it is constant"
        is_name = self.kind == "categorical" and not self.note and self.distinct == len(self.values)
        return "left out, because every row is a class of its own" if is_name else ""

    def labels(self, bins: int = 10) -> Array:
        """The class of each row, numbered from 0, shape (n,); numbers are cut into bins of equal width."""
        column = self.values[:, None]
        if self.is_discrete:
            return number_values(column)[:, 0]
        return bin_columns(column, check_integer("factor_bins", bins, 2))[:, 0]

    def cut(self, bins: int) -> Factor:
        """The factor as classes; numbers are cut into bins of equal width."""
        if self.is_discrete:
            return self
        return replace(self, kind="categorical", values=self.labels(bins).astype(np.float64), classes=True)

    def coordinates(self) -> Float:
        """The factor as columns whose distances are meaningful, shape (n, m).

        One column of numbers; cosine and sine of a circular factor; one column of 0 and 1 for each class but the first
        of a categorical one.
        """
        if self.kind == "circular":
            angle = 2 * math.pi * self.values / self.period
            return np.column_stack([np.cos(angle), np.sin(angle)])
        if self.kind == "categorical":
            labels = self.labels()
            return np.equal(labels[:, None], np.arange(1, max(2, labels.max() + 1))).astype(np.float64)
        return self.values[:, None]

    def columns(self) -> tuple[Float, list[str]]:
        """The factor as columns to correlate or regress, shape (n, m), and their names.

        As `coordinates`, but numbers that were only guessed to be classes, and two classes, stay one column.
        """
        if self.kind == "circular":
            return self.coordinates(), [f"{self.name} (cos)", f"{self.name} (sin)"]
        if self.is_unordered:
            levels = [self.levels[int(value)] if self.levels else f"{value:g}" for value in np.unique(self.values)]
            return self.coordinates(), [f"{self.name}={level}" for level in levels[1:]]
        return self.values[:, None], [self.name]

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
        """The name of each factor."""
        return tuple(factor.name for factor in self.of)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each factor."""
        return tuple(factor.kind for factor in self.of)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the factors that are not classes."""
        return tuple(factor.name for factor in self.of if not factor.is_discrete)

    @property
    def varies(self) -> Array:
        """Which factors something can be learned about, shape (K,); see `Factor.left_out`."""
        return np.array([not factor.left_out for factor in self.of], dtype=bool)

    @property
    def notes(self) -> tuple[Note, ...]:
        """How rows were paired, and how kinds were chosen if they were not given."""
        return (*self.pairing, *(Note(factor.note, [factor.name]) for factor in self.of if factor.note))

    @property
    def exclusions(self) -> tuple[Note, ...]:
        """Which factors are left out, and why."""
        reasons = dict.fromkeys(factor.left_out for factor in self.of if factor.left_out)
        return tuple(Note(text, [factor.name for factor in self.of if factor.left_out == text]) for text in reasons)

    def labels(self, bins: int = 10) -> Array:
        """The classes of all factors, shape (n, K); see `Factor.labels`."""
        return np.column_stack([factor.labels(bins) for factor in self.of])

    def take(self, index: Array) -> Factors:
        """The same factors of some of the rows."""
        return replace(self, of=tuple(factor.take(index) for factor in self.of))


@dataclass(frozen=True, eq=False)
class FactorColumns:
    """Factors as M columns of numbers, for correlations, regressions and distances; see `Factor.columns`."""

    names: tuple[str, ...]  # (M,)
    owner: Array  # (M,) the number of the factor that each column is of
    values: Float  # (n, M)
    notes: tuple[Note, ...]


def factor_columns(s: Sequence[Factor], *, unordered: bool) -> FactorColumns:
    """Factors as columns of numbers; those without order as columns of 0 and 1, or left out with a note."""
    used = {k: factor.columns() for k, factor in enumerate(s) if unordered or not factor.is_unordered}
    left_out = [] if unordered else [factor.name for factor in s if factor.is_unordered]
    return FactorColumns(
        names=tuple(name for _, names in used.values() for name in names),
        owner=np.array([k for k, (_, names) in used.items() for _ in names], dtype=int),
        values=np.hstack([values for values, _ in used.values()]) if used else np.zeros((0, 0)),
        notes=(
            *note_guessed(s),
            *note_if(left_out, "left out, because unordered classes cannot be correlated"),
        ),
    )


def note_guessed(s: Sequence[Factor]) -> tuple[Note, ...]:
    """A note about the factors that were guessed to be classes but are used as numbers."""
    return note_if([factor.name for factor in s if factor.is_guessed], "few distinct values, used as numbers")


def read_pair(codes: Any, factors: Any, kinds: Any = "auto") -> tuple[Float, Factors]:
    """Codes as a float64 matrix (n, L) and the factors of the same rows, paired as by `congruence.tables.pair`."""
    if isinstance(factors, Factors):  # read before, and paired by position
        z, s = as_rows(codes, "codes"), factors
    else:
        rows = pair(codes, factors)
        z, s = rows.codes, replace(read_factors(rows.factors, kinds), pairing=tuple(map(Note, rows.notes)))
    z = to_numpy(z).astype(np.float64)
    span = z.max(0) / 2 - z.min(0) / 2
    if np.abs(z).max() > _LARGEST or ((span > 0) & (span < 1 / _LARGEST)).any():
        raise InputError("the values of codes are too large or too small to be squared; rescale them")
    if len(z) != s.n:
        raise InputError(f"codes and factors must have paired rows, but codes has {len(z)} and factors has {s.n}")
    return z, s


def read_usable(codes: Any, factors: Any, kinds: Any) -> tuple[Float, Factors, tuple[Note, ...]]:
    """Codes (n, L), those factors that something can be learned about, and notes on all factors and the codes."""
    z, s = read_pair(codes, factors, kinds)
    count = int((z == z[0]).all(0).sum())
    constant = (Note(f"{count} of {z.shape[1]} codes {'is' if count == 1 else 'are'} constant"),) if count else ()
    return z, Factors(tuple(factor for factor in s if not factor.left_out)), (*s.notes, *s.exclusions, *constant)


def read_factors(factors: Any, kinds: Any = "auto") -> Factors:
    """Split factors into columns and decide the kind of each.

    Parameters
    ----------
    factors : (n, K) or (n,) array, data frame, table, path, or mapping from name to column
        Numbers or words. An array's columns are called factor0, factor1, ...
    kinds : str, list or dict, default "auto"
        "auto", one of `KINDS` for all, a list of K of them, a mapping from name to kind, or the same as text:
        "hue=circular:360,shape=categorical". A circular factor may have its period, as in "circular:24"; otherwise 1,
        2 pi, 360, or the spacing of an even grid times its size, is tried. "auto" takes words, and numbers with few
        distinct values, for classes (at most 100, with at least 10 rows each on average) and all other numbers for
        continuous; the choice is in `notes`.

    Returns
    -------
    Factors
        A sequence of factors with `names`, `kinds` and `notes`.
    """
    if isinstance(factors, Factors):
        return factors
    columns = as_columns(factors).columns
    wanted = _kind_of_each(kinds, list(columns))
    return Factors(tuple(_read_factor(name, column, wanted[name]) for name, column in columns.items()))


def has_few_levels(values: Float) -> bool:
    """Whether a column of numbers repeats so few of them that they may be classes."""
    return len(np.unique(values)) <= min(_MOST_LEVELS, max(2, len(values) // _ROWS_PER_LEVEL))


def _kind_of_each(kinds: Any, names: list[str]) -> dict[str, str]:
    """The requested kind of each factor, "auto" if there is none."""
    if isinstance(kinds, str) and "=" in kinds:
        kinds = parse_kinds(kinds)
    if isinstance(kinds, str):
        wanted = dict.fromkeys(names, kinds)
    elif isinstance(kinds, Mapping):
        kinds = {name if name in names else str(name).removeprefix(PREFIX): kind for name, kind in kinds.items()}
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
            raise InputError(f"kinds must be 'auto' or some of {', '.join(KINDS)}; got {kind!r}")
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


def _read_factor(name: str, column: Array, kind: str) -> Factor:
    kind, _, period = kind.partition(":")
    if column.dtype.kind not in "fiub":
        return _read_words(name, column, kind)
    values = column.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(f"factor {name} has NaN or infinite values (row {listing(bad)})")
    if kind == "circular":
        return Factor(name, kind, values, **_read_period(name, values, period))
    if kind != "auto" or column.dtype.kind == "b":
        return Factor(name, "categorical" if kind == "auto" else kind, values)
    guess, words = ("categorical", "classes") if has_few_levels(values) else ("continuous", "continuous")
    return Factor(name, guess, values, note=f"{len(np.unique(values))} distinct values, taken as {words}")


def _read_words(name: str, column: Array, kind: str) -> Factor:
    missing = np.flatnonzero([value is None or value != value for value in column])
    if missing.size:
        raise InputError(f"factor {name} has missing values (row {listing(missing)})")
    if kind not in ("auto", "categorical"):
        try:
            return _read_factor(name, column.astype(np.float64), kind)
        except (TypeError, ValueError) as error:
            raise InputError(f"factor {name} is made of words, so it is categorical and cannot be {kind}") from error
    levels, labels = np.unique(column.astype(str), return_inverse=True)
    return Factor(name, "categorical", labels.reshape(-1).astype(np.float64), tuple(map(str, levels)))


def _read_period(name: str, values: Float, given: str) -> dict[str, Any]:
    """The period of a circular factor and, if it was not given, a note that says how it was chosen."""
    if given:
        try:
            period = float(given)
        except ValueError:
            period = math.nan
        if not 0 < period < math.inf:
            raise InputError(f"the period of {name} must be a number above 0, as in circular:360; got {given!r}")
        return {"period": period}
    spread = float(values.max() - values.min())
    for period, words in _PERIODS.items():
        if _FULL * period < spread <= period * (1 + 1e-6):
            return {"period": period, "note": f"period taken as {words}"}
    levels = np.unique(values)
    steps = np.diff(levels)
    if len(levels) > 2 and has_few_levels(values) and np.allclose(steps, steps[0], rtol=1e-3):
        period = float(steps.mean() * len(levels))
        return {"period": period, "note": f"evenly spaced values, period taken as {period:g}"}
    raise InputError(f"the period of the circular factor {name} cannot be guessed; give it, as in circular:360")
