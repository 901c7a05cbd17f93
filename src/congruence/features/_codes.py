"""Codes of activations: how often features are active, how codes of matched features correlate, and their top rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float
from congruence.features.dictionary import Dictionary

BLOCK_VALUES = 2**23  # codes that are computed at a time
TOP = 5  # rows that are kept for each feature that is shown


@dataclass(frozen=True, eq=False)
class CodeStatistics:
    """Statistics of the codes of two dictionaries on the same rows."""

    frequency: Array  # (m_a,) share of rows on which a feature of a is active
    correlation: Array  # (m_a,) of the codes of matched features; NaN without a partner or where one is constant
    top: dict[int, Array]  # rows with the largest codes, the largest first, of some features of a


def summarise_codes(
    a: Dictionary, b: Dictionary, rows_a: Array, rows_b: Array, partner: Array, shown: Sequence[int]
) -> CodeStatistics:
    """Encode paired rows (n, d_a) and (n, d_b) block by block and compare the codes of matched features.

    `partner` (m_a,) is the matched feature of b, -1 for none; `shown` are the features whose top rows are kept.
    """
    assert a.encoder is not None
    assert b.encoder is not None
    matched = np.flatnonzero(partner >= 0)
    active, sums = np.zeros(a.m), np.zeros((5, len(matched)))
    largest: Array = np.empty((0, len(shown)), np.float32)
    places: Array = np.empty((0, len(shown)), np.intp)
    n, step = len(rows_a), max(1, BLOCK_VALUES // max(a.m, b.m))
    shift: tuple[Float, Float] | None = None
    for start in range(0, n, step):
        codes = a.encoder(rows_a[start : start + step])
        active += (codes != 0).sum(0)
        x = codes[:, matched].astype(np.float64)
        y = b.encoder(rows_b[start : start + step])[:, partner[matched]].astype(np.float64)
        shift = shift or (x.mean(0), y.mean(0))  # near the means, so that sums of squares keep their digits
        x, y = x - shift[0], y - shift[1]
        sums += [x.sum(0), y.sum(0), (x * x).sum(0), (y * y).sum(0), (x * y).sum(0)]
        here = np.broadcast_to(np.arange(start, start + len(codes))[:, None], (len(codes), len(shown)))
        largest, places = np.vstack([largest, codes[:, list(shown)]]), np.vstack([places, here])
        order = np.argsort(-largest, axis=0, kind="stable")[:TOP]
        largest, places = (np.take_along_axis(some, order, 0) for some in (largest, places))
    x, y, xx, yy, xy = sums
    spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
    correlation = np.full(a.m, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation[matched] = np.clip(np.where(spread > 0, (xy - x * y / n) / spread, np.nan), -1, 1)
    top = {feature: places[largest[:, at] > 0, at] for at, feature in enumerate(shown)}
    return CodeStatistics(active / n, correlation, top)
