"""The details of one pair: the two statements, errors by group, gains by direction, and further numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from congruence.align._rows_section import row_texts
from congruence.align.similarities import MEASURES, SimilarityScore
from congruence.document import Block, Cell, Column, Details, Figure, Grid, Heading, Table, Text, badge, share, shares
from congruence.document import facts as fact_table
from congruence.formatting import UNDEFINED, fixed, number, percent

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair
    from congruence.maps.dependence import Dependence
    from congruence.maps.nearness import HeldOut
    from congruence.result import Finding

ALWAYS_SHOWN = ("cka", "neighbour_overlap", "strong_mcc")  # similarities that every pair has
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
    single, rows = len(comparison.pairs) == 1, pair.plane.rows
    color = comparison.color
    marked = {"texts": row_texts(comparison, rows)} | (
        {} if color is None else {"color": (str(comparison.settings["color"]), color[rows])}
    )
    verdict = pair.verdict
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
    blocks: tuple[Block, ...] = (
        Text(verdict.finding.evidence, strong=verdict.headline),
        Grid(pictures, "pictures"),
        *_statements(pair, single),
        Heading("Held-out error by group of maps"),
        _errors(pair, groups, single),
        Text("Chance differs between groups: compare groups with each other by R².", muted=True),
        Heading("Nearness, share of the diameter"),
        _shares_of_diameter(pair, groups),
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


def _errors(pair: Pair, groups: list[str], single: bool) -> Table:
    names = ("of chance", "95 % interval", "R²", "95 % interval", "of diameter")
    rows: list[tuple[Any, ...]] = [
        (
            name,
            share(near.of_chance.mean, strong=True),
            shares(near.of_chance.low, near.of_chance.high),
            Cell(fixed(near.r2.mean, 3), _key(near.r2.mean)),
            _r2_interval(near.r2),
            share(near.held_out.mean),
        )
        for name, near in ((name, pair.groups[name]) for name in groups if name in pair.groups)
    ]
    columns = (Column("group", "text"), *map(Column, names))
    return Table(f"{arrow(pair)}: held-out error by group", columns, rows, sortable=False, brief=single)


def _shares_of_diameter(pair: Pair, groups: list[str]) -> Table:
    names = ("held out", "95 % interval", "null", "in sample", "95 % of rows below", "largest")
    rows: list[tuple[Any, ...]] = [
        (
            name,
            share(near.held_out.mean, strong=True),
            shares(near.held_out.low, near.held_out.high),
            *map(share, (near.null, near.mean, near.q95, near.sup)),
        )
        for name, near in ((name, pair.groups[name]) for name in groups if name in pair.groups)
    ]
    bound = "" if pair.diameter_exact else "at least "
    title = f"{arrow(pair)}: errors in % of the diameter {bound}{number(pair.diameter, 4)}"
    return Table(title, (Column("group", "text"), *map(Column, names)), rows, sortable=False)


def _key(value: float) -> float | str:
    return value if value == value else ""


def _r2_interval(r2: HeldOut) -> Cell:
    return _between(fixed(r2.low, 3), fixed(r2.high, 3))


def _dependence(pair: Pair) -> Iterator[Block]:
    """The error for three ways of leaving rows out."""
    found = pair.dependence
    if found is None:
        return
    yield Heading("Do rows depend on each other?")
    yield Text(_dependence_text(found), muted=True)
    rows = [
        ("rows at random", share(found.scattered), "the reference"),
        ("consecutive rows", share(found.consecutive), _effect(found.ordered)),
        ("rows close to each other in the source", share(found.neighbours), _effect(found.clustered)),
    ]
    columns = (Column("left out together", "text"), Column("error, of chance"), Column("", "text"))
    yield Table(f"{arrow(pair)}: error by the way of leaving rows out", columns, rows, sortable=False)


def _dependence_text(found: Dependence) -> str:
    text = (
        "The held-out error after the best rotation and scale, for three ways of leaving rows out. It stays the same "
        "if rows are independent."
    )
    if len(found.copies):
        text += f" {len(found.copies)} of {found.n} rows repeat another row in both runs."
    return text


def _effect(depends: bool) -> str:
    return "higher: these rows depend on each other" if depends else "no effect"


def _facts(pair: Pair) -> list[tuple[str, Any, str]]:
    exact = "exact" if pair.diameter_exact else "estimated from below by search"
    facts: list[tuple[str, Any, str]] = [
        ("paired rows", pair.n, "rows that both runs have"),
        ("moved rows", pair.verdict.moved, "rows that match no better than unrelated ones, while the others match"),
        ("diameter", number(pair.diameter, 4), f"largest distance between two rows of the target; {exact}"),
        ("MCC, strong", pair.mcc.strong, "correlation of dimensions matched one to one, in sample; 1 is best"),
        ("MCC, weak", pair.mcc.weak, "the same after the best linear map (CCA), held out; 1 is best"),
        ("CKA", beside_null(pair.cka), "agreement of the similarity structure (linear, unbiased); 1 is best"),
        ("neighbour overlap", beside_null(pair.neighbour_overlap, percent), "share of nearest neighbours in common"),
    ]
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
            facts.append((about.title, beside_null(similarity), meaning))
    return facts


def beside_null(score: SimilarityScore, written: Callable[[float], str] = number) -> Cell:
    """A similarity, and below it its null and p value where there are any."""
    below = "" if math.isnan(score.null) else f"null {written(score.null)}"
    below += "" if math.isnan(score.p) else f", p {number(score.p)}"
    return Cell(written(score.value), score.value if score.value == score.value else "", below=below)
