import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from congruence import arrays
from congruence.arrays import as_matrix, finite_rows, like, listing, resolve_device, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.rows.engine import Rows


def test_something_else_than_an_array_is_named_by_its_type():
    for x, kind in ((None, "NoneType"), (3, "int"), (torch.nn.Linear(2, 2), "Linear")):
        with pytest.raises(InputError, match=rf"x must be a matrix \(rows, dimensions\); got {kind}$"):
            as_matrix(x)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_chunks_cover_every_row_once(n, d):
    seen = np.concatenate([np.arange(n)[part] for part in row_chunks(n, d)])
    assert_array_equal(seen, np.arange(n))


@pytest.mark.parametrize("kind", ["array", "memory map", "tensor", "chunked"])
def test_rows_are_centred_whatever_holds_them(kind, rng, tmp_path, monkeypatch):
    x = rng.normal(size=(50, 3)).astype(np.float32) + 100
    data = x
    if kind == "memory map":
        np.save(tmp_path / "x.npy", x)
        data = np.load(tmp_path / "x.npy", mmap_mode="r")
    if kind == "tensor":
        data = torch.from_numpy(x)
    if kind == "chunked":
        monkeypatch.setattr(arrays, "CHUNK_BYTES", 8 * 3 * 7)
    rows = Rows(data)
    expected = x.astype(np.float64) - x.astype(np.float64).mean(0)
    assert_allclose(rows.take(slice(None)), expected, atol=1e-12)
    assert_allclose(rows.take(np.array([4, 2]), width=5), np.pad(expected[[4, 2]], ((0, 0), (0, 2))), atol=1e-12)
    assert rows.take(slice(0, 2)).dtype == np.float64


def test_rows_can_be_put_on_the_unit_sphere(rng):
    x = rng.normal(size=(50, 3))
    rows = Rows(x, scale_rows=True)
    assert_allclose(np.linalg.norm(rows.take(slice(None)) + rows.mean, axis=1), 1)


def test_the_resolution_is_the_rounding_of_the_stored_numbers(rng):
    """What storing as float32 adds must lie below the resolution, and real structure above it."""
    x = rng.normal(size=(2000, 40)) + 5
    rounded = x.astype(np.float32)
    noise = np.linalg.svd(rounded - x, compute_uv=False)[0]
    resolution, exact = (np.sqrt(2000 * np.square(Rows(data).rounding).sum()) for data in (rounded, x))
    assert noise < resolution < 100 * noise
    assert exact < 1e-8 * resolution


def test_tensors_go_back_to_tensors():
    x = torch.zeros(2, 2, dtype=torch.float32)
    assert like(np.ones((2, 2)), x).dtype == torch.float32
    assert like(np.ones((2, 2)), torch.zeros(2, 2, dtype=torch.int64)).dtype == torch.float64
    assert like(np.ones((2, 2)), np.zeros((2, 2), np.float32)).dtype == np.float32
    assert like(np.ones((2, 2)), [[0]]).dtype == np.float64


def test_tensors_with_gradients_and_sparse_matrices_are_understood():
    assert_array_equal(to_numpy(torch.ones(2, requires_grad=True)), [1, 1])
    assert_array_equal(to_numpy(sparse.csr_matrix(np.eye(2))), np.eye(2))


def test_non_finite_rows_are_found_and_huge_finite_ones_are_not():
    x = np.array([[1, 2], [np.nan, 1], [np.inf, -np.inf], [1e308, 1e308], [0, -np.inf]])
    assert_array_equal(finite_rows(x), [True, False, False, True, False])
    assert finite_rows(np.array([[1, 2]])).all()
    assert_array_equal(finite_rows(torch.tensor([[1.0], [float("nan")]])), [True, False])


def test_messages_about_missing_values_name_rows():
    x = np.zeros((20, 2))
    x[3] = np.nan
    with pytest.raises(InputError, match=r"codes has NaN or infinite values in 1 row of 20 \(row 3\)"):
        as_matrix(x, "codes")
    x[5:] = np.inf
    with pytest.raises(InputError, match=r"in 16 rows of 20 \(row 3, 5, 6, 7, 8, \.\.\.\)"):
        as_matrix(x, "codes")
    assert as_matrix(x, "codes", finite=False) is x


def test_shapes_and_types_are_checked():
    with pytest.raises(InputError, match=r"shape \(3,\); a single row is x.reshape\(1, -1\), a single column x.resh"):
        as_matrix(np.zeros(3))
    with pytest.raises(InputError, match=r"but has shape \(2, 2, 2\)$"):
        as_matrix(np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="its dtype is bool"):
        as_matrix(np.ones((2, 2), bool))
    with pytest.raises(InputError, match=r"its dtype is torch.bool"):
        as_matrix(torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(InputError, match="its dtype is object"):
        as_matrix(np.array([[None]]))


def test_listing_shortens():
    assert listing([1, 2]) == "1, 2"
    assert listing(range(9)) == "0, 1, 2, 3, 4, ..."


def test_devices_are_chosen_or_refused(monkeypatch):
    assert resolve_device("auto", np.zeros(1), torch.zeros(1)) == "cpu"
    assert resolve_device("cpu") == "cpu"
    with pytest.raises(InputError, match="device must be 'auto', 'cpu' or 'cuda'.*got 'mps'"):
        resolve_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device 'cuda:3' is not available: torch finds no CUDA device"):
        resolve_device("cuda:3")


def test_the_device_path_gives_the_same_numbers_as_numpy(rng):
    """The code that runs on a GPU, here on torch's CPU: any device but "cpu" takes the torch path."""
    from congruence.maps._diameter import rows_diameter
    from congruence.maps.groups import fit_group
    from congruence.maps.nearness import row_errors
    from congruence.rows.sums import sums_of

    x, y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))
    plain, device = ((Rows(x, e), Rows(y, e)) for e in ("cpu", "cpu:0"))
    maps = [{g: fit_group(sums_of(*rows), g) for g in ("similarity", "linear")} for rows in (plain, device)]
    errors = [row_errors(m, *rows, np.arange(60)) for m, rows in zip(maps, (plain, device), strict=True)]
    for group in ("similarity", "linear"):
        assert_allclose(maps[1][group].matrix, maps[0][group].matrix, atol=1e-12)
        assert_allclose(errors[1][group], errors[0][group], atol=1e-12)
    assert isinstance(device[0].take(slice(0, 2), width=6), torch.Tensor)
    assert_allclose(rows_diameter(device[0]).value, rows_diameter(plain[0]).value)


def test_tensors_of_eight_bits_without_arithmetic_are_refused():
    with pytest.raises(InputError, match=r"x must hold real numbers, but its dtype is torch.float8_e4m3fn"):
        as_matrix(torch.ones(3, 2).to(torch.float8_e4m3fn))
