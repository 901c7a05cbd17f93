import gzip
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.experiments.data._readers import cache_folder, find_files
from congruence.experiments.data.digits import mnist, read_idx, shrink_images


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch, rng):
    """A data folder with seven images of noise."""
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mnist").mkdir()
    for name in ("train", "t10k"):
        images, labels = rng.integers(256, size=(7, 28, 28)), np.arange(7)
        (tmp_path / "mnist" / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / "mnist" / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return tmp_path / "mnist"


@pytest.mark.parametrize("part", ["train", "test"])
def test_images_are_rows_of_grey_values_with_their_digits(part, folder):
    images, labels = mnist(part)
    assert images.shape == (7, 784)
    assert images.dtype == np.float32
    assert 0 <= images.min() < 0.01
    assert 0.99 < images.max() <= 1
    assert labels.tolist() == list(range(7))


def test_files_that_were_unpacked_are_read_as_well(folder):
    before = mnist()
    for path in folder.glob("train*"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert_array_equal(mnist()[0], before[0])


def test_the_cache_folder_is_looked_in_second(folder, monkeypatch):
    if sys.platform != "linux":
        pytest.skip("the cache folder is elsewhere on this system")
    there = folder.parent / "cache" / "congruence" / "mnist"
    there.parent.mkdir(parents=True)
    folder.rename(there)
    assert mnist()[0].shape == (7, 784)
    monkeypatch.delenv("CONGRUENCE_DATA")
    assert mnist()[0].shape == (7, 784)
    assert cache_folder() == there.parent


def test_what_is_missing_is_named_with_where_it_was_looked_for(folder, monkeypatch):
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError) as refused:
        mnist()
    text = str(refused.value)
    assert f"not found in {folder} or {cache_folder() / 'mnist'}; {folder} has some of its files" in text
    assert "but not train-labels-idx1-ubyte.gz. Get train-images" in text
    monkeypatch.delenv("CONGRUENCE_DATA")
    with pytest.raises(InputError, match=r"\(CONGRUENCE_DATA is not set\)\. Buy it$"):
        find_files("gold", [["bar"]], "Buy it")


@pytest.mark.parametrize("keep", [0, 2, 9, 200, -1, -9])
def test_a_gzip_file_that_was_cut_short_is_refused(keep, folder):
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="train-images-idx3-ubyte.gz(, it may be damaged| is not an idx file)"):
        mnist()


def test_a_changed_byte_is_noticed(folder):
    path = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # of the checksum
    path.write_bytes(content)
    with pytest.raises(InputError, match="it may be damaged: CRC check failed"):
        mnist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((7, 28, 28)))[:-1], "announces 5488 bytes, but only 5487 follow"),
        (idx(np.zeros((7, 28, 28))) + b"x", "announces 5488 bytes, but more follow"),
        (idx(np.zeros(7)), "is not an idx file of bytes with 3 dimensions; it starts 00000801"),
        (b"\x00\x00\x08\x03" + 12 * b"\xff", r"announces an array of \(4294967295, "),
        (idx(np.zeros((7, 8, 8))), "must hold images of 28 x 28; got 8 x 8"),
        (idx(np.zeros((6, 28, 28))), "holds 6 images, but .* holds 7 labels"),
    ],
)
def test_files_that_are_something_else_are_refused(content, message, folder):
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=message):
        mnist()


def test_labels_that_are_no_digits_and_parts_that_are_none_are_refused(folder):
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.full(7, 12))))
    with pytest.raises(InputError, match="must be from 0 to 9; got 12"):
        mnist()
    with pytest.raises(InputError, match="part must be one of 'train', 'test'; got 'valid'"):
        mnist("valid")
    with pytest.raises(InputError, match=r"cannot read .*absent: No such file"):
        read_idx(folder / "absent", 1)


def test_shrunk_images_are_means_of_blocks(rng):
    images = rng.random((3, 784)).astype(np.float32)
    small = shrink_images(images, 14)
    assert small.shape == (3, 196)
    square = images.reshape(3, 28, 28)
    assert_allclose(small.reshape(3, 14, 14)[:, 2, 5], square[:, 4:6, 10:12].mean((1, 2)), rtol=1e-6)
    assert_array_equal(shrink_images(images, 28), images)
    with pytest.raises(InputError, match="side must divide 28; got 5"):
        shrink_images(images, 5)


def test_the_real_files_hold_what_is_known_of_them(data_folder):
    images, labels = mnist("test")
    assert images.shape == (10_000, 784)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.mean() == pytest.approx(0.1325, abs=1e-4)
