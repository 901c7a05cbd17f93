"""Near-duplicates across folds: how much lower is the recall where they are left out of the fit together?"""

from __future__ import annotations

import numpy as np

from congruence.align._run_statistics import sample_rows
from congruence.arrays import Array, Float
from congruence.maps.dependence import MOST_ROWS, fold_parts, link_near_duplicates
from congruence.maps.groups import fit_group
from congruence.maps.nearness import Protocol
from congruence.rows.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums
from congruence.stats.intervals import student_quantile
from congruence.translation._choice import find_nearest, raw_rows
from congruence.translation.certificate import NearDuplicates

FEWEST = 0.02  # a smaller share of rows with near-duplicates cannot change the recall much
EFFECT = 0.01  # a larger fall of the recall counts
QUERIES, INDEX = 1000, 4000


def measure_near_duplicates(x: Rows, y: Rows, plan: Protocol, group: str) -> NearDuplicates:
    """Compare the recall@10 of a kind of map for folds of single rows and for folds of linked near-duplicates."""
    sample = sample_rows(x.n, MOST_ROWS, plan.seed)
    link = link_near_duplicates(x, sample, plan.seed)
    several = np.bincount(link)[link] > 1
    rows, n, folds = int(several.sum()), len(sample), len(plan.folds)
    if rows < FEWEST * n:
        return NearDuplicates(rows, n, float("nan"), float("nan"), matters=False)
    rng = np.random.default_rng(plan.seed)
    searched = np.sort(rng.permutation(n)[:INDEX])
    queries = np.sort(rng.permutation(len(searched))[:QUERIES])
    some = [Rows(run.data[sample], run.device, run.scale_rows) for run in (x, y)]
    kinds = (fold_parts(np.arange(n), folds, plan.seed), fold_parts(link, folds, plan.seed))
    apart, together = (_recall(some[0], some[1], of_kind, group, searched, queries) for of_kind in kinds)
    fall = apart - together
    set_of = np.unique(link[searched[queries]], return_inverse=True)[1]
    totals = np.bincount(set_of, weights=fall - fall.mean())
    error = float(np.sqrt(np.square(totals).sum())) / len(fall)
    clear = fall.mean() > student_quantile(max(int(set_of.max()), 1), 0.99) * error
    return NearDuplicates(
        rows, n, float(apart.mean()), float(together.mean()), matters=bool(clear and fall.mean() > EFFECT)
    )


def _recall(x: Rows, y: Rows, folds: list[Array], group: str, searched: Array, queries: Array) -> Float:
    """The recall@10 of held-out queries among the searched rows, shape (queries,)."""
    sums, old = pair_sums(run_sums(x, folds), run_sums(y, folds)), raw_rows(y, searched)
    found, rows = np.zeros(len(queries)), searched[queries]
    for k, fold in enumerate(folds):
        mine = np.flatnonzero(np.isin(rows, fold))
        with one_thread(max(x.d, y.d)):
            h = fit_group(sums.outside(k), group)
        found[mine] = find_nearest(old, queries[mine], h(raw_rows(x, rows[mine]))[:, : y.d])
    return found
