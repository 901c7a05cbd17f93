"""The likelihood is exact, and what it says of the truth is what the theory says."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.mixture import GaussianMixture
from congruence.mixture.likelihood import ReluModel
from congruence.mixture.likelihood_minima import search, slice_all, slice_along, standardised_distance

pytest.importorskip("torch")
ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["kivva_remark_3_12"]
PRIOR = GaussianMixture.from_arrays([0.3, 0.7], [-1.0, 2.0], [0.5, 1.0])
INJECTIVE = ReluModel(PRIOR, [1.3, -0.7], [0.4, 0.9], 0.3)
ABSOLUTE = {"slopes": [1.0, -1.0], "biases": [0.0, 0.0], "noise": 0.3, "readout": [1.0, 1.0]}


def by_integration(model, x):
    """The density by a sum over a fine grid of latents."""
    z = np.linspace(-12, 14, 100_001)
    squares = ((x - model.decode(z)) ** 2).sum(1) / model.noise**2
    given = np.exp(-squares / 2) / (2 * np.pi * model.noise**2) ** (len(x) / 2)
    return np.trapezoid(given * np.exp(model.prior.log_density(z[:, None])), z)


@pytest.mark.parametrize(
    "model",
    [ReluModel(PRIOR, [1.3], [0.4], 0.3), INJECTIVE, ReluModel(PRIOR, **ABSOLUTE)],
    ids=["one unit", "two units", "absolute value"],
)
def test_the_density_is_that_of_numerical_integration(model):
    x = model.sample(5, seed=1)
    assert_allclose(model.log_density(x), [np.log(by_integration(model, one)) for one in x], atol=1e-8)


def test_the_grid_sums_to_one_and_gives_the_entropy_of_a_gaussian():
    alone = ReluModel(GaussianMixture.from_arrays([1.0], [9.0], [0.5]), [1.0], [0.0], 0.3)  # never at the kink
    surface = alone.surface()
    assert_allclose(surface.weights.sum(), 1, atol=1e-12)
    assert_allclose(surface.least, 0.5 * np.log(2 * np.pi * np.e * (0.5 + 0.09)), atol=1e-7)


def test_the_excess_is_that_of_many_draws():
    other = ReluModel(PRIOR, [1.1, -0.7], [0.6, 0.9], 0.3)
    x = INJECTIVE.sample(40_000, seed=3)
    ratios = INJECTIVE.log_density(x) - other.log_density(x)
    error = ratios.std() / np.sqrt(len(x))
    assert_allclose(INJECTIVE.surface().excess(other), ratios.mean(), atol=4 * error)


@pytest.mark.parametrize(
    ("slopes", "biases", "readout", "injective"),
    [
        ([1.0], [0.0], None, False),
        ([1.0, -1.0], [0.0, 0.0], None, True),
        ([1.0, -1.0], [-1.0, 5.0], None, True),
        ([1.0, -1.0], [-1.0, -1.0], None, False),
        ([1.0, -1.0], [0.0, 0.0], [1.0, 1.0], False),
        ([1.0, -1.0], [0.0, 0.0], [1.0, -0.5], True),
    ],
)
def test_injectivity_is_exact(slopes, biases, readout, injective):
    assert ReluModel(PRIOR, slopes, biases, 0.3, readout).injective is injective


def test_rescaling_the_latent_changes_nothing():
    moved = ReluModel(PRIOR.pushed([[-2.0]], 1.0), INJECTIVE.slopes / -2, INJECTIVE.biases + INJECTIVE.slopes / 2, 0.3)
    assert abs(INJECTIVE.surface().excess(moved)) < 1e-12
    assert standardised_distance(PRIOR, moved.prior) < 1e-7


def test_the_truth_is_the_only_minimiser_along_every_parameter():
    result = slice_all(INJECTIVE, values=21)
    assert [one.name for one in result] == [
        "weight 1", "mean 1", "mean 2", "scale 1", "scale 2", "slope 1", "slope 2", "bias 1", "bias 2",
    ]  # fmt: skip
    for one in result:
        assert one.verdict == "holds", one.name
        assert one.values[one.at_truth] == one.truth
        assert one.excess.argmin() == one.at_truth
        assert one.margin > 1e-4


def test_a_component_that_is_never_seen_is_ambiguous():
    hidden = GaussianMixture.from_arrays([0.5, 0.5], [-9.0, 2.0], [0.25, 1.0])
    result = slice_along(ReluModel(hidden, [1.0], [0.0], 0.3).surface(), "means", 0, values=31)
    assert result.verdict == "ambiguous"


def test_about_a_model_that_is_not_the_truth_a_slice_fails():
    wrong = ReluModel(PRIOR, [1.3, -0.7], [1.0, 0.9], 0.3)
    result = slice_along(INJECTIVE.surface(), "biases", 0, centre=wrong, values=31)
    assert result.verdict == "fails"
    assert abs(result.values[result.excess.argmin()] - 0.4) < 0.11


def test_remark_3_12_two_priors_that_the_absolute_value_cannot_tell_apart():
    one, other = (
        GaussianMixture.from_arrays(weights, np.array(means, dtype=float), np.full(3, 0.04))
        for weights, means in (ORACLE["P"], ORACLE["Pprime"])
    )
    assert abs(ReluModel(one, **ABSOLUTE).surface().excess(ReluModel(other, **ABSOLUTE))) < 1e-12
    assert standardised_distance(one, other) > 0.5
    seen = ABSOLUTE | {"readout": None}
    assert ReluModel(one, **seen).surface().excess(ReluModel(other, **seen)) > 1


def test_along_the_second_mean_the_absolute_value_has_two_minimisers():
    weights, means = ORACLE["P"]
    truth = ReluModel(GaussianMixture.from_arrays(weights, np.array(means, float), np.full(3, 0.04)), **ABSOLUTE)
    result = slice_along(truth.surface(), "means", 1, values=31)
    assert result.verdict == "ambiguous"
    assert_allclose(result.rival, 1)
    assert result.valleys == 2


def test_a_search_finds_the_truth_and_nothing_else():
    result = search(INJECTIVE, starts=2)
    assert result.verdict == "holds"
    assert result.best.excess < 1e-9
    assert result.apart < 1e-3


def test_a_search_with_too_few_components_stays_above_the_truth():
    result = search(INJECTIVE, components=1, starts=1)
    assert result.verdict == "fails"
    assert result.best.excess > 1e-3
    assert result.rival is result.best


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"noise": 0.0}, "noise must be a finite number above 0; got 0.0"),
        ({"slopes": [0.0]}, "slopes must not be 0"),
        ({"biases": [0.0, 1.0]}, r"the same shape \(h,\); got \(1,\) and \(2,\)"),
        ({"readout": [1.0, 1.0]}, "readout must have shape \\(1,\\); got \\(2,\\)"),
        ({"prior": GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])}, "must have one latent; got 2"),
        ({"prior": GaussianMixture.from_arrays([1.0], [0.0], [0.0])}, "variance above 0"),
    ],
)
def test_invalid_models_raise(change, said):
    with pytest.raises(InputError, match=said):
        ReluModel(**{"prior": PRIOR, "slopes": [1.0], "biases": [0.0], "noise": 0.3} | change)


def test_invalid_arguments_raise():
    with pytest.raises(InputError, match="got means 7"):
        slice_along(INJECTIVE.surface(), "means", 7)
    with pytest.raises(InputError, match="values must be an integer of at least 7; got 3"):
        slice_along(INJECTIVE.surface(), "means", 0, values=3)
    with pytest.raises(InputError, match="components must be an integer of at least 1; got 0"):
        search(INJECTIVE, components=0)
    with pytest.raises(InputError, match="step must be larger"):
        INJECTIVE.surface(step=0.001)
