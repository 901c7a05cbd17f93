import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.experiments.models import QLAE, VQVAE  # noqa: E402
from congruence.experiments.models.quantised import nearest_numbers, nearest_vectors, one_hot, straight_through  # noqa: E402

SMALL = {"net": "small", "shape": (1, 8, 8)}


def give(model, continuous):
    """Make the encoder give these numbers for any image."""
    with torch.no_grad():
        model.encoder.head.weight.zero_()
        model.encoder.head.bias.copy_(torch.as_tensor(continuous))
    return model


def numbers(parts):
    return {name: float(value.detach()) for name, value in parts.items()}


@pytest.fixture
def x():
    return torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_the_codebook_of_a_vqvae_is_uniform_within_the_root_of_three_by_its_width():
    codebook = VQVAE(2, **SMALL).codebook.detach().numpy()
    assert codebook.shape == (512, 64)
    limit = math.sqrt(3 / 64)
    assert 0.999 * limit < np.abs(codebook).max() <= limit
    assert codebook.std() == pytest.approx(1 / 8, rel=0.02)  # of variance 1 / 64
    assert_array_equal(codebook, VQVAE(2, seed=0, **SMALL).codebook.detach())
    assert not np.allclose(codebook, VQVAE(2, seed=1, **SMALL).codebook.detach())


def test_the_codebook_of_a_qlae_is_evenly_spaced():
    codebook = QLAE(3, **SMALL).codebook.detach().numpy()
    assert_allclose(codebook, np.tile(np.linspace(-0.5, 0.5, 10), (3, 1)), atol=1e-7)


