"""Generators with a chosen overlap: who writes where, derivatives, and dependent latents."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.experiments.data.overlap import dependent_covariance, overlap_generator
from congruence.mechanism._sparsity_gap import sparsity_gap


@pytest.fixture
def latents():
    return np.random.default_rng(0).normal(size=(20, 15))


@pytest.mark.parametrize(("slots", "overlap", "outputs"), [(2, 0, 40), (2, 0.8, 24), (3, 0.25, 45), (5, 0.5, 50)])
def test_neighbours_share_as_many_rows_as_asked_and_others_none(slots, overlap, outputs, latents):
    generator = overlap_generator(slots, overlap)
    assert (generator.outputs, generator.overlap) == (outputs, overlap)
    z = latents[:, : 3 * slots]
    acts = np.stack([np.abs(generator.jacobian(z)[:, :, block]).max((0, 2)) > 0 for block in generator.blocks])
    assert_array_equal(acts.sum(1), [20] * slots)
    shared = acts.astype(int) @ acts.T
    ring = [(i, (i + 1) % slots) for i in range(slots if slots > 2 else 1)]
    for i, j in np.argwhere(np.triu(np.ones((slots, slots)), 1)):
        assert shared[i, j] == (20 * overlap if (i, j) in ring or (j, i) in ring else 0)


def test_derivatives_and_the_torch_function_are_those_of_the_map(latents):
    torch = pytest.importorskip("torch")
    from congruence.mechanism.losses import decoder_jacobian

    generator = overlap_generator(3, 0.3, seed=4)
    z = latents[:, :9]
    decode, points = generator.decoder(), torch.from_numpy(z)
    assert_allclose(decode(points), generator(z), atol=1e-12)
    assert_allclose(decoder_jacobian(decode, points), generator.jacobian(z), atol=1e-12)


def test_what_slots_write_is_added(latents):
    z = 3 * latents[:, :6]
    alone = [np.where(np.arange(6) // 3 == k, z, 0.0) for k in (0, 1)]
    generator = overlap_generator(2, 0.5)
    assert_allclose(generator(z), generator(alone[0]) + generator(alone[1]), atol=1e-12)


def test_slots_share_one_network_or_have_their_own_and_the_map_is_injective_near_points(latents):
    for shared_net in (True, False):
        generator = overlap_generator(3, 0.5, shared_net=shared_net)
        assert np.array_equal(generator.first[0], generator.first[1]) is shared_net
        assert (np.linalg.matrix_rank(generator.jacobian(latents[:, :9])) == 9).all()
    assert_allclose(np.linalg.norm(generator.second, axis=1), 1)
    again, other = (overlap_generator(3, 0.5, seed=seed).second for seed in (0, 1))
    assert_array_equal(generator.second, again)
    assert not np.array_equal(again, other)


@pytest.mark.parametrize(
    ("slots", "slot_dim", "width", "overlaps"),
    [(2, 3, 20, (0.75, 0.8)), (3, 2, 8, (0, 0.25, 0.375, 0.5)), (4, 2, 6, (0, 0.5)), (3, 1, 6, (0.5,))],
)
def test_the_sparsity_gap_is_that_of_the_exact_search(slots, slot_dim, width, overlaps):
    gaps = []
    for overlap in overlaps:
        one = overlap_generator(slots, overlap, slot_dim=slot_dim, width=width, seed=3)
        z = np.random.default_rng(0).normal(size=(1, one.dimension))
        found = sparsity_gap(one.jacobian(z)[0], one.blocks, budget=1e7)
        assert found.exact
        assert one.sparsity_gap == found.gap, overlap
        gaps.append(one.sparsity_gap)
    assert gaps == sorted(gaps, reverse=True)


def test_the_sparsity_gap_is_an_upper_bound_where_slots_share_nine_tenths():
    one = overlap_generator(2, 0.9, seed=3)
    found = sparsity_gap(one.jacobian(np.ones((1, 6)))[0], one.blocks, budget=1e7)
    assert found.gap <= one.sparsity_gap < 0
    assert found.status == "fails"


def test_the_sparsity_gap_of_a_ring_is_decided_by_pairs_or_by_the_whole_ring():
    assert [overlap_generator(2, one / 5).sparsity_gap for one in range(5)] == [18, 13, 9, 5, 1]
    assert [overlap_generator(3, one / 10).sparsity_gap for one in range(6)] == [18, 15, 13, 11, 9, 4]
    assert [overlap_generator(5, one / 10).sparsity_gap for one in range(6)] == [18, 15, 13, 11, 9, 7]


def test_the_fewer_degrees_of_freedom_the_more_latents_depend():
    off = ~np.eye(6, dtype=bool)
    found = [dependent_covariance(6, degrees) for degrees in (6, 60, np.inf)]
    sizes = [np.abs(one[off]).mean() for one in found]
    assert sizes[0] > 2 * sizes[1] > 0 == sizes[2]
    for one in found:
        assert_allclose(np.diag(one), 1)
        assert np.linalg.eigvalsh(one).min() > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: overlap_generator(1), "slots must be an integer of at least 2; got 1"),
        (lambda: overlap_generator(2, 1.0), "overlap must be at least 0 and below 1; got 1.0"),
        (lambda: overlap_generator(3, 0.6), "at most 0.5 with more than two slots; got 0.6"),
        (lambda: overlap_generator(2, -0.1), "overlap must be at least 0"),
        (lambda: overlap_generator(2, 0.9, width=4, slot_dim=3), "write 4 rows, fewer than their 6 latents"),
        (lambda: dependent_covariance(6, 5), "degrees must be at least the 6 latents; got 5"),
    ],
)
def test_generators_that_cannot_be_are_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
