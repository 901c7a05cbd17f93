import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence._saved import load
from congruence.errors import InputError, NotInvertibleError
from congruence.maps.groups import fit_map
from congruence.translation import load_translator, translate

QUICK = {"nulls": 1, "bootstrap": 50}


def models(rng, n=600, d=6, noise=0.01):
    old = rng.laplace(size=(n, d))
    new = 3 * old @ ortho_group.rvs(d, random_state=0) + 1 + noise * rng.normal(size=(n, d))
    return old, new


def test_a_rotated_model_is_translated_back(rng):
    old, new = models(rng)
    found = translate(old, new, **QUICK)
    assert found.status == "holds"
    assert found.group == "similarity"
    assert_allclose(found.translator(new), old, atol=0.1)
    retrieval = found.certificate.retrieval
    assert retrieval.recall_10.mean > 0.95
    assert retrieval.itself > 0.99
    assert (retrieval.index_size, retrieval.rerank_depth) == (600, 10)
    assert retrieval.before < 0.2
    assert not found.certificate.drift.found
    assert found.headlines[0] == "New vectors can be translated into the old space."
    assert found.verdict.startswith(f"{found.headlines[0]} With held-out rows, translated vectors find ")
    assert "of the 10 nearest of 600 old vectors; 90 % is required." in found.verdict
    assert found.document().status_text == "go"
    assert found["similarity"] is found.candidates["similarity"]
    assert (found.finding.null, found.finding.number) == (retrieval.chance, retrieval.recall_10.mean)


def test_recall_is_the_share_of_true_neighbours_found(rng):
    """Against a plain computation over all rows, with the maps of every fold."""
    old, new = models(rng, n=80, noise=0.5)
    found = translate(old, new, group="linear", **QUICK)
    from congruence.maps.nearness import protocol

    carried = np.empty_like(old)
    for fold in protocol(80, nulls=1).folds:
        rest = np.setdiff1d(np.arange(80), fold)
        carried[fold] = fit_map(new[rest], old[rest], "linear")(new[fold])
    shares = []
    for i in range(80):
        truth, guess = (np.linalg.norm(old - z[i], axis=1) for z in (old, carried))
        truth[i] = guess[i] = np.inf
        shares.append(len(set(np.argsort(truth)[:10]) & set(np.argsort(guess)[:10])) / 10)
    assert_allclose(found.certificate.retrieval.recall_10.mean, np.mean(shares))


def test_unrelated_models_are_a_no_go(rng):
    found = translate(rng.normal(size=(400, 5)), rng.normal(size=(400, 5)), **QUICK)
    assert found.status == "fails"
    assert found.certificate.retrieval.recall_10.mean < 3 * found.certificate.retrieval.chance


def test_the_group_has_the_best_recall_and_is_the_simplest_of_those(rng):
    old = rng.laplace(size=(600, 4))
    turned = old @ ortho_group.rvs(4, random_state=0)
    assert translate(old, old.copy(), **QUICK).group == "identity"
    assert translate(old, turned + 0.01 * rng.normal(size=old.shape), **QUICK).group == "rigid"
    assert translate(old, 3 * turned + 0.01 * rng.normal(size=old.shape), **QUICK).group == "similarity"
    assert translate(old, turned * [1, 2, 3, 4], **QUICK).group == "ridge"
    assert translate(old, turned, group="linear", **QUICK).group == "linear"


def test_drift_beyond_a_linear_map_is_said(rng):
    old = rng.uniform(-2, 2, size=(1500, 3))
    found = translate(old, np.sin(old) + 0.3 * old**3, **QUICK)
    assert found.certificate.drift.found
    assert found.certificate.drift.share > 0.3
    assert any("differ by more than a linear map" in note for note in found.notes)
    assert not translate(old, old + 0.3 * rng.normal(size=old.shape), **QUICK).certificate.drift.found