def test_the_nearest_vector_is_the_first_of_several():
    codebook = torch.tensor([[5.0, 5.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    x = torch.tensor([[[0.0, 0.0], [0.9, 0.1]], [[-3.0, 0.0], [9.0, 9.0]]])  # the first is as near to 1, 2 and 3
    assert_array_equal(nearest_vectors(x, codebook), [[1, 1], [2, 0]])


def test_the_nearest_vector_is_that_of_all_distances():
    rng = np.random.default_rng(0)
    x, codebook = rng.normal(size=(40, 3, 8)), rng.normal(size=(30, 8))
    expected = np.square(x[:, :, None] - codebook).sum(-1).argmin(-1)
    found = nearest_vectors(torch.from_numpy(x).float(), torch.from_numpy(codebook).float())
    assert_array_equal(found, expected)


def test_the_nearest_number_is_the_first_of_several_and_each_latent_has_its_own():
    codebook = torch.tensor([[-1.0, 0.0, 1.0], [3.0, 1.0, 2.0]])
    x = torch.tensor([[0.5, 1.5], [-0.5, 2.5], [7.0, 0.0]])
    assert_array_equal(nearest_numbers(x, codebook), [[1, 1], [0, 0], [2, 1]])


def test_the_losses_of_the_codebook_are_means_of_squares(x):
    model = give(QLAE(2, values=3, quantisation=0.5, commitment=0.25, **SMALL), [0.1, -0.4])
    parts = numbers(model.loss(x))
    square = (0.1**2 + 0.1**2) / 2  # 0.1 is given 0, and -0.4 is given -0.5
    assert parts["quantisation"] == pytest.approx(square, rel=1e-5)
    assert parts["commitment"] == pytest.approx(square, rel=1e-5)
    assert parts["loss"] == pytest.approx(parts["bce"] + 0.75 * square, rel=1e-6)
    assert_array_equal(model.indices(x), [[1, 0]] * 3)
    assert_allclose(model.encode(x).detach(), [[0, -0.5]] * 3, atol=1e-7)


def test_the_losses_of_a_vqvae_are_means_of_squares(x):
    model = VQVAE(2, values=5, **SMALL)
    give(model, torch.cat([model.codebook[3].detach() + 0.01, model.codebook[1].detach() - 0.02]))
    parts = numbers(model.loss(x))
    square = (0.01**2 + 0.02**2) / 2
    assert parts["quantisation"] == pytest.approx(square, rel=1e-4)
    assert parts["loss"] == pytest.approx(parts["bce"] + 1.25 * square, rel=1e-6)
    assert_array_equal(model.indices(x), [[3, 1]] * 3)
    assert_array_equal(model.evaluated(x), [[3, 1]] * 3)
    assert_array_equal(model.encode(x).detach(), model.codebook[[3, 1]].flatten().expand(3, -1).detach())


def test_each_loss_has_a_gradient_on_its_own_side(x):
    for commitment, quantisation in ((1.0, 0.0), (0.0, 1.0)):
        model = give(QLAE(2, values=3, quantisation=quantisation, commitment=commitment, **SMALL), [0.1, -0.4])
        parts = model.loss(x)
        (parts["loss"] - parts["bce"]).backward()  # without what comes through the decoder
        # mean over 2 latents of (c - q)^2: 2 (c - q) / 2 for c, and the opposite for q
        assert_allclose(model.encoder.head.bias.grad, [commitment * 0.1, commitment * 0.1], atol=1e-6)
        expected = np.zeros((2, 3))
        expected[0, 1] = expected[1, 0] = -quantisation * 0.1
        assert_allclose(model.codebook.grad, expected, atol=1e-6)


def test_the_gradient_passes_straight_through():
    c = torch.tensor([[0.1, 0.2]], requires_grad=True)
    q = torch.tensor([[0.0, 0.5]], requires_grad=True)
    z = straight_through(c, q)
    assert_allclose(z.detach(), q.detach(), atol=1e-7)
    (z * torch.tensor([[2.0, 3.0]])).sum().backward()
    assert_array_equal(c.grad, [[2, 3]])
    assert q.grad is None


@pytest.mark.parametrize("kind", [QLAE, VQVAE])
def test_the_decoder_sees_the_codebook_and_only_its_losses_move_it(kind, x):
    model = kind(2, quantisation=0.0, commitment=0.0, **SMALL)
    seen = []
    model.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().numpy()))
    model.loss(x)["loss"].backward()
    assert_allclose(seen[0], model.encode(x).detach(), atol=1e-6)
    assert float(model.codebook.grad.abs().max()) == 0
    assert float(model.encoder.head.bias.grad.abs().max()) > 0


@pytest.mark.parametrize("kind", [QLAE, VQVAE])
def test_indices_stand_for_codes(kind, x):
    model = kind(3, **SMALL)
    indices = model.indices(x)
    assert indices.dtype == torch.int64
    assert indices.shape == (3, 3)
    codes = model.values_of(indices)
    assert_array_equal(codes.detach(), model.encode(x).detach())
    assert_allclose(codes.detach(), model._chosen(indices).detach(), rtol=1e-6)
    with torch.no_grad():
        model.codebook[...] = model.codebook.flip(0 if kind is VQVAE else 1)
    assert_array_equal(model.indices(x), model.values - 1 - indices)


def test_one_hot_counts_from_zero():
    assert_array_equal(one_hot(torch.tensor([[2, 0]]), 3), [[[0, 0, 1], [1, 0, 0]]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QLAE(2, values=1, **SMALL), "values must be an integer of at least 2; got 1"),
        (lambda: VQVAE(2, commitment=-0.1, **SMALL), "commitment must be a finite number at least 0; got -0.1"),
        (lambda: QLAE(2, quantisation=math.nan, **SMALL), "quantisation must be a finite number at least 0; got nan"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_models_may_be_given_numbers_of_numpy():
    plain = QLAE(3, values=4, seed=2, **SMALL)
    same = QLAE(np.int64(3), values=np.int64(4), seed=np.int64(2), net="small", shape=np.array([1, 8, 8]))
    assert json.dumps(same.config()) == json.dumps(plain.config())
    for name, value in plain.state_dict().items():
        assert torch.equal(same.state_dict()[name], value), name
