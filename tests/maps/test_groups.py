import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ortho_group
from sklearn.linear_model import Ridge, RidgeCV

from congruence.errors import InputError, NotInvertibleError
from congruence.maps.groups import GROUPS, Map, fit_map, load_map
from congruence.rows.algebra import complete_rotation

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "alignment.json").read_text())["alignment"]
X, Y = np.array(ORACLE["X"]), np.array(ORACLE["Y"])


def mean_error(h, x, y):
    return np.linalg.norm(h(x) - y, axis=1).mean() / ORACLE["diameter_Y"]


def rms(h, x, y):
    return np.sqrt(np.square(h(x) - y).sum(1).mean())


def rotation(d, seed=0):
    return ortho_group.rvs(d, random_state=seed) if d > 1 else np.array([[-1.0]])


@pytest.mark.parametrize(
    ("group", "key"),
    [
        ("permutation", "err_permutation"),
        ("rigid", "err_rigid"),
        ("similarity", "err_rigid_similarity"),
        ("linear", "err_linear"),
    ],
)
def test_errors_agree_with_the_oracle(group, key):
    assert_allclose(mean_error(fit_map(X, Y, group), X, Y), ORACLE[key], atol=1e-12)


def test_parameters_agree_with_the_oracle():
    """The oracle's matrices act on columns, ours on rows: one is the transpose of the other."""
    assert_array_equal(fit_map(X, Y, "permutation").matrix.T, ORACLE["signed_permutation"])
    similarity = fit_map(X, Y, "similarity")
    assert_allclose(similarity.scale, ORACLE["scale"], atol=1e-12)
    assert_allclose(similarity.matrix.T / similarity.scale, ORACLE["Q"], atol=1e-12)
    assert_allclose(
        np.linalg.norm(similarity(X) - Y, axis=1).max() / ORACLE["diameter_Y"],
        ORACLE["sup_rigid_similarity"],
        atol=1e-12,
    )


@given(st.integers(1, 6), st.integers(2, 30), st.integers(0, 1000))
def test_the_squared_error_falls_as_the_group_grows(d, n, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    errors = [rms(fit_map(x, y, g), x, y) for g in ("permutation", "rigid", "similarity", "linear")]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(errors))


@given(st.integers(1, 6), st.integers(0, 1000))
def test_each_group_finds_its_own_members(d, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, d)) + 3
    shift = rng.normal(size=d)
    permutation = np.eye(d)[rng.permutation(d)] * rng.choice([-1, 1], d)
    members = {
        "identity": (np.eye(d), 0),
        "permutation": (permutation, shift),
        "rigid": (rotation(d, seed), shift),
        "similarity": (2.5 * rotation(d, seed), shift),
        "linear": (rng.normal(size=(d, d)), shift),
    }
    for group, (matrix, offset) in members.items():
        y = x @ matrix + offset
        assert_allclose(fit_map(x, y, group)(x), y, atol=1e-8)


@pytest.mark.parametrize("group", ["rigid", "permutation"])
def test_a_rigid_map_keeps_distances(group, rng):
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    h = fit_map(x, y, group)
    assert_allclose(h.matrix @ h.matrix.T, np.eye(4), atol=1e-12)
    assert_allclose(np.linalg.norm(h(x)[0] - h(x)[1]), np.linalg.norm(x[0] - x[1]))
    assert_allclose(h.scale, 1)


@pytest.mark.parametrize("group", GROUPS)
def test_a_map_and_its_inverse_undo_each_other(group, rng):
    x, y = rng.normal(size=(50, 4)) + 2, rng.normal(size=(50, 4))
    h = fit_map(x, y, group)
    assert_allclose(h.inverse()(h(x)), x, atol=1e-8)
    assert_allclose(h(h.inverse()(y)), y, atol=1e-8)


