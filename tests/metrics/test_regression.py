import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics._regression import regression

CASES = [
    "s1_identity_discrete",
    "s2_signed_permutation_continuous",
    "s3_rotation_discrete",
    "s4_overcomplete_inactive_warped",
    "s6_redundant_copies",
    "s7_grid_mixed",
]


@pytest.mark.parametrize("case", CASES)
def test_in_sample_the_linear_one_agrees_with_the_reference(case, oracle, monkeypatch):
    codes, factors, expected = oracle(case)
    monkeypatch.setattr("congruence.metrics._regression._kernel", lambda x, y, new, seed: np.zeros((len(new), 1)))
    got = regression(codes, factors, nonlinear="kernel", folds=2)
    assert got.r2_linear_in_sample == pytest.approx(expected["explicitness_regression_mean_r2"], abs=1e-9)


def test_an_exact_copy_of_a_code_adds_nothing(oracle, monkeypatch):
    codes, factors, expected = oracle("s5_quantised_latents")
    monkeypatch.setattr("congruence.metrics._regression.KERNEL_ROWS", 100)
    got = regression(codes, factors, nonlinear="kernel", folds=2)
    # The reference's solver took the rounding of a mirrored code for a direction of its own, which noise fits a little.
    assert got.r2_linear_in_sample == pytest.approx(expected["explicitness_regression_mean_r2"], abs=5e-5)
    live = codes[:, [0, 1, 2, 3, 4, 6, 8, 9]]  # without the copy and the constant
    exact = regression(live, factors, nonlinear="kernel", folds=2)
    assert got.r2_linear_in_sample == pytest.approx(exact.r2_linear_in_sample, abs=1e-12)


def test_held_out_numbers_are_those_of_the_folds_by_hand(rng):
    from sklearn.linear_model import LinearRegression

    from congruence.maps.nearness import protocol

    codes, factors = rng.normal(size=(60, 3)), rng.normal(size=(60, 1))
    got = regression(codes, factors, nonlinear="kernel", folds=3, seed=5)
    predicted = np.empty(60)
    for part in protocol(60, folds=3, seed=5).folds:
        rest = np.setdiff1d(np.arange(60), part)
        predicted[part] = LinearRegression().fit(codes[rest], factors[rest, 0]).predict(codes[part])
    by_hand = 1 - np.square(factors[:, 0] - predicted).sum() / np.square(factors - factors.mean()).sum()
    assert got.linear[0] == pytest.approx(by_hand)


@pytest.mark.parametrize("nonlinear", ["boosting", "kernel"])
def test_only_the_nonlinear_one_undoes_a_bend(nonlinear, rng):
    factors = rng.normal(size=(400, 2))
    codes = np.column_stack([factors[:, 0], np.sign(factors[:, 1]) * np.square(factors[:, 1])])
    got = regression(np.abs(codes) ** [1, 0.5] * np.sign(codes), np.abs(factors), nonlinear=nonlinear, folds=2)
    assert got.r2_linear < 0.1
    assert got.r2_nonlinear > 0.8
    assert regression(factors, factors, nonlinear=nonlinear, folds=2).r2_linear == pytest.approx(1)


@pytest.mark.parametrize("nonlinear", ["boosting", "kernel"])
def test_noise_explains_nothing_on_rows_held_out(nonlinear, rng):
    factors = {
        "number": rng.normal(size=200),
        "shape": rng.choice(["a", "b", "c"], 200),
        "angle": rng.uniform(0, 1, 200),
    }
    got = regression(rng.normal(size=(200, 10)), factors, kinds={"angle": "circular:1"}, nonlinear=nonlinear, folds=2)
    assert (got.linear < 0.05).all()
    assert (got.nonlinear < 0.05).all()
    assert (got.linear_in_sample > 0.02).all()  # in sample, noise does


