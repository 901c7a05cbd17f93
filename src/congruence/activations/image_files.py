"""Image files of any size as arrays of one size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import CongruenceError, InputError, MissingDependencyError
from congruence.tables.access import first_sentence

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # Pillow would try dozens, some of them seldom looked after


def read_images(paths: Sequence[Path], size: int | None = None) -> Array:
    """Read images as uint8 (n, 3, height, width); with `size`, as squares of that side cut from the middle."""
    picture = _pillow()
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding lets go of the interpreter
        images = list(pool.map(partial(_read, picture, size), paths))
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            here, there = (f"{i.shape[2]} x {i.shape[1]}" for i in (image, images[0]))
            raise InputError(f"{path} is {here} pixels, but {paths[0]} is {there}; give a size to make them equal")
    return np.stack(images)


def _read(picture: Any, size: int | None, path: Path) -> Array:
    try:
        with picture.open(path, formats=FORMATS) as file:
            image = _rgb(picture, file)
            if size is not None:
                image = _square(image, size, picture.Resampling.BICUBIC)
            pixels: Array = np.asarray(image).transpose(2, 0, 1)
            return pixels
    except CongruenceError:
        raise
    except Exception as error:  # on damaged bytes Pillow raises anything from SyntaxError to struct.error
        raise InputError(f"{path} is damaged or no image: {first_sentence(error)}") from error


def _rgb(picture: Any, file: Any) -> Any:
    """Return an image with 8 bits to a colour; Pillow would cut what is above 255 instead of scaling it."""
    if file.mode.startswith("I;16") or (file.mode == "I" and file.format == "PNG"):  # which has 16 bits at most
        return picture.fromarray(np.round(np.asarray(file) / 257).astype(np.uint8)).convert("RGB")
    if file.mode in ("I", "F"):
        raise InputError(f"{file.filename} has grey values of 32 bits, whose range is not known; save it with 8 or 16")
    return file.convert("RGB")


def _square(image: Any, size: int, filter: Any) -> Any:
    """Scale the shorter side to `size` and keep the middle of the longer one."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), filter, box=(left, top, left + side, top + side))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:  # it comes with matplotlib
        raise MissingDependencyError("reading images needs Pillow: pip install pillow") from error
    return Image
