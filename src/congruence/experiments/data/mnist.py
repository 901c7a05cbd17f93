"""MNIST: 70,000 handwritten digits of 28 x 28 pixels (LeCun, Cortes and Burges), read from its own files."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.experiments.data.paths import VARIABLE, find_files
from congruence.files import system_reason

NAMES = {"train": "train", "test": "t10k"}
SIDE = 28
MOST = 1_000_000  # images that a file may announce
HOW = (
    "Get train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    f"t10k-labels-idx1-ubyte.gz and put them into the folder mnist of the one that {VARIABLE} names; "
    "scikit-learn's digits (data 'digits') need no download"
)


def mnist(part: str = "train") -> tuple[Array, Array]:
    """Return the images of a part as rows of 784 grey values from 0 to 1 (float32), and the digit each one shows.

    Parameters
    ----------
    part : {"train", "test"}
        60,000 or 10,000 images.
    """
    if part not in NAMES:
        raise InputError(f"part must be 'train' or 'test', not {part!r}")
    names = [f"{NAMES[part]}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    images_path, labels_path = find_files("mnist", [(f"{name}.gz", name) for name in names], HOW)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{images_path} holds images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28")
    if len(images) != len(labels):
        raise InputError(f"{images_path} holds {len(images)} images, but {labels_path} {len(labels)} labels")
    if labels.size and labels.max() > 9:
        raise InputError(f"{labels_path} holds the label {labels.max()}; digits go from 0 to 9")
    return (images.reshape(len(images), -1) / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def shrink_images(images: Array, side: int) -> Array:
    """Average square blocks of pixels, so that images of 28 x 28 become side x side: (n, 784) -> (n, side^2)."""
    if side < 1 or SIDE % side:
        raise InputError(f"side must divide {SIDE}, but is {side}")
    step = SIDE // side
    blocks = images.reshape(len(images), side, step, side, step)
    return np.ascontiguousarray(blocks.mean((2, 4), dtype=np.float64).reshape(len(images), -1), dtype=np.float32)


def read_idx(path: Path, dimensions: int) -> Array:
    """Read an idx file of bytes, gzipped or not; one that is cut short, or another kind of file, is refused."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _read(cast(BinaryIO, file), path, dimensions)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged or was cut short: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {system_reason(error) or error}") from error


def _read(file: BinaryIO, path: Path, dimensions: int) -> Array:
    head = file.read(4 + 4 * dimensions)
    if head[:4] != bytes([0, 0, 8, dimensions]) or len(head) < 4 + 4 * dimensions:
        raise InputError(
            f"{path} is no idx file of bytes with {dimensions} dimensions; it begins with {head[:4].hex()}"
        )
    shape = tuple(int(size) for size in np.frombuffer(head, ">u4", offset=4))
    if shape[0] > MOST or any(size > SIDE for size in shape[1:]):
        raise InputError(f"{path} announces an array of {shape}, which is no MNIST")
    size = math.prod(shape)
    content = file.read(size + 1)  # one more, to see that nothing follows; the checksum of gzip is looked at there
    if len(content) != size:
        rest = "more" if len(content) > size else f"only {len(content)}"
        raise InputError(f"{path} is damaged or was cut short: {size} bytes were announced, and {rest} followed")
    return np.frombuffer(content, np.uint8).reshape(shape)
