from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import linear_model
from sklearn.metrics import roc_auc_score

from congruence.metrics._explicitness import _mean_area, explicitness

CASES = [
    "s1_identity_discrete",
    "s2_signed_permutation_continuous",
    "s3_rotation_discrete",
    "s4_overcomplete_inactive_warped",
    "s6_redundant_copies",
    "s7_grid_mixed",
]


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    count = int(np.ceil(0.7 * len(codes)))
    got = explicitness(codes, factors, train=np.arange(count), test=np.arange(count, len(codes)))
    want = expected["ridgeway_explicitness_rocauc_split70"]
    assert_allclose(got.train, want["train_per_factor"], atol=2e-4)
    assert_allclose(got.test, want["test_per_factor"], atol=2e-4)
    assert got.explicitness == pytest.approx(np.mean(want["test_per_factor"]), abs=2e-4)


def test_the_area_is_that_of_scikit_learn(rng):
    labels = rng.integers(4, size=200)
    scores = rng.integers(10, size=(200, 4)) + (labels[:, None] == np.arange(4)) * 2.0  # with ties
    member = labels[:, None] == np.arange(4)
    assert _mean_area(scores, member) == pytest.approx(roc_auc_score(member, scores))


def test_noise_is_at_one_half_and_a_rotation_of_the_factors_at_one(rng):
    factors = rng.integers(3, size=(2000, 3))
    noise = explicitness(rng.normal(size=(2000, 3)), factors)
    assert noise.explicitness == pytest.approx(0.5, abs=0.03)
    rotated = factors @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert explicitness(rotated, factors).explicitness > 0.8  # of three values in a row no line cuts out the middle
    assert explicitness(rotated, factors == 2).explicitness > 0.999


def test_order_sign_scale_and_shift_do_not_matter(oracle):
    codes, factors, _ = oracle("s6_redundant_copies")
    scale = np.array([-3, 1e3, 0.1, 5, -1, 2])
    first, other = explicitness(codes, factors), explicitness((codes * scale + 9)[:, ::-1], factors)
    assert_allclose(other.test, first.test, atol=1e-3)


def test_constant_codes_are_harmless_and_constant_factors_left_out(rng):
    factor = rng.integers(2, size=200)
    got = explicitness(np.column_stack([factor, np.full(200, 0.1)]), np.column_stack([factor, np.ones(200)]))
    assert got.explicitness == 1
    assert got.factors == ("factor0",)
    useless = explicitness(np.full((200, 2), 0.1), factor)
    assert useless.explicitness == 0.5
    assert "2 of 2 codes are constant." in useless.notes
    assert "No factor varies" in explicitness(rng.normal(size=(5, 1)), np.ones(5)).reasons["explicitness"]


def test_classes_on_one_side_only_are_left_out(rng):
    codes = rng.normal(size=(40, 2))
    labels = np.array(["a", "b"] * 15 + ["a", "c"] * 5)
    got = explicitness(codes, {"f": labels}, train=np.arange(30), test=np.arange(30, 40))
    assert np.isfinite(got.explicitness)
    alone = explicitness(codes, {"f": np.arange(40) > 38}, train=np.arange(30), test=np.arange(30, 40))
    assert "No factor has two classes in both" in alone.reasons["explicitness"]
    assert "f: not scored, because the training or the held-out rows have one class only." in alone.notes


def test_a_regression_that_stops_early_is_named(monkeypatch, oracle):
    codes, factors, _ = oracle("s7_grid_mixed")
    monkeypatch.setattr(linear_model, "LogisticRegression", partial(linear_model.LogisticRegression, max_iter=3))
    got = explicitness(codes, factors)
    assert "factor0, factor1, factor2: the regression stopped after 100 iterations." in got.notes
