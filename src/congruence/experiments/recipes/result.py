"""`RecipeResult`: the findings, tables and figures of one reproduced experiment, and helpers that build them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypedDict, get_args, get_origin, get_type_hints

import numpy as np

from congruence.document import Cell, Column, Table, as_cell
from congruence.errors import InputError
from congruence.experiments.recipes.claims import Estimate, Judgement
from congruence.result import Finding, Result

if TYPE_CHECKING:
    from congruence.experiments.recipes.recipe import Recipe
    from congruence.report.figures.svg import Drawing

NUMBERS = "numbers.json.gz"  # the file of a result folder that holds `ours`
SHOWN = 5  # columns of a table on a terminal


@dataclass(frozen=True)
class RecipeFigure:
    """A figure and the name of its file, without the suffix; one read from a file is the text of an SVG element."""

    name: str
    caption: str
    drawing: Drawing | str = field(repr=False)

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name:  # it may come from the numbers of a stranger
            raise InputError(f"the name of a figure must be that of a file, not {self.name!r}")

    @cached_property
    def svg(self) -> str:
        """The figure as an inline SVG element."""
        return self.drawing if isinstance(self.drawing, str) else self.drawing.svg()


class TableNumbers(TypedDict):
    """A table in JSON. A cell is a value, or {"text", "value"} where its text is more than the value."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str


class ClaimNumbers(TypedDict):
    """How a claim is judged: its source, its rule, where the limits come from, and when the rule was written."""

    name: str
    source: str
    rule: str
    margin: str
    post_hoc: bool


class RecipeNumbers(TypedDict):
    """The numbers of a recipe in JSON: those of the paper, and the tables that compare them with ours.

    `ours` is {"file": name}: the numbers are in a compressed file next to result.json.
    """

    recipe: str
    source: str
    question: str
    headlines: list[str]
    claims: list[ClaimNumbers]
    paper: dict[str, Any]
    ours: dict[str, Any]
    tables: list[TableNumbers]
    figures: list[dict[str, str]]
    terms: dict[str, str]


@dataclass(frozen=True)
class Presentation:
    """What a recipe makes of its numbers; notes, terms and words of the paper are those of the `Recipe`."""

    headlines: tuple[str, ...]
    findings: tuple[Finding, ...]
    tables: tuple[Table, ...]
    figures: tuple[RecipeFigure, ...]
    paper: Mapping[str, Any] = field(default_factory=dict)  # numbers of the paper
    words: Mapping[str, Any] = field(default_factory=dict)  # for the placeholders of notes that are no settings
    notes: tuple[str, ...] = ()  # further ones
    terms: tuple[tuple[str, str], ...] = ()  # further ones