def test_angles_are_translated_for_cosine_embeddings(rng):
    old = rng.laplace(size=(600, 6))
    new = old @ ortho_group.rvs(6, random_state=0) * rng.uniform(0.1, 10, size=(600, 1))  # lengths say nothing
    found = translate(old, new, normalize="cosine", **QUICK)
    assert found.status == "holds"
    assert_allclose(np.linalg.norm(found.translator(new), axis=1), 1)
    assert_allclose(found.translator(7 * new), found.translator(new), atol=1e-12)


def test_probes_trained_on_old_vectors_are_tried_on_translated_ones(rng):
    old, new = models(rng, n=900)
    classes = np.where(old[:, 0] + 0.3 * rng.normal(size=900) > 0, "yes", "no")
    probe = translate(old, new, labels=classes, **QUICK).certificate.probe
    assert probe.score == "accuracy"
    assert probe.ideal > 0.8
    assert_allclose(probe.after, probe.ideal, atol=0.02)
    assert probe.before < probe.after - 0.1
    assert 0.4 < probe.baseline < 0.6
    numbers = translate(old, new, labels=old[:, :2] ** 3, **QUICK).certificate.probe
    assert numbers.score == "R squared"
    assert numbers.baseline == 0


def test_the_curve_rises_with_paired_rows(rng):
    old, new = models(rng, noise=0.5)
    certificate = translate(old, new, group="linear", **QUICK).certificate
    curve = certificate.curve
    assert curve[0].rows == 10
    assert curve[-1].rows == 480
    assert curve[-1].mean > curve[0].mean + 0.1
    assert all(point.low <= point.mean <= point.high for point in curve)
    assert certificate.rows_enough in [point.rows for point in curve]


