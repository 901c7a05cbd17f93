"""Losses on Jacobians: against the reference, against definitions, and what does and does not change them."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.mechanism.losses import (  # noqa: E402
    KINDS,
    compositional_contrast,
    cross_hessian_penalty,
    decoder_jacobian,
    ima_contrast,
    interaction_asymmetry,
    jacobian_l1,
    pair_products,
)

FOLDER = Path(__file__).parents[1] / "oracles" / "slots"
CASES = json.loads((FOLDER / "expected.json").read_text())["cases"]
BLOCKS = [[0, 1], [2], [3, 4]]


@pytest.fixture
def jacobian():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(6, 9, 5)))


def disjoint(blocks, each=3, points=4):
    """A Jacobian whose blocks act on outputs of their own."""
    result = np.zeros((points, each * len(blocks), sum(map(len, blocks))))
    for k, block in enumerate(blocks):
        result[:, k * each : (k + 1) * each, block] = np.random.default_rng(k).normal(size=(points, each, len(block)))
    return torch.from_numpy(result)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_contrasts_agree_with_the_reference(case):
    with np.load(FOLDER / case["file"]) as file:
        jac = torch.from_numpy(file["jac"].astype(np.float64))
    blocks = np.arange(jac.shape[2]).reshape(case["K"], -1).tolist()
    for kind, key in (("raw", "ccomp_unweighted"), ("weighted", "ccomp_weighted")):
        assert_allclose(compositional_contrast(jac, blocks, kind=kind), case[key], rtol=1e-6, atol=1e-8)


def test_the_contrast_is_the_sum_over_outputs_and_pairs(jacobian):
    one = jacobian[0].numpy()
    lengths = [np.linalg.norm(one[:, block], axis=1) for block in BLOCKS]
    by_hand = sum(float(a @ b) for a, b in combinations(lengths, 2))
    got = compositional_contrast(jacobian, BLOCKS, reduction="none")
    assert got.shape == (6,)
    assert float(got[0]) == pytest.approx(by_hand)
    assert float(compositional_contrast(jacobian, "0-1,2,3-4")) == pytest.approx(float(got.mean()))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_act_apart_have_no_contrast_and_leading_axes_are_points(kind, jacobian):
    assert float(compositional_contrast(disjoint(BLOCKS), BLOCKS, kind=kind)) < 1e-10
    assert float(compositional_contrast(jacobian, BLOCKS, kind=kind)) > 0.1
    stacked = compositional_contrast(jacobian.reshape(2, 3, 9, 5), BLOCKS, kind=kind, reduction="none")
    assert_allclose(stacked.reshape(6), compositional_contrast(jacobian, BLOCKS, kind=kind, reduction="none"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_blocks_and_rotations_inside_them_do_not_matter_but_across_they_do(kind, jacobian):
    turned = jacobian.clone()
    turned[..., [0, 1]] = jacobian[..., [0, 1]] @ torch.from_numpy(ortho_group.rvs(2, random_state=0))
    first = float(compositional_contrast(jacobian, BLOCKS, kind=kind))
    assert float(compositional_contrast(turned, BLOCKS[::-1], kind=kind)) == pytest.approx(first)
    apart = disjoint(BLOCKS)
    across = apart @ torch.from_numpy(ortho_group.rvs(5, random_state=0))
    assert float(compositional_contrast(across, BLOCKS, kind=kind)) > 0.1


def test_only_the_raw_contrast_falls_with_the_size_of_the_jacobian(jacobian):
    for kind, share in (("raw", 1e-4), ("weighted", 1.0), ("scale_safe", 1.0)):
        whole, small = (float(compositional_contrast(j, BLOCKS, kind=kind)) for j in (jacobian, 0.01 * jacobian))
        assert small == pytest.approx(share * whole, rel=1e-6)
    scales = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    plain = compositional_contrast(jacobian, BLOCKS)
    assert_allclose(compositional_contrast(jacobian / scales, BLOCKS, scales=scales), plain)


def test_the_scale_safe_contrast_is_one_where_all_blocks_act_alike():
    alike = torch.ones(2, 4, 3, dtype=torch.float64)
    assert float(compositional_contrast(alike, None, kind="scale_safe")) == pytest.approx(1)


def test_the_ima_contrast_of_known_angles_and_of_blocks(jacobian):
    angle = 0.7
    square = torch.tensor([[3.0, 5 * np.cos(angle)], [0.0, 5 * np.sin(angle)]], dtype=torch.float64)
    assert float(ima_contrast(square)) == pytest.approx(-np.log(np.sin(angle)))
    parts = [jacobian[..., block] for block in BLOCKS]
    by_hand = sum(torch.logdet(p.mT @ p) for p in parts) - torch.logdet(jacobian.mT @ jacobian)
    assert_allclose(ima_contrast(jacobian, BLOCKS, reduction="none"), by_hand / 2)
    bent = jacobian.clone()
    bent[..., [3, 4]] = jacobian[..., [3, 4]] @ torch.tensor([[2.0, 1.0], [0.0, -3.0]], dtype=torch.float64)
    assert_allclose(ima_contrast(bent, BLOCKS), ima_contrast(jacobian, BLOCKS))
    assert float(ima_contrast(disjoint(BLOCKS), BLOCKS)) == pytest.approx(0, abs=1e-12)
    assert torch.isinf(ima_contrast(torch.ones(3, 2, dtype=torch.float64)))


def test_the_sum_of_sizes_and_the_share_of_the_largest_block():
    one = torch.tensor([[3.0, -1.0], [0.0, 2.0], [0.0, 0.0]])
    assert float(jacobian_l1(one)) == 6
    assert float(interaction_asymmetry(one, None)) == pytest.approx((0.875 - 0.5) / 0.5)  # the last output is idle
    assert float(interaction_asymmetry(disjoint(BLOCKS), BLOCKS)) == pytest.approx(1)
    assert float(interaction_asymmetry(torch.ones(4, 3), None)) == pytest.approx(0)
    assert float(interaction_asymmetry(torch.zeros(4, 3), None)) < 0.01


def bilinear(z):
    """The second derivatives across {0, 1} and {2}: 2 and -6 z2 (in z1 and z2)."""
    return torch.stack([2 * z[:, 0] * z[:, 2], z[:, 0] * z[:, 1] ** 2, -z[:, 1] * z[:, 2] ** 3], 1)


def test_second_derivatives_across_blocks_are_those_by_hand():
    z = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, -1.0]], dtype=torch.float64)
    blocks = [[0, 1], [2]]
    expected = 4 + (3 * z[:, 2] ** 2) ** 2
    assert_allclose(cross_hessian_penalty(bilinear, z, blocks, reduction="none"), expected)
    guessed = cross_hessian_penalty(bilinear, z, blocks, directions=2, reduction="none")
    assert_allclose(guessed, expected)  # here, signs of one entry each are all that matters
    assert float(cross_hessian_penalty(bilinear, z, [[0, 1, 2]])) == 0
    additive = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).double().requires_grad_(False)
    with torch.no_grad():
        additive[0].weight.copy_(torch.tensor([[1.0, 2, 0], [1, -1, 0], [0, 0, 1], [0, 0, 2]]))
    assert float(cross_hessian_penalty(additive, z, blocks)) < 1e-20
    assert float(cross_hessian_penalty(additive, z, None)) > 0.01


def test_random_signs_estimate_the_sum_without_bias():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    net.requires_grad_(False)
    z = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = cross_hessian_penalty(net, z, [[0, 1], [2, 3]])
    guessed = cross_hessian_penalty(net, z, [[0, 1], [2, 3]], directions=200)
    assert float(guessed) == pytest.approx(float(exact), rel=0.2)


LAYERS = [torch.nn.LeakyReLU(0.3), torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Softplus(), torch.nn.GELU()]


@pytest.mark.parametrize("between", LAYERS, ids=lambda layer: type(layer).__name__)
def test_the_closed_form_is_what_forward_mode_gives_with_its_gradients(between):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 7), between, torch.nn.Linear(7, 5), between, torch.nn.Linear(5, 4))
    net = net.double()
    z = torch.randn(6, 3, dtype=torch.float64)
    result = []
    for decoder in (net, lambda z: net(z)):  # a function is no stack, so it goes through forward mode
        jac = decoder_jacobian(decoder, z)
        loss = compositional_contrast(jac, [[0], [1, 2]])
        result.append((jac, torch.autograd.grad(loss, [p for p in net.parameters() if p.ndim == 2])))
    assert result[0][0].shape == (6, 4, 3)
    assert_allclose(result[0][0].detach(), result[1][0].detach(), atol=1e-12)
    for one, two in zip(result[0][1], result[1][1], strict=True):
        assert_allclose(one, two, atol=1e-12)
    by_decoder = compositional_contrast(net, [[0], [1, 2]], z=z)
    assert float(by_decoder.detach()) == pytest.approx(float(loss.detach()))


def test_other_modules_go_through_forward_mode():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).double()
    z = torch.randn(2, 3, dtype=torch.float64)
    step = 1e-6 * torch.eye(3, dtype=torch.float64)
    slopes = torch.stack([(net(z + e) - net(z - e)) / 2e-6 for e in step], -1)
    assert_allclose(decoder_jacobian(net, z).detach(), slopes.detach(), atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=2, max_size=6))
def test_products_of_pairs(values):
    by_hand = sum(a * b for a, b in combinations(values, 2))
    assert float(pair_products(torch.tensor(values, dtype=torch.float64))) == pytest.approx(by_hand)


def test_what_makes_no_sense_is_refused(jacobian):
    with pytest.raises(InputError, match="kind must be one of 'raw', 'weighted', 'scale_safe'; got 'l2'"):
        compositional_contrast(jacobian, BLOCKS, kind="l2")
    with pytest.raises(InputError, match="reduction must be one of 'mean', 'none'; got 'sum'"):
        jacobian_l1(jacobian, reduction="sum")
    with pytest.raises(InputError, match="or a decoder with its points z; got Linear"):
        compositional_contrast(torch.nn.Linear(2, 3), [[0], [1]])
    with pytest.raises(InputError, match=r"must be a tensor \(..., m, d\), .* got ndarray"):
        compositional_contrast(jacobian.detach().numpy(), BLOCKS)
    with pytest.raises(InputError, match="at least two"):
        interaction_asymmetry(jacobian, [[0, 1, 2, 3, 4]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_that_does_nothing_has_no_contrast(kind):
    jacobian = torch.zeros(2, 5, 4, requires_grad=True)
    result = compositional_contrast(jacobian, "0-1,2-3", kind=kind)
    assert 0 <= result.item() < 1e-10
    assert torch.isfinite(torch.autograd.grad(result, jacobian)[0]).all()
