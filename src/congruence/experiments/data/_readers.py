"""Find the files of data sets, and read some rows of large .npz and .h5 files and of folders of png files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.checks import require
from congruence.errors import InputError
from congruence.guards import is_file, open_archive, reading
from congruence.memory import check_fits
from congruence.tables.access import map_npy, npy_header

VARIABLE = "CONGRUENCE_DATA"
BLOCK = 2**24  # bytes read at a time
PNG_SIDE, SIDE = 128, 64  # pixels of png files, and of the images made from them


def cache_folder() -> Path:
    """The user's cache folder of this package; it need not exist."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "congruence"


def find_files(name: str, files: Sequence[Sequence[str]], how: str) -> list[Path]:
    """Find all files of a data set under `CONGRUENCE_DATA`, or else in the cache folder. Nothing is downloaded.

    Parameters
    ----------
    name : str
        The name of the data set, which is that of its folder.
    files : sequence of sequences of str
        For each file the names it may have.
    how : str
        How to get the files, for the error message.
    """
    named = os.environ.get(VARIABLE)
    folders = [folder / name for folder in ([Path(named)] if named else []) + [cache_folder()]]
    missing = ""
    for folder in folders:
        found = [next((folder / one for one in names if (folder / one).is_file()), None) for names in files]
        whole = [path for path in found if path is not None]
        if len(whole) == len(files):
            return whole
        if whole and not missing:
            lost = next(names[0] for names, path in zip(files, found, strict=True) if path is None)
            missing = f"; {folder} has some of its files, but not {lost}"
    hint = "" if named else f" ({VARIABLE} is not set)"
    raise InputError(f"data set {name} not found in {' or '.join(map(str, folders))}{hint}{missing}. {how}")


def read_npz_rows(path: Path, key: str, expected: tuple[int, ...], rows: Array | None = None) -> Array:
    """Some rows of a numeric array in a .npz file, in the order of `rows`; all by default.

    Blocks are decompressed one after the other and only the wanted rows are kept. The array must have the shape
    `expected`; nothing is unpickled.
    """
    with open_archive(path) as archive:
        if f"{key}.npy" not in archive.namelist():
            raise _no_array(path, key, [name.removesuffix(".npy") for name in archive.namelist()])
        with archive.open(f"{key}.npy") as handle:
            header = npy_header(path, handle, archive.getinfo(f"{key}.npy").file_size)
        _check_array(path, key, header.shape, header.dtype, expected)
        if header.fortran:
            raise InputError(f"{path}: {key} is stored column by column; save it again with np.savez")
        size = header.nbytes // expected[0]
        with archive.open(f"{key}.npy") as handle:

            def read(first: int, last: int) -> Array:
                handle.seek(header.length + first * size)
                block = np.frombuffer(handle.read((last - first) * size), header.dtype)
                return block.reshape(last - first, *expected[1:])

            return _gather(path, read, expected, header.dtype, rows)


def read_h5_rows(path: Path, key: str, expected: tuple[int, ...], rows: Array | None = None) -> Array:
    """Some rows of a numeric array in an HDF5 file; see `read_npz_rows`."""
    h5py = require("h5py", f"reading {path}", "hdf5")
    with reading(path), h5py.File(path, "r") as store:
        link = store.get(key, getlink=True)
        if link is None:
            raise _no_array(path, key, list(store))
        data = store[key] if isinstance(link, h5py.HardLink) else None
        if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
            raise InputError(f"{path}: {key} must be an array in the file itself, not a group or an external link")
        _check_array(path, key, data.shape, data.dtype, expected)
        return _gather(path, lambda first, last: data[first:last], expected, data.dtype, rows)


def _no_array(path: Path, key: str, names: Sequence[str]) -> InputError:
    return InputError(f"{path} has no array {key!r}; it has {listing(names, 10)}")


def _check_array(path: Path, key: str, shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]) -> None:
    if tuple(shape) != expected:
        raise InputError(f"{path}: {key} must have shape {expected}; got {tuple(shape)}")
    if dtype.kind not in "uif":
        raise InputError(f"{path}: {key} must be numbers; got dtype {dtype}")


def _gather(path: Path, read: Any, expected: tuple[int, ...], dtype: Any, rows: Array | None) -> Array:
    """Read the blocks that contain the wanted rows, in the order of the file, and keep those rows."""
    wanted = np.arange(expected[0]) if rows is None else rows
    shape, size = (len(wanted), *expected[1:]), int(np.prod(expected[1:], dtype=object)) * dtype.itemsize
    check_fits(path, len(wanted) * size, f"{len(wanted)} rows of it", "; take fewer (n)")
    found, order = np.empty(shape, dtype), np.argsort(wanted, kind="stable")
    for first, last, places in _blocks(wanted[order], max(1, BLOCK // max(1, size))):
        found[order[places]] = read(first, last)[wanted[order[places]] - first]
    return found


def _blocks(rows: Array, most: int) -> Iterator[tuple[int, int, slice]]:
    """Cut sorted row numbers into ranges of at most `most` rows: first, last + 1, and the entries inside."""
    start = 0
    while start < len(rows):
        first = int(rows[start])
        end = int(np.searchsorted(rows, first + most))
        yield first, int(rows[end - 1]) + 1, slice(start, end)
        start = end


def read_labels(path: Path, expected: tuple[int, int]) -> Float:
    """Read numeric labels written by np.save, whatever the suffix; Python objects are refused."""
    with reading(path):
        array = map_npy(path)
        if array.shape != expected or array.dtype.kind not in "uif":
            raise InputError(f"{path} must hold numbers of shape {expected}; got {array.dtype} of {array.shape}")
        return np.array(array, dtype=np.float64)


def read_pngs(folder: Path, rows: Array) -> Array:
    """Images 000000.png, ... of 128 x 128 pixels by row number, halved: uint8 (n, 3, 64, 64)."""
    check_fits(folder, len(rows) * 3 * SIDE**2, f"{len(rows)} images of it", "; take fewer (n)")
    images = np.empty((len(rows), 3, SIDE, SIDE), np.uint8)
    read = partial(_read_png, folder, halving_matrix(PNG_SIDE))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the interpreter lock
        for place, image in enumerate(pool.map(read, rows)):
            images[place] = image
    return images


def halving_matrix(side: int) -> Float:
    """The matrix (side / 2, side) that halves a row of pixels by anti-aliased bicubic interpolation.

    Keys' kernel with a = -1/2, stretched by 2 and normalised at the borders; as in jax.image.resize, and as in Pillow
    up to rounding.
    """
    middles = 2 * np.arange(side // 2)[:, None] + 1.0
    x = np.abs(np.arange(side) + 0.5 - middles) / 2
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights: Float = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    weights /= weights.sum(1, keepdims=True)
    return weights


def _read_png(folder: Path, half: Float, row: int) -> Array:
    from PIL import Image

    path = folder / f"{row:06d}.png"
    if not is_file(path):
        raise InputError(f"{path} is missing: every row of the labels needs an image with its number")
    with reading(path, "a png image"), Image.open(path, formats=["PNG"]) as file:
        if file.size != (PNG_SIDE, PNG_SIDE):
            raise InputError(f"{path} must be {PNG_SIDE} x {PNG_SIDE} pixels; got {file.size[0]} x {file.size[1]}")
        pixels = np.asarray(file.convert("RGB"), np.float64)  # (height, width, channels)
    small = half @ pixels.transpose(2, 0, 1) @ half.T
    return np.clip(small.round(), 0, 255).astype(np.uint8)
