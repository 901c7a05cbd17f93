import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ortho_group
from sklearn.neighbors import NearestNeighbors

from congruence.align import similarity as module
from congruence.align.similarity import neighbour_overlap, unbiased_cka
from congruence.arrays import Rows
from congruence.errors import InputError
from congruence.maps.sums import pair_sums, run_sums


def cka(x, y):
    everything = [np.arange(len(x))]
    return unbiased_cka(pair_sums(run_sums(Rows(x), everything), run_sums(Rows(y), everything)))


def hsic_by_kernels(k, l):
    """Song et al. 2012, eq. 5, from the n x n kernels."""
    n, one = len(k), np.ones(len(k))
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))
    middle = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
    return (np.trace(k @ l) + middle - 2 * one @ k @ l @ one / (n - 2)) / (n * (n - 3))


@given(st.integers(4, 30), st.integers(1, 6), st.integers(1, 6), st.integers(0, 100))
def test_cka_is_that_of_the_full_kernels(n, d_x, d_y, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d_x)), rng.normal(size=(n, d_y)) + 2
    k, l = x @ x.T, y @ y.T
    expected = hsic_by_kernels(k, l) / np.sqrt(hsic_by_kernels(k, k) * hsic_by_kernels(l, l))
    assert_allclose(cka(x, y), expected, rtol=1e-7, atol=1e-9)


def test_cka_of_unrelated_wide_runs_is_about_zero(rng):
    assert abs(cka(*rng.normal(size=(2, 300, 500)))) < 0.02


def test_cka_of_constant_or_tiny_data_is_undefined(rng):
    assert np.isnan(cka(rng.normal(size=(3, 2)), rng.normal(size=(3, 2))))
    assert np.isnan(cka(rng.normal(size=(10, 2)), np.ones((10, 2))))


def test_overlap_counts_shared_neighbours(rng):
    x, y = rng.normal(size=(100, 4)), rng.normal(size=(100, 3))
    sets = [NearestNeighbors(n_neighbors=6).fit(z).kneighbors(z, return_distance=False)[:, 1:] for z in (x, y)]
    expected = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(*sets, strict=True)])
    assert_allclose(neighbour_overlap(x, y, k=5), expected)


def test_overlap_ignores_similarities_and_is_one_for_itself(rng):
    x = rng.normal(size=(50, 4))
    assert neighbour_overlap(x, 3 * x @ ortho_group.rvs(4, random_state=0) - 1) == 1


def test_many_rows_are_sampled_by_seed(rng, monkeypatch):
    monkeypatch.setattr(module, "NEIGHBOUR_ROWS", 60)
    x, y = rng.normal(size=(2, 200, 3))
    assert neighbour_overlap(x, y, seed=1) == neighbour_overlap(x, y, seed=1)
    assert neighbour_overlap(x, x) == 1


def test_wrong_arguments_are_named(rng):
    x = rng.normal(size=(5, 2))
    with pytest.raises(InputError, match="x has 5 and y has 4"):
        neighbour_overlap(x, x[:4])
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        neighbour_overlap(x, x, k=0)
