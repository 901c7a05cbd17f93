import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score

from congruence.batches._folds import experiments_of, hold_out_batches, screen_of
from congruence.batches.classify import auroc, auroc_within, fit_trees
from congruence.batches.leakage import (
    between_batches,
    find_nesting,
    mean_between_batches,
    predict_batch,
    profile_features,
)
from congruence.batches.retrieval import (
    average_precision,
    expected_precision,
    judge_replicates,
    retrieve_replicates,
    search_replicates,
)
from congruence.batches.sparsity import check_shares, hoyer, top_features
from congruence.errors import InputError

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "hoyer.json").read_text())
scores = arrays(np.float64, 12, elements=st.integers(-5, 5).map(float))
halves = st.permutations([True] * 5 + [False] * 7).map(np.array)


@given(halves, scores)
def test_auroc_is_that_of_scikit_learn_and_ignores_increasing_maps(positive, score):
    value = auroc(positive, score)
    assert value == pytest.approx(roc_auc_score(positive, score))
    assert auroc(positive, np.exp(score) + 3) == pytest.approx(value)
    assert auroc(positive, -score) == pytest.approx(1 - value)
    assert auroc(~positive, score) == pytest.approx(1 - value)


def test_auroc_needs_both_kinds():
    assert np.isnan(auroc(np.ones(3, dtype=bool), np.arange(3)))
    assert auroc(np.array([True, False]), np.zeros(2)) == 0.5
    with pytest.raises(InputError, match=r"positive has shape \(2,\), but score has shape \(3,\)"):
        auroc(np.array([True, False]), np.zeros(3))


def test_auroc_within_batches_ignores_what_differs_between_them():
    positive = np.array([True, False, False, True, True, False])
    batch = np.array([0, 0, 0, 1, 1, 1])
    score = np.array([1.0, 0.0, 2.0, 11.0, 12.0, 10.0])
    assert auroc_within(positive, score, batch) == pytest.approx((1 * 0.5 + 2 * 1.0) / 3)
    assert auroc_within(positive, score - 100 * batch, batch) == auroc_within(positive, score, batch)
    assert np.isnan(auroc_within(np.ones(6, dtype=bool), score, batch))


@pytest.mark.parametrize("row", ORACLE, ids=lambda row: str(row["w"]))
def test_hoyer_sparsity_is_as_published(row):
    assert hoyer(row["w"]) == pytest.approx(row["value"], abs=1e-12)


WEIGHTS = arrays(np.float64, st.integers(2, 20), elements=st.floats(-1e6, 1e6, allow_subnormal=False))


@given(WEIGHTS, st.floats(0.01, 100), st.randoms())
def test_hoyer_sparsity_is_between_0_and_1_and_ignores_scale_sign_and_order(w, scale, random):
    value = hoyer(w)
    if not w.any():
        assert np.isnan(value)
        return
    assert 0 <= value <= 1
    order = list(range(len(w)))
    random.shuffle(order)
    assert hoyer(-scale * w[order]) == pytest.approx(value, abs=1e-7)


def test_hoyer_sparsity_of_one_weight_is_not_defined():
    assert np.isnan(hoyer([3.0]))
    with pytest.raises(InputError, match="weights must be finite numbers"):
        hoyer([1.0, np.nan])


def test_top_features_are_those_with_the_most_splits_and_never_all():
    splits, gain = np.array([3, 0, 5, 3]), np.array([1.0, 0.0, 2.0, 9.0])
    assert list(top_features(splits, gain, 0.25)) == [False, False, True, False]
    assert list(top_features(splits, gain, 0.5)) == [False, False, True, True]  # of equal splits, the larger gain
    assert top_features(splits, gain, 0.99).sum() == 3
    assert top_features(splits, gain, 0.01).sum() == 1
    with pytest.raises(InputError, match="shares between 0 and 1, such as 0.25, or be 'none'; got 25"):
        check_shares([25])


def test_trees_find_the_feature_that_tells(rng):
    x = rng.normal(size=(500, 5))
    positive = x[:, 3] + 0.3 * rng.normal(size=500) > 0.8  # one in five: unbalanced
    trees = fit_trees(x, positive, rounds=20)
    assert trees.splits.argmax() == trees.gain.argmax() == 3
    assert auroc(positive, trees.score(x)) > 0.95
    np.testing.assert_array_equal(trees.score(x), fit_trees(x, positive, rounds=20).score(x))


def test_the_batch_is_predicted_only_where_it_moves_rows(rng):
    batch = np.repeat(np.arange(6), 40)
    noise = rng.normal(size=(240, 5))
    moved = noise + 4 * rng.normal(size=(6, 5))[batch]
    accuracy, chance = predict_batch(moved, batch)
    assert chance == pytest.approx(1 / 6)
    assert accuracy > 0.9
    assert predict_batch(noise, batch)[0] < 0.35
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    assert predict_batch(moved @ rotation + 3, batch)[0] == pytest.approx(accuracy)


