"""A mixture of Gaussians: its density, draws, images and what it refuses."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from congruence.errors import InputError
from congruence.mixture import GaussianMixture


@pytest.fixture
def prior():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(3, 2, 2))
    return GaussianMixture.from_arrays([0.2, 0.3, 0.5], rng.normal(size=(3, 2)) * 3, roots @ roots.transpose(0, 2, 1))


def test_the_density_is_that_of_scipy(prior):
    z = np.random.default_rng(1).normal(size=(50, 2)) * 4
    parts = [
        w * multivariate_normal(mean, cov).pdf(z)
        for w, mean, cov in zip(prior.weights, prior.means, prior.covariances, strict=True)
    ]
    assert_allclose(prior.log_density(z), np.log(np.sum(parts, 0)), rtol=1e-10)
    assert_allclose(prior.responsibilities(z), (np.array(parts) / np.sum(parts, 0)).T, rtol=1e-8, atol=1e-300)


def test_far_from_all_components_the_log_density_stays_finite(prior):
    assert np.isfinite(prior.log_density([[1e5, -1e5]])).all()


def test_draws_have_the_moments_of_the_mixture_and_are_reproducible(prior):
    drawn = prior.draw(200_000, seed=3)
    assert_allclose(drawn.latents.mean(0), prior.mean, atol=0.03)
    assert_allclose(np.cov(drawn.latents, rowvar=False), prior.covariance, rtol=0.02, atol=0.05)
    assert_allclose(np.bincount(drawn.states) / 200_000, prior.weights, atol=0.005)
    assert_allclose(prior.sample(10, seed=3), prior.sample(10, seed=3))


def test_the_image_of_a_mixture_has_the_right_moments(prior):
    matrix, shift = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]]), np.array([1.0, 2.0, 3.0])
    pushed = prior.pushed(matrix, shift)
    assert_allclose(pushed.mean, matrix @ prior.mean + shift)
    assert_allclose(pushed.covariance, matrix @ prior.covariance @ matrix.T, atol=1e-12)
    assert pushed.degenerate == (0, 1, 2)  # two latents in three dimensions


def test_the_product_of_facets_is_their_joint_distribution(prior):
    other = GaussianMixture.from_arrays([0.4, 0.6], [[0.0], [5.0]], [1.0, 2.0])
    joint = GaussianMixture.product([prior, other])
    assert (joint.components, joint.dimension) == (6, 3)
    z = np.random.default_rng(2).normal(size=(20, 3))
    assert_allclose(joint.log_density(z), prior.log_density(z[:, :2]) + other.log_density(z[:, 2:]), rtol=1e-10)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_mixtures_of_scikit_learn_keep_their_density(kind, prior):
    from sklearn.mixture import GaussianMixture as Fitted

    z = prior.sample(500)
    fitted = Fitted(3, covariance_type=kind, random_state=0).fit(z)
    assert_allclose(GaussianMixture.from_sklearn(fitted).log_density(z), fitted.score_samples(z), rtol=1e-8)


def test_priors_of_models_are_converted():
    class Model:
        def mixture_prior(self):
            return np.array([0.5, 0.5, 0.0]), np.zeros((3, 2), np.float32), np.ones((3, 2))

    result = GaussianMixture.from_model(Model())
    assert result.components == 2  # a component of weight 0 is dropped
    assert_allclose(result.covariances, [np.eye(2)] * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.6], [[0.0], [1.0]], [1.0, 1.0]), "weights must sum to 1; got a sum of 1.1"),
        (([-0.5, 1.5], [[0.0], [1.0]], [1.0, 1.0]), "weights must be above 0; got -0.5"),
        (([0.5, 0.5], [[0.0], [np.nan]], [1.0, 1.0]), "means must be finite"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]), "symmetric; that of component 0 is not"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]]), "positive semidefinite; that of component 0"),
        (([1.0], [[0.0, 0.0]], [[1.0, 1.0, 1.0]]), r"covariances must have shape \(1, 2, 2\); got \(1, 3, 3\)"),
        (([1.0], [[0.0, 0.0]], [1.0, 1.0]), "the same number of components; got 1, 1 and 2"),
        (([1.0], [["a"]], [1.0]), "means must be an array of numbers"),
        (([1.0], [[1j]], [1.0]), "means must be an array of numbers: its dtype is complex128"),
        (([0.5, 0.5], [[0.0], [1e200]], [1.0, 1.0]), "means and standard deviations must be at most 1e"),
        (([1.0], [[0.0]], [1e300]), "means and standard deviations must be at most 1e"),
        (([1.0], [[0.0]], np.ones((1, 60_000))), "covariances would take 28800000000 bytes as matrices"),
    ],
)
def test_invalid_mixtures_raise(arguments, message):
    with pytest.raises(InputError, match=message):
        GaussianMixture.from_arrays(*arguments)


@pytest.mark.parametrize("name", ["weights", "means", "covariances"])
def test_a_single_number_is_not_accepted(name):
    arrays = {"weights": [1.0], "means": [0.0], "covariances": [1.0]} | {name: 1.0}
    with pytest.raises(InputError, match=f"{name} must have one entry for each component; got the number 1.0"):
        GaussianMixture.from_arrays(**arrays)


def test_invalid_arguments_raise(prior):
    with pytest.raises(InputError, match="z must have 2 columns"):
        prior.log_density(np.zeros((3, 3)))
    with pytest.raises(InputError, match="the covariance of component 0 is degenerate"):
        GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [[1.0, 0.0]]).log_density(np.zeros((3, 2)))
    for wrong in (0, 2.5, float("nan"), float("inf"), "a"):
        with pytest.raises(InputError, match="n must be an integer of at least 1"):
            prior.draw(wrong)
    with pytest.raises(InputError, match=r"matrix must have shape \(k, 2\)"):
        prior.pushed(np.eye(3))
    with pytest.raises(InputError, match=r"method mixture_prior\(\); int has none"):
        GaussianMixture.from_model(3)
    with pytest.raises(InputError, match="fitted scikit-learn GaussianMixture; got int"):
        GaussianMixture.from_sklearn(3)
