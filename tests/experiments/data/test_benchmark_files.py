"""The files of the literature, in small: the same layout, fewer levels and pixels."""

import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from congruence.errors import InputError, MissingDependencyError
from congruence.experiments.data import _benchmark_files as files
from congruence.experiments.data import load_images
from congruence.experiments.data._benchmark_files import read_dsprites, read_folder, read_mpi3d, read_shapes3d
from congruence.experiments.data._image_sets import FactorGrid
from congruence.experiments.data._readers import halving_matrix, read_npz_rows
from congruence.experiments.data.registry import IMAGE_SETS
from congruence.experiments.data.variations import vary_factors

SIDE = 8


def smaller(grid, *sizes):
    return replace(grid, sizes=sizes)


ROOMS = smaller(files.ROOMS_GRID, 2, 3, 2, 2, 2, 3)
MPI3D = smaller(files.MPI3D_GRID, 2, 2, 2, 1, 3, 2, 4)
SPRITES = smaller(files.SPRITES_GRID, 3, 2, 4, 2, 3)
FALCOR3D = smaller(files.FALCOR3D_GRID, 2, 1, 2, 1, 2, 1, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("shapes3d", "mpi3d", "dsprites", "falcor3d/Falcor3D_down128/images"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def shapes3d(folder, rng):
    """3dshapes.h5 with rows in the order of that file, in which orientation changes fastest."""
    h5py = pytest.importorskip("h5py")
    order = [ROOMS.names.index(name) for name in files.SHAPES3D_COLUMNS]
    in_file = FactorGrid(files.SHAPES3D_COLUMNS, ("ordinal",) * 6, tuple(ROOMS.sizes[j] for j in order))
    labels = in_file.levels() * np.array([0.1, 0.1, 0.1, 0.07, 1, 4.3]) + np.array([0, 0, 0, 0.75, 0, -30])
    images = rng.integers(256, size=(len(ROOMS), SIDE, SIDE, 3), dtype=np.uint8)
    path = folder / "shapes3d" / "3dshapes.h5"
    with h5py.File(path, "w") as store:
        store.create_dataset("images", data=images, chunks=(10, SIDE, SIDE, 3), compression="gzip")
        store["labels"] = labels
    return path, images, in_file


def test_shapes3d_is_read_with_its_factors_in_our_order(shapes3d):
    _, images, in_file = shapes3d
    opened = read_shapes3d(ROOMS, SIDE)
    levels = in_file.levels()
    for j, name in enumerate(ROOMS.names):
        assert_array_equal(opened.levels[:, j], levels[:, in_file.names.index(name)])
    rows = np.array([100, 3, 71, 4])
    assert_array_equal(opened.images(rows), images[rows].transpose(0, 3, 1, 2))
    assert_array_equal(opened.images(np.arange(len(ROOMS))), images.transpose(0, 3, 1, 2))


def test_images_of_a_file_are_loaded_drawn_and_varied_by_name(shapes3d, monkeypatch):
    _, images, _ = shapes3d
    small = replace(IMAGE_SETS["shapes3d"], grid=ROOMS, count=len(ROOMS), read=partial(read_shapes3d, ROOMS, SIDE))
    monkeypatch.setitem(IMAGE_SETS, "shapes3d", small)
    data = load_images("shapes3d", 20, seed=1, device="cpu")
    assert data.images.shape == (20, 3, SIDE, SIDE)
    levels = read_shapes3d(ROOMS, SIDE).levels
    for image, factors in zip(np.asarray(data.images), data.factors, strict=True):
        (row,) = np.flatnonzero((levels == factors).all(1))
        assert_array_equal(image, images[row].transpose(2, 0, 1))
    assert len(load_images("shapes3d", device="cpu")) == len(ROOMS)
    with pytest.raises(InputError, match="n must be at most 144, the number of images in shapes3d"):
        load_images("shapes3d", 145, device="cpu")
    floor = vary_factors("shapes3d")[1]
    assert floor.labels == ("0", "1")
    rows = [np.flatnonzero((images == image.transpose(1, 2, 0)).all((1, 2, 3)))[0] for image in floor.images]
    assert [name for name, changed in zip(ROOMS.names, np.diff(levels[rows], axis=0)[0], strict=True) if changed] == [
        "floor_hue"
    ]


def test_without_torch_images_of_files_are_numpy_arrays(shapes3d, monkeypatch):
    small = replace(IMAGE_SETS["shapes3d"], grid=ROOMS, read=partial(read_shapes3d, ROOMS, SIDE))
    monkeypatch.setitem(IMAGE_SETS, "shapes3d", small)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert isinstance(load_images("shapes3d", 4).images, np.ndarray)
    with pytest.raises(MissingDependencyError, match="moving images to a device needs torch"):
        load_images("shapes3d", 4, device="cuda")


def test_a_wrong_3dshapes_is_refused(shapes3d, folder):
    import h5py

    path, *_ = shapes3d
    with pytest.raises(InputError, match=r"labels must have shape \(480000, 6\); got \(144, 6\)"):
        read_shapes3d()
    with pytest.raises(InputError, match=r"images must have shape \(144, 64, 64, 3\); got \(144, 8, 8, 3\)"):
        read_shapes3d(ROOMS)
    with h5py.File(path, "a") as store:
        store["labels"][:, 0] = np.arange(144)
    with pytest.raises(InputError, match="3dshapes.h5 must have 2 values of floor_hue; got 144"):
        read_shapes3d(ROOMS, SIDE)
    with h5py.File(path, "a") as store:
        del store["labels"]
    with pytest.raises(InputError, match="3dshapes.h5 has no array 'labels'; it has images"):
        read_shapes3d(ROOMS, SIDE)
    with h5py.File(path, "a") as store:
        store["labels"] = h5py.ExternalLink("/etc/other.h5", "labels")
    with pytest.raises(InputError, match="labels must be an array in the file itself, not a group or an external link"):
        read_shapes3d(ROOMS, SIDE)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match="3dshapes.h5 could not be read as .h5, it may be damaged"):
        read_shapes3d(ROOMS, SIDE)


def test_reading_h5_without_h5py_says_what_to_install(shapes3d, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependencyError, match=r"needs h5py: pip install 'congruence\[hdf5\]'"):
        read_shapes3d(ROOMS, SIDE)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_mpi3d_is_row_major_and_read_in_blocks(save, folder, rng, monkeypatch):
    images = rng.integers(256, size=(len(MPI3D), SIDE, SIDE, 3), dtype=np.uint8)
    save(folder / "mpi3d" / "real3d_complicated_shapes_ordered.npz", images=images)
    monkeypatch.setattr("congruence.experiments.data._readers.BLOCK", 7 * SIDE * SIDE * 3)
    opened = read_mpi3d(MPI3D, SIDE)
    assert_array_equal(opened.levels, MPI3D.levels())
    for rows in (np.array([50, 3, 4, 191, 0, 190]), np.arange(len(MPI3D)), np.array([7])):
        assert_array_equal(opened.images(rows), images[rows].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.zeros(3)}, "has no array 'images'; it has pictures"),
        ({"images": np.zeros((5, 8, 8, 3), np.uint8)}, r"images must have shape \(192, 8, 8, 3\); got \(5, 8, 8, 3\)"),
        ({"images": np.zeros((192, 8, 8, 3), "U1")}, "images must be numbers; got dtype <U1"),
        ({"images": np.full((192, 8, 8, 3), None)}, "images must be numbers; got dtype object"),
        ({"images": np.asfortranarray(np.zeros((192, 8, 8, 3), np.uint8))}, "images is stored column by column"),
    ],
)
def test_a_wrong_npz_is_refused(arrays, message, folder):
    np.savez(folder / "mpi3d" / "real3d_complicated_shapes_ordered.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_mpi3d(MPI3D, SIDE)


def test_images_that_are_no_bytes_are_refused(folder):
    np.savez(folder / "mpi3d" / "real3d_complicated_shapes_ordered.npz", images=np.zeros((192, 8, 8, 3)))
    with pytest.raises(InputError, match="images must be uint8; got float64"):
        read_mpi3d(MPI3D, SIDE).images(np.arange(2))


@pytest.mark.parametrize("keep", [0, 100, -200])
def test_an_npz_that_was_cut_short_is_refused(keep, folder):
    path = folder / "mpi3d" / "real3d_complicated_shapes_ordered.npz"
    np.savez(path, images=np.zeros((192, 8, 8, 3), np.uint8))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="npz could not be read as .npz, it may be damaged"):
        read_mpi3d(MPI3D, SIDE)


