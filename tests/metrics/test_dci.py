import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError, MissingDependencyError
from congruence.metrics._dci import dci

CASES = ["s6_redundant_copies", "s7_grid_mixed"]


def rows(text):
    return np.arange(*map(int, text.split(":")))


@pytest.fixture
def small(rng):
    """Two factors of 2 and 3 classes, as codes with a little noise."""
    factors = np.column_stack([rng.integers(2, size=200), rng.integers(3, size=200)])
    return factors + 0.01 * rng.normal(size=factors.shape), factors


@pytest.mark.parametrize("case", CASES)
def test_boosting_agrees_with_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    want = expected["dci_gbt"]
    got = dci(codes, factors, train=rows(want["train_rows"]), test=rows(want["test_rows"]))
    assert_allclose(got.importance.T, want["importance"], atol=0.02)
    assert_allclose(got.importance.sum(1), 1)
    for name in ("disentanglement", "completeness", "informativeness_train", "informativeness_test"):
        assert getattr(got, name) == pytest.approx(want[name], abs=0.02), name


@pytest.mark.parametrize("case", CASES)
def test_the_forest_agrees_with_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    want = expected["dci_rf_tripod_3seeds"]
    got = dci(codes, factors, model="forest")
    assert_allclose(list(got.scores.values()), [want[letter]["mean"] for letter in "DCI"], atol=0.03)


@pytest.mark.parametrize("case", CASES)
def test_lightgbm_is_near_the_reference(case, oracle):
    codes, factors, expected = oracle(case)
    want = expected["dci_gbt"]
    got = dci(codes, factors, model="lightgbm", train=rows(want["train_rows"]), test=rows(want["test_rows"]))
    assert_array_equal(got.importance.argmax(1), np.argmax(want["importance"], 0))
    for name in ("disentanglement", "completeness", "informativeness_test"):
        assert getattr(got, name) == pytest.approx(want[name], abs=0.02), name


def test_entropies_are_those_of_the_importances(oracle):
    codes, factors, _ = oracle("s7_grid_mixed")
    got = dci(codes, factors, model="lightgbm")
    share = got.importance / got.importance.sum(0)
    by_hand = 1 + np.where(share > 0, share * np.log(np.maximum(share, 1e-300)), 0).sum(0) / np.log(3)
    assert_allclose(got.per_code, by_hand, atol=1e-6)
    assert got.disentanglement == pytest.approx(np.average(got.per_code, weights=got.importance.sum(0)))
    assert got.completeness == pytest.approx(got.per_factor.mean())  # each factor weighs the same


@pytest.mark.parametrize("model", ["boosting", "forest", "lightgbm"])
def test_the_factors_themselves_are_best_and_noise_is_at_chance(model, small, rng):
    codes, factors = small
    best = dci(codes, factors, model=model)
    # A forest must try codes at random, so even perfect ones share the work.
    assert min(best.scores.values()) > (0.6 if model == "forest" else 0.9)
    noise = dci(rng.normal(size=codes.shape), factors, model=model)
    assert noise.informativeness_test < 0.55  # chance is (1/2 + 1/3) / 2
    assert noise.disentanglement < 0.1
    assert max(best.scores.values()) <= 1


@pytest.mark.parametrize("model", ["boosting", "forest", "lightgbm"])
def test_numbers_are_predicted_by_regression(model, rng):
    factors = {"a": rng.normal(size=200), "angle": rng.uniform(0, 360, 200)}
    angle = 2 * np.pi * factors["angle"] / 360
    codes = np.column_stack([factors["a"], np.cos(angle), np.sin(angle)])
    got = dci(codes, factors, kinds={"angle": "circular"}, model=model)
    assert_array_equal(got.importance.argmax(1) > 0, [False, True])
    assert_allclose(got.importance[1, 1:], 0.5, atol=0.1)
    assert got.informativeness_test > 0.8
    assert any("a, angle: predicted by regression" in note for note in got.notes)
    assert dci(rng.normal(size=codes.shape), factors, kinds="continuous", model=model).informativeness_test < 0.1


def test_order_sign_scale_and_shift_of_the_codes_do_not_matter(small):
    codes, factors = small
    codes = np.column_stack([codes, np.sin(np.arange(200))]) @ np.linalg.qr([[5, 1, 2], [0, 4, 1], [1, 1, 3]])[0]
    first = dci(codes, factors, model="lightgbm")
    other = dci(codes[:, [2, 0, 1]] * [-1e-3, 5, 2e4] + 1e3, factors, model="lightgbm")
    assert_allclose(other.importance[:, [1, 2, 0]], first.importance, atol=0.02)
    assert_allclose(list(other.scores.values()), list(first.scores.values()), atol=0.02)


def test_the_same_seed_gives_the_same_numbers(small):
    for model in ("boosting", "forest", "lightgbm"):
        first, again = (dci(*small, model=model, seed=3, test=0.5) for _ in range(2))
        assert_array_equal(first.importance, again.importance)
        assert first.scores == again.scores


def test_one_factor_one_code_and_constant_ones(small):
    codes, factors = small
    one = dci(codes[:, :1], factors[:, :1], model="lightgbm")
    assert set(one.reasons) == {name for name, value in one.scores.items() if np.isnan(value)}
    assert set(one.reasons) == {"dci_disentanglement", "dci_completeness"}
    padded = dci(np.column_stack([codes, np.ones(200)]), np.column_stack([factors, np.ones(200)]), model="lightgbm")
    assert padded.factors == ("factor0", "factor1")
    assert padded.importance[:, 2].max() == 0
    assert {"factor2: left out, because it is constant.", "1 of 3 codes is constant."} <= set(padded.notes)
    nothing = dci(codes, np.ones((200, 2)), model="lightgbm")
    assert set(nothing.reasons) == set(nothing.scores)
    useless = dci(np.ones((200, 2)), factors)
    assert useless.disentanglement == pytest.approx(0, abs=1e-12)


def test_a_factor_that_is_constant_in_training_is_named(small):
    codes, factors = small
    factors = np.column_stack([factors, np.arange(200) == 199])
    got = dci(codes, factors, model="lightgbm", train=np.arange(120), test=np.arange(120, 200))
    assert np.isnan(got.test[2])
    assert got.informativeness_test > 0.9
    assert any("factor2: not scored" in note for note in got.notes)


def test_what_cannot_be_done_is_said(small, monkeypatch):
    codes, factors = small
    with pytest.raises(InputError, match="model must be one of 'boosting', 'forest', 'lightgbm'; got 'svm'"):
        dci(codes, factors, model="svm")
    with pytest.raises(InputError, match="a share between 0 and 1; got 1.5"):
        dci(codes, factors, test=1.5)
    with pytest.raises(InputError, match="train names rows, so test must name rows too"):
        dci(codes, factors, train=[0, 1], test=0.5)
    with pytest.raises(InputError, match="named in both train and test"):
        dci(codes, factors, train=[0, 1], test=[1, 2])
    with pytest.raises(InputError, match="test must name rows from 0 to 199, but names 0 to 200"):
        dci(codes, factors, test=[0, 200])
    with pytest.raises(InputError, match="test names all rows"):
        dci(codes, factors, test=np.ones(200, dtype=bool))
    with pytest.raises(InputError, match="test must be row numbers, or a mask of 200 rows"):
        dci(codes, factors, test=[0.5, 0.7])
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingDependencyError, match=r"congruence\[lightgbm\]"):
        dci(codes, factors, model="lightgbm")
