import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.covariance import OAS

from congruence import Whitener
from congruence.errors import InputError
from congruence.ica._whitening import METHODS

N, D = 3000, 12


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)) @ rng.normal(size=(D, D))
    if kind == "uncentred":
        x += 1e5
    if kind == "ill-scaled":
        x *= 10.0 ** np.linspace(-5, 5, D)
    if kind == "ill-conditioned":
        x = (rng.normal(size=(N, D)) * 10.0 ** -np.linspace(0, 9, D)) @ np.linalg.qr(rng.normal(size=(D, D)))[0]
    if kind == "rank-deficient":
        x = x @ np.diag([1.0] * 7 + [0.0] * 5) @ rng.normal(size=(D, D))
        x[:, 3] = 5
    return x


def covariance_error(z, retained):
    """Distance of the population covariance from the identity on the retained directions."""
    values = np.linalg.eigvalsh(np.cov(z.astype(np.float64), rowvar=False, bias=True))
    kept = values[-retained:]
    assert_allclose(values[:-retained], 0, atol=1e-6)
    return np.abs(kept - 1).max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["plain", "uncentred", "ill-scaled", "ill-conditioned", "rank-deficient"])
def test_whitening_whitens(method, kind):
    x = rows(kind)
    whitener = Whitener(method).fit(x)
    rank = 7 if kind == "rank-deficient" else D
    assert whitener.rank_ == rank
    assert covariance_error(whitener.transform(x), rank) < 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["plain", "uncentred", "ill-scaled", "rank-deficient"])
def test_float32_rows_are_whitened_to_float32_precision(method, kind):
    x = rows(kind).astype(np.float32)
    whitener = Whitener(method).fit(x)
    z = whitener.transform(x)
    assert z.dtype == np.float32
    assert covariance_error(z, whitener.rank_) < 1e-4
    assert whitener.rank_ == (7 if kind == "rank-deficient" else D)


@given(st.sampled_from(METHODS), st.integers(0, 50))
def test_the_inverse_leads_back(method, seed):
    x = rows("rank-deficient", seed)
    whitener = Whitener(method).fit(x)
    back = whitener.inverse_transform(whitener.transform(x))
    assert_allclose(back, x, atol=1e-6 * x.std())


def test_methods_differ_by_a_rotation_only():
    x = rows("plain")
    pca, *others = (Whitener(method).fit_transform(x) for method in METHODS)
    for other in others:
        turn = np.linalg.lstsq(pca, other, rcond=None)[0]
        assert_allclose(turn @ turn.T, np.eye(D), atol=1e-8)


def test_zca_stays_closest_to_the_rows():
    x = rows("plain") - rows("plain").mean(0)
    distances = {method: np.square(Whitener(method).fit_transform(x) - x).sum() for method in METHODS}
    assert min(distances, key=distances.get) == "zca"


def test_cholesky_leaves_out_what_earlier_columns_predict(rng):
    x = rng.normal(size=(500, 2))
    x = np.column_stack([x[:, 0], 2 * x[:, 0] + 1, x[:, 1] + x[:, 0]])
    whitener = Whitener("cholesky").fit(x)
    assert whitener.whitening_.shape == (2, 3)
    z = whitener.transform(x)
    assert_allclose(np.abs(np.corrcoef(z[:, 0], x[:, 0])[0, 1]), 1)
    assert np.abs(whitener.whitening_[0, 1:]).max() == 0


def test_units_do_not_matter_to_the_cor_methods():
    x = rows("plain")
    for method in ("pca-cor", "zca-cor"):
        scaled = Whitener(method).fit_transform(x * 10.0 ** np.arange(-6, 6))
        assert_allclose(np.abs(scaled), np.abs(Whitener(method).fit_transform(x)), atol=1e-6)


