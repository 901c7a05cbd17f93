"""rho+ and rho- against enumeration of all zero patterns, and against formulas."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congruence.mechanism._matroid import unit_rows
from congruence.mechanism._sparsity_gap import _lightest_basis, exclusive_margin, sparse_decomposition, sparsity_gap

PARTITIONS = {
    2: [((0,), (1,))],
    3: [((0,), (1,), (2,)), ((0, 1), (2,)), ((1,), (0, 2))],
    4: [((0, 1), (2, 3)), ((0,), (1, 2), (3,)), ((0, 1, 2), (3,))],
}


@st.composite
def sparse_matrices(draw, smallest=2, largest=3, most_rows=6):
    """Small matrices of small whole numbers, in which rows repeat, vanish and cancel often."""
    d = draw(st.integers(smallest, largest))
    m = draw(st.integers(d, most_rows))
    entries = draw(st.lists(st.sampled_from([0, 0, 0, 1, -1, 2, 3]), min_size=m * d, max_size=m * d))
    return np.array(entries, dtype=float).reshape(m, d), draw(st.sampled_from(PARTITIONS[d]))


def flats(j, rng):
    """Generic vectors of every null space of a set of rows, with the number of rows they do not vanish on."""
    m, d = j.shape
    result = {}
    for pattern in product([False, True], repeat=m):
        rows = j[list(pattern)]
        null = np.eye(d) if not len(rows) else np.linalg.svd(rows)[2][np.linalg.matrix_rank(rows) :].T
        if null.shape[1]:
            many = null @ rng.normal(size=(null.shape[1], 3))
            zero = tuple(np.abs(j @ many).max(1) < 1e-9)
            result.setdefault(zero, (m - sum(zero), many.T))
    return sorted(result.values(), key=lambda pair: pair[0])


def lightest(candidates, start, d):
    """The weight of the lightest basis that holds the vectors of `start`, their own weights not counted."""
    have, total = np.array(start).reshape(-1, d), 0
    for weight, vectors in candidates:
        for v in vectors:
            more = np.vstack([have, v])
            if np.linalg.matrix_rank(more, tol=1e-7) > len(have):
                have, total = more, total + weight
    return total


def enumerated(j, blocks):
    """rho+ and rho- by trying all subsets of rows as zero patterns."""
    rng = np.random.default_rng(0)
    d = j.shape[1]
    plus = sum(lightest(flats(j[:, list(b)], rng), [], len(b)) for b in blocks)
    every = flats(j, rng)
    owner = {a: k for k, block in enumerate(blocks) for a in block}
    minus = np.inf
    for weight, vectors in every:
        if len({owner[a] for a in np.flatnonzero(np.abs(vectors[0]) > 1e-9)}) > 1:
            minus = min(minus, weight + lightest(every, [vectors[0]], d))
    return plus, minus


@settings(max_examples=50, deadline=None)
@given(sparse_matrices())
def test_both_numbers_are_those_of_enumeration(case):
    j, blocks = case
    result = sparsity_gap(j, blocks)
    assert result.exact
    assert (result.rho_plus, result.rho_minus) == enumerated(j, blocks)
    assert result.status == ("holds" if result.gap > 0 else "fails")


@settings(max_examples=4, deadline=None)
@given(sparse_matrices(4, 4, 7))
def test_both_numbers_are_those_of_enumeration_with_four_latents(case):
    j, blocks = case
    result = sparsity_gap(j, blocks)
    assert (result.rho_plus, result.rho_minus) == enumerated(j, blocks)


@settings(max_examples=40, deadline=None)
@given(sparse_matrices(2, 4, 8), st.integers(0, 2**16))
def test_the_scale_of_latents_and_outputs_and_the_order_of_outputs_do_not_matter(case, seed):
    j, blocks = case
    rng = np.random.default_rng(seed)
    other = rng.permutation(j) * rng.choice([-3.0, 0.01, 20.0], size=j.shape[1])
    other *= rng.uniform(0.1, 10.0, size=(len(j), 1))
    one, two = sparsity_gap(j, blocks), sparsity_gap(other, blocks)
    assert (one.status, one.rho_plus, one.rho_minus) == (two.status, two.rho_plus, two.rho_minus)


@settings(max_examples=60, deadline=None)
@given(sparse_matrices(2, 4, 8))
def test_bounds_past_the_budget_are_never_wrong(case):
    j, blocks = case
    exact, bounded = sparsity_gap(j, blocks), sparsity_gap(j, blocks, budget=0)
    assert bounded.rho_plus >= exact.rho_plus
    assert bounded.rho_minus_low <= exact.rho_minus <= bounded.rho_minus_high
    assert bounded.status in (exact.status, "unknown")


@settings(max_examples=60, deadline=None)
@given(sparse_matrices(2, 4, 8))
def test_a_witness_is_misaligned_and_makes_the_basis_that_is_claimed(case):
    j, blocks = case
    result = sparsity_gap(j, blocks)
    u = result.witness / np.abs(result.witness).max()
    assert sum(np.abs(u[list(block)]).max() > 1e-9 for block in blocks) > 1
    rows, lengths = unit_rows(j)
    vectors, weights = _lightest_basis(rows, 1e5, 1e-8)
    used = np.abs(np.linalg.solve(vectors, u * lengths)) > 1e-9
    weight = int((np.abs(j @ u) > 1e-9).sum())
    assert weights.sum() + weight - weights[used].max() == result.rho_minus


@settings(max_examples=60, deadline=None)
@given(sparse_matrices(2, 2, 9))
def test_two_columns_follow_the_formula_of_shared_and_cancellable_rows(case):
    j, blocks = case
    if np.linalg.matrix_rank(j) < 2:
        return
    shared = (j != 0).all(1)
    ratios = np.round(j[shared, 0] / j[shared, 1], 9)
    most = max(np.unique(ratios, return_counts=True)[1], default=0)
    expected = int((j != 0).sum(0).min()) - int(shared.sum()) - int(most)
    if expected >= 0:
        assert sparsity_gap(j, blocks).gap == expected
    else:
        assert sparsity_gap(j, blocks).gap < 0


@settings(max_examples=40, deadline=None)
@given(sparse_matrices(2, 4, 8))
def test_a_gap_is_proved_only_where_it_is(case):
    j, _ = case
    singles = tuple((a,) for a in range(j.shape[1]))
    if exclusive_margin(j != 0) > 0:
        assert sparsity_gap(j, singles).gap >= exclusive_margin(j != 0)


def test_columns_that_share_nothing_are_proved_apart_past_the_budget():
    j = np.kron(np.eye(12), np.ones((40, 1))) * np.random.default_rng(0).uniform(1, 2, size=(480, 12))
    result = sparsity_gap(j, tuple((a,) for a in range(12)), budget=0)
    assert (result.status, result.exact, result.rho_minus_low) == ("holds", True, 520)
    result = sparsity_gap(j, tuple((a,) for a in range(12)), budget=12)
    assert (result.status, result.exact, result.gap) == ("holds", True, 40)


def test_a_tie_is_refuted_and_overlap_proved_past_the_budget():
    rng = np.random.default_rng(1)
    shared = np.kron(np.eye(5), np.ones((10, 1))) + np.roll(np.kron(np.eye(5), np.ones((10, 1))), 3, axis=0)
    j = np.minimum(shared, 1) * rng.uniform(1, 2, size=(50, 5))
    result = sparsity_gap(j, tuple((a,) for a in range(5)), budget=100)
    assert (result.status, result.exact) == ("holds", False)
    assert result.rho_minus_low <= result.rho_minus_high
    j[:, 1] = np.where(j[:, 0] != 0, 2 * j[:, 0], j[:, 1])  # now the first column is inside the second
    result = sparsity_gap(j, tuple((a,) for a in range(5)), budget=100)
    assert (result.status, result.exact) == ("fails", False)


@pytest.mark.parametrize("seed", range(3))
def test_the_finest_decomposition_is_found_in_any_basis(seed):
    rng = np.random.default_rng(seed)
    j = np.zeros((14, 4))  # latents 0 and 1 mix in every output; 2 and 3 have outputs of their own and share one
    j[:4, :2], j[4:9, 2], j[8:14, 3] = rng.normal(size=(4, 2)), rng.normal(size=5), rng.normal(size=6)
    mix = rng.normal(size=(4, 4))
    parts = sparse_decomposition(j @ mix)
    assert sorted(part.shape[1] for part in parts) == [1, 1, 2]
    for part in parts:
        moved = mix @ part  # in the coordinates that were planted
        touched = np.abs(moved).max(1) > 1e-7 * np.abs(moved).max()
        assert touched.tolist() in (
            [True, True, False, False],
            [False, False, True, False],
            [False, False, False, True],
        )


def test_a_square_jacobian_always_splits_into_single_directions():
    parts = sparse_decomposition(np.random.default_rng(0).normal(size=(4, 4)))
    assert [part.shape[1] for part in parts] == [1, 1, 1, 1]


def test_a_direction_that_is_lost_makes_it_fail_and_one_block_cannot():
    j = np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]])
    result = sparsity_gap(j, ((0,), (1,), (2,)))
    assert (result.status, result.rho_plus, result.rho_minus) == ("fails", 3, 3)
    assert "loses 1 direction" in result.reason
    alone = sparsity_gap(j[:, :2], ((0, 1),))
    assert (alone.status, alone.rho_minus) == ("holds", np.inf)
