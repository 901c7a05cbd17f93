"""A comparison as a document and as a LaTeX table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.align._rows_section import rows_section
from congruence.align.similarities import MEASURES, SimilarityScore
from congruence.document import (
    Block,
    Cell,
    Column,
    Details,
    Document,
    Figure,
    Grid,
    Heading,
    Section,
    Table,
    Text,
    badge,
    share,
    shares,
)
from congruence.document import facts as fact_table
from congruence.formatting import number, percent, step
from congruence.maps._names import AFTER, MEANINGS, ordered_groups
from congruence.result import STATUSES

if TYPE_CHECKING:
    from congruence.align._consensus import Consensus
    from congruence.align.comparison import Comparison, Pair
    from congruence.maps.nearness import Nearness

HEAT_RUNS = 40  # more do not fit on a page
DETAILED_PAIRS = 12  # the others have their numbers in the table
REMARKS = {
    "fails": "more than a rotation and a scale changed",
    "ambiguous": "the numbers allow both answers",
    "unknown": "too little data to decide",
    "holds": "at most a rotation and a scale",
}
ALWAYS_SHOWN = ("cka", "neighbour_overlap", "strong_mcc")  # similarities that every pair has
PICTURES = {  # of a pair: caption and explanation
    "ladder": (
        "Which group explains the difference?",
        "The error after the best map of each group, from the smallest group to the largest.",
    ),
    "error_histogram": ("Is the error spread over all rows?", "The distribution of the error of single rows."),
    "planes": ("What the map does", "Grey lines link rows of the source with the same rows of the target."),
}
CAPTION = (
    "Held-out error (mean over rows the map was not fitted on) after the best map of each group, "
    "in per cent of the diameter of the target. In parentheses the null: the same score for randomly re-paired rows."
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after a line break, [ and * would be read as its arguments
    "*": "{*}",
    "−": "$-$",
    "∞": r"$\infty$",
} | {character: "\\" + character for character in "&%$#_{}"}
ERROR_TERMS = (
    (
        "error",
        "the distance between a mapped row and its target, averaged over rows, as a percentage of the target’s "
        "diameter (the largest distance between two of its rows). 0 % is a perfect match.",
    ),
    (
        "held out",
        "the map is fitted on some rows and scored on others. “In sample” means fitted and scored on the same rows; "
        "that error is biased downwards, more so with more dimensions.",
    ),
    (
        "null",
        "the same held-out score for randomly re-paired rows, as for unrelated runs. An error near its null is no "
        "better than chance.",
    ),
)


def group_terms(groups: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The glossary of errors and of these groups."""
    return (*ERROR_TERMS, *((name, MEANINGS.get(name, "")) for name in groups))


def describe(comparison: Comparison) -> Document:
    """The document of a comparison."""
    groups = ordered_groups({name for pair in comparison.pairs for name in pair.groups})
    runs, pairs = comparison.runs, comparison.pairs
    subject = f"{runs[0].name} and {runs[1].name}" if len(runs) == 2 else f"{len(runs)} runs, {len(pairs)} pairs"
    return Document(
        question=f"{subject}: did the embeddings only rotate, or did they change?",
        headline=comparison.headlines[0],
        details=comparison.headlines[1:],
        claim="Only a rotation and a scale?",
        status=comparison.status,
        remark=_remark(comparison),
        notes=comparison.notes,
        sections=tuple(_sections(comparison, groups)),
        reading=(
            "Two runs embed the same rows. For each pair, maps from one run (the source) onto the other (the target) "
            "are fitted, from the smallest group of maps to the largest. The smallest group that leaves little error "
            "describes what changed."
        ),
        glossary=group_terms(groups),
        settings=comparison.settings,
        title=f"{subject}: only a rotation?",
    )


def _remark(comparison: Comparison) -> str:
    pairs = comparison.pairs
    statuses = Counter(pair.verdict.status for pair in pairs)
    if len(statuses) > 1:
        counts = ", ".join(f"{status} for {statuses[status]}" for status in STATUSES if statuses[status])
        verdict = f"{counts} of {len(pairs)} pairs"
    else:
        verdict = REMARKS[comparison.status]
    widths = sorted({run.d for run in comparison.runs})
    width = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}, zero-padded"
    pairing = comparison.settings.get("paired", "by position")
    return f"{verdict}; {pairs[0].n} rows × {width} dimensions, paired {pairing}"


