"""BetaVAE and FactorVAE scores, and the sampler of rows that share the value of a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer, check_integers
from congruence.metrics._estimators import fit_logistic
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS, Factors, read_usable

GRID = Note("The rows are a full grid of the factors, whose values were drawn independently")
ROWS = Note("The rows are not a full grid of the factors: rows that share a value were drawn from the rows given")


@dataclass(frozen=True, eq=False)
class BetaVAE(MetricResult):
    """The accuracy with which the shared factor is predicted, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # those that were classified
    beta_vae: float  # on fresh points
    beta_vae_train: float  # on the training points
    distances: Float  # (K, L) mean difference of each code between rows that share each factor

    headline = ("beta_vae",)


def beta_vae(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    factor_bins: int = 10,
    points: int = 10_000,
    judged: int = 5_000,
    batch: int = 64,
    seed: int = 0,
) -> BetaVAE:
    """Predict which factor pairs of rows share from the mean absolute difference of their codes.

    A point is a random factor, a batch of pairs of rows that share its value, and the mean |difference| of every code.
    A logistic regression with scikit-learn's defaults learns the factor from the points. Rotated codes can score 1
    too, because a linear classifier may weigh all codes. Invariant to order, sign and shift of codes; their scales
    matter a little, because the regression is penalised.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    kinds : str, list or dict as of `read_factors`, default "auto"
    factor_bins : int, default 10
        Equal-width bins of a continuous factor; rows in one bin count as sharing its value.
    points : number of training points, default 10000
    judged : number of test points, default 5000
    batch : pairs of rows in a point, default 64
    seed : int, default 0
        Of all draws, which follow the order of the reference.

    References
    ----------
    Higgins et al. 2017; as in Locatello et al. 2019.
    """
    check_integers(1, points=points, judged=judged)
    check_integer("batch", batch, 2)
    z, s, notes = read_usable(codes, factors, kinds)
    sampler, s, more, reason = make_sampler(s, factor_bins, seed)
    notes = (*notes, *more)
    score, train, distances = float("nan"), float("nan"), np.zeros((len(s), z.shape[1]))
    if sampler is not None:
        x, y = _draw_points(sampler, z, points, batch)
        if np.ptp(y) == 0:
            reason = f"All {points} training points share the same factor; draw more points."
        else:
            model, converged = fit_logistic(x, y)
            fresh_x, fresh_y = _draw_points(sampler, z, judged, batch)
            score = float((model.predict(fresh_x) == fresh_y).mean())
            train = float((model.predict(x) == y).mean())
            distances = np.array(
                [x[y == k].mean(0) if (y == k).any() else np.full_like(x[0], np.nan) for k in range(len(s))]
            )
            notes += () if converged else (Note("The regression stopped after 100 iterations"),)
    return BetaVAE(s.names, score, train, distances, reasons={"beta_vae": reason} if reason else {}, notes=notes)


def _draw_points(sampler: FactorSampler, z: Float, count: int, batch: int) -> tuple[Float, Array]:
    """Mean differences (count, L) and the factor that was shared (count,)."""
    x, y = np.empty((count, z.shape[1])), np.empty(count, dtype=int)
    for i in range(count):
        y[i] = sampler.draw_factor()
        one, other = sampler.draw_pairs(y[i], batch)
        x[i] = np.abs(z[one] - z[other]).mean(0)
    return x, y


@dataclass(frozen=True, eq=False)
class FactorVAE(MetricResult):
    """The accuracy of the majority vote, from 0 to 1, higher is better; chance is 1/K."""

    factors: tuple[str, ...]  # the rows of `votes`
    factor_vae: float  # on fresh votes
    factor_vae_train: float  # on the votes that decided the majorities
    votes: Array  # (K, L) how often each code varied least while each factor was fixed
    active: Array  # (L,) codes that take part

    headline = ("factor_vae",)


