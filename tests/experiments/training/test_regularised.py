import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.experiments.data.digits import digits
from congruence.experiments.training.small_autoencoders import KINDS, train_regularised

torch = pytest.importorskip("torch")
OPTIONS = {"latent": 3, "hidden": 16, "batch": 100, "device": "cpu"}


@pytest.fixture(scope="module")
def images():
    return digits()[0][:200]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_and_its_singular_values_are_those_of_small_steps(kind, images):
    model = train_regularised(images, kind, epochs=3, seed=1, **OPTIONS)
    codes = model.encode(images[:5])
    assert codes.shape == (5, 3)
    found = model.singular_values(codes)
    step = 1e-2
    columns = [(model.decode(codes + step * e) - model.decode(codes - step * e)) / (2 * step) for e in np.eye(3)]
    expected = np.linalg.svd(np.stack(columns, axis=-1), compute_uv=False)
    assert_allclose(found, expected, rtol=2e-2, atol=2e-4)
    again = train_regularised(images, kind, epochs=3, seed=1, **OPTIONS)
    assert (again.encode(images[:5]) == codes).all()


def test_a_penalty_makes_the_decoder_more_of_an_isometry(images):
    conditions = []
    for strength in (0.0, 3.0):
        kind = "isometry penalty" if strength else "none"
        model = train_regularised(images, kind, epochs=60, strength=strength, seed=0, **OPTIONS)
        singular = model.singular_values(model.encode(images))
        conditions.append(float(np.median(singular[:, 0] / singular[:, -1])))
    assert conditions[1] < 1.6 < conditions[0]


def test_layers_of_the_spectral_decoder_do_not_stretch(images):
    model = train_regularised(images, "spectral norm", epochs=30, seed=0, **OPTIONS)
    for layer in model.decoder[::2]:
        assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1, abs=0.1)


def test_a_kind_that_is_not_there_is_refused(images):
    with pytest.raises(InputError, match="kind must be one of 'none', 'weight decay', .*; got 'magic'"):
        train_regularised(images, "magic")
