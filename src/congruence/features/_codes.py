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
    others = partner[matched]
    active = np.zeros(a.m)
    sums = np.zeros((5, len(matched)))
    kept: list[tuple[Array, Array]] = []
    n, step = len(rows_a), max(1, BLOCK_VALUES // max(a.m, b.m))
    shift: tuple[Float, Float] | None = None
    for start in range(0, n, step):
        codes = a.encoder(rows_a[start : start + step])
        active += (codes != 0).sum(0)
        x = codes[:, matched].astype(np.float64)
        y = b.encoder(rows_b[start : start + step])[:, others].astype(np.float64)
        shift = shift or (x.mean(0), y.mean(0))  # near the means, so that sums of squares keep their digits
        x, y = x - shift[0], y - shift[1]
        sums += [x.sum(0), y.sum(0), (x * x).sum(0), (y * y).sum(0), (x * y).sum(0)]
        kept = [_merge_top(kept, codes[:, list(shown)], start)]
    return CodeStatistics(active / n, _spread(matched, _correlations(sums, n), a.m), _by_feature(kept, shown))


def _correlations(sums: Float, n: int) -> Float:
    """Correlations from the sums of x, y, x^2, y^2 and xy."""
    x, y, xx, yy, xy = sums
    spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Float = np.where(spread > 0, (xy - x * y / n) / spread, np.nan)
    return np.clip(correlation, -1, 1)


def _spread(matched: Array, values: Float, m: int) -> Array:
    full = np.full(m, np.nan)
    full[matched] = values
    return full


def _merge_top(kept: list[tuple[Array, Array]], codes: Array, start: int) -> tuple[Array, Array]:
    """The largest codes so far and their rows, shapes (top, shown)."""
    rows = np.arange(start, start + len(codes))[:, None] + np.zeros((1, codes.shape[1]), np.intp)
    if kept:
        codes, rows = np.vstack([kept[0][0], codes]), np.vstack([kept[0][1], rows])
    order = np.argsort(-codes, axis=0, kind="stable")[:TOP]
    return np.take_along_axis(codes, order, 0), np.take_along_axis(rows, order, 0)


def _by_feature(kept: list[tuple[Array, Array]], shown: Sequence[int]) -> dict[int, Array]:
    if not kept:
        return {}
    codes, rows = kept[0]
    return {feature: rows[codes[:, at] > 0, at] for at, feature in enumerate(shown)}