def test_a_batch_cannot_be_predicted_from_constant_rows(rng):
    assert np.isnan(predict_batch(rng.normal(size=(20, 2)), np.zeros(20, dtype=int))).all()
    assert np.isnan(predict_batch(rng.normal(size=(6, 2)), np.repeat([0, 1], 3))).all()
    assert np.isnan(predict_batch(np.ones((40, 2)), np.repeat([0, 1], 20))).all()


def test_share_of_variance_between_batches(rng):
    batch = np.repeat(np.arange(50), 40)
    x = rng.normal(size=(2000, 102))
    x[:, 100] += 3 * rng.normal(size=50)[batch]
    x[:, 101] = 5.0
    shares = between_batches(x, batch)
    assert shares[:100].mean() < 0.004  # half of what expects 0, with a deviation of 0.005, is above 0
    assert shares[100] == pytest.approx(0.9, abs=0.05)
    assert np.isnan(shares[101])
    np.testing.assert_allclose(between_batches(7 * x - 2, batch), shares, atol=1e-12)
    assert np.isnan(between_batches(x, np.zeros(2000, dtype=int))).all()


def test_average_precision_is_that_of_scikit_learn(rng):
    relevant = rng.uniform(size=(5, 30)) < 0.3
    expected = [average_precision_score(row, -np.arange(30)) for row in relevant]
    np.testing.assert_allclose(average_precision(relevant), expected)


def test_expected_precision_is_the_mean_over_random_orders(rng):
    relevant = np.zeros((20000, 9), dtype=bool)
    relevant[:, :3] = True
    shuffled = rng.permuted(relevant, axis=1)
    assert average_precision(shuffled).mean() == pytest.approx(float(expected_precision(3, 9)), abs=0.005)
    assert float(expected_precision(1, 1)) == pytest.approx(1)
    assert float(expected_precision(4, 4)) == pytest.approx(1)


def test_replicates_are_looked_for_on_other_batches_only(rng):
    """Rows are alike inside a batch and tell nothing across: a search that looked there would find them."""
    batch, label = np.repeat(np.arange(8), 10), np.tile(np.repeat(np.arange(5), 2), 8)
    own = rng.normal(size=(8 * 5, 6))[batch * 5 + label]
    found, chance = retrieve_replicates(own, label, batch)
    assert found == pytest.approx(chance, abs=0.05)
    shared = rng.normal(size=(5, 6))[label] + 0.01 * rng.normal(size=(80, 6))
    assert retrieve_replicates(shared, label, batch)[0] == pytest.approx(1)
    assert retrieve_replicates(shared, label, batch)[1] == chance
    assert np.isnan(retrieve_replicates(shared, np.arange(80), batch)).all()
    assert np.isnan(retrieve_replicates(shared, np.zeros(80, dtype=int), batch)).all()


def plates_of(rng, plates=12, genes=4, d=400):
    """Wells without any effect: 8 controls and 4 wells of each gene on every plate."""
    names = np.array(["none"] * 8 + [f"g{i}" for i in range(genes) for _ in range(4)])
    plate = np.repeat(np.arange(plates), len(names))
    return rng.normal(size=(len(plate), d)) + rng.normal(size=(plates, d))[plate], np.tile(names, plates), plate


def test_five_per_cent_of_unrelated_features_lie_above_the_chance_line(rng):
    x, gene, plate = plates_of(rng, genes=12)
    screen = screen_of(x, gene, plate, "none")
    profile = profile_features("base", x, screen, experiments_of(screen, None)[0])
    above = np.mean(profile.strongest > profile.level)
    assert 0.02 < above < 0.08
    assert np.mean(profile.strongest > np.median(profile.noise)) > 0.3  # the level of one target does not do
    (single,) = profile_features("base", x, screen, experiments_of(screen, ["g0"])[0]).noise
    assert profile_features("base", x, screen, experiments_of(screen, ["g0"])[0]).level == pytest.approx(
        single, rel=0.02
    )


def test_a_target_without_controls_does_not_hide_the_features_of_others(rng):
    x, gene, plate = plates_of(rng, d=5)
    bare = plate < 2
    keep = ~(bare & (gene != "g0")) & ~(~bare & (gene == "g0"))
    screen = screen_of(x[keep], gene[keep], plate[keep], "none")
    profile = profile_features("base", x[keep], screen, experiments_of(screen, None)[0])
    assert np.isnan(profile.noise[0])
    assert np.isfinite(profile.strongest).all()
    assert np.isfinite(profile.level)