@dataclass(frozen=True, eq=False, repr=False)
class RecipeResult(Result):
    """Which claims of a paper hold in our experiment, and on what numbers.

    Each claim is a finding. `paper` and `ours` hold what JSON can hold. `folder` is the folder of the files, and
    `reused` says that they were there already, so that nothing was computed.
    """

    recipe: Recipe
    headlines: tuple[str, ...]  # the sentences of the verdict
    findings: tuple[Finding, ...]
    paper: Mapping[str, Any]
    ours: Mapping[str, Any]
    tables: tuple[Table, ...]
    figures: tuple[RecipeFigure, ...]
    notes: tuple[str, ...] = ()  # choices of ours that the paper does not state, and what was left out
    terms: tuple[tuple[str, str], ...] = ()  # words of the tables and figures, with their meaning
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    reused: bool = False

    def numbers(self) -> RecipeNumbers:
        """The numbers of the paper, ours, all tables, the files of the figures and the glossary."""
        return {
            "recipe": self.recipe.name,
            "source": self.recipe.source,
            "question": self.recipe.question,
            "headlines": list(self.headlines),
            "claims": [
                ClaimNumbers(name=one.name, source=one.source, rule=one.rule, margin=one.margin, post_hoc=one.post_hoc)
                for one in self.findings
                if isinstance(one, Judgement)
            ],
            "paper": dict(self.paper),
            "ours": {"file": NUMBERS},
            "tables": [_table_numbers(table) for table in self.tables],
            "figures": [{"file": f"{figure.name}.svg", "caption": figure.caption} for figure in self.figures],
            "terms": dict(self.terms),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per claim."""
        for finding in self.findings:
            low, high = finding.interval or (None, None)
            yield {
                "recipe": self.recipe.name,
                "finding": finding.name,
                "status": finding.status,
                "number": finding.number,
                "low": low,
                "high": high,
                "null": finding.null,
                "claim": finding.claim,
                "evidence": finding.evidence,
                **{name: getattr(finding, name, "") for name in ("source", "rule", "margin", "post_hoc")},
            }


def headline_if_all_hold(sentence: str, findings: Sequence[Finding]) -> tuple[str]:
    """The headline of a recipe: `sentence` if all claims hold, otherwise how many of them do."""
    held = sum(finding.status == "holds" for finding in findings)
    return (sentence if held == len(findings) else f"{held} of {len(findings)} claims hold at this scale.",)


def as_numbers(value: Any) -> Any:
    """Plain data for `ours`: dataclasses as dictionaries without the fields hidden from their repr, arrays as lists."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif dataclasses.is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.repr}
    if isinstance(value, Mapping):
        return {key: as_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_numbers(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def from_numbers(kind: Any, data: Any) -> Any:
    """The value of an annotated type, such as a dataclass or tuple[Float, ...], that `as_numbers` turned into `data`.

    Keys that are no field are left out, and null is NaN where a number is expected.
    """
    if get_origin(kind) is UnionType:  # with None
        return None if data is None else from_numbers(get_args(kind)[0], data)
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = [one.name for one in dataclasses.fields(kind) if one.name in data]
        return kind(**{name: from_numbers(hints[name], data[name]) for name in fields})  # type: ignore[operator]
    if isinstance(kind, type) and issubclass(kind, Estimate):
        return kind(*(math.nan if one is None else one for one in data))
    if origin is tuple:
        kinds = [inner[0]] * len(data) if inner[-1] is Ellipsis else inner
        return tuple(from_numbers(one, value) for one, value in zip(kinds, data, strict=True))
    if origin is not None and isinstance(data, dict):
        return {key: from_numbers(inner[1], value) for key, value in data.items()}
    if origin is np.ndarray:
        return np.array(data, dtype=float)
    return math.nan if kind is float and data is None else data


def number_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> Table:
    """A table of results. The first column names the rows; a second column of words is aligned as text, too.

    A value is a `Cell`, a text, a number, or None where the paper or we have none.
    """

    def kind(place: int) -> Any:
        words = place == 1 and any(isinstance(row[place], str) for row in rows)
        return "text" if place == 0 or words else "number"

    columns = [Column(name, kind(place), brief=place < SHOWN) for place, name in enumerate(head)]
    return Table(title, columns, [tuple(row) for row in rows], note=note)


def estimate_cell(one: Estimate) -> Cell:
    """An estimate with its interval as a cell of a table; one that is undefined sorts last."""
    return Cell(str(one), "" if math.isnan(one.value) else one.value)


def draw_figure(
    name: str, paint: Callable[[Any], Any], size: tuple[float, float], label: str, caption: str
) -> RecipeFigure:
    """A figure that `paint` draws on a matplotlib figure; `label` is for screen readers."""
    from congruence.report.figures.svg import Drawing

    return RecipeFigure(name, caption, Drawing(paint, size, label, name, panels=True))


def paint_panels(
    figure: Any, cases: Sequence[Any], paint: Callable[[Any, Any], None], ylabel: str, ncols: int, **options: Any
) -> list[Any]:
    """Paint a panel for each case by paint(axes, case), with a grid, and the legend of the first above all."""
    panels = list(figure.subplots(1, len(cases), squeeze=False, **options)[0])
    for axes, case in zip(panels, cases, strict=True):
        paint(axes, case)
        axes.grid(axis="y")
    panels[0].set_ylabel(ylabel)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=ncols)
    return panels


def _table_numbers(table: Table) -> TableNumbers:
    return {
        "title": table.label,
        "columns": [column.name for column in table.columns],
        "rows": [[_cell_number(value) for value in row] for row in table.rows],
        "note": table.note,
    }


def _cell_number(value: Any) -> Any:
    if not isinstance(value, Cell):
        return value
    return {"text": as_cell(value).text, "value": None if value.value == "" else value.value}