def factor_vae(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    factor_bins: int = 10,
    threshold: float = 0.0,
    points: int = 10_000,
    judged: int = 5_000,
    batch: int = 64,
    seed: int = 0,
) -> FactorVAE:
    """Fix a factor, find the code with the least relative variance, and predict the factor by majority vote per code.

    Invariant to order (up to ties), sign, scale and shift of each code, for `threshold` 0. The score is 0, with a note,
    if no code takes part.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    kinds : str, list or dict as of `read_factors`, default "auto"
    factor_bins : int, default 10
        Equal-width bins of a continuous factor; rows in one bin count as sharing its value.
    threshold : float, default 0.0
        The least standard deviation of a code that takes part. Constant codes never do. Locatello et al. used 0.05,
        for codes with a unit prior.
    points : number of training votes, default 10000
    judged : number of test votes, default 5000
    batch : rows in a vote, default 64
    seed : int, default 0
        Of all draws, which follow the order of the reference.

    References
    ----------
    Kim & Mnih 2018; as in Locatello et al. 2019.
    """
    check_integers(1, points=points, judged=judged)
    check_integer("batch", batch, 2)
    z, s, notes = read_usable(codes, factors, kinds)
    sampler, s, more, reason = make_sampler(s, factor_bins, seed)
    notes, reasons = (*notes, *more), {"factor_vae": reason} if reason else {}
    score, train = float("nan"), float("nan")
    votes, active = np.zeros((len(s), z.shape[1]), dtype=int), np.zeros(z.shape[1], dtype=bool)
    if sampler is not None:
        variance = z[sampler.draw_rows(points)].var(0, ddof=1) if points > 1 else z.var(0)
        active = (np.sqrt(variance) >= threshold) & (variance > 0)
        if active.any():
            votes, fresh = (_count_votes(sampler, z, variance, active, count, batch) for count in (points, judged))
            majority = votes.argmax(0), np.arange(z.shape[1])  # the factor of each code; the first on ties
            score, train = float(fresh[majority].sum() / judged), float(votes[majority].sum() / points)
        else:
            score, train, notes = 0.0, 0.0, (*notes, Note("No code varies enough to be used"))
    return FactorVAE(s.names, score, train, votes, active, reasons=reasons, notes=notes)


def _count_votes(sampler: FactorSampler, z: Float, variance: Float, active: Array, count: int, batch: int) -> Array:
    """How often each code varied least, by the factor that was fixed, shape (K, L)."""
    votes = np.zeros((len(sampler.sizes), z.shape[1]), dtype=int)
    places, x, unit = np.flatnonzero(active), z[:, active], variance[active]
    for _ in range(count):
        factor = sampler.draw_factor()
        fixed = x[sampler.draw_sharing(factor, batch)].var(0, ddof=1)
        votes[factor, places[(fixed / unit).argmin()]] += 1
    return votes


@dataclass(frozen=True, eq=False)
class _SortedRows:
    """Rows sorted by a class: those of class c are `order[start[c] : start[c] + count[c]]`."""

    order: Array  # (n,)
    start: Array  # (classes,)
    count: Array  # (classes,)

    @cached_property
    def is_single(self) -> bool:
        """Whether each class has one row."""
        return bool((self.count == 1).all())

    @cached_property
    def shared(self) -> Array:
        """The rows whose class another row has too."""
        return np.setdiff1d(self.order, self.order[self.start[self.count == 1]])

    def draw(self, classes: Array, rng: np.random.RandomState) -> Array:
        """One row of each of these classes; if each class has one row, no random number is used."""
        place = 0 if self.is_single else (rng.random_sample(len(classes)) * self.count[classes]).astype(int)
        return np.asarray(self.order[self.start[classes] + place])


def _sort_rows(labels: Array, classes: int) -> _SortedRows:
    count = np.bincount(labels, minlength=classes)
    return _SortedRows(np.argsort(labels, kind="stable"), np.cumsum(count) - count, count)


