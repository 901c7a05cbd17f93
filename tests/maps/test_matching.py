import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.maps.matching import strong_mcc, weak_mcc
from congruence.stats.matching import signed_permutation

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["mcc"]
X = np.array(ORACLE["X"])


def test_strong_mcc_agrees_with_the_oracle():
    assert_allclose(strong_mcc(X, np.array(ORACLE["Y_signed_perm"])), ORACLE["strong_XY"], atol=1e-12)
    assert_allclose(strong_mcc(X, np.array(ORACLE["Z_rotated"])), ORACLE["strong_XZ"], atol=1e-12)
    assert_allclose(strong_mcc(X, np.array(ORACLE["Zn"])), ORACLE["strong_XZn"], atol=1e-12)


def test_weak_mcc_agrees_with_the_oracle():
    assert_allclose(weak_mcc(X, np.array(ORACLE["Z_rotated"])), ORACLE["weak_XZ"], atol=1e-9)
    assert_allclose(weak_mcc(X, np.array(ORACLE["Zn"])), ORACLE["weak_XZn"], atol=1e-9)


def test_strong_mcc_may_exceed_weak_mcc(rng):
    """Nearly collinear dimensions: each correlates with every other, but there is one direction in all of them."""
    shared = rng.normal(size=(20_000, 1))
    x, y = shared + 0.05 * rng.normal(size=(2, 20_000, 2))
    assert_allclose(strong_mcc(x, y), 0.9975, atol=1e-3)
    assert_allclose(weak_mcc(x, y), 0.5, atol=0.02)


@given(st.integers(1, 6), st.integers(0, 100))
def test_strong_mcc_ignores_order_sign_scale_and_shift(d, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, d)), rng.normal(size=(30, d))
    moved = 5 + (y * rng.choice([-3, 0.1, 2], d))[:, rng.permutation(d)]
    assert_allclose(strong_mcc(x, moved), strong_mcc(x, y), atol=1e-12)
    assert_allclose(strong_mcc(y, x), strong_mcc(x, y), atol=1e-12)
    assert_allclose(strong_mcc(x, x), 1)
    assert 0 <= strong_mcc(x, y) <= 1


@given(st.integers(0, 100))
def test_weak_mcc_ignores_invertible_linear_maps(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    linear = ortho_group.rvs(4, random_state=seed) * rng.uniform(0.5, 2, 4)
    assert_allclose(weak_mcc(x, y @ linear + 3), weak_mcc(x, y), atol=1e-8)
    assert_allclose(weak_mcc(x, x @ linear), 1)


def test_dead_dimensions_are_left_out_of_the_mean(rng):
    x = rng.normal(size=(50, 4)).astype(np.float32)
    x[:, 2] = 0.1
    assert_allclose(strong_mcc(x, x), 1, atol=1e-6)
    assert_allclose(weak_mcc(x, x), 1, atol=1e-6)


def test_constant_data_have_no_correlation(rng):
    x = rng.normal(size=(10, 2))
    assert np.isnan(strong_mcc(x, np.ones((10, 2))))
    assert np.isnan(weak_mcc(x, np.ones((10, 2))))


@given(st.integers(1, 4), st.integers(0, 100))
def test_the_signed_permutation_is_the_best_of_all(d, seed):
    cross = np.random.default_rng(seed).normal(size=(d, d))
    found = signed_permutation(cross)
    best = max(sum(abs(cross[i, p[i]]) for i in range(d)) for p in itertools.permutations(range(d)))
    assert_allclose((cross * found).sum(), best)
    assert_array_equal(np.abs(found).sum(0), 1)


def test_dimensions_that_match_nothing_keep_their_order():
    cross = np.zeros((5, 5))
    cross[3, 1] = -2
    found = signed_permutation(cross)
    assert found[3, 1] == -1
    assert_array_equal(found.argmax(1)[[0, 1, 2, 4]], [0, 2, 3, 4])


def test_unpaired_rows_are_refused(rng):
    with pytest.raises(InputError, match="x has 5 and y has 6"):
        strong_mcc(rng.normal(size=(5, 2)), rng.normal(size=(6, 2)))
