import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.align._consensus import consensus
from congruence.errors import InputError
from congruence.maps.groups import fit_map

QUICK = {"bootstrap": 20}


def runs(rng, count=3, n=200, d=4, noise=0.0, scales=None):
    x = rng.laplace(size=(n, d)) * np.arange(1, d + 1)
    scales = np.ones(count) if scales is None else scales
    return {
        f"run{k}": scales[k] * (x + noise * rng.normal(size=(n, d))) @ ortho_group.rvs(d, random_state=k) + k
        for k in range(count)
    }


def test_turned_copies_have_everything_in_common(rng):
    found = consensus(runs(rng, scales=[1, 2, 5]), **QUICK)
    assert all(held.mean < 1e-12 for held in found.held_out.values())
    assert all(held.mean < 1e-11 for held in found.of_chance.values())
    assert found.converged
    assert found.null > 0.1
    for name, x in runs(np.random.default_rng(0), scales=[1, 2, 5]).items():
        assert_allclose(found.maps[name](x), found.values, atol=1e-9)


def test_rigid_maps_do_not_stretch(rng):
    given = runs(rng, scales=[1, 2, 5])
    found = consensus(given, group="rigid", **QUICK)
    for h in found.maps.values():
        assert_allclose(h.matrix @ h.matrix.T, np.eye(4), atol=1e-10)
    assert found.held_out["run2"].mean > 0.1


def test_the_consensus_is_the_mean_of_the_mapped_runs_on_its_principal_axes(rng):
    given = runs(rng, noise=0.3)
    found = consensus(given, **QUICK)
    assert_allclose(found.values, np.mean([found.maps[k](x) for k, x in given.items()], axis=0), atol=1e-10)
    covariance = np.cov(found.values, rowvar=False)
    assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-10)
    assert (np.diff(np.diag(covariance)) < 0).all()


def test_no_turn_of_one_run_comes_nearer_to_the_others(rng):
    """At the optimum each run already lies as near to the mean of the others as a similarity can bring it."""
    given = runs(rng, noise=0.5)
    found = consensus(given, group="rigid", **QUICK)
    mapped = {k: found.maps[k](x) for k, x in given.items()}
    for name, x in given.items():
        others = np.mean([m for k, m in mapped.items() if k != name], axis=0)
        best = fit_map(x, others, "rigid")(x)
        assert np.square(mapped[name] - others).sum() <= np.square(best - others).sum() * (1 + 1e-4)


def test_two_runs_meet_half_way(rng):
    given = runs(rng, count=2, noise=0.3)
    found = consensus(given, **QUICK)
    assert_allclose(found.errors["run0"], found.errors["run1"], atol=1e-12)


def test_the_order_of_the_runs_does_not_matter(rng):
    given = runs(rng, noise=0.3)
    forward, backward = (consensus(dict(items), **QUICK) for items in (given.items(), reversed(given.items())))
    assert_allclose(np.abs(forward.values), np.abs(backward.values), atol=1e-3)
    assert_allclose(forward.held_out["run1"].mean, backward.held_out["run1"].mean, rtol=1e-3)


def test_a_run_that_stands_apart_is_seen(rng):
    given = runs(rng, count=4, noise=0.1)
    given["run3"] = rng.normal(size=(200, 4))
    found = consensus(given, **QUICK)
    apart = found.held_out.pop("run3").mean
    assert apart > 1.5 * max(held.mean for held in found.held_out.values())


def test_narrower_runs_are_padded(rng):
    x = rng.normal(size=(100, 3))
    found = consensus([x, np.pad(x, ((0, 0), (0, 2))) @ ortho_group.rvs(5, random_state=0)], **QUICK)
    assert found.values.shape == (100, 5)
    assert found.held_out["run0"].mean < 1e-10


def test_clusters_are_held_out_whole(rng):
    given = runs(rng, noise=0.3)
    found = consensus(given, cluster=np.repeat(np.arange(20), 10), nulls=2, **QUICK)
    assert found.null > 2 * found.held_out["run0"].mean


def test_errors_are_relative_to_those_of_unrelated_runs(rng):
    found = consensus(runs(rng, noise=0.3), nulls=3, bootstrap=200)
    for name, held in found.held_out.items():
        ratio = found.of_chance[name]
        assert_allclose(ratio.mean, held.mean / found.null)
        assert ratio.low < ratio.mean < ratio.high < 0.5
    unrelated = consensus([rng.normal(size=(400, 3)) for _ in range(3)], nulls=5, bootstrap=200)
    assert all(ratio.low < 1 < ratio.high for ratio in unrelated.of_chance.values())


def test_without_a_null_there_is_no_share_of_chance(rng):
    assert all(np.isnan(ratio.mean) for ratio in consensus(runs(rng), nulls=0, **QUICK).of_chance.values())


def test_five_trainings_of_a_graph_network_share_most(data_folder):
    folder = data_folder / "modelpairs"
    given = {f"seed{k}": np.load(folder / f"admet_cls_seed{k}.npy") for k in range(5)}
    found = consensus(given, nulls=0, folds=2, **QUICK)
    assert found.converged
    assert all(0.009 < held.mean < 0.012 for held in found.held_out.values())


def test_numbers_are_plain(rng):
    result = consensus(runs(rng), **QUICK).to_dict()
    assert set(result) == {"group", "diameter", "diameter_exact", "runs", "null", "iterations", "converged"}
    assert set(result["runs"]) == {"run0", "run1", "run2"}
    assert set(result["runs"]["run0"]) == {"of_chance", "held_out"}


def test_wrong_options_are_named(rng):
    with pytest.raises(InputError, match="group must be one of 'rigid', 'similarity'; got 'linear'"):
        consensus(runs(rng), group="linear")
    with pytest.raises(InputError, match="normalize must be one of None, 'cosine'; got 'l2'"):
        consensus(runs(rng), normalize="l2")
    with pytest.raises(InputError, match="folds must be an integer of at least 2; got 1"):
        consensus(runs(rng), folds=1)
    with pytest.raises(InputError, match="seed must be an integer from 0 to 4294967295; got -1"):
        consensus(runs(rng), seed=-1)
    with pytest.raises(InputError, match=r"run1 has rows that are all zero and so have no direction \(row 2\)"):
        consensus([np.ones((10, 2)), np.where(np.arange(10)[:, None] == 2, 0, np.ones((10, 2)))], normalize="cosine")
    with pytest.raises(InputError, match="all rows of the consensus are equal"):
        consensus([np.ones((10, 2)), np.ones((10, 2))])


def test_a_diameter_that_was_not_searched_to_the_end_is_said(rng, monkeypatch):
    from congruence.maps import _diameter as diameter

    assert consensus(runs(rng), nulls=0).to_dict()["diameter_exact"]
    monkeypatch.setattr(diameter, "CPU_PAIRS", 0)
    assert not consensus(runs(rng), nulls=0).to_dict()["diameter_exact"]
