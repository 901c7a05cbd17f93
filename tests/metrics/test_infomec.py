import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics._estimators import linear_r2, log_loss, one_hot, standardise
from congruence.metrics._infomec import distribution, infomec
from congruence.metrics._information import jitter, kraskov_information

ORACLES = Path(__file__).parents[1] / "oracles" / "metrics"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((ORACLES / "expected.json").read_text())["cases"].items()
}


def load(name):
    """Codes and factors of a case; continuous factors are to be cut into 10 classes, as for the oracles."""
    with np.load(ORACLES / f"{name}.npz") as case:
        kind = "categorical" if case["sources_discrete"].all() else "continuous"
        return case["latents"].astype(float), case["sources"].astype(float), {"kinds": kind, "factor_bins": 10}


def entries(version):
    """Every case and way of taking codes (as numbers or classes) that has published-code results of a version."""
    prefix = f"infomec_{version}/"
    return [
        pytest.param(name, key == f"{prefix}discrete_latents", expected[key], id=f"{name}-{key.removeprefix(prefix)}")
        for name, expected in EXPECTED.items()
        for key in expected
        if key.startswith(prefix)
    ]


@pytest.mark.parametrize(("name", "discrete", "expected"), entries("standalone"))
def test_the_standalone_version_agrees_with_the_reference(name, discrete, expected):
    codes, factors, options = load(name)
    ours = infomec(codes, factors, discrete_codes=discrete, **options)
    assert_allclose(ours.nmi, expected["nmi"], atol=1e-8)
    assert_array_equal(ours.active, expected["active_latents"])
    assert ours.modularity == pytest.approx(expected["infom"], abs=1e-8)
    assert ours.compactness == pytest.approx(expected["infoc"], abs=1e-8)
    assert ours.explicitness == pytest.approx(expected["infoe"], abs=1e-5)
    per_factor = [factor["normalised"] for factor in expected["infoe_per_source"]]
    assert_allclose(ours.explicitness_per_factor, per_factor, atol=1e-5)
    assert ours.reasons == {}


@pytest.mark.parametrize(("name", "discrete", "expected"), entries("tripod"))
def test_the_tripod_version_agrees_with_the_reference(name, discrete, expected):
    codes, factors, options = load(name)
    ours = infomec(codes, factors, discrete_codes=discrete, version="tripod", **options)
    assert_array_equal(ours.active, expected["active_latents"])
    assert_allclose([ours.modularity, ours.compactness], [expected["infom"], expected["infoc"]], atol=1e-8)
    assert ours.explicitness == pytest.approx(expected["infoe"], abs=1e-5)


@pytest.mark.parametrize(("name", "discrete", "expected"), entries("training_time"))
def test_the_training_version_agrees_with_the_reference(name, discrete, expected):
    codes, factors, options = load(name)
    for how, numbers in expected.items():
        bins = int(how.partition("=")[2]) if "=" in how else None
        ours = infomec(codes, factors, discrete_codes=discrete, version="training", bins=bins, **options)
        assert_array_equal(ours.active, numbers["mask"])
        assert_allclose(
            [ours.modularity, ours.modularity_gap, ours.compactness, ours.compactness_gap],
            [numbers[f"{what}_{form}"] for what in ("modularity", "compactness") for form in ("ratio", "gap")],
            atol=1e-8,
        )
        if "nmi_latents_by_sources" in numbers:
            assert_allclose(ours.nmi.T, numbers["nmi_latents_by_sources"], atol=1e-8)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "s5_quantised_latents"])
def test_linear_readouts_of_numbers_agree_with_the_reference(name):
    codes, factors, _ = load(name)
    r2 = linear_r2(standardise(codes), standardise(factors))
    assert r2.mean() == pytest.approx(EXPECTED[name]["explicitness_regression_mean_r2"], abs=1e-9)