@pytest.mark.parametrize("d", [20, 60])
def test_more_rows_never_hurt(d, rng):
    """Least squares has its worst error where there are as many rows as dimensions; the chosen map has none there."""
    old = rng.laplace(size=(40 + 4 * d, d)) @ np.diag(np.linspace(0.1, 1, d))
    new = old @ rng.normal(size=(d, d)) / np.sqrt(d) + 0.05 * rng.normal(size=old.shape)
    recalls = []
    for n in (d // 2, d, d + 5, 2 * d, 4 * d):
        certificate = translate(old[:n], new[:n], nulls=0, bootstrap=0).translator
        recalls.append(recall_of(certificate, old, new, np.arange(4 * d, 4 * d + 40)))
    assert (np.diff(recalls) > -0.03).all()


def recall_of(translator, old, new, queries):
    found = []
    for i in queries:
        truth, guess = (np.linalg.norm(old - z, axis=1) for z in (old[i], translator(new[i : i + 1])[0]))
        truth[i] = guess[i] = np.inf
        found.append(len(set(np.argsort(truth)[:10]) & set(np.argsort(guess)[:10])) / 10)
    return np.mean(found)


@pytest.mark.parametrize(("d_old", "d_new"), [(4, 6), (6, 4)])
def test_widths_may_differ(d_old, d_new, rng):
    shared = rng.laplace(size=(400, 4))
    old, new = (shared @ rng.normal(size=(4, d)) for d in (d_old, d_new))
    found = translate(old, new, group="linear", **QUICK)
    assert found.translator(new).shape == (400, d_old)
    assert_allclose(found.translator(new), old, atol=1e-8)


def test_a_saved_translator_comes_back_the_same(rng, tmp_path):
    old, new = models(rng)
    found = translate(old, new, normalize="cosine", **QUICK)
    found.save(tmp_path / "up.safetensors")
    again = load(tmp_path / "up.safetensors")
    assert_allclose(again(new), found.translator(new), atol=0)
    tensor = torch.from_numpy(new.astype(np.float32))
    assert again(tensor).dtype == torch.float32
    assert_allclose(again(tensor).numpy(), again(new), atol=1e-5)
    fit_map(new, old).save(tmp_path / "plain.safetensors")
    with pytest.raises(InputError, match="holds a map that was not written by translate"):
        load_translator(tmp_path / "plain.safetensors")


def test_translation_goes_both_ways_where_it_can(rng):
    old, new = models(rng)
    found = translate(old, new, **QUICK)
    assert_allclose(found.translator.inverse(found.translator(new)), new, atol=1e-9)
    narrow = translate(old[:, :2], new, group="linear", **QUICK)
    with pytest.raises(NotInvertibleError):
        narrow.translator.inverse(old[:, :2])


def test_many_rows_are_sampled(rng, monkeypatch):
    from congruence.translation import _certify as module

    monkeypatch.setattr(module, "INDEX_ROWS", 200)
    monkeypatch.setattr(module, "QUERIES", 100)
    retrieval = translate(*models(rng), **QUICK).certificate.retrieval
    assert (retrieval.index_size, retrieval.queries) == (200, 100)


def test_json_is_plain_and_the_same_each_time(rng):
    old, new = models(rng)
    first, again = (translate(old, new, labels=old[:, 0], seed=3, **QUICK).to_json() for _ in range(2))
    assert first == again
    result = json.loads(first)
    assert list(result)[:2] == ["status", "verdict"]
    assert {"group", "groups", "retrieval", "probe", "curve", "rows_enough", "drift"} <= set(result["numbers"])


def test_the_tidy_table_has_every_score(rng):
    found = translate(*models(rng), **QUICK)
    rows = {row["score"]: row for row in found.rows()}
    first = ["recall_10", "recall_1", "containment_50", "containment_100", "containment_200", "itself"]
    assert list(rows)[:6] == first
    assert {"recall_10 of 600", "extrapolated recall_10 of 6000", "full_re_embedding", "r2 ridge"} <= set(rows)
    assert rows["recall_10"]["chance"] == found.certificate.retrieval.chance
    assert rows["error of chance ridge"]["translated"] == found.candidates["ridge"].of_chance.mean


def test_two_trainings_of_a_graph_network(model_pair, data_folder):
    """Run 1 into run 0: what the certificate said when it was first run, on held-out molecules."""
    logits = np.load(data_folder / "modelpairs" / "admet_cls_outputs.npz")["logits"][0]
    found = translate(*model_pair, labels=logits, **QUICK)
    retrieval = found.certificate.retrieval
    assert found.group in ("ridge", "ridge_similarity")
    assert_allclose(retrieval.recall_10.mean, 0.792, atol=0.015)
    assert retrieval.before < 0.03
    assert retrieval.rerank_depth < 100
    assert 0.55 < retrieval.full_old < retrieval.full.mean + 0.05 < 0.75
    probe = found.certificate.probe
    assert_allclose([probe.ideal, probe.after], [0.894, 0.86], atol=0.04)
    assert probe.before < 0
    assert found.status == "fails"


@pytest.mark.parametrize("group", ["ridge", "ridge_similarity"])
def test_more_molecules_never_hurt(group, model_pair):
    """300 dimensions: with 290 to 310 rows, a map through all rows finds less than half of the neighbours."""
    old, new = model_pair
    recalls = np.zeros((3, 5))
    for draw in range(3):
        order = np.random.default_rng(draw).permutation(len(old))
        for i, n in enumerate((200, 250, 290, 310, 600)):
            rows = order[200 : 200 + n]
            recalls[draw, i] = recall_of(fit_map(new[rows], old[rows], group), old, new, order[:200])
    assert (np.diff(recalls.mean(0)) > -0.005).all()
    assert recalls.min() > 0.65


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"group": "affine"},
            "group must be one of 'auto', 'identity', .*; got 'affine'",
        ),
        ({"normalize": "l2"}, "normalize must be one of None, 'cosine'; got 'l2'"),
        ({"require": 90}, "require must be a number above 0 and at most 1; got 90"),
        ({"require": float("nan")}, "require must be a number above 0 and at most 1"),
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"nulls": -1}, "nulls must be an integer of at least 0; got -1"),
        ({"bootstrap": -1}, "bootstrap must be an integer of at least 0; got -1"),
        ({"seed": -1}, "seed must be an integer from 0 to 4294967295; got -1"),
        ({"seed": 2**32}, r"seed must be an integer from 0 to 4294967295"),
        ({"labels": np.zeros(3)}, r"labels must have one label per row, shape \(20,\), but has shape \(3,\)"),
        ({"labels": "topic"}, "labels='topic' names a metadata column, but the runs have none"),
        ({"labels": np.zeros(20, int)}, "labels must have at least 2 classes; got 1"),
        ({"labels": np.arange(20) == 3}, "labels must have at least 2 classes outside every fold"),
        ({"labels": np.arange(20)}, "got 20 classes in 20 rows"),
        ({"labels": np.ones(20)}, "labels must vary in every column"),
        ({"labels": np.eye(20, 2) * [[0, 1]]}, "labels must vary in every column"),
        ({"labels": np.full((20, 2), np.nan)}, r"labels has NaN or infinite values \(row 0, 1, 2, 3, 4, ...\)"),
        ({"labels": np.array([["a", "b"]] * 20)}, "labels must be text, numbers or a matrix of numbers; got dtype"),
        ({"labels": np.arange(20).astype("M8[D]")}, "labels must be text, numbers or a matrix .*datetime64"),
        ({"starts": 4}, "starts can be used with unpaired only"),
        ({"index": np.zeros((5, 3))}, "index must hold old vectors, with 2 columns; got 3 columns"),
        ({"index": np.zeros((1, 2))}, "index must have at least 2 rows; got 1"),
        ({"index": np.full((5, 2), np.nan)}, r"index has NaN or infinite values \(row 0, 1, 2, 3, 4\)"),
        ({"queries": np.zeros((5, 2))}, r"queries must be a pair \(old, new\) of the same queries"),
        (
            {"queries": (np.zeros((5, 3)), np.zeros((5, 2)))},
            "queries of old must have 2 columns, as the documents; got 3",
        ),
        ({"queries": (np.zeros((5, 2)), np.zeros((4, 2)))}, "queries of old"),
        ({"qrels": {"query": ["a"], "doc": ["b"]}}, r"qrels needs ids of queries and documents"),
    ],
)
def test_wrong_options_are_named(change, message, rng):
    with pytest.raises(InputError, match=message):
        translate(*rng.normal(size=(2, 20, 2)), **change)


