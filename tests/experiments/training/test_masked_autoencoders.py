import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.experiments.data.patches import draw_factors, draw_shown, patches
from congruence.experiments.training.small_autoencoders import SmallAutoencoder, mask_images, train_masked_autoencoder

torch = pytest.importorskip("torch")


def draw(n, rng):
    return patches(draw_factors(n, rng)), draw_shown(n, 3, rng)


def test_the_encoder_sees_shown_patches_and_the_mask_and_nothing_else(rng):
    pictures, shown = draw(20, rng)
    rows = mask_images(pictures, shown)
    assert rows.shape == (20, 18)
    hidden = pictures + 100 * (1 - shown)[..., None]
    assert_array_equal(mask_images(hidden, shown), rows)
    assert_array_equal(rows[:, 12:], shown)
    assert_array_equal(rows[:, :12].reshape(20, 6, 2)[shown == 1], pictures[shown == 1])


def test_a_seed_decides_the_training_and_threads_are_left_as_they_were():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    rng = np.random.default_rng(1)
    rows = mask_images(*draw(30, rng))
    codes = [
        train_masked_autoencoder(draw, latent=3, hidden=8, steps=5, batch=16, seed=seed).encode(rows)
        for seed in (0, 0, 1)
    ]
    assert_array_equal(codes[0], codes[1])
    assert np.abs(codes[0] - codes[2]).max() > 0.01
    assert torch.get_num_threads() == threads
    assert_array_equal(torch.get_rng_state(), state)


def test_training_reconstructs_and_nears_an_isometry():
    options = {"latent": 3, "hidden": 32, "batch": 64, "learning_rate": 0.02}
    pictures, shown = draw(200, np.random.default_rng(1))
    found = {}
    for steps in (10, 150):
        model = train_masked_autoencoder(draw, steps=steps, **options)
        codes = model.encode(mask_images(pictures, shown))
        found[steps] = ((model.decode(codes) - pictures.reshape(200, -1)) ** 2).sum(1).mean(), model.stretch(codes)
    assert found[150][0] < 0.5 * found[10][0]
    assert found[150][1].max() < 0.7 * found[10][1].max()


def test_the_stretch_of_a_linear_decoder_is_that_of_its_singular_values():
    linear = torch.nn.Linear(3, 5)
    with torch.no_grad():
        linear.weight.copy_(torch.zeros(5, 3))
        linear.weight[:3, :3] = torch.diag(torch.tensor([1.2, 1.0, 0.5]))
    model = SmallAutoencoder(torch.nn.Identity(), linear, "cpu")
    assert_allclose(model.stretch(np.zeros((4, 3))), 2.0, rtol=1e-6)
