import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.align._compare import compare
from congruence.align.similarities import MEASURES, correlations, distances
from congruence.errors import InputError

QUICK = {"groups": ["rigid"], "nulls": 0, "bootstrap": 0}


@pytest.fixture
def runs(rng):
    x = rng.laplace(size=(80, 4))
    return {name: x[:, :d] + 0.2 * rng.normal(size=(80, d)) for name, d in (("a", 4), ("b", 3), ("c", 4))}


def test_every_pair_has_the_measures_asked_for_and_they_are_those_of_the_functions(runs):
    result = compare(runs, similarities="all", directions="both", **QUICK)
    for pair in result.pairs:
        assert list(pair.similarities) == list(MEASURES)
        for name, value in pair.similarities.items():
            assert_allclose(value, MEASURES[name].function(runs[pair.source], runs[pair.target]), atol=1e-10)
        assert pair.similarities["cka"] == pair.cka
        assert pair.similarities["neighbour_overlap"] == pair.neighbour_overlap
        assert pair.similarities["strong_mcc"] == pair.mcc.strong
    assert result["a", "b"].similarities["pwcca"] != result["b", "a"].similarities["pwcca"]
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
        assert_allclose(list(written.values()), list(pair.similarities.values()))
    assert before == after


def test_rows_on_the_unit_sphere_are_compared_as_such(runs):
    pair = compare(runs, similarities=["size_and_shape"], normalize="cosine", **QUICK)["a", "c"]
    x, y = (runs[name] / np.linalg.norm(runs[name], axis=1, keepdims=True) for name in "ac")
    assert_allclose(pair.similarities["size_and_shape"], MEASURES["size_and_shape"].function(x, y))


def test_statistics_of_one_run_are_computed_once(runs, monkeypatch):
    calls = []
    names = {"_centred_ranks": distances, "_find_neighbours": distances, "squared_norms": correlations}
    for name, module in names.items():
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, _work=work, _name=name, **k: calls.append(_name) or _work(*a, **k))
    compare(runs, similarities=["rsa", "cka", "neighbour_overlap"], directions="both", **QUICK)
    assert sorted(calls) == sorted(3 * list(names))


def test_unknown_measures_are_refused_before_anything_is_read():
    with pytest.raises(InputError, match=r"similarities must be 'all' or a list of names from cka, .*; got 'ckaa'"):
        compare(["missing.npy", "missing too.npy"], similarities=["ckaa"])
