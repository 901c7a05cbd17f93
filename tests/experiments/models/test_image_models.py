"""What holds for every model of images."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence._saved import read_tensors, write_tensors
from congruence.errors import InputError
from congruence.experiments.models import build_model
from congruence.experiments.models.catalogue import MODELS

torch = pytest.importorskip("torch")
SHAPE = (2, 16, 16)
NEEDED = {"tcvae": {"dataset_size": 1000}}


def make(name, **options):
    return build_model({"model": name, "latents": 3, "net": "small", "shape": SHAPE} | NEEDED.get(name, {}) | options)


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, 256, (6, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MODELS)
def test_codes_images_and_losses_have_their_shapes(name, images):
    model = make(name)
    codes = model.encode(images)
    assert codes.shape == (6, 3 * model.in_per_latent)
    assert codes.dtype == torch.float32
    assert model.evaluated(images).shape == (6, 3)
    assert model.latents == 3
    decoded = model.decode(codes).detach()
    assert decoded.shape == images.shape
    assert 0 < float(decoded.min()) < float(decoded.max()) < 1
    assert {"loss", "bce", "mse", "psnr"} <= set(model.loss(images))


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_reaches_every_parameter_and_falls(name, images):
    model = make(name, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(30):
        torch.manual_seed(0)  # the same draws, so that losses can be compared
        optimiser.zero_grad()
        loss = model.loss(images)["loss"]
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert all(weight.grad is not None for weight in model.parameters())
    assert losses[-1] < losses[0] - 0.005


@pytest.mark.parametrize("name", MODELS)
def test_a_config_makes_the_same_model(name, images):
    model = make(name, seed=4)
    config = json.loads(json.dumps(model.config()))
    again = build_model(config)
    assert again.config() == model.config()
    for one, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    other = make(name, seed=5)
    assert not torch.equal(model.encoder.head.weight, other.encoder.head.weight)


@pytest.mark.parametrize("name", MODELS)
def test_weights_go_through_a_file(name, images, tmp_path):
    model = make(name).to(memory_format=torch.channels_last)
    write_tensors(tmp_path / "weights.safetensors", model.state_dict(), {})
    arrays, _ = read_tensors(tmp_path / "weights.safetensors", "arrays")
    again = make(name, seed=9)
    again.load_state_dict({key: torch.from_numpy(array) for key, array in arrays.items()})
    assert_allclose(again.evaluated(images).detach(), model.evaluated(images).detach(), atol=1e-6)
    pointers = [weight.data_ptr() for weight in model.state_dict().values()]
    assert len(set(pointers)) == len(pointers)  # no tensor shares its memory, which safetensors would refuse


@pytest.mark.parametrize("name", MODELS)
def test_weights_decay_but_not_biases_and_codebooks(name):
    model = make(name, net="published", shape=(1, 64, 64))
    names = {id(weight): key for key, weight in model.named_parameters()}
    decayed = {names[id(weight)] for weight in model.decayed_parameters()}
    undecayed = {names[id(weight)] for weight in model.undecayed_parameters()}
    assert decayed.isdisjoint(undecayed)
    assert decayed | undecayed == set(names.values())
    assert undecayed == {key for key in names.values() if key.endswith("bias")} | (
        {"codebook"} if model.discrete else set()
    )
    assert {"encoder.convolutions.1.weight", "decoder.constant", "decoder.style.weight"} <= decayed
    assert {"encoder.convolutions.1.bias", "decoder.style.bias", "encoder.head.bias"} <= undecayed


@pytest.mark.parametrize("name", MODELS)
def test_a_loss_waits_for_no_value(name, images, monkeypatch):
    model = make(name)

    def refuse(*_):
        raise AssertionError("a value was read")

    for reader in ("item", "__bool__", "__float__", "__int__", "__index__", "tolist", "numpy", "cpu", "nonzero"):
        monkeypatch.setattr(torch.Tensor, reader, refuse)
    model.loss(images)["loss"].backward()


@pytest.mark.parametrize("name", ["vae", "tcvae"])
def test_what_is_random_comes_from_the_generator_of_torch(name, images):
    model = make(name)
    losses = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        losses.append(float(model.loss(images)["loss"].detach()))
    assert losses[0] == losses[1] != losses[2]


def test_a_seed_leaves_the_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    make("vqvae", seed=3)
    assert_array_equal(torch.rand(3), expected)


def test_uint8_is_divided_by_255_and_floats_are_taken_as_they_are(images):
    model = make("ae")
    floats = images.numpy() / 255  # float64, an array
    assert_allclose(model.encode(floats).detach(), model.encode(images).detach(), atol=1e-6)
    with pytest.raises(InputError, match="images must be uint8, or floats in .*; got torch.int64"):
        model.encode(images.long())
    with pytest.raises(InputError, match=r"images must have shape \(n, 2, 16, 16\); got \(6, 16, 16\)"):
        model.encode(images[:, 0])


@pytest.mark.parametrize("name", MODELS)
def test_in_bfloat16_the_loss_is_the_same_but_for_rounding(name, images):
    model, losses = make(name), []
    for mixed in (True, False):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            losses.append(model.loss(images)["loss"].detach())
    assert losses[0].dtype == torch.float32
    assert_allclose(*losses, rtol=0.01)
    assert losses[0] != losses[1]


def test_a_model_of_the_published_size_has_a_gradient_everywhere():
    model = build_model({"model": "ae", "latents": 12})
    loss = model.loss(np.random.default_rng(0).integers(0, 256, (2, 3, 64, 64), dtype=np.uint8))["loss"]
    loss.backward()
    assert float(loss.detach()) == pytest.approx(np.log(2), abs=0.1)
    assert all(float(weight.grad.abs().max()) > 0 for weight in model.parameters())
