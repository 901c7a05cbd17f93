import re

import numpy as np
import pytest
import safetensors.numpy
import torch
import zarr
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import read_table

X = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = np.array(["a", "b", "c", "d"])
PLATES = np.array([1, 1, 2, 2])


def save(path, arrays):
    """Write the same named arrays in each of the formats that hold arrays under names."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file(arrays, path)
    elif path.suffix == ".pt":
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    else:
        group = zarr.open_group(str(path), mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=array)
    return path


each_format = pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".zarr"])


def test_npy_is_mapped_and_named_by_its_stem(tmp_path):
    np.save(tmp_path / "run.npy", X)
    table = read_table(tmp_path / "run.npy")
    assert isinstance(table.values, np.memmap)
    assert_array_equal(table.values, X)
    assert (table.name, table.ids, table.metadata, table.features) == ("run", None, {}, None)
    assert table.path == tmp_path / "run.npy"


def test_a_name_can_be_given(tmp_path):
    np.save(tmp_path / "run.npy", X)
    assert read_table(str(tmp_path / "run.npy"), name="first").name == "first"


def test_npy_in_fortran_order_and_of_integers_is_read(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    np.save(tmp_path / "i.npy", X.astype(np.int32))
    assert_array_equal(read_table(tmp_path / "f.npy").values, X)
    assert_array_equal(read_table(tmp_path / "i.npy").values, X)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "run.npy must be a matrix (rows, dimensions), but has shape (3,)"),
        (np.zeros((2, 3, 4)), "run.npy must be a matrix (rows, dimensions), but has shape (2, 3, 4)"),
        (np.zeros((0, 3)), "run.npy is empty: its shape is (0, 3)"),
        (np.zeros((2, 2), complex), "run.npy must hold real numbers, but its dtype is complex128"),
        (np.zeros((2, 2), bool), "run.npy must hold real numbers, but its dtype is bool"),
        (np.array([["a"]]), "run.npy must hold real numbers, but its dtype is <U1"),
        (np.zeros(2, [("x", float)]), "run.npy must be a matrix"),
    ],
)
def test_arrays_that_are_not_real_matrices_are_refused(tmp_path, array, message):
    np.save(tmp_path / "run.npy", array)
    with pytest.raises(TableError, match=re.escape(message)):
        read_table(tmp_path / "run.npy")


@pytest.mark.parametrize("option", ["id", "features", "metadata", "key"])
def test_npy_has_no_names_to_choose_by(tmp_path, option):
    np.save(tmp_path / "run.npy", X)
    with pytest.raises(
        TableError, match=rf"run.npy cannot be read with {option} \(--{option}\): a .npy file holds one array"
    ):
        read_table(tmp_path / "run.npy", **{option: "x"})


@each_format
def test_the_one_matrix_is_the_values_and_vectors_are_ids_and_metadata(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"z": X, "ids": np.arange(4) + 7, "plate": PLATES, "other": np.ones(9)})
    table = read_table(path)
    assert_array_equal(table.values, X)
    assert table.values.dtype == np.float32
    assert table.ids.tolist() == [7, 8, 9, 10]
    assert list(table.metadata) == ["plate"]
    assert_array_equal(table.metadata["plate"], PLATES)
    assert table.name == "run"


@each_format
def test_the_key_chooses_among_several_matrices(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"a": X, "b": X + 1})
    assert_array_equal(read_table(path, key="b").values, X + 1)
    with pytest.raises(TableError, match=r"holds several matrices \((a, b|b, a)\); choose one with key \(--key\)"):
        read_table(path)
    with pytest.raises(TableError, match=r"holds no array 'c' \(--key\); it holds (a|b) \(4, 3\), (b|a) \(4, 3\)"):
        read_table(path, key="c")


@each_format
def test_the_id_may_name_another_array(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"z": X, "ids": np.arange(4), "cell": np.arange(4) * 2})
    table = read_table(path, id="cell")
    assert table.ids.tolist() == [0, 2, 4, 6]
    assert list(table.metadata) == ["ids"]
    with pytest.raises(TableError, match=r"holds no array 'row' for id \(--id\); it holds "):
        read_table(path, id="row")


@each_format
def test_ids_of_another_length_are_refused(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"z": X, "ids": np.arange(5)})
    with pytest.raises(TableError, match=re.escape("has 4 rows, but its ids has shape (5,); expected (4,)")):
        read_table(path)


@each_format
def test_a_file_without_a_matrix_is_refused(tmp_path, suffix):
    path = save(tmp_path / f"one{suffix}", {"z": np.ones((2, 2, 2))})
    with pytest.raises(TableError, match=re.escape("must be a matrix (rows, dimensions), but has shape (2, 2, 2)")):
        read_table(path)
    path = save(tmp_path / f"two{suffix}", {"y": np.ones(3), "z": np.ones((2, 2, 2))})
    with pytest.raises(TableError, match=r"holds no matrix \(rows, dimensions\); it holds "):
        read_table(path)
    path = save(tmp_path / f"none{suffix}", {})
    with pytest.raises(TableError, match="holds no arrays at its top level"):
        read_table(path)


@each_format
def test_features_cannot_be_chosen_where_columns_have_no_names(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"z": X})
    with pytest.raises(TableError, match=r"cannot be read with features \(--features\): it holds arrays, not columns"):
        read_table(path, features="emb_*")


@each_format
def test_empty_matrices_are_refused(tmp_path, suffix):
    path = save(tmp_path / f"run{suffix}", {"z": np.ones((0, 3))})
    with pytest.raises(TableError, match=re.escape("is empty: its shape is (0, 3)")):
        read_table(path)


def test_npz_keeps_text_ids_and_metadata(tmp_path):
    np.savez_compressed(tmp_path / "run.npz", z=X, ids=IDS, species=np.array(["cat", "dog", "cat", "dog"]))
    table = read_table(tmp_path / "run.npz")
    assert table.ids.tolist() == IDS.tolist()
    assert table.metadata["species"].tolist() == ["cat", "dog", "cat", "dog"]


def test_a_matrix_called_ids_is_not_the_ids(tmp_path):
    np.savez(tmp_path / "run.npz", ids=X)
    table = read_table(tmp_path / "run.npz")
    assert table.ids is None
    assert_array_equal(table.values, X)


def test_safetensors_are_mapped(tmp_path):
    path = save(tmp_path / "run.safetensors", {"z": X})
    assert isinstance(read_table(path).values, np.memmap)


def test_bfloat16_is_widened_exactly(tmp_path):
    tensor = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    from safetensors.torch import save_file

    save_file({"z": tensor}, tmp_path / "run.safetensors")
    torch.save(tensor, tmp_path / "run.pt")
    for path in (tmp_path / "run.safetensors", tmp_path / "run.pt"):
        values = read_table(path).values
        assert values.dtype == np.float32
        assert_array_equal(values, tensor.float().numpy())


def test_half_precision_is_kept(tmp_path):
    path = save(tmp_path / "run.safetensors", {"z": X.astype(np.float16)})
    assert read_table(path).values.dtype == np.float16


def test_a_dtype_without_numbers_to_compute_with_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"z": torch.ones(2, 2).to(torch.float8_e4m3fn)}, tmp_path / "run.safetensors")
    with pytest.raises(TableError, match=r"tensors of dtype F8_E4M3 cannot be used; F64, F32"):
        read_table(tmp_path / "run.safetensors")


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_a_lone_tensor_is_the_values(tmp_path, suffix):
    torch.save(torch.nn.Parameter(torch.from_numpy(X)), tmp_path / f"run{suffix}")
    assert_array_equal(read_table(tmp_path / f"run{suffix}").values, X)


def test_a_pt_file_may_list_text_ids(tmp_path):
    torch.save({"z": torch.from_numpy(X), "ids": IDS.tolist(), "nested": {"y": torch.ones(2)}}, tmp_path / "r.pt")
    table = read_table(tmp_path / "r.pt")
    assert table.ids.tolist() == IDS.tolist()
    assert table.metadata == {}


def test_the_old_torch_format_is_read(tmp_path):
    torch.save(torch.from_numpy(X), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert_array_equal(read_table(tmp_path / "old.pt").values, X)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_zarr_array_at_the_root_is_the_values(tmp_path, zarr_format):
    zarr.create_array(str(tmp_path / "run.zarr"), data=X, zarr_format=zarr_format)
    assert_array_equal(read_table(tmp_path / "run.zarr").values, X)


def test_zarr_text_ids_are_understood(tmp_path):
    group = zarr.open_group(str(tmp_path / "run.zarr"), mode="w", zarr_format=3)
    group.create_array("z", data=X)
    group.create_array("ids", data=IDS.astype(np.dtypes.StringDType()))
    assert read_table(tmp_path / "run.zarr").ids.tolist() == IDS.tolist()
