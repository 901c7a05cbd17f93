"""The slot identifiability score and the block score, which compare blocks of codes with blocks of factors."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.metrics._slots import block_score, sis

FOLDER = Path(__file__).parents[1] / "oracles" / "slots"
CASES = json.loads((FOLDER / "expected.json").read_text())["cases"]


def slots(case):
    with np.load(FOLDER / case["file"]) as file:
        return file["Zh"], file["Z"]


@pytest.fixture
def objects(rng):
    """Three objects of two factors, in slots of another order, each bent and turned."""
    factors = rng.normal(size=(400, 3, 2))
    codes = np.stack([np.tanh(factors[:, k] @ ortho_group.rvs(2, random_state=k)) for k in (2, 0, 1)], axis=1)
    return codes, factors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_the_score_of_slots_agrees_with_the_reference(case):
    codes, factors = slots(case)
    got = sis(codes, factors)
    assert_allclose(got.r2, case["r2_raw"], atol=1e-6)
    assert_allclose(got.on, case["r2_on"], atol=1e-6)
    assert_allclose(got.off, case["r2_off"], atol=1e-6)
    assert got.sis == pytest.approx(case["sis"], abs=1e-6)
    assert_array_equal(got.matched, case["match_inferred_for_true"])


def test_flat_columns_in_blocks_are_the_same_as_slots(objects):
    codes, factors = objects
    flat = codes.reshape(400, 6), factors.reshape(400, 6)
    first = sis(codes, factors)
    assert sis(*flat, blocks=3, factor_blocks=3).sis == first.sis
    named = dict(zip("abcdef", flat[1].T, strict=True))
    got = sis(flat[0], named, blocks=[[0, 1], [2, 3], [4, 5]], factor_blocks=[["a", "b"], ["c", "d"], ["e", "f"]])
    assert got.sis == pytest.approx(first.sis, abs=1e-12)
    assert got.factors == ("a + b", "c + d", "e + f")
    assert first.factors == ("slot0", "slot1", "slot2")


@pytest.mark.parametrize("score", [sis, block_score])
def test_matched_slots_are_best_and_noise_or_a_mixture_is_not(score, objects, rng):
    codes, factors = objects
    name = score.__name__
    best = score(codes, factors)
    assert_array_equal(best.matched, [1, 2, 0])
    assert best.scores[name] > 0.75
    noise = score(rng.normal(size=codes.shape), factors)
    assert noise.scores[name] == pytest.approx(0, abs=0.05)
    mixed = (codes.reshape(400, 6) @ ortho_group.rvs(6, random_state=0)).reshape(400, 3, 2)
    assert score(mixed, factors).scores[name] < best.scores[name] - 0.3


@pytest.mark.parametrize("score", [sis, partial(block_score, regressor="ridge")])
def test_the_order_of_slots_and_sign_scale_and_shift_of_codes_do_not_matter(score, objects):
    codes, factors = objects
    first, other = score(codes, factors), score(-3e3 * codes[:, [2, 0, 1]] + 7, factors)
    assert_allclose(other.r2[:, [1, 2, 0]], first.r2, atol=1e-9)


def test_neither_do_they_to_a_tree_but_for_ties_between_splits(objects):
    codes, factors = objects
    first, other = block_score(codes, factors), block_score(-3e3 * codes[:, [2, 0, 1]] + 7, factors)
    assert other.block_score == pytest.approx(first.block_score, abs=0.02)


def test_a_ridge_finds_linear_blocks_only(rng):
    factors = rng.normal(size=(500, 4))
    pairs = [[0, 1], [2, 3]]
    turned = np.hstack([factors[:, 2:] @ [[1.0, 1], [1, -1]], factors[:, :2] @ [[2.0, 1], [0, 1]]])
    got = block_score(turned, factors, blocks=2, factor_blocks=pairs, regressor="ridge")
    assert got.block_score > 0.99
    assert_array_equal(got.matched, [1, 0])
    bent = np.abs(factors)
    linear, tree = (block_score(factors, bent, regressor=regressor).block_score for regressor in ("ridge", "tree"))
    assert linear < 0.1
    assert tree > 0.95


def test_each_factor_is_a_block_by_default(rng):
    factors = rng.normal(size=(300, 3))
    got = block_score(factors[:, [1, 2, 0]], factors)
    assert_array_equal(got.matched, [2, 0, 1])
    assert got.factors == ("factor0", "factor1", "factor2")


def test_blocks_without_a_partner_and_constant_ones(rng):
    factors = rng.normal(size=(200, 3))
    got = block_score(factors[:, :2], factors, blocks=2)
    assert got.block_score == pytest.approx(got.per_block[:2].sum() / 3)
    assert "factor2: no block of codes is left." in got.notes
    less = sis(factors[:, :2], factors, blocks=2)
    assert (less.matched[2], less.on[2]) == (-1, 0)
    padded = np.column_stack([factors[:, :2], np.ones(200)])
    assert block_score(padded, padded).factors == ("factor0", "factor1")
    for score in (sis, block_score):
        assert "No factor varies" in score(factors, np.ones((200, 3))).reasons[score.__name__]
        assert np.isfinite(score(np.ones((200, 2)), factors[:, :2]).scores[score.__name__])
    assert "only one slot of codes" in sis(factors[:, :1], factors[:, :1]).reasons["sis"]
    assert "at least 5 rows" in sis(factors[:4], factors[:4]).reasons["sis"]


def test_more_rows_than_a_kernel_can_hold_are_sampled(objects, monkeypatch):
    monkeypatch.setattr("congruence.metrics._slots.MOST_ROWS", 100)
    first, again = (sis(*objects) for _ in range(2))
    assert first.notes[-1] == "100 of 400 rows were used."
    assert first.sis == again.sis > 0.4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"blocks": 4}, "blocks: 6 columns cannot be cut into 4 blocks of the same width"),
        ({"blocks": 0}, "cannot be cut into 0 blocks"),
        ({"factor_blocks": [[0, 1], [1, 2]]}, "not empty and share no column"),
        ({"factor_blocks": [[0], []]}, "not empty and share no column"),
        ({"factor_blocks": [[0, "x"]]}, "names 'x', but columns are numbered from 0 to 5"),
        ({"blocks": [[0, 6]]}, "names 6, but columns are numbered from 0 to 5"),
        ({"blocks": [0, 1]}, "must be a number, or a list of lists of columns"),
    ],
)
def test_blocks_that_are_none_are_refused(options, says, objects):
    flat = [side.reshape(400, 6) for side in objects]
    with pytest.raises(InputError, match=says):
        sis(*flat, **options)


def test_slots_are_in_blocks_already(objects):
    with pytest.raises(InputError, match="codes has three axes and so is in blocks already"):
        sis(*objects, blocks=3)
    with pytest.raises(InputError, match="regressor must be one of 'tree', 'ridge'; got 'lasso'"):
        block_score(*objects, regressor="lasso")
