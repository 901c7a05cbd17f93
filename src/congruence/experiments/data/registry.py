"""Data with known factors by name: load, list and write it to files."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
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
from congruence.experiments.data.own_data import open_data, take_rows
from congruence.experiments.data.room_images import ROOMS
from congruence.experiments.data.row_sets import ROW_SETS, find_row_set, is_row_set, load_rows
from congruence.experiments.data.sprite_images import SPRITES
from congruence.files import real_path, replacing
from congruence.rows.devices import training_device
from congruence.tables import Table, check_table_path, write_table
from congruence.tables.write import save_npz

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
    data: Any,
    n: int | None = None,
    *,
    seed: int = 0,
    continuous: bool = False,
    device: str = "auto",
    size: int | None = None,
    read: Mapping[str, Any] | None = None,
) -> Any:
    """Load images or rows by the name of their data set (`load_images`, `load_rows`), or open your own (`open_data`).

    Rows are numpy arrays whatever the device; training moves them to its device.

    Parameters
    ----------
    data : str, path, array, table, frame, AnnData, FactorImages or FactorRows
        A name has true factors. The name of a data set takes precedence over a file of the same name.
    n : int, optional
        Number of images or rows, drawn without replacement; by default all, or 10,000 generated rows.
    seed : int
        Of the draw.
    continuous : bool
        As in `load_images`.
    device : str
        As in `load_images`.
    size : int, optional
        Side to which images of a folder are scaled and cropped.
    read : mapping, optional
        How a table is read: `id`, `features`, `metadata` and `key`, as for `congruence.tables.as_table`.
    """
    if is_own_data(data):
        if continuous:
            raise InputError(f"continuous is an option of {' and '.join(GENERATED)}, not of your own data")
        opened = open_data(data, size=size, read=read)
        return opened if n is None else take_rows(opened, draw_rows(_count(opened), n, seed, "the data"))
    for name, value in {"size": size, **(read or {})}.items():
        if value is not None:
            raise InputError(f"{name} is an option of your own data; got {value!r} for the data set {data}")
    if not is_row_set(data):
        return load_images(data, n, seed=seed, continuous=continuous, device=device)
    if continuous:
        raise InputError(f"continuous is an option of {' and '.join(GENERATED)}; got {data}")
    return load_rows(data, n, seed=seed)


def is_own_data(data: Any) -> bool:
    """Whether data is given as an object or a path, and not by the name of a data set."""
    if not isinstance(data, str):
        return True
    looks_like_path = "/" in data or "*" in data or Path(data).suffix != ""
    return data not in IMAGE_SETS and not is_row_set(data) and (looks_like_path or Path(data).exists())


def _count(data: Any) -> int:
    return data.n if isinstance(data, Table) else len(data)


@dataclass(frozen=True)
class DataOutline:
    """What a model needs to know of its data before it is built."""

    name: str
    shape: tuple[int, ...]  # of an image or a row
    count: int | None  # images; None for rows, which are drawn
    sizes: dict[str, int | None]  # levels of each factor
    clusters: int | None = None  # of rows, if known
    latents: int | None = None  # that rows need, if known
    own: bool = False


def outline_data(data: Any) -> DataOutline:
    """Outline a data set by its name, without loading it, or data that was opened."""
    if isinstance(data, str) and is_row_set(data):
        rows, clusters = find_row_set(data)
        sample = rows.make(1, clusters, 0)
        sizes = dict(zip(sample.factor_names, sample.sizes, strict=True))
        return DataOutline(data, (rows.observed,), None, sizes, clusters, rows.latents)
    if isinstance(data, str):
        images = find_image_set(data)
        return DataOutline(
            data, images.shape, images.count, dict(zip(images.grid.names, images.grid.sizes, strict=True))
        )
    if isinstance(data, FactorImages | FactorRows):
        sizes = dict(zip(data.factor_names, data.sizes, strict=True))
        levels = [size for size in sizes.values() if size is not None]
        return DataOutline(data.name, tuple(data.shape), len(data), sizes, levels[0] if levels else None, own=True)
    if isinstance(data, Table):
        return DataOutline(data.name, (data.d,), data.n, {}, own=True)
    shape = tuple(map(int, getattr(data, "shape", ())))
    return DataOutline("the data", shape[1:], shape[0] if shape else 0, {}, own=True)


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
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(every)}; there is no such file"
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
        if real_path(Path(factors)) == real_path(path):
            raise InputError(f"factors must be another file than the data; got {path} for both")


def write_data(data: FactorImages | FactorRows, path: str | Path, factors: str | Path | None = None) -> None:
    """Write images or rows with their factors as one .npz file and, optionally, the factors as a table.

    The .npz file has images (n, channels, height, width) or rows (n, p), factors (n, k), factor_names, kinds and a
    note about the data.
    """
    check_data_paths(path, factors)
    if not isinstance(data, FactorImages | FactorRows):
        raise InputError(f"data must be images or rows with known factors; got a {type(data).__name__}")
    inputs = {"images": to_numpy(data.images)} if isinstance(data, FactorImages) else {"rows": data.rows}
    about = {"factor_names": np.array(data.factor_names), "kinds": np.array(data.kinds), "note": np.array(data.note)}
    with replacing(path) as temporary:
        save_npz(temporary, {**inputs, "factors": data.factors, **about}, compressed=True)
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
