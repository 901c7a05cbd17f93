"""An evaluation as a document: which code encodes which factor, the scores, each factor, and the model's pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.document import Block, Cell, Column, Figure, Heading, Image, Section, Table, Text, document_of, share
from congruence.formatting import count, elided, fixed, interval, number
from congruence.maps._names import MEANINGS, ordered_groups
from congruence.metrics._own_codes import AHEAD, LEAK, LEAST
from congruence.metrics._registry import METRIC_MEANINGS, SCORES

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation, Score

TABLE_CELLS, TABLE_CODES = 1200, 16  # of a table of numbers: cells at most, but at least so many codes
TRAVERSALS = 32  # codes whose traversals are shown
DRAWN_FACTORS = 24
POINTS, MOST_POINTS = 4000, 250  # of all scatter plots together, and of one
OPEN_NOTES = 6  # more are behind a click
MOST_LEAKAGE = 10  # printed
NO_CODE = "no single code above chance"
READOUTS = {"linear": "R² lin.", "nonlinear": "R² nonlin."}  # shown where they were requested
MATRICES = {  # the title of a matrix of factors and codes, and what a cell of it means
    "nmi": ("Information", "Normalised information of the code about the factor, from 0 to 1."),
    "importance": ("Importance", "How much trees used the code to predict the factor; rows sum to 1."),
    "correlation": ("Correlation", "Pearson correlation of code and factor, from −1 to 1."),
}
TERMS = (
    (
        "information",
        "of a code about a factor: mutual information divided by the entropy of a factor with classes; for a "
        "continuous factor 1 − exp(−2 I), which is R² for Gaussian variables. 0 is none, 1 is all.",
    ),
    (
        "own code",
        "a code that depends on one factor and hardly on any other. Given all other factors, this factor explains at "
        f"least {100 * LEAST:g} % of what is left of the code (conditional share). Given this factor, all others "
        f"together move the code at most {LEAK:g} times as far as it does (leakage; a rotation by 17° has 0.3). No "
        f"other code depends on the factor more than 1/{AHEAD:g} as much, unless it is a copy.",
    ),
    (
        "chance",
        "the mean of the same score with the rows of codes and factors paired at random. A score beats chance where it "
        "is better than one more random pairing would be with 95 % probability.",
    ),
    (
        "interval",
        "95 %, from subsamples of the rows, or of the clusters of rows. Only scores have one whose bias at this number "
        "of rows is below their spread; the notes say why others have none.",
    ),
    (
        "corrected",
        "InfoM or InfoC without the information that unrelated codes appear to have, and without codes that are no "
        "more informative than chance. Unlike the published value it hardly depends on the number of rows.",
    ),
    (
        "conditions",
        "properties of the data under which a score is known to misjudge codes that are, or are not, the factors. They "
        "are met where none of them was found.",
    ),
)


def describe(result: Evaluation) -> doc.Document:
    """The document of an evaluation."""
    sizes = (count(len(result.codes), "code"), count(len(result.factors), "factor"), count(result.n, "row"))
    metrics = dict.fromkeys(score.metric for score in result.scores)
    groups = ordered_groups(result.structural.groups) if result.structural is not None else []
    return document_of(
        result,
        f"{result.name}: are the axes the true factors?",
        details=(*result.headlines[1:], *result.details),
        claim="One code for each factor?",
        remark=", ".join(sizes),
        notes=(),  # they are a section
        sections=tuple(_sections(result)),
        reading=(
            "Each row has learned codes and known factors. A code that is a factor, whatever its sign and scale, is "
            "informative about this factor and no other. Codes can contain all factors and still be a mixture of them: "
            "metrics that use all codes together do not see the difference."
        ),
        glossary=(
            *TERMS,
            *(METRIC_MEANINGS.get(name, (name, "")) for name in metrics),
            *((group, MEANINGS.get(group, "")) for group in groups),
        ),
        settings={"codes": f"{result.name} ({sizes[0]})", "factors": list(result.factors), "rows": result.n}
        | dict(result.settings),
        about=result.name,
    )


def _sections(result: Evaluation) -> Iterator[Section]:
    if result.compared:
        yield Section("What did ICA change?", tuple(_compared(result)), id="ica")
    shown = {name: title for name, (title, _) in MATRICES.items() if name in result.matrices}
    maps = [block for name, title in shown.items() for block in _matrix(name, result, title, brief=name == "nmi")]
    if maps:
        about = (
            "Factors are rows, codes are columns, in the order that puts the code matched with each factor on the "
            "diagonal. If the codes are the factors, each row and each column has one strong cell; several equally "
            "strong cells mean that the codes are mixed or the factors correlated: “Factor by factor” tells which."
        )
        yield Section("Which code encodes which factor?", (Text(about, muted=True), *maps), id="heat")
    if result.pictures is not None:
        yield Section("What does the model do with images?", tuple(_pictures(result)), id="model")
    yield Section("What are the scores?", tuple(_scores(result)), id="scores")
    yield Section("Factor by factor", tuple(_factors(result)), id="factors")
    yield Section("What is missing?", tuple(_missing(result)), id="missing")
    if result.structural is not None:
        yield Section("How far from the factors, up to which map?", tuple(_structural(result)), id="structural")
    if result.sensitivity:
        yield Section("How much do the scores depend on the bins?", tuple(_sensitivity(result)), id="sensitivity")
    if result.notes:
        title = "How factors were read and scores were computed"
        notes = doc.Details(title, (doc.Notes(result.notes, brief=True),), open=len(result.notes) <= OPEN_NOTES)
        yield Section("Notes", (notes,), id="notes")


def _compared(result: Evaluation) -> Iterator[Block]:
    """The scores before and after ICA, the information before, and what each code changes in an image."""
    first = result.compared[0]
    every = (first, result, *result.compared[1:])
    yield Text(
        "The same scores for the codes as given, and for their independent components, estimated in three ways. "
        f"This page is about {result.name}.",
        muted=True,
    )
    names = ["before", *(one.name.removeprefix(first.name).strip() for one in every[1:])]
    rows: list[tuple[Any, ...]] = [
        (_name(result.scores[i]), *(_number(one.scores[i].value) for one in every)) for i in range(len(result.scores))
    ]
    columns = (Column("score", "text"), *map(Column, names))
    yield Table("Scores before and after", columns, rows, sortable=False, brief=True)
    yield from _matrix("nmi", first, f"Information, {names[0]}")
    if first.pictures is not None and result.pictures is not None:
        yield Heading("What each code changed before, and changes now")
        yield Text(
            "One image with one code set to other values, and the factor that the code encodes best.", muted=True
        )
        columns = tuple(Column(name, "text") for name in ("before", "from low to high", "after", "from low to high"))
        empty = (Cell(""), Cell(""))
        before, after = ([_traversal(one, j, span=False) for j in one.order[:TRAVERSALS]] for one in (first, result))
        pairs = [(*left, *right) for left, right in zip_longest(before, after, fillvalue=empty)]
        yield Table("Traversals before and after", columns, pairs, "images", sortable=False)


def _matrix(name: str, result: Evaluation, title: str, brief: bool = False) -> Iterator[Block]:
    """A matrix of factors and codes as a figure of all codes, and the numbers of the first."""
    matrix = np.asarray(result.matrices[name], dtype=float)[:, list(result.order)]
    if not np.isfinite(matrix).any():
        return
    codes = [result.codes[j] for j in result.order]
    listed = codes[: max(TABLE_CODES, TABLE_CELLS // len(matrix))]
    yield Heading(title)
    yield Text(MATRICES[name][1], muted=True)
    data, above = (matrix, result.factors, codes, f"{title}, {result.name}"), f"{title}, from 0 to 1"
    yield Figure("factor_code_map", data, wide=True, brief=brief, title=above if brief else "")
    columns = (Column("factor", "name"), *(Column(code) for code in elided(listed, 14)))
    rows: list[tuple[Any, ...]] = [
        (factor, *(_heat_cell(value, factor, code) for value, code in zip(row, listed, strict=False)))
        for factor, row in zip(result.factors, matrix, strict=True)
    ]
    some = "" if len(listed) == len(codes) else f"The first {len(listed)} of {len(codes)} codes."
    yield doc.Details("Numbers", (Table(f"{title} of codes and factors", columns, rows, "heat", False, note=some),))


def _heat_cell(value: float, factor: str, code: str) -> Cell:
    strength = 0.0 if math.isnan(value) else round(0.9 * min(abs(float(value)), 1.0), 2)
    return Cell(fixed(value, 2), hint=f"{factor}, {code}: {fixed(value, 3)}", tint=strength)


def _pictures(result: Evaluation) -> Iterator[Block]:
    """Images and their reconstructions, and what each code changes."""
    shown = result.pictures
    yield Image(shown.originals, "images", caption="Images", detail="with their reconstructions from the codes below")
    yield Image(shown.reconstructions, "their reconstructions")
    traversals = [_traversal(result, j, span=True) for j in range(min(len(result.codes), len(shown.traversals)))]
    hidden = f" The first {TRAVERSALS} codes are shown." if len(traversals) > TRAVERSALS else ""
    yield Heading("What does each code change?")
    yield Text(
        "The first image, with one code set to other values: evenly spaced over the central 90 % of its values or, if "
        "these are few, its most frequent values. A code that is a factor changes one thing only; an idle code changes "
        f"nothing.{hidden}",
        muted=True,
    )
    columns = (Column("code", "text"), Column("from low to high values", "text"))
    yield Table("Traversals of codes", columns, traversals[:TRAVERSALS], "images", sortable=False)


def _traversal(result: Evaluation, place: int, *, span: bool) -> tuple[Cell, Cell]:
    """A code with the factor it encodes and, if requested, the span of its values; and the images along it."""
    row, values = result.per_code[place], result.pictures.values[place]
    factor = row.factor if row.active and not row.idle else "no factor"
    reach = f"{number(float(values[0]))} to {number(float(values[-1]))}"
    image = Image(result.pictures.traversals[place], f"{row.code} from {reach}")
    return Cell(row.code, below=f"{factor}, {reach}" if span else factor), Cell("", image=image)


def _scores(result: Evaluation) -> Iterator[Block]:
    line = "thick line: 95 % interval; " if any(math.isfinite(score.low) for score in result.scores) else ""
    yield Text(
        f"Bar: the range of the score; dot: its value; {line}dashed mark: chance, the same score with codes and "
        "factors paired at random. Corrected: without the information that unrelated codes appear to have. The notes "
        "say why a score has no interval. Click a heading to sort.",
        muted=True,
    )
    columns = (
        Column("score", "text"),
        Column("value"),
        Column("on its range", "text", brief=False),
        Column("chance"),
        Column("conditions", "text", brief=False),
        Column("better", "text"),
        Column("question", "text", brief=False),
    )
    rows = [_score_row(score) for score in result.scores if math.isfinite(score.value)]
    missing: dict[str, list[str]] = {}
    for score in result.scores:
        if not math.isfinite(score.value):
            missing.setdefault(score.reason.rstrip("."), []).append(score.score)
    note = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in missing.items())
    note = f"Not computed: {note}." if note else ""
    yield Table("Scores", columns, rows, brief=True, note=note) if rows else Text(note, brief=True)
    if result.conditions:
        yield Heading("Conditions that these data do not meet")
        yield Text("They mislead the scores that name them: a low or a high value may be due to them.", muted=True)
        words = (Column("property", "name"), Column("found", "text"))
        yield Table("Conditions", words, list(result.conditions.items()), sortable=False, brief=True)


def _score_row(score: Score) -> tuple[Any, ...]:
    known = math.isfinite(score.low) and math.isfinite(score.high)
    between = f"{_decimals(score.low)} to {_decimals(score.high)}" if known else ""
    if math.isfinite(score.corrected):
        between = f"{_decimals(score.corrected)} corrected"
    return (
        Cell(_name(score), below=score.score),
        _number(score.value, below=between, strong=True),
        Cell("", score.value, figure=Figure("score_range", (score,))),
        _number(score.chance, below={True: "beaten", False: "not beaten", None: ""}[score.beats_chance]),
        f"not met ({', '.join(score.conditions)})" if score.conditions else "met",
        score.direction.split()[0],
        SCORES.get(score.score, ("", ""))[1],
    )


def _name(score: Score) -> str:
    return SCORES.get(score.score, (score.score, ""))[0]


def _number(value: float, **more: Any) -> Cell:
    return Cell(_decimals(value), value if math.isfinite(value) else "", **more)


def _decimals(value: float) -> str:
    """Three decimals; one digit of what would read 0."""
    return number(value, 1) if 0 < abs(value) < 0.0005 else number(value) if abs(value) >= 100 else fixed(value, 3)


def _factors(result: Evaluation) -> Iterator[Block]:
    readouts = [name for name in READOUTS if any(math.isfinite(getattr(row, name)) for row in result.per_factor)]
    columns = (
        Column("factor", "name"),
        Column("encoded by", "text"),
        Column("best code", "text"),
        Column("information"),
        Column("next", brief=False),
        Column("leakage"),
        *(Column(READOUTS[name]) for name in readouts),
        Column("kind", "text", brief=False),
    )
    rows: list[tuple[Any, ...]] = []
    own_codes = result.own_codes
    factor_of = {code: factor for factor, code in own_codes.items()}
    for row in result.per_factor:
        own = own_codes.get(row.factor)
        encoded = f"the code of {factor_of[row.code]}" if row.code in factor_of else "mixed codes"
        state = "own code" if own else encoded if row.explained else "no code"
        leakage = _number(row.leakage if row.explained else math.nan)
        leakage = replace(leakage, text=f"> {MOST_LEAKAGE}") if row.leakage > MOST_LEAKAGE else leakage
        readout = [_number(getattr(row, name)) for name in readouts]
        measured = not math.isnan(row.share)
        best = own or row.code or (NO_CODE if measured else "")
        shares = (_number(row.share), _number(row.second))
        kind = f"{row.levels} classes" if row.kind == "categorical" else row.kind
        rows.append((row.factor, state if measured else "not measured", best, *shares, leakage, *readout, kind))
    yield Text(
        "Information: of the best code about the factor, and of the next code. Leakage: how far all other factors move "
        "the best code, relative to this factor, each given the other; an own code has at most "
        f"{LEAK:g}, and a rotation by 20° has 0.36.",
        muted=True,
    )
    yield Table("Factors", columns, rows, brief=True)
    scatter = tuple(_scatter(result))
    if scatter:
        yield Heading("Each factor against its most informative code")
        some = f" The first {len(scatter)} factors are shown." if len(result.factors) > DRAWN_FACTORS else ""
        yield Text(
            "Vertical: the factor; horizontal: the code. If the code follows the factor, the points form a line, "
            "straight or curved; if not, a cloud. Each value of a factor with few values has its own line, with the "
            f"median and the middle half of the rows.{some}",
            muted=True,
        )
        yield doc.Grid(scatter, "small")


def _scatter(result: Evaluation) -> Iterator[Figure]:
    """Each of the first factors against its most informative code, from the sample of rows."""
    codes, factors = (np.asarray(part, dtype=float) for part in result.sample)
    nmi = np.asarray(result.matrices["nmi"], dtype=float)
    drawn = [i for i in range(len(result.factors)) if np.isfinite(nmi[i]).any()][:DRAWN_FACTORS] if len(codes) else []
    rows = slice(min(MOST_POINTS, POINTS // max(len(drawn), 1)))
    for i in drawn:
        row, name = result.per_factor[i], result.factors[i]
        j = result.codes.index(row.code) if row.code in result.codes else int(np.nanargmax(nmi[i]))
        data = (factors[rows, i], codes[rows, j], row.kind, result.levels.get(name, ()), (name, result.codes[j]))
        informative = bool(row.code) and row.explained
        yield Figure("factor_scatter", data, caption=name, detail="" if informative else NO_CODE)


def _missing(result: Evaluation) -> Iterator[Block]:
    if not result.is_measured:
        yield Text("Unknown: no factor could be measured.")
    else:
        lost, unmeasured, idle = (", ".join(names) for names in (result.unexplained, result.unmeasured, result.idle))
        yield Text(f"{lost}.", strong="Factors that are not encoded:") if lost else Text("No factor is missing.")
        if unmeasured:
            yield Text(f"{unmeasured}. The notes say why.", strong="Factors that could not be measured:")
        noise = "They may encode something that is not among the factors, or noise."
        yield Text(f"{idle}. {noise}", strong="Codes that encode no factor:") if idle else Text("No code is idle.")
    owner = {code: factor for factor, code in result.own_codes.items()}
    rows = []
    for row in result.per_code:
        role = "encodes nothing" if row.idle else "mixed" if row.active else "nearly constant"
        role = f"own code of {owner[row.code]}" if row.code in owner else role
        rows.append((row.code, role, row.factor, _number(row.share), _number(row.modularity)))
    words = (Column("code", "name"), Column("role", "text"), Column("best factor", "text"))
    columns = (*words, Column("information"), Column("share of its information"))
    yield doc.Details("Code by code", (Table("Codes", columns, rows),))


def _structural(result: Evaluation) -> Iterator[Block]:
    assert result.structural is not None
    groups = result.structural.groups
    yield Text(
        "The codes are mapped onto the factors by the best map of each group, fitted on some rows and scored on "
        "others. If a permutation leaves little error, the axes are the factors; if only a rotation does, the codes "
        "contain the factors, rotated; if only a linear map does, they are also sheared.",
        muted=True,
    )
    ladder = Figure("groups_ladder", (groups, "from the codes to the factors"))
    columns = (Column("up to", "text"), Column("of chance"), Column("held out"), Column("null"), Column("largest"))
    rows = [
        (
            name,
            share(near.of_chance.mean, strong=True, below=interval(near.of_chance.low, near.of_chance.high)),
            share(near.held_out.mean),
            share(near.null),
            share(near.sup),
        )
        for name, near in ((name, groups[name]) for name in ordered_groups(groups))
    ]
    table = Table("Distance to the factors", columns, rows, sortable=False, brief=True)
    yield doc.Grid((ladder, table), "halves")
    yield Text(
        "“Of chance” is the held-out error relative to that of unrelated codes, with a 95 % interval. The others "
        "are in % of the factors’ diameter, codes and factors at unit variance; the diameter grows with the number of "
        "rows. “Largest” is in sample: Definition 2 of Nelson et al. bounds it.",
        muted=True,
    )


def _sensitivity(result: Evaluation) -> Iterator[Block]:
    yield Text(
        "Some metrics cut the codes into bins. If the scores change from row to row, do not quote one of them alone.",
        muted=True,
    )
    names = list(result.sensitivity[0])
    columns = tuple(Column(SCORES.get(name, (name, ""))[0]) for name in names)
    rows = [[int(row[name]) if name == "bins" else _number(row[name]) for name in names] for row in result.sensitivity]
    yield Table("Scores by number of bins", columns, rows, brief=True)