@pytest.mark.parametrize("first", GROUPS)
@pytest.mark.parametrize("second", GROUPS)
def test_chained_maps_act_one_after_the_other(first, second, rng):
    x, y, z = rng.normal(size=(3, 30, 3))
    f, g = fit_map(x, y, first), fit_map(y, z, second)
    chain = f.then(g)
    assert_allclose(chain(x), g(f(x)), atol=1e-10)
    assert chain.group == max(first, second, key=GROUPS.index)


@pytest.mark.parametrize("group", GROUPS)
def test_a_saved_map_comes_back_the_same(group, rng, tmp_path):
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 5))
    h = fit_map(x, y, group)
    h.save(tmp_path / "map.safetensors")
    again = load_map(tmp_path / "map.safetensors")
    assert again.group == group
    assert_array_equal(again(x), h(x))


def test_files_that_are_not_maps_are_refused(tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match=r"cannot read a map from .*text.safetensors"):
        load_map(tmp_path / "text.safetensors")
    with pytest.raises(InputError, match=r"cannot read a map from .*absent"):
        load_map(tmp_path / "absent.safetensors")
    save_file({"matrix": np.eye(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="not a map saved by congruence"):
        load_map(tmp_path / "other.safetensors")
    about = {"congruence": json.dumps({"kind": "map", "group": "rigid"})}
    save_file({"matrix": np.eye(2)}, tmp_path / "part.safetensors", metadata=about)
    with pytest.raises(InputError, match="cannot read a map"):
        load_map(tmp_path / "part.safetensors")
    save_file({"matrix": np.eye(2)}, tmp_path / "list.safetensors", metadata={"congruence": "[1]"})
    with pytest.raises(InputError, match="not a map saved by congruence"):
        load_map(tmp_path / "list.safetensors")
    parts = {"matrix": np.array(1.0), "source_mean": np.zeros(1), "target_mean": np.full(1, np.nan)}
    save_file(parts, tmp_path / "scalar.safetensors", metadata=about)
    with pytest.raises(InputError, match="does not hold a map: its arrays have shapes"):
        load_map(tmp_path / "scalar.safetensors")
    save_file(parts | {"matrix": np.eye(1)}, tmp_path / "nan.safetensors", metadata=about)
    with pytest.raises(InputError, match="it has NaN or infinite values"):
        load_map(tmp_path / "nan.safetensors")
    parts = {"matrix": np.eye(2), "source_mean": np.zeros(3), "target_mean": np.zeros(2)}
    save_file(parts, tmp_path / "odd.safetensors", metadata=about)
    with pytest.raises(InputError, match="does not hold a map: its arrays have shapes"):
        load_map(tmp_path / "odd.safetensors")


@pytest.mark.parametrize(("d_x", "d_y"), [(3, 5), (5, 3)])
def test_the_narrower_side_is_zero_padded(d_x, d_y, rng):
    wide = rng.normal(size=(60, 5))
    wide[:, 3:] = 0
    x, y = wide[:, :d_x], (wide @ np.pad(rotation(3), (0, 2)))[:, :d_y]
    for group in ("rigid", "similarity", "linear"):
        h = fit_map(x, y, group)
        assert h.width == 5
        assert_allclose(h(x), np.pad(y, ((0, 0), (0, 5 - d_y))), atol=1e-10)
    assert_allclose(h(x)[:, :3], h(np.pad(x, ((0, 0), (0, 5 - d_x))))[:, :3])


def test_dead_units_stay_where_they_are(rng):
    x = rng.normal(size=(100, 6))
    x[:, [1, 4]] = 0
    for group in ("permutation", "rigid", "similarity"):
        h = fit_map(x, x, group)
        assert_allclose(h.matrix / h.scale, np.eye(6), atol=1e-12)
    assert_allclose(fit_map(x, x, "linear").matrix, np.diag([1, 0, 1, 1, 0, 1]), atol=1e-12)


def test_a_free_rotation_is_the_one_nearest_to_the_identity(rng):
    """Four rows determine three directions; whatever else the rotation does must be as little as possible."""
    x = rng.normal(size=(4, 10))
    y = x + 0.01 * rng.normal(size=(4, 10))
    h = fit_map(x, y, "rigid")
    assert_allclose(h.matrix @ h.matrix.T, np.eye(10), atol=1e-12)
    assert np.trace(h.matrix) > 9.9


@pytest.mark.parametrize("d", [4, 7, 12])
def test_a_completed_rotation_is_a_rotation_and_as_near_to_the_identity_as_any(d, rng):
    u, v = (np.linalg.qr(rng.normal(size=(d, 3)))[0] for _ in range(2))
    found = complete_rotation(u, v)
    assert_allclose(found @ found.T, np.eye(d), atol=1e-10)
    assert_allclose(u.T @ found, v.T, atol=1e-10)
    rest = [np.linalg.qr(np.hstack([side, rng.normal(size=(d, d - 3))]))[0][:, 3:] for side in (u, v)]
    for seed in range(20):
        other = u @ v.T + rest[0] @ rotation(d - 3, seed) @ rest[1].T
        assert np.trace(other) <= np.trace(found) + 1e-9


def test_a_rotation_without_directions_is_the_identity():
    assert_allclose(complete_rotation(np.zeros((4, 0)), np.zeros((4, 0))), np.eye(4))


def test_the_rounding_of_float32_does_not_decide_a_free_rotation(rng):
    x = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 8))
    y = rng.normal(size=(100, 8))
    exact, stored = (fit_map(z, y, "rigid").matrix for z in (x, x.astype(np.float32)))
    assert_allclose(stored, exact, atol=1e-4)