@dataclass(frozen=True, eq=False)
class FactorSampler:
    """Draws row numbers, at random or sharing the value of a factor.

    The reference draws a value of every factor, independently, and asks a generator for the observation. Here there are
    only rows. If they are a full grid (every combination of values occurs), values are drawn in the same order from the
    same generator, which gives the reference's numbers on a grid with one row for each combination. Otherwise rows are
    drawn as they are, and those that must share a factor's value are drawn among the rows that have it: the other
    factors then vary as they do in the data, given that value.
    """

    labels: Array  # (n, K) classes from 0
    sizes: tuple[int, ...]  # classes of each factor
    cells: _SortedRows | None  # rows of each combination of values, if all occur
    by_factor: tuple[_SortedRows, ...]  # rows of each value of each factor
    rng: np.random.RandomState

    def draw_factor(self) -> int:
        """One factor."""
        return int(self.rng.randint(len(self.sizes)))

    def draw_rows(self, size: int) -> Array:
        """Rows at random."""
        if self.cells is None:
            return self.rng.randint(len(self.labels), size=size)
        return self._rows_with(self.cells, self._draw_values(size))

    def draw_sharing(self, factor: int, size: int) -> Array:
        """Rows that all have the same, random, value of one factor."""
        if self.cells is None:
            value = self.labels[self._draw_shared(factor, 1), factor]
            return self.by_factor[factor].draw(np.repeat(value, size), self.rng)
        values = self._draw_values(size)
        values[:, factor] = values[0, factor]
        return self._rows_with(self.cells, values)

    def draw_pairs(self, factor: int, size: int) -> tuple[Array, Array]:
        """Two lists of rows; the i-th of both share the value of one factor."""
        if self.cells is None:
            first = self._draw_shared(factor, size)
            return first, self.by_factor[factor].draw(self.labels[first, factor], self.rng)
        one, other = self._draw_values(size), self._draw_values(size)
        other[:, factor] = one[:, factor]
        return self._rows_with(self.cells, one), self._rows_with(self.cells, other)

    def _draw_values(self, size: int) -> Array:
        """Values of all factors, column by column, shape (size, K)."""
        return np.column_stack([self.rng.randint(levels, size=size) for levels in self.sizes])

    def _rows_with(self, cells: _SortedRows, values: Array) -> Array:
        return cells.draw(np.ravel_multi_index(tuple(values.T), self.sizes), self.rng)

    def _draw_shared(self, factor: int, size: int) -> Array:
        """Rows at random among those whose value of the factor another row has too."""
        allowed = self.by_factor[factor].shared
        return np.asarray(allowed[self.rng.randint(len(allowed), size=size)])


def make_sampler(s: Factors, bins: int, seed: int) -> tuple[FactorSampler | None, Factors, tuple[Note, ...], str]:
    """A sampler of the factors whose values are shared by some rows, those factors, notes, and why there is no sampler.

    There is none for fewer than two such factors.
    """
    unshared = [factor.name for factor in s if np.bincount(factor.labels(bins)).max() < 2]
    s = Factors(tuple(factor for factor in s if factor.name not in unshared))
    notes = note_if(s.numbers, f"cut into {bins} bins of equal width; rows of one bin share a value")
    notes += note_if(unshared, "left out, because no two rows share a value")
    if len(s) < 2:
        reason = "There is only one factor that rows share values of; two are needed." if s else NO_FACTORS
        return None, s, notes, reason
    labels = s.labels(bins)
    sizes = tuple(int(size) for size in labels.max(0) + 1)
    cells = None
    if math.prod(sizes) <= len(labels):
        cells = _sort_rows(np.ravel_multi_index(tuple(labels.T), sizes), math.prod(sizes))
        cells = cells if cells.count.all() else None
    by_factor = tuple(_sort_rows(column, size) for column, size in zip(labels.T, sizes, strict=True))
    sampler = FactorSampler(labels, sizes, cells, by_factor, np.random.RandomState(seed))
    return sampler, s, (*notes, ROWS if cells is None else GRID), ""
