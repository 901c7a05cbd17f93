"""Re-pairings keep the dependence between the rows of a run and destroy the pairing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from congruence.align.similarities import plain_cka
from congruence.errors import InputError
from congruence.stats.nulls import exchange_clusters, repairing, shift_rows

SEEDS = st.integers(0, 2**32 - 1)


@given(st.integers(2, 60), SEEDS)
def test_no_row_keeps_its_partner_and_every_row_is_used_once(n, seed):
    partner = repairing(n, np.random.default_rng(seed))
    assert_array_equal(np.sort(partner), np.arange(n))
    assert (partner != np.arange(n)).all()


def test_rows_stay_inside_their_folds(rng):
    folds = [np.arange(0, 20, 2), np.arange(1, 20, 2)]
    partner = repairing(20, rng, folds=folds)
    for fold in folds:
        assert_array_equal(np.sort(partner[fold]), fold)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=40), SEEDS)
def test_a_whole_cluster_is_paired_with_one_other_cluster(sizes, seed):
    rng = np.random.default_rng(seed)
    unit = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    partner = repairing(len(unit), rng, unit=unit)
    for cluster, size in enumerate(sizes):
        rows = partner[unit == cluster]
        (other,) = np.unique(unit[rows])
        assert other != cluster
        assert len(np.unique(rows)) == min(size, sizes[other])  # repeated only where the other has too few
        assert np.bincount(rows).max() <= -(-size // sizes[other])


@given(st.integers(2, 30), st.integers(1, 8), SEEDS)
def test_clusters_of_equal_size_use_every_row_once(clusters, size, seed):
    unit = np.arange(clusters * size) % clusters
    partner = exchange_clusters(unit, np.random.default_rng(seed))
    assert_array_equal(np.sort(partner), np.arange(len(unit)))


def test_clusters_are_exchanged_among_those_of_similar_size(rng):
    sizes = np.arange(1, 101)
    unit = np.repeat(np.arange(100), sizes)
    for _ in range(20):
        assert abs(sizes[unit[exchange_clusters(unit, rng)]] - sizes[unit]).max() < 10


def test_all_other_clusters_are_partners_equally_often(rng):
    unit = np.repeat(np.arange(5), 2)
    counts = np.zeros((5, 5))
    for _ in range(2000):
        np.add.at(counts, (unit, unit[exchange_clusters(unit, rng)]), 1)
    expected = 2000 * 2 / 4 * (1 - np.eye(5))
    assert np.abs(counts - expected).max() < 150  # about 5 standard deviations of pairs of rows


@given(st.integers(2, 60), st.integers(1, 30), SEEDS)
def test_ordered_rows_are_shifted_by_at_least_a_block_in_either_direction(n, block, seed):
    rng = np.random.default_rng(seed)
    if block > n // 2:
        with pytest.raises(InputError, match=rf"1 to half of the {n} rows; got {block}"):
            shift_rows(n, block, rng)
        return
    partner = repairing(n, rng, block=block)
    (amount,) = np.unique((np.arange(n) - partner) % n)
    assert block <= amount <= n - block


def test_rows_of_one_cluster_cannot_be_exchanged(rng):
    with pytest.raises(InputError, match="all rows belong to one cluster"):
        exchange_clusters(np.zeros(4, dtype=int), rng)


@pytest.mark.parametrize("equal", [True, False])
def test_unrelated_runs_of_clusters_exceed_their_null_as_often_as_chance_has_it(equal):
    """P(p <= 0.1) of CKA over 100 unrelated pairs of 20 clusters; splitting clusters gave 0.6."""
    low = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        unit = np.repeat(np.arange(20), 10 if equal else rng.integers(5, 16, size=20))
        x, y = rng.normal(size=(2, 20, 5))[:, unit] + 0.5 * rng.normal(size=(2, len(unit), 5))
        null = [plain_cka(x, y[exchange_clusters(unit, rng)]) for _ in range(19)]
        low += (1 + (np.array(null) >= plain_cka(x, y)).sum()) / 20 <= 0.1
    assert low <= 20  # 10 expected; more than 20 has a probability of 0.001
