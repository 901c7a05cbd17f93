"""The BetaVAE and FactorVAE scores, which draw rows that share the value of a factor."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics._sampled import GRID, ROWS, beta_vae, factor_vae, make_sampler
from congruence.metrics.factors import read_factors

SMALL = {"points": 600, "judged": 300, "batch": 16}


@pytest.fixture(scope="session")
def grid(oracle_folder):
    with np.load(oracle_folder / "s7_grid_mixed.npz") as file:
        codes, factors = file["grid_latents"].astype(float), file["grid_factors"]
    expected = json.loads((oracle_folder / "expected.json").read_text())["cases"]["s7_grid_mixed"]["expected"]
    return codes, factors, expected


@pytest.mark.parametrize(("batch", "seeds"), [(8, 5), (64, 1)])
def test_on_a_grid_the_numbers_are_those_of_the_reference(batch, seeds, grid):
    codes, factors, expected = grid
    options = {"points": 2000, "judged": 1000, "batch": batch}
    beta = [beta_vae(codes, factors, **options, seed=seed) for seed in range(seeds)]
    factor = [factor_vae(codes, factors, **options, threshold=0.05, seed=seed) for seed in range(seeds)]
    found = {
        f"beta_vae_train2000_eval1000_batch{batch}": [(r.beta_vae_train, r.beta_vae) for r in beta],
        f"factor_vae_thr0.05_train2000_eval1000_batch{batch}": [(r.factor_vae_train, r.factor_vae) for r in factor],
    }
    for name, values in found.items():
        for got, want in zip(np.transpose(values), ("train_accuracy", "eval_accuracy"), strict=True):
            want = expected[name][want]
            assert got[0] == pytest.approx(want["seed0"], abs=1e-9)
            if seeds == 5:
                assert [got.min(), got.mean(), got.max()] == pytest.approx(
                    [want["min"], want["mean"], want["max"]], abs=1e-4
                )
    assert GRID in beta[0].notes


@pytest.mark.parametrize("score", [beta_vae, factor_vae])
def test_rows_that_are_no_grid_give_about_the_same_as_the_grid(score, oracle, grid):
    codes, factors, _ = oracle("s7_grid_mixed")
    some = np.flatnonzero((factors != [0, 0, 0]).any(1))  # one combination is missing
    got = score(codes[some], factors[some], points=2000, judged=1000, batch=8)
    assert ROWS in got.notes
    whole = score(*grid[:2], points=2000, judged=1000, batch=8)
    assert next(iter(got.scores.values())) == pytest.approx(next(iter(whole.scores.values())), abs=0.04)


@pytest.mark.parametrize("full", [True, False])
def test_drawn_rows_share_what_they_must_and_nothing_else(full, rng):
    factors = np.array([[a, b, c] for a in range(3) for b in range(4) for c in range(5)] * 3)
    factors = factors if full else factors[5:]
    if not full:
        factors = factors[(factors != [1, 1, 1]).any(1)]
    draw, _, notes, _ = make_sampler(read_factors(factors), 10, seed=0)
    assert notes[-1] == (GRID if full else ROWS)
    labels = factors[draw.draw_sharing(1, 400)]
    assert len(np.unique(labels[:, 1])) == 1
    assert [len(np.unique(labels[:, k])) for k in (0, 2)] == [3, 5]
    one, other = (factors[rows] for rows in draw.draw_pairs(2, 400))
    assert_array_equal(one[:, 2], other[:, 2])
    assert 0.1 < (one[:, 1] == other[:, 1]).mean() < 0.4
    assert len(np.unique(one[:, 2])) == 5
    assert len(np.unique(draw.draw_rows(2000))) == len(factors)


@pytest.mark.parametrize("score", [beta_vae, factor_vae])
def test_the_factors_themselves_are_best_and_noise_is_at_chance(score, rng):
    factors = rng.integers(5, size=(400, 3))
    best = score(factors + 0.01 * rng.normal(size=factors.shape), factors, **SMALL)
    noise = score(rng.normal(size=(400, 3)), factors, **SMALL)
    assert next(iter(best.scores.values())) > 0.98
    assert next(iter(noise.scores.values())) == pytest.approx(1 / 3, abs=0.1)


def test_the_vote_names_the_factor_of_each_code(rng):
    factors = rng.integers(5, size=(400, 3))
    codes = np.column_stack([-factors[:, 2], np.ones(400), 7 * factors[:, 0], factors[:, 1]])
    got = factor_vae(codes, factors, **SMALL)
    assert_array_equal(got.votes.argmax(0)[[0, 2, 3]], [2, 0, 1])
    assert_array_equal(got.active, [True, False, True, True])
    assert got.factor_vae == 1
    distances = beta_vae(codes, factors, **SMALL).distances
    assert_array_equal(distances[:, [2, 3, 0]].argmin(1), [0, 1, 2])


def test_order_sign_and_shift_do_not_matter_and_no_scale_to_the_vote(rng):
    factors = rng.integers(4, size=(300, 2))
    codes = factors @ [[1.0, 0.4], [-0.3, 1.0]] + rng.normal(size=(300, 2))
    moved = codes[:, ::-1] * [-1, 1] + 3
    assert factor_vae(moved * [100, 0.1], factors, **SMALL).scores == factor_vae(codes, factors, **SMALL).scores
    beta = [beta_vae(x, factors, **SMALL).beta_vae for x in (moved, codes)]
    assert beta[0] == pytest.approx(beta[1], abs=0.01)


@pytest.mark.parametrize("score", [beta_vae, factor_vae])
def test_what_cannot_be_scored_says_why(score, rng):
    codes, name = rng.normal(size=(60, 2)), score.__name__
    one = score(codes, rng.integers(2, size=60), **SMALL)
    assert "only one factor" in one.reasons[name]
    assert np.isnan(one.scores[name])
    assert "No factor varies" in score(codes, np.ones((60, 2)), **SMALL).reasons[name]
    names = np.array([f"row{i}" for i in range(60)])
    lonely = score(codes, {"a": rng.integers(2, size=60), "id": names}, **SMALL)
    assert "id: left out, because every row is a class of its own." in lonely.notes
    assert "only one factor" in lonely.reasons[name]
    few = score(codes[:3], {"a": [0.0, 0.5, 1.0], "b": [1.0, 0.0, 0.5]}, **SMALL)
    assert "a, b: left out, because no two rows share a value." in few.notes
    with pytest.raises(InputError, match="batch must be an integer of at least 2; got 1"):
        score(codes, codes, batch=1)
    with pytest.raises(InputError, match="points must be an integer of at least 1; got 0"):
        score(codes, codes, points=0)


def test_constant_codes_score_nothing(rng):
    factors = rng.integers(3, size=(90, 2))
    got = factor_vae(np.ones((90, 2)), factors, **SMALL)
    assert got.factor_vae == 0
    assert "No code varies enough to be used." in got.notes
    assert beta_vae(np.ones((90, 2)), factors, **SMALL).beta_vae == pytest.approx(0.5, abs=0.1)
    assert "All 1 training points share the same factor" in beta_vae(factors, factors, points=1).reasons["beta_vae"]


def test_rows_alone_with_their_value_are_not_paired_with_themselves(rng):
    labels = np.concatenate([np.repeat([0, 1], 20), [2]])
    draw, *_ = make_sampler(read_factors({"a": labels.astype(str), "b": rng.integers(2, size=41)}), 10, seed=0)
    assert 40 not in np.concatenate(draw.draw_pairs(0, 500))
    assert 40 not in draw.draw_sharing(0, 500)


def test_continuous_factors_share_a_bin(rng):
    factors = rng.uniform(size=(2000, 2))
    got = factor_vae(factors, factors, **SMALL)
    assert got.factor_vae == 1
    assert_allclose(got.votes.sum(), SMALL["points"])
    assert any("rows of one bin share a value" in note for note in got.notes)