def test_mean_share_of_the_variance_between_batches_is_0_without_a_batch_effect(rng):
    batch = np.repeat(np.arange(40), 6)
    noise = rng.normal(size=(240, 300))
    assert mean_between_batches(noise, batch) < 0.01
    assert between_batches(noise, batch).mean() > 0.01  # shares of single features are never negative
    assert mean_between_batches(noise + rng.normal(size=(40, 300))[batch], batch) == pytest.approx(0.5, abs=0.05)


def test_batches_nested_in_groups_that_differ_are_found(rng):
    x, gene, plate = plates_of(rng, d=30)
    week = plate // 3
    columns = {"week": week, "parity": plate % 2, "gene": gene, "one": np.zeros(len(gene)), "plate": plate}
    screen = screen_of(x + 2 * rng.normal(size=(4, 30))[week], gene, plate, "none")
    found = find_nesting(screen, columns)
    assert (found.column, found.groups) == ("week", 4)
    assert found.share > 0.5
    assert find_nesting(screen_of(x, gene, plate, "none"), columns) is None


def searched(x, gene, plate, folds=4):
    """The mean average precision of each gene among controls."""
    screen = screen_of(x, gene, plate, "none")
    experiments = experiments_of(screen, None)[0]
    names = [one.target for one in experiments]
    plan = hold_out_batches(screen, experiments, folds, 0)
    return judge_replicates("base", sum(search_replicates(x, screen, fold, names, 0) for fold in plan.folds))


def test_replicates_are_searched_for_among_controls_of_other_batches(rng):
    x, gene, plate = plates_of(rng, d=6)
    x[gene == "g1"] += 8
    scores = searched(x, gene, plate)
    assert [one.queries for one in scores] == [4 * 12] * len(scores)  # every row is a query once
    assert scores[1].adjusted < 0.02
    assert scores[1].mean > 0.9
    assert all(one.p > 0.01 for place, one in enumerate(scores) if place != 1)
    # 44 replicates on 11 other plates, among 132 rows; those of one plate are not exchangeable with others
    assert scores[0].chance == pytest.approx(float(expected_precision(44, 132)), abs=0.02)


def test_mean_average_precision_is_that_of_all_pairs_on_other_batches(rng):
    """By hand: cosines around the mean control of the training plates, scikit-learn's average precision."""
    x, gene, plate = plates_of(rng, d=5)
    x = (x + rng.normal(size=(12, 5))[plate]).astype(np.float32)
    x[gene == "g0"] += 1
    screen = screen_of(x, gene, plate, "none")
    experiments = experiments_of(screen, None)[0]
    expected = []
    for fold in hold_out_batches(screen, experiments, 4, 0).folds:
        y = x - x[fold.train & (gene == "none")].mean(0)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        for query in np.flatnonzero(fold.test & (gene == "g0")):
            rows = np.isin(gene, ["g0", "none"]) & (plate != plate[query])
            expected.append(average_precision_score(gene[rows] == "g0", y[rows] @ y[query]))
    assert searched(x, gene, plate)[0].mean == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize(("d", "shift", "uneven"), [(500, 0.3, False), (20, 3.0, True), (1, 0.7, False)])
def test_permutations_give_uniform_p_values_where_random_rankings_do_not(d, shift, uneven):
    """With more features than controls, or few wells on plates that differ, random rankings find what is not there.

    With one feature all cosines are 1 or -1, and ties are treated alike in permutations.
    """
    wells = [(2, 6), (6, 2)] * 2 if uneven else [(4, 4)] * 4
    gene = np.concatenate([np.repeat(["none", "g"], some) for some in wells])
    plate = np.repeat(np.arange(4), [sum(some) for some in wells])
    p = []
    for seed in range(60):
        rng = np.random.default_rng([d, seed])
        x = rng.normal(size=(len(gene), d)) + shift * rng.normal(size=(4, d))[plate]
        p.append(searched(x, gene, plate)[0].p)
    assert np.mean(np.array(p) <= 0.05) <= 0.15  # 5 % and three standard errors
    assert 0.35 < np.mean(p) < 0.65


def test_a_target_without_replicates_or_controls_elsewhere_has_no_precision(rng):
    gene = np.array(["none", "g", "g", "g", "none", "h", "h"])
    plate = np.array([0, 0, 0, 1, 0, 0, 1])
    scores = searched(rng.normal(size=(28, 3)), np.tile(gene, 4), np.tile(plate, 4), 2)
    assert [one.queries for one in scores] == [4, 4]  # those on plate 1, which find controls on plate 0
    apart = np.repeat(np.arange(3), [2, 3, 3])  # controls are on a plate without the target
    (alone,) = searched(rng.normal(size=(8, 2)), np.array(["none"] * 2 + ["g"] * 6), apart, 2)
    assert np.isnan(alone.p)
    assert alone.queries == 0
