"""Hidden variables behind a mixture, from the mixture and from samples, right or unknown."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.mixture import GaussianMixture, recover_hidden_states
from congruence.mixture.hidden_states import find_structure

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["P3_recovery"]


def planted(neighbourhoods, dims, m, rng, separation=6.0):
    """A mixture in which each cell of hidden states has its own place on the latents it touches."""
    states = np.indices(dims).reshape(len(dims), -1).T
    means, deviations = np.zeros((len(states), m)), np.zeros((len(states), m))
    for t in range(m):
        touching = [i for i, n in enumerate(neighbourhoods) if t in n]
        cells, which = np.unique(states[:, touching], axis=0, return_inverse=True)
        spread = np.exp(rng.uniform(-0.35, 0.35, len(cells)))
        steps = separation * np.maximum(spread[1:], spread[:-1]) * rng.uniform(1, 1.5, len(cells) - 1)
        places = np.append(0.0, np.cumsum(steps))
        means[:, t], deviations[:, t] = places[which.ravel()], spread[which.ravel()]
    weights = 0.01 + (1 - 0.01 * len(states)) * rng.dirichlet(np.ones(len(states)))
    return GaussianMixture.from_arrays(weights, means, deviations**2), states


CASES = [
    ([(0, 1), (1, 2), (3,)], (2, 3, 2), 4),
    ([(0,), (1,)], (2, 2), 2),
    ([(0, 1, 2)], (5,), 3),
    ([(0, 1, 2, 3), (2, 3, 4, 5), (0, 5)], (2, 3, 4), 6),
]


def test_the_structure_of_the_reference_is_recovered():
    prior = GaussianMixture.from_arrays(ORACLE["weights"], ORACLE["means"], np.ones((12, 4)))
    result = recover_hidden_states(prior)
    assert (result.status, result.confidence) == ("holds", 1.0)
    assert [list(n) for n in result.structure.neighbourhoods] == ORACLE["neighbourhoods"]
    assert list(result.structure.dims) == ORACLE["dims"]
    for ours, theirs in zip(result.structure.states.T, np.array(ORACLE["true_u"]).T, strict=True):
        assert len({*zip(ours, theirs, strict=True)}) == len({*theirs})  # names of states are arbitrary
    assert_allclose(result.structure.probabilities[tuple(result.structure.states.T)], ORACLE["weights"])


@pytest.mark.parametrize(("neighbourhoods", "dims", "m"), CASES)
def test_planted_structures_come_back_from_the_mixture_and_from_a_sample(neighbourhoods, dims, m):
    prior, _ = planted(neighbourhoods, dims, m, np.random.default_rng(0))
    expected = tuple(sorted(zip(neighbourhoods, dims, strict=True)))
    assert recover_hidden_states(prior).structure.key == expected
    result = recover_hidden_states(prior.sample(5000, seed=1))
    assert (result.status, result.structure.key) == ("holds", expected)
    sizes = np.sort(result.structure.probabilities.ravel())
    assert_allclose(sizes, np.sort(prior.weights), atol=0.02)


@pytest.mark.parametrize("separation", [1.0, 2.0, 3.0])
def test_close_components_are_unknown_rather_than_wrong(separation):
    for seed in range(3):
        prior, _ = planted(*CASES[0], np.random.default_rng(seed), separation)
        assert recover_hidden_states(prior.sample(4000, seed=seed)).status == "unknown"


def test_an_estimated_mixture_is_read_with_tolerance():
    rng = np.random.default_rng(3)
    prior, _ = planted(*CASES[0], rng)
    blurred = GaussianMixture(
        prior.weights,
        prior.means + 0.02 * rng.normal(size=prior.means.shape),
        prior.covariances * np.exp(0.02 * rng.normal(size=(prior.components, 1, 1))),
    )
    result = recover_hidden_states(blurred)
    assert (result.status, result.structure.key) == ("holds", recover_hidden_states(prior).structure.key)
    assert recover_hidden_states(blurred, rows=50_000).structure.key == result.structure.key
    assert recover_hidden_states(blurred, tolerance=0.3).structure.key == result.structure.key
    assert recover_hidden_states(blurred, tolerance=1e-4).structure.key != result.structure.key


def test_states_that_differ_in_variance_alone_are_states():
    prior = GaussianMixture.from_arrays(np.full(4, 0.25), np.zeros((4, 2)), [[1, 1], [1, 9], [4, 1], [4, 9]])
    assert recover_hidden_states(prior).structure.key == (((0,), 2), ((1,), 2))


def test_counts_that_fit_no_structure_give_the_reason():
    labels = np.array([[0, 0], [0, 1], [1, 0]])  # three of the four cells of two binary variables
    assert "latents" in find_structure(labels, np.ones(3) / 3)
    nested = np.array([[0, 0], [0, 1], [1, 2], [1, 3]])  # latent 1 alone tells a variable within the other's reach
    assert "P3 (c) excludes" in find_structure(nested, np.ones(4) / 4)
    assert find_structure(np.zeros((1, 2), int), np.ones(1)).dims == ()
    assert "same labels" in find_structure(np.zeros((2, 2), int), np.ones(2) / 2)


def test_latents_that_depend_on_each_other_within_components_are_not_counted():
    rng = np.random.default_rng(0)
    prior, _ = planted(*CASES[1], rng)
    turned = prior.pushed([[1.0, 1.0], [-1.0, 1.0]])
    assert "canonical axes" in recover_hidden_states(turned).reason
    tied = GaussianMixture(prior.weights, prior.means, prior.covariances * [[1, 0], [0, 1]] + [[0, 0.4], [0.4, 0]])
    assert "canonical axes" in recover_hidden_states(tied.sample(4000)).reason


def test_a_peak_that_moves_with_another_latent_is_more_than_one_component():
    near = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [0.6, 8.0]], [1.0, 1.0])  # latent 0 shows one peak
    assert "unresolved components" in recover_hidden_states(near.sample(4000)).reason
    wider = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [0.0, 8.0]], [[1.0, 1.0], [1.6, 1.0]])
    assert "unresolved components" in recover_hidden_states(wider.sample(4000)).reason


def test_a_latent_that_does_not_vary_is_no_obstacle():
    prior = GaussianMixture.from_arrays([0.5, 0.5], [0.0, 8.0], [1.0, 1.0])
    result = recover_hidden_states(np.column_stack([prior.sample(1000), np.full(1000, 3.0)]))
    assert (result.status, result.structure.key) == ("holds", (((0,), 2),))
    flat = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 3.0], [8.0, 3.0]], [[1.0, 0.0], [1.0, 0.0]])
    tied = GaussianMixture(flat.weights, flat.means, flat.covariances + 1e-17)  # rounding next to a variance of 0
    assert recover_hidden_states(tied).structure.key == (((0,), 2),)


def test_one_component_has_no_hidden_variables():
    alone = GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])
    result = recover_hidden_states(alone)
    assert (result.status, result.k) == ("holds", 0)
    assert recover_hidden_states(alone.sample(500)).status == "unknown"  # close ones may be hidden
    json.dumps(result.to_dict())


def test_invalid_arguments_raise():
    with pytest.raises(InputError, match="at most 12 latents, since all subsets are counted; got 13"):
        recover_hidden_states(np.zeros((5, 13)))
    with pytest.raises(InputError, match="tolerance and rows apply to a mixture"):
        recover_hidden_states(np.zeros((5, 2)), tolerance=0.1)
    pair = GaussianMixture.from_arrays([0.5, 0.5], [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(InputError, match="tolerance must be a finite number at least 0; got -1"):
        recover_hidden_states(pair, tolerance=-1)
    for wrong in (0, "many"):
        with pytest.raises(InputError, match=f"rows must be an integer of at least 1; got {wrong!r}"):
            recover_hidden_states(pair, rows=wrong)