def test_what_does_not_fit_in_memory_is_refused_before_it_is_read(folder, monkeypatch):
    path = folder / "large.npz"
    np.savez(path, images=np.zeros((10, 8, 8, 3), np.uint8))
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", "1000")
    assert read_npz_rows(path, "images", (10, 8, 8, 3), np.arange(5)).shape == (5, 8, 8, 3)
    with pytest.raises(InputError, match=r"10 rows of it would take .*; take fewer \(n\)"):
        read_npz_rows(path, "images", (10, 8, 8, 3))


def write_dsprites(folder, images, classes):
    path = folder / "dsprites" / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    np.savez_compressed(path, imgs=images, latents_classes=classes, metadata=np.array({"pickled": 1}, dtype=object))


def test_dsprites_is_read_without_its_colour_and_its_pickled_notes(folder, rng):
    images = rng.integers(2, size=(len(SPRITES), SIDE, SIDE), dtype=np.uint8)
    classes = np.column_stack([np.zeros(len(SPRITES), int), SPRITES.levels()])
    write_dsprites(folder, images, classes)
    opened = read_dsprites(SPRITES, SIDE)
    assert_array_equal(opened.levels, SPRITES.levels())
    assert_array_equal(opened.images(np.array([9, 2])), 255 * images[[9, 2], None])
    assert opened.images(np.array([9])).shape[1] == IMAGE_SETS["dsprites"].shape[0]  # what a model is made for
    write_dsprites(folder, images + 3, classes)
    with pytest.raises(InputError, match="imgs must be 0 or 1; got 4"):
        read_dsprites(SPRITES, SIDE).images(np.arange(5))
    classes[1] = classes[0]
    write_dsprites(folder, images, classes)
    with pytest.raises(InputError, match="does not contain every combination of its factors once"):
        read_dsprites(SPRITES, SIDE)
    write_dsprites(folder, images, np.full(classes.shape, np.nan))
    with pytest.raises(InputError, match="must be finite numbers"):
        read_dsprites(SPRITES, SIDE)