def test_rows_of_another_width_are_refused(rng):
    old, new = models(rng)
    with pytest.raises(InputError, match="x must have 6 columns, as the rows of the fit; got 5"):
        translate(old, new, **QUICK).translator(new[:, :5])
    with pytest.raises(InputError, match="all rows of old are equal"):
        translate(np.ones((20, 2)), rng.normal(size=(20, 2)))


@pytest.mark.parametrize("zero", ["old", "new"])
def test_rows_without_a_direction_are_refused_for_cosine_embeddings(zero, rng):
    given = dict(zip(("old", "new"), models(rng), strict=True))
    given[zero][3] = 0
    with pytest.raises(InputError, match=rf"{zero} has rows that are all zero and so have no direction \(row 3\)"):
        translate(**given, normalize="cosine", **QUICK)


@pytest.mark.parametrize("n", [5, 11, 30])
def test_few_rows_are_never_a_go(n, rng):
    """With 11 rows, the 10 nearest are all others: even unrelated vectors find them."""
    unrelated = translate(*rng.normal(size=(2, n, 3)), **QUICK)
    same = translate(*[rng.normal(size=(n, 3))] * 2, **QUICK)
    assert unrelated.status != "holds"
    assert (same.status, same.document().status_text) == ("unknown", "unsure")
    assert same.notes[0].endswith("which is too much for a go: pair more than 100 rows.")


