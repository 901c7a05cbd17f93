"""Images as one png file each, numbered from 000000, of which only some are wanted; shrunk by half as they come."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError, MissingDependencyError
from congruence.tables.access import first_sentence, npy_header, reading
from congruence.tables.memory import check_fits

SIDE = 128  # of the files
USED = 64


def read_labels(path: Path, expected: tuple[int, int]) -> Float:
    """A file of labels that np.save wrote, whatever it is called; Python objects in it are refused."""
    with reading(path), path.open("rb") as handle:
        header = npy_header(path, handle, path.stat().st_size)
        if header.shape != expected or header.dtype.kind not in "uif":
            what = f"an array of {header.shape} and dtype {header.dtype}"
            raise InputError(f"{path} holds {what}, but numbers of the shape {expected} were expected")
        handle.seek(0)
        labels = np.lib.format.read_array(handle, allow_pickle=False)
    return labels.astype(np.float64)


def read_pngs(folder: Path, rows: Array) -> Array:
    """The images of row numbers as uint8 (n, 3, 64, 64), from files of 128 x 128 pixels."""
    picture = _pillow()
    check_fits(folder, len(rows) * 3 * USED**2, f"{len(rows)} images of it", "; take fewer (n)")
    images = np.empty((len(rows), 3, USED, USED), np.uint8)
    read = partial(_read_png, picture, folder, halving(SIDE))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding lets go of the interpreter
        for place, image in enumerate(pool.map(read, rows)):
            images[place] = image
    return images


def halving(side: int) -> Float:
    """The matrix (side / 2, side) that halves a row of pixels by anti-aliased bicubic interpolation.

    Keys' kernel with a = -1/2, stretched twofold so that it averages over what it leaves out, and normalised at the
    borders; as in jax.image.resize, and in Pillow but for rounding.
    """
    middles = 2 * np.arange(side // 2)[:, None] + 1.0
    x = np.abs(np.arange(side) + 0.5 - middles) / 2
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights: Float = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    weights /= weights.sum(1, keepdims=True)
    return weights


def _read_png(pillow: Callable[..., Any], folder: Path, half: Float, row: int) -> Array:
    path = folder / f"{row:06d}.png"
    try:
        with pillow(path, formats=["PNG"]) as file:
            if file.size != (SIDE, SIDE):
                raise InputError(f"{path} is {file.size[0]} x {file.size[1]} pixels, but {SIDE} x {SIDE} were expected")
            pixels = np.asarray(file.convert("RGB"), np.float64)  # (height, width, channels)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: every row of the labels must have an image of its number") from error
    except InputError:
        raise
    except Exception as error:  # on damaged bytes Pillow raises anything from SyntaxError to struct.error
        raise InputError(f"{path} is damaged or no png file: {first_sentence(error)}") from error
    small = half @ pixels.transpose(2, 0, 1) @ half.T
    return np.clip(small.round(), 0, 255).astype(np.uint8)


def _pillow() -> Callable[..., Any]:
    try:
        from PIL import Image
    except ImportError as error:  # it comes with matplotlib
        raise MissingDependencyError("reading png files needs Pillow: pip install pillow") from error
    opener: Callable[..., Any] = Image.open
    return opener
