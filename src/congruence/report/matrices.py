"""Heat maps of factors against codes: a table of numbers for the first codes, a strip of colours for all."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import UNDEFINED, elided

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation

TABLE_CODES = 16  # with numbers; more are shown as colours alone
STRIP_CELLS = 3000  # of one strip, about 100 bytes each
LETTERS = {"factor": 20, "code": 14}  # of a name

KINDS = {  # what a matrix is called, and what a cell of it says
    "nmi": ("Information", "Share of the factor that the code tells, from 0 to 1"),
    "importance": ("Importance", "How much trees used the code for the factor; rows sum to 1"),
    "correlation": ("Correlation", "Pearson correlation of code and factor, from −1 to 1"),
}


@dataclass(frozen=True)
class HeatCell:
    """One number, how strongly it is coloured, and what it says when pointed at."""

    text: str
    tint: float  # 0 for none
    title: str


@dataclass(frozen=True)
class HeatTable:
    """A matrix as the page shows it."""

    name: str
    meaning: str
    codes: tuple[tuple[str, str], ...]  # short and whole name of each column
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]  # name of a factor, and its cells
    strip: str  # all codes as colours, where there are more than the table has
    shown: int  # codes in the strip


def heat_tables(result: Evaluation) -> list[HeatTable]:
    """All matrices of an evaluation, codes in its order, so that matched codes lie on the diagonal."""
    return [
        _table(name, np.asarray(matrix, dtype=float)[:, list(result.order)], result)
        for name, matrix in sorted(result.matrices.items(), key=lambda item: _place(item[0]))
        if np.isfinite(matrix).any()
    ]


def _place(name: str) -> int:
    return list(KINDS).index(name) if name in KINDS else len(KINDS)


def _table(name: str, matrix: Any, result: Evaluation) -> HeatTable:
    called, meaning = KINDS.get(name, (name, ""))
    codes = [result.codes[j] for j in result.order]
    first = codes[:TABLE_CODES]
    rows = tuple(
        (factor, tuple(_cell(value, factor, code) for value, code in zip(row, first, strict=False)))
        for factor, row in zip(result.factors, matrix, strict=True)
    )
    many = len(codes) > TABLE_CODES
    shown = min(len(codes), max(TABLE_CODES, STRIP_CELLS // max(len(matrix), 1))) if many else 0
    strip = _strip(matrix[:, :shown], result.factors, codes[:shown], called) if many else ""
    return HeatTable(
        called, meaning, tuple(zip(elided(first, LETTERS["code"]), first, strict=True)), rows, strip, shown
    )


def _cell(value: float, factor: str, code: str) -> HeatCell:
    return HeatCell(_short(value), _tint(value), f"{factor}, {code}: {_short(value, 3)}")


def _short(value: float, digits: int = 2) -> str:
    if math.isnan(value):
        return UNDEFINED
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def _tint(value: float) -> float:
    """At most as strong as in the heat map of a comparison, so that ink stays readable on it."""
    return 0.0 if math.isnan(value) else round(0.9 * min(abs(float(value)), 1.0), 2)


def _strip(matrix: Any, factors: Sequence[str], codes: Sequence[str], what: str) -> str:
    """Draw all cells as colours; what each is appears when it is pointed at."""
    left, above, side, tall = 150.0, 22.0, max(8.0, 780.0 / len(codes)), 20.0
    width, height = left + side * len(codes) + 30, above + tall * len(factors) + 6
    parts = [
        f'<text x="{left + side * (j + 0.5):.1f}" y="15" text-anchor="middle">{html.escape(name)}</text>'
        for j, name in _marked(codes, side)
    ]
    for i, (factor, row) in enumerate(zip(factors, matrix, strict=True)):
        middle = above + tall * (i + 0.5)
        label = html.escape(elided([factor], LETTERS["factor"])[0])
        parts.append(f'<text x="{left - 8:g}" y="{middle + 4.5:g}" text-anchor="end">{label}</text>')
        parts += [
            _rect(left + side * j, middle - tall / 2, side, tall, row[j], factor, codes[j]) for j in range(len(row))
        ]
    said = f"{what} of {len(codes)} codes about {len(factors)} factors, as colours"
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
        f' aria-label="{html.escape(said)}" style="max-width: {width:.0f}px; min-width: {0.85 * width:.0f}px">'
        f"{''.join(parts)}</svg>"
    )


def _marked(codes: Sequence[str], side: float) -> list[tuple[int, str]]:
    """The codes whose names fit above the strip."""
    short = elided(codes, LETTERS["code"])
    every = max(1, math.ceil((8 * max(len(name) for name in short) + 12) / side))
    return [(j, short[j]) for j in range(0, len(codes), every)]


def _rect(x: float, y: float, width: float, height: float, value: float, factor: str, code: str) -> str:
    title = html.escape(f"{factor}, {code}: {_short(value, 3)}")
    tint = _tint(value)
    return (
        f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill-opacity="{tint:g}">'
        f"<title>{title}</title></rect>"
    )
