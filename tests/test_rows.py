import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.rows.engine import Moments, Rows, moments_of


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([0.0, 1e3, 1e7]))
def test_chunks_give_the_covariance_of_all_rows(lengths, offset):
    x = np.random.default_rng(0).normal(size=(sum(lengths), 4)) * [1, 10, 0.1, 1] + offset
    found = moments_of(np.split(x, np.cumsum(lengths)[:-1]))
    assert found.n == len(x)
    assert_allclose(found.mean, x.mean(0), rtol=1e-12, atol=1e-12)
    assert_allclose(found.finish(), np.cov(x - offset, rowvar=False, bias=True), atol=1e-12 + 1e-15 * offset**1.2)


def test_merging_two_workers_is_seeing_all_rows(rng):
    x = rng.normal(size=(100, 3)) + 50
    both = moments_of([x[:30]]).merge(moments_of([x[30:]]))
    assert_allclose(both.scatter, moments_of([x]).scatter, rtol=1e-12, atol=1e-12)


def test_nothing_is_the_neutral_element(rng):
    seen = moments_of([rng.normal(size=(10, 3))])
    assert seen.merge(Moments.empty(3)) is seen
    assert Moments.empty(3).merge(seen) is seen


def test_float32_rows_are_summed_in_float64(rng):
    x = (rng.normal(size=(5000, 3)) + 100).astype(np.float32)
    assert_allclose(moments_of([x]).finish(), np.cov(x.astype(np.float64), rowvar=False, bias=True), rtol=1e-12)


def test_tensors_are_taken_as_they_are(rng):
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(100, 3))
    assert_allclose(moments_of([torch.tensor(x)]).scatter, moments_of([x]).scatter, rtol=1e-12)


def test_rows_are_left_as_they_were(rng):
    x = rng.normal(size=(10, 3))
    before = x.copy()
    Moments.empty(3).update(x)
    assert (x == before).all()


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "no rows"),
        ([np.ones((2, 3)), np.ones((2, 4))], "4 columns, but the rows before it have 3"),
        ([np.ones((5, 2)), np.array([[1.0, 2.0], [np.nan, 1.0]])], r"row 6"),
        ([np.array([[1e200, 1.0], [-1e200, 1.0]])], "too large"),
    ],
)
def test_what_cannot_be_summed_is_named(chunks, message):
    with np.errstate(over="ignore"), pytest.raises(InputError, match=message):
        moments_of(chunks)


def test_moments_of_different_widths_do_not_merge():
    with pytest.raises(InputError, match="3 and 4 columns"):
        Moments.empty(3).merge(Moments.empty(4))
    with pytest.raises(InputError, match="no rows"):
        Moments.empty(3).finish()


def test_a_far_value_takes_no_digits_from_the_distances_of_other_rows(rng):
    x = rng.normal(size=(300, 4)) + 5
    x[7, 2] = 1e100
    points, rounding = Rows(x).points(np.arange(300))
    assert_allclose(np.diff(points[:7], axis=0), np.diff(x[:7], axis=0), rtol=1e-12)
    assert 0 < rounding < 1e-14


def test_centred_rows_are_kept_only_where_that_takes_little_memory(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 3), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for data, kept in ((np.ones((10, 3), np.float32), True), (np.ones((10, 3), np.float16), False), (mapped, False)):
        assert (Rows(data)._centred is not None) is kept


def test_rows_go_to_a_device_whatever_their_strides_and_keep_their_rounding():
    pytest.importorskip("torch", reason="torch is not installed")
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    for view in (x[::-1], x[:, ::-1]):
        assert Rows(view, "meta").placed().data.shape == (10, 3)
    swapped = Rows(x.astype(">f4"), "meta")
    assert swapped.placed() is swapped  # torch would widen it, and the rounding of float32 would look like signal
