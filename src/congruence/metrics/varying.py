"""Factors that vary, standardised codes, training rows and held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.metrics.factors import Factors
from congruence.metrics.notes import Note, merge_notes

NO_FACTORS = "No factor varies, or every row is a class of its own."


def varying(s: Factors) -> tuple[Factors, tuple[Note, ...]]:
    """The factors about which something can be learned, and notes that name the others.

    Left out are factors of one value, and classes of which no two rows share any, such as the names of the rows.
    """
    notes = merge_notes((Note(factor.left_out, [factor.name]) for factor in s if factor.left_out), {})
    return Factors(tuple(factor for factor in s if not factor.left_out)), notes


def constant_codes(z: Float) -> tuple[Array, tuple[Note, ...]]:
    """Which codes are constant, shape (L,), and a note that counts them."""
    constant = (z == z[0]).all(0)
    count = int(constant.sum())
    if not count:
        return constant, ()
    return constant, (Note(f"{count} of {z.shape[1]} codes {'is' if count == 1 else 'are'} constant"),)


def standardised(z: Float, rows: Array | slice = slice(None)) -> Float:
    """The columns less their mean, over their standard deviation, both of some rows; a constant column becomes 0."""
    centred = z - z[rows].mean(0)
    deviation = centred[rows].std(0)
    live = deviation > 4 * np.finfo(np.float64).eps * np.abs(z).max(0)  # less than this is the rounding of a constant
    scaled: Float = np.where(live, centred / np.where(live, deviation, 1.0), 0.0)
    return scaled


@contextmanager
def many_classes() -> Iterator[None]:
    """Without scikit-learn's warning that so many classes may be numbers: which they are was decided before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes")
        yield


def split_rows(n: int, train: Any = None, test: Any = 0.3, seed: int = 0) -> tuple[Array, Array]:
    """Numbers of the training rows and of the held-out rows.

    Parameters
    ----------
    n : int
        How many rows there are.
    train, test : row numbers or masks of shape (n,), or a share
        Both given: those rows. Only test rows given: all others are training rows. `test` a share between 0 and 1:
        that part of the rows, rounded up, drawn by `seed` as scikit-learn's `train_test_split` draws them.
    """
    if isinstance(test, int | float) and not isinstance(test, bool):
        if train is not None:
            raise InputError("train names rows, so test must name rows too, not a share")
        if not 0 < test < 1:
            raise InputError(f"test must be row numbers or a share between 0 and 1, not {test!r}")
        if n < 2:
            raise InputError(f"holding rows out takes at least 2 rows, but there is only {n}")
        order = np.random.RandomState(seed).permutation(n)
        count = min(int(np.ceil(test * n)), n - 1)
        return order[count:], order[:count]
    held = _rows(test, n, "test")
    learned = np.setdiff1d(np.arange(n), held) if train is None else _rows(train, n, "train")
    if not learned.size:
        raise InputError("test names all rows, so there is none left to learn from")
    if np.intersect1d(learned, held).size:
        raise InputError("some rows are named in both train and test; a row cannot be both")
    return learned, held


def _rows(rows: Any, n: int, name: str) -> Array:
    index = to_numpy(rows)
    if index.dtype.kind == "b" and index.shape == (n,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or not index.size or index.dtype.kind not in "iu":
        raise InputError(f"{name} must be row numbers, or a mask of {n} rows")
    if index.min() < 0 or index.max() >= n:
        raise InputError(f"{name} must name rows from 0 to {n - 1}, but names {index.min()} to {index.max()}")
    return index