def test_a_code_that_repeats_another_does_not_help_a_linear_readout():
    # Code 5 mirrors code 0. The reference fits the rounding of their sum too, which gains it 3e-5.
    codes, factors, _ = load("s5_quantised_latents")
    r2 = linear_r2(standardise(codes), standardise(factors)).mean()
    assert r2 == pytest.approx(linear_r2(np.delete(codes, [5, 7], axis=1), factors).mean(), abs=1e-9)
    assert r2 == pytest.approx(EXPECTED["s5_quantised_latents"]["explicitness_regression_mean_r2"], abs=1e-4)


@pytest.mark.parametrize("k", [3, 10])
def test_information_of_numbers_agrees_with_the_reference(k):
    name = "s2_signed_permutation_continuous"
    codes, factors, _ = load(name)
    random = np.random.RandomState(0)
    ours = [[kraskov_information(jitter(z, random), jitter(s, random), k) for z in codes.T] for s in factors.T]
    assert_allclose(ours, EXPECTED[name][f"sklearn_mutual_info_regression_k{k}_sources_by_latents"], atol=1e-8)


def test_factors_themselves_are_the_best_codes(rng):
    factors = rng.integers(0, [3, 5, 8], (3000, 3))
    result = infomec(factors, factors, discrete_codes=True)
    assert min(result.scores.values()) > 0.99
    assert_allclose(np.diag(result.nmi), 1)
    assert_array_equal(result.nmi.argmax(1), [0, 1, 2])


def test_noise_is_no_code(rng):
    factors = rng.integers(0, [3, 5, 8, 4, 4], (4000, 5))
    result = infomec(rng.normal(size=(4000, 20)), factors, version="training")
    assert result.nmi.max() < 0.05
    assert abs(result.explicitness) < 0.05