def _sections(comparison: Comparison, groups: list[str]) -> Iterator[Section]:
    worst = _worst(comparison.pairs)
    yield Section("All pairs", tuple(_overview(comparison, groups, worst)), id="pairs")
    if comparison.steps is not None and comparison.pairs:
        yield Section("Checkpoints of the training", tuple(_training(comparison, groups)))
    elif len(comparison.runs) > 2:
        group = headline_group(comparison)
        note = f"Held-out error up to {group}, in % of the target’s diameter. Stronger colours are larger errors."
        if len(comparison.runs) > HEAT_RUNS:
            note += f" The first {HEAT_RUNS} of {len(comparison.runs)} runs are shown."
        blocks = (Text(note, muted=True), Figure("heat_map", (comparison, group, HEAT_RUNS), wide=True, brief=True))
        yield Section("How close is every run to every other?", blocks)
    if comparison.consensus is not None:
        yield Section("Consensus of the runs", tuple(_consensus(comparison.consensus)))
    single = len(comparison.pairs) == 1
    detailed = [_detail(number, pair, groups, single) for number, pair in enumerate(worst, start=1)]
    note = (
        f"{len(worst)} of {len(comparison.pairs)} pairs are shown in detail: those with the largest held-out error "
        "after the best rotation and scale."
    )
    few = [Text(note, muted=True)] if len(worst) < len(comparison.pairs) else []
    yield Section("The pair in detail" if single else "Pair by pair", (*few, *detailed))
    section = rows_section(comparison)
    if section is not None:
        yield section
    sizes = [(run.name, run.n, run.d) for run in comparison.runs]
    yield Section("Runs", (Table("Runs", (Column("name", "name"), Column("rows"), Column("dimensions")), sizes),))


def headline_group(comparison: Comparison) -> str:
    """The group shown by one number per pair: similarity, or else the largest that was compared."""
    groups = ordered_groups(comparison.pairs[0].groups)
    return "similarity" if "similarity" in groups else next((g for g in reversed(groups) if g != "ica"), groups[-1])


def _worst(pairs: Sequence[Pair]) -> list[Pair]:
    """All pairs if they are few, else those with the largest error after the best rotation and scale."""
    if len(pairs) <= DETAILED_PAIRS:
        return list(pairs)

    def error(pair: Pair) -> float:
        near = pair.groups.get("similarity") or next(iter(pair.groups.values()), None)
        return near.held_out.mean if near is not None and near.held_out.mean == near.held_out.mean else -1.0

    return sorted(pairs, key=error, reverse=True)[:DETAILED_PAIRS]


def _overview(comparison: Comparison, groups: list[str], worst: list[Pair]) -> Iterator[Block]:
    yield Text(
        "Held-out error after the best map of each group, in % of the target’s diameter; below it the null, the error "
        "of unrelated runs. Click a heading to sort.",
        muted=True,
    )
    links = {(pair.source, pair.target): f"pair-{i}" for i, pair in enumerate(worst, start=1)}
    rows = []
    for pair in comparison.pairs:
        name = Cell(_arrow(pair), link=links.get((pair.source, pair.target), ""))
        nears = [pair.groups.get(group) for group in groups]
        cells = [
            Cell("", "") if near is None else share(near.held_out.mean, below=f"null {percent(near.null)}")
            for near in nears
        ]
        rows.append((name, badge(pair.verdict.status), *cells))
    columns = (Column("pair", "name"), Column("verdict", "text"), *(Column(group) for group in groups))
    nulls = [np.mean([p.groups[g].null for p in comparison.pairs if g in p.groups]) for g in groups]
    means = (share(float(null)) for null in nulls)
    footer: tuple[Any, ...] = ("null, mean of pairs", "", *means) if len(rows) > 1 else ()
    yield Table("Held-out error, % of the diameter", columns, rows, brief=len(rows) > 1, footer=footer)
    similar = [pair for pair in comparison.pairs if pair.similarities][:4]
    if similar:
        yield _similarities(similar, len(comparison.pairs))


