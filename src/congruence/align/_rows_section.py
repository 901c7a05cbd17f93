"""The section of a comparison on the rows that differ most between runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Block, Cell, Column, Figure, Grid, Heading, Section, Table, Text, label_cell, share
from congruence.errors import InputError
from congruence.formatting import count, elided, number, percent
from congruence.maps._names import AFTER

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, MovedRows

LISTED_ROWS, LISTED_RUNS, LISTED_COLUMNS = 20, 8, 5
TOP = (0.01, 0.05)  # shares of rows whose part of the total is stated
ROUNDING = 1e-5  # an error below this share of the diameter is no difference
CONCENTRATION = {  # by the part of the total that the top 5 % of rows hold
    0.5: "A few rows cause most of the disagreement",
    0.2: "Some rows differ much more than others",
    0.0: "The disagreement is spread evenly",
}


def rows_section(comparison: Comparison) -> Section | None:
    """The rows that differ most; None where no compared group has errors of single rows."""
    try:
        moved = comparison.moved()
    except InputError:
        return None
    falling = -np.sort(-moved.disagreement[np.isfinite(moved.disagreement)])
    if not len(falling):
        return None
    over = f", averaged over {len(comparison.pairs)} pairs" if len(comparison.pairs) > 1 else ""
    unit = "chance, the mean error of unrelated runs" if moved.judged else "the target’s diameter"
    note = f"The disagreement of a row is its held-out error {AFTER[moved.group]}{over}, in % of {unit}."
    if np.nanmax(moved.of_diameter) < ROUNDING:
        equal = f"No row differs: {AFTER[moved.group]}, every error is below 0.001 % of the diameter."
        return Section("Which rows differ most?", (Text(equal), Text(note, muted=True)), id="moved")
    if moved.ids is None:
        note += " Rows are counted from 0."
    if len(moved.metadata) > LISTED_COLUMNS:
        note += f" {LISTED_COLUMNS} of {len(moved.metadata)} metadata columns are shown."
    curve = Figure("moved_curve", (falling, moved.judged, [run.name for run in comparison.runs]))
    columns = (Column("", "text"), Column(""))
    numbers = Table("Disagreement of rows", columns, _quantiles(falling), sortable=False, header=False)
    table = _table(moved)
    blocks: tuple[Block, ...] = (
        Text(_concentration(falling, moved.judged)),
        Text(note, muted=True),
        Grid((curve, numbers), "pictures"),
        Heading(f"The {len(table.rows)} rows that differ most", id="moved-most"),
        table,
    )
    return Section("Which rows differ most?", blocks, id="moved")


def row_texts(comparison: Comparison, rows: Any) -> list[str]:
    """Id or number, and metadata, of some rows: what a page shows at the pointer."""
    named = list(comparison.metadata.items())[:LISTED_COLUMNS]
    first = [f"row {row}" if comparison.ids is None else label_cell(comparison.ids[row]).text for row in rows]
    more = [[f"{elided([name], 24)[0]}: {label_cell(values[row]).text}" for name, values in named] for row in rows]
    return ["\n".join([head, *lines]) for head, lines in zip(first, more, strict=True)]


def _concentration(falling: Any, judged: bool) -> str:
    running = np.cumsum(np.square(falling))
    counts = {top: round(top * len(falling)) for top in TOP}
    parts_held = {top: float(running[k - 1] / running[-1]) for top, k in counts.items() if k}
    parts = []
    if TOP[-1] in parts_held:
        how = next(text for part, text in CONCENTRATION.items() if parts_held[TOP[-1]] >= part)
        each = ", ".join(
            f"the top {100 * top:.0f} % of rows hold {percent(part)} of it" for top, part in parts_held.items()
        )
        parts.append(f"{how}: {each} (in squared distance).")
    if judged:
        beyond = int((falling > 1).sum())
        who = f"{beyond} of {count(len(falling), 'row')} {'is' if beyond == 1 else 'are'}" if beyond else "No row is"
        parts.append(f"{who} above the mean error of unrelated runs (100 %).")
    return " ".join(parts)


def _quantiles(falling: Any) -> list[tuple[str, Cell]]:
    quantiles = [top for top in TOP if round(top * len(falling))]
    return [
        ("largest", share(float(falling[0]))),
        *((f"{100 * q:.0f} % of rows are above", share(float(np.quantile(falling, 1 - q)))) for q in quantiles),
        ("median", share(float(np.median(falling)))),
    ]


def _table(moved: MovedRows) -> Table:
    """The rows that differ most, with their ids, numbers and metadata."""
    order = moved.order[:LISTED_ROWS]
    median = float(np.nanmedian(moved.disagreement))
    times = [number(float(x / median) if median > 0 else math.inf) for x in moved.disagreement[order]]
    columns: list[tuple[Column, list[Any]]] = [
        (Column("row"), [int(row) for row in order])
        if moved.ids is None
        else (Column("id", "text"), [label_cell(value) for value in moved.ids[order]]),
        (Column("disagreement"), [share(float(x)) for x in moved.disagreement[order]]),
        (Column("of diameter"), [share(float(x)) for x in moved.of_diameter[order]]),
        (Column("× median"), [Cell(text, float(x)) for text, x in zip(times, moved.disagreement[order], strict=True)]),
    ]
    for name, values in list(moved.metadata.items())[:LISTED_COLUMNS]:
        kind: Any = "number" if values.dtype.kind in "iuf" else "text"
        columns.append((Column(elided([name], 24)[0], kind), [label_cell(value) for value in values[order]]))
    if 2 < len(moved.by_run) <= LISTED_RUNS:  # with two runs, both have the number of the pair
        for name, values in zip(elided(list(moved.by_run), 18), moved.by_run.values(), strict=True):
            columns.append((Column(name), [share(float(x)) for x in values[order]]))
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    return Table("The rows that differ most", [column for column, _ in columns], rows)
