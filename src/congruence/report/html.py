"""The report of a comparison: one self-contained HTML file that a colleague can read without knowing this package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from congruence import files
from congruence.report import figures, words
from congruence.report.moved import Moved, moved_section
from congruence.report.page import fill
from congruence.report.training import Training, training_section

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair

SHOWN_PAIRS = 12  # with figures, about 60 kB each
TABLE_PAIRS = 500
LIMIT = 1_900_000  # bytes
ALWAYS_SHOWN = ("cka", "neighbour_overlap", "strong_mcc")  # similarities that every pair has a line for anyway


@dataclass(frozen=True)
class _Section:
    """One pair as the page shows it."""

    number: int
    pair: Pair
    figures: dict[str, str]
    facts: list[tuple[str, str, str]]  # what, its value, what it means


@dataclass(frozen=True)
class _Parts:
    """What is drawn once, before the page is cut to its size."""

    sections: list[_Section] = field(default_factory=list)
    heat: str = ""
    training: Training | None = None
    moved: Moved | None = None


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write the report of a comparison to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render(comparison))


def render(comparison: Comparison) -> str:
    """Return the report of a comparison as one HTML page that needs no other file, below 2 MB.

    With more than `SHOWN_PAIRS` pairs, only those with the largest held-out error have figures, and the page
    says so.
    """
    parts = _parts(comparison)
    rows = TABLE_PAIRS
    page = _page(comparison, parts, rows)
    while len(page.encode()) > LIMIT and (parts.sections or rows > 1):
        parts = replace(parts, sections=parts.sections[: len(parts.sections) // 2])
        rows = max(rows // 2, 1)
        page = _page(comparison, parts, rows)
    return page


def _parts(comparison: Comparison) -> _Parts:
    chosen = _worst(comparison.pairs, SHOWN_PAIRS)
    return _Parts(
        sections=[_section(number, pair) for number, pair in enumerate(chosen, start=1)],
        heat=figures.heat_map(comparison, words.headline_group(comparison)) if _has_heat_map(comparison) else "",
        training=training_section(comparison),
        moved=moved_section(comparison),
    )


def _worst(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Take all pairs if they are few, else those that the best rotation and scale leaves furthest apart."""
    if len(pairs) <= count:
        return list(pairs)

    def left(pair: Pair) -> float:
        near = pair.groups.get("similarity") or next(iter(pair.groups.values()), None)
        return near.held_out.mean if near is not None and near.held_out.mean == near.held_out.mean else -1.0

    return sorted(pairs, key=left, reverse=True)[:count]


def _has_heat_map(comparison: Comparison) -> bool:
    """Checkpoints of a training are compared with few others: their map would be nearly blank."""
    return comparison.steps is None and len(comparison.runs) > 2


def _section(number: int, pair: Pair) -> _Section:
    drawn = {
        "ladder": figures.ladder(pair),
        "histogram": figures.error_histogram(pair),
        "planes": figures.planes(pair),
    }
    return _Section(number, pair, drawn, _facts(pair))


def _facts(pair: Pair) -> list[tuple[str, str, str]]:
    exact = "exact" if pair.diameter_exact else "estimated from below by search"
    facts = [
        ("paired rows", str(pair.n), "rows that both runs have"),
        (
            "diameter",
            words.number(pair.diameter, 4),
            f"largest distance between two rows of the target; {exact}",
        ),
        (
            "MCC, strong",
            words.number(pair.mcc.strong),
            "correlation of dimensions matched one to one, in sample; 1 is best",
        ),
        (
            "MCC, weak",
            words.number(pair.mcc.weak),
            "the same after the best linear map (CCA), held out; 1 is best",
        ),
        (
            "CKA",
            words.number(pair.cka),
            "agreement of the similarity structure (linear, unbiased); 1 is best",
        ),
        ("neighbour overlap", words.percent(pair.neighbour_overlap), "nearest neighbours that stay the same"),
    ]
    if "ica" in pair.groups:
        meaning = "how much of what a similarity gains over a permutation, unsupervised ICA gains too"
        facts.append(("ICA efficiency, held out", words.percent(pair.held_out_efficiency), meaning))
        facts.append(("ICA efficiency, in sample", words.percent(pair.efficiency), "the same, in sample"))
    if pair.components is not None:
        held, null = pair.components.held_out.mean, pair.components.null
        value = f"{words.percent(held)} (null {words.percent(null)})"
        facts.append(("ICA components", value, "unmixed on all rows, matched on held-out ones; own diameter"))
    for name, similarity in pair.similarities.items():
        if name not in ALWAYS_SHOWN:
            what, meaning = words.SIMILARITIES.get(name, (name, ""))
            facts.append((what, words.number(similarity), meaning))
    return facts


def _page(comparison: Comparison, parts: _Parts, rows: int) -> str:
    statuses = Counter(pair.verdict.status for pair in comparison.pairs)
    return fill(
        "comparison.html.j2",
        comparison=comparison,
        consensus=getattr(comparison, "consensus", None),
        status=words.worst(statuses),
        statuses=[(status, statuses[status]) for status in words.STATUSES if statuses[status]],
        ranks=list(words.STATUSES),
        sentences=words.sentences(comparison.verdict),
        groups=words.ordered({name for pair in comparison.pairs for name in pair.groups}),
        listed=rows,
        rows=comparison.pairs[:rows],
        parts=parts,
        numbers={(section.pair.source, section.pair.target): section.number for section in parts.sections},
        heat_runs=min(len(comparison.runs), figures.HEAT_RUNS),
        headline_group=words.headline_group(comparison),
    )
