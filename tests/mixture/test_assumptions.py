"""The conditions of the hierarchy and the theorems that follow."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import special_ortho_group

from congruence.errors import InputError
from congruence.mixture import GaussianMixture, MixtureModel, canonical_axes, examine_mixture
from congruence.mixture._assumptions import apply_theorems, combine_runs, missing, table_rows
from congruence.mixture.conditions import NAMES, judge_data, make_condition
from congruence.mixture.latent_tests import judge_prior, refit, select_components
from congruence.result import Finding

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["P2"]
PRIOR = GaussianMixture.from_arrays(
    [0.3, 0.3, 0.4], [[0.0, 0.0], [6.0, 1.0], [-3.0, 7.0]], [[1.0, 0.5], [0.3, 2.0], [1.0, 1.0]]
)


def is_scaled_permutation(matrix, atol):
    size = np.abs(matrix) / np.abs(matrix).max(0)
    return bool(((size > atol).sum(0) == 1).all() and ((size > atol).sum(1) == 1).all())


def test_the_axes_of_the_reference_are_found():
    matrix = np.array(ORACLE["A"])
    diagonal = np.array(ORACLE["S_diag"])
    prior = GaussianMixture.from_arrays(np.ones(3) / 3, np.zeros((3, 3)), diagonal).pushed(matrix)
    result = canonical_axes(prior)
    assert result.status == "holds"
    assert (result.frame, list(result.pair)) == ("found", ORACLE["pair"])
    assert_allclose(np.sort(result.ratios), ORACLE["generalized_eigenvalues"], rtol=1e-9)
    assert_allclose(result.gap, ORACLE["min_relative_gap"], rtol=1e-9)
    assert result.correlation < 1e-12
    assert is_scaled_permutation(result.axes.T @ matrix, 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_planted_axes_come_back_from_an_estimated_mixture(seed):
    """From a sample: mixtures fitted by the labels of the draw."""
    rng = np.random.default_rng(seed)
    m = 3
    prior = GaussianMixture.from_arrays([0.4, 0.6], rng.normal(size=(2, m)), [[1.0, 2.0, 4.0], [4.0, 1.0, 0.5]])
    matrix = rng.normal(size=(m, m)) + 2 * np.eye(m)
    drawn = prior.pushed(matrix).draw(40_000, seed=seed)
    parts = [drawn.latents[drawn.states == j] for j in range(2)]
    estimated = GaussianMixture.from_arrays(
        prior.weights, [part.mean(0) for part in parts], [np.cov(part, rowvar=False) for part in parts]
    )
    result = canonical_axes(estimated)
    assert result.status == "holds"
    assert is_scaled_permutation(result.axes.T @ matrix, 0.1)


def test_p2_fails_where_ratios_are_equal_or_components_turn():
    equal = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [3.0, 3.0]], [[1.0, 1.0], [2.0, 2.0]])
    assert canonical_axes(equal).condition.status == "fails"
    nearly = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [3.0, 3.0]], [[1.0, 1.0], [2.0, 2.02]])
    assert canonical_axes(nearly).condition.status == "ambiguous"
    turn = special_ortho_group.rvs(2, random_state=1)
    turned = [np.diag([1.0, 4.0]), np.diag([4.0, 1.0]), turn @ np.diag([1.0, 9.0]) @ turn.T]
    assert (
        canonical_axes(GaussianMixture(np.ones(3) / 3, np.zeros((3, 2)), np.array(turned))).condition.status == "fails"
    )
    assert canonical_axes(GaussianMixture.from_arrays([1.0], [[0.0]], [1.0])).condition.status == "fails"
    flat = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert canonical_axes(flat).condition.status == "unknown"
    with pytest.raises(InputError, match="tolerance must be a finite number above 0; got 0"):
        canonical_axes(equal, tolerance=0)


def test_a_component_that_is_flat_does_not_hide_the_axes_of_the_others():
    variances = [[1.0, 2.0, 3.0], [3.0, 1.0, 0.5], [1.0, 0.0, 0.0]]
    prior = GaussianMixture.from_arrays([0.3, 0.3, 0.4], [[0.0, 0.0, 0.0], [5.0, 0.0, 1.0], [0.0, 5.0, 2.0]], variances)
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    result = canonical_axes(prior.pushed(matrix))
    assert (result.status, result.condition.status) == ("holds", "fails")
    assert result.correlation < 1e-6
    assert is_scaled_permutation(result.axes.T @ matrix, 1e-6)


def test_a_frame_that_was_found_leaves_only_the_affine_statement():
    """Covariances A D_j A^T: P2 holds for the latents A^-1 z, and the paper states it for the latents themselves."""
    turned = canonical_axes(PRIOR.pushed([[1.0, 0.5], [0.2, 1.0]]))
    assert (turned.status, turned.condition.status) == ("holds", "fails")
    assert "only the affine statements follow" in turned.condition.finding.evidence
    assert canonical_axes(PRIOR).condition.finding.basis == "certified"


def correlated(n, seed, correlation=0.6):
    """Latents of two components with this correlation within each."""
    rng = np.random.default_rng(seed)
    states = rng.integers(2, size=n)
    noise = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n)
    return noise * np.array([[1.0, 1.0], [0.5, 2.0]])[states] + 8.0 * states[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_p2_is_not_read_off_a_constrained_fit(seed):
    from sklearn.mixture import GaussianMixture as Fitted

    z = correlated(1000, seed)
    fitted = Fitted(2, covariance_type="diag", random_state=0).fit(z)
    assert examine_mixture(fitted)["P2"].status == "unknown"
    assert "fitted with diag covariances" in examine_mixture(GaussianMixture.from_sklearn(fitted))["P2"].evidence
    assert examine_mixture(fitted, codes=z)["P2"].status == "fails"
    known = GaussianMixture.from_arrays(fitted.weights_, fitted.means_, fitted.covariances_)
    as_prior = examine_mixture(known, codes=z, codes_are="draws")
    assert (as_prior["P1"].status, as_prior["P2"].status) == ("fails", "unknown")


def test_p2_of_an_estimate_is_supported_only_with_power():
    from sklearn.mixture import GaussianMixture as Fitted

    z = correlated(2000, 0, correlation=0.0)
    many, few = (examine_mixture(Fitted(2, random_state=0).fit(z[:n]), codes=z[:n])["P2"] for n in (2000, 60))
    assert (many.status, many.basis) == ("holds", "supported")
    assert (few.status, few.basis) == ("unknown", "not refuted")
    assert "Correlations of 0.2 are noticed with" in few.evidence


def test_codes_that_do_not_vary_are_one_component():
    condition, _ = judge_prior(PRIOR, np.full((200, 2), 0.25))
    assert condition.numbers["components_by_likelihood"] == 1
    far = PRIOR.sample(2000, seed=1) * [1.0, 1e-4] + [0.0, 1e3]  # neither scale nor place matters
    assert select_components(np.column_stack([far, np.ones(2000)]), 3) == 3


def judge_draws(z, prior=PRIOR):
    return judge_prior(prior, z, codes_are="draws")[0]


def test_draws_are_compared_with_the_prior():
    right = judge_draws(PRIOR.sample(2000, seed=1))
    assert (right.status, right.finding.basis, right.numbers["components_by_likelihood"]) == ("holds", "supported", 3)
    assert judge_draws(PRIOR.sample(2000, seed=1) + np.array([0.3, 0.0])).status == "fails"
    collapsed = np.random.default_rng(0).normal(size=(2000, 2))
    wrong = judge_draws(collapsed)
    assert (wrong.status, wrong.numbers["components_by_likelihood"]) == ("fails", 1)
    assert judge_draws(np.full((300, 2), 1e200)).status == "fails"
    with pytest.raises(InputError, match="codes must have 2 columns"):
        judge_draws(np.zeros((5, 3)))


def test_posterior_means_of_an_exact_model_do_not_refute_its_prior():
    """x = z + noise: the posterior mean is exact, and varies less than z."""
    prior = GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])
    rng = np.random.default_rng(0)
    observed = prior.sample(2000, seed=1) + rng.normal(size=(2000, 2))
    means, draws = observed / 2, observed / 2 + math.sqrt(0.5) * rng.normal(size=(2000, 2))
    told = examine_mixture(prior, codes=means, codes_are="means")["P1"]
    assert (told.status, told.basis) == ("holds", "certified")
    untold = examine_mixture(prior, codes=means)["P1"]
    assert (untold.status, untold.basis) == ("unknown", "not refuted")
    assert "set codes_are" in untold.evidence
    assert examine_mixture(prior, codes=draws, codes_are="draws")["P1"].status == "holds"
    assert examine_mixture(prior, codes=means, codes_are="draws")["P1"].status == "fails"


def test_draws_of_an_encoder_support_the_prior_and_never_refute_it():
    """The codes stay posterior means; P1 is tested on draws. The second encoder is too certain."""
    prior = GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])
    rng = np.random.default_rng(0)
    means, noise = (prior.sample(2000, seed=1) + rng.normal(size=(2000, 2))) / 2, rng.normal(size=(2000, 2))
    exact, narrow = (
        examine_mixture({"vae": MixtureModel(prior, codes=means, codes_are="means", draws=means + sd * noise)})
        for sd in (math.sqrt(0.5), 0.1)
    )
    assert (exact["P1"].status, exact["P1"].basis) == ("holds", "supported")
    assert "2000 draws from the posteriors of the encoder do not refute it" in exact["P1"].evidence
    assert (narrow["P1"].status, narrow["P1"].basis) == ("unknown", "not refuted")
    assert "does not decide which" in narrow["P1"].evidence
    assert narrow["P2"].evidence == exact["P2"].evidence  # P2 is about the prior, which is known
    np.testing.assert_array_equal(exact.spaces[0].codes, means)


def test_a_fit_from_a_poor_start_does_not_refute_a_mixture():
    """Two components share one cluster, and the third covers two: an optimum, though not the likeliest."""
    truth = GaussianMixture.from_arrays([1 / 3] * 3, [[-9.0, 0.0], [0.0, 0.0], [9.0, 0.0]], [1.0, 1.0, 1.0])
    z = truth.sample(900, seed=0)
    start = [[0.3, 0.3, 0.4], [[-9.0, -1.0], [-9.0, 1.0], [4.5, 0.0]], [[1.0, 0.4], [1.0, 0.4], [20.0, 1.0]]]
    poor = refit(GaussianMixture.from_arrays(*start, fitted="full"), z)
    assert poor.log_density(z).mean() < truth.log_density(z).mean() - 0.1
    assert examine_mixture(poor, codes=z)["P1"].status != "fails"


@pytest.mark.parametrize("codes_are", ["draws", None])
def test_heavy_tails_within_components_are_noticed(codes_are):
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(6):
        noise = rng.standard_t(5, size=(1000, 2)) / math.sqrt(5 / 3)
        codes = PRIOR.draw(1000, seed=seed, noise=noise).latents
        held += judge_prior(PRIOR, codes, codes_are=codes_are)[0].status == "holds"
    assert held == 0


def test_few_draws_can_refute_the_prior_and_not_support_it():
    few = judge_draws(PRIOR.sample(20, seed=1))
    assert (few.status, few.finding.basis) == ("unknown", "not refuted")
    assert "Power at this number of rows" in few.finding.evidence
    assert max(few.numbers["power"].values()) < 0.5
    assert judge_draws(PRIOR.sample(20, seed=1) + 50.0).status == "fails"


def test_a_mixture_that_was_fitted_is_no_prior_by_construction():
    from sklearn.mixture import GaussianMixture as Fitted

    z = PRIOR.sample(1000, seed=3)
    fitted = Fitted(3, random_state=0).fit(z)
    assert examine_mixture(fitted)["P1"].status == "unknown"
    assert examine_mixture(fitted, codes=z)["P1"].status == "holds"
    few = examine_mixture(fitted, codes=z[:20])["P1"]
    assert "too few to estimate it" in few.evidence
    uniform = np.random.default_rng(0).uniform(size=(1000, 2))
    wrong = examine_mixture(Fitted(2, random_state=0).fit(uniform), codes=uniform)["P1"]
    assert (wrong.status, "more components" in wrong.evidence) == ("fails", True)


def test_nested_neighbourhoods_exclude_p3():
    """Latent 0 tells two of the four components apart, latent 1 all four: the neighbourhoods are {1} and {0, 1}."""
    prior = GaussianMixture.from_arrays(
        np.full(4, 0.25), [[0, 0], [0, 10], [10, 20], [10, 30]], [[1, 2], [1, 2], [2, 1], [2, 1]]
    )
    found = examine_mixture(prior)
    assert (found["P2"].status, found["P3"].status, found["P3"].basis) == ("holds", "fails", "refuted")
    assert "P3 (c) excludes" in found["P3"].evidence


def test_findings_are_looked_up_in_one_way():
    result = examine_mixture(PRIOR)
    checked = result.checked["model"]
    for name in (*NAMES, "identified", "Theorem 3.10 (a)"):
        assert checked[name] is not None
        assert checked[name] == result[name] == result["model", name]
    with pytest.raises(InputError, match="there is no 'P4' in these assumptions; the keys are identified, P1"):
        checked["P4"]


def test_data_can_only_refute_the_model():
    rng = np.random.default_rng(0)
    assert judge_data(rng.normal(size=(500, 3)), rng.normal(size=(400, 3))).status == "unknown"
    assert judge_data(rng.normal(size=(500, 3)), rng.normal(size=(400, 3)) + 1).status == "fails"
    with pytest.raises(InputError, match="data must have 3 columns"):
        judge_data(np.zeros((5, 3)), np.zeros((5, 2)))


def premises(**statuses):
    found = {name: make_condition(name, statuses.get(name, "holds"), "", exact=True).finding for name in NAMES}
    return found | {"distinct": Finding("distinct", "Distinct.", statuses.get("distinct", "holds"))}


@pytest.mark.parametrize(
    ("statuses", "applying"),
    [
        ({}, {"3.1 (a)", "3.1 (b)", "3.9 (a)", "3.9 (b)", "3.9 (c)", *(f"3.10 ({c})" for c in "abcd")}),
        # Table 1 would ask for F4 here; the theorems do not
        ({"F4": "fails"}, {"3.1 (b)", "3.9 (a)", "3.9 (b)", "3.10 (a)", "3.10 (b)", "3.10 (c)"}),
        ({"P2": "fails", "P3": "unknown"}, {"3.1 (a)", "3.1 (b)", "3.9 (a)", "3.9 (c)", "3.10 (a)", "3.10 (d)"}),
        ({"F2": "unknown", "F4": "unknown"}, set()),
        ({"F1": "fails"}, set()),
        ({"P1": "ambiguous"}, set()),
        # equal components leave the prior identified, and not their weights
        ({"distinct": "fails"}, {"3.9 (c)", *(f"3.10 ({c})" for c in "abcd")}),
    ],
)
def test_theorems_follow_from_their_premises(statuses, applying):
    result = apply_theorems(premises(**statuses))
    assert {t.name.split(maxsplit=1)[1] for t in result if t.status == "holds"} == applying
    assert all(bool(missing(t)) == (t.status != "holds") for t in result)


def test_a_theorem_whose_premise_fails_is_unknown_and_never_refuted():
    result = apply_theorems(premises(F1="fails"))
    assert {(t.status, t.basis) for t in result} == {("unknown", "premise fails")}


def test_rows_of_the_table_follow_the_theorems_and_say_so():
    weak = table_rows(premises(F4="fails"))
    assert [row.prior.status for row in weak] == ["holds", "unknown", "holds", "holds"]
    assert [row.decoder and row.decoder.basis for row in weak] == [None, *["premise fails"] * 3]
    assert "The theorems are used" in weak[2].note


@pytest.mark.parametrize(
    ("statuses", "together"),
    [
        (("holds", "holds"), ("holds", "supported")),
        (("holds", "fails"), ("ambiguous", "not refuted")),
        (("holds", "unknown"), ("ambiguous", "not refuted")),
        (("fails", "unknown"), ("fails", "refuted")),
        (("unknown", "ambiguous"), ("ambiguous", "not refuted")),
    ],
)
def test_findings_of_runs_are_combined_into_one_claim_about_all(statuses, together):
    each = {f"run {i}": Finding("F2", "F2.", status, evidence=f"Seen {i}.") for i, status in enumerate(statuses)}
    result = combine_runs(each)
    assert (result.status, result.basis) == together
    assert ("Holds in 1 of 2 runs (run 0)." in result.evidence) == (statuses[0] == "holds" != statuses[1])


def test_without_a_decoder_nothing_is_shown():
    result = examine_mixture(PRIOR)
    assert (result.row, result.status) == (0, "unknown")
    assert result.headlines[1] == "Nothing is known to be identified. Not known to hold: F1, F2."
    assert result["F1"].evidence == "There is no decoder."


class TestDecoders:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    @pytest.fixture(autouse=True)
    def _seeded(self):
        self.torch.manual_seed(0)

    def wide(self):
        return self.nn.Sequential(self.nn.Linear(2, 8), self.nn.LeakyReLU(0.2), self.nn.Linear(8, 9))

    def test_the_strongest_row_is_reached(self):
        result = examine_mixture(PRIOR, self.wide())
        assert (result.status, result.row, result.identified["f"]) == ("holds", 4, "up to an affine map")
        assert result.headlines[1].startswith("P(Z) is identified up to permutation, scaling and translation; f is")
        assert {t.basis for t in result.theorems} == {"certified"}
        assert json.loads(result.to_json())["numbers"]["identified"]["P(U)"].startswith("up to the order")
        assert result["Theorem 3.10 (c)"].status == "holds"
        assert "F4: the decoder is injective. (certified)" in str(result)

    def test_in_another_affine_frame_only_the_affine_statement_follows(self):
        result = examine_mixture(PRIOR.pushed([[1.0, 0.5], [0.2, 1.0]], [1.0, 2.0]), self.wide())
        assert (result.row, result.checked["model"].axes.frame) == (2, "found")
        assert result.identified["P(Z)"] == "up to an affine map"
        assert result["Theorem 3.10 (b)"].basis == "premise fails"

    def test_the_vanilla_prior_stops_at_affine_maps(self):
        result = examine_mixture(GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0]), self.wide())
        assert (result.row, result.identified["P(Z)"]) == (2, "up to an affine map")

    def test_a_rectifier_is_identified_on_each_component(self):
        prior = GaussianMixture.from_arrays([0.5, 0.5], [[1.0], [4.0]], [1.0, 2.0])
        result = examine_mixture(prior, self.nn.Sequential(self.nn.Identity(), self.nn.ReLU()))
        assert result["F3"].status == "holds"
        assert "Remark 3.11" in result.identified["f"]
        assert any("Remark 3.11" in note for note in result.notes)

    def test_more_latents_than_outputs_identify_nothing(self):
        result = examine_mixture(PRIOR, self.nn.Sequential(self.nn.Linear(2, 1)), codes=PRIOR.sample(100))
        assert (result.row, result.status) == (0, "fails")
        assert "Remark 3.6" in result.verdict
        assert all(t.basis == "premise fails" for t in result.theorems)

    def test_noise_and_data_are_reported(self):
        decoder = self.wide()
        outputs = decoder(self.torch.tensor(PRIOR.sample(600, seed=9)).float()).detach().numpy()
        fits = examine_mixture(PRIOR, decoder, codes=PRIOR.sample(600, seed=9), data=outputs, noise=0.01)
        assert fits.checked["model"].data.status == "unknown"
        assert not fits.notes
        assert "The energy distance between draws" in str(fits)
        off = examine_mixture(PRIOR, decoder, data=outputs + 1, noise="unknown")
        assert (off.row, off["model", "identified"].basis) == (0, "premise fails")
        assert "Not known to hold: noise, data" in off.verdict
        assert "Deconvolution needs a known one" in off.notes[0]
        words = dict(off.document().glossary)
        assert "deconvolution" in words["noise"]
        assert "Remark 2.1" in words["other mixtures"]

    def test_invalid_arguments_raise(self):
        with pytest.raises(InputError, match="prior must be a GaussianMixture.*; got int"):
            examine_mixture(3)
        with pytest.raises(InputError, match="noise must be a standard deviation of at least 0, or 'unknown'; got -1"):
            examine_mixture(PRIOR, noise=-1)
        with pytest.raises(InputError, match="noise must be"):
            examine_mixture(PRIOR, noise=math.nan)


def test_fitted_scikit_learn_mixtures_are_accepted():
    from sklearn.mixture import GaussianMixture as Fitted

    fitted = Fitted(3, covariance_type="diag", random_state=0).fit(PRIOR.sample(500))
    assert [examine_mixture(fitted)[name].status for name in ("P1", "P2")] == ["unknown", "unknown"]
