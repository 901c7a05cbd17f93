import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.experiments.models import AutoEncoder, BioAE  # noqa: E402
from congruence.experiments.models.autoencoders import reconstruction  # noqa: E402

SMALL = {"net": "small", "shape": (1, 8, 8)}


def give(model, codes, logit=0.0):
    """Make the encoder give these codes for any image, and the decoder one logit for any code."""
    with torch.no_grad():
        model.encoder.head.weight.zero_()
        model.encoder.head.bias.copy_(torch.tensor(codes))
        model.decoder[-1].weight.zero_()
        model.decoder[-1].bias.fill_(logit)
    return model


def numbers(parts):
    return {name: float(value.detach()) for name, value in parts.items()}


def test_the_cross_entropy_is_the_mean_over_pixels():
    x = torch.tensor([[[[0.0, 1.0]]], [[[0.25, 0.5]]]])  # two images of two pixels
    logits = torch.tensor([[[[0.0, 2.0]]], [[[-1.0, 0.0]]]])
    parts = numbers(reconstruction(logits, x))
    y = 1 / (1 + np.exp(-np.array([[0, 2.0], [-1, 0]])))
    t = np.array([[0, 1], [0.25, 0.5]])
    assert parts["bce"] == pytest.approx(np.mean(-t * np.log(y) - (1 - t) * np.log(1 - y)), rel=1e-6)
    each = ((y - t) ** 2).mean(1)
    assert parts["mse"] == pytest.approx(each.mean(), rel=1e-5)
    assert parts["psnr"] == pytest.approx((-10 * np.log10(each)).mean(), rel=1e-5)


def test_a_perfect_image_has_a_finite_ratio():
    parts = numbers(reconstruction(torch.full((1, 1, 2, 2), -200.0), torch.zeros(1, 1, 2, 2)))
    assert parts["psnr"] == pytest.approx(120)


def test_the_loss_of_an_autoencoder_is_the_cross_entropy_alone():
    model = give(AutoEncoder(2, **SMALL), [5.0, -5.0], logit=1.0)
    parts = numbers(model.loss(torch.zeros(3, 1, 8, 8)))
    assert parts["loss"] == pytest.approx(math.log(1 + math.e), rel=1e-6)  # -log(1 - sigmoid(1))
    assert parts["bce"] == parts["loss"]


def test_the_penalties_of_a_bioae_are_means_over_images_and_latents():
    model = give(BioAE(4, nonnegativity=2.0, activity=0.5, **SMALL), [1.0, -2.0, 0.0, -1.0])
    parts = numbers(model.loss(torch.rand(3, 1, 8, 8)))
    assert parts["nonnegativity"] == pytest.approx(0.75)  # (2 + 1) / 4
    assert parts["activity"] == pytest.approx(1.5)  # (1 + 4 + 1) / 4
    assert parts["bce"] == pytest.approx(math.log(2), rel=1e-6)
    assert parts["loss"] == pytest.approx(math.log(2) + 2 * 0.75 + 0.5 * 1.5, rel=1e-6)


def test_the_gradient_of_the_penalties_pushes_negative_codes_up_and_all_towards_zero():
    model = give(BioAE(3, nonnegativity=1.0, activity=0.5, **SMALL), [2.0, -1.0, 0.5])
    model.loss(torch.rand(2, 1, 8, 8))["loss"].backward()
    # d/dz of mean max(-z, 0) is -1/3 below 0; of mean z^2 it is 2 z / 3
    expected = [0.5 * 2 * 2 / 3, -1 / 3 + 0.5 * 2 * -1 / 3, 0.5 * 2 * 0.5 / 3]
    assert_allclose(model.encoder.head.bias.grad, expected, rtol=1e-5)


def test_a_decoder_of_no_logit_paints_grey():
    model = give(AutoEncoder(2, **SMALL), [0.0, 0.0])
    assert (model.decode(torch.rand(3, 2)) == 0.5).all()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (AutoEncoder, {"latents": 0}, "latents must be an integer of at least 1; got 0"),
        (AutoEncoder, {"latents": 2.5}, "latents must be an integer of at least 1; got 2.5"),
        (AutoEncoder, {"seed": 2**63}, "seed must be an integer from 0 to 9223372036854775807"),
        (AutoEncoder, {"seed": -1}, "seed must be .*; got -1"),
        (BioAE, {"activity": -1}, "activity must be a finite number at least 0; got -1"),
        (BioAE, {"nonnegativity": float("nan")}, "nonnegativity must be a finite number at least 0; got nan"),
    ],
)
def test_what_makes_no_sense_is_refused(kind, options, message):
    with pytest.raises(InputError, match=message):
        kind(**{"latents": 2} | SMALL | options)
