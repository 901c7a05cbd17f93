"""Data with known factors by name: load, list and write it to files."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import to_numpy
from congruence.checks import require
from congruence.errors import InputError, MissingDependencyError
from congruence.experiments.data._benchmark_files import BENCHMARKS
from congruence.experiments.data._image_sets import ImageSet, Renderer
from congruence.experiments.data.factor_data import FactorImages, FactorRows, draw_rows
from congruence.experiments.data.room_images import ROOMS
from congruence.experiments.data.row_sets import ROW_SETS, is_row_set, load_rows
from congruence.experiments.data.sprite_images import SPRITES
from congruence.files import replacing
from congruence.rows.devices import training_device
from congruence.tables import Table, check_table_path, write_table

_GENERATED = "generated, no download"


def load_images(
    name: str, n: int | None = None, *, seed: int = 0, continuous: bool = False, device: str = "auto"
) -> FactorImages:
    """Load images with their true factors by the name of their data set.

    Parameters
    ----------
    name : str
        rooms and sprites are generated; shapes3d, mpi3d, falcor3d, isaac3d, dsprites and mnist are read from their own
        files under `CONGRUENCE_DATA`. Nothing is downloaded.
    n : int, optional
        Number of images, drawn without replacement; by default all of them, in the order of the file. Only the drawn
        images of a large file are kept in memory.
    seed : int
        Of the choice of images.
    continuous : bool
        rooms and sprites: factors have values from their ranges instead of levels.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where the images are stored; "auto" takes a GPU if torch finds one. Without torch, images from files are numpy
        arrays.
    """
    chosen = find_image_set(name)
    if chosen.renderer is not None:
        return chosen.renderer.make(n, seed=seed, continuous=continuous, side=chosen.shape[1], device=device)
    check_continuous(chosen, continuous)
    opened, grid = chosen.open(), chosen.grid
    rows = draw_rows(len(opened.levels), n, seed, name)
    images = _to_device(opened.images(rows), device)
    return FactorImages(name, images, opened.levels[rows], grid.names, grid.kinds, grid.sizes, chosen.note)


def load_data(
    name: str, n: int | None = None, *, seed: int = 0, continuous: bool = False, device: str = "auto"
) -> FactorImages | FactorRows:
    """Load images or rows, with their true factors, by the name of their data set; see `load_images` and `load_rows`.

    Rows are numpy arrays whatever the device; training moves them to its device.
    """
    if not is_row_set(name):
        return load_images(name, n, seed=seed, continuous=continuous, device=device)
    if continuous:
        raise InputError(f"continuous is an option of {' and '.join(GENERATED)}; got {name}")
    return load_rows(name, n, seed=seed)


def check_continuous(chosen: ImageSet, continuous: bool) -> None:
    """Refuse continuous factors of images that are read from files."""
    if continuous and chosen.renderer is None:
        raise InputError(f"continuous is an option of {' and '.join(GENERATED)}; got {chosen.name}")


def find_image_set(name: str) -> ImageSet:
    """The set of images with a name; unknown names are refused with similar ones."""
    if name in IMAGE_SETS:
        return IMAGE_SETS[name]
    if is_row_set(name):
        raise InputError(f"{name} is a data set of rows, not of images; data sets of images: {', '.join(IMAGE_SETS)}")
    every = (*IMAGE_SETS, *ROW_SETS)
    near = difflib.get_close_matches(str(name).lower(), every, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(every)}"
    raise InputError(f"unknown data set {name!r}; {hint}")


def _to_device(images: Any, device: str) -> Any:
    """Images as a tensor on a device; without torch they stay a numpy array unless a device was named."""
    try:
        torch = require("torch", "moving images to a device", "torch")
    except MissingDependencyError:
        if device != "auto":
            raise
        return images
    return torch.as_tensor(images, device=training_device(device))


@dataclass(frozen=True)
class DataSet:
    """A data set that `load_data` knows by name; `where` says whether it is generated or where its files are."""

    name: str
    sentence: str
    contents: str
    factors: dict[str, int | None]  # number of levels; None for continuous values
    where: str


def list_data() -> list[DataSet]:
    """All data sets, and which of their files were found under `CONGRUENCE_DATA` or in the cache folder."""
    found = []
    for one in IMAGE_SETS.values():
        try:
            where = _GENERATED if one.find is None else f"found: {one.find()[0]}"
        except InputError as error:
            where = str(error)
        contents = f"{one.count:,} images of {' x '.join(map(str, one.shape))}"
        factors: dict[str, int | None] = dict(zip(one.grid.names, one.grid.sizes, strict=True))
        found.append(DataSet(one.name, one.sentence, contents, factors, where))
    for rows in ROW_SETS.values():
        drawn = rows.make(1, rows.clusters, 0)
        factors = dict(zip(drawn.factor_names, drawn.sizes, strict=True))
        found.append(DataSet(rows.name, rows.sentence, f"rows of {rows.observed} numbers", factors, _GENERATED))
    return found


def check_data_paths(path: str | Path, factors: str | Path | None = None) -> None:
    """Refuse, before any data is loaded, paths that `write_data` could not write to."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"data is written as .npz; got {path}")
    check_table_path(path)
    if factors is not None:
        check_table_path(factors)
        if Path(factors).resolve() == path.resolve():
            raise InputError(f"factors must be another file than the data; got {path} for both")


def write_data(data: FactorImages | FactorRows, path: str | Path, factors: str | Path | None = None) -> None:
    """Write images or rows with their factors as one .npz file and, optionally, the factors as a table.

    The .npz file has images (n, channels, height, width) or rows (n, p), factors (n, k), factor_names, kinds and a
    note about the data.
    """
    check_data_paths(path, factors)
    inputs = {"images": to_numpy(data.images)} if isinstance(data, FactorImages) else {"rows": data.rows}
    about = {"factor_names": np.array(data.factor_names), "kinds": np.array(data.kinds), "note": np.array(data.note)}
    with replacing(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **inputs, factors=data.factors, **about)  # type: ignore[arg-type]
    if factors is not None:
        write_table(Table(data.factors, "factors", features=data.factor_names), factors)


def _generated(renderer: Renderer, sentence: str, side: int = 64) -> ImageSet:
    grid, shape = renderer.grid, (renderer.channels, side, side)
    return ImageSet(renderer.name, sentence, len(grid), shape, grid, renderer.note, renderer=renderer)


_ALL = (
    _generated(ROOMS, "a room with one object, generated; imitates Shapes3D"),
    _generated(SPRITES, "a square, ellipse or heart, generated; imitates dSprites"),
    *BENCHMARKS,
)
IMAGE_SETS: dict[str, ImageSet] = {one.name: one for one in _ALL}
GENERATED = tuple(name for name, one in IMAGE_SETS.items() if one.renderer is not None)
