"""The claims about likelihoods follow the numbers, in both directions, and the recipe runs."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.mixture_likelihood import run as method
from congruence.experiments.recipes.mixture_likelihood.claims import choose_slices, judge
from congruence.experiments.recipes.mixture_likelihood.run import (
    LikelihoodCase,
    SliceSummary,
    case_model,
    draw_model,
    measure_remark,
    split_heaviest,
)
from congruence.mixture.likelihood_minima import Slice

VALUES = np.linspace(-1, 1, 11)


def valley(excess):
    return Slice("means", 0, 0.0, VALUES, excess)


GOOD = valley(VALUES**2)
BENT = valley(VALUES**2 * (1.2 + np.cos(8 * VALUES)))
FLAT = valley(np.where(VALUES > 0.5, 0.0, VALUES**2))
BETTER = valley(np.where(VALUES > 0.5, -1e-3, VALUES**2))


def case(number=0, kind="right", injective=True, slices=(GOOD, BENT), excess=(0.0, 0.3), apart=(0.0, 0.9)):
    searched = kind == "right"
    ends = np.array(excess if searched else ()), np.array(apart if searched else ())
    summaries = tuple(SliceSummary(one.parameter, one.margin, one.valleys, one.verdict) for one in slices)
    return LikelihoodCase(number, kind, 2, injective, summaries, *ends)


def cases(**changes):
    rest = [case(1, "one too many"), case(2, "one too few"), case(3, injective=False)]
    return [case(0, **changes), *rest]


@pytest.fixture(scope="module")
def remark():
    return measure_remark(31)


def test_all_claims_hold(remark):
    assert [claim.status for claim in judge(cases(), remark)] == ["holds"] * 6


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"slices": (GOOD, FLAT)}, {0: "ambiguous"}),
        ({"slices": (GOOD, BETTER)}, {0: "fails"}),
        ({"slices": (FLAT,), "injective": False}, {0: "ambiguous", 1: "ambiguous"}),
        ({"slices": (BETTER,), "kind": "one too many"}, {0: "fails", 2: "fails"}),
        ({"apart": (0.0, 0.9), "excess": (0.0, 1e-8)}, {3: "ambiguous"}),
        ({"apart": (0.0, 0.9), "excess": (0.1, 0.2)}, {3: "ambiguous"}),
    ],
)
def test_a_claim_falls_with_its_numbers(change, expected, remark):
    claims = judge(cases(**change), remark)
    assert {i: claim.status for i, claim in enumerate(claims) if claim.status != "holds"} == expected


def test_a_counterexample_that_is_none_is_seen(remark):
    assert judge(cases(), dataclasses.replace(remark, excess=1e-3))[5].status == "fails"
    assert judge(cases(), dataclasses.replace(remark, apart=1e-3))[5].status == "fails"
    assert judge([case(slices=(GOOD,))], remark)[4].status == "fails"


def test_remark_3_12_is_exact(remark):
    assert abs(remark.excess) < 1e-12
    assert_allclose(remark.folded.rival, 1)
    assert remark.seen.verdict == "holds"
    assert remark.affine > 0.05


def test_models_follow_their_laws():
    models = [case_model(i, 0) for i in range(8)]
    assert {(m.prior.components, len(m.slopes)) for m in models} == {(2, 2), (3, 2)}
    for model in models:
        below = np.mean(model.prior.sample(5000, seed=1) < model.kinks, axis=0)
        assert ((below > 0.05) & (below < 0.95)).all()  # no unit is always or never active
    assert_allclose(draw_model(2, 1, 7).slopes, draw_model(2, 1, 7).slopes)


def test_a_component_written_twice_is_the_same_law():
    truth = case_model(1, 0)
    twice = split_heaviest(truth)
    assert twice.prior.components == truth.prior.components + 1
    assert abs(truth.surface().excess(twice)) < 1e-12


def test_slices_with_several_valleys_are_shown_first():
    shown = choose_slices([case(i) for i in range(9)])
    assert [one.slices[i].valleys > 1 for one, i in shown] == [True] * 4 + [False] * 2
    assert len({one.number for one, _ in shown}) == 6


def test_the_recipe_writes_its_result_and_goes_on_from_parts(tmp_path, monkeypatch):
    tiny = {"models": 2, "values": 9, "starts": 1}
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": tiny})
    done = reproduce("mixture-likelihood", tmp_path / "a", scale="smoke", device="cpu")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert [one["claim"] for one in result["findings"]] == [one.claim for one in done.findings]
    assert result["numbers"]["paper"]["unique"] == 50
    assert [one["components"] for one in done.ours["cases"]] == [2, 2]
    assert (tmp_path / "a" / "slices.svg").exists()
    (tmp_path / "a" / "result.json").unlink()
    monkeypatch.setattr(method, "measure_case", lambda *_, **__: pytest.fail("all of it is there"))
    reproduce("mixture-likelihood", tmp_path / "a", scale="smoke", device="cpu")
    assert json.loads((tmp_path / "a" / "result.json").read_text()) == result
