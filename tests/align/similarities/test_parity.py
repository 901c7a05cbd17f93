"""Agreement with published implementations, and with the papers' formulas on full n x n matrices."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import orthogonal_procrustes
from scipy.spatial import procrustes as scipy_procrustes
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, spearmanr
from sklearn.cross_decomposition import CCA
from sklearn.neighbors import NearestNeighbors

from congruence.align.similarities import (
    MEASURES,
    angular_procrustes,
    cka,
    neighbour_overlap,
    plain_cka,
    procrustes,
    pwcca,
    rsa,
    rsa_pearson,
    size_and_shape,
    svcca,
    weak_mcc,
)

ORACLE = json.loads((Path(__file__).parents[2] / "oracles" / "similarities.json").read_text())
SIZES = st.tuples(st.integers(5, 25), st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
FEW = settings(max_examples=15, deadline=None)


def inputs(seed, n, d_x, d_y, **_):
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=(n, d_x)) * np.arange(1, d_x + 1) + 3
    return x, x @ rng.normal(size=(d_x, d_y)) + rng.normal(size=(n, d_y)) - 2


def unrelated(n, d_x, d_y, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d_x)), rng.normal(size=(n, d_y)) + 2


OURS = {
    **{name: measure.function for name, measure in MEASURES.items()},
    "pwcca, mean of both ways": lambda x, y: (pwcca(x, y) + pwcca(y, x)) / 2,
    "cosine of angular_procrustes": lambda x, y: np.cos(angular_procrustes(x, y)),
}
LOOSE = {"cosine of angular_procrustes": 1e-6}  # theirs takes roots of eigenvalues that should be 0


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda case: f"seed {case['seed']}")
@pytest.mark.parametrize("name", ORACLE["sources"])
def test_published_implementations_agree(name, case):
    assert_allclose(OURS[name](*inputs(**case)), case["values"][name], atol=LOOSE.get(name, 1e-12))


def hsic_by_kernels(k, l):
    """Song et al. 2012, eq. 5, from the n x n kernels."""
    n, one = len(k), np.ones(len(k))
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))
    middle = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
    return (np.trace(k @ l) + middle - 2 * one @ k @ l @ one / (n - 2)) / (n * (n - 3))


@FEW
@given(SIZES)
def test_cka_is_that_of_the_full_kernels(sizes):
    x, y = unrelated(*sizes)
    k, l = x @ x.T, y @ y.T
    expected = hsic_by_kernels(k, l) / np.sqrt(hsic_by_kernels(k, k) * hsic_by_kernels(l, l))
    assert_allclose(cka(x, y), expected, rtol=1e-7, atol=1e-9)
    centre = np.eye(len(x)) - 1 / len(x)
    k, l = centre @ k @ centre, centre @ l @ centre
    assert_allclose(plain_cka(x, y), (k * l).sum() / np.linalg.norm(k) / np.linalg.norm(l), rtol=1e-9)


@FEW
@given(SIZES)
def test_rsa_is_the_correlation_of_all_distances(sizes):
    x, y = unrelated(*sizes)
    distances = pdist(x), pdist(y)
    assert_allclose(rsa(x, y), spearmanr(*distances).statistic, atol=1e-12)
    assert_allclose(rsa_pearson(x, y), pearsonr(*(d**2 for d in distances)).statistic, atol=1e-10)


def test_rsa_gives_equal_distances_the_same_rank(rng):
    x, y = rng.integers(0, 3, size=(2, 40, 3))
    assert_allclose(rsa(x, y), spearmanr(pdist(x), pdist(y)).statistic, atol=1e-12)


@FEW
@given(SIZES)
def test_procrustes_distances_are_what_the_best_rotation_leaves(sizes):
    x, y = unrelated(*sizes)
    width = max(x.shape[1], y.shape[1])
    x, y = (np.pad(z - z.mean(0), ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    assert_allclose(size_and_shape(x, y), np.linalg.norm(x @ orthogonal_procrustes(x, y)[0] - y), rtol=1e-9)
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    assert_allclose(procrustes(x, y), np.linalg.norm(x @ orthogonal_procrustes(x, y)[0] - y), rtol=1e-9)
    # scipy also scales the second: what is left is the squared sine of the angle.
    assert_allclose(np.sin(angular_procrustes(x, y)) ** 2, scipy_procrustes(x, y)[2], atol=1e-10)


def test_small_procrustes_distances_keep_their_digits(rng):
    x = rng.normal(size=(50, 4)) + 100
    noise = rng.normal(size=(50, 4))
    for amount, next_amount in pairwise(10.0 ** -np.arange(2, 11)):
        ratio = size_and_shape(x, x + amount * noise) / size_and_shape(x, x + next_amount * noise)
        assert_allclose(ratio, 10, rtol=0.03)
        ratio = angular_procrustes(x, x + amount * noise) / procrustes(x, x + amount * noise)
        assert_allclose(ratio, 1, atol=1e-4)


def test_what_only_one_run_has_counts_even_if_small(rng):
    x = np.column_stack([rng.normal(size=50), 1e-3 * rng.normal(size=50)])
    x -= x.mean(0)
    y = x * [1, 0]
    expected = np.linalg.norm(x @ orthogonal_procrustes(x, y)[0] - y)
    assert_allclose([size_and_shape(x, x[:, :1]), size_and_shape(x[:, :1], x)], expected, rtol=1e-9)


def test_cca_without_truncation_is_that_of_scikit_learn():
    x, y = inputs(3, 200, 4, 3)
    variates = CCA(n_components=3, max_iter=5000, tol=1e-12).fit(x, y).transform(x, y)
    expected = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(variates[0].T, variates[1].T, strict=True)])
    assert_allclose(svcca(x, y, variance=1), expected, atol=1e-6)
    assert_allclose(weak_mcc(x, y), expected, atol=1e-6)


@FEW
@given(st.integers(15, 30), st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_pwcca_is_the_formula_of_the_paper(n, d_x, d_y, seed):
    """Morcos et al. 2018, section 3: rho weighted by alpha_i = sum_j |<h_i, x_j>|, from the variates h themselves.

    With n > d_x + d_y no two correlations are equal, so that the variates are unique.
    """
    x, y = unrelated(n, d_x, d_y, seed)
    x, y = x - x.mean(0), y - y.mean(0)
    u, v = (np.linalg.svd(z, full_matrices=False)[0] for z in (x, y))
    left, rho, _ = np.linalg.svd(u.T @ v, full_matrices=False)
    alpha = np.abs((u @ left).T @ x).sum(1)
    assert_allclose(pwcca(x, y), alpha @ rho / alpha.sum(), atol=1e-8)


def test_overlap_counts_shared_neighbours(rng):
    x, y = rng.normal(size=(100, 4)), rng.normal(size=(100, 3))
    sets = [NearestNeighbors(n_neighbors=6).fit(z).kneighbors(z, return_distance=False)[:, 1:] for z in (x, y)]
    expected = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(*sets, strict=True)])
    assert_allclose(neighbour_overlap(x, y, k=5), expected)


def test_overlap_of_unit_rows_is_mutual_knn_by_inner_product():
    """Huh et al. 2024 rank by inner product; on the unit sphere that is the order of Euclidean distance."""
    x, y = inputs(4, 80, 6, 5)
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x - x.mean(0), y - y.mean(0)))
    masks = []
    for z in (x, y):
        near = np.argsort(-(z @ z.T - 10 * np.eye(80)), axis=1)[:, :10]
        masks.append(np.zeros((80, 80)))
        np.put_along_axis(masks[-1], near, 1, axis=1)
    assert_allclose(neighbour_overlap(x, y), (masks[0] * masks[1]).sum() / 10 / 80)
