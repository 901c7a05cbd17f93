"""Sections of a comparison: the details of one pair, and the rows that differ most between runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.align.similarities import MEASURES, SimilarityScore
from congruence.document import (
    Block,
    Cell,
    Column,
    Details,
    Figure,
    Grid,
    Heading,
    Table,
    Text,
    as_cell,
    badge,
    share,
    shares,
)
from congruence.document import facts as fact_table
from congruence.errors import InputError
from congruence.formatting import UNDEFINED, count, elided, fixed, number, percent
from congruence.maps._names import AFTER

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, MovedRows, Pair
    from congruence.maps.nearness import Nearness
    from congruence.result import Finding

LISTED_ROWS, LISTED_RUNS, LISTED_COLUMNS = 20, 8, 5
TOP = (0.01, 0.05)  # shares of rows whose part of the total is stated
ROUNDING = 1e-5  # an error below this share of the diameter is no difference
CONCENTRATION = {  # by the part of the total that the top 5 % of rows hold
    0.5: "A few rows cause most of the disagreement",
    0.2: "Some rows differ much more than others",
    0.0: "The disagreement is spread evenly",
}
ALWAYS_SHOWN = ("cka", "neighbour_overlap", "strong_mcc")  # similarities that every pair has
CHANCE_DIFFERS = "Chance, the error of unrelated runs, differs between groups: compare groups by R²."
PICTURES = {  # of a pair: caption and explanation
    "ladder": (
        "Which group explains the difference?",
        "The error after the best map of each group, from the smallest group to the largest. Chance is the error of "
        "unrelated runs after the same kind of map; it differs between groups, so compare them by R².",
    ),
    "error_histogram": (
        "Is the error spread over all rows?",
        "The distribution of the error of single rows; the last step holds all larger errors.",
    ),
    "gains": (
        "Are all directions stretched alike?",
        "The gain of the best map in each direction with signal, relative to the common scale. A log gain of 0.1 "
        "stretches by 10.5 %. Directions between these may be stretched more: the text gives the extreme of all.",
    ),
    "planes": ("What the map does", "Grey lines link rows of the source with the same rows of the target."),
}


def arrow(pair: Pair) -> str:
    """The names of a pair."""
    return f"{pair.source} → {pair.target}"


def r2_text(value: float) -> str:
    """R² with three decimals."""
    return f"R² {fixed(value, 3)}"


def pair_details(number_: int, pair: Pair, comparison: Comparison, groups: list[str]) -> Details:
    """All of one pair, behind a summary line."""
    single, rows, color = len(comparison.pairs) == 1, pair.plane.rows, comparison.color
    marked: dict[str, Any] = {"texts": row_texts(comparison, rows)}
    if color is not None:
        marked["color"] = (str(comparison.settings["color"]), color[rows])
    verdict, nears = pair.verdict, {name: pair.groups[name] for name in groups if name in pair.groups}
    tested = pair.distortion is not None and pair.distortion.tested > 0
    pictures = [
        Figure(
            name,
            (pair,),
            caption=caption,
            detail=detail,
            brief=single and name == "ladder",
            wide=name == "planes",
            options=marked if name == "planes" else {},
        )
        for name, (caption, detail) in PICTURES.items()
        if name != "gains" or tested
    ]
    repeated = single and comparison.headlines[0] == verdict.headline  # the page begins with these sentences
    blocks: tuple[Block, ...] = (
        *([] if repeated else [Text(verdict.finding.evidence, strong=verdict.headline)]),
        Grid(pictures, "pictures"),
        *_statements(pair, single),
        Heading("Held-out error by group of maps"),
        _errors(pair, nears, single),
        Heading("Nearness, share of the diameter"),
        _shares_of_diameter(pair, nears),
        Text("As in published tables; the last three columns are in sample.", muted=True),
        *_dependence(pair),
        Heading("Further numbers"),
        fact_table(_facts(pair), f"Further numbers of {arrow(pair)}"),
    )
    return Details(arrow(pair), blocks, id=f"pair-{number_}", open=number_ == 1, status=verdict.status)


def _statements(pair: Pair, single: bool) -> Iterator[Block]:
    """What the verdict follows from: distortion and unexplained variance."""
    premises = pair.verdict.finding.premises
    if premises:
        yield Heading("Distortion and unexplained variance")
        columns = (Column("statement", "text"), Column("verdict", "text"), Column("value"), Column("95 % interval"))
        rows = [(premise.claim, badge(premise.status), *_value(premise)) for premise in premises]
        yield Table(f"{arrow(pair)}: distortion and unexplained variance", columns, rows, sortable=False, brief=single)


def _value(premise: Finding) -> tuple[Cell, Cell]:
    low, high = premise.interval or (float("nan"), float("nan"))
    if premise.number is None:
        return Cell(UNDEFINED, ""), Cell(UNDEFINED, "")
    if premise.name == "distortion":  # a logarithm, and an interval of the largest one
        return Cell(f"|log gain| {number(premise.number, 2)}"), _between(number(low, 2), number(high, 2))
    return share(premise.number), shares(low, high)


def _between(low: str, high: str) -> Cell:
    return Cell(low if low == high else f"{low} to {high}")


def _errors(pair: Pair, nears: Mapping[str, Nearness], single: bool) -> Table:
    names = ("of chance", "95 % interval", "R²", "95 % interval", "of diameter")
    rows: list[tuple[Any, ...]] = [
        (
            name,
            share(near.of_chance.mean, strong=True),
            shares(near.of_chance.low, near.of_chance.high),
            Cell(fixed(near.r2.mean, 3), near.r2.mean if near.r2.mean == near.r2.mean else ""),
            _between(fixed(near.r2.low, 3), fixed(near.r2.high, 3)),
            share(near.held_out.mean),
        )
        for name, near in nears.items()
    ]
    columns = (Column("group", "text"), *map(Column, names))
    label, note = f"{arrow(pair)}: held-out error by group", CHANCE_DIFFERS
    return Table(label, columns, rows, sortable=False, brief=single, note=note)


def _shares_of_diameter(pair: Pair, nears: Mapping[str, Nearness]) -> Table:
    names = ("held out", "95 % interval", "null", "in sample", "95 % of rows below", "largest")
    rows: list[tuple[Any, ...]] = [
        (
            name,
            share(near.held_out.mean, strong=True),
            shares(near.held_out.low, near.held_out.high),
            *map(share, (near.null, near.mean, near.q95, near.sup)),
        )
        for name, near in nears.items()
    ]
    bound = "" if pair.diameter_exact else "at least "
    title = f"{arrow(pair)}: errors in % of the diameter {bound}{number(pair.diameter, 4)}"
    return Table(title, (Column("group", "text"), *map(Column, names)), rows, sortable=False)


def _dependence(pair: Pair) -> Iterator[Block]:
    """The error for three ways of leaving rows out."""
    found = pair.dependence
    if found is None:
        return
    yield Heading("Do rows depend on each other?")
    text = (
        "The held-out error after the best rotation and scale, for three ways of leaving rows out. It stays the same "
        "if rows are independent."
    )
    if len(found.copies):
        text += f" {len(found.copies)} of {found.n} rows repeat another row in both runs."
    yield Text(text, muted=True)
    effect = {True: "higher: these rows depend on each other", False: "no effect"}
    rows = [
        ("rows at random", share(found.scattered), "the reference"),
        ("consecutive rows", share(found.consecutive), effect[found.ordered]),
        ("rows close to each other in the source", share(found.neighbours), effect[found.clustered]),
    ]
    columns = (Column("left out together", "text"), Column("error, of chance"), Column("", "text"))
    yield Table(f"{arrow(pair)}: error by the way of leaving rows out", columns, rows, sortable=False)


def _facts(pair: Pair) -> list[tuple[str, Any, str]]:
    exact = "exact" if pair.diameter_exact else "estimated from below by search"
    facts: list[tuple[str, Any, str]] = [
        ("paired rows", pair.n, "rows that both runs have"),
        ("moved rows", pair.verdict.moved, "rows that match no better than unrelated ones, while the others match"),
        ("diameter", number(pair.diameter, 4), f"largest distance between two rows of the target; {exact}"),
    ]
    similar: list[tuple[str, Any, str]] = [
        ("MCC, strong", pair.mcc.strong, "correlation of dimensions matched one to one, in sample; 1 is best"),
        ("MCC, weak", pair.mcc.weak, "the same after the best linear map (CCA), held out; 1 is best"),
        ("CKA", with_null(pair.cka), "agreement of the similarity structure (linear, unbiased); 1 is best"),
        ("neighbour overlap", with_null(pair.neighbour_overlap, percent), "share of nearest neighbours in common"),
    ]
    facts += [fact for fact in similar if as_cell(fact[1]).text != UNDEFINED]  # `check` does not compute them
    if "ica" in pair.groups:
        meaning = "share of the gain of a similarity over a permutation that unsupervised ICA reaches"
        facts.append(("ICA efficiency, held out", share(pair.held_out_efficiency), meaning))
        facts.append(("ICA efficiency, in sample", share(pair.efficiency), "the same, in sample"))
    if pair.components is not None:
        near = pair.components
        value = f"{percent(near.of_chance.mean)} of chance"
        meaning = f"unmixed on all rows, matched on held-out ones; {percent(near.held_out.mean)} of their own diameter"
        facts.append(("ICA components", value, meaning))
    for name, similarity in pair.similarities.items():
        if name not in ALWAYS_SHOWN:
            about = MEASURES[name]
            low, high = about.range
            meaning = f"{about.meaning}; {about.direction}, {low:.3g} to {high:.3g}"
            facts.append((about.title, with_null(similarity), meaning))
    return facts


def with_null(score: SimilarityScore, written: Callable[[float], str] = number) -> Cell:
    """A similarity, and below it its null and p value where there are any."""
    below = "" if math.isnan(score.null) else f"null {written(score.null)}"
    below += "" if math.isnan(score.p) else f", p {number(score.p)}"
    return Cell(written(score.value), score.value if score.value == score.value else "", below=below)


def rows_section(comparison: Comparison) -> doc.Section | None:
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
        return doc.Section("Which rows differ most?", (Text(equal), Text(note, muted=True)), id="moved")
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
    return doc.Section("Which rows differ most?", blocks, id="moved")


def row_texts(comparison: Comparison, rows: Any) -> list[str]:
    """Id or number, and metadata, of some rows: what a page shows at the pointer."""
    named = list(comparison.metadata.items())[:LISTED_COLUMNS]
    first = [f"row {row}" if comparison.ids is None else doc.label_cell(comparison.ids[row]).text for row in rows]
    more = [[f"{elided([name], 24)[0]}: {doc.label_cell(values[row]).text}" for name, values in named] for row in rows]
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
        else (Column("id", "text"), [doc.label_cell(value) for value in moved.ids[order]]),
        (Column("disagreement"), [share(float(x)) for x in moved.disagreement[order]]),
        (Column("of diameter"), [share(float(x)) for x in moved.of_diameter[order]]),
        (Column("× median"), [Cell(text, float(x)) for text, x in zip(times, moved.disagreement[order], strict=True)]),
    ]
    for name, values in list(moved.metadata.items())[:LISTED_COLUMNS]:
        kind: Any = "number" if values.dtype.kind in "iuf" else "text"
        columns.append((Column(elided([name], 24)[0], kind), [doc.label_cell(value) for value in values[order]]))
    if 2 < len(moved.by_run) <= LISTED_RUNS:  # with two runs, both have the number of the pair
        for name, values in zip(elided(list(moved.by_run), 18), moved.by_run.values(), strict=True):
            columns.append((Column(name), [share(float(x)) for x in values[order]]))
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    return Table("The rows that differ most", [column for column, _ in columns], rows)