@pytest.fixture
def falcor3d(folder, rng):
    home = folder / "falcor3d" / "Falcor3D_down128"
    images = rng.integers(256, size=(len(FALCOR3D), 128, 128, 3), dtype=np.uint8)
    for number, image in enumerate(images):
        Image.fromarray(image).save(home / "images" / f"{number:06d}.png")
    with (home / "train-rec.labels").open("wb") as handle:
        np.save(handle, FALCOR3D.levels() / np.maximum(np.array(FALCOR3D.sizes) - 1, 1))
    return home, images


def test_folders_of_images_are_halved_as_torch_halves_them(falcor3d):
    torch = pytest.importorskip("torch")
    _, images = falcor3d
    opened = read_folder("falcor3d", FALCOR3D)
    assert_array_equal(opened.levels, FALCOR3D.levels())
    rows = np.array([11, 4])
    found = opened.images(rows)
    assert found.dtype == np.uint8
    wide = torch.as_tensor(images[rows].transpose(0, 3, 1, 2)).double()
    expected = torch.nn.functional.interpolate(wide, (64, 64), mode="bicubic", antialias=True, align_corners=False)
    assert np.abs(found - expected.clamp(0, 255).numpy()).max() <= 0.5 + 1e-6


def test_halving_keeps_flat_rows_and_straight_lines():
    half = halving_matrix(128)
    assert_allclose(half @ np.ones(128), 1)
    assert_allclose((half @ np.arange(128.0))[4:-4], np.arange(0.5, 128, 2)[4:-4])


def test_a_wrong_folder_of_images_is_refused(falcor3d):
    home, _ = falcor3d
    opened = read_folder("falcor3d", FALCOR3D)
    (home / "images" / "000003.png").unlink()
    with pytest.raises(InputError, match=r"000003.png is missing: every row of the labels needs an image"):
        opened.images(np.array([2, 3]))
    (home / "images" / "000004.png").write_bytes((home / "images" / "000005.png").read_bytes()[:500])
    with pytest.raises(InputError, match=r"a png image from .*000004.png, it may be damaged"):
        opened.images(np.array([4]))
    Image.new("RGB", (64, 64)).save(home / "images" / "000006.png")
    with pytest.raises(InputError, match=r"000006.png must be 128 x 128 pixels; got 64 x 64"):
        opened.images(np.array([6]))
    labels = home / "train-rec.labels"
    with pytest.raises(InputError, match=r"numbers of shape \(233280, 7\); got float64 of \(16, 7\)"):
        read_folder("falcor3d", files.FALCOR3D_GRID)
    content = labels.read_bytes()
    labels.write_bytes(content[:-40])
    with pytest.raises(InputError, match="train-rec.labels is damaged: an array of shape"):
        read_folder("falcor3d", FALCOR3D)
    with labels.open("wb") as handle:
        np.save(handle, np.full((16, 7), None), allow_pickle=True)
    with pytest.raises(InputError, match="labels: the array holds Python objects, which are never unpickled"):
        read_folder("falcor3d", FALCOR3D)
    labels.write_bytes(content)
    (home / "images").rename(home / "pictures")
    with pytest.raises(InputError, match="exists, but the folder of its images"):
        read_folder("falcor3d", FALCOR3D)


@pytest.mark.parametrize("name", ["shapes3d", "mpi3d", "falcor3d", "isaac3d", "dsprites", "mnist"])
def test_a_set_that_is_not_there_says_what_was_expected_and_where_it_was_looked_for(name, folder):
    with pytest.raises(InputError) as refused:
        load_images(name, 3)
    text = str(refused.value)
    assert f"data set {name} not found in {folder / name} or " in text
    assert files.FILES[name][0][0].split("/")[0] in text
    named = re.search(r"'(\w+)' needs no download", text)
    assert named[1] in ("rooms", "sprites")  # which `load_images` has, too
    assert "t10k" not in text


def test_the_real_mnist_has_its_digit_as_factor(data_folder):
    data = load_images("mnist", 50, device="cpu")
    assert data.shape == (1, 28, 28)
    assert data.factor_names == ("digit",)
    assert np.asarray(data.images).max() > 250
