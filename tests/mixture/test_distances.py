"""The L2 distance of mixtures, and what is left of it after the best affine map."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import check_grad

from congruence.errors import InputError
from congruence.mixture import GaussianMixture, affine_distance, affine_distances, l2_distance
from congruence.mixture._affine_search import Objective
from congruence.mixture.distances import _log_inner, _parts

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["gmm_l2"]


def mixtures(name):
    return (GaussianMixture.from_arrays(*ORACLE[name][which]) for which in ("g1", "g2"))


def random_mixture(rng, components, m, *, round_=False):
    roots = rng.normal(size=(components, m, m))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(m)
    covariances = np.full(components, 0.5) if round_ else covariances
    weights = rng.dirichlet(np.full(components, 3.0))
    return GaussianMixture.from_arrays(weights, 3 * rng.normal(size=(components, m)), covariances)


@pytest.mark.parametrize("name", ["one_d", "two_d"])
def test_the_distance_is_that_of_the_reference(name):
    p, q = mixtures(name)
    for one, other, key in ((p, p, "inner11"), (q, q, "inner22"), (p, q, "inner12")):
        assert_allclose(math.exp(_log_inner(_parts(one), _parts(other))), ORACLE[name][key], rtol=1e-12)
    assert_allclose(l2_distance(p, q).distance, ORACLE[name]["l2"], rtol=1e-12)
    assert_allclose(l2_distance(q, p).distance, ORACLE[name]["l2"], rtol=1e-12)


def test_quadrature_agrees():
    p, q = mixtures("one_d")
    square, _ = quad(lambda z: float(np.diff(np.exp([g.log_density([[z]])[0] for g in (p, q)]))[0] ** 2), -15, 15)
    assert_allclose(l2_distance(p, q).distance, math.sqrt(square), rtol=1e-7)


def test_the_distance_of_a_mixture_to_itself_is_0_in_any_order_even_if_degenerate():
    flat = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    turned = GaussianMixture(flat.weights, flat.means[::-1], flat.covariances[::-1])
    assert l2_distance(flat, turned).distance == 0
    other = GaussianMixture(np.array([0.4, 0.6]), flat.means, flat.covariances)
    assert l2_distance(flat, other).distance == math.inf
    assert 0 < l2_distance(flat, other, smoothing=0.1).distance < math.inf


def test_densities_on_a_common_subspace_are_those_on_it():
    p, q = mixtures("one_d")
    axis, shift = np.array([[0.6], [0.8]]), np.array([3.0, -1.0])
    result = l2_distance(p.pushed(axis, shift), q.pushed(axis, shift))
    assert result.dimension == 1
    assert_allclose(result.distance, ORACLE["one_d"]["l2"], rtol=1e-9)


def test_in_many_dimensions_logs_stay_finite_where_densities_do_not():
    m = 500
    p = GaussianMixture.from_arrays([1.0], np.zeros((1, m)), np.full(1, 1e-4))
    q = GaussianMixture.from_arrays([1.0], np.full((1, m), 1e-3), np.full(1, 1e-4))
    result = l2_distance(p, q)
    assert result.distance == math.inf
    assert math.isfinite(result.log_distance)
    # the overlap of two such Gaussians is exp(-|a - b|^2 / (4 variance))
    assert_allclose(result.relative, math.sqrt(1 - math.exp(-m * 1e-6 / 4e-4)), rtol=1e-9)


def test_the_relative_distance_is_invariant_under_affine_maps_of_both():
    p, q = mixtures("two_d")
    matrix = np.array([[3.0, 1.0], [0.5, 2.0]])
    here, there = l2_distance(p, q), l2_distance(p.pushed(matrix, 1.0), q.pushed(matrix, 1.0))
    assert_allclose(there.relative, here.relative, rtol=1e-9)
    assert_allclose(there.distance, here.distance / math.sqrt(abs(np.linalg.det(matrix))), rtol=1e-9)


def test_the_best_map_is_no_worse_than_the_reference():
    p, q = mixtures("two_d")
    known = ORACLE["affine"]
    assert affine_distance(p, q).distance <= known["dist_aff_g1_to_g2"] + 1e-6
    assert affine_distance(q, p).distance <= known["dist_aff_g2_to_g1"] + 1e-6
    result = affine_distance(p, p.pushed(known["A"], known["b"]))
    assert result.distance < 1e-6
    assert_allclose(result.matrix, known["A"], atol=1e-5)
    assert_allclose(result.shift, known["b"], atol=1e-5)


@pytest.mark.parametrize(("components", "m"), [(1, 3), (2, 4), (4, 2), (5, 3), (9, 3), (10, 1)])
@pytest.mark.parametrize("round_", [False, True], ids=["any", "round"])
def test_mixtures_equal_up_to_an_affine_map_are_recognised(components, m, round_):
    rng = np.random.default_rng(components + m)
    p = random_mixture(rng, components, m, round_=round_)
    order = rng.permutation(components)
    q = p.pushed(rng.normal(size=(m, m)), rng.normal(size=m))
    q = GaussianMixture(q.weights[order], q.means[order], q.covariances[order])
    result = affine_distance(p, q)
    assert result.relative < 1e-4
    assert_allclose(l2_distance(p.pushed(result.matrix, result.shift), q).distance, result.distance)


def test_the_distance_never_increases_and_is_invariant_under_affine_maps_of_the_source():
    rng = np.random.default_rng(5)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 4, 2)
    result = affine_distance(p, q)
    assert result.distance <= result.before.distance
    moved = affine_distance(p.pushed(rng.normal(size=(2, 2)), 1.0), q)
    assert_allclose(moved.distance, result.distance, rtol=1e-4)


def test_the_gradient_is_that_of_the_value():
    p, q = mixtures("two_d")
    objective = Objective(p, q, 0.01 * np.eye(2))
    theta = np.array([1.0, 0.2, -0.1, 0.8, 0.3, 0.1])
    assert check_grad(lambda t: objective(t)[0], lambda t: objective(t)[1], theta) < 1e-5


def test_the_counterexample_of_remark_3_12_is_not_affinely_equivalent():
    known = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["kivva_remark_3_12"]
    p, q = (GaussianMixture.from_arrays(*known[which], np.full(3, 0.04)) for which in ("P", "Pprime"))
    assert affine_distance(p, q).relative > 0.1
    folded = np.linspace(0, 6, 50)[:, None]  # but both have the same image under |x|
    images = [np.exp(g.log_density(folded)) + np.exp(g.log_density(-folded)) for g in (p, q)]
    assert_allclose(*images, rtol=1e-12)


def test_all_ordered_pairs_are_measured():
    p, q = mixtures("two_d")
    result = affine_distances({"p": p, "q": q})
    assert list(result.pairs) == [("p", "q"), ("q", "p")]
    assert_allclose(result.matrix, [[0, result.pairs["p", "q"].distance], [result.pairs["q", "p"].distance, 0]])
    assert json.loads(json.dumps(result.to_dict()))["pairs"][0]["bound"] == "upper"


def test_mixtures_on_subspaces_are_mapped_onto_each_other():
    p, _ = mixtures("one_d")
    line = p.pushed([[1.0], [2.0]], [1.0, 0.0])
    result = affine_distance(line, p.pushed([[-3.0], [1.0]], [0.0, 5.0]))
    assert result.relative < 1e-5
    assert abs(np.linalg.det(result.matrix)) > 1e-3


def test_invalid_arguments_raise():
    p, _ = mixtures("one_d")
    q, _ = mixtures("two_d")
    with pytest.raises(InputError, match="the same number of latents; got 1 and 2"):
        l2_distance(p, q)
    with pytest.raises(InputError, match="the same number of latents; got 1 and 2"):
        affine_distance(p, q)
    with pytest.raises(InputError, match="varies along 1 directions and prior_b along 2"):
        affine_distance(p.pushed([[1.0], [0.0]]), q)
    sharp = GaussianMixture.from_arrays([0.5, 0.5], [[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(InputError, match="smoothing must be above 0"):
        affine_distance(sharp, p)
    assert affine_distance(sharp, sharp, smoothing=0.1).relative < 1e-4
    with pytest.raises(InputError, match="smoothing must be a finite number at least 0; got -1"):
        l2_distance(p, p, smoothing=-1)
    for wrong in (0, math.nan):
        with pytest.raises(InputError, match=f"refined must be an integer of at least 1; got {wrong}"):
            affine_distance(p, p, refined=wrong)
    with pytest.raises(InputError, match="smoothing must be a finite number at least 0; got nan"):
        affine_distance(p, p, smoothing=math.nan)
    with pytest.raises(InputError, match="at least two mixtures; got 1"):
        affine_distances([p])


def test_a_component_that_is_nearly_a_point_does_not_make_the_distance_worse_than_without_a_map():
    p = GaussianMixture.from_arrays([0.3, 0.2, 0.5], [[-1, -1], [0.6, 0.6], [0.4, 0.4]], [1e-6, 2.7, 0.09])
    q = GaussianMixture.from_arrays(
        [0.6, 0.2, 0.2], [[-0.75, 0.78], [1.6, -1.7], [0.8, -0.7]], [[0.08, 0.01], [0.01, 0.02], [0.17, 0.3]]
    )
    result = affine_distance(p, q)
    assert np.isfinite(result.distance)
    assert result.distance <= result.before.distance
    assert_allclose(l2_distance(p.pushed(result.matrix, result.shift), q).distance, result.distance)


def test_fitted_mixtures_are_accepted_and_nothing_else_is():
    from sklearn.mixture import GaussianMixture as Fitted

    rows = random_mixture(np.random.default_rng(3), 2, 2).sample(300)
    fitted = Fitted(2, random_state=0).fit(rows)
    ours = GaussianMixture.from_sklearn(fitted)
    other = ours.pushed(np.diag([2.0, 0.5]))
    assert l2_distance(fitted, other).distance == l2_distance(ours, other).distance
    assert affine_distance(fitted, other).distance == affine_distance(ours, other).distance
    with pytest.raises(InputError, match="prior_b must be a GaussianMixture, a fitted .*; got list"):
        affine_distance(ours, [1])
    with pytest.raises(InputError, match="p must be a GaussianMixture, .*; got list"):
        l2_distance([1], ours)


def test_a_single_narrow_component_is_found():
    """Starts that map all components miss the map of one component onto one."""
    p = GaussianMixture.from_arrays([1.0], [0.0], [1.0])
    q = GaussianMixture.from_arrays([0.5, 0.5], [0.0, 8.0], [1.0, 0.01])
    by_hand = l2_distance(p.pushed([[0.196]], [8.0]), q).distance
    assert by_hand == pytest.approx(0.634, abs=1e-3)
    assert affine_distance(p, q).distance <= by_hand


def random_pair(seed, m):
    """Two mixtures of one to four components, with narrow and wide ones."""
    rng = np.random.default_rng(seed)
    pair = []
    for count in rng.integers(1, 5, size=2):
        roots = rng.normal(size=(count, m, m)) * np.exp(rng.normal(size=(count, 1, 1)) / 2)
        covariances = roots @ roots.transpose(0, 2, 1) + 0.02 * np.eye(m)
        pair.append(
            GaussianMixture.from_arrays(rng.dirichlet(np.ones(count)), 3 * rng.normal(size=(count, m)), covariances)
        )
    return pair


def distances_on_a_grid(p, q, slopes, centres):
    """||h p - q|| for all maps of one latent with these slopes that put a component of p onto one of these centres."""
    w, mu, s = p.weights, p.means[:, 0], p.covariances[:, 0, 0]
    v, nu, t = q.weights, q.means[:, 0], q.covariances[:, 0, 0]

    def products(weights, away, variances):
        return (weights * np.exp(-(away**2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)).sum((-1, -2))

    a, c, mean = (one.ravel() for one in np.meshgrid(slopes, centres, mu))
    places, spread = a[:, None] * (mu - mean[:, None]) + c[:, None], a[:, None] ** 2 * s
    ours = products(np.outer(w, w), places[:, :, None] - places[:, None], spread[:, :, None] + spread[:, None])
    both = products(np.outer(w, v), places[:, :, None] - nu, spread[:, :, None] + t)
    theirs = products(np.outer(v, v), nu[:, None] - nu, t[:, None] + t)
    return np.sqrt(np.maximum(ours - 2 * both + theirs, 0)), a, c - a * mean


@pytest.mark.parametrize("seed", range(24))
def test_no_map_of_a_grid_is_better_in_one_latent(seed):
    p, q = random_pair(seed, 1)
    spread = np.sqrt(q.covariances[:, 0, 0])
    low, high = (q.means[:, 0] - 3 * spread).min(), (q.means[:, 0] + 3 * spread).max()
    size = np.geomspace(0.1 * spread.min(), high - low, 60) / np.sqrt(p.covariances[:, 0, 0]).max()
    centres = np.concatenate([np.linspace(low, high, 60), q.means[:, 0]])
    found, slopes, shifts = distances_on_a_grid(p, q, np.concatenate([size, -size]), centres)
    best = int(found.argmin())
    on_grid = l2_distance(p.pushed([[slopes[best]]], [shifts[best]]), q).distance
    assert on_grid == pytest.approx(found[best], abs=1e-6)
    assert affine_distance(p, q).distance <= 1.001 * on_grid + 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_no_random_start_is_better_in_two_latents(seed):
    """Random maps of one component onto one, the best of them minimised."""
    from scipy.optimize import minimize

    p, q = random_pair(100 + seed, 2)
    rng = np.random.default_rng(seed)
    objective = Objective(p, q, np.zeros((2, 2)))
    roots = [np.linalg.cholesky(one.covariances) for one in (p, q)]
    starts = []
    for _ in range(300):
        i, j = rng.integers(p.components), rng.integers(q.components)
        turn = np.linalg.qr(rng.normal(size=(2, 2)))[0] * np.exp(rng.normal() / 2)
        matrix = roots[1][j] @ turn @ np.linalg.inv(roots[0][i])
        starts.append(np.concatenate([matrix.ravel(), q.means[j] - matrix @ p.means[i]]))
    starts = sorted(starts, key=objective.value)[:30]
    best = min((minimize(objective, start, jac=True, method="BFGS") for start in starts), key=lambda one: one.fun).x
    other = l2_distance(p.pushed(best[:4].reshape(2, 2), best[4:]), q).distance
    assert affine_distance(p, q).distance <= 1.01 * other + 1e-6


def test_the_standardised_distance_does_not_depend_on_the_units_of_either():
    p, q = random_pair(3, 2)
    plain = affine_distance(p, q)
    squeezed = affine_distance(p.pushed([[5.0, 1.0], [0.0, 2.0]]), q.pushed([[0.1, 0.02], [0.0, 0.3]], [1.0, 2.0]))
    assert_allclose(squeezed.standardised, plain.standardised, rtol=1e-3)
    assert squeezed.distance > 4 * plain.distance
    white = affine_distance(p, q.pushed(np.linalg.inv(np.linalg.cholesky(q.covariance))))
    assert_allclose(white.standardised, white.distance, rtol=1e-9)