def _similarities(pairs: Sequence[Pair], total: int) -> Table:
    """Further measures, one line each and one column per pair."""
    first = f", first {len(pairs)} pairs" if len(pairs) < total else ""
    columns = (Column("measure", "text"), *(Column(_arrow(pair)) for pair in pairs), Column("direction", "text"))
    rows: list[tuple[Any, ...]] = [
        (name, *(_beside_null(pair.similarities[name]) for pair in pairs), MEASURES[name].direction)
        for name in pairs[0].similarities
    ]
    return Table(f"Similarities, in sample, with their null{first}", columns, rows, brief=True)


def _beside_null(score: SimilarityScore, written: Callable[[float], str] = number) -> Cell:
    """A similarity, and below it its null and p value where there are any."""
    below = "" if math.isnan(score.null) else f"null {written(score.null)}"
    below += "" if math.isnan(score.p) else f", p {number(score.p)}"
    return Cell(written(score.value), score.value if score.value == score.value else "", below=below)


def _arrow(pair: Pair) -> str:
    return f"{pair.source} → {pair.target}"


def _detail(number_: int, pair: Pair, groups: list[str], single: bool) -> Details:
    verdict = pair.verdict
    bound = "" if pair.diameter_exact else "at least "
    pictures = [
        Figure(name, (pair,), caption=caption, detail=detail, brief=single and name == "ladder", wide=name == "planes")
        for name, (caption, detail) in PICTURES.items()
    ]
    columns = (
        Column("group", "text"),
        *map(Column, ("held out", "95 % interval", "null", "in sample")),
        *(Column(name, brief=False) for name in ("95 % of rows below", "largest")),
    )
    rows: list[tuple[Any, ...]] = [
        (
            name,
            share(near.held_out.mean, strong=True),
            shares(near.held_out.low, near.held_out.high),
            *map(share, (near.null, near.mean, near.q95, near.sup)),
        )
        for name, near in ((name, pair.groups[name]) for name in groups if name in pair.groups)
    ]
    title = f"{_arrow(pair)}, errors in % of the diameter {bound}{number(pair.diameter, 4)}"
    blocks: tuple[Block, ...] = (
        Text(verdict.finding.evidence, strong=verdict.headline),
        Grid(pictures, "pictures"),
        Heading("Errors, in % of the target’s diameter"),
        Table(title, columns, rows, sortable=False, brief=single),
        Text("The last three columns are in sample, as in published tables.", muted=True),
        Heading("Further numbers"),
        fact_table(_facts(pair), f"Further numbers of {_arrow(pair)}"),
    )
    return Details(_arrow(pair), blocks, id=f"pair-{number_}", open=number_ == 1, status=verdict.status)


def _facts(pair: Pair) -> list[tuple[str, Any, str]]:
    exact = "exact" if pair.diameter_exact else "estimated from below by search"
    facts: list[tuple[str, Any, str]] = [
        ("paired rows", pair.n, "rows that both runs have"),
        ("diameter", number(pair.diameter, 4), f"largest distance between two rows of the target; {exact}"),
        ("MCC, strong", pair.mcc.strong, "correlation of dimensions matched one to one, in sample; 1 is best"),
        ("MCC, weak", pair.mcc.weak, "the same after the best linear map (CCA), held out; 1 is best"),
        ("CKA", _beside_null(pair.cka), "agreement of the similarity structure (linear, unbiased); 1 is best"),
        ("neighbour overlap", _beside_null(pair.neighbour_overlap, percent), "share of nearest neighbours in common"),
    ]
    if "ica" in pair.groups:
        meaning = "share of the gain of a similarity over a permutation that unsupervised ICA reaches"
        facts.append(("ICA efficiency, held out", share(pair.held_out_efficiency), meaning))
        facts.append(("ICA efficiency, in sample", share(pair.efficiency), "the same, in sample"))
    if pair.components is not None:
        value = f"{percent(pair.components.held_out.mean)} (null {percent(pair.components.null)})"
        facts.append(("ICA components", value, "unmixed on all rows, matched on held-out ones; own diameter"))
    for name, similarity in pair.similarities.items():
        if name not in ALWAYS_SHOWN:
            about = MEASURES[name]
            low, high = about.range
            meaning = f"{about.meaning}; {about.direction}, {low:.3g} to {high:.3g}"
            facts.append((about.title, _beside_null(similarity), meaning))
    return facts


