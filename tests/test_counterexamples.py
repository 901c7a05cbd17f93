"""Constructed cases in which a conclusion must not be stronger than its premises; each once contradicted them."""

import math

import numpy as np
import pytest

from congruence import compare, evaluate, examine_decoder, examine_mechanism, examine_mixture, resolve
from congruence.errors import InputError
from congruence.mixture import GaussianMixture, affine_distance, l2_distance

torch = pytest.importorskip("torch")
nn = torch.nn
ROTATION = torch.as_tensor(np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0][:, :4])
PRIOR = GaussianMixture.from_arrays(
    [0.3, 0.3, 0.4], [[0.0, 0.0], [6.0, 1.0], [-3.0, 7.0]], [[1.0, 0.5], [0.3, 2.0], [1.0, 1.0]]
)


@pytest.fixture
def square(rng):
    return rng.uniform(-1, 1, size=(300, 4))


@pytest.fixture
def z(rng):
    return rng.uniform(0.3, 1.2, size=(50, 4))


def isometry(w):
    return w @ ROTATION.T


def slots(s):
    """Two blocks of two latents with disjoint outputs."""
    parts = (s[:, :2], s[:, 2:])
    return torch.stack([out for p in parts for out in (p[:, 0] + p[:, 1] ** 3, p[:, 0].exp(), p.prod(1) + p[:, 1])], 1)


def piecewise_affine():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.LeakyReLU(0.2), nn.Linear(6, 7))


def examine_slots(decoder, z, **more):
    return examine_mechanism(decoder, z, blocks="0-1,2-3", orders=(2,), **more)


class TestDecoder:
    def test_a_twist_of_the_other_decoder_counts(self, square):
        twist = torch.diag(torch.tensor([20.0, 1.0, 1.0, 0.05]).double())
        result = examine_decoder(
            isometry, square, other=lambda w: isometry(w @ twist), other_latents=square @ np.linalg.inv(twist.numpy())
        )
        assert "differ by a rigid motion" not in result.verdict
        assert result["theorem1"].status != "holds"

    def test_seven_times_an_isometry_is_not_vacuous(self, square):
        assert "vacuous" not in examine_decoder(lambda w: 7 * isometry(w), square).verdict

    def test_a_certificate_is_used_and_a_sample_is_not_one(self, square):
        net = nn.Sequential(nn.Linear(4, 6, bias=False)).double().eval()
        nn.init.orthogonal_(net[0].weight)
        premises = ({p.name: p.basis for p in examine_decoder(f, square)["theorem1"].premises} for f in (net, isometry))
        assert [one["bi_lipschitz"] for one in premises] == ["certified", "supported"]

    @pytest.mark.parametrize("rows", ["grid", "beside the strip"])
    def test_an_isometry_at_the_rows_only_is_not_one(self, rows, rng):
        """In a convex set no distance is multiplied by more than the constant; between these rows one is."""
        if rows == "grid":
            side = np.linspace(-1, 1, 15)
            z = np.stack(np.meshgrid(side, side), axis=2).reshape(-1, 2)

            def decode(w):
                return torch.nn.functional.pad(w + 0.15 * torch.sin(7 * math.pi * w) ** 2, (0, 1))
        else:
            z = rng.uniform(-1, 1, size=(300, 2))
            z = z[np.abs(z[:, 0]) > 0.06]

            def decode(w):
                steep = torch.where(w[:, 0].abs() < 0.05, 20 * w[:, 0], w[:, 0] + 0.95 * w[:, 0].sign())
                return torch.stack([steep, w[:, 1], 0 * steep], 1)

        result = examine_decoder(decode, z, convex=True)
        assert result.stretch.constant == pytest.approx(1)
        assert (result["bi_lipschitz"].status, result["theorem1"].basis) == ("fails", "premise fails")
        assert "Between two rows a distance is multiplied by" in result.verdict

    def test_a_diameter_smaller_than_that_of_the_rows_is_refused(self, square):
        with pytest.raises(InputError, match=r"diameter must be at least that of the rows, 3\.\d+; got 0\.01"):
            examine_decoder(isometry, square, diameter=0.01)


