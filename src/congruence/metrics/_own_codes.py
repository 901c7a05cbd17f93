"""Which code is a factor's own: what each code depends on, given the other factors.

Information of a code about a factor, taken alone, says little where factors are correlated: a code that equals one
factor is then informative about all. The conditional question is answered by regression of the codes on the factors:
how much of a code does a factor explain beyond all other factors, and how much do the others explain beyond it?
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.maps._protocol import deal
from congruence.metrics._estimators import one_hot, standardise
from congruence.metrics._information import number_values
from congruence.metrics.factors import Factor, Factors

LEAST = 0.1  # of what the other factors leave unexplained in a code, its own factor explains at least this share,
LEAK = 0.3  # all other factors move the code by at most this share of what its own factor does (standard deviations),
AHEAD = 3.0  # and no other code has more than a third of this, unless it is a copy
COPY = 0.99  # codes whose ranks correlate so well are copies
MOST_ROWS = 20_000  # used at most
FOLDS = 5
_DEGREE = 5  # of polynomials in the rank of an ordered factor, at most
_ROWS_PER_COLUMN = 20  # at least, for a higher degree
_PRODUCT_ORDER = 2  # of the polynomials that are multiplied, at most
_MOST_PRODUCTS = 300
_MOST_CLASSES = 30  # with a column of their own
_RIDGE = 1e-9  # of the mean square of a column: factors may be copies of each other


@dataclass(frozen=True, eq=False)
class Conditional:
    """How codes depend on factors, given the other factors; K factors, L codes.

    All are shares of a code's variance, held out. They estimate conditional information: `own` is 0 if and only if
    code and factor are independent given the others (as far as the regression can tell), and so on.
    """

    own: Float  # (K, L) what the factor explains beyond all other factors; NaN for a factor that is left out
    leak: Float  # (K, L) what all other factors explain beyond the factor
    explained: Float  # (L,) what all factors explain together
    copies: Array  # (L, L) which codes are copies of each other
    alone: Float  # (K, L) what the factor alone explains of the ranks of a code
    by_others: Float  # (K,) what the other factors explain of the factor

    @property
    def share(self) -> Float:
        """What the factor explains of the part of a code that the other factors do not, from 0 to 1, (K, L)."""
        rest = np.maximum(1 - self.explained, 0) + np.maximum(self.own, 0)
        shares: Float = np.maximum(self.own, 0) / np.maximum(rest, np.finfo(float).tiny)
        return shares

    @property
    def leakage(self) -> Float:
        """How far all other factors move a code, relative to the factor (standard deviations), (K, L)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt(np.maximum(self.leak, 0) / np.maximum(self.own, 0))
        return np.where(self.own > 0, ratio, np.inf)

    def own_codes(self, usable: Array) -> list[int]:
        """The own code of each factor, -1 for none; `usable` (K, L) are the pairs that may count."""
        found = [-1] * len(self.own)
        pure = usable & (self.share >= LEAST) & (self.leakage <= LEAK)
        for i, own in enumerate(self.own):
            for j in np.flatnonzero(pure[i]):
                rivals = ~self.copies[j]
                ahead = own[j] >= AHEAD * own[rivals].max(initial=0.0)
                if ahead and (found[i] < 0 or own[j] > own[found[i]]):
                    found[i] = int(j)
        return found


def measure_conditional(
    z: Float, s: Factors, *, unit: Array | None = None, discrete_codes: bool = False, seed: int = 0
) -> Conditional:
    """Regress the codes (n, L) on the factors, on all but one and on each alone, and compare held-out errors.

    The regression is additive: polynomials in the rank of an ordered factor, a level for each class. Where it says that
    a code depends on one factor only, products of factors are added: of this factor with the others, and of any two,
    so that a code which depends on others only jointly is not taken for pure. Codes are ranked, since an increasing
    function of a code is the same code; for factors that are classes, values are used too, since the ranks of separate
    clumps of values hide what moves the code inside a clump.
    """
    rng = np.random.default_rng([seed, 8])
    if len(z) > MOST_ROWS:
        rows = np.sort(rng.permutation(len(z))[:MOST_ROWS])
        z, s, unit = z[rows], s.take(rows), None if unit is None else unit[rows]
    live = np.flatnonzero(s.varies)
    own, leak = (np.full((len(s), z.shape[1]), np.nan) for _ in range(2))
    explained, alone, by_others = np.zeros(z.shape[1]), own.copy(), np.zeros(len(s))
    if len(live) and len(z) >= 2 * FOLDS:
        fold = _folds(len(z), unit, rng)
        design = _Design([s[k] for k in live], fold)
        ranked, valued = (_targets(z, discrete_codes, ranks) for ranks in (True, False))
        own[live], leak[live], explained = design.compare(*ranked)
        alone[live], by_others[live] = explained - leak[live], design.explain_factors()
        classes = [place for place, k in enumerate(live) if s[k].is_discrete]
        if classes and not discrete_codes:
            also_own, also_leak, _ = design.compare(*valued)
            worse = also_leak[classes] * own[live][classes] > leak[live][classes] * np.maximum(also_own[classes], 0)
            own[live[classes]] = np.where(worse, also_own[classes], own[live[classes]])
            leak[live[classes]] = np.where(worse, also_leak[classes], leak[live[classes]])
        _add_products(own, leak, explained, live, design, *ranked)
    return Conditional(own, leak, explained, _copies(z, discrete_codes), alone, by_others)


