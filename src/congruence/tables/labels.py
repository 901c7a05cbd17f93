"""Row labels (ids, clusters): integers or text, comparable whatever file they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from congruence.arrays import Array

EXACT = 2**53  # whole floats below this are exact integers


def as_labels(labels: Any) -> Array:
    """Return a column of labels as int64 or as unicode text, shape (n,).

    Whole floats become integers, because a missing value elsewhere in a file turns its integers into floats.
    Everything that is not a number becomes text.
    """
    column: Array = np.asarray(labels)
    kind = column.dtype.kind
    if kind == "f" and bool(np.all((column == np.floor(column)) & (np.abs(column) < EXACT))):
        return column.astype(np.int64)
    if kind == "i" or (kind == "u" and (not column.size or column.max() <= np.iinfo(np.int64).max)):
        return column.astype(np.int64, copy=False)
    if kind == "U":
        return column
    if kind in "ufbcMm":
        return column.astype(str)
    items = column.tolist()
    if items and all(type(item) is int and abs(item) < 2**63 for item in items):
        return np.array(items, dtype=np.int64)
    return np.array([_text(item) for item in items], dtype=str)


def missing_labels(column: Any) -> npt.NDArray[np.bool_]:
    """Tell for each label whether it is missing: null, NaN, not a time, or empty text; shape (n,)."""
    column = np.asarray(column)
    kind = column.dtype.kind
    if kind in "fcMm":
        return np.asarray(np.isnan(column) if kind in "fc" else np.isnat(column))
    if kind in "biu":
        return np.zeros(len(column), dtype=bool)
    if kind == "U":
        return np.asarray(column == "")
    # A NaN is the only thing that differs from itself.
    return np.array([item is None or item in ("", b"") or item != item for item in column.tolist()], dtype=bool)


def same_label(column: Any, value: str) -> npt.NDArray[np.bool_]:
    """Tell for each label whether it is `value`: the same text or, of a column of numbers, the same number; (n,)."""
    column = np.asarray(column)
    found = np.asarray(as_labels(column).astype(str) == value)
    if column.dtype.kind not in "iuf" or found.any():
        return found
    try:
        return np.asarray(column == float(value))
    except ValueError:
        return found


def in_one_kind(columns: Sequence[Array]) -> list[Array]:
    """Return columns of labels that can be compared: all integers if they all are, else all text."""
    if len({column.dtype.kind for column in columns}) <= 1:
        return list(columns)
    return [column.astype(str) for column in columns]


def as_column(entries: Any) -> Array:
    """Return a metadata column as numbers, bools, times, or Python text in an object array.

    Text is not kept as fixed-width unicode, where one long document would set the width of every row.
    """
    column: Array = np.asarray(entries)
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8")
    return column if column.dtype.kind in "biufMmO" else column.astype(object)


def _text(item: object) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
