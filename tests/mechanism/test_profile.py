"""Where each block acts, and how much two blocks overlap."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from congruence.mechanism.profile import profile_blocks  # noqa: E402

MATRIX = torch.tensor([[1.0, 2, 2, 0, 0], [0, 0, 3, 4, 0], [0, 0, 0, 0, 0.0]]).double()  # latents x outputs


def linear(s):
    return s @ MATRIX


def test_effects_and_overlap_of_a_linear_decoder(rng):
    found = profile_blocks(linear, rng.normal(size=(5, 3)), chunk=2)
    assert found.effects == pytest.approx(MATRIX.numpy())
    assert found.overlap[0, 1] == pytest.approx(6 / (3 * 5))
    assert found.overlap[2].tolist() == [0, 0, 0]
    assert found.shared.tolist() == [[3, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert found.graph[0, 1]
    assert not found.graph[0, 2]
    assert found.names == ("z0", "z1", "z2")


def test_overlap_does_not_change_with_the_units_of_latents(rng):
    z = rng.normal(size=(4, 3))
    units = torch.tensor([1e3, 1.0, 1e-3]).double()
    assert profile_blocks(lambda s: linear(s * units), z).overlap == pytest.approx(profile_blocks(linear, z).overlap)


def test_a_block_of_several_latents_acts_where_any_of_them_does(rng):
    found = profile_blocks(linear, rng.normal(size=(4, 3)), "0+2,1")
    assert found.blocks == ((0, 2), (1,))
    assert found.effects[0] == pytest.approx(MATRIX[0].numpy())
    assert found.names == ("z0+2", "z1")
    assert found.to_dict()["outputs"] == 5


def test_effects_are_root_mean_squares_over_points():
    found = profile_blocks(lambda s: s**2, np.array([[1.0], [2.0]]))
    assert found.effects == pytest.approx(np.sqrt([[10.0]]))
