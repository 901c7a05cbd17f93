import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.maps.groups import fit_group, fit_map
from congruence.maps.nearness import measure, protocol
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums
from congruence.stats.intervals import bootstrap_mean


def measured(x, y, group="similarity", **options):
    plan = protocol(len(x), **options)
    sums = pair_sums(*(run_sums(Rows(run), plan.folds, plan.gaps) for run in (x, y)))
    near, _ = measure(sums, {group: lambda paired, fold: fit_group(paired, group)}, 1.0, plan)
    return near[group], plan


@given(st.integers(4, 60), st.integers(2, 8), st.integers(0, 100))
def test_folds_hold_every_row_once(n, folds, seed):
    plan = protocol(n, folds=folds, seed=seed)
    assert_array_equal(np.sort(np.concatenate(plan.folds)), np.arange(n))
    sizes = [len(fold) for fold in plan.folds]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 2


@given(st.integers(4, 60), st.integers(0, 100))
def test_re_pairings_move_every_row_within_its_fold(n, seed):
    plan = protocol(n, nulls=3, seed=seed)
    for partner in plan.repairings:
        assert (partner != np.arange(n)).all()
        for fold in plan.folds:
            assert_array_equal(np.sort(partner[fold]), fold)


@given(st.integers(2, 12), st.integers(0, 100))
def test_re_pairings_of_clusters_lead_to_other_clusters(clusters, seed):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(clusters), rng.integers(3, 6, size=clusters))
    plan = protocol(len(cluster), nulls=3, cluster=cluster, seed=seed)
    for partner in plan.repairings:
        assert (cluster[partner] != cluster).all()


def test_folds_of_unequal_clusters_have_about_equal_rows(rng):
    cluster = np.repeat(np.arange(40), rng.integers(1, 50, size=40))
    sizes = [len(fold) for fold in protocol(len(cluster), folds=5, cluster=cluster).folds]
    assert max(sizes) - min(sizes) < 50


@pytest.mark.parametrize("clustered", [False, True])
def test_the_null_is_that_of_maps_fitted_to_the_shuffled_rows(clustered, rng):
    x, y = rng.normal(size=(2, 60, 3))
    cluster = np.repeat(np.arange(12), 5) if clustered else None
    near, plan = measured(x, y, "similarity", folds=4, nulls=2, cluster=cluster)
    expected = []
    for turn, fold in enumerate(plan.folds):
        rest = np.setdiff1d(np.arange(60), fold)
        # few clusters: both re-pairings are scored on all folds; rows: each on every other fold
        for partner in plan.repairings if clustered else [plan.repairings[turn % 2]]:
            h = fit_map(x[rest], y[partner][rest], "similarity")
            expected += list(np.linalg.norm(h(x[fold]) - y[partner][fold], axis=1))
    assert_allclose(near.null, np.mean(expected), atol=1e-10)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("heavy", [False, True])
def test_one_fold_a_re_pairing_has_the_expectation_of_all_folds(clustered, heavy):
    """Over many data sets, the mean null equals that of scoring every re-pairing on all folds, within 4 errors."""
    gaps = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_t(2.5, size=(2, 60, 3)) if heavy else rng.normal(size=(2, 60, 3))
        cluster = np.repeat(np.arange(15), 4) if clustered else None
        near, plan = measured(x, y, "similarity", folds=4, nulls=5, cluster=cluster, seed=seed)
        every = [
            np.linalg.norm(fit_map(x[rest], y[partner][rest], "similarity")(x[fold]) - y[partner][fold], axis=1)
            for partner in plan.repairings
            for fold in plan.folds
            for rest in [np.setdiff1d(np.arange(60), fold)]
        ]
        gaps.append(near.null / np.concatenate(every).mean() - 1)
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / np.sqrt(60)
    assert np.std(gaps) < 0.15


def test_rows_of_a_cluster_stay_together(rng):
    cluster = rng.choice(["a", "b", "c", "d", "e", "f", "g"], 100)
    plan = protocol(100, folds=3, cluster=cluster)
    where = {name: {k for k, fold in enumerate(plan.folds) if name in cluster[fold]} for name in set(cluster)}
    assert all(len(folds) == 1 for folds in where.values())


