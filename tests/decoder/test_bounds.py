"""The theorems as functions: oracles, when they apply, when they are empty, and what they never hide."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from congruence import decoder, diameter
from congruence.decoder.bounds import dynamical_isometry, isometric_constant, isometry_factor, theorem1, theorem3
from congruence.decoder.certificates import StretchCertificate
from congruence.errors import InputError
from congruence.maps.nearness import statistical_from_structural

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "theory.json").read_text())


@dataclass
class Known:
    constant: float
    dimension: int
    certified: bool


def test_our_constant_agrees_with_the_oracle():
    expected = ORACLE["isometric_constant"]
    assert_allclose([isometric_constant(n) for n in expected["n"]], expected["c_n"], rtol=1e-12)


def test_theorem_1_agrees_with_the_oracle():
    assert len(ORACLE["theorem1"]["rows"]) > 20
    for row in ORACLE["theorem1"]["rows"]:
        result = theorem1(row["Lambda"], row["Delta"], row["D"])
        paper = row["eps_paper_form_with_our_c"]
        assert (result.paper is None) == (paper is None)
        assert result.applies == (row["Lambda"] <= math.sqrt(2))
        if paper is not None:
            assert_allclose(result.paper, paper, rtol=1e-6)
        assert_allclose(
            [result.general, result.trivial, result.epsilon],
            [row["eps_general"], row["eps_trivial_jung"], row["eps_best"]],
            rtol=1e-6,
        )


def test_theorem_3_agrees_with_the_oracle():
    for row in ORACLE["theorem3"]:
        result = theorem3(1 + row["L"], 1 + row["delta"], 1.0, 2)
        assert_allclose(result.near_isometry, row["eps_rel_sharp"], atol=1e-12)
        assert_allclose(result.paper, isometric_constant(2) * math.sqrt(row["eps_rel_paper"]), rtol=1e-6)
        assert_allclose(result.sharp, isometric_constant(2) * math.sqrt(row["eps_rel_sharp"]), rtol=1e-6)


def test_dynamical_isometry_and_a5_agree_with_the_oracle():
    for row in ORACLE["dynamical_isometry"]:
        result = dynamical_isometry(row["delta"])
        assert_allclose([result.paper, result.tight], [row["paper"], row["tight"]], rtol=1e-6)
    for row in ORACLE["structural_implies_statistical"]["rows"]:
        assert_allclose(statistical_from_structural(row["eps"], row["C"]), row["out"], rtol=1e-6)


@pytest.mark.parametrize(
    ("stretch", "dimension", "vacuous"), [(1.0, 8, False), (1.001, 32, False), (1.01, 8, True), (1.05, 1, True)]
)
def test_a_bound_no_better_than_the_trivial_one_is_vacuous(stretch, dimension, vacuous):
    assert theorem1(stretch, 1.0, dimension).vacuous is vacuous


def test_the_form_of_the_paper_ends_at_the_square_root_of_two():
    assert theorem1(math.sqrt(2), 1.0, 2).applies
    beyond = theorem1(1.42, 1.0, 2)
    assert not beyond.applies
    assert beyond.paper is None
    assert "Λ ≤ √2" in beyond.reason


def test_a_constant_of_your_own_is_used_and_named_as_yours():
    result = theorem1(1.1, 2.0, 8, constant=0.1)
    assert_allclose(result.paper, 0.1 * math.sqrt(0.21) * 2)
    assert result.epsilon == result.paper
    assert result.isometric_constant_from == "yours"
    assert not result.vacuous
    assert theorem1(1.1, 2.0, 8).isometric_constant_from == "ours"


@pytest.mark.parametrize("certified", [True, False])
def test_the_bound_knows_whether_its_constant_is_certified(certified):
    result = theorem1(Known(1.05, 3, certified), 1.0)
    assert result.dimension == 3
    assert result.certified is certified
    assert ("lower estimate" in str(result)) is not certified
    assert theorem1(1.05, 1.0, 3).basis == "given"


def test_one_sampled_constant_makes_theorem_3_an_estimate():
    certified, sampled = Known(1.1, 3, True), Known(1.1, 3, False)
    assert theorem3(certified, certified, 1.0).certified
    assert not theorem3(certified, sampled, 1.0).certified
    assert theorem3(certified, 1.1, 1.0).basis == "given"


def test_a_map_that_loses_a_direction_has_no_bound():
    result = theorem1(math.inf, 1.0, 3)
    assert result.epsilon == math.inf
    assert result.vacuous
    assert "loses a direction" in result.reason


def test_an_inexact_diameter_counts_with_its_upper_end(rng):
    size = diameter(rng.normal(size=(50, 3)))
    assert theorem1(1.01, size, 3).diameter == size.high


def test_results_print_and_become_dicts():
    result = theorem1(1.01, 1.0, 2)
    assert "epsilon = 0.6742" in str(result)
    assert "c_2 = 5.796, ours" in str(result)
    assert result.to_dict()["epsilon"] == result.epsilon
    assert result.to_dict()["vacuous"] is False
    assert "1.11111" in str(dynamical_isometry(0.1))
    assert set(dynamical_isometry(0.1).to_dict()) == {"deviation", "paper", "tight"}


@given(st.floats(1, 1.414), st.integers(1, 600))
def test_the_general_form_is_never_above_that_of_the_paper(stretch, n):
    result = theorem1(stretch, 1.0, n)
    assert result.general <= result.paper * (1 + 1e-9)
    assert isometry_factor(n + 1) > isometry_factor(n)


def test_the_bound_holds_for_a_near_isometry(rng):
    """A bent square and its best rigid motion: nowhere farther than the bound of the general form."""
    from congruence import fit_map

    x = rng.uniform(-1, 1, size=(400, 2))
    for bend in (0.01, 0.1, 0.3):
        y = x + bend * np.column_stack([np.sin(x[:, 1]), np.cos(x[:, 0])])
        moved = np.linalg.norm(fit_map(x, y, "rigid")(x) - y, axis=1).max()
        stretch = 1 / (1 - bend)  # singular values of the Jacobian lie within bend of 1
        assert moved < theorem1(math.sqrt(stretch), 2 * math.sqrt(2), 2).general


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theorem1(0.9, 1.0, 2), "b, a bi-Lipschitz constant, must be at least 1; got 0.9"),
        (lambda: theorem1("wide", 1.0, 2), "b must be a number or a result of bilipschitz; got str"),
        (lambda: theorem1(math.nan, 1.0, 2), "at least 1; got nan"),
        (lambda: theorem1(1.1, 0.0, 2), "diameter must be a finite number above 0; got 0.0"),
        (lambda: theorem1(1.1, 1.0), "dimension, the number of latents, must be set"),
        (lambda: theorem1(1.1, 1.0, 0), "dimension must be an integer of at least 1; got 0"),
        (lambda: theorem1(1.1, 1.0, 2, constant=-1), "constant must be a finite number above 0; got -1"),
        (lambda: theorem3(1.1, 0.5, 1.0, 2), "generator, a bi-Lipschitz constant, must be at least 1; got 0.5"),
        (lambda: dynamical_isometry(1.0), "deviation must be at least 0 and below 1; got 1.0"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_public_names_can_be_imported():
    for name in decoder.__all__:
        assert callable(getattr(decoder, name))
    assert set(decoder.__all__) <= set(dir(decoder))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = decoder.nothing


def test_theorem_1_takes_the_constants_of_both_decoders():
    alone, same = theorem1(1.001, 1.0, 2), theorem1(1.001, 1.0, 2, other=1.001)
    assert_allclose([same.paper, same.general, same.trivial], [alone.paper, alone.general, alone.trivial])
    mixed = theorem1(1.0, 1.0, 2, other=1.001)
    assert alone.epsilon > mixed.epsilon > 0
    assert theorem1(1.0, 1.0, 2, other=20.0).vacuous
    assert (mixed.other, mixed.generator) == (1.001, None)


def test_theorem_1_up_to_a_similarity_uses_rescaled_constants():
    stretched = StretchCertificate(6.99, 7.01, 3, "layers")
    assert theorem1(stretched, 1.0).vacuous
    similar = theorem1(stretched, 1.0, up_to="similarity")
    assert not similar.vacuous
    assert_allclose(similar.constant, math.sqrt(7.01 / 6.99))
    assert_allclose(similar.trivial, math.sqrt(3 / 8))  # a map may shrink the other set to a point
    with pytest.raises(InputError, match="up_to must be one of 'rigid', 'similarity'; got 'linear'"):
        theorem1(1.0, 1.0, 2, up_to="linear")
