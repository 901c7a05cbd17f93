"""The certificate: real indexes, separate queries, relevance judgements, extrapolation, dependent rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.errors import InputError, TableError
from congruence.stats.intervals import unit_interval
from congruence.translation import translate
from congruence.translation._relevance import _score, judge_rankings, read_qrels

QUICK = {"nulls": 1, "bootstrap": 0}


class Corpus:
    """Documents of two models on a surface of 4 dimensions."""

    def __init__(self, noise=0.05, d=12):
        rng = np.random.default_rng(5)
        self.embed, self.turn, self.noise = rng.normal(size=(4, d)), ortho_group.rvs(d, random_state=0), noise

    def draw(self, n, seed):
        rng = np.random.default_rng([seed, 3])
        old = rng.normal(size=(n, 4)) @ self.embed
        return old, (old + self.noise * rng.normal(size=old.shape)) @ self.turn


def frame(values, ids):
    return pa.table({"doc": ids} | {f"v{i}": values[:, i] for i in range(values.shape[1])})


def test_the_real_index_decides(tmp_path):
    corpus = Corpus(noise=0.1)
    old, new = corpus.draw(400, 0)
    large = corpus.draw(8000, 1)[0]
    small = translate(old, new, **QUICK).certificate.retrieval
    found = translate(old, new, index=large, **QUICK)
    retrieval = found.certificate.retrieval
    assert (small.index_size, retrieval.index_size) == (400, 8000)
    assert "of the 10 nearest of 8,000 old vectors" in found.verdict
    assert retrieval.recall_10.mean < small.recall_10.mean - 0.02
    assert not any(point.extrapolated for point in retrieval.sizes)
    beyond = next(point for point in small.sizes if point.rows == 4000)
    assert beyond.extrapolated
    assert beyond.low < retrieval.recall_10.mean + 0.03
    np.save(tmp_path / "large.npy", large)
    pq.write_table(pa.table({f"v{i}": large[:, i] for i in range(12)}), tmp_path / "large.parquet")
    for name in ("large.npy", "large.parquet"):
        again = translate(old, new, index=tmp_path / name, **QUICK).certificate.retrieval
        assert_allclose(again.recall_10.mean, retrieval.recall_10.mean, atol=1e-9)


def test_a_document_is_left_out_of_its_own_results():
    corpus = Corpus()
    old, new = corpus.draw(300, 0)
    inside = translate(old, new, **QUICK).certificate.retrieval
    same = translate(old, new, index=old, **QUICK).certificate.retrieval
    assert_allclose(same.recall_10.mean, inside.recall_10.mean, atol=1e-12)


def test_queries_apart_from_documents_are_what_is_certified(rng):
    """Queries lie where the map is worse than on documents."""
    corpus = Corpus(noise=0.02)
    old, new = corpus.draw(500, 0)
    old_q, new_q = corpus.draw(200, 1)
    same = translate(old, new, queries=(old_q, new_q), **QUICK)
    noisy = translate(old, new, queries=(old_q, new_q + 0.5 * rng.normal(size=new_q.shape)), **QUICK)
    assert same.certificate.retrieval.queries == 200
    assert "With separate queries, translated vectors find" in same.verdict
    assert same.certificate.retrieval.itself is None
    assert noisy.certificate.retrieval.recall_10.mean < same.certificate.retrieval.recall_10.mean - 0.1
    assert (same.status, noisy.status) == ("holds", "fails")


def test_columns_of_queries_and_index_are_matched_by_name(tmp_path):
    old, new = Corpus(noise=0.02).draw(300, 0)
    names = list("cafebdhgijkl")
    columns = {"old": [f"o{name}" for name in names], "new": names}
    runs = {"old": old, "new": new}

    def write(kind, rows, order):
        path = str(tmp_path / f"{kind}{rows.start}{order}.parquet")
        values = {columns[kind][j]: runs[kind][rows, j] for j in range(12)[::order]}
        pq.write_table(pa.table({"doc": [f"d{i}" for i in range(rows.start, rows.stop)]} | values), path)
        return path

    documents, queries = slice(0, 200), slice(200, 300)
    fitted = [write(kind, documents, 1) for kind in runs]
    found = [
        translate(*fitted, queries=tuple(write(kind, queries, order) for kind in runs), id="doc", **QUICK)
        for order in (1, -1)
    ]
    assert found[0].certificate.retrieval == found[1].certificate.retrieval
    found = [translate(*fitted, index=write("old", queries, order), id="doc", **QUICK) for order in (1, -1)]
    assert found[0].certificate.retrieval.recall_10 == found[1].certificate.retrieval.recall_10
    with pytest.raises(TableError, match="index does not have the columns of the fit: it lacks oc"):
        translate(*fitted, index=write("new", queries, 1), id="doc", **QUICK)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_few_queries_decide_nothing(noise, rng):
    old, new = Corpus(noise=0.0).draw(300, 0)
    old_q, new_q = Corpus(noise=0.0).draw(12, 1)
    new_q = new_q + noise * rng.normal(size=new_q.shape)
    few, enough = (translate(old, new, queries=(old_q[:m], new_q[:m]), **QUICK) for m in (1, 12))
    assert few.status == "unknown"
    assert "too few queries" in few.verdict
    assert "At least 10 queries are needed for a decision; got 1." in few.notes
    assert enough.status == ("fails" if noise else "holds")


def test_a_query_may_equal_a_document():
    corpus = Corpus(noise=0)
    old, new = corpus.draw(300, 0)
    found = translate(old, new, queries=(old[:50], new[:50]), index=old, **QUICK).certificate.retrieval
    assert_allclose(found.recall_1.mean, 1)


def test_containment_rises_to_the_rerank_depth():
    old, new = Corpus(noise=0.3).draw(800, 0)
    retrieval = translate(old, new, **QUICK).certificate.retrieval
    shares = [retrieval.recall_10.mean, *(point.share.mean for point in retrieval.containment)]
    assert shares == sorted(shares)
    assert [point.depth for point in retrieval.containment] == [50, 100, 200]
    reached = [point.depth for point in retrieval.containment if point.share.mean >= 0.99]
    assert retrieval.rerank_depth <= min(reached, default=1000)


def test_full_re_embedding_is_compared_with_the_new_models_neighbours(rng):
    old, _ = Corpus().draw(400, 0)
    same = translate(old, old @ ortho_group.rvs(12, random_state=1), **QUICK).certificate.retrieval
    assert (same.full.mean, same.full_old) == (1, 1)
    other = translate(old, rng.normal(size=(400, 12)), **QUICK).certificate.retrieval
    assert other.full.mean < 0.2


def test_relevance_judgements_give_the_ratio_to_full_re_embedding():
    corpus = Corpus(noise=0.02)
    (old, new), (old_q, new_q) = corpus.draw(300, 0), corpus.draw(40, 1)
    nearest = np.linalg.norm(new[None] - new_q[:, None], axis=2).argsort(1)[:, :3]
    qrels = pa.table(
        {
            "query": np.repeat([f"q{i}" for i in range(40)], 3),
            "document": [f"d{j}" for j in nearest.ravel()],
            "relevance": [2, 1, 1] * 40,
        }
    )
    docs, asked = [f"d{i}" for i in range(300)], [f"q{i}" for i in range(40)]
    tables = [frame(old, docs), frame(new, docs)]
    queries = (frame(old_q, asked), frame(new_q, asked))
    relevance = translate(*tables, id="doc", queries=queries, qrels=qrels, **QUICK).certificate.relevance
    assert (relevance.queries, relevance.skipped) == (40, 0)
    assert_allclose(relevance.new.recall_10, 1)
    assert relevance.new.mrr_10 == 1
    assert 0.9 < relevance.ratio.mean <= 1
    assert_allclose(relevance.ratio.mean, relevance.translated.ndcg_10 / relevance.new.ndcg_10)
    few = translate(*tables, id="doc", queries=queries, qrels=qrels, index=tables[0].slice(0, 250), **QUICK)
    assert few.certificate.relevance.new is None  # nobody knows the new vectors of the index
    assert few.certificate.relevance.ratio is None
    with pytest.raises(InputError, match="qrels judges 0 of 40 queries"):
        translate(*tables, id="doc", queries=queries, qrels={"q": ["x"], "d": ["y"]}, **QUICK)


def test_ndcg_is_that_of_trec_eval():
    ndcg, mrr, recall = _score(["a", "b", "c"], {"b": 2.0, "c": 1.0, "z": 1.0})
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert_allclose([ndcg, mrr, recall], [(2 / np.log2(3) + 1 / np.log2(4)) / ideal, 0.5, 2 / 3])


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ({"query": ["a"]}, "qrels must have the columns query id, document id and relevance"),
        ({"q": ["a"], "d": ["b"], "r": ["good"]}, "the third column of qrels must hold the relevance"),
        ({"q": ["a"], "d": ["b"], "r": [np.nan]}, "the relevance in qrels must be finite"),
        ({"q": ["a", "a"], "d": ["b", "b"], "r": [1, 2]}, "qrels has two relevances of document 'b' for query 'a'"),
    ],
)
def test_wrong_judgements_are_named(qrels, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_qrels(qrels)
    pd.DataFrame(qrels).to_csv(tmp_path / "judged.csv", index=False)
    with pytest.raises(InputError, match="judged.csv"):
        read_qrels(tmp_path / "judged.csv")


def test_ids_that_are_numbers_beyond_integers_stay_apart():
    assert read_qrels({"q": [1.0, 2.0], "d": [3e200, 4e200]}) == {"1": {"3e+200": 1.0}, "2": {"4e+200": 1.0}}


def test_a_ranking_without_any_hit_has_no_ratio():
    qrels = {"a": {"x": 1.0}, "b": {"x": 1.0}}
    places = np.ones((2, 1), int)
    found = judge_rankings(
        {"old": places, "translated": places}, np.array(["a", "b"]), np.array(["x", "y"]), qrels, seed=0
    )
    assert np.isnan(found.ratio_old.mean)


def test_near_duplicates_across_folds_make_the_verdict_unknown():
    rng = np.random.default_rng(0)
    base, error = rng.normal(size=(100, 8)), rng.normal(size=(100, 64))
    of = np.arange(500) % 100
    embed = rng.normal(size=(8, 64)) / 8
    old = (base[of] + 0.05 * rng.normal(size=(500, 8))) @ embed
    new = old + 0.1 * (error[of] + 0.05 * rng.normal(size=old.shape))
    found = translate(old, new, **QUICK)
    duplicates = found.certificate.duplicates
    assert duplicates.matters
    assert duplicates.rows > 450
    assert duplicates.together < duplicates.recall
    assert found.status == "unknown"
    assert any("rows have near-duplicates" in note for note in found.notes)
    given = translate(old, new, cluster=of, **QUICK)
    assert given.certificate.duplicates is None
    assert given.certificate.retrieval.recall_10.mean < found.certificate.retrieval.recall_10.mean


@pytest.mark.parametrize("dimension", [1, 2, 4, 16])
def test_independent_rows_have_no_near_duplicates_that_matter(dimension, rng):
    old = rng.normal(size=(400, dimension)) @ rng.normal(size=(dimension, 16))
    found = translate(old, old @ ortho_group.rvs(16, random_state=0) + 0.05 * rng.normal(size=old.shape), **QUICK)
    assert not found.certificate.duplicates.matters


def test_a_go_at_the_measured_size_is_none_for_larger_ones():
    found = translate(*Corpus(noise=0.05).draw(500, 0), **QUICK)
    beyond = [point for point in found.certificate.retrieval.sizes if point.extrapolated]
    assert [point.rows for point in beyond] == [5000, 50_000]
    assert all(point.low <= point.recall <= point.high for point in beyond)
    assert found.status == "holds"
    assert beyond[1].low < 0.9
    assert any("The go is for an index of 500 vectors." in note for note in found.notes)


def test_the_interval_is_that_of_clusters(rng):
    values, unit = np.repeat([0.0, 1.0, 0.5, 0.7], 25), np.repeat(np.arange(4), 25)
    alone, together = unit_interval(values, np.arange(100)), unit_interval(values, unit)
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])
    assert np.isnan(unit_interval(values, np.zeros(100, int))).all()
    clear = [
        low <= 0.8 <= high
        for low, high in (unit_interval(rng.binomial(10, 0.8, 40) / 10, np.arange(40)) for _ in range(300))
    ]
    assert 0.9 < np.mean(clear) < 0.99


def test_the_choice_of_the_map_is_made_without_the_held_out_fold(rng, monkeypatch):
    """With unrelated rows every kind is chance, so the recall of the chosen one must be chance as well."""
    above = []
    for seed in range(6):
        old, new = np.random.default_rng(seed).normal(size=(2, 150, 30))
        found = translate(old, new, **QUICK).certificate
        above.append(found.retrieval.recall_10.mean - found.retrieval.chance)
    assert abs(np.mean(above)) < 0.02
