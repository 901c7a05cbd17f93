"""A comparison as a document."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.align._sections import CHANCE_DIFFERS, arrow, pair_details, r2_text, rows_section, with_null
from congruence.align.similarities import MEASURES
from congruence.document import (
    Block,
    Cell,
    Column,
    Figure,
    Heading,
    Section,
    Table,
    Text,
    badge,
    document_of,
    share,
    shares,
)
from congruence.formatting import percent, step
from congruence.maps._names import AFTER, MEANINGS, has_null, leading_error, ordered_groups
from congruence.result import STATUSES

if TYPE_CHECKING:
    from congruence.align._consensus import Consensus
    from congruence.align.comparison import Comparison, Pair

HEAT_RUNS = 40  # more do not fit on a page
DETAILED_PAIRS = 12  # the others have their numbers in the table
REMARKS = {
    "fails": "more than a rotation and a scale changed",
    "ambiguous": "a rotation plus noise, or undecided",
    "unknown": "the data do not allow a decision",
    "holds": "at most a rotation and a scale",
}
CHECK_REMARKS = REMARKS | {
    "fails": "more than is allowed changed",
    "ambiguous": "a change about as large as the tolerance, or undecided",
    "holds": "no more than is allowed changed",
}
ERROR_TERMS = (
    ("error", "the distance between a mapped row and its target, averaged over rows. 0 is a perfect match."),
    (
        "held out",
        "the map is fitted on some rows and scored on others. “In sample” means fitted and scored on the same rows; "
        "that error is biased downwards, more so with more dimensions.",
    ),
    (
        "chance, null",
        "the same held-out score for randomly re-paired rows, as for unrelated runs. An error of 100 % of chance is no "
        "better than that of unrelated runs.",
    ),
    (
        "nearness, share of the diameter",
        "the error over the largest distance between two rows of the target, as in published tables. One far row makes "
        "it small, so it cannot be compared between data sets.",
    ),
)
VERDICT_TERMS = (
    ("R²", "the share of the target’s variance that the map explains on held-out rows; 1 is best."),
    (
        "distortion, log gain",
        "the gain is how much the best map stretches a direction relative to the scale of all directions, corrected "
        "for noise. Its logarithm is 0 in every direction for a rotation and a scale.",
    ),
    ("margin", "the largest |log gain| that still counts as no distortion."),
    ("unexplained", "the share of the target’s variance that is left after the best map, 1 − R²."),
    ("tolerance", "the largest unexplained share of the variance that still counts as only a rotation and a scale."),
)


def group_terms(groups: Sequence[str], more: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
    """The glossary of errors, of further terms and of these groups."""
    return (*ERROR_TERMS, *more, *((name, MEANINGS.get(name, "")) for name in groups))


def describe(comparison: Comparison) -> doc.Document:
    """The document of a comparison."""
    groups = ordered_groups({name for pair in comparison.pairs for name in pair.groups})
    runs, pairs = comparison.runs, comparison.pairs
    subject = f"{runs[0].name} and {runs[1].name}" if len(runs) == 2 else f"{len(runs)} runs, {len(pairs)} pairs"
    checked = "allow" in comparison.settings
    return document_of(
        comparison,
        f"{subject}: did the embeddings {'' if checked else 'only rotate, or did they '}change?",
        claim=comparison.findings[0].claim if checked else "Only a rotation and a scale?",
        remark=_remark(comparison),
        sections=tuple(_sections(comparison, groups)),
        reading=(
            "Two runs embed the same rows. For each pair, maps from one run (the source) onto the other (the target) "
            "are fitted, from the smallest group of maps to the largest. Two statements decide: whether the best map "
            "stretches some directions more than others (distortion), and how much of the variance no rotation and "
            "scale explains (unexplained)."
        ),
        glossary=group_terms(groups, VERDICT_TERMS),
        title=f"{subject}: {'unchanged' if checked else 'only a rotation'}?",
    )


def _remark(comparison: Comparison) -> str:
    pairs = comparison.pairs
    statuses = Counter(pair.verdict.status for pair in pairs)
    if len(statuses) > 1:
        counts = ", ".join(f"{status} for {statuses[status]}" for status in STATUSES if statuses[status])
        verdict = f"{counts} of {len(pairs)} pairs"
    else:
        verdict = (CHECK_REMARKS if "allow" in comparison.settings else REMARKS)[comparison.status]
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
        unit = "chance" if _judged(comparison) else "the target’s diameter"
        full = ", the strongest is chance" if _judged(comparison) else ""
        note = f"Held-out error up to {group}, in % of {unit}. Stronger colours are larger errors{full}."
        if len(comparison.runs) > HEAT_RUNS:
            note += f" The first {HEAT_RUNS} of {len(comparison.runs)} runs are shown."
        title = f"Held-out error up to {group}, % of {unit}"
        figure = Figure("heat_map", (comparison, group, HEAT_RUNS), wide=True, brief=True, title=title)
        blocks = (Text(note, muted=True), figure)
        yield Section("How close is every run to every other?", blocks)
    if comparison.consensus is not None:
        yield Section("Consensus of the runs", tuple(_consensus(comparison.consensus)))
    single = len(comparison.pairs) == 1
    detailed = [pair_details(number, pair, comparison, groups) for number, pair in enumerate(worst, start=1)]
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

    judged = has_null(near for pair in pairs for near in pair.groups.values())

    def error(pair: Pair) -> float:
        near = pair.groups.get("similarity") or next(iter(pair.groups.values()), None)
        value = math.nan if near is None else leading_error(near, judged)
        return value if math.isfinite(value) else -1.0

    return sorted(pairs, key=error, reverse=True)[:DETAILED_PAIRS]


def _overview(comparison: Comparison, groups: list[str], worst: list[Pair]) -> Iterator[Block]:
    judged = _judged(comparison)
    unit = "chance" if judged else "the target’s diameter"
    yield Text(
        f"Held-out error after the best map of each group, in % of {unit}; below it R², the share of the variance that "
        "the map explains. Click a heading to sort.",
        muted=True,
    )
    links = {(pair.source, pair.target): f"pair-{i}" for i, pair in enumerate(worst, start=1)}
    rows = []
    for pair in comparison.pairs:
        name = Cell(arrow(pair), link=links.get((pair.source, pair.target), ""))
        nears = [pair.groups.get(group) for group in groups]
        cells = [
            Cell("", "") if near is None else share(leading_error(near, judged), below=r2_text(near.r2.mean))
            for near in nears
        ]
        rows.append((name, badge(pair.verdict.status), *cells))
    columns = (Column("pair", "name"), Column("verdict", "text"), *(Column(group) for group in groups))
    errors = [[leading_error(p.groups[g], judged) for p in comparison.pairs if g in p.groups] for g in groups]
    footer: tuple[Any, ...] = ("mean of pairs", "", *(share(float(np.mean(some))) for some in errors))
    several = len(rows) > 1
    footer = footer if several else ()
    note = CHANCE_DIFFERS if judged else ""
    yield Table(f"Held-out error, % of {unit}", columns, rows, brief=several, footer=footer, note=note)
    similar = [pair for pair in comparison.pairs if pair.similarities][:4]
    if similar:
        table = _similarities(similar, len(comparison.pairs))
        yield Heading(table.label)
        yield table


def _similarities(pairs: Sequence[Pair], total: int) -> Table:
    """Further measures, one line each and one column per pair."""
    first = f", first {len(pairs)} pairs" if len(pairs) < total else ""
    columns = (Column("measure", "text"), *(Column(arrow(pair)) for pair in pairs), Column("direction", "text"))
    rows: list[tuple[Any, ...]] = [
        (name, *(with_null(pair.similarities[name]) for pair in pairs), MEASURES[name].direction)
        for name in pairs[0].similarities
    ]
    return Table(f"Similarities, in sample, with their null{first}", columns, rows, brief=True)


def _training(comparison: Comparison, groups: list[str]) -> Iterator[Block]:
    """Held-out errors of checkpoints onto the next and onto the last."""
    group = "similarity" if "similarity" in groups else groups[0]
    judged = _judged(comparison)
    unit, key = ("chance", "") if judged else ("the target’s diameter", "_diameter")
    *points, last = comparison.series()
    start, end = (points[i][f"to_last{key}"].get(group, math.nan) for i in (0, -1))
    if len(points) > 1 and math.isfinite(start) and math.isfinite(end):
        yield Text(
            f"The held-out error onto the last checkpoint, {AFTER.get(group, f'up to {group}')}, "
            f"{'falls' if end < start else 'rises'} from {percent(start)} of {unit} at step {step(points[0]['step'])} "
            f"to {percent(end)} at step {step(points[-1]['step'])}."
        )
    yield Text(
        f"Held-out error of each checkpoint, in % of {unit}: onto the last, {last['name']} at step "
        f"{step(last['step'])}, and onto the next.",
        muted=True,
    )
    yield Figure("training_curves", (points, groups, judged), wide=True, brief=True)

    def cell(point: dict[str, Any], name: str) -> Cell:
        onto_last, onto_next = (point[f"{onto}{key}"].get(name, math.nan) for onto in ("to_last", "to_next"))
        return share(onto_last, below=f"next {percent(onto_next)}")

    rows = [
        (point["name"], Cell(step(point["step"]), point["step"]), *(cell(point, name) for name in groups))
        for point in points
    ]
    columns = (Column("checkpoint", "name"), Column("step"), *(Column(name) for name in groups))
    yield Table(f"Checkpoints of the training, error in % of {unit}", columns, rows)


def _consensus(consensus: Consensus) -> Iterator[Block]:
    scaled = " and scaled" if consensus.group == "similarity" else ""
    yield Text(
        f"All runs were rotated{scaled} onto one common configuration, the consensus. The held-out distance of each "
        "run from it is in % of chance, the distance of unrelated runs from theirs "
        f"({percent(consensus.null)} of the consensus’s diameter)."
    )
    if not consensus.converged:
        yield Text("", strong="The fit did not converge, so these numbers are approximate.")
    names = ("of chance", "95 % interval", "held out, of diameter", "95 % interval")
    rows = [
        (
            name,
            share(consensus.of_chance[name].mean, strong=True),
            shares(consensus.of_chance[name].low, consensus.of_chance[name].high),
            share(held.mean),
            shares(held.low, held.high),
        )
        for name, held in consensus.held_out.items()
    ]
    columns = (Column("run", "name"), *map(Column, names))
    yield Table("Distance of each run from the consensus", columns, rows, brief=True)


def _judged(comparison: Comparison) -> bool:
    return has_null(near for pair in comparison.pairs for near in pair.groups.values())