def test_any_of_equally_near_vectors_is_as_good(rng):
    old = rng.integers(0, 2, size=(400, 8)).astype(float)  # vectors repeat, and many distances are equal
    retrieval = translate(old, old @ ortho_group.rvs(8, random_state=0), group="rigid", **QUICK).certificate.retrieval
    assert (retrieval.recall_1.mean, retrieval.recall_10.mean, retrieval.itself) == (1, 1, 1)


def test_retrieval_does_not_depend_on_where_the_origin_is(rng):
    old, new = models(rng)
    far = translate(old + 1e8, new, group="similarity", **QUICK).certificate.retrieval
    near = translate(old, new, group="similarity", **QUICK).certificate.retrieval
    assert_allclose(far.recall_10.mean, near.recall_10.mean, atol=0.01)


def test_drift_is_unknown_where_a_linear_map_fits_everything(rng):
    old = rng.normal(size=(60, 80))
    drift = translate(old, old**2, group="linear", **QUICK).certificate.drift
    assert np.isnan(drift.share)
    assert not drift.found


@pytest.mark.parametrize(
    "group", ["identity", "permutation", "rigid", "similarity", "ridge", "ridge_similarity", "linear"]
)
def test_the_error_is_that_of_the_vectors_delivered(group, rng):
    """Of a wider new model, what does not fit into the old dimensions is cut off and cannot be wrong."""
    old = rng.laplace(size=(300, 4))
    new = np.hstack([old, rng.laplace(size=(300, 2))]) @ ortho_group.rvs(6, random_state=0)
    found = translate(old, new, group=group, **QUICK)
    errors = np.linalg.norm(found.translator(new) - old, axis=1)
    assert_allclose(found.candidates[group].mean, errors.mean(), rtol=1e-9, atol=1e-12)


def test_a_map_to_fewer_dimensions_has_no_way_back(rng):
    old = rng.laplace(size=(300, 4))
    translator = translate(old, np.hstack([old, old[:, :2]]), group="rigid", **QUICK).translator
    with pytest.raises(
        NotInvertibleError, match="takes 6 dimensions to 4, so it has no inverse; fit the other direction"
    ):
        translator.inverse(old)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("normalize", [None, "cosine"])
def test_float32_vectors_of_any_size_are_translated(scale, normalize, rng):
    old, new = models(rng, noise=0)
    small = (scale * (new - 1)).astype(np.float32)
    carried = translate(old / scale, small, normalize=normalize, **QUICK).translator(small)
    expected = old / np.linalg.norm(old, axis=1)[:, None] if normalize else old / scale
    assert_allclose(carried, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_values_beyond_float16_are_refused(rng):
    old, new = models(rng)
    half = new.astype(np.float16)
    with pytest.raises(InputError, match="translated values are too large for float16; convert x to float32"):
        translate(1e6 * old, half, **QUICK).translator(half)


@pytest.mark.parametrize(
    "damage",
    [
        {"d_new": "abc"},
        {"d_new": 9},
        {"d_old": -2},
        {"d_old": None},
        {"d_old": True},
        {"normalize": "l2"},
        {"columns_new": ["a", "b"]},
        {"columns_old": [1, 2, 3]},
        {"columns_old": "abc"},
    ],
)
def test_a_damaged_translator_is_refused(damage, rng, tmp_path):
    about = {"normalize": None, "d_new": 3, "d_old": 3} | damage
    fit_map(*rng.normal(size=(2, 20, 3))).save(tmp_path / "up.safetensors", **about)
    with pytest.raises(InputError, match="up.safetensors does not hold a translator: it"):
        load_translator(tmp_path / "up.safetensors")


def test_few_clusters_are_said(rng):
    found = translate(*models(rng, n=600), cluster=np.arange(600) % 3, **QUICK)
    assert found.notes[0].startswith("There are only 3 clusters")
    assert not any(point.extrapolated for point in found.certificate.retrieval.sizes)