@pytest.mark.parametrize("group", ["identity", "permutation", "rigid", "similarity", "linear"])
def test_held_out_errors_are_those_of_maps_fitted_without_the_row(group, rng):
    """The subtraction of fold sums must give what fitting anew on the other rows gives."""
    x, y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3)) + 5
    near, plan = measured(x, y, group, folds=4, nulls=2)
    padded = np.pad(y, ((0, 0), (0, 1)))

    def held_out(target):
        errors = np.empty(60)
        for fold in plan.folds:
            rest = np.setdiff1d(np.arange(60), fold)
            errors[fold] = np.linalg.norm(fit_map(x[rest], target[rest, :3], group)(x[fold]) - target[fold], axis=1)
        return errors

    assert_allclose(near.errors, held_out(padded), atol=1e-10)
    scored = [held_out(padded[plan.repairings[turn % 2]])[fold] for turn, fold in enumerate(plan.folds)]
    assert_allclose(near.null, np.concatenate(scored).mean(), atol=1e-10)
    in_sample = np.linalg.norm(fit_map(x, y, group)(x) - padded, axis=1)
    assert_allclose(near.mean, in_sample.mean())
    assert_allclose(near.rms, np.sqrt((in_sample**2).mean()))
    assert_allclose(near.q95, np.quantile(in_sample, 0.95))
    assert_allclose(near.sup, in_sample.max())


def test_held_out_errors_survive_rank_deficiency(rng):
    x = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 8))
    x[:, 5] = 0
    near, _ = measured(x, x, "linear")
    assert near.held_out.mean < 1e-10


def test_unrelated_runs_score_at_their_null(rng):
    near, _ = measured(*rng.normal(size=(2, 500, 8)), "linear", nulls=50)
    assert_allclose(near.held_out.mean, near.null, rtol=0.02)


def test_without_nulls_and_bootstrap_their_numbers_are_undefined(rng):
    near, _ = measured(*rng.normal(size=(2, 50, 2)), nulls=0, bootstrap=0)
    assert np.isnan(near.null)
    assert np.isnan([near.held_out.low, near.held_out.high]).all()


def test_the_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    hits = 0
    for seed in range(300):
        values = np.random.default_rng(seed).exponential(size=80)
        low, high = bootstrap_mean(values, np.arange(80), 200, seed)
        hits += low <= 1 <= high
    assert 0.89 <= hits / 300 <= 0.98


def test_clusters_widen_the_interval_of_correlated_rows(rng):
    cluster = np.repeat(np.arange(20), 50)
    values = rng.normal(size=20)[cluster] + 0.1 * rng.normal(size=1000)
    rows = np.subtract(*bootstrap_mean(values, np.arange(1000), 500, 0)[::-1])
    clusters = np.subtract(*bootstrap_mean(values, cluster, 500, 0)[::-1])
    assert clusters > 4 * rows


def test_too_few_rows_or_clusters_are_refused():
    with pytest.raises(InputError, match="at least 4 paired rows; got 3"):
        protocol(3)
    with pytest.raises(InputError, match="all rows belong to one cluster"):
        protocol(10, cluster=np.zeros(10))


def test_ordered_rows_are_held_out_in_stretches_with_gaps():
    plan = protocol(100, folds=5, nulls=3, order_blocks=5)
    assert [fold.tolist() for fold in plan.folds] == [list(range(k, k + 20)) for k in range(0, 100, 20)]
    assert plan.gaps[1].tolist() == [15, 16, 17, 18, 19, 40, 41, 42, 43, 44]
    assert plan.units == 20
    for order in plan.repairings:
        shift = (order - np.arange(100)) % 100
        assert len(set(shift)) == 1
        assert 5 <= shift[0] <= 95


def test_maps_are_fitted_without_the_fold_and_its_gap(rng):
    x, y = rng.normal(size=(2, 80, 3))
    near, plan = measured(x, y, "linear", folds=4, nulls=0, order_blocks=4)
    for fold, gap in zip(plan.folds, plan.gaps, strict=True):
        rest = np.setdiff1d(np.arange(80), np.r_[fold, gap])
        h = fit_map(x[rest], y[rest], "linear")
        assert_allclose(near.errors[fold], np.linalg.norm(h(x[fold]) - y[fold], axis=1))


def test_intervals_contain_their_value_and_r2_is_that_of_the_held_out_rows(rng):
    x = rng.normal(size=(200, 4))
    y = x + rng.normal(size=x.shape)
    near, _ = measured(x, y, "similarity")
    for estimate in (near.of_chance, near.r2):
        assert estimate.low <= estimate.mean <= estimate.high
    assert_allclose(near.of_chance.mean, near.held_out.mean / near.null)
    assert_allclose(near.r2.mean, 1 - np.square(near.errors).sum() / np.square(y - y.mean(0)).sum())