@pytest.mark.parametrize("value", [1.0, 0.1])
def test_a_constant_target_leaves_the_rotation_at_rest(value, rng):
    x, y = rng.normal(size=(50, 3)), np.full((50, 3), value)
    assert_allclose(fit_map(x, y, "rigid").matrix, np.eye(3), atol=1e-12)
    assert fit_map(x, y, "similarity").scale == 0
    assert_allclose(fit_map(y, x, "similarity").matrix, np.eye(3), atol=1e-12)
    with pytest.raises(NotInvertibleError):
        fit_map(x, y, "similarity").inverse()


def test_values_that_cannot_be_squared_are_refused(rng):
    x = rng.normal(size=(10, 2))
    for group in GROUPS[1:]:
        with pytest.raises(InputError, match="too large or too small to be squared"):
            fit_map(x * 1e200, x, group)


def test_too_few_rows_give_the_linear_map_of_minimum_norm(rng):
    x, y = rng.normal(size=(8, 20)), rng.normal(size=(8, 4))
    h = fit_map(x, y, "linear")
    expected = np.linalg.pinv(x - x.mean(0)) @ (y - y.mean(0))
    assert_allclose(h.matrix[:, :4], expected, atol=1e-10)
    assert_allclose(h(x)[:, :4], y, atol=1e-10)


def test_near_collinear_columns_are_solved_as_accurately_as_by_qr(rng):
    """Normal equations would lose these: the scatter matrix has condition number 1e18."""
    x = rng.normal(size=(200, 3))
    x[:, 2] = x[:, 0] + 1e-9 * rng.normal(size=200)
    y = (x[:, 2:] - x[:, :1]) * 1e9
    assert_allclose(fit_map(x, y, "linear")(x)[:, :1], y, atol=1e-4)


def test_directions_below_the_rounding_of_float32_are_not_fitted(rng):
    x = rng.normal(size=(500, 4)).astype(np.float32)
    x[:, 3] = x[:, 0] + x[:, 1]  # exact only up to float32 rounding
    y = rng.normal(size=(500, 2))
    assert np.abs(fit_map(x, y, "linear").matrix).max() < 1


@pytest.mark.parametrize("group", GROUPS)
def test_one_row_and_one_column_and_constant_data_work(group):
    for shape in ((1, 3), (5, 1), (1, 1)):
        x = np.full(shape, 2.0)
        h = fit_map(x, x + 1, group)
        assert np.isfinite(h.matrix).all()
        assert_allclose(h(x), x if group == "identity" else x + 1)


