"""The image sets of the disentanglement literature, read from the user's copies of their files.

Factors are in the order of Hsu et al. (2023), whatever their order in the file; levels are counted from 0 in the order
of the labels. Nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.experiments.data._image_sets import FactorGrid, ImageSet, OpenedImages
from congruence.experiments.data._readers import (
    SIDE,
    VARIABLE,
    find_files,
    read_h5_rows,
    read_labels,
    read_npz_rows,
    read_pngs,
)
from congruence.experiments.data.digits import NAMES, mnist
from congruence.experiments.data.room_images import GRID as ROOMS_GRID
from congruence.experiments.data.sprite_images import GRID as SPRITES_GRID

# Columns of the labels of 3dshapes.h5: floor, wall and object hue, scale, shape, orientation.
SHAPES3D_COLUMNS = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
MPI3D_GRID = FactorGrid(
    names=("colour", "shape", "size", "camera_height", "background", "horizontal", "vertical"),
    kinds=("categorical", "categorical", "ordinal", "ordinal", "categorical", "ordinal", "ordinal"),
    sizes=(4, 4, 2, 3, 3, 40, 40),
)
FALCOR3D_GRID = FactorGrid(
    names=("light_intensity", "light_x", "light_y", "light_z", "camera_x", "camera_y", "camera_z"),
    kinds=("ordinal",) * 7,
    sizes=(5, 6, 6, 6, 6, 6, 6),
)
ISAAC3D_GRID = FactorGrid(
    names=(
        "object_shape", "robot_x", "robot_y", "camera_height", "object_scale", "light_intensity", "light_y",
        "object_colour", "wall_colour",
    ),
    kinds=("categorical", *("ordinal",) * 6, "categorical", "categorical"),
    sizes=(3, 8, 5, 4, 4, 4, 6, 4, 4),
)  # fmt: skip
DIGIT = FactorGrid(names=("digit",), kinds=("categorical",), sizes=(10,))

_NPZ = {"mpi3d": "real3d_complicated_shapes_ordered.npz", "dsprites": "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"}
FILES = {  # for each file of a data set the names it may have
    "shapes3d": (("3dshapes.h5",),),
    "mpi3d": ((_NPZ["mpi3d"],),),
    "falcor3d": (("Falcor3D_down128/train-rec.labels", "train-rec.labels"),),
    "isaac3d": (("Isaac3D_down128/labels.npy", "labels.npy"),),
    "dsprites": ((_NPZ["dsprites"],),),
    "mnist": tuple(
        (f"{NAMES['train']}-{kind}.gz", f"{NAMES['train']}-{kind}")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ),
}
_FOLDERS = {"falcor3d": "the folder Falcor3D_down128", "isaac3d": "the folder Isaac3D_down128"}


def find_set(name: str) -> list[Path]:
    """The files of a data set, or an error that says what was expected, where, and what needs no download."""
    generated = "sprites" if name == "dsprites" else "rooms"
    what = _FOLDERS.get(name, " and ".join(names[0] for names in FILES[name]))
    how = f"Get {what} for the folder {name} inside the folder that {VARIABLE} names"
    return find_files(name, FILES[name], f"{how}; the generated data set '{generated}' needs no download")


def read_shapes3d(grid: FactorGrid = ROOMS_GRID, side: int = SIDE) -> OpenedImages:
    """3dshapes.h5: `images` (N, 64, 64, 3) uint8 and `labels` (N, 6), whose columns are put into our order."""
    (path,) = find_set("shapes3d")
    labels = read_h5_rows(path, "labels", (len(grid), len(grid.names)))
    columns = [SHAPES3D_COLUMNS.index(name) for name in grid.names]
    expected = (len(grid), side, side, 3)
    read_h5_rows(path, "images", expected, np.arange(0))  # checks shape and dtype
    return OpenedImages(
        grid.rank_labels(labels[:, columns], str(path)),
        lambda rows: _channels_first(path, read_h5_rows(path, "images", expected, rows)),
    )


def read_mpi3d(grid: FactorGrid = MPI3D_GRID, side: int = SIDE) -> OpenedImages:
    """MPI3D real_complex: `images` (N, 64, 64, 3) uint8, one for each combination of factors, row-major."""
    (path,) = find_set("mpi3d")
    expected = (len(grid), side, side, 3)
    read_npz_rows(path, "images", expected, np.arange(0))
    return OpenedImages(
        grid.levels(), lambda rows: _channels_first(path, read_npz_rows(path, "images", expected, rows))
    )


def read_folder(name: str, grid: FactorGrid) -> OpenedImages:
    """Falcor3D or Isaac3D: a file of labels and a folder images/ with 000000.png, ..., shrunk from 128 to 64 pixels."""
    (path,) = find_set(name)
    levels = grid.rank_labels(read_labels(path, (len(grid), len(grid.names))), str(path))
    folder = path.parent / "images"
    if not folder.is_dir():
        raise InputError(f"{path} exists, but the folder of its images, {folder}, does not")
    return OpenedImages(levels, partial(read_pngs, folder))


def read_dsprites(grid: FactorGrid = SPRITES_GRID, side: int = SIDE) -> OpenedImages:
    """The .npz of dSprites: `imgs` (N, 64, 64) of 0 and 1, and `latents_classes` (N, 6), the first of them constant."""
    (path,) = find_set("dsprites")
    expected = (len(grid), side, side)
    read_npz_rows(path, "imgs", expected, np.arange(0))
    classes = read_npz_rows(path, "latents_classes", (len(grid), 1 + len(grid.names)))

    def images(rows: Array) -> Array:
        found = read_npz_rows(path, "imgs", expected, rows)
        if found.size and found.max() > 1:
            raise InputError(f"{path}: imgs must be 0 or 1; got {found.max()}")
        return (found * 255).astype(np.uint8)[:, None]

    return OpenedImages(grid.rank_labels(classes[:, 1:], str(path)), images)


def read_mnist() -> OpenedImages:
    """The 60,000 training images of MNIST, 28 x 28, with their digit as the one factor."""
    find_set("mnist")
    images, labels = mnist("train")
    return OpenedImages(
        labels[:, None], lambda rows: (images[rows] * 255).round().astype(np.uint8).reshape(-1, 1, 28, 28)
    )


def _channels_first(path: Path, images: Array) -> Array:
    if images.dtype != np.uint8:
        raise InputError(f"{path}: images must be uint8; got {images.dtype}")
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _on_grid(
    name: str, grid: FactorGrid, sentence: str, note: str, read: partial[OpenedImages], channels: int = 3
) -> ImageSet:
    shape = (channels, SIDE, SIDE)
    return ImageSet(name, sentence, len(grid), shape, grid, note, find=partial(find_set, name), read=read)


_SMALLER = "; 128 x 128 shrunk to 64 x 64 (bicubic, anti-aliased, rounded to 255 steps)"
BENCHMARKS = (
    _on_grid(
        "shapes3d", ROOMS_GRID, "a room with one object (Burgess and Kim 2018)", "Shapes3D", partial(read_shapes3d)
    ),
    _on_grid(
        "mpi3d", MPI3D_GRID, "photos of a robot arm (Gondal et al. 2019)", "MPI3D, real_complex", partial(read_mpi3d)
    ),
    _on_grid(
        "falcor3d", FALCOR3D_GRID, "a rendered living room (Nie et al. 2020)", "Falcor3D" + _SMALLER,
        partial(read_folder, "falcor3d", FALCOR3D_GRID),
    ),
    _on_grid(
        "isaac3d", ISAAC3D_GRID, "a rendered kitchen with a robot arm (Nie et al. 2020)", "Isaac3D" + _SMALLER,
        partial(read_folder, "isaac3d", ISAAC3D_GRID),
    ),
    _on_grid(
        "dsprites", SPRITES_GRID, "a square, ellipse or heart (Matthey et al. 2017)", "dSprites",
        partial(read_dsprites), channels=1,
    ),
    ImageSet(
        "mnist", "handwritten digits, training part (LeCun et al.)", 60_000, (1, 28, 28), DIGIT, "MNIST, training part",
        find=partial(find_set, "mnist"), read=read_mnist,
    ),
)  # fmt: skip