def _training(comparison: Comparison, groups: list[str]) -> Iterator[Block]:
    """Held-out errors of checkpoints onto the next and onto the last."""
    group = "similarity" if "similarity" in groups else groups[0]
    *points, last = comparison.series()
    nulls = {p.source: p.groups[group].null for p in comparison.pairs if p.target == last["name"] and group in p.groups}
    start, end = (points[i]["to_last"].get(group, math.nan) for i in (0, -1))
    if len(points) > 1 and math.isfinite(start) and math.isfinite(end):
        yield Text(
            f"The held-out error onto the last checkpoint, {AFTER.get(group, f'up to {group}')}, "
            f"{'falls' if end < start else 'rises'} from {percent(start)} at step {step(points[0]['step'])} "
            f"to {percent(end)} at step {step(points[-1]['step'])}."
        )
    yield Text(
        f"Held-out error of each checkpoint, in % of the target’s diameter: onto the last, {last['name']} at step "
        f"{step(last['step'])}, and onto the next.",
        muted=True,
    )
    yield Figure("training_curves", (points, groups, group, nulls), wide=True, brief=True)
    rows = [
        (
            point["name"],
            Cell(step(point["step"]), point["step"]),
            *(
                share(
                    point["to_last"].get(name, math.nan), below=f"next {percent(point['to_next'].get(name, math.nan))}"
                )
                for name in groups
            ),
        )
        for point in points
    ]
    columns = (Column("checkpoint", "name"), Column("step"), *(Column(name) for name in groups))
    yield Table("Checkpoints of the training", columns, rows)


def _consensus(consensus: Consensus) -> Iterator[Block]:
    scaled = " and scaled" if consensus.group == "similarity" else ""
    yield Text(
        f"All runs were rotated{scaled} onto one common configuration, the consensus. The held-out distance of each "
        f"run from it is in % of its diameter; for unrelated runs it is {percent(consensus.null)}."
    )
    if not consensus.converged:
        yield Text("", strong="The fit did not converge, so these numbers are approximate.")
    columns = (Column("run", "name"), Column("distance"), Column("95 % interval"), Column("null"))
    rows = [
        (name, share(held.mean, strong=True), shares(held.low, held.high), share(consensus.null))
        for name, held in consensus.held_out.items()
    ]
    yield Table("Distance of each run from the consensus", columns, rows, brief=True)


def to_latex(comparison: Comparison) -> str:
    r"""Write a booktabs table of held-out errors, one line per pair, with the null in parentheses.

    It needs ``\usepackage{booktabs}`` and nothing else.
    """
    groups = ordered_groups({name for pair in comparison.pairs for name in pair.groups})

    def cell(near: Nearness | None) -> str:
        return "" if near is None else f"{_latex_share(near.held_out.mean)} ({_latex_share(near.null)})"

    rows = [["pair", *map(_latex_text, groups)]]
    for pair in comparison.pairs:
        name = rf"{_latex_text(pair.source)} $\to$ {_latex_text(pair.target)}"
        rows.append([name, *(cell(pair.groups.get(group)) for group in groups)])
    head, *lines = [f"    {' & '.join(row)} \\\\" for row in rows]
    table = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{CAPTION}}}",
        rf"  \begin{{tabular}}{{l{'r' * len(groups)}}}",
        r"    \toprule",
        head,
        r"    \midrule",
        *lines,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(table) + "\n"


def _latex_share(share: float) -> str:
    text = percent(share, unit="")
    return f"${text}$" if text.startswith("<") else _latex_text(text).replace("–", "--")


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
