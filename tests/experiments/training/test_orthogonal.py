import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.experiments.training.ensemble import draw_orthogonal, nearest_orthogonal, tangent

torch = pytest.importorskip("torch")


def defect(weight):
    weight = np.asarray(weight, dtype=np.float64)
    weight = weight if weight.shape[-2] >= weight.shape[-1] else weight.swapaxes(-1, -2)
    return np.abs(weight.swapaxes(-1, -2) @ weight - np.eye(weight.shape[-1])).max()


@pytest.mark.parametrize("shape", [(3, 9, 4), (3, 4, 9), (2, 5, 5)])
@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0, 100.0])
def test_the_retraction_is_the_polar_factor(shape, size, rng):
    weight = torch.from_numpy(np.stack([draw_orthogonal(shape[:0:-1], i)[0] for i in range(shape[0])]))
    weight = weight + size * torch.from_numpy(rng.normal(size=shape).astype(np.float32))
    found = nearest_orthogonal(weight)
    u, _, vt = np.linalg.svd(weight.double().numpy(), full_matrices=False)
    assert defect(found) < 3e-6
    assert_allclose(found, u @ vt, atol=2e-5)


def test_a_matrix_that_lost_its_rank_still_gives_an_orthogonal_one(rng):
    weight = torch.from_numpy(rng.normal(size=(2, 6, 3)).astype(np.float32))
    weight[0, :, 2] = weight[0, :, 1]
    weight[1] = 0
    assert defect(nearest_orthogonal(weight)) < 1e-5


@pytest.mark.parametrize("shape", [(9, 4), (4, 9)])
def test_a_tangent_step_leaves_the_matrix_orthogonal_to_first_order_and_keeps_the_rest(shape, rng):
    weight = torch.from_numpy(draw_orthogonal(shape[::-1], 0)[0]).double()
    gradient = torch.from_numpy(rng.normal(size=shape))
    along = tangent(weight, gradient)
    assert defect(weight + 1e-5 * along) < 1e-7  # in first order a defect of 1e-5 would be left; the rest is float32
    assert_allclose(tangent(weight, along), along, atol=1e-6)
    assert float((along * gradient).sum()) > 0


def test_drawn_stacks_are_orthogonal_and_follow_from_the_seed():
    stack = draw_orthogonal([12, 6, 3, 6, 12], 1)
    assert [one.shape for one in stack] == [(6, 12), (3, 6), (6, 3), (12, 6)]
    assert max(defect(one) for one in stack) < 1e-6
    again, other = draw_orthogonal([12, 6], 1)[0], draw_orthogonal([12, 6], 2)[0]
    assert (stack[0] == again).all()
    assert np.abs(stack[0] - other).max() > 0.1
