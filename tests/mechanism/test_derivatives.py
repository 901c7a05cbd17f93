"""Derivatives of decoders, against derivatives known by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.mechanism.derivatives import (  # noqa: E402
    classify_curvature,
    difference_chunks,
    directional_chunks,
    jacobians,
    open_decoder,
    second_derivatives,
)

DOUBLE = torch.ones(2, 3, dtype=torch.float64)


def known(s):
    """(s1 s2^2, exp(s1), s2^3) as images of shape (3, 1)."""
    return torch.stack([s[:, 0] * s[:, 1] ** 2, s[:, 0].exp(), s[:, 1] ** 3], 1)[:, :, None]


@pytest.fixture
def points():
    return np.random.default_rng(0).normal(size=(5, 2))


def test_first_derivatives_are_those_by_hand(points):
    a, b = points.T
    zero = np.zeros_like(a)
    expected = np.stack([np.stack([b**2, 2 * a * b], 1), np.stack([np.exp(a), zero], 1), np.stack([zero, 3 * b**2], 1)])
    assert_allclose(jacobians(known, points), expected.transpose(1, 0, 2), rtol=1e-13)


def test_second_derivatives_are_those_by_hand(points):
    a, b = points.T
    result = second_derivatives(known, points)
    assert result.shape == (5, 3, 2, 2)
    assert_allclose(result[:, 0, 0, 1], 2 * b)
    assert_allclose(result[:, 0, 1, 0], 2 * b)
    assert_allclose(result[:, 0, 1, 1], 2 * a)
    assert_allclose(result[:, 1, 0, 0], np.exp(a))
    assert_allclose(result[:, 2, 1, 1], 6 * b)
    assert np.abs(result[:, 1:, 0, 1]).max() == 0


def test_a_third_derivative_along_directions(points):
    e = np.eye(2)
    directions = np.array([[e[0], e[1], e[1]], [e[1], e[1], e[1]]])
    (result,) = directional_chunks(open_decoder(known, points), directions)
    assert_allclose(result[:, 0], np.tile([2.0, 0.0, 0.0], (5, 1)))
    assert_allclose(result[:, 1], np.tile([0.0, 0.0, 6.0], (5, 1)))


@pytest.mark.parametrize("order", [2, 3])
def test_mixed_differences_of_a_polynomial_are_those_by_hand(points, order):
    u, v = np.array([0.3, 0.0]), np.array([0.0, 0.7])
    steps = [u, v, v][:order]
    b = points[:, 1]
    expected = 0.3 * ((b + 0.7) ** 2 - b**2) if order == 2 else np.full(5, 0.3 * 2 * 0.7**2)
    (result,) = difference_chunks(open_decoder(known, points), np.array([steps]))
    assert_allclose(result[:, 0, 0], expected, rtol=1e-12)
    assert_allclose(result[:, 0, 1:], 0, atol=1e-12)


def test_chunks_of_points_and_of_directions_and_chosen_outputs_change_nothing(points, monkeypatch):
    whole, bent = jacobians(known, points), second_derivatives(known, points)
    assert_allclose(jacobians(known, points, chunk=2), whole)
    assert_allclose(jacobians(known, points, outputs=np.array([2, 0])), whole[:, [2, 0]])
    monkeypatch.setattr("congruence.decoder.prepared_decoder.CPU_BYTES", 100)  # one direction at a time
    assert_allclose(jacobians(known, points), whole)
    assert_allclose(second_derivatives(known, points), bent)


def test_a_module_in_float32_is_differentiated_in_float64_and_stays_as_it_was(points):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).eval()
    first, last = (net[k].weight.detach().double().numpy() for k in (0, 2))
    inner = np.tanh(points @ first.T + net[0].bias.detach().double().numpy())
    assert_allclose(jacobians(net, points), np.einsum("mh,rh,hd->rmd", last, 1 - inner**2, first), rtol=1e-12)
    assert net[0].weight.dtype == torch.float32


def test_a_function_around_float32_weights_is_taken_in_its_own_precision(points):
    weight = torch.tensor([[1.0, 2.0]])
    assert_allclose(jacobians(lambda s: s @ weight.T, points)[:, 0], np.tile([1.0, 2.0], (5, 1)))


def test_a_decoder_that_moves_nothing_has_derivatives_of_zero(points):
    still = open_decoder(lambda s: torch.ones(len(s), 3).double() + 0 * s[:, :1], points)
    assert classify_curvature(still) == "affine"
    assert not second_derivatives(still.decode, points).any()


def test_whether_a_decoder_bends(points):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(2, 8), torch.nn.Linear(8, 3)
    layers = {"affine": torch.nn.Identity(), "piecewise linear": torch.nn.LeakyReLU(), "smooth": torch.nn.Tanh()}
    for kind, layer in layers.items():
        assert classify_curvature(open_decoder(torch.nn.Sequential(first, layer, last), points)) == kind


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: jacobians(known, z, outputs=np.array([3])), "outputs must be integers from 0 to 2"),
        (lambda z: jacobians(known, z, chunk=0), "chunk must be an integer of at least 1; got 0"),
        (lambda z: jacobians(lambda s: s.abs().sqrt(), 0 * z), "derivatives of the decoder must be finite"),
        (lambda z: jacobians(known, z.astype(int)), "z must hold floating-point latents"),
        (lambda z: jacobians(lambda s: {"x": s @ DOUBLE}, z), "must return one tensor; got dict"),
        (lambda z: jacobians(lambda s: {"x": s @ DOUBLE.float()}, z), "must return one tensor; got dict"),
        (lambda z: jacobians("g", z), "decoder must be a torch module or a function; got str"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(points, call, message):
    with pytest.raises(InputError, match=message):
        call(points)
