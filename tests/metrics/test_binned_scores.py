import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics._binned import irs, mig, modularity, sensitivity
from congruence.metrics._infomec import infomec
from congruence.metrics._unsupervised import unsupervised
from congruence.metrics.factors import read_pair

ORACLES = Path(__file__).parents[1] / "oracles" / "metrics"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((ORACLES / "expected.json").read_text())["cases"].items()
}


def load(name):
    with np.load(ORACLES / f"{name}.npz") as case:
        kind = "categorical" if case["sources_discrete"].all() else "continuous"
        return read_pair(case["latents"], case["sources"], kind)


@pytest.mark.parametrize("name", EXPECTED)
def test_gap_and_modularity_agree_with_the_reference(name):
    codes, factors = load(name)
    gap, modular = mig(codes, factors), modularity(codes, factors)
    information = np.transpose(EXPECTED[name]["mi_discretised_20bins_latents_by_sources"])
    assert_allclose(gap.information, information, atol=1e-9)
    assert_allclose(modular.information, information, atol=1e-9)
    assert gap.mig == pytest.approx(EXPECTED[name]["mig_20bins"], abs=1e-9)
    assert modular.modularity == pytest.approx(EXPECTED[name]["ridgeway_modularity_20bins"], abs=1e-9)


@pytest.mark.parametrize("name", EXPECTED)
def test_robustness_agrees_with_the_reference(name):
    codes, factors = load(name)
    ours, expected = irs(codes, factors.labels(10), kinds="categorical"), EXPECTED[name]["irs"]
    live = ours.parents >= 0
    assert ours.irs == pytest.approx(expected["avg_score"], abs=1e-9)
    assert_allclose(ours.robustness[:, live].T, expected["IRS_matrix"], atol=1e-9)
    assert_allclose(ours.per_code[live], expected["disentanglement_scores"], atol=1e-9)
    assert_allclose(ours.deviations[live], expected["max_deviations"], atol=1e-9)
    assert_array_equal(ours.parents[live], expected["parents"])


@pytest.mark.parametrize("name", EXPECTED)
def test_dependence_of_codes_agrees_with_the_reference(name):
    ours, expected = unsupervised(load(name)[0]), EXPECTED[name]["unsupervised"]
    if name == "s5_quantised_latents":  # one code mirrors another: the reference takes the logarithm of rounding
        assert ours.total_correlation == math.inf
        assert "infinite" in ours.reasons["total_correlation"]
    else:
        assert ours.total_correlation == pytest.approx(expected["gaussian_total_correlation"], abs=1e-9)
    assert ours.wasserstein_correlation == pytest.approx(expected["gaussian_wasserstein_correlation"], abs=1e-9)
    norm = expected["gaussian_wasserstein_correlation_norm"]
    assert ours.wasserstein_correlation_norm == pytest.approx(norm, abs=1e-9)
    assert ours.mean_mutual_information == pytest.approx(expected["mutual_info_score"], abs=1e-9)


def test_factors_themselves_are_the_best_codes(rng):
    factors = rng.integers(0, [3, 5, 8], (3000, 3))
    assert mig(factors, factors).mig > 0.98
    assert modularity(factors, factors).modularity > 0.999
    assert irs(factors, factors).irs == pytest.approx(1)


def test_noise_is_no_code(rng):
    codes, factors = rng.normal(size=(4000, 6)), rng.integers(0, [3, 5, 8], (4000, 3))
    assert mig(codes, factors).mig < 0.01
    assert 0.2 < irs(codes, factors).irs < 0.4  # a quantile against a largest value, which tails set apart
    assert abs(irs(rng.uniform(size=(4000, 6)), factors).irs) < 0.05
    scores = unsupervised(codes).scores
    assert max(scores[name] for name in scores if name != "wasserstein_correlation") < 0.06


def test_a_gap_needs_one_code_ahead_of_the_others(rng):
    factor = rng.integers(0, 4, (1000, 1))
    assert mig(np.hstack([factor, factor]), factor).mig == 0
    assert mig(np.hstack([factor, np.zeros_like(factor)]), factor).mig == pytest.approx(1)


def test_a_code_of_two_factors_is_not_modular(rng):
    factors = rng.integers(0, 4, (4000, 2))
    codes = np.column_stack([factors[:, 0], factors @ [4, 1]])
    per_code = modularity(codes, factors).per_code
    assert per_code[0] > 0.99
    assert per_code[1] < 0.01


def test_total_correlation_of_gaussians_is_what_theory_says(rng):
    x = rng.normal(size=(20000, 2)) @ np.linalg.cholesky([[1, 0.8], [0.8, 1]]).T
    assert unsupervised(x).total_correlation == pytest.approx(-0.5 * math.log(1 - 0.64), abs=0.02)


@pytest.mark.parametrize("metric", [mig, modularity, irs])
@pytest.mark.parametrize("n", [1, 40])
def test_no_factor_that_varies(metric, n, rng):
    result = metric(rng.normal(size=(n, 3)), np.ones((n, 2)))
    (name,) = result.scores
    assert math.isnan(result.scores[name])
    assert "varies" in result.reasons[name]
    assert "factor0, factor1: left out, because it is constant." in result.notes


