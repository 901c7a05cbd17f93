"""Data with known factors by name: what is drawn here, and what is read from a user's files."""

from __future__ import annotations

import difflib
from typing import Any

from congruence.errors import InputError, MissingDependencyError
from congruence.experiments.data.benchmark_files import DSPRITES, FALCOR3D, ISAAC3D, MNIST, MPI3D, SHAPES3D
from congruence.experiments.data.image_set import ImageSet
from congruence.experiments.data.images import FactorImages, draw_rows, drawing_device, import_torch
from congruence.experiments.data.room_images import ROOMS
from congruence.experiments.data.row_sets import ROW_SETS, is_row_set, load_rows
from congruence.experiments.data.rows import FactorRows
from congruence.experiments.data.sprite_images import SPRITES
from congruence.experiments.data.twins import Twin


def load_images(
    name: str, n: int | None = None, *, seed: int = 0, continuous: bool = False, device: str = "auto"
) -> FactorImages:
    """Load images with their true factors by the name of their data set.

    Parameters
    ----------
    name : str
        rooms and sprites are drawn on the spot; shapes3d, mpi3d, falcor3d, isaac3d, dsprites and mnist are read from
        their own files, which are looked for under `CONGRUENCE_DATA`. Nothing is downloaded.
    n : int, optional
        How many images, drawn without replacement; without it all of them, in their own order (that of the file).
        Of large files only what was drawn is kept in memory.
    continuous : bool
        Of rooms and sprites: values of factors from their ranges instead of levels.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where the images are put; "auto" takes a GPU where torch sees one. Without torch, those read from files are
        numpy arrays.
    """
    chosen = find_image_set(name)
    if chosen.twin is not None:
        return chosen.twin.make(n, seed=seed, continuous=continuous, side=chosen.shape[1], device=device)
    if continuous:
        raise InputError(f"{name} has no continuous factors; continuous goes with {' and '.join(TWINS)}")
    opened = chosen.opened()
    rows = draw_rows(len(opened.levels), n, seed, name)
    images, grid = _placed(opened.images(rows), device), chosen.grid
    return FactorImages(name, images, opened.levels[rows], grid.names, grid.kinds, grid.sizes, chosen.note)


def load_data(
    name: str, n: int | None = None, *, seed: int = 0, continuous: bool = False, device: str = "auto"
) -> FactorImages | FactorRows:
    """Load images or rows, with their true factors, by the name of their data set; see `load_images` and `load_rows`.

    Rows are numpy arrays wherever they go; a training puts them on its device.
    """
    if not is_row_set(name):
        return load_images(name, n, seed=seed, continuous=continuous, device=device)
    if continuous:
        raise InputError(f"the factors of {name} are what they are; continuous goes with {' and '.join(TWINS)}")
    return load_rows(name, n, seed=seed)


def find_image_set(name: str) -> ImageSet:
    """Return the data set of that name; a name that is not there is refused with those that are near."""
    if name in IMAGE_SETS:
        return IMAGE_SETS[name]
    if is_row_set(name):
        raise InputError(f"{name} are rows of numbers, not images; there are images {', '.join(IMAGE_SETS)}")
    every = (*IMAGE_SETS, *ROW_SETS)
    near = difflib.get_close_matches(str(name).lower(), every, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(every)}"
    raise InputError(f"there is no data set {name!r}; {hint}")


def _placed(images: Any, device: str) -> Any:
    """Images as a tensor on a device; without torch they stay a numpy array, if no device was asked for."""
    try:
        torch = import_torch("putting images on a device")
    except MissingDependencyError:
        if device != "auto":
            raise
        return images
    return torch.as_tensor(images, device=drawing_device(device))


def _drawn(twin: Twin, sentence: str, side: int = 64) -> ImageSet:
    return ImageSet(twin.name, sentence, len(twin.grid), (twin.channels, side, side), twin.grid, twin.note, twin=twin)


IMAGE_SETS: dict[str, ImageSet] = {
    one.name: one
    for one in (
        _drawn(ROOMS, "a room with one object, drawn here; a twin of Shapes3D"),
        _drawn(SPRITES, "a square, ellipse or heart, drawn here; a twin of dSprites"),
        SHAPES3D,
        MPI3D,
        FALCOR3D,
        ISAAC3D,
        DSPRITES,
        MNIST,
    )
}
TWINS = tuple(name for name, one in IMAGE_SETS.items() if one.twin is not None)