class TestMechanism:
    def test_an_entangled_model_is_not_identified(self, z, rng):
        turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        result = examine_slots(slots, z, model=lambda c: slots(c @ torch.as_tensor(turn.T)), codes=z @ turn)
        assert result["disentangled"].status == "fails"
        assert result["identified"].status == "unknown"

    def test_what_is_assumed_of_a_model_is_not_held(self, z):
        assert examine_slots(slots, z)["identified"].status == "unknown"

    def test_regions_that_the_points_may_miss_are_named(self, z):
        assert "regions with less than 6 % of the latents are not excluded" in examine_slots(slots, z).verdict

    def test_a_small_leak_in_float32_is_not_disjoint(self, rng):
        weight = torch.tensor([[1.0, 1e-5], [2, 0], [1e-5, 3], [0, 4]])
        result = examine_mechanism(lambda w: torch.tanh(w.float() @ weight.T), rng.normal(size=(20, 2)), blocks="0,1")
        assert result["D"].status != "holds"

    def test_a_weak_block_that_overlaps_is_not_disjoint(self, rng):
        def weak(s):
            a, b = s[:, 0], 1e-7 * s[:, 1]
            return torch.stack([a.exp() + b, a + b.sin(), b + 1e14 * b**3, 2 * b], 1)

        result = examine_mechanism(weak, rng.normal(size=(20, 2)), blocks="0,1", orders=(2,), scale="global")
        assert result["D"].status != "holds"

    def test_one_output_in_768_is_no_margin_of_type_m(self, rng):
        weight = torch.as_tensor(rng.normal(size=(768, 4)))
        dense = examine_slots(lambda s: torch.tanh(s @ weight.T / 4), rng.normal(size=(3, 4)))
        assert dense["M_sparsest"].status != "holds"

    def test_nearly_disjoint_blocks_are_two_parts_in_the_verdict(self, z, rng):
        noise = torch.as_tensor(rng.normal(size=(6, 4)))
        result = examine_slots(lambda s: slots(s) + 0.003 * torch.tanh(s @ noise.T), z)
        assert {one.status for one in result.check.criteria} <= {"fails", "ambiguous"}
        assert "2 parts with disjoint outputs at tolerances from" in result.verdict

    def test_nearly_disjoint_blocks_are_found_and_graded(self, z, rng):
        noise = torch.as_tensor(rng.normal(size=(6, 4)))
        result = examine_mechanism(lambda s: slots(s) + 0.003 * torch.tanh(s @ noise.T), z, orders=(2,))
        assert (result.blocks_text, result.blocks_from) == ("0-1,2-3", "near D")
        assert result["D"].typical < 0.01 * result["D"].null

    def test_parts_that_every_decoder_of_this_size_has_are_no_answer(self, z, rng):
        weight = torch.as_tensor(rng.normal(size=(6, 4)))
        result = examine_mechanism(lambda s: torch.tanh(s @ weight.T), z, orders=(2,))
        assert result.discovery["H2"].forced
        assert "parts of type" not in result.verdict
        assert "At no interval of tolerances are there parts" in result.verdict

    def test_numbers_that_a_summary_gave_are_marked(self, z):
        assert any("from a summary of the paper only" in note for note in examine_slots(slots, z).notes)


