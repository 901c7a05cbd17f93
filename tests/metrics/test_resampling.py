import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import train_test_split

from congruence.metrics._dci import dci
from congruence.metrics._estimators import standardise
from congruence.metrics._explicitness import explicitness
from congruence.metrics._regression import regression
from congruence.metrics._resampling import hold_out_clusters, split_rows
from congruence.metrics._sap import sap
from congruence.metrics.factors import read_usable


def test_constant_factors_and_names_of_rows_are_left_out():
    names = np.array([f"row{i}" for i in range(20)])
    _, kept, notes = read_usable(np.eye(20), {"a": np.arange(20.0), "b": np.ones(20), "id": names}, "auto")
    assert kept.names == ("a",)
    left_out = ("b: left out, because it is constant.", "id: left out, because every row is a class of its own.")
    assert notes[-2:] == left_out


@pytest.mark.parametrize("metric", [dci, explicitness, regression, sap])
def test_almost_as_many_classes_as_rows_give_a_number(metric, rng):
    names = np.array([f"row{i}" for i in range(16)] + ["row0"] * 4)
    options = {"model": "forest"} if metric is dci else {}
    got = metric(rng.normal(size=(20, 2)), {"a": names, "b": rng.normal(size=20)}, **options)
    assert all(np.isfinite(value) for value in got.scores.values())


def test_standardised_columns_and_constant_ones(rng):
    z = np.column_stack([rng.normal(size=50) * 1e6 + 1e9, np.full(50, 0.1), rng.normal(size=50) * 1e-9])
    x = standardise(z)
    assert_allclose(x.mean(0), 0, atol=1e-12)
    assert_allclose(x.std(0), [1, 0, 1], atol=1e-12)
    some = standardise(z, np.arange(10))
    assert_allclose(some[:10, 0].std(), 1)


def test_a_share_is_drawn_as_scikit_learn_draws_it():
    ours, theirs = split_rows(101, test=0.1, seed=42), train_test_split(np.arange(101), test_size=0.1, random_state=42)
    for mine, other in zip(ours, theirs, strict=True):
        assert_array_equal(mine, other)


def test_test_rows_alone_leave_the_rest_to_learn_from():
    train, test = split_rows(6, test=np.array([False, True, False, False, True, False]))
    assert_array_equal(train, [0, 2, 3, 5])
    assert_array_equal(test, [1, 4])


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
def test_clusters_are_held_out_whole_and_never_all(share):
    unit = np.repeat([0, 1, 2], [5, 15, 20])
    for seed in range(5):
        held = hold_out_clusters(unit, share, seed)
        clusters = np.unique(unit[held])
        assert 1 <= len(clusters) < 3
        assert_array_equal(held, np.flatnonzero(np.isin(unit, clusters)))
