"""Certify a translation: which queries are searched in which index, and everything measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from congruence.align._run_statistics import sample_rows
from congruence.arrays import Array, Float, on_sphere, row_chunks
from congruence.errors import InputError
from congruence.maps.dependence import MOST_ROWS, Dependence, fold_parts, link_near_duplicates, measure_dependence
from congruence.maps.groups import Map, fit_group
from congruence.maps.nearness import Nearness, Protocol
from congruence.options import reading
from congruence.rows.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, PairSums, pair_sums, run_sums
from congruence.stats.intervals import student_quantile
from congruence.tables import PairedRuns, gather
from congruence.tables.names import match_columns
from congruence.translation._choice import Choice, find_nearest, raw_rows
from congruence.translation._measures import learning_curve, measure_drift, measure_probe, pad
from congruence.translation._options import TranslateOptions
from congruence.translation._relevance import judge_rankings, read_qrels
from congruence.translation._retrieval import IndexReader, paired_blocks, summarise
from congruence.translation._search import Neighbours, Queries, search
from congruence.translation.certificate import Certificate, NearDuplicates, Retrieval
from congruence.translation.translator import Translator

QUERIES = 2000  # rows that are searched with; more are sampled
INDEX_ROWS = 50_000  # paired rows that are searched; more are sampled
ROWS_TO_CHECK = 100  # fewer do not show whether they depend on each other
FEWEST_DUPLICATES = 0.02  # a smaller share of rows with near-duplicates cannot change the recall much
DUPLICATE_EFFECT = 0.01  # a larger fall of the recall counts
DUPLICATE_QUERIES, DUPLICATE_INDEX = 1000, 4000


@dataclass(frozen=True, eq=False)
class Task:
    """A fitted translation, and what it was fitted on."""

    sums: PairSums
    plan: Protocol
    choice: Choice
    translator: Translator
    near: Nearness  # of the chosen group, errors in units of the old vectors
    inputs: PairedRuns
    options: TranslateOptions
    device: str

    @property
    def index(self) -> Array:
        """The paired rows that are searched, a sample of many."""
        return sample_rows(self.sums.source.rows.n, INDEX_ROWS, self.plan.seed)


@dataclass(frozen=True, eq=False)
class Asked:
    """The queries, the index they are searched in, and what depends on what."""

    queries: Queries
    unit: Array  # (m,)
    ids: Array | None  # (m,)
    inflation: float
    inside: bool  # whether they are rows of the paired index


def certify(task: Task, fit: Callable[[PairScatter, int | None], Map], step: Callable[[str], None]) -> Certificate:
    """Measure retrieval, relevance, probes, the learning curve, drift, and whether rows depend on each other."""
    plan, options = task.plan, task.options
    x, y = task.sums.source.rows, task.sums.target.rows
    asked = _paired_queries(task) if options.queries is None else _separate_queries(task)
    retrieval, found, index_ids = _retrieve(task, asked)
    step("measuring retrieval")
    relevance = None
    if options.qrels is not None:
        if asked.ids is None or index_ids is None:
            raise InputError("qrels needs ids of queries and documents; name their column by id (--id)")
        relevance = judge_rankings(found.results, asked.ids, index_ids, read_qrels(options.qrels), plan.seed)
    probe = None
    if task.inputs.labels is not None:
        index = task.index
        old, new, labels = raw_rows(y, index), raw_rows(x, index), task.inputs.labels[index]
        probe = measure_probe(old, _held_out(task, index), new, labels, plan.fold_of[index])
    step("training probes")
    curve = learning_curve(x, y, fit, y.d, plan)
    step("learning curve")
    drift = measure_drift(x, y, plan)
    step("measuring drift")
    dependence, duplicates = _check_rows(task)
    return Certificate(
        retrieval=retrieval,
        probe=probe,
        curve=curve,
        drift=drift,
        relevance=relevance,
        by_group=task.choice.recall,
        dependence=dependence,
        duplicates=duplicates,
    )


def _paired_queries(task: Task) -> Asked:
    """Held-out rows as queries: each is translated by a map that was fitted without its fold."""
    plan, index = task.plan, task.index
    own = sample_rows(len(index), QUERIES, plan.seed + 1)
    rows = index[own]
    vectors = _vectors(task, raw_rows(task.sums.target.rows, rows), raw_rows(task.sums.source.rows, rows))
    vectors["translated"] = _held_out(task, rows)
    ids = None if task.inputs.ids is None else np.asarray(task.inputs.ids)[rows].astype(str)
    folds = len(plan.folds)
    inside = task.options.index is None
    queries = _centred(task, vectors, own)
    return Asked(queries, plan.unit[rows], ids, folds / (folds - 1), inside)


def _separate_queries(task: Task) -> Asked:
    """Queries apart from the documents, translated by the map that was fitted on all documents."""
    given = task.options.queries
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise InputError("queries must be a pair (old, new) of the same queries embedded by both models")
    names = ("queries of old", "queries of new")
    read = gather(dict(zip(names, given, strict=True)), **reading(task.options), drop_missing=task.options.drop_missing)
    widths = (task.translator.d_old, task.translator.d_new)
    for name, values, width in zip(names, read.values, widths, strict=True):
        if values.shape[1] != width:
            raise InputError(f"{name} must have {width} columns, as the documents; got {values.shape[1]}")
    for k, fitted in enumerate((task.translator.columns_old, task.translator.columns_new)):
        order = match_columns(read.features[k], fitted, names[k])
        if order is not None:
            read.values[k], read.blocks[k] = read.values[k][:, order], None
    rows = sample_rows(len(read.values[0]), QUERIES, task.plan.seed + 1)
    scaled = [raw_rows(one, rows) for one in read.rows("cpu", task.options.normalize)]
    vectors = _vectors(task, *scaled)
    vectors["translated"] = np.asarray(task.translator(scaled[1]))
    ids = None if read.ids is None else np.asarray(read.ids)[rows].astype(str)
    # rows equal to a query are other documents: none is left out
    queries = _centred(task, vectors, np.full(len(rows), -1))
    return Asked(queries, np.arange(len(rows)), ids, 1.0, inside=False)


def _vectors(task: Task, old: Float, new: Float) -> dict[str, Float]:
    return {"old": old, "new": new, "raw": pad(new, task.translator.d_old)}


def _centred(task: Task, vectors: dict[str, Float], own: Array | None) -> Queries:
    old, new = _centres(task)
    moved = {name: z - (new if name == "new" else old) for name, z in vectors.items()}
    order = np.random.default_rng(task.plan.seed).permutation(len(moved["old"]))
    return Queries(own=own, other=moved["translated"][order], **moved)


def _centres(task: Task) -> tuple[Float, Float]:
    return task.sums.target.rows.mean, task.sums.source.rows.mean


def _retrieve(task: Task, asked: Asked) -> tuple[Retrieval, Neighbours, Array | None]:
    """Search the paired rows, and the real index where it is given; also the ids of the rows that were searched."""
    x, y, index, options = task.sums.source.rows, task.sums.target.rows, task.index, task.options
    blocks = paired_blocks(partial(raw_rows, y), partial(raw_rows, x), index, _centres(task), task.plan.seed)
    paired = search(asked.queries, blocks, task.device)
    found, ids = paired, None if task.inputs.ids is None else np.asarray(task.inputs.ids)[index].astype(str)
    if options.index is not None:
        reader = IndexReader(options.index, options, task.translator, keep_ids=options.qrels is not None)
        # a document that is a query is left out of its own results; separate queries leave out nothing
        own = None if options.queries is None else asked.queries.own
        found = search(replace(asked.queries, own=own), reader.blocks(_centres(task)[0]), task.device)
        ids = np.concatenate(reader.ids) if reader.ids else None
    retrieval = summarise(
        found, paired, asked.unit, asked.inflation, inside=asked.inside, extrapolate=options.index is None
    )
    return retrieval, found, ids


def _held_out(task: Task, index: Array) -> Float:
    """Every chosen row translated by a map that was fitted without its fold, shape (m, d_old)."""
    x = task.sums.source.rows
    translated = np.empty((len(index), task.translator.d_old))
    fold_of = task.plan.fold_of[index]
    for k, group in enumerate(task.choice.of_fold):
        mine = np.flatnonzero(fold_of == k)
        h = fit_group(task.sums.outside(k), group)
        for part in row_chunks(len(mine), h.width):
            translated[mine[part]] = h(raw_rows(x, index[mine[part]]))[:, : task.translator.d_old]
    return np.asarray(on_sphere(translated)) if task.translator.normalize else translated


def _check_rows(task: Task) -> tuple[Dependence | None, NearDuplicates | None]:
    """Whether rows depend on each other, unless clusters are given or other rows are the queries."""
    plan, near = task.plan, task.near
    x, y = task.sums.source.rows, task.sums.target.rows
    if plan.clustered or task.options.queries is not None or x.n < ROWS_TO_CHECK or not near.null > 0:
        return None, None
    group = task.choice.group
    dependence = measure_dependence(x, y, plan, near.errors, near.null, group)
    return dependence, _measure_near_duplicates(x, y, plan, group)


def _measure_near_duplicates(x: Rows, y: Rows, plan: Protocol, group: str) -> NearDuplicates:
    """Compare the recall@10 of a kind of map for folds of single rows and for folds of linked near-duplicates."""
    sample = sample_rows(x.n, MOST_ROWS, plan.seed)
    link = link_near_duplicates(x, sample, plan.seed)
    several = np.bincount(link)[link] > 1
    rows, n, folds = int(several.sum()), len(sample), len(plan.folds)
    if rows < FEWEST_DUPLICATES * n:
        return NearDuplicates(rows, n, float("nan"), float("nan"), matters=False)
    rng = np.random.default_rng(plan.seed)
    searched = np.sort(rng.permutation(n)[:DUPLICATE_INDEX])
    queries = np.sort(rng.permutation(len(searched))[:DUPLICATE_QUERIES])
    some = [Rows(run.data[sample], run.device, run.scale_rows) for run in (x, y)]
    kinds = (fold_parts(np.arange(n), folds, plan.seed), fold_parts(link, folds, plan.seed))
    apart, together = (_fold_recall(some[0], some[1], of_kind, group, searched, queries) for of_kind in kinds)
    fall = apart - together
    set_of = np.unique(link[searched[queries]], return_inverse=True)[1]
    totals = np.bincount(set_of, weights=fall - fall.mean())
    error = float(np.sqrt(np.square(totals).sum())) / len(fall)
    clear = fall.mean() > student_quantile(max(int(set_of.max()), 1), 0.99) * error
    return NearDuplicates(
        rows, n, float(apart.mean()), float(together.mean()), matters=bool(clear and fall.mean() > DUPLICATE_EFFECT)
    )


def _fold_recall(x: Rows, y: Rows, folds: list[Array], group: str, searched: Array, queries: Array) -> Float:
    """The recall@10 of held-out queries among the searched rows, shape (queries,)."""
    sums, old = pair_sums(run_sums(x, folds), run_sums(y, folds)), raw_rows(y, searched)
    found, rows = np.zeros(len(queries)), searched[queries]
    for k, fold in enumerate(folds):
        mine = np.flatnonzero(np.isin(rows, fold))
        with one_thread(max(x.d, y.d)):
            h = fit_group(sums.outside(k), group)
        found[mine] = find_nearest(old, queries[mine], h(raw_rows(x, rows[mine]))[:, : y.d])
    return found


def describe_inputs(options: TranslateOptions) -> dict[str, Any]:
    """The settings that say what was searched."""
    from os import PathLike

    def named(value: Any) -> str:
        return str(value) if isinstance(value, str | PathLike) else type(value).__name__

    given = {name: getattr(options, name) for name in ("index", "qrels")}
    settings = {name: named(value) for name, value in given.items() if value is not None}
    if options.queries is not None:
        settings["queries"] = ", ".join(named(one) for one in options.queries)
    return settings
