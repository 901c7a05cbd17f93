"""The claims follow the numbers, in both directions, and the recipe runs."""

import dataclasses

import numpy as np
import pytest

from congruence.document import share
from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes._files import read_numbers
from congruence.experiments.recipes._isometry import PairError
from congruence.experiments.recipes.claims import Estimate
from congruence.experiments.recipes.statistical_versus_structural import run as method
from congruence.experiments.recipes.statistical_versus_structural.claims import (
    judge_masking,
    judge_regression,
    masking_table,
    ratio,
)
from congruence.experiments.recipes.statistical_versus_structural.regression import fit_draws, measure_regression
from congruence.experiments.recipes.statistical_versus_structural.run import MaskingLevel, draw_images, measure_level
from congruence.maps.nearness import HeldOut

TINY = {"sizes": [20, 50], "draws": 4, "visible": [6, 2], "runs": 2, "rows": 130}
TINY |= {"hidden": 8, "steps": 3, "batch": 8, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def regression():
    sizes = [100, 1000, 10_000]
    return measure_regression(sizes, [fit_draws(n, 60, np.random.default_rng(n)) for n in sizes], 0)


def errors(*means):
    """Of three runs, or of their three pairs."""
    held = [HeldOut(mean, mean, mean) for mean in (means if len(means) > 1 else 3 * means)]
    return tuple(PairError(0.1, 0.1, one, 0.4) for one in held)


def level(visible, **changes):
    found = {"visible": visible, "unexplained": (0.01, 0.01, 0.01), "stretch": (1.1,), "pictures": errors(0.01)}
    found |= {"codes": errors(0.01, 0.012, 0.011), "rigid": errors(0.02), "linear": errors(0.02), "expected": ()}
    found |= {"least": None, "least_unexplained": None}
    if visible == 2:
        found |= {"unexplained": (0.3, 0.3, 0.3), "rigid": errors(0.15, 0.16, 0.15), "linear": errors(0.14, 0.15, 0.14)}
        found |= {"expected": errors(0.03), "least": 0.13, "least_unexplained": 0.29}
    return MaskingLevel(**found | changes)


def held(claims):
    return [claim.status for claim in claims]


def test_all_claims_of_the_regression_hold(regression):
    assert held(judge_regression(regression)) == ["holds"] * 4


@pytest.mark.parametrize(
    ("change", "fallen"),
    [
        ({"starts": 1e-3}, 0),
        ({"exponents": {"between": (0.0, -0.1, 0.1)}}, 0),
        ({"exponents": {"between": (-0.6, -0.7, -0.5)}}, 0),
        ({"least_to_truth": np.array([0.3, 0.1, 0.03])}, 1),
        ({"exponents": {"to_nearest": (-0.01, -0.02, 0.0)}}, 2),
        ({"exponents": {"right": (-0.01, -0.02, 0.0)}}, 3),
    ],
)
def test_a_claim_of_the_regression_falls_with_its_numbers(change, fallen, regression):
    exponents = {"exponents": dict(regression.exponents) | change.pop("exponents", {})}
    claims = judge_regression(dataclasses.replace(regression, **change, **exponents))
    assert [i for i, claim in enumerate(claims) if claim.status != "holds"] == [fallen]


def test_all_claims_of_the_masked_autoencoder_can_hold():
    assert held(judge_masking([level(6), level(3), level(2)])) == ["holds"] * 5
    assert held(judge_masking([level(6), level(2)])) == ["holds"] * 4


@pytest.mark.parametrize(
    ("where", "change", "fallen"),
    [
        (2, {"pictures": errors(0.06)}, [0]),
        (2, {"unexplained": (0.01, 0.3, 0.3)}, [0]),
        (2, {"codes": errors(0.01, 0.055, 0.03)}, [0, 1]),
        (2, {"linear": errors(0.02, 0.3, 0.3)}, [1]),
        (2, {"rigid": errors(0.03)}, [1, 2]),
        (2, {"expected": errors(0.01, 0.08, 0.04)}, [2]),
        (6, {"rigid": errors(0.01, 0.06, 0.05)}, [3]),
        (6, {"unexplained": (0.01, 0.03, 0.02)}, [3]),
        (3, {"rigid": errors(0.06)}, [4]),
    ],
)
def test_a_claim_of_the_masked_autoencoder_falls_with_its_numbers(where, change, fallen):
    levels = [level(visible, **(change if visible == where else {})) for visible in (6, 3, 2)]
    assert [i for i, claim in enumerate(judge_masking(levels)) if claim.status != "holds"] == fallen


def test_what_is_not_known_in_closed_form_is_a_dash():
    table = masking_table([level(6), level(2)])
    assert {row[2] for row in table.rows if "E[" in row[0]} == {None}
    assert [row[3] for row in table.rows if "E[" in row[0]] == [share(0.13), share(0.03)]


def test_the_error_of_codes_that_are_the_factors_rotated_is_nothing(rng):
    rows = draw_images(130, 2, 0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    exact = {"codes": rows.factors @ turn + 1, "pictures": rows.pictures.reshape(130, -1), "stretch": np.ones(130)}
    found = measure_level(rows, [exact, exact | {"codes": rows.factors}], 0)
    for one in (*found.codes, *found.pictures, *found.rigid, *found.linear):
        assert one.held_out.mean < 1e-10
    assert found.unexplained == (0, 0)
    assert found.least == pytest.approx(found.expected[0].mean, rel=0.3)  # factors are as far from their mean


def test_the_recipe_gives_the_same_for_the_same_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": TINY})
    options = {"scale": "smoke", "device": "cpu"}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        reproduce("statistical-versus-structural", tmp_path / name, seed=seed, **options)
    one, same, other = ((tmp_path / name / "result.json").read_text() for name in "abc")
    assert one == same
    ours = [read_numbers(tmp_path / name)["ours"] for name in "ac"]
    assert one != other
    assert ours[0]["example 1"]["between"] != ours[1]["example 1"]["between"]
    assert ours[0]["example 2"][0]["codes"] != ours[1]["example 2"][0]["codes"]


def test_untrained_networks_do_not_bear_out_the_claims(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "PARAMETERS", {"small": TINY})
    result = reproduce("statistical-versus-structural", tmp_path / "a", scale="small", device="cpu")
    assert result["factors-are-recovered-from-6-patches"].status == "fails"
    held = [finding for finding in result.findings if finding.status == "holds"]
    assert result.verdict == f"{len(held)} of {len(result.findings)} claims hold at this scale."


def test_a_ratio_whose_parts_may_be_zero_has_no_interval():
    assert ratio(Estimate(0.1, 0.08, 0.12), Estimate(0.01, 0.008, 0.02)) == pytest.approx((10, 4, 15))
    assert np.isnan(ratio(Estimate(0.1, 0.08, 0.12), Estimate(0.005, -0.001, 0.011))[1:]).all()
