"""What the criteria imply of each other, on random Jacobians; the code computes each on its own."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from congruence.mechanism._blocks import label_members
from congruence.mechanism._criteria import (
    block_orthogonality,
    block_overlap,
    containment_margin,
    disjoint_margin,
    disjoint_parts,
    disjoint_tolerance,
    histogram_sizes,
    lost_directions,
    nested_parts,
    relative_sizes,
    support_of,
    widest_gap,
)
from congruence.mechanism._matroid import row_components, unit_rows
from congruence.mechanism._sparsity_gap import sparsity_gap

BLOCKS = [((0,), (1,), (2,)), ((0, 1), (2,)), ((0,), (1, 2)), ((0, 2), (1,))]


@st.composite
def jacobians(draw, most_rows=8):
    """Jacobians with three columns in blocks, sparse, with entries that cancel now and then."""
    m = draw(st.integers(3, most_rows))
    entries = draw(st.lists(st.sampled_from([0, 0, 0, 1, -1, 2]), min_size=3 * m, max_size=3 * m))
    return np.array(entries, dtype=float).reshape(m, 3), draw(st.sampled_from(BLOCKS))


@st.composite
def disjoint_jacobians(draw):
    """Jacobians of Type D and full column rank: every row belongs to one block."""
    blocks = draw(st.sampled_from(BLOCKS))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = draw(st.lists(st.integers(0, len(blocks) - 1), min_size=4, max_size=9))
    j = rng.integers(-2, 3, size=(len(rows), 3)) * (label_members(blocks) == np.array(rows)[:, None])
    return j.astype(float), blocks


@settings(max_examples=60, deadline=None)
@given(disjoint_jacobians())
def test_disjoint_blocks_that_lose_nothing_have_all_other_properties(case):
    j, blocks = case
    assume(lost_directions(j) == 0)
    assert disjoint_margin(j, blocks) == 0
    assert containment_margin(j != 0, blocks) == 1
    gap = sparsity_gap(j, blocks)
    assert (gap.status, gap.contained) == ("holds", 1)
    assert block_orthogonality(j, blocks)[0] == pytest.approx(0, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(jacobians())
def test_a_sparsity_gap_leaves_no_support_inside_another_in_the_sparsest_basis(case):
    j, blocks = case
    gap = sparsity_gap(j, blocks)
    assert gap.status != "holds" or gap.contained > 0


def test_supports_that_are_not_contained_need_not_have_a_gap():
    j, blocks = np.array([[1.0, 0], [1, 1], [0, 1]]), ((0,), (1,))
    assert containment_margin(j != 0, blocks) == 0.5
    assert sparsity_gap(j, blocks).gap == 0


def test_disjoint_blocks_with_a_dead_latent_fail_type_m():
    j = np.array([[1.0, 0], [2, 0]])
    assert disjoint_margin(j, ((0,), (1,))) == 0
    assert containment_margin(j != 0, ((0,), (1,))) == 0


@settings(max_examples=80, deadline=None)
@given(jacobians())
def test_for_single_latents_type_m_is_structural_sparsity(case):
    support = case[0] != 0
    singles = ((0,), (1,), (2,))
    # Zheng and Zhang: for each latent some outputs that it and no other latent has in common.
    structural = all(
        support[:, k].any() and support[support[:, k]].all(axis=0).tolist() == [a == k for a in range(3)]
        for k in range(3)
    )
    assert (containment_margin(support, singles) > 0) == structural


@settings(max_examples=40, deadline=None)
@given(jacobians(), st.integers(0, 2**16))
def test_the_basis_inside_a_block_matters_to_type_m_alone(case, seed):
    j, blocks = case
    assume(lost_directions(j) == 0)
    rng = np.random.default_rng(seed)
    turn = np.zeros((3, 3))
    for block in blocks:
        turn[np.ix_(block, block)] = rng.normal(size=(len(block),) * 2)
    turned = np.where(np.abs(j @ turn) > 1e-12, j @ turn, 0.0)
    assert (disjoint_margin(j, blocks) == 0) == (disjoint_margin(turned, blocks) == 0)
    assert sparsity_gap(j, blocks).gap == sparsity_gap(turned, blocks).gap
    assert block_orthogonality(j, blocks)[0] == pytest.approx(
        block_orthogonality(turned, blocks)[0], rel=1e-6, abs=1e-9
    )
    for block in blocks:
        assert disjoint_parts(j, block) == disjoint_parts(turned, block)


@settings(max_examples=80, deadline=None)
@given(jacobians(6), st.integers(0, 2**16))
def test_rows_hang_together_as_in_the_graph_of_the_hat_matrix(case, seed):
    j = case[0] @ np.random.default_rng(seed).normal(size=(3, 3))
    rows = unit_rows(j)[0]
    owner, count = row_components(rows)
    hat = np.abs(j @ np.linalg.pinv(j)) > 1e-8
    reach = np.linalg.matrix_power((hat | np.eye(len(j), dtype=bool)).astype(float), len(j)) > 0
    live = np.abs(j).max(1) > 1e-12
    assert ((owner[:, None] == owner) == reach)[np.ix_(live, live)].all()
    assert count == len(np.unique(reach[live], axis=0))


def test_margins_of_a_jacobian_by_hand():
    j = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0], [0.0, 1.0, 1e-7]])
    blocks = ((0, 1), (2,))
    assert disjoint_margin(j, blocks) == pytest.approx(1e-7 / 25)
    assert disjoint_tolerance(relative_sizes(j), blocks) == pytest.approx(1e-7 / 4)
    assert block_overlap(support_of(j), blocks).tolist() == [[1, 0], [0, 1]]
    assert block_overlap(support_of(j, rtol=1e-9), blocks).tolist() == [[1, 0.5], [0.5, 1]]
    assert nested_parts(support_of(j), (0, 1)) == 1  # the first column is inside the second
    assert containment_margin(support_of(j, rtol=1e-9), blocks) == 0.5


def test_column_scale_takes_units_out():
    j = np.array([[1.0, 0.0], [1e-3, 1e-7], [0.0, 1e-8]])
    assert support_of(j, rtol=1e-4).tolist() == [[True, False], [True, False], [False, False]]
    assert support_of(j, rtol=1e-4, scale="column").tolist() == [[True, False], [True, True], [False, True]]
    assert not support_of(np.array([[1.0, 1e-18], [1.0, 1e-18]]), scale="column")[
        :, 1
    ].any()  # a dead latent stays dead


def test_the_widest_interval_without_entries_is_found():
    jacobians = np.array([[1.0, 3e-2], [2e-3, 0.0]]), np.array([[1.0, 5e-8], [4e-8, 0.0]])
    low, high = widest_gap(sum(map(histogram_sizes, jacobians)))
    assert low == pytest.approx(5e-8, rel=0.02)
    assert high == pytest.approx(2e-3, rel=0.02)


@pytest.mark.parametrize("m", [3, 6])
def test_the_contrast_is_that_of_gresele_for_single_latents(m):
    j = np.random.default_rng(0).normal(size=(m, 3))
    singles = ((0,), (1,), (2,))
    expected = np.log(np.linalg.norm(j, axis=0)).sum() - 0.5 * np.linalg.slogdet(j.T @ j)[1]
    assert block_orthogonality(j, singles)[0] == pytest.approx(expected)
    assert np.isinf(block_orthogonality(j[:, [0, 1, 1]], singles)[0])
    assert np.isnan(block_orthogonality(j * [1.0, 0.0, 1.0], singles)[0])