class TestMixture:
    def test_posterior_means_of_an_exact_model_do_not_refute_its_prior(self, rng):
        prior = GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [1.0])
        means = (prior.sample(2000, seed=1) + rng.normal(size=(2000, 2))) / 2
        assert examine_mixture(prior, codes=means)["P1"].status == "unknown"

    def test_heavy_tails_are_not_support(self, rng):
        roots = np.linalg.cholesky(PRIOR.covariances)
        statuses = set()
        for seed in range(5):
            states = PRIOR.draw(1000, seed=seed).states
            noise = rng.standard_t(5, size=(1000, 2, 1)) / math.sqrt(5 / 3)
            codes = PRIOR.means[states] + (roots[states] @ noise)[:, :, 0]
            statuses.add(examine_mixture(PRIOR, codes=codes)["P1"].status)
        assert statuses == {"unknown"}

    def test_a_test_that_does_not_refute_has_its_power(self):
        assert "Power at this number of rows" in examine_mixture(PRIOR, codes=PRIOR.sample(20))["P1"].evidence

    def test_a_frame_that_was_found_leaves_the_affine_statement(self):
        result = examine_mixture(PRIOR.pushed([[1.0, 0.5], [0.2, 1.0]]), piecewise_affine())
        assert result.row == 2
        assert "permutation" not in result.verdict

    def test_p2_is_not_read_off_a_constrained_fit(self, rng):
        from sklearn.mixture import GaussianMixture as Fitted

        states = rng.integers(2, size=1000)
        noise = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=1000)
        codes = noise * np.array([[1.0, 1.0], [0.5, 2.0]])[states] + 8.0 * states[:, None]
        fitted = Fitted(2, covariance_type="diag", random_state=0).fit(codes)
        result = examine_mixture(fitted, piecewise_affine(), codes=codes)
        assert result["P2"].status != "holds"
        assert result.row < 3

    def test_residual_decoders_can_be_injective(self):
        class Residual(nn.Module):
            def __init__(self):
                super().__init__()
                self.branch = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
                with torch.no_grad():
                    for layer in (self.branch[0], self.branch[2]):
                        layer.weight.mul_(0.3 / torch.linalg.matrix_norm(layer.weight, 2))

            def forward(self, x):
                return x + self.branch(x)

        result = examine_mixture(PRIOR, nn.Sequential(nn.Linear(2, 8), Residual(), nn.Linear(8, 9)))
        assert [(result[name].status, result[name].basis) for name in ("F2", "F4")] == [("holds", "certified")] * 2

    def test_arrays_are_a_prior(self):
        assert examine_mixture((PRIOR.weights, PRIOR.means, PRIOR.covariances), piecewise_affine()).row == 4

    def test_weights_of_equal_components_are_not_identified(self):
        twice = GaussianMixture.from_arrays(
            [0.3, 0.2, 0.5], [[0.0, 0.0], [0.0, 0.0], [6.0, 1.0]], [[1.0, 0.5], [1.0, 0.5], [0.3, 2.0]]
        )
        result = examine_mixture(twice, piecewise_affine())
        assert result["Theorem 3.10 (b)"].status == "holds"  # on P(Z)
        assert result["Theorem 3.9 (b)"].basis == result["Corollary 3.1 (b)"].basis == "premise fails"  # on P(U, Z)

    def test_nothing_follows_for_data_that_the_model_does_not_fit(self):
        decoder = piecewise_affine()
        data = decoder(torch.tensor(PRIOR.sample(500, seed=1)).float()).detach().numpy() + 1
        result = examine_mixture(PRIOR, decoder, data=data)
        assert (result.row, result["identified"].basis) == (0, "premise fails")

    def test_with_unknown_noise_every_statement_is_conditional(self):
        result = examine_mixture(PRIOR, piecewise_affine(), noise="unknown")
        assert {one.status for one in result.theorems} == {"unknown"}
        assert result.verdict.startswith("If the distribution of the noise is known, the prior")

    def test_the_claim_that_scaled_codes_refute_is_about_the_prior(self):
        finding = examine_mixture(PRIOR, codes=2 * PRIOR.sample(500, seed=1), codes_are="draws")["P1"]
        assert (finding.status, finding.claim) == (
            "fails",
            "P1: the latents follow a Gaussian mixture, which is the prior.",
        )

    def test_nested_neighbourhoods_exclude_p3(self):
        prior = GaussianMixture.from_arrays(
            np.full(4, 0.25), [[0, 0], [0, 10], [10, 20], [10, 30]], [[1, 2], [1, 2], [2, 1], [2, 1]]
        )
        assert examine_mixture(prior)["P3"].status == "fails"

    def test_one_finding_is_looked_up_as_all_are(self):
        result = examine_mixture(PRIOR)
        assert result.checked["model"]["P1"] == result["P1"]

    def test_the_affine_distance_in_one_latent_is_at_most_what_a_known_map_leaves(self):
        p = GaussianMixture.from_arrays([1.0], [0.0], [1.0])
        q = GaussianMixture.from_arrays([0.5, 0.5], [0.0, 8.0], [1.0, 0.01])
        assert affine_distance(p, q).distance <= l2_distance(p.pushed([[0.196]], [8.0]), q).distance

    def test_the_affine_distance_in_two_latents_is_at_most_what_a_known_map_leaves(self):
        """The map of the narrow component onto the only one of the target; 85 % more was left once."""
        covariances = [[[0.007, -0.012], [-0.012, 0.026]], [[4.0, -4.1], [-4.1, 5.0]], [[6.0, -21.0], [-21.0, 143.0]]]
        p = GaussianMixture.from_arrays([0.46, 0.2, 0.34], [[-1.5, 6.8], [1.7, -9.7], [-1.3, -4.0]], covariances)
        q = GaussianMixture.from_arrays([1.0], [[-7.7, 1.7]], [[[0.45, 0.38], [0.38, 1.7]]])
        matrix = np.linalg.cholesky(q.covariances[0]) @ np.linalg.inv(np.linalg.cholesky(p.covariances[0]))
        shift = q.means[0] - matrix @ p.means[0]
        assert affine_distance(p, q).distance <= l2_distance(p.pushed(matrix, shift), q).distance


@pytest.mark.filterwarnings("ignore::congruence.errors.CongruenceWarning")
class TestSizes:
    def test_one_huge_value_is_a_far_row_in_compare(self, rng):
        x = rng.normal(size=(60, 5))
        y = x @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
        y[0, 4] = 1e20
        assert "except for 1 of 60 far rows" in compare(y, x, groups="all").verdict

    def test_one_huge_value_leaves_one_direction_to_resolve(self, rng):
        mixed = rng.laplace(size=(300, 3)) @ rng.normal(size=(3, 3))
        mixed[3, 2] = 1e20
        assert "Only one direction was kept" in resolve(mixed, starts=1).verdict

    def test_tiny_codes_are_evaluated_as_others_are(self, rng):
        sources = rng.laplace(size=(300, 3))
        mixed = sources @ rng.normal(size=(3, 3))
        tiny, plain = (
            evaluate(scale * mixed, sources, ica=True, metrics=["mcc"], resamples=2, nulls=2) for scale in (1e-30, 1.0)
        )
        assert tiny.verdict == plain.verdict
