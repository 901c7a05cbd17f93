import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from congruence.align._compare import compare
from congruence.align._run_statistics import sample_rows
from congruence.align.similarities import MEASURES, correlations, distances, neighbours
from congruence.errors import FewRowsWarning, InputError
from congruence.maps.nearness import protocol
from congruence.stats.nulls import restrict

QUICK = {"groups": ["rigid"], "nulls": 0, "bootstrap": 0}


@pytest.fixture
def runs(rng):
    x = rng.laplace(size=(80, 4))
    return {name: x[:, :d] + 0.2 * rng.normal(size=(80, d)) for name, d in (("a", 4), ("b", 3), ("c", 4))}


def test_every_pair_has_the_measures_asked_for_and_they_are_those_of_the_functions(runs):
    result = compare(runs, similarities="all", directions="both", **QUICK)
    for pair in result.pairs:
        assert list(pair.similarities) == list(MEASURES)
        for name, score in pair.similarities.items():
            assert_allclose(score.value, MEASURES[name].function(runs[pair.source], runs[pair.target]), atol=1e-10)
        assert pair.similarities["cka"].value == pair.cka.value
        assert pair.similarities["neighbour_overlap"].value == pair.neighbour_overlap.value
        assert pair.similarities["strong_mcc"].value == pair.mcc.strong
    assert result["a", "b"].similarities["pwcca"].value != result["b", "a"].similarities["pwcca"].value
    assert result.settings["similarities"] == list(MEASURES)


def test_measures_are_in_the_json_only_if_asked_for(runs):
    plain = compare(runs, **QUICK)
    asked = compare(runs, similarities=["svcca", "procrustes"], **QUICK)
    assert "similarities" not in plain.settings
    before, after = (json.loads(found.to_json())["numbers"] for found in (plain, asked))
    assert all(pair.pop("similarities") == {} for pair in before["pairs"])
    for pair, read in zip(asked.pairs, after["pairs"], strict=True):
        written = read.pop("similarities")
        assert list(written) == ["svcca", "procrustes"]
        for name, score in pair.similarities.items():
            assert written[name] == {"value": pytest.approx(score.value), "null": None, "calibrated": None, "p": None}
    assert before == after


def test_rows_on_the_unit_sphere_are_compared_as_such(runs):
    pair = compare(runs, similarities=["size_and_shape"], normalize="cosine", **QUICK)["a", "c"]
    x, y = (runs[name] / np.linalg.norm(runs[name], axis=1, keepdims=True) for name in "ac")
    assert_allclose(pair.similarities["size_and_shape"].value, MEASURES["size_and_shape"].function(x, y))


def test_statistics_of_one_run_are_computed_once(runs, monkeypatch):
    calls = []
    names = {"_centred_ranks": distances, "_find_neighbours": neighbours, "squared_norms": correlations}
    for name, module in names.items():
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, _work=work, _name=name, **k: calls.append(_name) or _work(*a, **k))
    compare(runs, similarities=["rsa", "cka", "neighbour_overlap"], directions="both", **QUICK)
    assert sorted(calls) == sorted(3 * list(names))


@pytest.mark.parametrize("clusters", ["none", "equal", "unequal"])
@pytest.mark.parametrize("rows", [80, 30])
def test_the_null_is_the_measure_of_re_paired_rows(runs, clusters, rows, monkeypatch):
    """Statistics that were only re-ordered give what the function gives for the rows in the new order."""
    monkeypatch.setattr(correlations, "KERNEL_COST", 0.1)  # so that kernels are used
    unit = {"none": None, "equal": np.arange(80) // 4, "unequal": np.arange(80) ** 2 // 400}[clusters]
    options = {"groups": ["rigid"], "nulls": 3, "bootstrap": 0, "cluster": None if unit is None else unit[:rows]}
    plan = protocol(rows, nulls=3, cluster=options["cluster"])
    x, y = runs["a"][:rows], runs["b"][:rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        pair = compare(x, y, similarities="all", **options).pairs[0]
    for name, score in pair.similarities.items():
        measure = MEASURES[name]
        null = np.mean([measure.function(x, y[order]) for order in plan.shuffles()])
        assert_allclose(score.null, null, atol=1e-9, err_msg=name)
        assert_allclose(score.calibrated, (null - score.value) / (null - measure.itself), atol=1e-8, err_msg=name)
        assert np.isnan(score.p)


def test_p_values_come_from_199_re_pairings_on_and_lie_low_for_related_runs(runs, rng):
    options = {"groups": ["rigid"], "bootstrap": 0, "similarities": ["cka", "procrustes"], "nulls": 199}
    related = compare(runs["a"], runs["c"], **options).pairs[0].similarities
    assert [score.p for score in related.values()] == [1 / 200] * 2
    unrelated = compare(runs["a"], rng.normal(size=(80, 3)), **options).pairs[0].similarities
    assert all(score.p > 0.01 and abs(score.calibrated) < 0.1 for score in unrelated.values())


def test_measures_of_a_sample_have_their_null_on_the_sample(rng, monkeypatch):
    monkeypatch.setattr(distances, "RSA_ROWS", 50)
    monkeypatch.setattr(neighbours, "NEIGHBOUR_ROWS", 60)
    monkeypatch.setattr(neighbours, "ASKED_ROWS", 40)
    x, y = rng.normal(size=(2, 90, 3))
    some, points = sample_rows(90, 50, 0), np.sort(neighbours._sample_points(90, 0))
    asked = np.searchsorted(points, neighbours._sample_points(90, 0))[:40]
    for cluster in (None, np.arange(90) // 5):
        asked_for = {"similarities": ["rsa", "neighbour_overlap"], "nulls": 3, "cluster": cluster}
        found = compare(x, y, groups=["rigid"], bootstrap=0, **asked_for).pairs[0]
        rsa_null, overlap_null = [], []
        for order in protocol(90, nulls=3, cluster=cluster).shuffles():
            shuffled = [
                y[rows][restrict(order, rows)] if cluster is None else y[order][rows] for rows in (some, points)
            ]
            rsa_null.append(distances.rsa(x[some], shuffled[0]))
            near = [np.argsort(cdist(one, one)[asked], axis=1)[:, 1:11] for one in (x[points], shuffled[1])]
            overlap_null.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*near, strict=True)]))
        assert_allclose(found.similarities["rsa"].null, np.mean(rsa_null))
        assert_allclose(found.neighbour_overlap.null, np.mean(overlap_null))


def test_other_names_of_a_measure_are_understood(runs):
    found = compare(runs["a"], runs["c"], similarities=["bures"], **QUICK).pairs[0]
    assert list(found.similarities) == ["angular_procrustes"]


def test_unknown_measures_are_refused_before_anything_is_read():
    with pytest.raises(InputError, match=r"similarities must be 'all' or a list of names from cka, .*; got 'ckaa'"):
        compare(["missing.npy", "missing too.npy"], similarities=["ckaa"])
