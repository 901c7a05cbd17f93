"""Matchings are exact, symmetric and beside a chance that they do not exceed where nothing is shared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment, linprog

from congruence import match_features
from congruence.features import _matching
from congruence.features._matching import (
    Similar,
    draw_null,
    explained_by_few,
    find_similar,
    match_mutual,
    match_one_to_one,
    row_maxima,
    top_neighbours,
)


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def planted(rng, m=600, d=64, shared=0.4, noise=0.3, extra=0):
    """Two dictionaries that share some features at a known cosine, in different orders."""
    a = unit(rng.normal(size=(m, d)))
    b = unit(rng.normal(size=(m + extra, d)))
    count = round(shared * m)
    moved = a[:count] + noise * unit(rng.normal(size=(count, d)))
    order = rng.permutation(len(b))
    b[order[:count]] = unit(moved)
    return a, b, order[:count]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 30), st.floats(0.0, 0.8))
def test_the_one_to_one_matching_is_the_best(seed, m, k, limit):
    rng = np.random.default_rng(seed)
    a, b = unit(rng.normal(size=(m, 4))), unit(rng.normal(size=(k, 4)))
    partner, cosine = match_one_to_one(find_similar(a, b, limit, False), limit)
    gain = np.maximum(a.astype(float) @ b.T.astype(float) - limit, 0)
    best = gain[linear_sum_assignment(gain, maximize=True)].sum()
    assert np.nansum(cosine - limit) == pytest.approx(best, abs=1e-5)
    matched = partner[partner >= 0]
    assert len(set(matched)) == len(matched)
    assert_allclose(cosine[partner >= 0], (a @ b.T)[partner >= 0, matched], atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_a_large_part_is_matched_as_well_as_a_small_one(seed):
    rng = np.random.default_rng(seed)
    a, b = unit(rng.normal(size=(12, 3))), unit(rng.normal(size=(15, 3)))
    similar = find_similar(a, b, 0.2, False)
    small = match_one_to_one(similar, 0.2)
    before, _matching.MOST_DENSE = _matching.MOST_DENSE, 1
    try:
        large = match_one_to_one(similar, 0.2)
    finally:
        _matching.MOST_DENSE = before
    assert np.nansum(large[1] - 0.2) == pytest.approx(np.nansum(small[1] - 0.2), abs=1e-5)


def test_blocks_do_not_change_what_is_found(monkeypatch, rng):
    a, b = unit(rng.normal(size=(70, 8))), unit(rng.normal(size=(50, 8)))
    whole = find_similar(a, b, 0.3, True)
    monkeypatch.setattr("congruence.features._matching.BLOCK_VALUES", 170)
    parts = find_similar(a, b, 0.3, True)
    for name in ("nearest", "cosine", "back", "back_cosine", "rows", "columns", "values"):
        assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-6)
    assert_allclose(row_maxima(a, b, True), whole.cosine, atol=1e-6)
    cosines = np.abs(a @ b.T)
    assert_array_equal(whole.nearest, cosines.argmax(1))
    assert_array_equal(whole.back, cosines.argmax(0))
    assert_allclose(whole.back_cosine, cosines.max(0), atol=1e-6)
    assert len(whole.rows) == (cosines > 0.3).sum()
    assert_array_equal(np.sort(top_neighbours(a, b, 5)), np.sort(np.argsort(-cosines, 1)[:, :5]))


def test_torch_finds_what_numpy_finds(rng):
    torch = pytest.importorskip("torch")
    a, b = unit(rng.normal(size=(70, 8))), unit(rng.normal(size=(50, 8)))
    here = find_similar(a, b, 0.3, False)
    there = find_similar(torch.from_numpy(a), torch.from_numpy(b), 0.3, False)
    for name in ("nearest", "cosine", "back", "back_cosine", "rows", "columns", "values"):
        assert_allclose(getattr(there, name), getattr(here, name), atol=1e-6)
    assert_array_equal(
        np.sort(top_neighbours(torch.from_numpy(a), torch.from_numpy(b), 5)), np.sort(top_neighbours(a, b, 5))
    )


def test_too_many_pairs_are_thinned_to_the_nearest(monkeypatch, rng):
    monkeypatch.setattr("congruence.features._matching.MOST_PAIRS", 3)
    a = unit(rng.normal(size=(40, 4)) + 20)
    similar = find_similar(a, a, 0.5, False)
    assert similar.thinned
    assert len(similar.rows) == 120
    assert_array_equal(match_one_to_one(similar, 0.5)[0], np.arange(40))


def test_mutual_nearest_features_choose_each_other():
    pairs = [np.array([])] * 3
    similar = Similar(np.zeros(2, int), np.array([0.9, 0.8]), np.zeros(2, int), np.array([0.9, 0.1]), *pairs, False)
    assert_array_equal(match_mutual(similar, 0.5)[0], [0, -1])
    assert_array_equal(match_mutual(similar, 0.95)[0], [-1, -1])


@pytest.mark.parametrize("matching", ["one-to-one", "mutual"])
@pytest.mark.parametrize("shared", [0.0, 0.1, 0.4, 1.0])
def test_the_planted_share_is_found_within_two_points(rng, matching, shared):
    a, b, places = planted(rng, shared=shared, extra=50)
    result = match_features(a, b, aligned=True, matching=matching)
    assert abs(result.share - shared) <= 0.02
    assert result.status == {0.0: "fails", 1.0: "holds"}.get(shared, "ambiguous")
    assert ("more than chance, but fewer than the required 90 %" in result.verdict) == (0 < shared < 1)
    true = np.full(len(a), -1)
    true[: len(places)] = places
    back = result.comes_back
    assert (result.pairs[0].partner[back] == true[back]).mean() >= 0.95 if shared else True


def test_features_that_share_directions_are_not_called_the_same(rng):
    """Unrelated features with a common anisotropic covariance have large cosines, which the harder null knows."""
    scale = 1 / np.arange(1, 41)
    a, b = (unit(rng.normal(size=(800, 40)) * scale) for _ in range(2))
    result = match_features(a, b, aligned=True)
    shares = result.pairs[0].null.share(result.pairs[0].least)
    assert shares["covariance"] > shares["rotation"]
    assert result.share <= 0.05
    assert result.pairs[0].null.limit > 0.7
    assert any("so few dimensions" in note for note in result.notes)


def test_the_level_is_kept_where_nothing_is_shared():
    exceeded = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a, b = unit(rng.normal(size=(500, 32))), unit(rng.normal(size=(500, 32)))
        pair = match_features(a, b, aligned=True, level=0.05, similarity=0.0, seed=seed).pairs[0]
        exceeded.append((pair.nearest_cosine > pair.null.limit).mean())
    assert 0.03 < np.mean(exceeded) < 0.07


def test_a_dictionary_comes_back_in_itself_whatever_order_and_length(rng):
    a = rng.normal(size=(100, 32))
    order = rng.permutation(100)
    result = match_features(a, a[order] * rng.uniform(0.1, 10, size=(100, 1)), aligned=True)
    assert result.share == 1.0
    assert result.status == "holds"
    assert_array_equal(order[result.pairs[0].partner], np.arange(100))
    assert result.pairs[0].full == pytest.approx((1, 1), abs=1e-5)


def test_signs_count_unless_asked_otherwise(rng):
    a = rng.normal(size=(60, 32))
    assert match_features(a, -a, aligned=True).share == 0.0
    assert match_features(a, -a, aligned=True, signs="unsigned").share == 1.0


def test_three_dictionaries_share_what_is_in_all(rng):
    a = rng.normal(size=(200, 48))
    b, c = rng.normal(size=(200, 48)), rng.normal(size=(200, 48))
    b[:120], c[:80] = a[:120], a[:80]
    result = match_features(a, b, c, aligned=True)
    assert result.share == pytest.approx(0.4, abs=0.01)
    assert [pair.share for pair in result.pairs] == pytest.approx([0.6, 0.4, 0.4], abs=0.02)
    low, high = result.over_seeds
    assert low < result.mean_pair_share < high
    assert result["dictionary", "dictionary#3"] is result.pairs[1]


def test_unrelated_dictionaries_of_unknown_spaces_are_unknown(rng):
    a, b = rng.normal(size=(2, 100, 32))
    assert match_features(a, b).status == "unknown"
    assert match_features(a, b, aligned=True).status == "fails"


def test_a_split_feature_is_found_in_the_span_of_its_parts(rng):
    b = unit(rng.normal(size=(300, 64)))
    split = unit(b[:60] + b[60:120])
    a = np.vstack([split, unit(rng.normal(size=(60, 64)))])
    explained, parts = explained_by_few(a, b)
    assert explained[:60].min() > 0.99
    assert {*parts[0]} >= {0, 60}
    assert explained[60:].max() < 0.8
    pair = match_features(a, b, aligned=True, similarity=0.9, matching="mutual").pairs[0]
    assert pair.split is None or pair.split.chance < 0.05


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_matching_pursuit_explains_between_the_nearest_and_all(seed, terms):
    rng = np.random.default_rng(seed)
    a, b = unit(rng.normal(size=(5, 6))), unit(rng.normal(size=(8, 6)))
    explained, _ = explained_by_few(a, b, terms=terms)
    nearest = ((a @ b.T) ** 2).max(1)
    assert (explained >= nearest - 1e-5).all()
    assert (explained <= 1 + 1e-9).all()


def test_null_dictionaries_keep_what_they_promise(rng):
    b = unit(rng.normal(size=(4000, 12)) * np.linspace(1, 3, 12) + 0.5)
    rotated = draw_null(b, "rotation", rng)
    assert_allclose(rotated[:50] @ rotated[:50].T, b[:50] @ b[:50].T, atol=1e-5)
    assert np.abs(rotated - b).max() > 0.5
    drawn = draw_null(b, "covariance", rng)
    assert_allclose(np.linalg.norm(drawn, axis=1), 1, atol=1e-5)
    assert_allclose(drawn.T @ drawn / len(drawn), b.T @ b / len(b), atol=0.02)


@pytest.mark.parametrize("bad", [{"similarity": 2}, {"level": 0}, {"matching": "soft"}, {"nulls": 0}, {"signs": "x"}])
def test_wrong_options_are_refused_by_name(rng, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        match_features(*rng.normal(size=(2, 20, 8)), **bad)


def test_the_same_seed_gives_the_same_result(rng):
    a, b, _ = planted(rng, m=200)
    one, two = (match_features(a, b, seed=3).to_json() for _ in range(2))
    assert one == two


@pytest.mark.parametrize(("m", "k", "unsigned"), [(6, 6, False), (6, 4, False), (5, 7, True)])
@pytest.mark.parametrize("exact", [True, False])
def test_soft_matching_is_the_best_transport_of_uniform_weights(m, k, unsigned, exact, rng, monkeypatch):
    """Beyond the size that is matched exactly, bounds contain it."""
    if not exact:
        monkeypatch.setattr("congruence.features._match.FULL", 3)
    a, b = unit(rng.normal(size=(m, 8))), unit(rng.normal(size=(k, 8)))
    b[:3] = unit(a[:3] + 0.05 * rng.normal(size=(3, 8)))
    cosines = np.abs(a @ b.T) if unsigned else a @ b.T
    sums = np.vstack([np.kron(np.eye(m), np.ones(k)), np.kron(np.ones(m), np.eye(k))])
    best = -linprog(-cosines.ravel(), A_eq=sums, b_eq=np.repeat([1 / m, 1 / k], [m, k])).fun
    pair = match_features(a, b, aligned=True, signs="unsigned" if unsigned else "signed", level=0.5).pairs[0]
    low, high = pair.soft
    assert low - 1e-5 <= best <= high + 1e-5
    assert (low == high) == exact
    if m == k and exact:
        assert pair.full == pytest.approx(pair.soft)


@pytest.mark.parametrize("matching", ["one-to-one", "mutual"])
def test_no_feature_is_the_partner_of_two_copies(matching, rng):
    copies = np.repeat(rng.normal(size=(4, 32)), 10, axis=0)
    pair = match_features(copies, copies, aligned=True, matching=matching).pairs[0]
    matched = pair.partner[pair.partner >= 0]
    assert len(set(matched)) == len(matched)
    assert pair.share == (1.0 if matching == "one-to-one" else 0.1)
    assert pair.near == 1.0
    assert pair.distinct == 0.0


def test_copies_on_one_side_have_one_partner_but_a_near_feature(rng):
    a = rng.normal(size=(40, 64))
    pair = match_features(np.vstack([a, a[:10]]), a, aligned=True).pairs[0]
    assert (pair.share, pair.near) == pytest.approx((0.8, 1.0))


@pytest.mark.parametrize("features", [np.ones((1, 8)), np.ones((10, 4)), np.array([[1.0], [-1.0]] * 10)])
def test_what_cannot_exceed_chance_is_unknown(features):
    result = match_features(features, features, aligned=True)
    assert (result.share, result.status) == (0.0, "unknown")
    assert "Equal features could not exceed chance" in result.verdict


def test_few_features_that_all_come_back_need_not_be_most_of_others(rng):
    a = rng.normal(size=(10, 64))
    result = match_features(a, a, aligned=True)
    assert (result.share, result.status) == (1.0, "ambiguous")
    assert "for other features it may be fewer than the required 90 %" in result.verdict


def test_other_required_cosines_are_named_above_the_chance_limit_only(rng):
    wide, narrow = rng.normal(size=(2, 60, 64)), rng.normal(size=(2, 60, 2))
    assert "With a required cosine of 0.6 it would be 0 %" in str(match_features(*wide, aligned=True))
    assert "With a required cosine" not in str(match_features(*narrow, aligned=True))


@pytest.mark.parametrize("unsigned", [False, True])
def test_all_of_the_matching_runs_on_torch(unsigned, rng, monkeypatch):
    """What a GPU computes, on the tensors of the CPU."""
    torch = pytest.importorskip("torch")
    a, b, _ = planted(rng, m=200)
    signs = "unsigned" if unsigned else "signed"
    here = match_features(a, b, aligned=True, signs=signs)
    for module in ("_match", "_matching"):
        monkeypatch.setattr(f"congruence.features.{module}.place", lambda x, device: torch.from_numpy(x))
    there = match_features(a, b, aligned=True, signs=signs)
    assert_array_equal(there.pairs[0].partner, here.pairs[0].partner)
    assert there.pairs[0].distinct == here.pairs[0].distinct == 1.0
    assert there.pairs[0].null.limit == pytest.approx(here.pairs[0].null.limit, abs=1e-5)
    assert_allclose(there.pairs[0].split.explained, here.pairs[0].split.explained, atol=1e-5)


def test_groups_of_similar_features_are_noted(rng):
    """Unrelated features of the same cones: each has a partner, and features of its own that are as similar."""
    centres = rng.normal(size=(20, 64))
    a, b = (unit(np.repeat(centres, 10, axis=0) + 0.3 * rng.normal(size=(200, 64))) for _ in range(2))
    result = match_features(a, b, aligned=True)
    own = np.where(np.eye(200, dtype=bool), -2, a @ a.T).max(1)
    back = result.comes_back
    assert result.share > 0.9
    assert result.pairs[0].distinct == pytest.approx((result.pairs[0].cosine[back] > own[back]).mean())
    assert result.pairs[0].distinct < 0.6
    assert any("which of its features does is not determined" in note for note in result.notes)
    clear = match_features(*planted(rng)[:2], aligned=True)
    assert clear.pairs[0].distinct == 1.0
    assert not any("not determined" in note for note in clear.notes)


@pytest.mark.parametrize("scale", [1 / np.arange(1, 33), np.r_[20, np.ones(31)], np.r_[np.ones(6), np.zeros(26)]])
def test_null_dictionaries_have_the_covariance_of_the_dictionary(scale, rng):
    """Although their features are of length 1, which makes large variances of a Gaussian smaller."""
    b = unit(rng.normal(size=(6000, 32)) * scale + 0.3 * scale[::-1])
    null = draw_null(b, "covariance", rng)
    assert_allclose(null.mean(0), b.mean(0), atol=0.05)
    assert_allclose(null.var(0), b.var(0), atol=0.1 * b.var(0).max())