def test_a_rotation_hides_the_factors_but_a_readout_finds_them(rng):
    factors = rng.integers(0, 4, (2000, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    result = infomec((factors - 1.5) @ turn + 0.02 * rng.normal(size=(2000, 3)), factors)
    assert max(result.modularity, result.compactness) < 0.7
    assert result.explicitness > 0.99


def test_copies_are_modular_but_not_compact(rng):
    factors = rng.integers(0, 5, (2000, 2))
    result = infomec(np.hstack([factors, factors]) + 0.1 * rng.normal(size=(2000, 4)), factors)
    assert result.modularity > 0.95
    assert result.compactness < 0.5


def test_the_same_seed_gives_the_same_and_the_global_generator_is_left_alone(rng):
    factors = rng.integers(0, 8, (500, 3))
    state = np.random.get_state()[1].copy()
    first, again, other = (infomec(factors, factors, seed=seed).nmi for seed in (1, 1, 2))
    assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0  # codes repeat their values, so the noise decides
    assert_array_equal(np.random.get_state()[1], state)


def test_without_the_information_only_the_readout_is_measured(rng):
    s = np.column_stack([rng.integers(0, 3, 100), rng.integers(0, 4, 100)])
    codes = s + 0.1 * rng.normal(size=s.shape)
    whole, readout = (infomec(codes, s, information=asked) for asked in (True, False))
    assert_array_equal(readout.explicitness_per_factor, whole.explicitness_per_factor)
    assert readout.explicitness == whole.explicitness
    assert np.isnan(readout.nmi).all()
    assert math.isnan(readout.modularity)
    assert readout.reasons == dict.fromkeys(("infom", "infoc"), "The information was not asked for.")


def test_continuous_factors_are_measured_as_numbers_and_this_is_said(rng):
    factors = {"x": rng.normal(size=2000), "y": rng.uniform(size=2000), "shape": rng.integers(0, 3, 2000)}
    codes = np.column_stack([*factors.values()]) + 0.05 * rng.normal(size=(2000, 3))
    result = infomec(codes, factors)
    assert min(result.scores.values()) > 0.8
    assert np.diag(result.nmi).min() > 0.9
    assert result.nmi.max() <= 1.01
    assert any("x, y: continuous" in note and "extension" in note for note in result.notes)


def test_the_share_of_gaussians_is_their_squared_correlation(rng):
    x = rng.normal(size=4000)
    codes = np.column_stack([0.6 * x + 0.8 * rng.normal(size=4000), rng.normal(size=4000)])
    result = infomec(codes, {"x": x, "other": rng.normal(size=4000)}, kinds="continuous")
    assert result.nmi[0, 0] == pytest.approx(0.36, abs=0.05)
    assert result.explicitness_per_factor[0] == pytest.approx(0.36, abs=0.05)


def test_a_circular_factor_is_read_out_on_its_circle(rng):
    angle = rng.uniform(0, 2 * math.pi, 1500)
    result = infomec(np.column_stack([np.cos(angle), np.sin(angle)]), {"hue": angle}, kinds="circular")
    assert result.explicitness == pytest.approx(1)


@pytest.mark.parametrize("discrete", [True, False])
def test_codes_that_are_classes_tell_about_continuous_factors(discrete, rng):
    factors = rng.uniform(size=(1500, 2))
    codes = np.floor(10 * factors)
    options = {"discrete_codes": True} if discrete else {"bins": 10}
    result = infomec(codes, factors, kinds="continuous", **options)
    assert np.diag(result.nmi).min() > 0.95
    assert result.modularity > 0.9


def test_integer_codes_of_the_training_version_are_read_out_by_class(rng):
    codes = rng.integers(0, 6, (400, 2))
    factors = codes % 2  # which no linear function of the number tells
    by_class = infomec(codes, factors, discrete_codes=True, version="training")
    by_number = infomec(codes.astype(float), factors, discrete_codes=True, version="training")
    assert by_class.explicitness > 0.99
    assert by_number.explicitness < 0.2
    assert by_number.modularity == by_class.modularity


def test_one_factor_leaves_nothing_to_compare(rng):
    result = infomec(rng.normal(size=(200, 3)), {"a": rng.integers(0, 3, 200)})
    assert math.isnan(result.modularity)
    assert "a is the only factor" in result.reasons["infom"]
    assert set(result.reasons) <= {"infom", "infoc"}
    assert math.isfinite(result.explicitness)


def test_one_active_code_leaves_nothing_to_compare(rng):
    factors = rng.integers(0, 3, (200, 2))
    codes = np.column_stack([factors[:, 0] + rng.normal(size=200), 1e-3 * rng.normal(size=200)])
    result = infomec(codes, factors)
    assert_array_equal(result.active, [True, False])
    assert "Only one code varies enough" in result.reasons["infoc"]
    assert "code 1" in result.notes[-1]
    assert math.isnan(result.modularity_per_code[1])


@pytest.mark.parametrize(("version", "expected"), [("standalone", math.nan), ("training", math.nan), ("tripod", 0.0)])
def test_constant_codes(version, expected, rng):
    result = infomec(np.ones((100, 3)), rng.integers(0, 3, (100, 2)), version=version)
    assert_array_equal([result.modularity, result.compactness], [expected, expected])
    assert result.explicitness == pytest.approx(0, abs=0.05)
    assert set(result.reasons) == (set() if version == "tripod" else {"infom", "infoc"})


def test_constant_factors_are_left_out_with_a_note(rng):
    factors = {"a": rng.integers(0, 3, 300), "b": np.zeros(300), "c": rng.integers(0, 4, 300)}
    codes = np.column_stack([factors["a"], factors["c"]]) + 0.1 * rng.normal(size=(300, 2))
    result = infomec(codes, factors)
    assert "b: left out, because it is constant." in result.notes
    assert_array_equal(np.isnan(result.nmi).all(1), [False, True, False])
    without = infomec(codes, {name: factors[name] for name in "ac"})
    assert result.scores == without.scores


@pytest.mark.parametrize("n", [1, 50])
def test_no_factor_that_varies(n, rng):
    result = infomec(rng.normal(size=(n, 3)), np.ones((n, 2)))
    assert all(map(math.isnan, result.scores.values()))
    assert set(result.reasons.values()) == {"No factor can be measured; see the notes."}


def test_classes_of_one_row_are_dropped_and_a_factor_of_only_those_left_out(rng):
    factors = {"a": np.r_[rng.integers(0, 3, 99), 7], "b": np.arange(100), "c": rng.integers(0, 3, 100)}
    result = infomec(rng.normal(size=(100, 4)), factors, kinds="categorical", version="training")
    assert np.isfinite(result.nmi[[0, 2]]).all()
    assert np.isnan(result.nmi[1]).all()
    assert any(note.startswith("b: left out") for note in result.notes)


def test_a_factor_cut_into_bins_of_one_row_is_left_out(rng):
    factors = {"a": np.arange(8.0), "b": np.arange(8) % 2}
    kinds = {"a": "continuous", "b": "categorical"}
    result = infomec(rng.normal(size=(8, 3)), factors, kinds=kinds, factor_bins=8, version="training")
    assert "a: left out, because each class has one row and so no neighbours." in result.notes
    assert repr(result).startswith("<InfoMEC infom nan, infoe ")


def test_silent_codes_make_modularity_undefined_but_for_the_training_version():
    grid = np.indices((3, 3, 2)).reshape(3, -1).T.repeat(10, axis=0)  # the last code has nothing to do with any factor
    result = infomec(grid, grid[:, :2], discrete_codes=True)
    assert math.isnan(result.modularity)
    assert "(code 2)" in result.reasons["infom"]
    assert result.compactness == pytest.approx(1)
    skipped = infomec(grid, grid[:, :2], discrete_codes=True, version="training")
    assert skipped.modularity == pytest.approx(1)


def test_a_factor_that_no_code_tells_makes_compactness_undefined():
    grid = np.indices((3, 3, 2)).reshape(3, -1).T.repeat(10, axis=0)
    result = infomec(grid[:, :2], {"a": grid[:, 0], "b": grid[:, 2]}, discrete_codes=True)
    assert result.reasons["infoc"] == "No active code is informative about b."


def test_more_codes_than_rows_is_said(rng):
    result = infomec(rng.normal(size=(20, 30)), rng.integers(0, 2, (20, 2)), version="training")
    assert "20 rows and 30 codes" in result.notes[-1]


def test_a_version_that_is_none():
    with pytest.raises(InputError, match="version must be one of 'standalone', 'training', 'tripod'; got 'b'"):
        infomec(np.ones((3, 1)), np.ones((3, 1)), version="b")


def test_without_codes_the_loss_is_that_of_a_guess(rng):
    classes = rng.choice(4, p=[0.7, 0.1, 0.1, 0.1], size=500)
    assert log_loss(np.zeros((500, 2)), classes) == pytest.approx(math.log(4), abs=1e-6)


def test_r2_of_a_constant_is_not_a_number(rng):
    assert_array_equal(np.isnan(linear_r2(rng.normal(size=(20, 2)), np.ones((20, 1)))), [True])


def test_infom_and_infoc_of_a_table_of_shares():
    """The theory oracle infomec_from_nmi."""
    share = np.array([[0.9, 0.05, 0.1, 0.0], [0.1, 0.8, 0.1, 0.02], [0.05, 0.1, 0.2, 0.7]])
    infom, infoc, *_ = distribution(share, np.ones(4, dtype=bool))
    assert_allclose(infom, 0.6893013784461153, atol=1e-12)
    assert_allclose(infoc, 0.6924992219109866, atol=1e-12)


def test_readouts_of_classes_are_the_same_whether_zeros_are_kept_or_not(rng):
    codes = rng.integers(0, 5, size=(300, 3))
    hot = one_hot(codes)
    assert hot.shape == (300, 15)
    assert (hot.toarray().sum(1) == 3).all()
    assert (hot.toarray()[np.arange(300), 5 + codes[:, 1]] == 1).all()
    classes = (codes[:, 0] + rng.integers(0, 2, 300)) % 4
    assert log_loss(hot, classes) == pytest.approx(log_loss(hot.toarray(), classes), abs=1e-6)
