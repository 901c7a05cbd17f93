import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

from congruence.maps.matching import strong_mcc, weak_mcc
from congruence.metrics._mcc import mcc

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["mcc"]


@pytest.mark.parametrize(
    ("other", "strong", "weak"), [("Z_rotated", "strong_XZ", "weak_XZ"), ("Zn", "strong_XZn", "weak_XZn")]
)
def test_strong_and_weak_agree_with_the_reference(other, strong, weak):
    got = mcc(ORACLE[other], np.array(ORACLE["X"]), kinds="continuous")
    assert got.mcc == pytest.approx(ORACLE[strong], abs=1e-12)
    assert got.mcc_weak == pytest.approx(ORACLE[weak], abs=1e-9)


def test_a_signed_permutation_is_found():
    got = mcc(ORACLE["Y_signed_perm"], np.array(ORACLE["X"]), kinds="continuous")
    assert got.scores == pytest.approx({"mcc": 1, "mcc_spearman": 1, "mcc_weak": 1})
    assert_array_equal(got.matched, ORACLE["assign_XY"])
    assert_allclose(got.pearson[[0, 1, 2], got.matched], [1, -1, 1])


def test_it_is_the_mcc_of_the_maps_and_ranks_are_those_of_scipy(rng):
    factors = rng.normal(size=(200, 3))
    codes = np.exp(factors @ rng.normal(size=(3, 4)) / 3)
    got = mcc(codes, factors)
    assert got.mcc == pytest.approx(strong_mcc(codes, factors), abs=1e-12)
    assert got.mcc_weak == pytest.approx(weak_mcc(codes, factors), abs=1e-9)
    assert_allclose(got.spearman, spearmanr(factors, codes).statistic[:3, 3:], atol=1e-12)


def test_increasing_functions_do_not_matter_to_ranks_nor_linear_maps_to_the_weak_one(rng):
    factors = rng.normal(size=(300, 3))
    codes = factors[:, [2, 0, 1]] + 0.3 * rng.normal(size=(300, 3))
    first = mcc(codes, factors)
    assert mcc(np.exp(codes) * [1, -5, 2] + 9, factors).mcc_spearman == pytest.approx(first.mcc_spearman)
    assert mcc(codes * [1, -5, 2] + 9, factors).mcc == pytest.approx(first.mcc)
    assert mcc(codes @ rng.normal(size=(3, 3)), factors).mcc_weak == pytest.approx(first.mcc_weak)
    assert_array_equal(first.matched, [1, 2, 0])


def test_noise_is_near_nothing(rng):
    got = mcc(rng.normal(size=(5000, 3)), rng.normal(size=(5000, 3)))
    assert max(got.scores.values()) < 0.05


def test_factors_that_no_code_is_left_for_count_as_nothing(rng):
    factors = rng.normal(size=(100, 4))
    got = mcc(np.column_stack([factors[:, 2], -factors[:, 0], np.ones(100)]), factors)
    assert got.mcc == pytest.approx(0.5)
    assert got.mcc_weak == pytest.approx(0.5)
    assert (got.matched < 0).sum() == 1
    assert any("which counts as 0" in note for note in got.notes)
    assert mcc(np.ones((100, 2)), factors).scores == {"mcc": 0, "mcc_spearman": 0, "mcc_weak": 0}


def test_circles_are_two_columns_and_classes_without_order_are_left_out(rng):
    angle = rng.uniform(0, 360, 300)
    factors = {"angle": angle, "shape": rng.choice(["a", "b", "c"], 300), "lit": rng.choice(["no", "yes"], 300)}
    codes = np.column_stack([factors["lit"] == "yes", np.sin(np.radians(angle)), -np.cos(np.radians(angle))])
    got = mcc(codes.astype(float), factors, kinds={"angle": "circular"})
    assert got.columns == ("angle (cos)", "angle (sin)", "lit")
    assert_array_equal(got.matched, [2, 1, 0])
    assert got.mcc == pytest.approx(1)
    assert "shape: left out, because unordered classes cannot be correlated." in got.notes
    alone = mcc(codes.astype(float), {"shape": factors["shape"]})
    assert "unordered classes" in alone.reasons["mcc"]
    assert "No factor varies" in mcc(codes.astype(float), np.ones(300)).reasons["mcc_weak"]


def test_numbers_guessed_to_be_classes_stay_numbers(rng):
    factor = rng.integers(5, size=200)
    got = mcc(factor[:, None], factor)
    assert got.mcc == pytest.approx(1)
    assert "factor0: few distinct values, used as numbers." in got.notes


def test_too_few_rows_for_the_weak_one(rng):
    got = mcc(rng.normal(size=(8, 5)), rng.normal(size=(8, 3)))
    assert np.isnan(got.mcc_weak)
    assert "8 rows are too few: 8 directions" in got.reasons["mcc_weak"]
    some = mcc(rng.normal(size=(40, 5)), rng.normal(size=(40, 3)))
    assert any("40 rows are few for 5 codes" in note for note in some.notes)
    assert np.isnan(mcc([[1.0, 2.0]], [[1.0]]).mcc)
