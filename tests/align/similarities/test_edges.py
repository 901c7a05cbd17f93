"""Inputs at the edge: constant, dead, short, wide, narrow, ill-conditioned, large, in other kinds of array."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.align._run_statistics import PairStatistics, RunStatistics, sum_pair
from congruence.align.similarities import (
    MEASURES,
    angular_procrustes,
    cka,
    correlations,
    distances,
    neighbour_overlap,
    neighbours,
    plain_cka,
    procrustes,
    pwcca,
    rsa,
    rsa_pearson,
    size_and_shape,
    strong_mcc,
    svcca,
)
from congruence.errors import InputError
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums

ALL = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))


@ALL
def test_a_constant_side_has_no_value(measure, rng):
    x = rng.normal(size=(20, 3))
    for constant in (np.full((20, 2), 0.1), np.full((20, 2), 0.1, dtype=np.float32), np.zeros((20, 1))):
        assert np.isnan(measure.function(x, constant))
        assert np.isnan(measure.function(constant, x))
        assert np.isnan(measure.function(constant, constant))


@ALL
def test_row_counts_that_differ_are_refused(measure, rng):
    x = rng.normal(size=(5, 2))
    with pytest.raises(InputError, match="x has 5 and y has 4"):
        measure.function(x, x[:4])
    with pytest.raises(InputError, match="y must be a matrix"):
        measure.function(x, x[:, 0])
    with pytest.raises(InputError, match="x has NaN or infinite values in 5 rows"):
        measure.function(np.full((5, 2), np.nan), x)


@ALL
def test_one_row_has_no_value_and_few_rows_do_no_harm(measure, rng):
    x, y = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    assert np.isnan(measure.function(x[:1], y[:1]))
    for n in (2, 3):
        value = measure.function(x[:n], y[:n])
        assert np.isnan(value) or measure.range[0] <= value <= measure.range[1]


def test_cka_takes_four_rows_and_rsa_three(rng):
    x, y = rng.normal(size=(2, 4, 2))
    assert [np.isnan(cka(x[:n], y[:n])) for n in (3, 4)] == [True, False]
    for f in (rsa, rsa_pearson):
        assert [np.isnan(f(x[:n], y[:n])) for n in (2, 3)] == [True, False]


@pytest.mark.parametrize("f", [cka, rsa, rsa_pearson], ids=lambda f: f.__name__)
def test_rows_that_are_all_equally_far_have_no_structure_to_compare(f, rng):
    corners = np.eye(8) @ ortho_group.rvs(8, random_state=0) + 5
    assert np.isnan(f(corners, rng.normal(size=(8, 3))))


@ALL
def test_dead_dimensions_change_nothing(measure, rng):
    x = rng.normal(size=(30, 3))
    y = x @ rng.normal(size=(3, 3)) + rng.normal(size=(30, 3))
    dead = np.insert(x, [1, 3], 0.1, axis=1)
    assert_allclose(measure.function(dead, y), measure.function(x, y), atol=1e-9)
    assert_allclose(measure.function(y, dead), measure.function(y, x), atol=1e-9)


@ALL
def test_repeated_dimensions_are_no_obstacle(measure, rng):
    x = rng.normal(size=(30, 3))
    twice = np.hstack([x, x, x @ [[1.0], [2.0], [-1.0]]])
    value = measure.function(twice, x)
    assert measure.range[0] <= value <= measure.range[1]
    assert_allclose(measure.function(twice, twice), measure.itself, atol=1e-9)


def test_canonical_correlations_of_repeated_dimensions_are_those_of_the_space_they_span(rng):
    x = rng.normal(size=(60, 3))
    y = rng.normal(size=(60, 2))
    twice = np.hstack([x, x @ rng.normal(size=(3, 4))])
    assert_allclose(svcca(twice, y, variance=1), svcca(x, y, variance=1), atol=1e-9)
    assert_allclose(pwcca(y, twice), pwcca(y, x), atol=1e-9)


def test_canonical_correlations_of_wide_runs_are_one_whatever_the_runs(rng):
    x, y = rng.normal(size=(2, 20, 40))
    assert_allclose(svcca(x, y, variance=1), 1)
    assert_allclose(pwcca(x, y), 1)


def test_directions_far_weaker_than_others_are_still_resolved(rng):
    """One strong direction that is shared, one weak by 1e-7 that is not: the sums alone cannot see the second."""
    x, other = rng.normal(size=(2, 500, 2))
    unlike = np.column_stack([x[:, 0], other[:, 1]])
    turn = ortho_group.rvs(2, random_state=0)
    weak_x, weak_unlike = (x * [1, 1e-7]) @ turn, (unlike * [1, 1e-7]) @ turn.T
    assert_allclose(svcca(weak_x, weak_x @ turn, variance=1), 1, atol=1e-6)
    assert_allclose(svcca(weak_x, weak_unlike, variance=1), svcca(x, unlike, variance=1), atol=1e-6)
    assert svcca(weak_x, weak_unlike) == pytest.approx(1)  # the 99 % of the variance that are kept are shared


def test_pwcca_ignores_linear_maps_of_the_second_side_only(rng):
    x = rng.normal(size=(50, 3)) * [1, 2, 3]
    y = x @ rng.normal(size=(3, 3)) + 3 * rng.normal(size=(50, 3))
    matrix = ortho_group.rvs(3, random_state=1) * [1, 5, 20]
    assert_allclose(pwcca(x, y @ matrix), pwcca(x, y), atol=1e-9)
    assert abs(pwcca(x @ matrix, y) - pwcca(x, y)) > 0.01


def test_wide_unrelated_runs_look_alike_to_all_but_the_unbiased(rng):
    x, y = rng.normal(size=(2, 90, 150))
    assert abs(cka(x, y)) < 0.05
    assert plain_cka(x, y) > 0.6
    assert svcca(x, y) > 0.9


@ALL
def test_other_kinds_of_array_give_the_same_value(measure, rng, tmp_path):
    x = rng.normal(size=(40, 4)).astype(np.float32)
    y = (x[:, :3] + 0.3 * rng.normal(size=(40, 3))).astype(np.float32)
    expected = measure.function(x.astype(np.float64), y.astype(np.float64))
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for first, second in [(x, y), (torch.from_numpy(x), torch.from_numpy(y)), (mapped, y.tolist())]:
        assert_allclose(measure.function(first, second), expected, atol=1e-9)


@ALL
def test_the_engine_of_other_devices_gives_the_same_value(measure, rng):
    """Rows on "cpu:0" go the way of rows on a CUDA device: torch does the arithmetic."""
    x = rng.normal(size=(40, 3)) * [1, 1, 1e-4] @ ortho_group.rvs(3, random_state=0)
    for y in (x[:, :2] + rng.normal(size=(40, 2)), x * 2):
        sides = [RunStatistics("", run_sums(Rows(z, "cpu:0"), [np.arange(40)])) for z in (x, y)]
        both = PairStatistics(*sides, pair_sums(*(side.sums for side in sides)).outside(None))
        assert_allclose(measure.of(both), measure.function(x, y), atol=1e-6)


@ALL
def test_data_far_from_the_origin_or_of_extreme_size_keep_their_value(measure, rng):
    x = rng.normal(size=(40, 4))
    y = x[:, :3] + 0.3 * rng.normal(size=(40, 3))
    expected = measure.function(x, y)
    assert_allclose(measure.function(x + 1e6, y - 1e6), expected, rtol=1e-6)
    if "scale" in measure.invariant_to:
        assert_allclose(measure.function(x * 1e-60, y * 1e60), expected, rtol=1e-9)


def test_distances_of_a_run_from_a_rotated_copy_are_zero_to_the_last_digits(rng):
    x = rng.normal(size=(1000, 6)) + 50
    y = x @ ortho_group.rvs(6, random_state=0)
    assert procrustes(x, 3 * y) < 1e-13
    assert angular_procrustes(x, 3 * y) < 1e-13
    assert size_and_shape(x, y) < 1e-10


def test_many_rows_are_sampled_by_seed(rng, monkeypatch):
    monkeypatch.setattr(neighbours, "NEIGHBOUR_ROWS", 60)
    x, y = rng.normal(size=(2, 200, 3))
    for f in (neighbour_overlap, lambda x, y, seed=0: rsa(x, y, rows=60, seed=seed)):
        assert f(x, y, seed=1) == f(x, y, seed=1) != f(x, y, seed=2)
        assert_allclose(f(x, x), 1)
    monkeypatch.setattr(distances, "RSA_ROWS", 60)
    assert MEASURES["rsa"].of(sum_pair(x, y)) == rsa(x, y, rows=60)
    assert MEASURES["neighbour_overlap"].of(sum_pair(x, y)) == neighbour_overlap(x, y)


def test_wrong_options_are_named(rng):
    x = rng.normal(size=(5, 2))
    with pytest.raises(InputError, match="k must be an integer of at least 1; got 0"):
        neighbour_overlap(x, x, k=0)
    with pytest.raises(InputError, match="rows must be an integer of at least 3; got 2"):
        rsa(x, x, rows=2)
    for variance in (0, 1.01):
        with pytest.raises(InputError, match=f"variance must be a number above 0 and at most 1; got {variance}"):
            svcca(x, x, variance=variance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbours_that_are_equally_near_are_equally_good(dtype):
    """Codes of few values repeat and have many equal distances; which of them come first is rounding."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(400, 8)).astype(dtype)
    assert neighbour_overlap(x, (x @ ortho_group.rvs(8, random_state=0)).astype(dtype)) == 1
    unrelated = neighbour_overlap(x, rng.integers(0, 2, size=(400, 8)).astype(dtype))
    assert unrelated < 0.1


