import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congruence.batches._folds import batch_by_batch, experiments_of, hold_out_batches, scored_rows, screen_of, spread
from congruence.errors import InputError


def planned(gene, plate, *, cluster=None, folds=5, positive=None, seed=0, **more):
    x = np.random.default_rng(1).normal(size=(len(gene), 3))
    screen = screen_of(x, gene, plate, "none", cluster=cluster, **more)
    experiments, _ = experiments_of(screen, positive)
    return screen, experiments, hold_out_batches(screen, experiments, folds, seed)


@settings(max_examples=40)
@given(
    counts=st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=5, max_size=25),
    folds=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_every_fold_has_a_label_where_there_are_units_enough(counts, folds, seed):
    counts = np.array(counts)
    place = spread(counts, counts.sum(1) + 1, folds, np.random.default_rng(seed))
    assert set(place) <= set(range(folds))
    rarest = min(range(2), key=lambda j: ((counts[:, j] > 0).sum() or 99, j))
    reached = {place[i] for i in np.flatnonzero(counts[:, rarest])}
    assert len(reached) == min(folds, (counts[:, rarest] > 0).sum())


def test_batches_are_held_out_whole_and_each_once(wells):
    screen, _, plan = planned(wells.gene, wells.plate)
    held = [name for fold in plan.folds for name in fold.held]
    assert sorted(held) == sorted(set(wells.plate))
    for fold in plan.folds:
        assert not (fold.train & fold.test).any()
        assert (fold.train | fold.test).all()
        assert not set(screen.batch[fold.train]) & set(screen.batch[fold.test])


def test_positives_are_in_every_fold_even_if_they_are_on_few_plates():
    plate = np.repeat(np.arange(30), 10)
    gene = np.full(300, "none", dtype=object)
    gene[plate < 5] = np.tile(["rare", "none"], 25)  # plates that would all fall into one fold in their order
    _, (experiment,), plan = planned(gene, plate)
    assert [int((fold.test & experiment.positive).sum()) for fold in plan.folds] == [5] * 5
    sizes = [fold.test.sum() for fold in plan.folds]
    assert max(sizes) - min(sizes) <= 10


def test_batches_without_positives_are_kept_out_of_scoring_but_trained_on():
    plate = np.repeat(np.arange(6), 10)
    gene = np.where((plate < 4) & (np.arange(60) % 2 == 0), "gene", "none")
    screen, (experiment,), plan = planned(gene, plate, folds=2)
    for fold in plan.folds:
        rows, reason = scored_rows(fold, screen, experiment)
        assert not reason
        assert set(screen.batch[rows]) == set(screen.batch[fold.test & experiment.positive])
    bare = np.isin(screen.batch, [4, 5])
    assert sum((fold.train & bare).any() for fold in plan.folds) >= 1


def test_sites_that_hold_several_batches_are_held_out_whole(wells):
    number = np.char.lstrip(wells.plate, "p").astype(int)
    _screen, _, plan = planned(wells.gene, wells.plate, cluster=number // 3)
    assert len(plan.folds) == 4
    assert "There are 4 clusters of batches" in plan.notes[0]
    for fold in plan.folds:
        assert not set(number[fold.train] // 3) & set(number[fold.test] // 3)


def test_controls_without_a_cluster_stay_with_their_batch():
    plate = np.repeat(np.arange(8), 6)
    gene = np.where(np.arange(48) % 2 == 0, "gene", "none")
    gene[plate == 7] = "none"
    site = np.where(gene == "none", "", (plate // 2).astype(str))
    screen, _, plan = planned(gene, plate, cluster=site, folds=2)
    for fold in plan.folds:
        for low in (0, 2, 4):  # both plates of a site are on the same side, with their controls
            both = np.isin(screen.batch, [low, low + 1])
            assert fold.test[both].all() or fold.train[both].all()


def test_compounds_are_held_out_in_addition_to_batches():
    rng = np.random.default_rng(0)
    plate, compound = rng.integers(0, 10, 400), rng.integers(0, 12, 400)
    gene = np.where(rng.uniform(size=400) < 0.5, "none", "gene")
    screen, (experiment,), plan = planned(gene, plate, cluster=compound)
    assert "Clusters are held out in addition" in plan.notes[0]
    for fold in plan.folds:
        assert not set(compound[fold.train & experiment.positive]) & set(compound[fold.test & experiment.positive])
        assert not set(plate[fold.train]) & set(plate[fold.test])
        assert scored_rows(fold, screen, experiment)[0].any()
        assert set(plate[fold.train & screen.control]) | set(plate[fold.test & screen.control]) == set(range(10))


def test_one_model_per_batch_is_judged_on_all_others():
    plate = np.repeat(np.arange(4), 8)
    gene = np.where((plate < 3) & (np.arange(32) % 2 == 0), "gene", "none")
    screen = screen_of(np.ones((32, 2)), gene, plate, "none")
    plan = batch_by_batch(screen, experiments_of(screen, None)[0])
    assert [fold.held for fold in plan.folds] == [("0",), ("1",), ("2",)]  # plate 3 has no positives
    for number, fold in enumerate(plan.folds):
        assert set(plate[fold.train]) == {number}
        assert set(plate[fold.test]) == {0, 1, 2, 3} - {number}


def test_fewer_batches_than_folds_are_held_out_one_by_one(wells):
    few = np.isin(wells.plate, ["p0", "p1", "p2"])
    _, _, plan = planned(wells.gene[few], wells.plate[few])
    assert len(plan.folds) == 3
    assert "each is one fold: 3 folds instead of 5" in plan.notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plate": ["one"] * 40}, r"batch has one value \(one\), so no batch can be held out"),
        ({"gene": ["none"] * 40}, "all 40 rows are controls"),
        ({"gene": ["a"] * 40}, "no row of target is .none. .control., so there are no controls; it has a"),
        ({"cluster": ["site"] * 40}, "all batches belong to one cluster"),
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"positive": ["b"]}, "there is no b; there are a"),
        ({"plate": [0] * 20 + [1] * 20}, "no target can be scored on held-out batches: a, because all its 20 rows"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_the_reason(change, message):
    asked = {"gene": ["none"] * 20 + ["a"] * 20, "plate": [0, 1] * 20} | change
    if change.get("cluster"):
        asked["gene"] = ["none", "none", "a", "a"] * 10
    with pytest.raises(InputError, match=message):
        planned(np.array(asked.pop("gene")), np.array(asked.pop("plate"), dtype=object), **asked)


def test_images_lie_on_one_plate():
    with pytest.raises(InputError, match="rows of one image must share their batch, but row"):
        screen_of(np.ones((4, 1)), ["none", "a", "none", "a"], [0, 0, 1, 1], "none", image=[0, 1, 0, 2])
