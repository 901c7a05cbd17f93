"""Data of your own: arrays, tables, frames, AnnData, folders of images and files of `congruence data make`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from congruence.activations.inputs import array_inputs, image_paths, read_images
from congruence.arrays import Array
from congruence.errors import InputError
from congruence.experiments.data.factor_data import FactorImages, FactorRows
from congruence.guards import is_file, open_archive, reading, suffix_of
from congruence.tables import Table, as_table, is_table
from congruence.tables.access import read_npz_arrays

MADE = ("factors", "factor_names", "kinds")  # arrays of a file of `write_data`, in addition to images or rows


def open_data(data: Any, *, size: int | None = None, read: Mapping[str, Any] | None = None) -> Any:
    """Open data of the user's for a training, as FactorImages, FactorRows, a Table or an array.

    A path is a folder of images, a .npz file of `write_data`, an array of images or rows (.npy, .npz), or anything that
    `congruence.tables.read_table` reads. Images in folders below have the name of the folder as a factor; they are
    scaled and cropped to squares of side `size`. `read` are `id`, `features`, `metadata` and `key`, as for
    `congruence.tables.as_table`.
    """
    given = {name: value for name, value in (read or {}).items() if value is not None}
    if isinstance(data, str | Path):
        path = Path(data)
        if path.is_dir() and image_paths(path):
            _refuse(given, f"the folder of images {path}")
            return _image_folder(path, size)
        opened: Any = _array_file(path, given) if suffix_of(path) in (".npy", ".npz") else as_table(path, **given)
    elif is_table(data):
        opened = as_table(data, **given)
    else:
        _refuse(given, "an array")
        opened = data
    if size is not None:
        raise InputError(f"size is an option of folders of images; got {size} for {_title(data)}")
    return opened


def take_rows(data: Any, rows: Array) -> Any:
    """Data restricted to these rows, in this order."""
    return data.take(rows) if isinstance(data, FactorImages | FactorRows | Table) else data[rows]


def _array_file(path: Path, given: Mapping[str, Any]) -> Any:
    if suffix_of(path) == ".npz" and is_file(path) and _is_made(path):
        _refuse(given, f"{path}, which congruence data wrote")
        return _made(path)
    _refuse({name: value for name, value in given.items() if name != "key"}, f"the array {path}")
    inputs = array_inputs(path, key=given.get("key"))
    values = inputs.read(0, inputs.n)
    return Table(values, path.stem, inputs.ids, path=path) if values.ndim == 2 else values


def _is_made(path: Path) -> bool:
    with open_archive(path, "data") as archive:
        return {f"{name}.npy" for name in MADE} <= set(archive.namelist())


def _made(path: Path) -> FactorImages | FactorRows:
    """Read a file of `write_data`; levels are counted from 0, so that there are as many as the largest says."""
    parts = read_npz_arrays(path, what="data")
    with reading(path, "data of congruence"):
        names, kinds = (tuple(map(str, parts[name])) for name in ("factor_names", "kinds"))
        columns = parts["factors"].T
        sizes = tuple(
            int(column.max()) + 1 if kind != "continuous" and np.array_equal(column, np.round(column)) else None
            for kind, column in zip(kinds, columns, strict=True)
        )
        rest = (parts["factors"], names, kinds, sizes, str(parts.get("note", "")))
        if "images" in parts:
            return FactorImages(path.stem, parts["images"], *rest)
        return FactorRows(path.stem, parts["rows"], *rest)


def _image_folder(folder: Path, size: int | None) -> FactorImages:
    paths = image_paths(folder)
    ids = np.array([path.relative_to(folder).as_posix() for path in paths])
    homes = [path.parent.relative_to(folder).as_posix() for path in paths]
    names, levels = np.unique(homes, return_inverse=True)
    images = read_images(paths, size)
    if len(names) < 2:
        return FactorImages(folder.name, images, np.zeros((len(ids), 0), np.int64), (), (), (), ids=ids)
    factors = levels.astype(np.int64)[:, None]
    note = "folders: " + ", ".join(f"{level} is {name}" for level, name in enumerate(names))
    return FactorImages(folder.name, images, factors, ("folder",), ("categorical",), (len(names),), note, ids)


def _refuse(given: Mapping[str, Any], what: str) -> None:
    for name in given:
        raise InputError(f"{name} is an option of tables; got it for {what}")


def _title(data: Any) -> str:
    return str(data) if isinstance(data, str | Path) else f"a {type(data).__name__}"