@pytest.mark.parametrize("nonlinear", ["boosting", "kernel"])
def test_circles_and_classes_are_explained(nonlinear, rng):
    angle, shape = rng.uniform(0, 1, 400), rng.choice(["a", "b", "c"], 400)
    codes = np.column_stack([np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle), shape == "a", shape == "b"]).astype(
        float
    )
    got = regression(codes, {"angle": angle, "shape": shape}, kinds={"angle": "circular"}, nonlinear=nonlinear, folds=2)
    assert_allclose(got.linear, 1, atol=1e-9)
    assert (got.nonlinear > 0.97).all()
    assert "shape: R2 of class probabilities." in got.notes
    # Names of classes do not matter.
    other = regression(
        codes, {"shape": np.char.translate(shape, str.maketrans("abc", "zxy"))}, nonlinear=nonlinear, folds=2
    )
    assert other.linear[0] == pytest.approx(got.linear[1])


def test_the_linear_one_ignores_linear_maps_of_the_codes(rng):
    factors = rng.normal(size=(200, 2))
    codes = np.column_stack([factors, rng.normal(size=200)]) + 0.5 * rng.normal(size=(200, 3))
    first = regression(codes, factors, nonlinear="kernel")
    other = regression(codes @ rng.normal(size=(3, 3)) * 1e4 + 1e3, factors, nonlinear="kernel")
    assert_allclose(other.linear, first.linear, rtol=1e-8)


def test_edges(rng):
    codes = rng.normal(size=(12, 20))
    got = regression(codes, np.column_stack([rng.normal(size=12), np.ones(12)]))
    assert got.factors == ("factor0",)
    assert got.r2_linear_in_sample == pytest.approx(1)  # more codes than rows
    assert got.r2_linear < 0.9
    assert "No factor varies" in regression(codes, np.ones(12)).reasons["r2_linear"]
    constant = regression(np.ones((12, 2)), rng.normal(size=12))
    assert constant.r2_linear < 0
    rare = np.array(["a"] * 10 + ["b", "c"])
    assert np.isfinite(regression(codes, {"rare": rare}).nonlinear).all()
    together = np.r_[np.repeat(np.arange(5), 2), 5, 5]  # one fold is fitted on a single class
    assert np.isfinite(regression(codes, {"rare": rare}, cluster=together).nonlinear).all()
    with pytest.raises(InputError, match="at least 4 paired rows"):
        regression([[1.0], [2.0]], [[1.0], [2.0]])
    with pytest.raises(InputError, match="nonlinear must be one of 'boosting', 'kernel'; got 'forest'"):
        regression(codes, codes, nonlinear="forest")
    with pytest.raises(InputError, match="folds must be an integer of at least 2; got 1"):
        regression(codes, codes, folds=1)


def test_a_kernel_is_fitted_on_some_rows_only(monkeypatch, rng):
    monkeypatch.setattr("congruence.metrics._regression.KERNEL_ROWS", 50)
    factors = rng.normal(size=(300, 1))
    first, again = (regression(factors, factors, nonlinear="kernel") for _ in range(2))
    assert 0.8 < first.r2_nonlinear < 0.95  # all rows would give more
    assert_array_equal(first.nonlinear, again.nonlinear)


def test_a_nonlinear_regression_is_scored_on_as_many_folds_as_are_asked_for(rng):
    codes = rng.normal(size=(200, 3))
    factors = np.column_stack([codes[:, 0] ** 2, codes[:, 1]]) + 0.3 * rng.normal(size=(200, 2))
    whole, part = (regression(codes, factors, nonlinear="kernel", held_out=rows) for rows in (200, 41))
    assert not any("scored on" in note for note in whole.notes)
    assert "The nonlinear regression is scored on 80 of 200 rows." in part.notes  # two folds of 40
    assert_array_equal(part.linear, whole.linear)
    assert (part.nonlinear != whole.nonlinear).all()
    assert_allclose(part.nonlinear, whole.nonlinear, atol=0.15)
    with pytest.raises(InputError, match="held_out must be an integer of at least 1; got 0"):
        regression(codes, codes, held_out=0)


def test_with_clusters_every_fold_is_scored():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(5), 500)
    dose = np.array([0.0, 1.3, 2.1, 3.7, 5.2])[cluster]
    codes = np.column_stack([dose + 0.3 * rng.normal(size=len(cluster)), rng.normal(size=len(cluster))])
    options = {"kinds": "continuous", "cluster": cluster, "nonlinear": "kernel"}
    few, every = (regression(codes, {"dose": dose}, held_out=rows, **options) for rows in (100, 2500))
    assert few.scores == every.scores
    assert np.isfinite(few.scores["r2_nonlinear"])
