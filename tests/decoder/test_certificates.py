"""Certified constants are never below what is seen, and exact where everything is enumerated."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from congruence.decoder import bilipschitz, certify_layers, leaky_bound, linear_regions, theorem1
from congruence.errors import InputError

torch = pytest.importorskip("torch")
nn = torch.nn
ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "theory.json").read_text())["leaky_bound"]


def stack(widths, leak, seed=0, orthogonal=False, bias=True, activation=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = []
        for i in range(len(widths) - 1):
            layer = nn.Linear(widths[i], widths[i + 1], bias=bias)
            if orthogonal:
                nn.init.orthogonal_(layer.weight)
            parts += [layer, activation() if activation else nn.LeakyReLU(leak)]
        return nn.Sequential(*parts[:-1]).double().eval()


def test_the_leaky_bound_agrees_with_the_oracle():
    for row in ORACLE:
        assert_allclose(leaky_bound(row["alpha"], row["K"]).constant, row["bound"], rtol=1e-6)


@pytest.mark.parametrize("leak", [0.25, 0.8, 1.0, 1.5])
def test_three_orthogonal_layers_with_two_rectifiers_are_certified_by_their_two_leaks(leak, rng):
    decoder = stack([4, 6, 8, 10], leak, orthogonal=True, bias=False)
    by_layers, by_leak = certify_layers(decoder), leaky_bound(leak, 2, 4)
    assert_allclose([by_layers.low, by_layers.high], [by_leak.low, by_leak.high], rtol=1e-6)
    seen = bilipschitz(decoder, rng.normal(size=(300, 4)))
    assert 1 - 1e-9 <= seen.constant <= by_leak.constant * (1 + 1e-6)
    assert by_leak.constant <= leaky_bound(leak, 3).constant


def test_layers_with_orthogonal_parametrizations_are_isometries(rng):
    decoder = stack([3, 5, 7], 0.7, bias=False)
    for layer in (decoder[0], decoder[2]):
        nn.utils.parametrizations.orthogonal(layer)
    certificate = certify_layers(decoder)
    assert_allclose([certificate.low, certificate.high], [0.7, 1.0], rtol=1e-9)
    assert_allclose(linear_regions(decoder).certificate.high, 1.0, rtol=1e-9)
    seen = bilipschitz(decoder, rng.normal(size=(100, 3)))
    assert 1.0 <= seen.constant <= certificate.constant * (1 + 1e-9)


@given(st.integers(0, 10**6), st.floats(0.1, 2.0), st.integers(1, 3))
@settings(max_examples=15)
def test_nothing_seen_exceeds_what_is_certified(seed, leak, latents):
    decoder = stack([latents, 4, 5], leak, seed)
    certificate = certify_layers(decoder)
    seen = bilipschitz(decoder, np.random.default_rng(seed).normal(scale=3, size=(50, latents)))
    assert seen.s_max.max() <= certificate.high * (1 + 1e-9)
    assert seen.s_min.min() >= certificate.low * (1 - 1e-9)
    pieces = linear_regions(decoder).certificate
    assert seen.constant <= pieces.constant * (1 + 1e-9)
    assert pieces.constant <= certificate.constant * (1 + 1e-9)


def test_all_pieces_of_a_small_network_are_found(rng):
    """Four borders in general position cut the plane into 1 + 4 + 6 pieces, and a fine grid sees each of them."""
    decoder = stack([2, 4, 3], 0.3)
    result = linear_regions(decoder)
    assert result.count == 11
    seen = bilipschitz(decoder, rng.normal(scale=20, size=(20_000, 2)))
    assert_allclose(result.certificate.constant, seen.constant, rtol=1e-9)
    assert_allclose([result.certificate.low, result.certificate.high], [seen.s_min.min(), seen.s_max.max()], rtol=1e-9)


def test_a_box_holds_fewer_pieces_and_a_smaller_constant():
    decoder = stack([2, 5, 4], 0.2)
    whole, part = linear_regions(decoder), linear_regions(decoder, (-0.1, 0.1))
    assert part.count < whole.count
    assert part.certificate.constant <= whole.certificate.constant
    assert "between -0.1 and 0.1" in part.certificate.how


def test_two_hidden_layers_agree_with_what_a_dense_sample_sees(rng):
    decoder = stack([1, 3, 3, 2], 0.4, seed=3)
    result = linear_regions(decoder, (-4, 4))
    seen = bilipschitz(decoder, np.linspace(-4, 4, 20_001)[:, None])
    assert_allclose(result.certificate.constant, seen.constant, rtol=1e-9)
    assert result.count == len(np.unique(np.round(seen.s_max, 9)))


def test_a_rectifier_without_leak_loses_directions_in_some_piece_and_its_sum_folds():
    assert linear_regions(stack([2, 3, 2], 0, activation=nn.ReLU)).certificate.constant == math.inf
    fold = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        fold[0].weight[:] = torch.tensor([[1.0], [-1.0]])
        fold[2].weight[:] = 1.0  # |z|: an isometry on both sides, and not injective
    result = linear_regions(fold).certificate
    assert result.constant == 1
    assert not result.injective
    assert "fold" in str(result)


def test_units_that_do_not_depend_on_latents_split_nothing():
    decoder = stack([2, 3, 3], 0.5)
    with torch.no_grad():
        decoder[0].weight[0] = 0.0
        decoder[0].bias[0] = -1.0
    assert linear_regions(decoder).count == 4
    assert_allclose(linear_regions(decoder).certificate.constant, certify_everything(decoder), rtol=1e-9)


def certify_everything(decoder):
    grid = np.stack(np.meshgrid(*[np.linspace(-30, 30, 101)] * 2), -1).reshape(-1, 2)
    return bilipschitz(decoder, grid).constant


def test_convolutions_that_grow_pictures_are_certified_exactly(rng):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = [nn.Unflatten(1, (3, 2, 2)), nn.ConvTranspose2d(3, 4, 2, stride=2), nn.LeakyReLU(0.5)]
        decoder = nn.Sequential(*parts, nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Flatten()).double().eval()
    certificate = certify_layers(decoder, 12)
    assert certificate.dimension == 12
    kernel = decoder[1].weight.detach().numpy().reshape(3, -1)  # patches do not overlap
    values = np.linalg.svd(kernel, compute_uv=False)
    assert_allclose([certificate.layers[0].low, certificate.layers[0].high], [values[-1], values[0]], rtol=1e-9)
    seen = bilipschitz(decoder, rng.normal(size=(50, 12)))
    assert certificate.low * (1 - 1e-9) <= seen.s_min.min()
    assert seen.s_max.max() <= certificate.high * (1 + 1e-9)


def test_a_certificate_makes_a_certified_bound():
    certificate = leaky_bound(0.999, 2, 4)
    assert theorem1(certificate, 1.0).certified
    assert "certified by isometric layers and 2 rectifiers" in str(certificate)
    assert certificate.to_dict()["constant"] == certificate.constant
    assert_allclose(certificate.scale_free, 1 / 0.999)


class Doubled(nn.Sequential):
    """A chain that does more than its layers."""

    def forward(self, z):
        return 2 * super().forward(z)


def hooked(layer):
    layer.register_forward_hook(lambda module, given, out: 2 * out)
    return layer


class Unknown(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: certify_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU())), r"1 \(ReLU\) has no lower bound, since"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(2, 3), nn.Tanh())), "slope approaches 0"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.0))), "slope approaches 0"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(4, 3))), "it has 3 outputs for 4 inputs"),
        (lambda: certify_layers(Unknown(), 2), r"decoder \(Unknown\) must be a layer whose stretch is known"),
        (
            lambda: certify_layers(Doubled(nn.Linear(2, 3)), 2),
            r"decoder \(Doubled\) must be a layer",
        ),
        (lambda: certify_layers(nn.Sequential(hooked(nn.Linear(2, 3)))), r"0 \(Linear with hooks\) must be a layer"),
        (lambda: certify_layers(lambda z: z), "must be a torch module; got function"),
        (lambda: certify_layers(nn.Sequential(nn.LeakyReLU(0.1))), "latent_shape must be set"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(3, 4)), 2), r"does not accept inputs of shape \(2,\)"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))), "training mode"),
        (lambda: certify_layers(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1))), "training mode and random"),
        (
            lambda: linear_regions(nn.Sequential(nn.Linear(2, 3), nn.Tanh())),
            "must be a linear layer, ReLU or",
        ),
        (lambda: linear_regions(nn.Sequential(nn.Linear(2, 70), nn.ReLU())), "more than 64 units"),
        (lambda: linear_regions(nn.Sequential(nn.Linear(2, 3)), (1, 0)), "box must be two numbers"),
        (lambda: leaky_bound(0.0, 2), "leak must be a finite number above 0; got 0.0"),
        (lambda: leaky_bound(0.5, -1), "activations must be an integer of at least 0; got -1"),
    ],
)
def test_decoders_that_cannot_be_certified_raise(make, message):
    with pytest.raises(InputError, match=message):
        make()
