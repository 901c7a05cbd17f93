"""Handwritten digits: scikit-learn's, which need no download, and MNIST (LeCun, Cortes and Burges), read from files."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.experiments.data._readers import VARIABLE, find_files
from congruence.guards import reading

NAMES = {"train": "train", "test": "t10k"}
SIDE = 28
MOST = 1_000_000  # images that the header of a file may announce
HOW = (
    "Get train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    f"t10k-labels-idx1-ubyte.gz and put them into the folder mnist of the one that {VARIABLE} names; "
    "scikit-learn's digits (data 'digits') need no download"
)


def digits() -> tuple[Array, Array]:
    """Load 1797 images as rows of 64 grey values in [0, 1] (float32), and the digit of each."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.data / 16).astype(np.float32), bunch.target


def mnist(part: str = "train") -> tuple[Array, Array]:
    """Read the images of a part as rows of 784 grey values in [0, 1] (float32), and the digit of each.

    Parameters
    ----------
    part : {"train", "test"}
        60,000 or 10,000 images.
    """
    check_choice("part", part, NAMES)
    names = [f"{NAMES[part]}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    images_path, labels_path = find_files("mnist", [(f"{name}.gz", name) for name in names], HOW)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{images_path} must hold images of 28 x 28; got {images.shape[1]} x {images.shape[2]}")
    if len(images) != len(labels):
        raise InputError(f"{images_path} holds {len(images)} images, but {labels_path} holds {len(labels)} labels")
    if labels.size and labels.max() > 9:
        raise InputError(f"labels in {labels_path} must be from 0 to 9; got {labels.max()}")
    return (images.reshape(len(images), -1) / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def split_digits(name: str, seed: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Images and labels to train on, and others: the two parts of "mnist", or random halves of "digits"."""
    if name == "mnist":
        return mnist("train"), mnist("test")
    x, labels = digits()
    order = np.random.default_rng([seed, 3]).permutation(len(x))
    train, test = order[: len(x) // 2 + 1], order[len(x) // 2 + 1 :]
    return (x[train], labels[train]), (x[test], labels[test])


def shrink_images(images: Array, side: int) -> Array:
    """Average square blocks of pixels, so that images of 28 x 28 become side x side: (n, 784) -> (n, side^2)."""
    if side < 1 or SIDE % side:
        raise InputError(f"side must divide {SIDE}; got {side}")
    step = SIDE // side
    blocks = images.reshape(len(images), side, step, side, step)
    return np.ascontiguousarray(blocks.mean((2, 4), dtype=np.float64).reshape(len(images), -1), dtype=np.float32)


def read_idx(path: Path, dimensions: int) -> Array:
    """Read an idx file of bytes, gzipped or not; truncated files and other kinds of files are refused."""
    with reading(path, "digits"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return _read(cast(BinaryIO, file), path, dimensions)


def _read(file: BinaryIO, path: Path, dimensions: int) -> Array:
    head = file.read(4 + 4 * dimensions)
    if head[:4] != bytes([0, 0, 8, dimensions]) or len(head) < 4 + 4 * dimensions:
        raise InputError(f"{path} is not an idx file of bytes with {dimensions} dimensions; it starts {head[:4].hex()}")
    shape = tuple(int(size) for size in np.frombuffer(head, ">u4", offset=4))
    if shape[0] > MOST or any(size > SIDE for size in shape[1:]):
        raise InputError(f"{path} announces an array of {shape}, so it is not MNIST")
    size = math.prod(shape)
    content = file.read(size + 1)  # one byte more: it detects trailing bytes, and makes gzip verify its checksum
    if len(content) != size:
        rest = "more" if len(content) > size else f"only {len(content)}"
        raise InputError(f"{path} is damaged or truncated: its header announces {size} bytes, but {rest} follow")
    return np.frombuffer(content, np.uint8).reshape(shape)
