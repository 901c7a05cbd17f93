"""The rows that moved: how much of the disagreement few rows carry, and which rows these are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.errors import InputError
from congruence.report.curves import moved_curve
from congruence.report.words import AFTER, count, elided, number, percent

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison
    from congruence.align.moved import MovedRows

LISTED_ROWS, LISTED_RUNS, LISTED_COLUMNS = 20, 8, 5
LETTERS, HINT = 32, 300  # of a cell, and of what it says when pointed at
TOP = (0.01, 0.05)  # the shares of rows whose part of the disagreement is told
STILL = 1e-5  # a disagreement below this share of the diameter is no movement
HOW = {0.5: "A few rows make most of the disagreement", 0.2: "Some rows disagree much more than others"}  # the top 5 %


@dataclass(frozen=True)
class Cell:
    """What a table shows, what it is sorted by (None: the text), and the longer text it stands for."""

    text: str
    value: float | str | None = None
    hint: str = ""


@dataclass(frozen=True)
class Moved:
    """The section on rows that moved as the page shows it; without figure and table where no row did."""

    sentence: str
    note: str
    figure: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    head: tuple[tuple[str, bool], ...] = ()  # the name of a column, and whether it holds numbers
    rows: tuple[tuple[Cell, ...], ...] = ()


def moved_section(comparison: Comparison) -> Moved | None:
    """Tell which rows of a comparison moved; None where no group was compared that could say."""
    try:
        moved = comparison.moved()
    except InputError:
        return None
    falling = -np.sort(-moved.disagreement[np.isfinite(moved.disagreement)])
    if not len(falling):
        return None
    note = _note(moved, len(comparison.pairs))
    if falling[0] < STILL:
        return Moved(f"No row moved: {AFTER[moved.group]}, none is off by even 0.001 % of the diameter.", note[0])
    figure = moved_curve(falling, moved.null, [run.name for run in comparison.runs])
    facts = tuple(_facts(falling, moved.null))
    return Moved(_sentence(falling, moved.null), " ".join(note), figure, facts, *_table(moved))


def _note(moved: MovedRows, pairs: int) -> list[str]:
    over = f", averaged over {pairs} pairs" if pairs > 1 else ""
    parts = [
        f"The disagreement about a row is its held-out error {AFTER[moved.group]}{over}, in % of the target’s diameter."
    ]
    if moved.ids is None:
        parts.append("Rows are counted from 0.")
    if len(moved.metadata) > LISTED_COLUMNS:
        parts.append(f"{LISTED_COLUMNS} of {len(moved.metadata)} metadata columns are shown.")
    return parts


def _carried(falling: Any) -> dict[float, float]:
    """The part of the squared disagreement that the top 1 % and 5 % of rows carry, where these are whole rows."""
    running = np.cumsum(np.square(falling))
    counts = {share: round(share * len(falling)) for share in TOP}
    return {share: float(running[k - 1] / running[-1]) for share, k in counts.items() if k}


def _sentence(falling: Any, null: float) -> str:
    parts = []
    carried = _carried(falling)
    if TOP[-1] in carried:
        how = next((say for part, say in HOW.items() if carried[TOP[-1]] >= part), "The disagreement is spread evenly")
        told = ", ".join(
            f"the top {100 * top:.0f} % of rows carry {percent(part)} of it" for top, part in carried.items()
        )
        parts.append(f"{how}: {told} (in squared distance).")
    if math.isfinite(null):
        beyond = int((falling > null).sum())
        who = f"{beyond} of {count(len(falling), 'row')} {'is' if beyond == 1 else 'are'}" if beyond else "No row is"
        parts.append(f"{who} farther off than unrelated runs would be on average (the null, {percent(null)}).")
    return " ".join(parts)


def _facts(falling: Any, null: float) -> Iterator[tuple[str, str]]:
    yield "the row that moved most", percent(float(falling[0]))
    for top in TOP:
        if round(top * len(falling)):
            yield f"{100 * top:.0f} % of rows moved more than", percent(float(np.quantile(falling, 1 - top)))
    yield "the median row", percent(float(np.median(falling)))
    yield "null: unrelated runs", percent(null)


def _table(moved: MovedRows) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[Cell, ...], ...]]:
    """The rows that moved most, with their names, numbers and metadata: the head, then row by row."""
    order = moved.order[:LISTED_ROWS]
    median = float(np.nanmedian(moved.disagreement))
    columns: list[tuple[str, bool, list[Cell]]] = [
        ("row", True, [Cell(str(row)) for row in order])
        if moved.ids is None
        else ("id", False, [as_cell(value) for value in moved.ids[order]]),
        ("disagreement", True, _shares(moved.disagreement[order])),
        ("× median", True, [_times(value, median) for value in moved.disagreement[order]]),
    ]
    for name, values in list(moved.metadata.items())[:LISTED_COLUMNS]:
        columns.append((elided([name], 24)[0], values.dtype.kind in "iuf", [as_cell(value) for value in values[order]]))
    if 2 < len(moved.by_run) <= LISTED_RUNS:  # with two runs, both have the number of the pair
        names = elided(list(moved.by_run), 18)
        columns += [
            (name, True, _shares(values[order])) for name, values in zip(names, moved.by_run.values(), strict=True)
        ]
    head = tuple((name, numeric) for name, numeric, _ in columns)
    return head, tuple(zip(*(cells for _, _, cells in columns), strict=True))


def _shares(values: Any) -> list[Cell]:
    return [Cell(percent(float(value)), float(value) if math.isfinite(value) else "") for value in values]


def _times(value: float, median: float) -> Cell:
    times = float(value / median) if median > 0 else math.inf
    return Cell(number(times), times if math.isfinite(times) else "")


def as_cell(value: Any) -> Cell:
    """Any id or metadata as text that fits into a table; what is missing sorts last."""
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or (isinstance(plain, float) and math.isnan(plain)):
        return Cell("", "")
    if isinstance(plain, float):
        whole = plain.is_integer() and abs(plain) < 1e15
        return Cell(f"{plain:.0f}".replace("-", "−") if whole else number(plain, 4), plain)
    text = str(plain)
    short = elided([text], LETTERS)[0]
    return Cell(short) if short == text else Cell(short, hint=elided([text], HINT)[0])