def test_the_number_of_directions_can_be_chosen():
    x = rows("plain")
    variances = np.linalg.eigvalsh(np.cov(x, rowvar=False, bias=True))[::-1]
    assert Whitener(n_components=3).fit_transform(x).shape == (N, 3)
    share = Whitener(n_components=0.8).fit(x)
    k = len(share.whitening_)
    assert variances[:k].sum() >= 0.8 * variances.sum() > variances[: k - 1].sum()
    assert_allclose(share.variances_, variances)
    projected = Whitener("zca", n_components=3).fit(x)
    assert covariance_error(projected.transform(x), 3) < 1e-8
    assert Whitener(n_components=100).fit(x).whitening_.shape == (D, D)


def test_chunks_give_the_whitening_of_all_rows():
    x = rows("uncentred")
    streamed = Whitener()
    for chunk in np.array_split(x, 7):
        streamed.partial_fit(chunk)
    assert streamed.n_samples_seen_ == N
    assert_allclose(streamed.whitening_, Whitener().fit(x).whitening_, rtol=1e-6, atol=1e-9)
    assert_allclose(Whitener().fit(iter(np.array_split(x, 7))).whitening_, Whitener().fit(x).whitening_, atol=1e-9)


def test_shrinkage_by_oas_agrees_with_scikit_learn():
    x = rows("plain")[:30]
    whitener = Whitener(shrinkage="auto").fit(x)
    theirs = OAS().fit(x)
    assert_allclose(whitener.shrinkage_, theirs.shrinkage_)
    white = whitener.whitening_ @ theirs.covariance_ @ whitener.whitening_.T
    assert_allclose(white, np.eye(D), atol=1e-10)


def test_full_shrinkage_only_scales():
    x = rows("plain")
    matrix = Whitener("zca", shrinkage=1.0).fit(x).whitening_
    assert_allclose(matrix, matrix[0, 0] * np.eye(D), atol=1e-12)


def test_fewer_rows_than_dimensions_have_their_rank(rng):
    x = rng.normal(size=(6, 20))
    whitener = Whitener().fit(x)
    assert whitener.rank_ == 5
    assert covariance_error(whitener.transform(x), 5) < 1e-9


@pytest.mark.parametrize("method", ["pca", "zca"])
def test_directions_of_rounding_alone_are_left_out_of_real_rows(method, data_folder):
    """Ten columns of this layer are constant; the sums of its rows show up to five more directions than there are."""
    x = np.load(data_folder / "modelpairs" / "admet_cls_seed2.npy").astype(np.float64)
    whitener = Whitener(method).fit(x)
    assert whitener.rank_ == np.linalg.matrix_rank(x - x.mean(0)) == 290
    values = np.linalg.eigvalsh(np.cov(whitener.transform(x), rowvar=False))
    assert_allclose(values[-290:], 1, atol=1e-3)
    assert_allclose(values[:-290], 0, atol=1e-3)


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor(rows("plain"), dtype=torch.float32)
    z = Whitener("zca").fit_transform(x)
    assert isinstance(z, torch.Tensor)
    assert z.dtype == torch.float32
    assert_allclose(z.numpy(), Whitener("zca").fit_transform(x.numpy()), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "lda"}, "method must be one of 'pca', .*; got 'lda'"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": -2}, "n_components"),
        ({"n_components": 2.5}, "n_components must be a positive integer or a share of the variance below 1; got 2.5"),
        ({"n_components": "all"}, "n_components"),
        ({"shrinkage": 2.0}, "shrinkage must be a number from 0 to 1"),
        ({"shrinkage": "lw"}, "from 0 to 1 or 'auto'"),
        ({"method": "cholesky", "n_components": 0.5}, "n_components of cholesky whitening must be an integer"),
    ],
)
def test_wrong_options_are_named(options, message, rng):
    with pytest.raises(InputError, match=message):
        Whitener(**options).fit(rng.normal(size=(20, 3)))


def test_equal_rows_cannot_be_whitened():
    with pytest.raises(InputError, match="all rows are equal"):
        Whitener().fit(np.ones((5, 3)))


def test_components_of_another_width_do_not_lead_back(rng):
    whitener = Whitener(n_components=2).fit(rng.normal(size=(50, 3)))
    with pytest.raises(InputError, match="3 columns, but there are 2 components"):
        whitener.inverse_transform(np.ones((4, 3)))
