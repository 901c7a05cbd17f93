import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics._sap import sap

CASES = [
    "s2_signed_permutation_continuous",
    "s3_rotation_discrete",
    "s4_overcomplete_inactive_warped",
    "s5_quantised_latents",
    "s6_redundant_copies",
    "s7_grid_mixed",
]


def first_70(n):
    count = int(np.ceil(0.7 * n))
    return {"train": np.arange(count), "test": np.arange(count, n)}


@pytest.mark.parametrize("case", CASES)
def test_the_discrete_route_agrees_with_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    got = sap(codes, factors, route="discrete", **first_70(len(codes)))
    assert_allclose(got.matrix.T, expected["sap_discrete_split70"]["matrix"], atol=0.02)
    assert got.sap == pytest.approx(expected["sap_discrete_split70"]["score"], abs=0.02)


@pytest.mark.parametrize("case", CASES)
def test_the_continuous_route_agrees_with_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    got = sap(codes, factors, route="continuous")
    assert_allclose(got.matrix.T, expected["sap_continuous"]["matrix"], atol=1e-9)
    assert got.sap == pytest.approx(expected["sap_continuous"]["score"], abs=1e-9)


def test_each_factor_goes_its_own_way_and_it_is_said(rng):
    number, word = rng.normal(size=300), rng.choice(["x", "y"], 300)
    codes = np.column_stack([number, word == "y", rng.normal(size=300)])
    got = sap(codes, {"number": number, "word": word})
    assert got.routes == ("continuous", "discrete")
    assert_array_equal(got.matrix.argmax(1), [0, 1])
    assert got.per_factor[0] > 0.95
    assert got.per_factor[1] > 0.3
    assert any("some by squared correlation" in note for note in got.notes)


def test_a_circular_factor_is_correlated_with_its_cosine_and_sine(rng):
    angle = rng.uniform(0, 2 * np.pi, 500)
    codes = np.column_stack([3 * np.cos(angle + 0.7), rng.normal(size=500)])
    got = sap(codes, {"angle": angle}, kinds="circular")
    assert_allclose(got.matrix[0, 0], 1)
    assert got.sap > 0.95


def test_noise_is_at_chance(rng):
    factors = np.column_stack([rng.integers(4, size=2000), rng.normal(size=2000)])
    assert sap(rng.normal(size=(2000, 4)), factors).sap < 0.03


def test_order_and_sign_do_not_matter_and_scale_only_to_the_discrete_route(oracle):
    codes, factors, _ = oracle("s7_grid_mixed")
    first = sap(codes, factors)
    other = sap(-codes[:, ::-1], factors[:, ::-1])
    assert_allclose(other.matrix, first.matrix[::-1, ::-1], atol=1e-12)
    scaled = sap(codes * [1, 5, 1e3, 1e-2] + 7, factors, route="continuous")
    assert_allclose(scaled.matrix, sap(codes, factors, route="continuous").matrix, atol=1e-9)


def test_constant_codes_and_factors_and_too_few_codes(rng):
    factor = rng.normal(size=100)
    got = sap(np.column_stack([factor, np.ones(100)]), np.column_stack([factor, np.ones(100)]), kinds="continuous")
    assert_allclose(got.matrix, [[1, 0]])
    assert {"factor1: left out, because it is constant.", "1 of 2 codes is constant."} <= set(got.notes)
    assert "only one code" in sap(factor[:, None], factor).reasons["sap"]
    assert "No factor varies" in sap(rng.normal(size=(9, 2)), np.ones((9, 1))).reasons["sap"]
    lonely = sap(rng.normal(size=(50, 2)), {"a": np.arange(50) == 49}, train=np.arange(40), test=np.arange(40, 50))
    assert_allclose(lonely.matrix, 0.9)  # the training rows have one class, which is that of nine rows of ten


def test_words_have_no_correlation():
    with pytest.raises(InputError, match="factor a is made of words"):
        sap(np.eye(4), {"a": np.array(list("xyxy"))}, route="continuous")
    with pytest.raises(InputError, match="route must be one of 'auto', 'discrete', 'continuous'; got 'x'"):
        sap(np.eye(4), np.eye(4), route="x")


def test_codes_on_which_machines_do_not_converge_have_a_reason(rng):
    shape = rng.integers(0, 3, 200)
    codes = np.column_stack([shape, rng.normal(size=200)])
    found = sap(codes * 1e40, {"shape": shape})
    assert np.isnan(found.sap)
    assert "e+40, where support vector machines do not converge" in found.reasons["sap"]
    assert not sap(codes, {"shape": shape}).reasons


@pytest.mark.parametrize("away", [lambda z: z * 1e6, lambda z: z * 1e-6, lambda z: z + 1e8])
def test_codes_far_from_unit_size_are_noted(rng, away):
    shape = rng.integers(0, 3, 200)
    codes = np.column_stack([shape, rng.normal(size=200)])
    assert any("score low: code 0, 1" in note for note in sap(away(codes), {"shape": shape}).notes)
    assert not any("score low" in note for note in sap(codes, {"shape": shape}).notes)
