import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist

from congruence.maps import diameter as module
from congruence.maps.diameter import diameter

CLOUDS = {
    "gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
    "heavy tails": lambda rng, n, d: rng.standard_t(1.5, size=(n, d)),
    "shell": lambda rng, n, d: (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(rng.normal(size=(n, d))),
    "far away": lambda rng, n, d: rng.normal(size=(n, d)) + 1e4,
    "two clumps": lambda rng, n, d: rng.normal(size=(n, d)) + 20 * rng.integers(2, size=(n, 1)),
    "grid": lambda rng, n, d: rng.integers(3, size=(n, d)).astype(float),
}


@pytest.mark.parametrize("cloud", CLOUDS)
@given(n=st.integers(2, 300), d=st.integers(1, 20), seed=st.integers(0, 1000))
def test_the_diameter_is_the_largest_of_all_distances(cloud, n, d, seed):
    x = CLOUDS[cloud](np.random.default_rng(seed), n, d)
    found = diameter(x)
    assert_allclose(found.value, pdist(x).max(), rtol=1e-12)
    assert_allclose(np.linalg.norm(x[found.pair[0]] - x[found.pair[1]]), found.value, rtol=1e-12)
    assert found.exact


def test_blocks_are_searched_whatever_their_size(rng, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    x = CLOUDS["shell"](rng, 100, 3)
    assert_allclose(diameter(x).value, pdist(x).max(), rtol=1e-12)


def test_one_row_and_equal_rows_have_diameter_zero():
    assert diameter(np.ones((1, 3))).value == 0
    assert diameter(np.ones((4, 3))).value == 0


def test_float32_rows_are_measured_in_float64(rng):
    x = rng.normal(size=(200, 8)).astype(np.float32)
    assert_allclose(diameter(x).value, pdist(x.astype(np.float64)).max(), rtol=1e-14)
