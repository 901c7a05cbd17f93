import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.maps.nearness import statistical_from_structural
from congruence.metrics._structural import fit_onto, structural_nearness
from congruence.rows.engine import Rows
from congruence.rows.sums import sums_of

QUICK = {"nulls": 3, "bootstrap": 50}


def errors(got):
    return {group: near.held_out.mean for group, near in got.groups.items()}


def test_in_sample_the_errors_agree_with_the_alignment_oracle(alignment):
    toy = alignment
    got = structural_nearness(toy["X"], np.array(toy["Y"]), kinds="continuous", standardise=False, folds=2, **QUICK)
    assert got.diameter == pytest.approx(toy["diameter_Y"])
    assert got.groups["permutation"].mean == pytest.approx(toy["err_permutation"])
    assert got.groups["rigid"].mean == pytest.approx(toy["err_rigid"])
    assert got.groups["similarity"].mean == pytest.approx(toy["err_rigid_similarity"])
    assert got.groups["linear"].mean == pytest.approx(toy["err_linear"])
    assert_allclose(got.maps["permutation"].matrix.T, toy["signed_permutation"])  # there, maps act on columns


def test_a_signed_permutation_of_any_scales_is_perfect(rng):
    factors = rng.uniform(size=(200, 3)) * [1, 10, 0.1]
    got = structural_nearness(factors[:, [2, 0, 1]] * [-1e3, 1, 5] + 9, factors, **QUICK)
    assert max(errors(got).values()) < 1e-7
    assert_array_equal(got.codes, [1, 2, 0])
    assert_allclose(got.signs, [1, 1, -1])
    assert got.unused == ()
    assert got.groups["permutation"].null > 0.2
    assert list(got.scores) == [f"structural_{group}" for group in ("permutation", "rigid", "similarity", "linear")]


def test_only_larger_groups_undo_a_rotation_and_none_undoes_noise(rng):
    factors = rng.uniform(-1, 1, size=(400, 3))
    turned = structural_nearness(factors @ ortho_group.rvs(3, random_state=1), factors, standardise=False, **QUICK)
    assert errors(turned)["permutation"] > 0.1
    assert errors(turned)["rigid"] < 1e-9
    bent = structural_nearness(factors @ rng.normal(size=(3, 3)), factors, **QUICK)
    assert errors(bent)["similarity"] > 0.03
    assert errors(bent)["linear"] < 1e-9
    noise = structural_nearness(rng.normal(size=(400, 3)), factors, **QUICK)
    for near in noise.groups.values():
        assert near.held_out.mean == pytest.approx(near.null, rel=0.1)
        assert near.held_out.low < near.held_out.mean < near.held_out.high


def test_more_codes_than_factors_are_left_out_not_held_against_them(rng):
    factors = rng.uniform(size=(300, 2))
    codes = np.column_stack([rng.normal(size=300), -factors[:, 1], np.ones(300), factors[:, 0], rng.normal(size=300)])
    got = structural_nearness(codes, factors, **QUICK)
    assert max(errors(got).values()) < 1e-6
    assert_array_equal(got.codes, [3, 1])
    assert_array_equal(got.signs, [1, -1])
    assert got.unused == (0, 2, 4)


def test_factors_that_no_code_is_left_for_are_named(rng):
    factors = rng.uniform(size=(300, 3))
    got = structural_nearness(-factors[:, 2:], factors, **QUICK)
    assert_array_equal(got.codes, [-1, -1, 0])
    assert "factor0, factor1: no code is left, predicted by the mean." in got.notes
    missed = np.linalg.norm((factors - factors.mean(0))[:, :2] / factors.std(0)[:2], axis=1).mean()
    assert got.groups["permutation"].mean == pytest.approx(missed / got.diameter)
    constant = structural_nearness(np.column_stack([factors[:, :2], np.ones(300)]), factors, **QUICK)
    assert_array_equal(constant.codes, [0, 1, -1])