def test_d_equal_one_is_a_line(rng):
    x = rng.normal(size=(50, 1))
    h = fit_map(x, 7 - 3 * x, "similarity")
    assert_allclose(h.matrix, [[-3]])
    assert_allclose(h(x), 7 - 3 * x)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_other_number_types_are_understood(dtype, rng):
    x = (10 * rng.normal(size=(50, 3))).astype(dtype)
    assert_allclose(fit_map(x, x, "rigid").matrix, np.eye(3), atol=1e-12)


def test_tensors_give_tensors(rng):
    x, y = rng.normal(size=(20, 3)).astype(np.float32), rng.normal(size=(20, 3))
    h = fit_map(torch.from_numpy(x), torch.from_numpy(y), "similarity")
    mapped = h(torch.from_numpy(x))
    assert isinstance(mapped, torch.Tensor)
    assert mapped.dtype == torch.float32
    assert_allclose(mapped.numpy(), h(x), rtol=1e-6)
    assert h(torch.arange(6).reshape(2, 3)).dtype == torch.float64


def test_bfloat16_tensors_are_understood(rng):
    x = torch.from_numpy(rng.normal(size=(20, 3))).to(torch.bfloat16)
    assert_allclose(fit_map(x, x, "rigid").matrix, np.eye(3), atol=1e-12)


def test_data_far_from_the_origin_lose_nothing(rng):
    x = rng.normal(size=(100, 3))
    near, far = fit_map(x, x @ rotation(3), "rigid"), fit_map(x + 1e6, x @ rotation(3) - 1e6, "rigid")
    assert_allclose(far.matrix, near.matrix, atol=1e-8)


def test_a_map_that_loses_information_has_no_inverse(rng):
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    with pytest.raises(NotInvertibleError, match="this linear map has rank 2 of 4, so it has no inverse"):
        fit_map(x, y, "linear").inverse()
    with pytest.raises(NotInvertibleError, match="rank 0 of 4"):
        fit_map(x, np.ones((30, 4)), "similarity").inverse()


def test_wrong_arguments_are_named(rng):
    x = rng.normal(size=(5, 2))
    with pytest.raises(InputError, match="group must be one of 'identity', .*; got 'affine'"):
        fit_map(x, x, "affine")
    with pytest.raises(InputError, match="x and y must have paired rows, but x has 5 and y has 4"):
        fit_map(x, x[:4])
    with pytest.raises(InputError, match="x must have at most 2 columns, the width of this map; got 3"):
        fit_map(x, x)(np.zeros((1, 3)))
    with pytest.raises(InputError, match="other must be a map of width 2, like this one; got width 1"):
        fit_map(x, x).then(fit_map(x[:, :1], x[:, :1]))


def test_a_map_rejects_rows_of_another_width_than_those_of_the_fit(rng, tmp_path):
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(30, 4))
    h = fit_map(x, y)
    assert (h.d_x, h.d_y, h.width) == (2, 4, 4)
    padded = np.pad(x, ((0, 0), (0, 2)))
    assert_allclose(h(x), h(padded), atol=1e-12)
    h.save(tmp_path / "h.safetensors")
    for one in (h, load_map(tmp_path / "h.safetensors")):
        with pytest.raises(InputError, match="x must have 2 columns, as the rows of the fit; got 3"):
            one(padded[:, :3])
        with pytest.raises(InputError, match="x must have 2 columns, as the rows of the fit; got 1"):
            one.then(one)(x[:, :1])
        with pytest.raises(InputError, match="x must have 4 columns, as the rows of the fit; got 2"):
            one.inverse()(x)


def test_a_map_is_a_plain_value():
    h = Map("rigid", np.eye(2), np.zeros(2), np.ones(2))
    assert_array_equal(h(np.zeros((1, 2))), [[1, 1]])


