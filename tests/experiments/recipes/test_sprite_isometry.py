"""The claims about squares follow the numbers, in both directions, and the recipe runs."""

import dataclasses
import json

import pytest
from numpy.testing import assert_allclose

from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.sprite_isometry import PARAMETERS, judge, measure_squares, present


@pytest.fixture(scope="module")
def squares():
    smoke = PARAMETERS["smoke"]
    return measure_squares(smoke["sizes"], smoke["sigmas"], smoke["positions"], lambda *_: None)


def test_all_claims_hold(squares):
    assert [claim.status for claim in judge(squares)] == ["holds"] * 4
    assert_allclose([squares.exponent, squares.factor], [0.5, 2.0], rtol=5e-3)


@pytest.mark.parametrize(("change", "fallen"), [({"drift": 1e-3}, 0), ({"mixed": 1e-3}, 1)])
def test_a_claim_falls_with_its_number(change, fallen, squares):
    claims = judge(dataclasses.replace(squares, **change))
    assert [i for i, claim in enumerate(claims) if claim.status != "holds"] == [fallen]


def test_squares_that_stay_smooth_are_not_conformal(squares):
    smooth = dataclasses.replace(squares, sigmas=squares.sigmas[:2], metrics=squares.metrics[:2])
    assert judge(smooth)[2].status == "fails"


def test_the_recipe_writes_its_result(tmp_path):
    done = reproduce("sprite-isometry", tmp_path / "squares", scale="smoke", device="cpu")
    result = json.loads((tmp_path / "squares" / "result.json").read_text())
    assert [one["status"] for one in result["findings"]] == [one.status for one in done.findings] == ["unknown"] * 4
    assert [one.status for one in present(done.ours, done.settings).findings] == ["holds"] * 4
    assert "formulas of the paper were missing" in result["notes"][0]
    assert (tmp_path / "squares" / "squares.svg").exists()
    assert "2r, as reported of the paper" in (tmp_path / "squares" / "table.md").read_text()
