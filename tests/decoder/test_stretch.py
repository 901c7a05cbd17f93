"""Constants agree with the singular values they stand for, by every method, and nothing meaningless is measured."""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import congruence
from congruence.decoder import bilipschitz, theorem1
from congruence.errors import InputError, MissingDependencyError

torch = pytest.importorskip("torch")
nn = torch.nn
ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "theory.json").read_text())["bilipschitz_estimator"]


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def mlp(*widths):
    parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.5))]
    return nn.Sequential(*parts[:-1])


@pytest.fixture(scope="module")
def smooth():
    return seeded(lambda: nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 9)).double())


@pytest.fixture
def z(rng):
    return rng.normal(size=(40, 5))


def by_hand(decoder, z):
    rows = torch.as_tensor(z)

    def one(row):
        return decoder(row[None].clone())[0].flatten()

    jacobians = [torch.autograd.functional.jacobian(one, row) for row in rows]
    return np.stack([np.linalg.svd(J.flatten(1).numpy(), compute_uv=False) for J in jacobians])


def test_the_estimator_agrees_with_the_oracle():
    J = torch.tensor(ORACLE["J"], dtype=torch.float64)
    result = bilipschitz(lambda z: z @ J.T, np.zeros((3, 2)))
    assert_allclose(result.constant, ORACLE["exact_from_svd"], rtol=1e-6)
    assert_allclose(math.sqrt(result.constant**2 - 1), ORACLE["sqrt_term"], rtol=1e-6)
    norms = np.linalg.norm(np.array(ORACLE["unit_vectors"]) @ J.numpy().T, axis=1)
    assert_allclose(norms, ORACLE["norms"], rtol=1e-6)
    drawn = bilipschitz(lambda z: z @ J.T, np.zeros((3, 2)), method="directions", directions=2000)
    assert_allclose(drawn.constant, ORACLE["L_hat"], rtol=1e-4)


def test_exact_constants_are_those_of_the_jacobian(smooth, z):
    result = bilipschitz(smooth, z)
    expected = by_hand(smooth, z)
    assert result.method == "exact"
    assert_allclose(result.spectra, expected, rtol=1e-10)
    assert_allclose(result.constants, np.maximum(expected[:, 0], 1 / expected[:, -1]), rtol=1e-10)
    assert_allclose(result.conditions, expected[:, 0] / expected[:, -1], rtol=1e-10)
    assert result.constant == result.constants.max()


def test_float32_decoders_agree_with_float64(smooth, z):
    import copy

    single = bilipschitz(copy.deepcopy(smooth).float(), z)
    assert_allclose(single.spectra, bilipschitz(smooth, z).spectra, rtol=1e-5)


def test_lanczos_finds_the_extremes(smooth, z):
    result = bilipschitz(smooth, z, method="lanczos")
    expected = by_hand(smooth, z)
    assert result.spectra is None
    assert_allclose(result.s_max, expected[:, 0], rtol=1e-4)
    assert_allclose(result.s_min, expected[:, -1], rtol=1e-4)