def linear_pair(n, d, seed, noise=0.5, more=2000):
    """Rows for fitting and further rows for scoring, of a linear relation with noise."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(d, d)) / np.sqrt(d)
    x = rng.normal(size=(n + more, d)) * np.exp(-3 * np.arange(d) / d) + 1
    y = x @ matrix + noise * rng.normal(size=(n + more, d))
    return x[:n], y[:n], x[n:], y[n:]


@pytest.mark.parametrize("rows_per_dimension", [1, 2, 5])
def test_ridge_predicts_other_rows_better_than_least_squares_where_rows_are_few(rows_per_dimension):
    for seed in range(5):
        x, y, more_x, more_y = linear_pair(30 * rows_per_dimension, 30, seed)
        assert rms(fit_map(x, y, "ridge"), more_x, more_y) < 0.99 * rms(fit_map(x, y, "linear"), more_x, more_y)


def test_ridge_equals_least_squares_where_rows_are_many():
    x, y, more_x, more_y = linear_pair(3000, 30, 0)
    assert_allclose(
        rms(fit_map(x, y, "ridge"), more_x, more_y), rms(fit_map(x, y, "linear"), more_x, more_y), rtol=0.01
    )


def test_ridge_chooses_its_penalty_as_well_as_leaving_one_row_out_does():
    for n in (20, 40, 100):
        x, y, more_x, more_y = linear_pair(n, 20, n)
        peer = RidgeCV(alphas=np.logspace(-6, 6, 200)).fit(x, y)
        assert_allclose(rms(fit_map(x, y, "ridge"), more_x, more_y), rms(peer.predict, more_x, more_y), rtol=0.02)


def test_ridge_is_that_of_scikit_learn_at_its_penalty():
    """The matrix satisfies (S + penalty) B = C with one penalty for all entries."""
    x, y, *_ = linear_pair(60, 5, 0)
    matrix = fit_map(x, y, "ridge").matrix
    x, y = x - x.mean(0), y - y.mean(0)
    gap = x.T @ y - x.T @ x @ matrix
    penalty = (gap * matrix).sum() / np.square(matrix).sum()
    assert penalty > 0
    assert_allclose(matrix, Ridge(alpha=penalty, fit_intercept=False).fit(x, y).coef_.T, atol=1e-10)


@given(st.integers(1, 6), st.integers(8, 40), st.integers(0, 1000))
def test_ridge_does_not_depend_on_rotations_shifts_and_scales(d, n, seed):
    x, y, *_ = linear_pair(n, d, seed)
    h = fit_map(x, y, "ridge")(x)
    turn, other = rotation(d, seed), rotation(d, seed + 1)
    assert_allclose(fit_map(x @ turn + 5, y, "ridge")(x @ turn + 5), h, atol=1e-6)
    assert_allclose(fit_map(x, y @ other - 2, "ridge")(x), h @ other - 2, atol=1e-6)
    for scale in (1e-8, 1e8):
        assert_allclose(fit_map(scale * x, y, "ridge")(scale * x), h, atol=1e-6)
        assert_allclose(fit_map(x, scale * y, "ridge")(x), scale * h, atol=1e-6 * scale)


def test_ridge_of_sources_of_low_rank_or_without_variance():
    x, y, *_ = linear_pair(100, 4, 0)
    wide = np.hstack([x, x, np.zeros((100, 2))])
    assert_allclose(fit_map(wide, y, "ridge")(wide)[:, :4], fit_map(x, y, "ridge")(x), atol=0.01)
    flat = fit_map(np.full((100, 4), 3.0), y, "ridge")
    assert_array_equal(flat.matrix, 0)
    assert_allclose(flat(x), np.tile(y.mean(0), (100, 1)), atol=1e-12)
    few = fit_map(x[:3], y[:3], "ridge")
    assert np.isfinite(few.matrix).all()
    assert_allclose(few(x[:3]).mean(0), y[:3].mean(0), atol=1e-10)


def test_ridge_of_unrelated_rows_predicts_about_the_mean():
    x, y = np.random.default_rng(0).normal(size=(2, 200, 50))
    assert np.linalg.norm(fit_map(x, y, "ridge").matrix) < 0.1 * np.linalg.norm(fit_map(x, y, "linear").matrix)
