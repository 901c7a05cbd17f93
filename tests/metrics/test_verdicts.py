"""What `evaluate` says at its default settings, where the truth is known."""

import json
import math

import numpy as np
import pytest
from scipy.signal import lfilter

from congruence import evaluate
from congruence.errors import InputError

QUICK = {"metrics": ["infomec"], "resamples": 0, "structural": False}


def correlated(rng, n, count, r):
    s = math.sqrt(r) * rng.normal(size=(n, 1)) + math.sqrt(1 - r) * rng.normal(size=(n, count))
    return (s - s.mean(0)) / s.std(0)


@pytest.mark.parametrize("r", [0.7, 0.9])
def test_codes_equal_to_correlated_factors_are_their_own(r, rng):
    s = correlated(rng, 500, 3, r)
    assert len(evaluate(s, s, **QUICK).own_codes) == 3


@pytest.mark.parametrize("seed", range(3))
def test_codes_rotated_by_20_degrees_are_nobodys_own(seed):
    s = correlated(np.random.default_rng(seed), 500, 2, 0.0)
    a = math.radians(20)
    assert not evaluate(s @ [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], s, **QUICK).own_codes


def mixed(rng, n):
    """Codes that mix neighbouring factors, and one of noise."""
    s = rng.integers(0, 4, size=(n, 3)).astype(float)
    z = s + 0.3 * np.roll(s, -1, axis=1) + 0.3 * rng.normal(size=s.shape)
    return np.column_stack([z, rng.normal(size=n)]), s


@pytest.mark.parametrize("score", ["mig", "infom"])
def test_intervals_contain_the_score_of_many_rows_where_there_are_any(score):
    options = {"metrics": ["infomec", "mig", "modularity"], "structural": False, "nulls": 0}
    many = evaluate(*mixed(np.random.default_rng(99), 20_000), **options | {"resamples": 0})[score].value
    missed = 0
    for seed in range(6):
        found = evaluate(*mixed(np.random.default_rng(seed), 200), **options)[score]
        missed += math.isfinite(found.low) and not found.low <= many <= found.high
    assert missed <= 1


def test_infom_without_the_information_of_unrelated_codes_hardly_depends_on_the_rows():
    few, many = (
        np.mean([infom(evaluate(*mixed(np.random.default_rng(seed), n), **QUICK)) for seed in range(2)])
        for n in (200, 20_000)
    )
    assert abs(few - many) < 0.06


def infom(result):
    """InfoM without its bias; 0.1.0 had no such number and showed the biased one."""
    return getattr(result["infom"], "corrected", result["infom"].value)


def series(rng, d):
    return lfilter([1.0], [1.0, -0.98], rng.normal(size=(1200, d)), axis=0)[200:]


def clusters(rng, d):
    return rng.normal(size=(20, d))[np.arange(1000) % 20] + 0.3 * rng.normal(size=(1000, d))


def copies(rng, d):
    return rng.normal(size=(200, d))[np.arange(1000) % 200]


@pytest.mark.parametrize("draw", [series, clusters, copies])
def test_unrelated_rows_that_depend_on_each_other_are_unknown(draw, rng):
    assert evaluate(draw(rng, 4), draw(rng, 3), **QUICK).status == "unknown"


def test_a_factor_that_is_the_cluster_is_refused(rng):
    plate = np.repeat(np.arange(10), 10)
    with pytest.raises(InputError, match="plate is also the cluster"):
        evaluate(rng.normal(size=(100, 3)), {"plate": plate, "dose": rng.normal(size=100)}, cluster=plate, **QUICK)


def test_scores_name_the_properties_of_the_data_that_mislead_them(rng):
    s = correlated(rng, 500, 3, 0.9)
    result = evaluate(s, s, metrics=["infomec", "mcc"], resamples=0, structural=False)
    scores = {one["score"]: one for one in json.loads(result.to_json())["numbers"]["scores"]}
    assert "correlated factors" in scores["infom"].get("conditions", ())
