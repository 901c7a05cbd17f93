"""Relevance judgements (qrels): nDCG@10, MRR@10 and recall@10 of rankings, and their ratio to full re-embedding."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.maps.nearness import HeldOut
from congruence.stats.intervals import bootstrap_ratio
from congruence.translation.certificate import Relevance, RelevanceTest

FIRST = 10
DRAWS = 1000


def read_qrels(qrels: Any) -> dict[str, dict[str, float]]:
    """Relevance by query id and document id; the columns are query id, document id and relevance (1 if absent)."""
    from congruence.tables import as_columns

    name = f"qrels {qrels}" if isinstance(qrels, str | os.PathLike) else "qrels"
    columns = [np.asarray(column) for column in as_columns(qrels, name="qrels", keep="*").columns.values()]
    if len(columns) < 2:
        raise InputError(
            f"{name} must have the columns query id, document id and relevance, in this order; got {len(columns)}"
        )
    query, document = (_as_text(column) for column in columns[:2])
    try:
        gain = columns[2].astype(float) if len(columns) > 2 else np.ones(len(query))
    except (TypeError, ValueError):
        raise InputError(f"the third column of {name} must hold the relevance, a number") from None
    if not np.isfinite(gain).all():
        raise InputError(f"the relevance in {name} must be finite numbers; got NaN or infinity")
    found: dict[str, dict[str, float]] = {}
    for q, doc, value in zip(query, document, gain.tolist(), strict=True):
        if found.setdefault(q, {}).setdefault(doc, relevance := max(value, 0.0)) != relevance:
            raise InputError(f"{name} has two relevances of document {doc!r} for query {q!r}")
    return found


def _as_text(column: Array) -> list[str]:
    if column.dtype.kind == "f" and ((column == np.round(column)) & (np.abs(column) < 2**63)).all():
        column = column.astype(np.int64)
    return [str(value) for value in column]


def judge_rankings(
    results: dict[str, Array], query_ids: Array, index_ids: Array, qrels: dict[str, dict[str, float]], seed: int
) -> RelevanceTest:
    """Score the rankings (m, k) of positions in the index; queries without a relevant document in it are skipped."""
    known = set(index_ids.tolist())
    gains = [{doc: g for doc, g in qrels.get(str(q), {}).items() if g > 0 and doc in known} for q in query_ids]
    judged = [i for i, gain in enumerate(gains) if gain]
    if len(judged) < 2:
        raise InputError(
            f"qrels judges {len(judged)} of {len(query_ids)} queries with a relevant document in the index; at least 2 "
            "are needed. Ids of queries and documents must be those of the tables"
        )
    scores = {
        name: np.array([_score(index_ids[places[i]].tolist(), gains[i]) for i in judged])  # (queries, 3)
        for name, places in results.items()
    }
    means = {name: Relevance(*(float(value) for value in one.mean(0))) for name, one in scores.items()}

    def ratio(name: str) -> HeldOut | None:
        if name not in scores:
            return None
        above, below = scores["translated"][:, 0], scores[name][:, 0]
        if not below.any():
            return HeldOut(float("nan"), float("nan"), float("nan"))
        value = float(above.mean() / below.mean())
        return HeldOut(value, *bootstrap_ratio(above, below, np.arange(len(above)), DRAWS, seed))

    to_old = ratio("old")
    assert to_old is not None
    return RelevanceTest(
        queries=len(judged),
        skipped=len(gains) - len(judged),
        old=means["old"],
        translated=means["translated"],
        new=means.get("new"),
        ratio=ratio("new"),
        ratio_old=to_old,
    )


def _score(ranked: list[str], gains: dict[str, float]) -> tuple[float, float, float]:
    """nDCG@10 with linear gains (as trec_eval), MRR@10 and recall@10 of one ranking."""
    found: Float = np.array([gains.get(doc, 0.0) for doc in ranked[:FIRST]])
    ideal = np.sort(list(gains.values()))[::-1][:FIRST]
    discount = 1 / np.log2(np.arange(2, FIRST + 2))
    hits = np.flatnonzero(found > 0)
    first = 1 / (hits[0] + 1) if len(hits) else 0.0
    ndcg = float(found @ discount[: len(found)]) / float(ideal @ discount[: len(ideal)])
    return ndcg, float(first), len(hits) / len(gains)
