"""Runs that differ by an affine map agree, and others do not."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.mixture import GaussianMixture
from congruence.mixture.agreement import LatentSpace, compare_spaces

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["mcc"]
PRIOR = GaussianMixture.from_arrays(
    [0.2, 0.3, 0.5], [[0, 0], [3, 1], [-1, 2]], [[[1, 0.2], [0.2, 0.5]], [[0.5, 0], [0, 0.5]], [[0.3, 0], [0, 0.4]]]
)
MATRIX, SHIFT = np.array([[1.5, 0.3], [-0.4, 0.8]]), np.array([0.7, -1.0])


@pytest.fixture(scope="module")
def moved():
    """One run, the same after an affine map, and one whose codes were shuffled."""
    z = PRIOR.sample(400, seed=1)
    shuffled = np.random.default_rng(0).permutation(z)
    spaces = [
        LatentSpace("one", z, PRIOR),
        LatentSpace("two", z @ MATRIX.T + SHIFT, PRIOR.pushed(MATRIX, SHIFT)),
        LatentSpace("three", shuffled, GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])),
    ]
    return compare_spaces(spaces)


def test_an_affine_map_is_found_both_ways(moved):
    for names in (("one", "two"), ("two", "one")):
        pair = moved[names]
        assert pair.affine.distance < 1e-3
        assert pair.affine.before.distance > 0.1
        assert_allclose([pair.weak, pair.weak_held_out], 1, atol=1e-9)
        assert pair.strong < 0.999
    assert_allclose(moved.aligned("one", "two"), moved.spaces[1].codes, atol=1e-2)


def test_rows_that_do_not_belong_together_are_not_alike(moved):
    pair = moved["one", "three"]
    assert pair.weak < 0.2
    assert pair.affine.relative > 0.1
    assert moved.spread("weak").pairs == len(moved.pairs) == 6
    assert moved.verdict.startswith("Over 6 ordered pairs of 3 runs, the MCC of the codes is ")
    assert "The affine distance of the priors is at most " in moved.verdict


def test_mcc_is_that_of_the_oracle():
    x, z = np.array(ORACLE["X"]), np.array(ORACLE["Zn"])
    pair = compare_spaces([LatentSpace("x", x), LatentSpace("z", z)])["x", "z"]
    assert_allclose([pair.strong, pair.weak], [ORACLE["strong_XZn"], ORACLE["weak_XZn"]])
    assert np.isnan(pair.weak_held_out)  # eight rows


def test_without_priors_codes_are_aligned_by_their_rows(moved):
    plain = compare_spaces([LatentSpace(one.name, one.codes) for one in moved.spaces[:2]])
    assert plain["one", "two"].affine is None
    assert plain.spread("distance").pairs == 0
    assert "affine" not in plain.verdict
    assert_allclose(plain.aligned("one", "two"), moved.spaces[1].codes, atol=1e-8)
    assert_allclose(plain.aligned("one", "one"), plain.spaces[0].codes)
    assert not plain.spaces[0].states.any()


def test_pairs_without_an_mcc_are_not_counted_with_the_others():
    z = PRIOR.sample(60)
    result = compare_spaces([LatentSpace("a", z), LatentSpace("b", z[:, ::-1]), LatentSpace("c", np.ones((60, 2)))])
    assert result.verdict.startswith("Over the 2 of 6 ordered pairs whose codes vary, the MCC")
    assert "and 1 up to a linear map (weak; held out 1)." in result.verdict
    assert result.spread("strong").pairs == 2


def test_states_are_the_most_likely_components():
    drawn = PRIOR.draw(300, seed=0)
    assert np.mean(LatentSpace("one", drawn.latents, PRIOR).states == drawn.states) > 0.9


def test_json_holds_every_pair(moved):
    result = json.loads(json.dumps(moved.to_dict()))
    assert [run["components"] for run in result["runs"]] == [3, 3, 1]
    assert len(result["pairs"]) == 6
    assert set(result["pairs"][0]["mcc"]) == {"strong", "weak", "weak_held_out"}
    assert result["over_pairs"]["distance"]["pairs"] == 6


def test_what_cannot_be_compared_is_refused():
    z = PRIOR.sample(10)
    with pytest.raises(InputError, match="spaces must hold at least 2 runs; got 1"):
        compare_spaces([LatentSpace("one", z)])
    with pytest.raises(InputError, match="different names; got a, a"):
        compare_spaces([LatentSpace("a", z), LatentSpace("a", z)])
    with pytest.raises(InputError, match=r"the same shape; got \[\(9, 2\), \(10, 2\)\]"):
        compare_spaces([LatentSpace("a", z), LatentSpace("b", z[1:])])
    with pytest.raises(InputError, match="codes of a must have 2 columns, .*; got 3"):
        LatentSpace("a", np.zeros((4, 3)) + np.arange(3), PRIOR)