@pytest.mark.parametrize("metric", [mig, modularity, irs])
def test_constant_factors_are_left_out(metric, rng):
    factors = {"a": rng.integers(0, 3, 300), "b": np.zeros(300), "c": rng.integers(0, 4, 300)}
    codes = rng.normal(size=(300, 4)) + np.column_stack([factors["a"]] * 4)
    varying = {name: factors[name] for name in "ac"}
    assert metric(codes, factors).scores == metric(codes, varying).scores


@pytest.mark.parametrize("metric", [mig, modularity, irs, partial(infomec, discrete_codes=True)])
def test_names_of_rows_are_no_factor(metric, rng):
    factors = {"a": rng.integers(0, 3, 300), "c": rng.integers(0, 4, 300)}
    codes = np.round(rng.normal(size=(300, 4)) + np.column_stack([factors["a"], factors["c"]] * 2))
    got = metric(codes, factors | {"image": np.array([f"im{i}" for i in range(300)])})
    assert got.scores == metric(codes, factors).scores
    assert "image: left out, because every row is a class of its own." in got.notes
    assert not any("image: cut" in note for note in got.notes)


def test_too_few_to_compare_is_said(rng):
    codes, factor = rng.normal(size=(100, 2)), rng.integers(0, 2, (100, 1))
    assert mig(codes[:, :1], factor).reasons == {"mig": "There is only one code; two are needed."}
    assert modularity(codes, factor).reasons == {"modularity": "Only one factor varies; two are needed."}
    assert irs(np.ones((100, 2)), factor).reasons == {"irs": "No code varies."}
    alone = unsupervised(np.column_stack([codes[:, 0], np.ones(100)]))
    assert all(map(math.isnan, alone.scores.values()))
    assert set(alone.reasons) == set(alone.scores)
    assert alone.notes == ("Constant and left out: code 1.",)


def test_constant_codes(rng):
    factors = rng.integers(0, 3, (300, 2))
    codes = np.column_stack([factors, np.ones(300)])
    assert modularity(codes, factors).per_code[2] == 0
    robust = irs(codes, factors)
    assert robust.irs == pytest.approx(1)
    assert robust.parents[2] == -1
    assert robust.notes[-1] == "Constant and left out: code 2."


def test_many_classes_fall_into_bins_and_this_is_said():
    factors = {"position": np.repeat(np.arange(40), 20)}
    result = irs(factors["position"][:, None] * 1.0, factors)
    assert "position: cut into 20 bins of equal width." in result.notes
    assert 0.9 < result.irs < 1


def test_sensitivity_is_a_table_of_the_scores(rng):
    factors = {"a": rng.integers(0, 4, 600), "b": rng.uniform(size=600)}
    codes = np.column_stack([*factors.values(), rng.normal(size=600)])
    table = sensitivity(codes, factors, bins=(10, 50))
    assert [row["bins"] for row in table.rows] == [10, 50]
    for row in table.rows:
        whole = infomec(codes, factors, bins=row["bins"], factor_bins=10)
        assert row["infom"] == whole.modularity
        assert row["infoc"] == whole.compactness
        assert row["mig"] == mig(codes, factors, bins=row["bins"]).mig
        assert row["modularity"] == modularity(codes, factors, bins=row["bins"]).modularity
    assert table.spans["mig"] == pytest.approx(abs(table.scores["mig"][0] - table.scores["mig"][1]))
    with pytest.raises(InputError, match="bins is empty"):
        sensitivity(codes, factors, bins=())


COLUMNS = {
    "constant": lambda rng, n: np.full(n, 1e9 + 0.1),
    "two": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "few": lambda rng, n: rng.integers(0, 5, n).astype(float),
    "all distinct": lambda rng, n: np.arange(float(n)),
    "far from 0": lambda rng, n: 1e6 + rng.normal(size=n),
    "tiny": lambda rng, n: 1e-12 * rng.normal(size=n),
    "huge": lambda rng, n: 1e150 * rng.normal(size=n),
}
NAMES = st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=4)


@settings(max_examples=60)
@given(
    codes=NAMES,
    factors=NAMES,
    n=st.sampled_from([1, 2, 3, 10, 60]),
    kinds=st.sampled_from(["auto", "categorical", "continuous", "ordinal"]),
    discrete=st.booleans(),
    version=st.sampled_from(["standalone", "training", "tripod"]),
    seed=st.integers(0, 1000),
)
def test_whatever_comes_a_score_is_a_number_or_says_why_not(codes, factors, n, kinds, discrete, version, seed):
    rng = np.random.default_rng(seed)
    z, s = (np.column_stack([COLUMNS[name](rng, n) for name in names]) for names in (codes, factors))
    results = [metric(z, s, kinds=kinds) for metric in (mig, modularity, irs, unsupervised)]
    results.append(infomec(z, s, kinds=kinds, discrete_codes=discrete, version=version))
    for result in results:
        assert {name for name, score in result.scores.items() if not math.isfinite(score)} == set(result.reasons)
    assert all(
        score <= 1 + 1e-9
        for result in (*results[:3], results[4])
        for score in result.scores.values()
        if not math.isnan(score)
    )
