import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.metrics import mutual_info_score

from congruence.errors import InputError
from congruence.metrics._estimators import standardise
from congruence.metrics._information import (
    _distance_in_plane,
    bin_columns,
    class_information,
    entropy,
    group_by_class,
    jitter,
    kraskov_information,
    number_values,
    ross_information,
)


def by_definition(column, classes, k):
    """Ross's estimate, step by step over all pairs of rows."""
    radius, neighbours, counts = {}, {}, {}
    for row, value in enumerate(column):
        own = np.flatnonzero(classes == classes[row])
        if len(own) > 1:
            neighbours[row] = min(k, len(own) - 1)
            counts[row] = len(own)
            radius[row] = np.nextafter(np.sort(np.abs(column[own] - value))[neighbours[row]], 0)
    rows = list(radius)
    within = [np.sum(np.abs(column[rows] - column[row]) <= radius[row]) for row in rows]
    means = [np.mean(digamma([*terms])) for terms in (neighbours.values(), counts.values(), within)]
    return max(0.0, digamma(len(rows)) + means[0] - means[1] - means[2])


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 60),
    classes=st.integers(1, 12),
    decimals=st.integers(0, 3),
    k=st.sampled_from([1, 3, 10]),
)
def test_the_fast_estimate_is_the_definition_with_ties_and_small_classes(seed, n, classes, decimals, k):
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(0, classes, n), return_inverse=True)[1]
    column = jitter(np.round(rng.normal(size=n) + 0.3 * labels, decimals), np.random.RandomState(seed))
    if len(np.unique(labels)) == n:
        assert math.isnan(ross_information(column, group_by_class(labels, k), k))
    else:
        expected = by_definition(column, labels, k)
        assert_allclose(ross_information(column, group_by_class(labels, k), k), expected, atol=1e-12)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), k=st.sampled_from([1, 3]))
def test_exact_ties_count_as_in_the_definition(seed, n, k):
    rng = np.random.default_rng(seed)
    labels, column = np.arange(n) % 2, rng.integers(0, 4, n).astype(float)
    if n > 2:
        expected = by_definition(column, labels, k)
        assert_allclose(ross_information(column, group_by_class(labels, k), k), expected, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("k", "classes"), [(3, 2), (3, 40), (10, 5), (10, 17)])
def test_numbers_with_classes_equal_scikit_learn(ties, k, classes, rng):
    labels = rng.integers(0, classes, 1500)
    column = rng.normal(size=1500) * 3 + 0.2 * labels + 10
    column = np.round(column, 1) if ties else column
    expected = mutual_info_classif(column[:, None], labels, n_neighbors=k, random_state=5)[0]
    noisy = jitter(column, np.random.RandomState(5))
    assert_allclose(ross_information(noisy, group_by_class(labels, k), k), expected, atol=1e-12)


def test_rows_of_classes_of_one_are_dropped(rng):
    column, labels = rng.normal(size=300), rng.integers(0, 3, 300)
    lonely = np.concatenate([labels, [3, 4]])
    longer = np.concatenate([column, [0.1, 0.2]])
    expected = ross_information(column, group_by_class(labels, 3), 3)
    assert ross_information(longer, group_by_class(lonely, 3), 3) == expected


@pytest.mark.parametrize("k", [3, 10])
def test_numbers_with_numbers_equal_scikit_learn(k, rng):
    x = np.round(rng.normal(size=800), 2)
    y = x + rng.normal(size=800)
    random = np.random.RandomState(1)
    ours = kraskov_information(jitter(x, random), jitter(y, random), k)
    assert_allclose(ours, mutual_info_regression(x[:, None], y, n_neighbors=k, random_state=1)[0], atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("shape", ["square", "normal", "heavy", "thin", "few values", "constant"])
def test_neighbours_in_strips_are_those_of_a_tree(shape, k, rng):
    from scipy.spatial import cKDTree

    for n in (11, 12, 30, 100, 700, 3000):
        x, y = {
            "square": lambda n: rng.uniform(size=(2, n)),
            "normal": lambda n: rng.normal(size=(2, n)),
            "heavy": lambda n: np.exp(2 * rng.normal(size=(2, n))),
            "thin": lambda n: np.cumsum(rng.normal(size=(2, n)) * [[1], [1e-3]], axis=0),
            "few values": lambda n: rng.integers(0, 4, (2, n)).astype(float),
            "constant": lambda n: np.vstack([np.ones(n), rng.normal(size=n)]),
        }[shape](n)
        x, y = np.sort(x), y[np.argsort(x)]
        both = np.column_stack([x, y])
        expected = cKDTree(both).query(both, [k + 1], p=np.inf)[0][:, 0]
        assert_array_equal(_distance_in_plane(x, y, k), expected)


def test_two_gaussians_share_what_theory_says(rng):
    x = rng.normal(size=4000)
    y = 0.8 * x + 0.6 * rng.normal(size=4000)
    assert kraskov_information(x, y, 3) == pytest.approx(-0.5 * math.log(1 - 0.64), abs=0.05)
    assert kraskov_information(x, rng.normal(size=4000), 3) < 0.05


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n):
    column = np.arange(n, dtype=float)
    assert math.isnan(kraskov_information(column, column, 3)) == (n == 1)
    assert math.isnan(ross_information(column, group_by_class(np.zeros(n, int), 3), 3)) == (n == 1)


def test_scaling_leaves_constants_alone_even_where_rounding_makes_them_vary():
    constant = np.full(1000, 0.1)
    assert_allclose(jitter(constant, np.random.RandomState(0)), constant, atol=1e-8)
    assert_array_equal(standardise(np.column_stack([constant, constant * 3e9])), 0)
    wide = standardise(np.column_stack([constant, np.arange(1000.0) + 1e6]))
    assert_allclose(wide.std(0), [0, 1], atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_information_of_classes_equals_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    codes = number_values(rng.integers(0, 5, (50, 3)) ** 2)
    factors = number_values(np.column_stack([codes[:, 0] // 2, rng.integers(0, 3, 50)]))
    expected = [[mutual_info_score(code, factor) for code in codes.T] for factor in factors.T]
    assert_allclose(class_information(codes, factors), expected, atol=1e-12)
    assert_allclose(np.diag(class_information(codes, codes)), entropy(codes), atol=1e-12)


def test_entropy_of_even_classes_is_the_logarithm_of_their_number():
    assert_allclose(entropy(np.column_stack([np.arange(12) % 4, np.zeros(12, int)])), [math.log(4), 0], atol=1e-15)


def test_bins_hold_their_left_edge_and_the_last_one_both():
    column = np.array([0, 0.99, 1, 4.99, 5, 9, 10])[:, None]
    assert_array_equal(bin_columns(column, 10)[:, 0], [0, 0, 1, 2, 3, 4, 4])  # empty bins have no number
    assert_array_equal(bin_columns(np.full((4, 1), 7e30), 10), 0)
    assert_array_equal(bin_columns(np.array([[1e16], [1e16 + 2], [1e16]]), 10), [[0], [1], [0]])  # no room


@pytest.mark.parametrize("bins", [0, "many", 2.5])
def test_bins_that_are_none(bins):
    with pytest.raises(InputError, match=f"bins must be an integer of at least 1 or one of auto.* got '?{bins}"):
        bin_columns(np.zeros((3, 1)), bins)