@pytest.mark.parametrize("far", [1e3, 1e8])
def test_neighbours_beside_a_far_row_are_those_of_float64(far, rng):
    x = rng.normal(size=(500, 20))
    x[3] *= far
    found = neighbours._find_neighbours(Rows(x))
    apart = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(apart, np.inf)
    expected = np.sort(np.partition(apart, 9, axis=1)[:, :10], axis=1)
    near = np.sort(np.take_along_axis(apart, found.nearest, 1), axis=1)
    few = slice(None) if far == 1e3 else np.arange(500) != 3  # from there, all others are equally far in float64
    assert_allclose(near[few], expected[few], rtol=1e-9)


def test_soft_matching_is_the_best_permutation_for_equal_widths_and_transport_for_others(rng, monkeypatch):
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    assert_allclose(correlations.soft_matching(x, y), strong_mcc(x, y))
    assert_allclose(correlations.soft_matching(x, np.hstack([x, -2 * x])), 1)  # every dimension twice
    wide = rng.normal(size=(50, 6))
    copies = correlations.soft_matching(x, wide)
    monkeypatch.setattr(correlations, "MOST_COPIES", 0)
    assert_allclose(correlations.soft_matching(x, wide), copies)
    assert correlations.soft_matching(np.hstack([x, np.ones((50, 1))]), x) == pytest.approx(1)


@pytest.mark.parametrize("measure", [neighbour_overlap, rsa])
def test_one_far_value_does_not_change_the_distances_of_other_rows(rng, measure):
    x = rng.normal(size=(200, 4))
    y = x + 0.1 * rng.normal(size=x.shape)
    found = []
    for value in (1e3, 1e12, 1e20, 1e100):
        y[7, 2] = value
        found.append(measure(x, y))
    assert_allclose(found[1:], found[0], atol=1 / 200)  # all rows are equally far from row 7