@pytest.mark.parametrize("group", ["rigid", "similarity"])
def test_no_other_turn_of_many_codes_is_nearer(group, rng):
    x, y = rng.normal(size=(60, 5)) * [1, 2, 3, 4, 5], rng.normal(size=(60, 2))
    y += x[:, :2] @ rng.normal(size=(2, 2))
    x, y = x - x.mean(0), y - y.mean(0)
    matrix = fit_onto(sums_of(Rows(x), Rows(y)), None, group=group).matrix
    assert_allclose(matrix[:, 2:], 0)
    narrow = matrix[:, :2]
    assert_allclose(narrow.T @ narrow, np.eye(2) * (narrow[:, 0] @ narrow[:, 0]), atol=1e-9)
    best = np.square(x @ narrow - y).sum()
    for seed in range(300):
        generator = rng.normal(size=(5, 5)) * 10.0 ** -(seed % 4)
        near, scale = np.linalg.qr(np.eye(5) + generator - generator.T)[0] @ narrow, 1.0
        if group == "similarity":
            scale = (x @ near * y).sum() / np.square(x @ near).sum()
        assert np.square(scale * x @ near - y).sum() >= best * (1 - 1e-9)


def test_circles_and_classes_are_coordinates(rng):
    angle, shape = rng.uniform(0, 1, 300), rng.choice(["a", "b", "c"], 300)
    codes = np.column_stack([np.sin(2 * np.pi * angle), shape == "c", shape == "b", np.cos(2 * np.pi * angle)])
    got = structural_nearness(codes.astype(float), {"hue": angle, "shape": shape}, kinds={"hue": "circular"}, **QUICK)
    assert got.columns == ("hue (cos)", "hue (sin)", "shape=b", "shape=c")
    assert_array_equal(got.codes, [3, 0, 2, 1])
    assert max(errors(got).values()) < 1e-7


def test_order_sign_scale_and_shift_do_not_matter(rng):
    factors = rng.normal(size=(100, 3))
    codes = factors @ rng.normal(size=(3, 4)) + 0.2 * rng.normal(size=(100, 4))
    first = structural_nearness(codes, factors, **QUICK)
    other = structural_nearness(codes[:, ::-1] * [-1e4, 1, 0.1, 3] + 50, factors[:, [1, 2, 0]], **QUICK)
    assert errors(other) == pytest.approx(errors(first), rel=1e-6)


def test_what_cannot_be_measured_says_why(rng):
    codes = rng.normal(size=(20, 2))
    got = structural_nearness(codes, np.ones(20), groups=["rigid"], **QUICK)
    assert np.isnan(got.scores["structural_rigid"])
    assert "No factor varies" in got.reasons["structural_rigid"]
    with pytest.raises(
        InputError, match="groups must be a list of some of permutation, rigid, similarity, linear; got .'ica'."
    ):
        structural_nearness(codes, codes, groups=["ica"])
    with pytest.raises(InputError, match="groups must be a list"):
        structural_nearness(codes, codes, groups="rigid")
    with pytest.raises(InputError, match="at least 4 paired rows"):
        structural_nearness(codes[:3], codes[:3])
    with pytest.raises(InputError, match="folds must be an integer of at least 2"):
        structural_nearness(codes, codes, folds=1)


@pytest.mark.parametrize(("epsilon", "constant", "answer"), [(0.1, 1.0, 0.2), (0.1, 3.0, 0.6)])
def test_structural_implies_statistical(epsilon, constant, answer):
    assert statistical_from_structural(epsilon, constant) == pytest.approx(answer)


def test_two_runs_near_the_factors_are_near_each_other(rng):
    factors = rng.uniform(size=(200, 2))
    runs = [factors @ ortho_group.rvs(2, random_state=k) + 0.01 * rng.normal(size=(200, 2)) for k in range(2)]
    near = [structural_nearness(run, factors, standardise=False, groups=["rigid"], **QUICK) for run in runs]
    epsilon = max(one.groups["rigid"].sup * one.diameter for one in near)
    first, second = (one.maps["rigid"] for one in near)
    apart = np.linalg.norm(runs[0] - first.inverse()(second(runs[1])), axis=1).max()
    assert apart <= statistical_from_structural(epsilon)


@pytest.mark.parametrize("wrong", [(-1.0, 1.0), (np.nan, 1.0), (0.1, 0.0), (0.1, np.inf)])
def test_bounds_of_nonsense_are_refused(wrong):
    with pytest.raises(InputError, match="must be a finite number"):
        statistical_from_structural(*wrong)
