import numpy as np
import pytest
from numpy.testing import assert_array_equal

torch = pytest.importorskip("torch")

from congruence.experiments.models import VQVAE, AutoEncoder  # noqa: E402
from congruence.experiments.models.reconstructions import traverse_latents  # noqa: E402


class Squares(AutoEncoder):
    """A model whose two latents are the brightness of the two halves of an image."""

    def encode(self, images):
        x = self.pixels(images)
        return torch.stack([x[..., :2].mean((1, 2, 3)), x[..., 2:].mean((1, 2, 3))], 1)

    def decode(self, codes):
        return codes[:, None, None, [0, 0, 1, 1]].expand(-1, 1, 4, -1)


@pytest.fixture
def squares():
    model = Squares(2, net="small", shape=(1, 8, 8))
    model.shape = (1, 4, 4)
    return model


def test_a_traversal_changes_one_latent_of_the_first_image_over_the_middle_of_its_values(squares):
    images = np.zeros((3, 1, 4, 4), np.uint8)
    images[0, ..., :2], images[0, ..., 2:] = 51, 102
    codes = np.column_stack([np.linspace(0, 1, 101), np.full(101, 0.4)])
    found = traverse_latents(squares, images, codes, steps=3)
    assert_array_equal(found.originals, images)
    assert_array_equal(found.reconstructions, images)
    assert_array_equal(found.values[0].round(6), [0.05, 0.5, 0.95])
    assert_array_equal(found.traversals[0][:, 0, 0, 0], [13, 128, 242])
    assert_array_equal(found.traversals[0][:, 0, 0, 3], [102] * 3)  # the other latent stays that of the first image
    assert_array_equal(found.traversals[1][:, 0, 0, 0], [51] * 3)


def test_a_discrete_latent_goes_through_the_values_it_takes_most_often(squares):
    squares.discrete = True
    codes = np.column_stack([[0.2] * 3 + [0.9] * 2 + [0.5], [0.1] * 6])
    found = traverse_latents(squares, np.zeros((1, 1, 4, 4), np.uint8), codes, steps=2)
    assert_array_equal(found.values[0], [0.2, 0.9])
    assert_array_equal(found.values[1], [0.1])
    assert found.traversals[1].shape == (1, 1, 4, 4)


def test_codes_that_are_numbers_of_vectors_are_decoded_as_those():
    model = VQVAE(2, net="small", shape=(1, 16, 16), values=5)
    images = torch.randint(0, 256, (4, 1, 16, 16), dtype=torch.uint8)
    codes = np.array([[0, 1], [4, 1], [4, 3]])
    found = traverse_latents(model, images, codes)
    assert_array_equal(found.values[0], [0, 4])
    index = model.indices(images[:1])
    index[0, 0] = 4
    with torch.no_grad():
        expected = (model.decode(model.values_of(index))[0] * 255).round().numpy()
    assert_array_equal(found.traversals[0][1], expected)


def test_a_component_moves_all_latents_along_its_axis(squares):
    class Halves:
        """The sum and the difference of the two latents."""

        mixing = np.array([[1.0, 1.0], [1.0, -1.0]])

        @staticmethod
        def transform(codes):
            return np.column_stack([codes.sum(1), codes[:, 0] - codes[:, 1]]) / 2

    images = np.zeros((1, 1, 4, 4), np.uint8)
    images[0, ..., :2], images[0, ..., 2:] = 51, 102  # codes 0.2 and 0.4, components 0.3 and -0.1
    codes = np.random.default_rng(0).uniform(size=(5, 2))
    found = traverse_latents(squares, images, codes, steps=2, components=Halves())
    low = found.values[0][0]
    assert_array_equal(found.values[0], np.quantile(Halves.transform(codes)[:, 0], [0.05, 0.95]))
    expected = np.clip(np.array([0.2, 0.4]) + (low - 0.3), 0, 1) * 255
    assert_array_equal(found.traversals[0][0, 0, 0, [0, 3]], expected.round())
