"""Where each block acts: G_D, its components, the gap of their number between bases, and the overlap of blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congruence.errors import InputError
from congruence.mechanism._blocks import connected_blocks, merge_groups
from congruence.mechanism.parts import finest_disjoint
from congruence.mechanism.profile import action_graph, component_gap, profile_blocks

torch = pytest.importorskip("torch")

DISJOINT = np.array([[1.0, 0, 0], [2, 0, 0], [0, 1, 1], [0, 2, -1], [0, 1, 3]])  # blocks {0} and {1, 2}
MATRIX = torch.tensor([[1.0, 2, 2, 0, 0], [0, 0, 3, 4, 0], [0, 0, 0, 0, 0.0]]).double()  # latents x outputs


def test_an_edge_is_an_output_in_common():
    assert action_graph(DISJOINT).tolist() == [[True, False, False], [False, True, True], [False, True, True]]
    assert connected_blocks(action_graph(DISJOINT)) == ((0,), (1, 2))


def test_an_edge_at_any_point_is_an_edge():
    stack = np.stack([DISJOINT, DISJOINT])
    stack[1, 0, 2] = 1e-3
    assert connected_blocks(action_graph(stack)) == ((0, 1, 2),)
    assert connected_blocks(action_graph(stack, rtol=1e-2)) == ((0,), (1, 2))


def test_units_of_latents_do_not_matter():
    assert (action_graph(DISJOINT * [1e-9, 1.0, 1e9]) == action_graph(DISJOINT)).all()


def test_a_latent_that_does_nothing_has_no_edge_to_itself():
    assert not action_graph(DISJOINT * [1, 0, 1])[1].any()


def test_a_rotated_basis_joins_what_was_apart():
    turn = np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1]]) / np.sqrt([2, 2, 1])
    assert connected_blocks(action_graph(DISJOINT, turn)) == ((0, 1, 2),)


def test_partitions_are_joined_to_the_finest_coarser_one():
    assert merge_groups(5, [[0], [1, 2], [3], [4], [0], [1], [2, 3], [4]]) == ((0,), (1, 2, 3), (4,))


@pytest.mark.parametrize(
    ("matrix", "blocks", "aligned", "misaligned"),
    [
        (DISJOINT, [[0], [1, 2]], 2, 1),
        (DISJOINT, [[0, 1], [2]], 2, 2),  # a part lies in two blocks: mixing inside it costs nothing
        (DISJOINT, [[0, 1, 2]], 2, None),
        (np.array([[1.0, 0], [1, 1], [0, 1]]), [[0], [1]], 1, 1),
        (np.array([[1.0, 1], [1, -1], [2, 2]]), [[0], [1]], 1, 2),  # only a rotated basis tells them apart
    ],
)
def test_component_gap(matrix, blocks, aligned, misaligned):
    gap = component_gap(matrix, blocks)
    assert (gap.aligned, gap.misaligned) == (aligned, misaligned)
    assert gap.gap == (None if misaligned is None else aligned - misaligned)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_no_basis_has_more_components_than_the_gap_says(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.choice([0.0, 0.0, 1.0, -1.0, 2.0], size=(6, 3))
    if np.linalg.matrix_rank(matrix) < 3:
        return
    blocks = [((0,), (1,), (2,)), ((0, 1), (2,))][seed % 2]
    gap = component_gap(matrix, blocks)
    finest = np.concatenate(finest_disjoint(matrix).parts, axis=1)
    candidates = [np.eye(3), finest]
    for _ in range(60):  # sparse bases, where components are many
        basis = rng.choice([0.0, 0.0, 1.0, -1.0, 2.0, 0.5], size=(3, 3))
        if np.linalg.matrix_rank(basis) == 3:
            candidates.append(basis)
    reached = {True: 0, False: 0}
    for basis in candidates:
        inside = all(any(set(np.flatnonzero(np.abs(v) > 1e-9)) <= set(b) for b in blocks) for v in basis.T)
        reached[inside] = max(reached[inside], len(connected_blocks(action_graph(matrix, basis))))
    assert reached[True] <= gap.aligned
    assert reached[False] <= gap.misaligned
    assert max(reached.values()) == max(gap.aligned, gap.misaligned)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(InputError, match=r"must have shape \(m, d\) or \(r, m, d\)"):
        action_graph(np.zeros(3))
    with pytest.raises(InputError, match="NaN"):
        action_graph(np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="full column rank 2; got rank 1"):
        component_gap(np.array([[1.0, 1], [2, 2]]), [[0], [1]])


def linear(s):
    return s @ MATRIX


def test_effects_and_overlap_of_a_linear_decoder(rng):
    result = profile_blocks(linear, rng.normal(size=(5, 3)), chunk=2)
    assert result.effects == pytest.approx(MATRIX.numpy())
    assert result.overlap[0, 1] == pytest.approx(6 / (3 * 5))
    assert result.overlap[2].tolist() == [0, 0, 0]
    assert result.shared.tolist() == [[3, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert result.graph[0, 1]
    assert not result.graph[0, 2]
    assert result.names == ("z0", "z1", "z2")


def test_overlap_does_not_change_with_the_units_of_latents(rng):
    z = rng.normal(size=(4, 3))
    units = torch.tensor([1e3, 1.0, 1e-3]).double()
    assert profile_blocks(lambda s: linear(s * units), z).overlap == pytest.approx(profile_blocks(linear, z).overlap)


def test_a_block_of_several_latents_acts_where_any_of_them_does(rng):
    result = profile_blocks(linear, rng.normal(size=(4, 3)), "0+2,1")
    assert result.blocks == ((0, 2), (1,))
    assert result.effects[0] == pytest.approx(MATRIX[0].numpy())
    assert result.names == ("z0+2", "z1")
    assert result.to_dict()["outputs"] == 5


def test_effects_are_root_mean_squares_over_points():
    result = profile_blocks(lambda s: s**2, np.array([[1.0], [2.0]]))
    assert result.effects == pytest.approx(np.sqrt([[10.0]]))
