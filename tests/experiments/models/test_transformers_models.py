"""Models built from transformers configurations: what they minimise, and what is taken of them."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")
from congruence.activations import load_pretrained  # noqa: E402
from congruence.activations.pooling import Pooling  # noqa: E402
from congruence.errors import InputError, MissingDependencyError  # noqa: E402
from congruence.experiments.models.transformers_models import ImageClasses, MaskedPatches, NextToken  # noqa: E402
from congruence.experiments.training.loop import optimise  # noqa: E402
from congruence.experiments.training.settings import Training  # noqa: E402

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 40, size=(6, 12)).astype(np.int32)
IMAGES = RNG.integers(0, 256, size=(6, 3, 8, 8)).astype(np.uint8)


def next_token(seed=0):
    return NextToken(vocabulary=40, length=12, width=8, depth=2, heads=2, seed=seed)


def masked(seed=0):
    return MaskedPatches(side=8, patch=4, channels=3, width=8, depth=2, heads=2, seed=seed)


def classes(seed=0):
    return ImageClasses(channels=3, classes=4, width=2, seed=seed)


def embed(model, rows, layers):
    return model.embed(rows, layers, Pooling(model.pool, model.skip, 0))


ALL = {"next token": (next_token, TOKENS), "masked": (masked, IMAGES), "classes": (classes, IMAGES)}


@pytest.mark.parametrize(("make", "rows"), ALL.values(), ids=ALL)
def test_the_seed_decides_the_first_weights(make, rows):
    same, again, other = (list(make(seed).parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(same, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(same, other, strict=True))


def test_the_loss_of_tokens_is_that_of_transformers():
    model, tokens = next_token().eval(), torch.as_tensor(TOKENS).long()
    theirs = model.net(input_ids=tokens, labels=tokens).loss
    assert_allclose(model.loss(tokens).detach(), theirs.detach(), rtol=1e-6)


def test_later_tokens_do_not_change_what_is_said_before():
    model, changed = next_token().eval(), TOKENS.copy()
    changed[:, 8:] = 1
    first, second = (model.net(**model.inputs(rows)).logits.detach().numpy() for rows in (TOKENS, changed))
    assert_allclose(first[:, :8], second[:, :8], atol=1e-6)


@pytest.mark.parametrize(("make", "rows"), [ALL["next token"], ALL["classes"]], ids=["next token", "classes"])
def test_outputs_are_the_head_of_the_penultimate_layer(make, rows):
    model = make().eval()
    last = torch.as_tensor(embed(model, rows, model.layers[-1:])[0])
    weights, biases = model.head
    assert_allclose(model.outputs(rows, last).detach(), last @ weights.T + biases, atol=1e-5)


@pytest.mark.parametrize(("make", "rows"), ALL.values(), ids=ALL)
def test_layers_go_from_the_first_to_the_penultimate(make, rows):
    model = make().eval()
    found = embed(model, rows, model.layers)
    assert len(found) == len(model.layers) >= 3
    assert all(len(layer) == len(rows) and np.isfinite(layer).all() for layer in found)


def test_patches_are_hidden_in_training_and_all_seen_in_representations():
    model = masked().eval()
    with model.whole():
        seen = model.net.vit(**model.inputs(IMAGES)).last_hidden_state
    hidden = model.net.vit(**model.inputs(IMAGES)).last_hidden_state
    assert (seen.shape[1], hidden.shape[1]) == (5, 2)  # patches and the class token
    (found,) = embed(model, IMAGES, model.layers[-1:])
    assert_allclose(found, seen[:, 1:].mean(1).detach(), atol=1e-6)
    first, second = (model.outputs(IMAGES, None).detach() for _ in range(2))
    assert_array_equal(first, second)  # the same patches are hidden every time


def test_the_outputs_of_a_masked_autoencoder_are_what_its_loss_looks_at():
    model = masked().eval()
    noise = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        painted, whole = model.outputs(IMAGES, None), model.net(**model.inputs(IMAGES) | {"noise": noise})
        assert painted.shape == (6, 3, 48)  # three of four patches are hidden
        true = model.net.patchify(model.inputs(IMAGES)["pixel_values"])[whole.mask.bool()].reshape(6, 3, 48)
        assert_allclose((painted - true).square().mean(), whole.loss, rtol=1e-5)


def test_the_decoder_paints_what_the_net_does():
    model = masked().eval()
    with model.whole(), torch.no_grad():
        whole = model.net(**model.inputs(IMAGES)).logits
        tokens = model.net.vit(**model.inputs(IMAGES)).last_hidden_state
        assert_allclose(model.paint(tokens, model.net.decoder), whole, atol=1e-5)


@pytest.mark.parametrize(("make", "rows"), ALL.values(), ids=ALL)
def test_the_loop_lowers_the_loss(make, rows):
    model = make()
    batch = [torch.as_tensor(rows)] + ([torch.arange(6) % 4] if make is classes else [])
    torch.manual_seed(0)
    before = np.mean([float(model.loss(*batch).detach()) for _ in range(5)])
    how = Training(steps=15, batch=6, learning_rate=1e-2, clip=1.0, optimiser="adamw", deterministic=True)
    assert optimise(model, batch, how, device="cpu").loss < before


def test_what_is_saved_opens_as_any_model_does(tmp_path):
    model = next_token().eval()
    model.save(tmp_path / "net")
    opened = load_pretrained(tmp_path / "net")
    assert_allclose(
        opened.model(**opened.prepare(torch.as_tensor(TOKENS).long())).logits.detach(),
        model.net(**model.inputs(TOKENS)).logits.detach(),
        atol=1e-6,
    )


def test_patches_must_divide_the_side():
    with pytest.raises(InputError, match="patch must divide the side of 8 pixels; got 3"):
        MaskedPatches(side=8, patch=3, channels=3, width=8, depth=1, heads=2)


def test_where_transformers_is_missing_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'congruence\[extract\]'"):
        next_token()