class _Design:
    """Columns of K factors and folds, for regressions on subsets of the factors."""

    def __init__(self, factors: list[Factor], fold: Array) -> None:
        degree = int(np.clip(len(fold) // (_ROWS_PER_COLUMN * len(factors)), 1, _DEGREE))
        self.factors, self.fold = factors, fold
        self.columns = [_columns(factor, degree) for factor in factors]
        self.owner = np.repeat(np.arange(len(factors)), [part.shape[1] for part in self.columns])
        self.x = np.column_stack([np.ones(len(fold)), *self.columns])

    def compare(self, y: Float, code: Array) -> tuple[Float, Float, Float]:
        """What each factor explains beyond the others, they beyond it, (K, L), and all together, (L,)."""
        owner = np.append(-1, self.owner)
        count = len(self.columns)
        without = [np.flatnonzero(owner != k) for k in range(count)]
        alone = [np.flatnonzero((owner == k) | (owner < 0)) for k in range(count)]
        all_columns = np.arange(len(owner))
        whole, *rest = _held_out(self.x, y, code, self.fold, [all_columns, *without, *alone])
        return whole - np.array(rest[:count]), whole - np.array(rest[count:]), whole

    def explain_factors(self) -> Float:
        """What the other factors explain of each factor, (K,), held out: of its rank, or of all its classes."""
        owner = np.append(-1, self.owner)
        found = []
        for k, (factor, columns) in enumerate(zip(self.factors, self.columns, strict=True)):
            several = factor.is_discrete or factor.kind == "circular"
            y = columns - columns.mean(0) if several else columns[:, :1]
            (share,) = _held_out(self.x, y, np.zeros(y.shape[1], dtype=int), self.fold, [np.flatnonzero(owner != k)])
            found.append(share[0])
        return np.array(found)

    @cached_property
    def pairs(self) -> Float:
        """Products of low-order columns of any two factors, (n, m): of as high an order as the rows allow, or none."""
        most = min(_MOST_PRODUCTS, 2 * len(self.x) // _ROWS_PER_COLUMN)
        for order in range(_PRODUCT_ORDER, 0, -1):
            both = list(combinations([_columns(factor, order, levels=False) for factor in self.factors], 2))
            if sum(a.shape[1] * b.shape[1] for a, b in both) <= most:
                return np.hstack([self.x[:, :0], *((a[:, :, None] * b[:, None]).reshape(len(a), -1) for a, b in both)])
        return self.x[:, :0]

    def products(self, k: int, y: Float) -> Float:
        """The other factors' columns times the fitted effect of factor k on y (n, m)."""
        effect = (
            self.x[:, np.append(False, self.owner == k)] @ _solve(self.x.T @ self.x, self.x.T @ y)[1:][self.owner == k]
        )
        others = self.x[:, 1:][:, self.owner != k]
        return np.hstack([others * column[:, None] for column in effect.T])


def _add_products(
    own: Float, leak: Float, explained: Float, live: Array, design: _Design, y: Float, code: Array
) -> None:
    """Raise the leak of pairs that are pure so far by what products of factors explain."""
    with np.errstate(invalid="ignore"):
        pure = (own > 0) & (leak <= LEAK**2 * own)
    jointly = np.zeros(len(explained))
    if pure.any() and design.pairs.shape[1]:
        (whole,) = _held_out(np.hstack([design.x, design.pairs]), y, code, design.fold, [slice(None)])
        jointly = np.maximum(whole - explained, 0)
    for place, k in enumerate(live):
        for j in np.flatnonzero(pure[k]):
            of_code, more = y[:, code == j], 0.0
            x = np.hstack([design.x, design.products(place, of_code)])
            if x.shape[1] * _ROWS_PER_COLUMN / 2 <= len(x):
                (whole,) = _held_out(x, of_code, np.zeros(of_code.shape[1], dtype=int), design.fold, [slice(None)])
                more = float(whole[0]) - explained[j]
            leak[k, j] += max(more, jointly[j])


def _held_out(x: Float, y: Float, code: Array, fold: Array, subsets: list[Any]) -> list[Float]:
    """The held-out share of the variance of each code that columns of x explain, (L,), for each subset of columns."""
    count = int(fold.max()) + 1
    parts = [(x[fold == k], y[fold == k]) for k in range(count)]
    squares, sums = [part.T @ part for part, _ in parts], [part.T @ target for part, target in parts]
    total = np.bincount(code, np.square(y).sum(0))
    found = []
    for chosen in subsets:
        errors = np.zeros(y.shape[1])
        for k, (part, target) in enumerate(parts):
            gram = (sum(squares) - squares[k])[chosen][:, chosen]
            weights = _solve(gram, (sum(sums) - sums[k])[chosen])
            errors += np.square(target - part[:, chosen] @ weights).sum(0)
        found.append(1 - np.bincount(code, errors) / np.where(total > 0, total, np.inf))
    return found


def _solve(gram: Float, right: Float) -> Float:
    ridge = _RIDGE * np.trace(gram) / len(gram)
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), right)


def _folds(n: int, unit: Array | None, rng: np.random.Generator) -> Array:
    """The fold of each row, (n,); clusters are whole."""
    if unit is None:
        return rng.permutation(n) % FOLDS
    unit = np.unique(unit, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(unit)
    return np.unique(deal(sizes, min(FOLDS, len(sizes)), rng)[unit], return_inverse=True)[1]


def _ranks(columns: Float) -> Float:
    """Ranks of each column, from -1 to 1."""
    from scipy.stats import rankdata

    ranks: Float = (2 * rankdata(columns, axis=0) - 1) / len(columns) - 1
    return ranks


def _columns(factor: Factor, degree: int, *, levels: bool = True) -> Float:
    """Columns that a function of the factor is a sum of, (n, m); `levels`: one for each class, if they are few."""
    if factor.kind == "circular" and not factor.is_discrete:
        turns = 2 * np.pi * factor.values[:, None] / factor.period * np.arange(1, 1 + (degree + 1) // 2)
        return np.hstack([np.cos(turns), np.sin(turns)])
    labels = factor.labels()
    levels &= factor.distinct <= _MOST_CLASSES
    if not factor.is_discrete or not (levels or factor.is_unordered):
        return np.asarray(np.polynomial.legendre.legvander(_ranks(factor.values), degree)[:, 1:], dtype=np.float64)
    frequent = np.argsort(-np.bincount(labels), kind="stable")[: min(_MOST_CLASSES, factor.distinct - 1)]
    return np.equal(labels[:, None], frequent).astype(np.float64)


def _targets(z: Float, discrete_codes: bool, ranks: bool) -> tuple[Float, Array]:
    """What is regressed, centred, (n, m), and the code of each column, (m,); of quantised codes, each value is one."""
    if discrete_codes:
        columns = [one_hot(number_values(code[:, None])).toarray() for code in z.T]
        y = np.hstack(columns)
        code = np.repeat(np.arange(len(columns)), [part.shape[1] for part in columns])
    else:
        y, code = _ranks(z) if ranks else standardise(z), np.arange(z.shape[1])
    return y - y.mean(0), code


def _copies(z: Float, discrete_codes: bool) -> Array:
    """Which codes are copies of each other, up to an increasing or decreasing function; of classes, their names."""
    if discrete_codes:
        labels = number_values(z)
        sizes = labels.max(0) + 1
        joint = [[len(np.unique(a * (b.max() + 1) + b)) for b in labels.T] for a in labels.T]
        copies: Array = (np.array(joint) == sizes) & (np.array(joint) == sizes[:, None])
        return copies
    ranks = standardise(_ranks(z))
    return np.abs(ranks.T @ ranks) / len(z) >= COPY
