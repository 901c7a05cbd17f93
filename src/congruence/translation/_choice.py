"""Choose the kind of map by its recall@10, inside the rows that each held-out map is fitted on.

For every fold, the choice uses the other folds only: maps are fitted without the fold and without one more, whose rows
are the queries. The recall of the held-out rows is thus that of the whole procedure, the choice included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.maps.groups import Map, fit_group
from congruence.maps.nearness import Protocol
from congruence.rows.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, PairSums, RunSums

QUERIES, INDEX = 500, 2000  # rows that the choice is made on
NEIGHBOURS = 10
WITHOUT_CHOICE = "ridge_similarity"  # with two folds, none is left to choose in


@dataclass(frozen=True, eq=False)
class Choice:
    """The kind of map for all rows and for the rows outside each fold, and the held-out recall@10 of every kind."""

    group: str
    of_fold: list[str]
    recall: dict[str, float]


def choose_group(sums: PairSums, groups: Sequence[str], plan: Protocol) -> Choice:
    """The kind with the best recall@10; of those within one standard error of the best, the first."""
    rng = np.random.default_rng(plan.seed)
    index = np.sort(rng.permutation(len(plan.unit))[:INDEX])
    own = np.sort(rng.permutation(len(index))[:QUERIES])
    trial = _Trial(sums, list(groups), index, own, plan)
    every = range(len(plan.folds))
    whole = np.vstack([trial.recall((k,)) for k in every])  # (queries, groups)
    unit = np.concatenate([trial.units(k) for k in every])
    mean = dict(zip(groups, whole.mean(0).tolist(), strict=True))
    if len(groups) == 1:
        return Choice(groups[0], [groups[0] for _ in every], mean)
    if len(plan.folds) < 3:
        return Choice(WITHOUT_CHOICE, [WITHOUT_CHOICE for _ in every], mean)
    inner: dict[tuple[int, int], Float] = {}
    for k, j in combinations(every, 2):
        inner[k, j], inner[j, k] = trial.recall((k, j)), trial.recall((j, k))
    of_fold = []
    for k in every:
        rest = [j for j in every if j != k]
        scores = np.vstack([inner[j, k] for j in rest])
        of_fold.append(groups[_best(scores, np.concatenate([trial.units(j) for j in rest]))])
    return Choice(groups[_best(whole, unit)], of_fold, mean)


def _best(scores: Float, unit: Array) -> int:
    """The first group whose scores (queries, groups) are within one standard error of the best."""
    gap = scores[:, [scores.mean(0).argmax()]] - scores
    unit = np.unique(unit, return_inverse=True)[1]
    totals = np.stack([np.bincount(unit, weights=column) for column in (gap - gap.mean(0)).T], axis=1)
    error = np.sqrt(np.square(totals).sum(0)) / len(scores)
    return int(np.flatnonzero(gap.mean(0) <= error + 1e-12)[0])


class _Trial:
    """The recall of maps that were fitted without some folds, on a sample of the rows."""

    def __init__(self, sums: PairSums, groups: list[str], index: Array, own: Array, plan: Protocol) -> None:
        self.sums, self.groups, self.index, self.own, self.plan = sums, groups, index, own, plan
        self.old = raw_rows(sums.target.rows, index)  # (m, d_old) the rows that are searched
        self.new = raw_rows(sums.source.rows, index[own])  # (q, d_new) the queries
        self.fold = plan.fold_of[index]
        self.fitted: dict[tuple[int, ...], list[Map]] = {}

    def units(self, fold: int) -> Array:
        """The unit of every query of a fold."""
        mine = self.own[self.fold[self.own] == fold]
        return np.asarray(self.plan.unit[self.index[mine]])

    def recall(self, folds: tuple[int, ...]) -> Float:
        """The recall of the queries of the first fold in an index without the others, shape (queries, groups)."""
        mine = np.flatnonzero(self.fold[self.own] == folds[0])
        keep = np.flatnonzero(~np.isin(self.fold, folds[1:]))
        place = np.searchsorted(keep, self.own[mine])
        known = tuple(sorted(folds))
        if known not in self.fitted:
            paired = _outside(self.sums, known)
            with one_thread(paired.width):
                self.fitted[known] = [fit_group(paired, group) for group in self.groups]
        translated = (h(self.new[mine])[:, : self.old.shape[1]] for h in self.fitted[known])
        return np.stack([find_nearest(self.old[keep], place, one) for one in translated], axis=1)


def _outside(sums: PairSums, folds: tuple[int, ...]) -> PairScatter:
    """The sums of all rows but those of some folds."""
    if len(folds) == 1:
        return sums.outside(folds[0])
    some = list(folds)
    index = np.sort(np.concatenate([f for k, f in enumerate(sums.source.folds) if k not in folds]))

    def rest(values: Float) -> Float:
        return np.asarray(values.sum(0) - values[some].sum(0))[None]

    runs = [RunSums(run.rows, [index], rest(run.totals), rest(run.products)) for run in (sums.source, sums.target)]
    return PairSums(runs[0], runs[1], rest(sums.products)).inside(0)


def find_nearest(old: Float, own: Array, translated: Float, k: int = NEIGHBOURS) -> Float:
    """The recall@k of translated rows (m, d) whose old vectors are old[own], in the index `old`, shape (m,)."""
    k = min(k, len(old) - 1)
    if not len(own) or k < 1:
        return np.zeros(len(own))
    centre = old.mean(0)
    old, translated = old - centre, translated - centre
    squares, rows = np.square(old).sum(1), np.arange(len(own))
    truth, guess = (squares - 2 * z @ old.T for z in (old[own], translated))
    truth[rows, own] = guess[rows, own] = np.inf
    nearest = np.argpartition(guess, k - 1, axis=1)[:, :k]
    reach = np.partition(truth, k - 1, axis=1)[:, k - 1]
    reach = reach + 1e-12 * (2 * squares[own] + reach)  # the rounding of a difference of squares
    return np.asarray((np.take_along_axis(truth, nearest, axis=1) <= reach[:, None]).mean(1))


def raw_rows(rows: Rows, index: Array) -> Float:
    """Some rows of a run as they were given (on the unit sphere, where they are scaled), shape (m, d)."""
    return np.asarray(to_numpy(rows.take(index)) + rows.mean)
