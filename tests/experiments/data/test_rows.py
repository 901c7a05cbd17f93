"""Rows of numbers with known factors: what they are drawn from, and their names."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.experiments.data import (
    FactorRows,
    circles,
    half_moons,
    load_data,
    load_rows,
    pinwheel,
    random_relu_mixture,
)
from congruence.experiments.data.row_sets import ROW_SETS


@pytest.mark.parametrize("arms", [1, 3, 7])
def test_arms_of_a_pinwheel_turn_back_to_gaussians(arms):
    data = pinwheel(6000, arms=arms, seed=1)
    assert data.rows.shape == (6000, 2)
    assert sorted(set(data.columns["arm"])) == list(range(arms))
    assert data.sizes == (arms, None, None)
    arm, along, across = data.factors.T
    angle = -(2 * np.pi * arm / arms + 0.25 * np.exp(along))
    x, y = data.rows.astype(float).T
    assert_allclose(x * np.cos(angle) - y * np.sin(angle), along, atol=1e-5)
    assert_allclose(x * np.sin(angle) + y * np.cos(angle), across, atol=1e-5)
    assert_allclose([along.mean(), along.std(), across.mean(), across.std()], [1, 0.3, 0, 0.05], atol=0.02)


def test_a_relu_mixture_is_drawn_from_its_truth():
    model = random_relu_mixture(2, latents=2, observed=5, noise=0.0, seed=3)
    data = model.draw(40_000, seed=1)
    states, latents = data.columns["component"], data.factors[:, 1:]
    assert_allclose(data.rows, np.maximum(latents @ model.matrix.T + model.shift, 0), atol=1e-5)
    assert_allclose(np.bincount(states) / len(states), model.weights, atol=0.01)
    for j in (0, 1):
        assert_allclose(latents[states == j].mean(0), model.means[j], atol=0.05)
        assert_allclose(np.cov(latents[states == j].T), model.covariances[j], atol=0.05)
    noisy = random_relu_mixture(2, latents=2, observed=5, noise=0.5, seed=3).draw(40_000, seed=1)
    assert_allclose((noisy.rows - data.rows).std(0), 0.5, atol=0.01)
    assert noisy.truth.noise == 0.5


def test_moons_and_circles_have_two_classes():
    ring = circles(4000, noise=0.0, ratio=0.4)
    assert_allclose(np.linalg.norm(ring.rows, axis=1), np.where(ring.columns["circle"] == 1, 0.4, 1.0), atol=1e-5)
    moons = half_moons(4000, noise=0.0)
    upper = moons.rows[moons.columns["moon"] == 0]
    assert_allclose(np.linalg.norm(upper, axis=1), 1, atol=1e-5)
    assert upper[:, 1].min() >= -1e-6


@pytest.mark.parametrize("name", [*ROW_SETS, "pinwheel:5", "random-relu:2"])
def test_every_set_is_loaded_by_its_name_and_is_what_was_said(name):
    data = load_data(name, 200)
    chosen = ROW_SETS[name.partition(":")[0]]
    assert data.shape == (chosen.observed,)
    assert data.rows.dtype == np.float32
    assert data.sizes[0] == (int(name[-1]) if ":" in name else chosen.clusters)
    assert_array_equal(load_rows(name, 200).rows, data.rows)
    assert not np.array_equal(load_rows(name, 200, seed=1).rows, data.rows)
    assert repr(data).startswith(f"FactorRows({chosen.name}: 200 rows of {chosen.observed}, ")
    part = data.take([5, 2])
    assert_array_equal(part.rows, data.rows[[5, 2]])
    assert_array_equal(part.factors, data.factors[[5, 2]])


ROWS, FACTORS = np.zeros((3, 2), np.float32), np.zeros((3, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: load_data("pinwheel:0"), "of at least 1, as in pinwheel:3; got 'pinwheel:0'"),
        (lambda: load_data("pinwheel:x"), "must be an integer of at least 1, as in pinwheel:3"),
        (lambda: load_data("moons:3"), "moons always has 2 clusters; got 'moons:3'"),
        (lambda: load_rows("rooms"), "name must be one of pinwheel, random-relu, .*; got 'rooms'"),
        (lambda: load_data("pinweel"), "unknown data set 'pinweel'; did you mean pinwheel"),
        (lambda: load_data("pinwheel", continuous=True), "continuous is an option of rooms and sprites"),
        (lambda: pinwheel(0), "n must be an integer of at least 1; got 0"),
        (lambda: pinwheel(5, arms=0), "arms must be an integer of at least 1; got 0"),
        (lambda: pinwheel(5, radial=-1), "radial must be a finite number at least 0; got -1"),
        (lambda: random_relu_mixture(0), "components must be an integer of at least 1; got 0"),
        (lambda: random_relu_mixture(noise=np.nan), "noise must be a finite number at least 0; got nan"),
        (lambda: circles(5, ratio=1), "ratio must be at least 0 and below 1; got 1"),
        (lambda: half_moons(5, noise=-1), "noise must be a finite number at least 0; got -1"),
        (lambda: FactorRows("a", ROWS[0], FACTORS, ("f",), ("continuous",), (None,)), "rows must be float32 of shape"),
        (lambda: FactorRows("a", ROWS, FACTORS, ("f", "g"), ("continuous",), (None,)), "factors must have shape"),
        (lambda: FactorRows("a", ROWS, FACTORS, ("f",), (), (None,)), "one entry for each of the 1 factors; got 0"),
        (lambda: FactorRows("a", ROWS, FACTORS, ("f",), ("odd",), (None,)), "got 'odd'"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