def test_lanczos_finds_the_extremes_of_512_latents(rng):
    wide = seeded(lambda: mlp(512, 1024, 2048))
    z = rng.normal(size=(1, 512))
    result, exact = bilipschitz(wide, z, method="lanczos"), bilipschitz(wide, z, method="exact")
    assert_allclose(result.s_max, exact.s_max, rtol=1e-4)
    assert_allclose(result.s_min, exact.s_min, rtol=1e-4)
    assert not any("did not converge" in note for note in result.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lanczos_finds_a_stretch_of_a_ten_thousandth(dtype, rng):
    left, right = (np.linalg.qr(rng.normal(size=(n, 64)))[0] for n in (80, 64))
    J = torch.as_tensor(left * np.geomspace(1, 1e-4, 64) @ right.T, dtype=dtype)
    result = bilipschitz(lambda z: z @ J.T, torch.zeros(2, 64, dtype=dtype), method="lanczos")
    assert_allclose(result.s_min, 1e-4, rtol=1e-4)


def test_many_outputs_do_not_make_a_small_stretch_look_lost():
    def spread(z):
        return torch.cat([z[:, :1], 1e-3 * z[:, 1:]], 1).repeat(1, 100_000)

    assert_allclose(bilipschitz(spread, np.zeros((2, 2), np.float32)).conditions, 1000, rtol=1e-4)


def test_directions_are_a_lower_estimate_and_say_so(smooth, z):
    result, exact = bilipschitz(smooth, z, method="directions"), bilipschitz(smooth, z)
    assert (result.constants <= exact.constants * (1 + 1e-9)).all()
    assert result.constant < exact.constant
    assert not result.certified
    assert any("random directions" in note for note in result.notes)
    assert "lower estimate" in str(result)


@pytest.mark.parametrize("method", ["exact", "lanczos", "directions"])
def test_the_same_call_gives_the_same_answer_in_chunks_of_any_size(method, smooth, z):
    one, two = bilipschitz(smooth, z, method=method), bilipschitz(smooth, z, method=method)
    assert_array_equal(one.constants, two.constants)
    assert_allclose(bilipschitz(smooth, z, method=method, chunk=7).constants, one.constants, rtol=1e-6)


@pytest.mark.parametrize("method", ["exact", "lanczos", "directions"])
def test_outputs_and_latents_may_have_any_shape(method, rng):
    class Pictures(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(2, 3, 2, stride=2)

        def forward(self, z):
            return torch.tanh(self.up(z))

    result = bilipschitz(seeded(Pictures), rng.normal(size=(6, 2, 3, 3)), method=method)
    assert (result.dimension, result.outputs, result.n) == (18, 108, 6)
    assert np.isfinite(result.constants).all()


def test_an_orthogonal_decoder_is_an_isometry(rng, z):
    Q = torch.as_tensor(np.linalg.qr(rng.normal(size=(9, 5)))[0].T)
    result = bilipschitz(lambda z: z @ Q + 1, z)
    assert_allclose(result.constants, 1)
    assert_allclose(result.isometry_defect, 0, atol=1e-12)
    assert theorem1(result, 1.0).epsilon < 1e-5


def test_a_scaled_isometry_is_one_after_rescaling(rng, z):
    Q = torch.as_tensor(np.linalg.qr(rng.normal(size=(9, 5)))[0].T)
    result = bilipschitz(lambda z: 3 * z @ Q, z)
    assert_allclose([result.constant, result.scale, result.scale_free], [3, 3, 1])
    assert_allclose(result.isometry_defect, 2)


def test_rescaling_by_the_best_factor_gives_the_scale_free_constant(smooth, z):
    result = bilipschitz(smooth, z)
    scaled = bilipschitz(lambda z: smooth(z) / result.scale, z)
    assert_allclose(scaled.constant, result.scale_free)
    assert result.scale_free <= result.constant


def test_turning_latents_and_outputs_changes_nothing(smooth, z, rng):
    P = torch.as_tensor(np.linalg.qr(rng.normal(size=(5, 5)))[0])
    Q = torch.as_tensor(np.linalg.qr(rng.normal(size=(9, 9)))[0])
    turned = bilipschitz(lambda w: smooth(w @ P.T) @ Q + 2, z @ P.numpy())
    assert_allclose(turned.constants, bilipschitz(smooth, z).constants, rtol=1e-8)


def test_a_lost_direction_makes_the_constant_infinite(z):
    for method in ("exact", "lanczos"):
        result = bilipschitz(lambda z: torch.cat([z[:, :4], z[:, :4]], 1), z, method=method)
        assert np.isinf(result.constants).all()
        assert (result.scale_free, result.s_min.max()) == (math.inf, 0)
        assert any("loses a direction at 40 of 40" in note for note in result.notes)
    assert theorem1(result, 1.0).epsilon == math.inf


def test_fewer_outputs_than_latents_lose_directions(z):
    result = bilipschitz(lambda z: z[:, :3], z)
    assert result.constant == math.inf
    assert any("fewer outputs (3) than latents (5)" in note for note in result.notes)
    assert result.spectra.shape == (40, 5)


def test_a_relu_that_is_dead_at_some_points_only_is_told_by_point():
    result = bilipschitz(lambda z: torch.cat([z[:, :1], torch.relu(z[:, 1:])], 1), np.array([[1.0, 1.0], [1.0, -1.0]]))
    assert_array_equal(result.constants, [1, math.inf])
    assert result.quantile(0.25) == 1
    assert result.to_dict()["quantiles"]["0.95"] == math.inf


def test_decoders_that_branch_on_values_are_differentiated_one_by_one(z):
    def branching(z):
        return torch.stack([row * 2 if row.sum().item() > 0 else row * 4 for row in z])

    result = bilipschitz(branching, z)
    assert_allclose(result.constants, np.where(z.sum(1) > 0, 2, 4))
    assert_allclose(bilipschitz(branching, z, method="directions").constants, result.constants)


def test_layers_that_work_in_place_are_measured(z):
    decoder = seeded(lambda: nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Linear(5, 8), nn.ELU(inplace=True)))
    before = z.copy()
    assert_allclose(bilipschitz(decoder, z).spectra[:3], by_hand(decoder.double(), z[:3]), rtol=1e-5)
    assert_array_equal(z, before)


def test_attention_and_normalisation_are_measured(rng):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

        def forward(self, z):
            return self.layer(z)

    tokens = seeded(Tokens).double()
    z = rng.normal(size=(4, 3, 8))
    for method in ("exact", "directions"):
        result = bilipschitz(tokens, z, method=method)
        assert (result.dimension, result.outputs) == (24, 24)
    assert_allclose(bilipschitz(tokens, z).s_max[0], by_hand(tokens, z[:1])[0, 0], rtol=1e-8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("method", ["exact", "lanczos", "directions"])
def test_a_gpu_gives_the_same(method, smooth, z):
    there = bilipschitz(smooth, z, method=method, device="cuda")
    assert_allclose(there.constants, bilipschitz(smooth, z, method=method).constants, rtol=1e-6)
    assert next(smooth.parameters()).device.type == "cpu"


def test_the_module_is_left_as_it_was(smooth, z):
    before = {name: value.clone() for name, value in smooth.state_dict().items()}
    bilipschitz(smooth, z)
    assert all(torch.equal(value, before[name]) for name, value in smooth.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in smooth.parameters())


def test_batch_norm_that_is_at_rest_is_measured(z):
    decoder = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 7)))
    assert math.isfinite(bilipschitz(decoder, z).constant)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.1)), r"dropout in training mode \(1\).*decoder.eval\(\)"),
        (nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)), r"batch norm in training mode \(1\)"),
        (lambda z: z + torch.rand_like(z), "the decoder is random"),
        (lambda z: z - z.mean(0), "depends on the other rows"),
        (lambda z: z.detach(), "has no gradient"),
        (lambda z: torch.zeros(len(z), 3), "has no gradient"),
        (lambda z: z.detach() * torch.ones(1, requires_grad=True), "has no gradient with respect to the latents"),
        (lambda z: z.detach().numpy(), "must return one tensor; got ndarray; wrap it"),
        (lambda z: (z, z), "must return one tensor; got tuple"),
        (lambda z: z.sum(), "a row for each row of latents; got shape () for 3 rows"),
        (lambda z: z[:1], "a row for each row of latents; got shape (1, 5) for 3 rows"),
        (lambda z: z.sum(1), "a single output is (n, 1)"),
        (lambda z: z[:, :0], "must return rows of outputs; got shape (3, 0)"),
        (lambda z: z.to_sparse(), "must return a dense tensor; got layout torch.sparse_coo"),
        (lambda z: sys.exit(5), "the decoder fails on latents of shape (3, 5) and dtype torch.float64: SystemExit: 5"),
        (lambda z: z.argmax(1), "must return floating-point numbers; got torch.int64"),
        (lambda z: z * math.nan, "must return finite values; got NaN or infinity in row 0, 1, 2"),
        (lambda z: z @ torch.zeros(7, 3, dtype=z.dtype), "fails on latents of shape (3, 5) and dtype torch.float64"),
        (
            lambda z: torch.sqrt(z * 0) + z,
            "Jacobian of the decoder must be finite; got NaN or infinity in row 0, 1",
        ),
        (3, "decoder must be a torch module or a function; got int"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(decoder, message, z):
    import re

    pattern = message if "\\" in message else re.escape(message)
    with pytest.raises(InputError, match=pattern):
        bilipschitz(decoder, z)


@pytest.mark.parametrize(
    ("latents", "message"),
    [
        (np.arange(10).reshape(5, 2), "floating-point latents, .*; got dtype torch.int64"),
        (np.ones(5), "z must have shape"),
        (np.ones((0, 5)), "z must not be empty"),
        (np.full((2, 5), np.nan), "z must be finite; got NaN or infinite values in row 0, 1"),
        (np.array([["a"]]), "real numbers"),
    ],
)
def test_latents_that_are_none_are_refused(latents, message):
    with pytest.raises(InputError, match=message):
        bilipschitz(lambda z: z, latents)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method must be one of 'auto', 'exact'"),
        ({"directions": 0}, "directions must be an integer of at least 1; got 0"),
        ({"seed": -1}, "seed must be"),
        ({"chunk": 0}, "chunk must be an integer of at least 1; got 0"),
        ({"device": "tpu"}, "device must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message, z):
    with pytest.raises(InputError, match=message):
        bilipschitz(lambda z: z, z, **options)


def test_without_torch_it_says_what_to_install(z, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'congruence\[torch\]'"):
        bilipschitz(lambda z: z, z)


def test_results_become_tables_and_dicts(smooth, z):
    result = bilipschitz(smooth, torch.as_tensor(z))
    assert len(result.table()) == 40
    assert result.table()[3]["constant"] == result.constants[3]
    told = result.to_dict()
    assert told["certified"] is False
    assert told["constant"] == result.constant
    assert congruence.bilipschitz is bilipschitz
