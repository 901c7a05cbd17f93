"""Copies, time series and clusters of rows: what `evaluate` says if it is not told of them."""

import numpy as np
import pytest
from scipy.signal import lfilter

from congruence import evaluate
from congruence.errors import InputError

QUICK = {"metrics": ["infomec"], "resamples": 0, "nulls": 5, "structural": False}


def series(rng, n, d, r=0.98):
    return lfilter([1.0], [1.0, -r], rng.normal(size=(n + 200, d)), axis=0)[200:]


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_time_series_are_unknown_unless_blocks_are_given(seed):
    rng = np.random.default_rng(seed)
    z, s = series(rng, 1000, 4), series(rng, 1000, 3)
    alone = evaluate(z, s, **QUICK)
    assert alone.status == "unknown"
    assert alone.verdict.startswith("Rows depend on each other")
    assert "--order-blocks" in alone.verdict
    told = evaluate(z, s, order_blocks=200, **QUICK)
    assert told.status == "fails"
    assert told.own_codes == {}
    assert told.settings["order_blocks"] == 200


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_clusters_are_unknown_unless_they_are_given(seed):
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.repeat(np.arange(20), 50))
    z, s = (rng.normal(size=(20, d))[cluster] + 0.3 * rng.normal(size=(1000, d)) for d in (4, 3))
    alone = evaluate(z, s, **QUICK)
    assert alone.status == "unknown"
    assert "--cluster" in alone.verdict
    assert evaluate(z, s, cluster=cluster, **QUICK).own_codes == {}


def test_copies_of_rows_are_said(rng):
    z, s = (np.repeat(rng.normal(size=(200, d)), 5, axis=0) for d in (3, 2))
    place = rng.permutation(1000)
    result = evaluate(z[place], s[place], **QUICK)
    assert result.status == "unknown"
    assert "800 of 1000 rows are copies of others" in result.verdict
    assert result.to_dict()["numbers"]["dependence"]["copies"] == 800


@pytest.mark.parametrize(("noise", "copies"), [(0.0, 300), (0.3, 6)])
def test_copies_that_leave_the_verdict_as_it_is_are_noted(noise, copies, rng):
    """Codes that predict the factors exactly, or few copies."""
    row = np.append(np.arange(600 - copies), np.arange(copies))
    s = rng.normal(size=(600, 2))
    z = s @ [[1.0, 0.1], [0.0, 1.0]] + noise * rng.normal(size=(600, 2))
    result = evaluate(z[row], s[row], **QUICK)
    assert result.status == "holds"
    assert f"{copies} of 600 rows are copies of others" in " ".join(map(str, result.notes))
    assert "copies" not in " ".join(map(str, evaluate(z, s, **QUICK).notes))


@pytest.mark.parametrize("kind", ["numbers", "classes", "sorted classes", "sorted grid"])
def test_independent_rows_are_not_suspected(kind, rng):
    s = rng.normal(size=(600, 3)) if kind == "numbers" else rng.integers(0, 4, size=(600, 3)).astype(float)
    if kind == "sorted grid":
        s = np.stack(np.meshgrid(np.arange(5), np.arange(10), np.arange(12), indexing="ij"), -1).reshape(-1, 3) * 1.0
    if kind == "sorted classes":
        s = s[np.lexsort(s.T[::-1])]
    z = np.tanh(s - s.mean(0)) + 0.3 * rng.normal(size=s.shape)
    kinds = "categorical" if kind == "sorted classes" else "auto"
    result = evaluate(z, s, kinds=kinds, **QUICK)
    assert not result.depends
    assert result.status == "holds"
    assert not evaluate(rng.normal(size=s.shape), s, kinds=kinds, **QUICK).depends


def test_labels_that_were_taken_as_numbers_are_named(rng):
    """Where codes form a cluster for each class, leaving similar codes out leaves classes out."""
    label = rng.integers(0, 10, 800)
    z = 4 * rng.normal(size=(10, 6))[label] + rng.normal(size=(800, 6))
    guessed, said = (evaluate(z, {"digit": label}, kinds=kind, **QUICK) for kind in ("auto", "categorical"))
    notes = [" ".join(map(str, result.notes)) for result in (guessed, said)]
    assert (guessed.depends, said.depends) == (True, False)
    assert ["(--kinds digit=categorical)" in one for one in notes] == [True, False]


def test_a_factor_that_is_the_cluster_is_refused(rng):
    z, plate = rng.normal(size=(100, 3)), np.repeat(np.arange(10), 10)
    words = np.array([f"plate {one}" for one in plate])
    with pytest.raises(InputError, match="factor plate is also the cluster"):
        evaluate(z, {"plate": plate, "dose": rng.normal(size=100)}, cluster=plate, **QUICK)
    with pytest.raises(InputError, match="factor plate is also the cluster"):
        evaluate(z, {"plate": words, "dose": rng.normal(size=100)}, cluster=plate, **QUICK)
    evaluate(z, {"age": rng.normal(size=10)[plate], "dose": rng.normal(size=100)}, cluster=plate, **QUICK)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order_blocks": 30}, "at most a quarter of the 100 rows"),
        ({"order_blocks": 0}, "order_blocks must be an integer of at least 1; got 0"),
        ({"order_blocks": 5, "cluster": np.arange(100) // 2}, "exclude each other"),
    ],
)
def test_wrong_blocks_are_refused(options, words, rng):
    with pytest.raises(InputError, match=words):
        evaluate(rng.normal(size=(100, 2)), rng.normal(size=(100, 2)), **QUICK, **options)
