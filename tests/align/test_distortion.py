import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence import compare

ROTATION = ortho_group.rvs(12, random_state=0)
QUICK = {"groups": ["similarity", "linear"], "nulls": 5, "bootstrap": 50}


def runs(rng, gains, noise_x=0.0, noise_y=0.0, n=600):
    """A signal with a falling spectrum, stretched along its axes, and noise in either run."""
    signal = rng.normal(size=(n, 12)) / np.sqrt(np.arange(1, 13))
    x = signal + noise_x * rng.normal(size=signal.shape)
    return x, 3 * (signal * gains + noise_y * rng.normal(size=signal.shape)) @ ROTATION


def distortion(x, y, **options):
    return compare(x, y, **QUICK, **options).pairs[0].distortion


def test_gains_without_noise_are_those_of_the_map(rng):
    gains = np.exp(np.linspace(0.4, -0.4, 12))  # falling as the spectrum does, so that each direction is an axis
    found = distortion(*runs(rng, gains))
    assert found.status == "fails"
    assert (found.tested, found.directions) == (12, 12)
    assert_allclose(found.log_gains - found.log_gains.mean(), np.log(gains), atol=0.05)


@pytest.mark.parametrize(("noise_x", "noise_y"), [(0.0, 0.1), (0.1, 0.0), (0.1, 0.1)])
def test_noise_in_either_run_is_no_distortion(rng, noise_x, noise_y):
    found = distortion(*runs(rng, 1.0, noise_x, noise_y))
    assert found.status != "fails"
    assert found.measured < 0.15
    assert_allclose(found.source_noise, noise_x**2 / (noise_x**2 + noise_y**2), atol=0.25)


def test_a_stretch_beyond_the_margin_never_holds_and_one_within_never_fails(rng):
    x, y = runs(rng, np.r_[np.exp(0.25), np.ones(11)])
    assert distortion(x, y).status == "fails"
    assert distortion(x, y, margin=0.3).status == "holds"


def test_a_stretch_between_the_principal_axes_is_found(rng):
    x = rng.normal(size=(600, 12)) / np.sqrt(np.arange(1, 13))
    turned = ortho_group.rvs(12, random_state=1)
    y = x @ (turned * np.exp(np.linspace(-0.3, 0.3, 12))) @ turned.T @ ROTATION
    assert distortion(x, y).status == "fails"


def test_the_source_and_the_target_may_be_exchanged(rng):
    x, y = runs(rng, np.exp(np.linspace(-0.3, 0.3, 12)), 0.05, 0.05)
    there, back = distortion(x, y), distortion(y, x)
    assert_allclose(there.certain, back.certain, atol=1e-9)
    assert_allclose(there.source_noise, 1 - back.source_noise, atol=1e-9)


def test_directions_without_signal_are_not_tested(rng):
    x, y = rng.normal(size=(2, 400, 6))
    y[:, :2] = x[:, :2] * 5
    found = distortion(x, y)
    assert (found.tested, found.directions) == (2, 6)
    nothing = distortion(x[:, 2:], y[:, 2:])
    assert (nothing.status, nothing.tested, nothing.to_dict()["largest"]) == ("unknown", 0, None)


def test_widths_may_differ_and_dimensions_may_be_dead(rng):
    x, y = runs(rng, 1.0)
    assert distortion(np.pad(x, ((0, 0), (0, 4))), y).status == "holds"
    assert distortion(x[:, :3], x[:, :3] @ ROTATION[:3]).status == "holds"
